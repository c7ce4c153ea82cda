//! Records to rows and back.

use super::wire::{Row, ToText};
use crate::model::{Author, Category, Skill, Source, Status, Verification};
use crate::store::StoreError;
use serde::de::DeserializeOwned;
use svc_base::time::Time;

/// In the order of [`skill_values`].
pub const SKILL_COLUMNS: &str = "id, name, description, author, author_id, profile, category, tags, roles, source, icon, \
     digest, content_bytes, has_front_matter, downloads, seed_rating, seed_rating_count, rating_sum, \
     rating_count, price_cents, featured, verification, status, version, first_published_at, created_at, \
     updated_at";
/// In the order of [`author_values`].
pub const AUTHOR_COLUMNS: &str = "id, github_id, username, display_name, profile, portfolio, created_at";
/// Columns that a later write of a skill moves; counters, source and the first date are not among them.
const SKILL_MOVES: &str = "name, description, author, author_id, profile, category, tags, roles, icon, digest, \
     content_bytes, has_front_matter, price_cents, featured, verification, status, version, \
     first_published_at, updated_at, generation";
const AUTHOR_MOVES: &str = "github_id, username, display_name, profile, portfolio, generation";

/// A value on its way into a row.
pub type Bound = Box<dyn ToText>;

/// Numbers go into the database as `i64`; those here never come near its end.
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn damaged(column: &str, text: &str) -> StoreError {
    StoreError::Unavailable(format!("{column} holds the unreadable {text:?}"))
}

fn json<T: DeserializeOwned>(row: &Row, column: &str) -> Result<T, StoreError> {
    let text: &str = row.get(column)?;
    serde_json::from_str(text).map_err(|_| damaged(column, text))
}

fn word<T>(row: &Row, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    let text: &str = row.get(column)?;
    parse(text).ok_or_else(|| damaged(column, text))
}

fn number(row: &Row, column: &str) -> Result<u64, StoreError> {
    // The tables' checks keep every number at zero or above.
    Ok(u64::try_from(row.get::<i64>(column)?).unwrap_or_default())
}

fn time(row: &Row, column: &str) -> Result<Time, StoreError> {
    number(row, column).map(Time)
}

/// A row of [`SKILL_COLUMNS`].
pub fn skill_of(row: &Row) -> Result<Skill, StoreError> {
    let first_published: Option<i64> = row.get("first_published_at")?;
    Ok(Skill {
        id: row.get("id")?,
        name: row.get("name")?,
        description: row.get("description")?,
        author: row.get("author")?,
        author_id: row.get("author_id")?,
        profile: json(row, "profile")?,
        category: word(row, "category", Category::from_word)?,
        tags: json(row, "tags")?,
        roles: json(row, "roles")?,
        source: word(row, "source", Source::from_word)?,
        icon: row.get("icon")?,
        digest: row.get("digest")?,
        content_bytes: number(row, "content_bytes")?,
        has_front_matter: row.get("has_front_matter")?,
        downloads: number(row, "downloads")?,
        seed_rating: number(row, "seed_rating")?,
        seed_rating_count: number(row, "seed_rating_count")?,
        rating_sum: number(row, "rating_sum")?,
        rating_count: number(row, "rating_count")?,
        price_cents: number(row, "price_cents")?,
        featured: row.get("featured")?,
        verification: word(row, "verification", Verification::from_word)?,
        status: word(row, "status", Status::from_word)?,
        version: row.get("version")?,
        first_published_at: first_published.map(|ms| Time(u64::try_from(ms).unwrap_or_default())),
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
    })
}

/// A row of [`AUTHOR_COLUMNS`].
pub fn author_of(row: &Row) -> Result<Author, StoreError> {
    Ok(Author {
        id: row.get("id")?,
        github_id: row.get("github_id")?,
        username: row.get("username")?,
        display_name: row.get("display_name")?,
        profile: json(row, "profile")?,
        portfolio: row.get("portfolio")?,
        created_at: time(row, "created_at")?,
    })
}

/// The values of [`put_skill_sql`].
pub fn skill_values(skill: &Skill, generation: u64) -> Vec<Bound> {
    let own = |text: &str| -> Bound { Box::new(text.to_owned()) };
    let count = |n: u64| -> Bound { Box::new(int(n)) };
    vec![
        own(&skill.id),
        own(&skill.name),
        own(&skill.description),
        own(&skill.author),
        own(&skill.author_id),
        own(&text(&skill.profile)),
        own(skill.category.word()),
        own(&text(&skill.tags)),
        own(&text(&skill.roles)),
        own(skill.source.word()),
        own(&skill.icon),
        own(&skill.digest),
        count(skill.content_bytes),
        Box::new(skill.has_front_matter),
        count(skill.downloads),
        count(skill.seed_rating),
        count(skill.seed_rating_count),
        count(skill.rating_sum),
        count(skill.rating_count),
        count(skill.price_cents),
        Box::new(skill.featured),
        own(skill.verification.word()),
        own(skill.status.word()),
        own(&skill.version),
        Box::new(skill.first_published_at.map(|at| int(at.0))),
        count(skill.created_at.0),
        count(skill.updated_at.0),
        count(generation),
    ]
}

/// The values of [`put_author_sql`].
pub fn author_values(author: &Author, generation: u64) -> Vec<Bound> {
    let own = |text: &str| -> Bound { Box::new(text.to_owned()) };
    vec![
        own(&author.id),
        own(&author.github_id),
        own(&author.username),
        own(&author.display_name),
        own(&text(&author.profile)),
        own(&author.portfolio),
        Box::new(int(author.created_at.0)),
        Box::new(int(generation)),
    ]
}

/// Writes a whole skill, new or known.
pub fn put_skill_sql() -> String {
    put_sql("skills", SKILL_COLUMNS, SKILL_MOVES)
}

/// Writes a whole author, new or known.
pub fn put_author_sql() -> String {
    put_sql("authors", AUTHOR_COLUMNS, AUTHOR_MOVES)
}

fn put_sql(table: &str, columns: &str, moves: &str) -> String {
    let places: Vec<String> = (1..=columns.split(',').count() + 1).map(|n| format!("${n}")).collect();
    let moves: Vec<String> =
        moves.split(',').map(|name| format!("{0} = excluded.{0}", name.trim())).collect();
    format!(
        "INSERT INTO {table}({columns}, generation) VALUES ({}) ON CONFLICT(id) DO UPDATE SET {}",
        places.join(", "),
        moves.join(", ")
    )
}

/// Lists of strings and profiles always serialise.
fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
