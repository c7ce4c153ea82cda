//! A whole, consistent copy as a script for `psql`: the tables as they are made, then their rows.

use super::connection::Connection;
use super::wire::Patience;
use super::{MIGRATIONS, StoreError};
use crate::store::Partial;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

/// All tables but the request counts of a minute, referred ones before those that refer to them; and whether
/// the server numbers their rows.
pub const TABLES: [(&str, bool); 14] = [
    ("meta", false),
    ("authors", false),
    ("blobs", false),
    ("skills", false),
    ("skill_versions", false),
    ("ratings", false),
    ("installs", false),
    ("install_daily", false),
    ("reviews", true),
    ("events", true),
    ("purchases", false),
    ("payouts", false),
    ("ledger", true),
    ("entitlements", false),
];

/// Writes it; to be restored into an empty database by `psql --single-transaction --file FILE`.
pub fn write(connection: &mut Connection, file: &Path) -> Result<(), StoreError> {
    let partial = Partial::create(file)?;
    let out = OpenOptions::new().write(true).open(partial.path())?;
    connection.begin_long("ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    script(connection, out)?;
    connection.batch("COMMIT")?;
    connection.opened()?.set_patience(Patience::Usual)?;
    Ok(partial.keep(file)?)
}

fn script(connection: &mut Connection, file: File) -> Result<(), StoreError> {
    let mut out = BufWriter::new(file);
    writeln!(out, "-- svc-skills: restore into an empty database with psql --single-transaction --file")?;
    for migration in MIGRATIONS {
        writeln!(out, "{migration}")?;
    }
    // What the tables are made with comes again with the rows.
    writeln!(out, "DELETE FROM meta;")?;
    for (table, _) in TABLES {
        writeln!(out, "COPY {table} FROM stdin;")?;
        connection.copy_out(&format!("COPY {table} TO STDOUT"), &mut out)?;
        writeln!(out, "\\.")?;
    }
    for (table, _) in TABLES.iter().filter(|(_, numbered)| *numbered) {
        writeln!(out, "{};", numbering(table))?;
    }
    Ok(out.flush()?)
}

/// Lets the server number further rows of a table behind those that are there.
pub fn numbering(table: &str) -> String {
    format!(
        "SELECT setval(pg_get_serial_sequence('{table}', 'seq'), coalesce(max(seq), 0) + 1, false) FROM {table}"
    )
}
