//! Moving a whole market from `SQLite` to `PostgreSQL`: every row of every table as it is, with its ids,
//! times and numbers.
//!
//! **Invariant:** the new database shows all of it or nothing; nobody writes to either of them meanwhile.

use super::postgres::Taking;
use super::sqlite::{Opening, Sqlite};
use super::{Reads, StoreError};
use crate::hex;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, TransactionBehavior};
use std::fmt::Write as _;
use std::path::Path;

/// Bytes that are put together before they are sent; a row that is larger goes alone.
const CHUNK_BYTES: usize = 256 << 10;
/// Progress is told each time that so many rows of a table are copied.
const TOLD_ROWS: u64 = 10_000;

/// What goes wrong, and where.
#[derive(Debug)]
pub enum Trouble {
    /// With the old database.
    Source(StoreError),
    /// With the new one.
    Target(StoreError),
}

/// Moves everything; the tables and how many rows they have now. `tell` hears of progress.
///
/// Errors: an old database that is damaged, in use by a writer, or holds what the new one cannot; a new one
/// that is not empty, or does not have the same afterwards.
pub fn run(file: &Path, url: &str, tell: &mut dyn FnMut(&str)) -> Result<Vec<(&'static str, u64)>, Trouble> {
    let store = Sqlite::open(file, Opening::Existing).map_err(in_use)?;
    tell("looking whether the old database is sound");
    let flaws = store.flaws().map_err(Trouble::Source)?;
    refuse(&flaws, "it is damaged, see svc-skills check").map_err(Trouble::Source)?;
    let mut old = store.connection().map_err(Trouble::Source)?;
    // Held to the end: what somebody wrote there meanwhile would be lost.
    let old = old
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| in_use(error.into()))?;
    refuse_unknown_tables(&old).map_err(Trouble::Source)?;
    let mut new = Taking::begin(url).map_err(Trouble::Target)?;
    let mut moved = Vec::new();
    for (table, _) in Taking::tables() {
        moved.push((table, copy(&old, &mut new, table, tell)?));
    }
    let generation = store.generation().map_err(Trouble::Source)?;
    tell("comparing both databases");
    new.set(generation, &store.client_key()).map_err(Trouble::Target)?;
    for (table, rows) in &moved {
        let (was, is) = (count(&old, table)?, new.count(table).map_err(Trouble::Target)?);
        if was != *rows || is != *rows {
            let text = format!("of {was} {table} {rows} were sent and {is} arrived; nothing was kept");
            return Err(Trouble::Target(StoreError::Unavailable(text)));
        }
    }
    let flaws = new.flaws().map_err(Trouble::Target)?;
    refuse(&flaws, "what arrived is not sound, nothing was kept").map_err(Trouble::Target)?;
    new.finish().map_err(Trouble::Target)?;
    Ok(moved)
}

/// Another writer of the old database is one that must end.
fn in_use(error: StoreError) -> Trouble {
    Trouble::Source(match error {
        StoreError::Overloaded => StoreError::Unavailable("it is written to: end its service first".into()),
        error => error,
    })
}

fn refuse(flaws: &[String], why: &str) -> Result<(), StoreError> {
    if flaws.is_empty() {
        return Ok(());
    }
    Err(StoreError::Unavailable(format!("{why}: {}", flaws.join("; "))))
}

/// A table that this program does not move would be lost in silence.
fn refuse_unknown_tables(old: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut statement = old.prepare(sql)?;
    let names = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let is_known = |name: &str| name == "meta" || Taking::tables().any(|(table, _)| table == name);
    match names.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(StoreError::Unavailable(format!("it has a table {name} that cannot be moved"))),
    }
}

fn count(old: &Connection, table: &str) -> Result<u64, Trouble> {
    let found: Result<i64, _> = old.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
    found.map(|count| u64::try_from(count).unwrap_or_default()).map_err(|e| Trouble::Source(e.into()))
}

/// One table, in pieces; how many rows it has.
fn copy(old: &Connection, new: &mut Taking, table: &str, tell: &mut dyn FnMut(&str)) -> Result<u64, Trouble> {
    let source = |error: rusqlite::Error| Trouble::Source(error.into());
    let mut statement = old.prepare(&format!("SELECT * FROM {table}")).map_err(source)?;
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.query([]).map_err(source)?;
    let mut sent = 0;
    let mut unreadable = false;
    let taken = new.copy(table, &columns, |chunk| {
        while chunk.len() < CHUNK_BYTES {
            let read = rows.next().map_err(StoreError::from).and_then(|row| match row {
                None => Ok(false),
                Some(row) => write_row(row, table, &columns, chunk).map(|()| true),
            });
            unreadable = read.is_err();
            if !read? {
                break;
            }
            sent += 1;
            if sent % TOLD_ROWS == 0 {
                tell(&format!("{sent} {table} so far"));
            }
        }
        Ok(())
    });
    taken.map_err(|error| if unreadable { Trouble::Source(error) } else { Trouble::Target(error) })
}

/// A row as `COPY` reads it: columns between tabs, at the end a new line, no value as `\N`.
fn write_row(row: &Row, table: &str, columns: &[String], out: &mut Vec<u8>) -> Result<(), StoreError> {
    for (place, column) in columns.iter().enumerate() {
        if place > 0 {
            out.push(b'\t');
        }
        match row.get_ref(place)? {
            ValueRef::Null => out.extend(b"\\N"),
            ValueRef::Integer(number) => {
                let mut text = String::new();
                // Writing into a string does not fail.
                let _ = write!(text, "{number}");
                out.extend(text.as_bytes());
            }
            ValueRef::Blob(bytes) => {
                out.extend(b"\\\\x");
                out.extend(hex::encode(bytes).as_bytes());
            }
            ValueRef::Text(bytes) if !bytes.contains(&0) && str::from_utf8(bytes).is_ok() => {
                write_text(bytes, out);
            }
            ValueRef::Text(_) | ValueRef::Real(_) => {
                let key = row.get::<_, String>(0).unwrap_or_else(|_| "?".into());
                return Err(StoreError::Unavailable(format!(
                    "{column} of {key:?} in {table} holds what PostgreSQL cannot keep, a NUL or no UTF-8: change \
                     that text first"
                )));
            }
        }
    }
    out.push(b'\n');
    Ok(())
}

fn write_text(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'\\' => out.extend(b"\\\\"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            byte => out.push(*byte),
        }
    }
}
