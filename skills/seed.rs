//! The vendor's 21 skills, embedded.
//!
//! **Invariant:** facts (ids, names, figures) come from `data/vendor-skills.json`, texts from
//! `data/skills/<id>/SKILL.md`; taking them in again updates text, never counters.

use crate::authoring::content::{Content, front_matter, front_value};
use crate::model::{Category, Profile, Skill, Source, Status, VENDOR_AUTHOR_ID, VENDOR_NAME, Verification};
use crate::store::Incoming;
use serde::Deserialize;
use svc_base::bundled::{FACTS, TEXTS};
use svc_base::time::Time;

/// When the vendor's skills were first published: 2026-11-01T00:00:00Z.
const PUBLISHED_AT: Time = Time(1_793_491_200_000);
/// Their version label.
const VERSION: &str = "1.0.0";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fact {
    id: String,
    name: String,
    category: String,
    tags: Vec<String>,
    roles: Vec<String>,
    icon: String,
    downloads: u64,
    rating: f64,
    rating_count: u64,
    price: f64,
    featured: bool,
}

/// All seeds.
///
/// Errors: a sentence, only when the embedded files do not fit together, which a test excludes.
pub fn all() -> Result<Vec<Incoming>, String> {
    let facts: Vec<Fact> = serde_json::from_str(FACTS).map_err(|error| error.to_string())?;
    facts.into_iter().map(incoming).collect()
}

fn incoming(fact: Fact) -> Result<Incoming, String> {
    let found = TEXTS.iter().find(|(id, _)| *id == fact.id);
    let text = found.ok_or_else(|| format!("there is no text for {}", fact.id))?.1;
    let front = front_matter(text).ok_or_else(|| format!("{} has no front matter", fact.id))?;
    let description = front_value(front, "description")
        .ok_or_else(|| format!("the front matter of {} has no description", fact.id))?;
    let category = Category::from_word(&fact.category)
        .ok_or_else(|| format!("{} has the unknown category {}", fact.id, fact.category))?;
    let content = Content::new(text.to_owned());
    let skill = Skill {
        id: fact.id,
        name: fact.name,
        description,
        author: VENDOR_NAME.to_owned(),
        author_id: VENDOR_AUTHOR_ID.to_owned(),
        profile: Profile::default(),
        category,
        tags: fact.tags,
        roles: fact.roles,
        source: Source::Vendor,
        icon: fact.icon,
        content_bytes: content.text.len() as u64,
        digest: content.digest,
        has_front_matter: content.has_front_matter,
        downloads: fact.downloads,
        seed_rating: whole_hundredths(fact.rating),
        seed_rating_count: fact.rating_count,
        rating_sum: 0,
        rating_count: 0,
        price_cents: whole_hundredths(fact.price),
        featured: fact.featured,
        verification: Verification::Vendor,
        status: Status::Published,
        version: VERSION.to_owned(),
        first_published_at: Some(PUBLISHED_AT),
        created_at: PUBLISHED_AT,
        updated_at: PUBLISHED_AT,
    };
    Ok(Incoming { skill, content: content.text })
}

/// A figure of at most two decimals as whole hundredths.
pub fn whole_hundredths(value: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped just before")]
    let hundredths = (value * 100.0).round().clamp(0.0, 1e9) as u64;
    hundredths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authoring;

    #[test]
    fn resources_21_vendor_skills_that_keep_every_rule() {
        let seeds = all().unwrap();
        assert_eq!(seeds.len(), 21);
        for Incoming { skill, content } in &seeds {
            let body = serde_json::json!({
                "name": skill.name, "description": skill.description, "category": skill.category.word(),
                "tags": skill.tags, "roles": skill.roles, "icon": skill.icon, "content": content,
            });
            authoring::parse_new(body.as_object().unwrap())
                .unwrap_or_else(|problem| panic!("{}: {problem}", skill.id));
            let front = front_matter(content).unwrap();
            assert_eq!(front_value(front, "name").as_deref(), Some(skill.id.as_str()));
            assert!(skill.has_front_matter, "{}", skill.id);
            let lines = content.lines().count();
            assert!((60..=300).contains(&lines), "{} has {lines} lines", skill.id);
        }
        let review = seeds.iter().find(|seed| seed.skill.id == "code-review").unwrap();
        assert_eq!((review.skill.downloads, review.skill.seed_rating), (2350, 490));
    }
}
