//! One skill as the catalogue keeps it: serialised once, with what sorting and searching need.

use super::index::Field;
use super::query::{folded, searched};
use crate::hex;
use crate::model::{Author, Profile, Skill, Source, Status, Verification, hundredths};
use crate::ratings;
use serde::Serialize;
use std::sync::Arc;

/// A skill, ready to be served.
#[derive(Debug)]
pub struct Entry {
    pub skill: Skill,
    /// Its JSON, without content.
    pub json: Arc<[u8]>,
    /// Its entity tag, quotes included.
    pub etag: String,
    /// Average rating in hundredths.
    pub rating: u64,
    /// Unique raters.
    pub raters: u64,
    /// Its name as names are sorted.
    pub folded_name: String,
    /// Name, tags, the rest and description as they are searched, one after the other.
    searched: Box<str>,
    /// Where the first three of them end.
    ends: [u32; 3],
}

impl Entry {
    /// Serialises a skill.
    pub fn new(skill: Skill, base_url: &str) -> Self {
        let json = render(&skill, base_url);
        let etag = format!("\"{}\"", &hex::sha256(&json)[..20]);
        let rest = format!("{} {} {}", skill.id, skill.author, skill.roles.join(" "));
        let mut text = String::new();
        let mut ends = [0; 3];
        for (end, part) in ends.iter_mut().zip([&skill.name, &skill.tags.join(" "), &rest]) {
            text.push_str(&searched(part));
            *end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        }
        text.push_str(&searched(&skill.description));
        Self {
            json: json.into(),
            etag,
            rating: ratings::average(&skill),
            raters: ratings::raters(&skill),
            folded_name: folded(&skill.name),
            searched: text.into(),
            ends,
            skill,
        }
    }

    /// The texts that are searched.
    pub fn texts(&self) -> [(Field, &str); 4] {
        let [name, tags, rest] = self.ends.map(|end| end as usize);
        let text = &self.searched;
        [
            (Field::Name, &text[..name]),
            (Field::Tag, &text[name..tags]),
            (Field::Other, &text[tags..rest]),
            (Field::Description, &text[rest..]),
        ]
    }

    /// The name as it is searched.
    pub fn searched_name(&self) -> &str {
        &self.searched[..self.ends[0] as usize]
    }

    /// Whether a search finds both by the same words.
    pub fn is_searched_like(&self, other: &Self) -> bool {
        (&self.searched, self.ends) == (&other.searched, other.ends)
    }

    /// Whether it is listed.
    pub fn is_listed(&self) -> bool {
        self.skill.status == Status::Published
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    author: &'a str,
    author_id: &'a str,
    author_profile: &'a Profile,
    category: &'a str,
    tags: &'a [String],
    roles: &'a [String],
    source: &'a str,
    icon: &'a str,
    content_url: String,
    downloads: u64,
    rating: serde_json::Value,
    rating_count: u64,
    price: serde_json::Value,
    featured: bool,
    verified: bool,
    verification: &'a str,
    status: &'a str,
    version: &'a str,
    created_at: String,
    updated_at: String,
}

/// The public JSON of a skill.
pub fn render(skill: &Skill, base_url: &str) -> Vec<u8> {
    let wire = Wire {
        id: &skill.id,
        name: &skill.name,
        description: &skill.description,
        author: &skill.author,
        author_id: &skill.author_id,
        author_profile: &skill.profile,
        category: skill.category.word(),
        tags: &skill.tags,
        roles: &skill.roles,
        source: skill.source.word(),
        icon: &skill.icon,
        content_url: format!("{base_url}/skills/content/{}.md", skill.id),
        downloads: skill.downloads,
        rating: hundredths(ratings::average(skill)),
        rating_count: ratings::raters(skill),
        price: hundredths(skill.price_cents),
        featured: skill.featured,
        verified: skill.source == Source::Vendor
            || matches!(skill.verification, Verification::Service | Verification::Creator),
        verification: skill.verification.word(),
        status: skill.status.word(),
        version: &skill.version,
        created_at: skill.created_at.to_string(),
        updated_at: skill.updated_at.to_string(),
    };
    // Strings and numbers always serialise.
    serde_json::to_vec(&wire).unwrap_or_default()
}

/// The public JSON of an author, with their listed skills.
pub fn render_author(author: &Author, listed: &[&Entry]) -> Vec<u8> {
    let profile = &author.profile;
    let mut value = serde_json::json!({
        "id": author.id,
        "githubId": author.github_id,
        "username": author.username,
        "displayName": author.display_name,
        "avatar": profile.avatar,
        "bio": profile.bio,
        "website": profile.website,
        "github": profile.github,
        "twitter": profile.twitter,
        "portfolio": author.portfolio,
        "createdAt": author.created_at.to_string(),
        "skillCount": listed.len(),
        "totalDownloads": listed.iter().map(|entry| entry.skill.downloads).sum::<u64>(),
    });
    value["skills"] = listed
        .iter()
        .map(|entry| serde_json::from_slice(&entry.json).unwrap_or_default())
        .collect::<Vec<serde_json::Value>>()
        .into();
    value.to_string().into_bytes()
}
