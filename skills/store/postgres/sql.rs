//! Statements on `PostgreSQL`.

use super::StoreError;
use super::connection::Connection;
use super::wire::{Row, ToText};
use crate::store::sql::{Columns, Sql, Value};
use std::error::Error;

impl Columns for Row {
    fn text(&self, column: &str) -> Result<String, StoreError> {
        self.get(column)
    }

    fn number(&self, column: &str) -> Result<i64, StoreError> {
        self.get(column)
    }

    fn optional_number(&self, column: &str) -> Result<Option<i64>, StoreError> {
        self.get(column)
    }

    fn flag(&self, column: &str) -> Result<bool, StoreError> {
        self.get(column)
    }

    fn damaged(&self, column: &str, text: &str, _: Box<dyn Error + Send + Sync>) -> StoreError {
        StoreError::Unavailable(format!("{column} holds the unreadable {text:?}"))
    }
}

fn texts<'a>(values: &'a [&dyn Value]) -> Vec<&'a dyn ToText> {
    values.iter().map(|value| value as &dyn ToText).collect()
}

impl Sql for Connection {
    fn select<T>(
        &mut self,
        sql: &str,
        values: &[&dyn Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        // This database knows no NUL: no text in it is equal to one that has it.
        if values.iter().any(|value| value.to_text().is_some_and(|text| text.contains('\0'))) {
            return Ok(Vec::new());
        }
        self.query(sql, &texts(values))?.iter().map(|row| read(row)).collect()
    }

    fn write(&mut self, sql: &str, values: &[&dyn Value]) -> Result<u64, StoreError> {
        self.execute(sql, &texts(values))
    }
}
