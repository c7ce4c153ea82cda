//! Statements on `SQLite`.

use super::StoreError;
use crate::store::sql::{Columns, Sql, Value};
use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Row, params_from_iter};
use std::error::Error;

impl Columns for Row<'_> {
    fn text(&self, column: &str) -> Result<String, StoreError> {
        Ok(self.get(column)?)
    }

    fn number(&self, column: &str) -> Result<i64, StoreError> {
        Ok(self.get(column)?)
    }

    fn optional_number(&self, column: &str) -> Result<Option<i64>, StoreError> {
        Ok(self.get(column)?)
    }

    fn flag(&self, column: &str) -> Result<bool, StoreError> {
        Ok(self.get(column)?)
    }

    fn damaged(&self, _: &str, _: &str, why: Box<dyn Error + Send + Sync>) -> StoreError {
        rusqlite::Error::FromSqlConversionFailure(0, Type::Text, why).into()
    }
}

/// `SQLite` counts `$1` by where it stands first, and `?1` by its number.
fn prepared<'a>(connection: &'a Connection, sql: &str) -> Result<CachedStatement<'a>, StoreError> {
    Ok(connection.prepare_cached(&sql.replace('$', "?"))?)
}

impl Sql for &Connection {
    fn select<T>(
        &mut self,
        sql: &str,
        values: &[&dyn Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut statement = prepared(self, sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(read(row)?);
        }
        Ok(found)
    }

    fn write(&mut self, sql: &str, values: &[&dyn Value]) -> Result<u64, StoreError> {
        Ok(prepared(self, sql)?.execute(params_from_iter(values))? as u64)
    }
}
