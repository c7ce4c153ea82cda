//! How records stand in rows, and what a reader asks of them: the same for all databases.

use super::sql::{Columns, Sql};
use super::{Changes, StoreError};
use crate::model::{Author, Category, Skill, Source, Status, Verification};
use serde::de::DeserializeOwned;
use svc_base::time::Time;

/// In the order in which a skill's values are written.
pub const SKILL_COLUMNS: &str = "id, name, description, author, author_id, profile, category, tags, roles, \
     source, icon, digest, content_bytes, has_front_matter, downloads, seed_rating, seed_rating_count, \
     rating_sum, rating_count, price_cents, featured, verification, status, version, first_published_at, \
     created_at, updated_at";
/// In the order in which an author's values are written.
pub const AUTHOR_COLUMNS: &str = "id, github_id, username, display_name, profile, portfolio, created_at";
/// Columns that a later write of a skill moves; counters, source and the first date are not among them.
const SKILL_MOVES: &str = "name, description, author, author_id, profile, category, tags, roles, icon, \
     digest, content_bytes, has_front_matter, price_cents, featured, verification, status, version, \
     first_published_at, updated_at, generation";
const AUTHOR_MOVES: &str = "github_id, username, display_name, profile, portfolio, generation";

/// Numbers go into a database as `i64`; those here never come near its end.
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number out of a database. The tables' checks keep every one at zero or above.
pub fn whole(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

fn json<T: DeserializeOwned>(row: &dyn Columns, column: &str) -> Result<T, StoreError> {
    let text = row.text(column)?;
    serde_json::from_str(&text).map_err(|error| row.damaged(column, &text, error.into()))
}

fn word<T>(row: &dyn Columns, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    let text = row.text(column)?;
    parse(&text).ok_or_else(|| {
        let problem = format!("{column} holds the unknown word {text:?}");
        row.damaged(column, &text, problem.into())
    })
}

fn number(row: &dyn Columns, column: &str) -> Result<u64, StoreError> {
    row.number(column).map(whole)
}

/// A point in time.
pub fn time(row: &dyn Columns, column: &str) -> Result<Time, StoreError> {
    number(row, column).map(Time)
}

/// A row of [`SKILL_COLUMNS`].
pub fn skill_of(row: &dyn Columns) -> Result<Skill, StoreError> {
    let first_published = row.optional_number("first_published_at")?;
    Ok(Skill {
        id: row.text("id")?,
        name: row.text("name")?,
        description: row.text("description")?,
        author: row.text("author")?,
        author_id: row.text("author_id")?,
        profile: json(row, "profile")?,
        category: word(row, "category", Category::from_word)?,
        tags: json(row, "tags")?,
        roles: json(row, "roles")?,
        source: word(row, "source", Source::from_word)?,
        icon: row.text("icon")?,
        digest: row.text("digest")?,
        content_bytes: number(row, "content_bytes")?,
        has_front_matter: row.flag("has_front_matter")?,
        downloads: number(row, "downloads")?,
        seed_rating: number(row, "seed_rating")?,
        seed_rating_count: number(row, "seed_rating_count")?,
        rating_sum: number(row, "rating_sum")?,
        rating_count: number(row, "rating_count")?,
        price_cents: number(row, "price_cents")?,
        featured: row.flag("featured")?,
        verification: word(row, "verification", Verification::from_word)?,
        status: word(row, "status", Status::from_word)?,
        version: row.text("version")?,
        first_published_at: first_published.map(|ms| Time(whole(ms))),
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
    })
}

/// A row of [`AUTHOR_COLUMNS`].
pub fn author_of(row: &dyn Columns) -> Result<Author, StoreError> {
    Ok(Author {
        id: row.text("id")?,
        github_id: row.text("github_id")?,
        username: row.text("username")?,
        display_name: row.text("display_name")?,
        profile: json(row, "profile")?,
        portfolio: row.text("portfolio")?,
        created_at: time(row, "created_at")?,
    })
}

/// What changed after a generation; `generation` is that of the last write.
pub fn changes(db: &mut impl Sql, generation: u64, after: u64) -> Result<Changes, StoreError> {
    let sql = |columns: &str, table: &str| {
        format!("SELECT {columns} FROM {table} WHERE generation > $1 ORDER BY generation, id")
    };
    Ok(Changes {
        generation,
        skills: db.select(&sql(SKILL_COLUMNS, "skills"), &[&int(after)], skill_of)?,
        authors: db.select(&sql(AUTHOR_COLUMNS, "authors"), &[&int(after)], author_of)?,
    })
}

/// A content by its digest.
pub fn content(db: &mut impl Sql, digest: &str) -> Result<Option<String>, StoreError> {
    db.find("SELECT content FROM blobs WHERE digest = $1", &[&digest], |row| row.text("content"))
}

/// Transactions whose ledger entries do not add up to zero, the first hundred.
pub fn unbalanced(db: &mut impl Sql) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT transaction_id FROM ledger GROUP BY transaction_id HAVING sum(cents) <> 0 LIMIT 100";
    db.select(sql, &[], |row| row.text("transaction_id"))
}

/// Writes a whole skill, new or known; the values are those of all columns, then the generation.
pub fn put_skill_sql() -> String {
    put_sql("skills", SKILL_COLUMNS, SKILL_MOVES)
}

/// The same for an author.
pub fn put_author_sql() -> String {
    put_sql("authors", AUTHOR_COLUMNS, AUTHOR_MOVES)
}

fn put_sql(table: &str, columns: &str, moves: &str) -> String {
    let moves: Vec<String> =
        moves.split(',').map(|name| format!("{0} = excluded.{0}", name.trim())).collect();
    format!(
        "INSERT INTO {table}({columns}, generation) VALUES ({}) ON CONFLICT(id) DO UPDATE SET {}",
        places(columns.split(',').count() + 1),
        moves.join(", ")
    )
}

/// The places of so many values.
pub fn places(values: usize) -> String {
    let places: Vec<String> = (1..=values).map(|n| format!("${n}")).collect();
    places.join(", ")
}

/// Lists of strings and profiles always serialise.
pub fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
