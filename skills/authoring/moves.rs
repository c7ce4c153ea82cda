//! How a skill changes: creation, edits, and moves from status to status. Pure; every store uses these.
//!
//! ```text
//!            publish, price 0 ┌───────────┐
//!   draft ───────────────────▶│ published │◀── approve ──┐
//!     │                       └───────────┘              │
//!     │ publish, price > 0      │ paid and changed  ┌────────┐  reject  ┌──────────┐
//!     └────────────────────────▶└──────────────────▶│ review │─────────▶│ rejected │
//!                                                   └────────┘◀─────────└──────────┘
//!   any ── DELETE ──▶ unlisted ── publish, by price ──▶ ...       publish
//! ```
//!
//! **Invariant:** what the operator has rejected is listed only after the operator has approved it; taking
//! it off the list or making it free in between leads to `review` all the same. And what the operator has
//! vouched for or highlighted is so marked only as long as it says the same and comes from the same author:
//! the shared key opens every skill, so that nobody knows whose edit it was.

use super::{DEFAULT_AUTHOR, Draft, set, slug, text};
use crate::authors;
use crate::model::{Profile, Skill, Source, Status, Verification};
use svc_base::api::Problem;
use svc_base::time::Time;

/// A move of a skill that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// The author wants it listed.
    Publish,
    /// The author takes it off the list.
    Unlist,
    Review {
        approve: bool,
        note: String,
    },
    /// The operator vouches, or takes it back.
    Verify(Verification),
    /// The operator highlights it, or takes it back.
    Feature(bool),
}

impl Move {
    /// Its name in the events table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Unlist => "unlist",
            Self::Review { approve: true, .. } => "approve",
            Self::Review { approve: false, .. } => "reject",
            Self::Verify(_) => "verify",
            Self::Feature(_) => "feature",
        }
    }
}

/// A new skill from a checked draft. Its id is the slug, before collisions are looked at.
pub fn create(draft: Draft, now: Time) -> Skill {
    let name = draft.name.unwrap_or_default();
    let author = draft.author.unwrap_or_else(|| DEFAULT_AUTHOR.to_owned());
    let mut profile = Profile::default();
    if let Some(patch) = &draft.profile {
        patch.apply(&mut profile);
    }
    let content = draft.content.unwrap_or_else(|| super::Content::new(String::new()));
    Skill {
        id: slug::of_name(&name),
        icon: draft.icon.unwrap_or_else(|| text::icon_of(&name)),
        name,
        description: draft.description.unwrap_or_default(),
        author_id: authors::id_of(&author, &profile),
        author,
        profile,
        category: draft.category.unwrap_or(crate::model::Category::Specialized),
        tags: draft.tags.unwrap_or_default(),
        roles: draft.roles.unwrap_or_default(),
        source: Source::Community,
        content_bytes: content.text.len() as u64,
        digest: content.digest,
        has_front_matter: content.has_front_matter,
        downloads: 0,
        seed_rating: 0,
        seed_rating_count: 0,
        rating_sum: 0,
        rating_count: 0,
        price_cents: draft.price_cents.unwrap_or_default(),
        featured: false,
        verification: Verification::Nobody,
        status: Status::Draft,
        version: draft.version.unwrap_or_else(|| "1.0.0".to_owned()),
        first_published_at: None,
        created_at: now,
        updated_at: now,
    }
}

/// Edits a skill.
///
/// Errors: 403 for the vendor's, 400 for a listed skill left without content.
pub fn edit(skill: &mut Skill, draft: &Draft, now: Time) -> Result<(), Problem> {
    refuse_vendor(skill)?;
    let before = skill.clone();
    let was_free = skill.price_cents == 0;
    let new_content = draft.content.as_ref().filter(|content| content.digest != skill.digest);
    if let Some(content) = new_content {
        let needed = matches!(skill.status, Status::Published | Status::Review);
        if needed && content.text.trim().is_empty() {
            return Err(content_required());
        }
        skill.digest.clone_from(&content.digest);
        skill.content_bytes = content.text.len() as u64;
        skill.has_front_matter = content.has_front_matter;
        // Strictly later, also within one millisecond, so that a client sees that it moved.
        skill.updated_at = now.max(Time(skill.updated_at.0 + 1));
    }
    edit_author(skill, draft);
    set(&mut skill.name, draft.name.as_ref());
    set(&mut skill.description, draft.description.as_ref());
    set(&mut skill.category, draft.category.as_ref());
    set(&mut skill.tags, draft.tags.as_ref());
    set(&mut skill.roles, draft.roles.as_ref());
    set(&mut skill.icon, draft.icon.as_ref());
    set(&mut skill.price_cents, draft.price_cents.as_ref());
    set(&mut skill.version, draft.version.as_ref());
    let paid = skill.price_cents > 0;
    if skill.status == Status::Published && paid && (was_free || new_content.is_some()) {
        skill.status = Status::Review;
    }
    keep_marks(skill, &before);
    Ok(())
}

/// Takes the operator's marks off a skill that reads otherwise or comes from somebody else than before.
/// The vendor's own are changed by the vendor alone.
pub fn keep_marks(skill: &mut Skill, before: &Skill) {
    let says_the_same =
        skill.name == before.name && skill.description == before.description && skill.digest == before.digest;
    let same_hand = skill.author == before.author
        && skill.author_id == before.author_id
        && skill.profile == before.profile;
    if skill.source == Source::Community && !(says_the_same && same_hand) {
        skill.verification = Verification::Nobody;
        skill.featured = false;
    }
}

/// A changed name or handle may lead to another author record.
fn edit_author(skill: &mut Skill, draft: &Draft) {
    if draft.author.is_none() && draft.profile.is_none() {
        return;
    }
    set(&mut skill.author, draft.author.as_ref());
    if let Some(patch) = &draft.profile {
        patch.apply(&mut skill.profile);
    }
    skill.author_id = authors::id_of(&skill.author, &skill.profile);
}

/// 403 for a skill that only the vendor edits.
pub fn refuse_vendor(skill: &Skill) -> Result<(), Problem> {
    if skill.source == Source::Community {
        return Ok(());
    }
    let text = format!("skill {} is the vendor's own and cannot be edited through the API", skill.id);
    Err(Problem::new(403, "vendor_skill", text))
}

/// Moves a skill to another status or mark. What changed nothing is no error. `was_rejected`: the
/// operator's last decision on it.
///
/// Errors: 400 `content_required`, 409 for a review of what is not in review.
pub fn make(skill: &mut Skill, step: &Move, was_rejected: bool, now: Time) -> Result<(), Problem> {
    match step {
        Move::Publish => {
            if skill.content_bytes == 0 {
                return Err(content_required());
            }
            skill.status = after_publish(skill.status, skill.price_cents, was_rejected);
        }
        Move::Unlist => skill.status = Status::Unlisted,
        Move::Review { approve, .. } => {
            if skill.status != Status::Review {
                let text = format!(
                    "skill {} is {}, only a skill in review can be approved or rejected",
                    skill.id, skill.status
                );
                return Err(Problem::new(409, "not_in_review", text).with("status_now", skill.status.word()));
            }
            skill.status = if *approve { Status::Published } else { Status::Rejected };
        }
        Move::Verify(verification) => skill.verification = *verification,
        Move::Feature(featured) => skill.featured = *featured,
    }
    if skill.status == Status::Published && skill.first_published_at.is_none() {
        skill.first_published_at = Some(now);
    }
    Ok(())
}

/// Where a publish leads.
pub fn after_publish(from: Status, price_cents: u64, was_rejected: bool) -> Status {
    match from {
        Status::Published => Status::Published,
        Status::Draft | Status::Unlisted if price_cents == 0 && !was_rejected => Status::Published,
        Status::Draft | Status::Unlisted | Status::Review | Status::Rejected => Status::Review,
    }
}

fn content_required() -> Problem {
    Problem::bad_request(
        "content_required",
        "content must not be empty: PUT the skill with its content first",
    )
}

/// Refuses reading, rating or installing what is not listed.
///
/// Errors: 404, and 410 for what was listed once.
pub fn require_listed(skill: &Skill) -> Result<(), Problem> {
    match (skill.status, skill.first_published_at) {
        (Status::Published, _) => Ok(()),
        (Status::Unlisted, Some(_)) => {
            Err(Problem::new(410, "gone", format!("skill {} is no longer published", skill.id)))
        }
        _ => Err(Problem::not_found(format!("skill {} is not published", skill.id))),
    }
}
