//! Records to rows and back.

use crate::model::{Author, Category, Skill, Source, Status, Verification};
use crate::store::StoreError;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use serde::de::DeserializeOwned;
use svc_base::time::Time;

const SKILL_COLUMNS: &str = "id, name, description, author, author_id, profile, category, tags, roles, source, icon, \
     digest, content_bytes, has_front_matter, downloads, seed_rating, seed_rating_count, rating_sum, \
     rating_count, price_cents, featured, verification, status, version, first_published_at, created_at, \
     updated_at";
const AUTHOR_COLUMNS: &str = "id, github_id, username, display_name, profile, portfolio, created_at";

fn json<T: DeserializeOwned>(row: &Row, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

fn word<T>(row: &Row, column: &str, parse: impl Fn(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| {
        let problem = format!("{column} holds the unknown word {text:?}");
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, problem.into())
    })
}

fn number(row: &Row, column: &str) -> rusqlite::Result<u64> {
    // The tables' checks keep every number at zero or above.
    row.get::<_, i64>(column).map(|n| u64::try_from(n).unwrap_or_default())
}

fn time(row: &Row, column: &str) -> rusqlite::Result<Time> {
    number(row, column).map(Time)
}

/// Numbers go into `SQLite` as `i64`; those here never come near its end.
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn skill_of(row: &Row) -> rusqlite::Result<Skill> {
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
        first_published_at: row
            .get::<_, Option<i64>>("first_published_at")?
            .map(|ms| Time(u64::try_from(ms).unwrap_or_default())),
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
    })
}

fn author_of(row: &Row) -> rusqlite::Result<Author> {
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

/// One skill.
pub fn skill(connection: &Connection, id: &str) -> Result<Option<Skill>, StoreError> {
    let sql = format!("SELECT {SKILL_COLUMNS} FROM skills WHERE id = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([id], skill_of).optional()?)
}

/// One author.
pub fn author(connection: &Connection, id: &str) -> Result<Option<Author>, StoreError> {
    let sql = format!("SELECT {AUTHOR_COLUMNS} FROM authors WHERE id = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([id], author_of).optional()?)
}

/// Skills changed after a generation.
pub fn skills_since(connection: &Connection, generation: u64) -> Result<Vec<Skill>, StoreError> {
    let sql = format!("SELECT {SKILL_COLUMNS} FROM skills WHERE generation > ?1 ORDER BY generation, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([int(generation)], skill_of)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Authors changed after a generation.
pub fn authors_since(connection: &Connection, generation: u64) -> Result<Vec<Author>, StoreError> {
    let sql = format!("SELECT {AUTHOR_COLUMNS} FROM authors WHERE generation > ?1 ORDER BY generation, id");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([int(generation)], author_of)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// All skills of an author.
pub fn skills_of_author(connection: &Connection, author: &str) -> Result<Vec<Skill>, StoreError> {
    let sql = format!("SELECT {SKILL_COLUMNS} FROM skills WHERE author_id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([author], skill_of)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Writes a whole skill, new or known.
pub fn put_skill(connection: &Connection, skill: &Skill, generation: u64) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO skills({SKILL_COLUMNS}, generation) VALUES (:id, :name, :description, :author, \
         :author_id, :profile, :category, :tags, :roles, :source, :icon, :digest, :content_bytes, \
         :has_front_matter, :downloads, :seed_rating, :seed_rating_count, :rating_sum, :rating_count, \
         :price_cents, :featured, :verification, :status, :version, :first_published_at, :created_at, \
         :updated_at, :generation) \
         ON CONFLICT(id) DO UPDATE SET name = excluded.name, description = excluded.description, \
         author = excluded.author, author_id = excluded.author_id, profile = excluded.profile, \
         category = excluded.category, tags = excluded.tags, roles = excluded.roles, icon = excluded.icon, \
         digest = excluded.digest, content_bytes = excluded.content_bytes, \
         has_front_matter = excluded.has_front_matter, price_cents = excluded.price_cents, \
         featured = excluded.featured, verification = excluded.verification, status = excluded.status, \
         version = excluded.version, first_published_at = excluded.first_published_at, \
         updated_at = excluded.updated_at, generation = excluded.generation"
    );
    connection.prepare_cached(&sql)?.execute(named_params! {
        ":id": skill.id, ":name": skill.name, ":description": skill.description,
        ":author": skill.author, ":author_id": skill.author_id, ":profile": text(&skill.profile),
        ":category": skill.category.word(), ":tags": text(&skill.tags), ":roles": text(&skill.roles),
        ":source": skill.source.word(), ":icon": skill.icon, ":digest": skill.digest,
        ":content_bytes": int(skill.content_bytes), ":has_front_matter": skill.has_front_matter,
        ":downloads": int(skill.downloads), ":seed_rating": int(skill.seed_rating),
        ":seed_rating_count": int(skill.seed_rating_count), ":rating_sum": int(skill.rating_sum),
        ":rating_count": int(skill.rating_count), ":price_cents": int(skill.price_cents),
        ":featured": skill.featured, ":verification": skill.verification.word(),
        ":status": skill.status.word(), ":version": skill.version,
        ":first_published_at": skill.first_published_at.map(|at| int(at.0)),
        ":created_at": int(skill.created_at.0), ":updated_at": int(skill.updated_at.0),
        ":generation": int(generation),
    })?;
    Ok(())
}

/// Writes a whole author, new or known.
pub fn put_author(connection: &Connection, author: &Author, generation: u64) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO authors({AUTHOR_COLUMNS}, generation) VALUES (:id, :github_id, :username, :display_name, \
         :profile, :portfolio, :created_at, :generation) \
         ON CONFLICT(id) DO UPDATE SET github_id = excluded.github_id, username = excluded.username, \
         display_name = excluded.display_name, profile = excluded.profile, portfolio = excluded.portfolio, \
         generation = excluded.generation"
    );
    connection.prepare_cached(&sql)?.execute(named_params! {
        ":id": author.id, ":github_id": author.github_id, ":username": author.username,
        ":display_name": author.display_name, ":profile": text(&author.profile),
        ":portfolio": author.portfolio, ":created_at": int(author.created_at.0),
        ":generation": int(generation),
    })?;
    Ok(())
}

/// Lists of strings and profiles always serialise.
fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
