//! What all databases have in common: statements with values, and columns of rows. Records and rules above it
//! stand once.

use super::StoreError;
use super::postgres::ToText;
use rusqlite::types::ToSql;
use std::error::Error;

/// A value that every database takes.
pub trait Value: ToText + ToSql {}

impl<T: ToText + ToSql> Value for T {}

/// A row of an answer.
///
/// Errors, of all that read: a column that is not there, or a value of another type.
pub trait Columns {
    /// A text.
    fn text(&self, column: &str) -> Result<String, StoreError>;

    /// A number.
    fn number(&self, column: &str) -> Result<i64, StoreError>;

    /// A number that may be missing.
    fn optional_number(&self, column: &str) -> Result<Option<i64>, StoreError>;

    /// Yes or no.
    fn flag(&self, column: &str) -> Result<bool, StoreError>;

    /// The error for a text that is there and cannot be used, in the database's words.
    fn damaged(&self, column: &str, text: &str, why: Box<dyn Error + Send + Sync>) -> StoreError;
}

/// A connection that runs statements. Their values stand as `$1`, `$2` and so on.
pub trait Sql {
    /// What `read` makes of the rows of a question.
    fn select<T>(
        &mut self,
        sql: &str,
        values: &[&dyn Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError>;

    /// Runs a statement that changes rows; how many it has touched.
    fn write(&mut self, sql: &str, values: &[&dyn Value]) -> Result<u64, StoreError>;

    /// What `read` makes of the first row of a question.
    fn find<T>(
        &mut self,
        sql: &str,
        values: &[&dyn Value],
        read: impl Fn(&dyn Columns) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.select(sql, values, read)?.into_iter().next())
    }
}
