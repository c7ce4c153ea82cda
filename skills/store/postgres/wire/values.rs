//! Values on their way to and from the server, all in the server's text form.

use super::super::StoreError;
use crate::hex;
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

/// A value that can be sent; the server knows from the statement which type it has.
pub trait ToText {
    /// Its text; none is NULL.
    fn to_text(&self) -> Option<Cow<'_, str>>;
}

impl<T: ToText + ?Sized> ToText for &T {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        (**self).to_text()
    }
}

impl<T: ToText> ToText for Option<T> {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        self.as_ref().and_then(ToText::to_text)
    }
}

impl ToText for str {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        Some(self.into())
    }
}

impl ToText for String {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        self.as_str().to_text()
    }
}

impl ToText for i64 {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        Some(self.to_string().into())
    }
}

impl ToText for bool {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        Some(if *self { "t" } else { "f" }.into())
    }
}

impl ToText for [u8] {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        Some(format!("\\x{}", hex::encode(self)).into())
    }
}

impl ToText for Vec<u8> {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        self.as_slice().to_text()
    }
}

/// An array: each element in quotes, so that none can be taken for two or for NULL.
impl<T: ToText> ToText for [T] {
    fn to_text(&self) -> Option<Cow<'_, str>> {
        let mut text = String::from("{");
        for (n, element) in self.iter().enumerate() {
            let element = element.to_text()?.replace('\\', "\\\\").replace('"', "\\\"");
            // Writing into a string does not fail.
            let _ = write!(text, "{}\"{element}\"", if n == 0 { "" } else { "," });
        }
        text.push('}');
        Some(text.into())
    }
}

/// A value that can be read.
pub trait FromText<'a>: Sized {
    /// Reads the text of a value; `None` where it is NULL. The result is `None` where it is none of the type.
    fn from_text(text: Option<&'a str>) -> Option<Self>;
}

impl<'a> FromText<'a> for &'a str {
    fn from_text(text: Option<&'a str>) -> Option<Self> {
        text
    }
}

impl FromText<'_> for String {
    fn from_text(text: Option<&str>) -> Option<Self> {
        text.map(str::to_owned)
    }
}

impl FromText<'_> for i64 {
    fn from_text(text: Option<&str>) -> Option<Self> {
        text?.parse().ok()
    }
}

impl FromText<'_> for bool {
    fn from_text(text: Option<&str>) -> Option<Self> {
        match text? {
            "t" => Some(true),
            "f" => Some(false),
            _ => None,
        }
    }
}

impl FromText<'_> for Vec<u8> {
    fn from_text(text: Option<&str>) -> Option<Self> {
        let digits = text?.strip_prefix("\\x")?.as_bytes();
        let pairs = digits.chunks(2).map(|pair| match pair {
            [high, low] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
            }
            _ => None,
        });
        pairs.collect()
    }
}

impl<'a, T: FromText<'a>> FromText<'a> for Option<T> {
    fn from_text(text: Option<&'a str>) -> Option<Self> {
        match text {
            None => Some(None),
            some => T::from_text(some).map(Some),
        }
    }
}

/// One row of an answer.
#[derive(Debug, Clone)]
pub struct Row {
    columns: Arc<[String]>,
    bytes: Bytes,
    ranges: Vec<Option<Range<usize>>>,
}

impl Row {
    /// A row as it came, with the names of its columns.
    pub(super) fn new(columns: Arc<[String]>, bytes: Bytes, ranges: Vec<Option<Range<usize>>>) -> Self {
        Self { columns, bytes, ranges }
    }

    /// A value by its place or its name.
    ///
    /// Errors: a column that is not there, or a value of another type.
    pub fn get<'a, T: FromText<'a>>(&'a self, column: impl Column) -> Result<T, StoreError> {
        let place = column.place(&self.columns).filter(|place| *place < self.ranges.len());
        let value = place.and_then(|place| match &self.ranges[place] {
            None => Some(None),
            Some(range) => {
                self.bytes.get(range.clone()).and_then(|bytes| str::from_utf8(bytes).ok()).map(Some)
            }
        });
        value.and_then(T::from_text).ok_or_else(|| {
            StoreError::Unavailable(format!("the database answers without a readable {}", column.name()))
        })
    }
}

/// What names a column.
pub trait Column: Copy {
    /// Its place, from 0.
    fn place(self, columns: &[String]) -> Option<usize>;
    /// For messages.
    fn name(self) -> String;
}

impl Column for usize {
    fn place(self, _: &[String]) -> Option<usize> {
        Some(self)
    }

    fn name(self) -> String {
        format!("column {self}")
    }
}

impl Column for &str {
    fn place(self, columns: &[String]) -> Option<usize> {
        columns.iter().position(|column| column == self)
    }

    fn name(self) -> String {
        self.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_what_the_server_reads() {
        let text = |value: &dyn ToText| value.to_text().map(Cow::into_owned);
        assert_eq!(text(&"it's").as_deref(), Some("it's"));
        assert_eq!(text(&-7_i64).as_deref(), Some("-7"));
        assert_eq!(text(&true).as_deref(), Some("t"));
        assert_eq!(text(&&[1_u8, 255][..]).as_deref(), Some("\\x01ff"));
        assert_eq!(text(&None::<i64>), None);
        let list = ["a,b".to_owned(), "NULL".into(), "q\"\\".into(), String::new()];
        assert_eq!(text(&&list[..]).as_deref(), Some(r#"{"a,b","NULL","q\"\\",""}"#));
        assert_eq!(text(&&[&[0_u8][..]][..]).as_deref(), Some(r#"{"\\x00"}"#));
        assert_eq!(text(&&[1_i64, 2][..]).as_deref(), Some(r#"{"1","2"}"#));
    }

    #[test]
    fn what_is_no_value_of_the_type_is_an_error_and_names_the_column() {
        let columns: Arc<[String]> = ["n".to_owned(), "b".into(), "gone".into()].into();
        let row = Row::new(
            columns,
            Bytes::from_static(b"12\\x0aff\xff"),
            vec![Some(0..2), Some(2..8), None, Some(8..9), Some(7..99)],
        );
        assert_eq!((row.get::<i64>("n").unwrap(), row.get::<String>(0).unwrap()), (12, "12".into()));
        assert_eq!(row.get::<Vec<u8>>("b").unwrap(), [10, 255]);
        assert_eq!(row.get::<Option<i64>>("gone").unwrap(), None);
        assert!(row.get::<i64>("gone").unwrap_err().to_string().contains("gone"));
        for place in [3, 4, 5] {
            assert!(row.get::<String>(place).is_err(), "{place}");
        }
        assert!(row.get::<bool>("n").is_err() && row.get::<Vec<u8>>("n").is_err());
        assert!(row.get::<i64>("nothing").is_err());
    }
}
