//! JSON values that know where they stand, for errors a person can act on.

use serde_json::{Map, Value};

/// A value and where it stands in the file.
pub struct Node<'a> {
    /// For example `step 2`; empty at the top of the file.
    pub place: String,
    /// For example `run.command`; empty for the step itself.
    pub field: String,
    pub value: &'a Value,
}

impl<'a> Node<'a> {
    /// An error about this value.
    pub fn wrong(&self, problem: &str) -> String {
        match (self.place.as_str(), self.field.as_str()) {
            ("", "") => problem.to_owned(),
            ("", field) => format!("field {field}: {problem}"),
            (place, "") => format!("{place}: {problem}"),
            (place, field) => format!("{place}, field {field}: {problem}"),
        }
    }

    /// A string.
    pub fn text(&self) -> Result<String, String> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.wrong("must be a text"))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Result<bool, String> {
        self.value.as_bool().ok_or_else(|| self.wrong("must be true or false"))
    }

    /// The value of a step that has nothing to say beyond its kind.
    pub fn always(&self) -> Result<(), String> {
        if self.value == &Value::Bool(true) { Ok(()) } else { Err(self.wrong("must be true")) }
    }

    /// A whole number up to `limit`, inclusive.
    pub fn number(&self, limit: u64) -> Result<u64, String> {
        let number = self.value.as_u64().filter(|number| *number <= limit);
        number.ok_or_else(|| self.wrong(&format!("must be a whole number from 0 to {limit}")))
    }

    /// A number of bytes up to `limit`, inclusive.
    pub fn length(&self, limit: u64) -> Result<usize, String> {
        let number = self.number(limit)?;
        usize::try_from(number).map_err(|_| self.wrong("is more than this machine can address"))
    }

    /// An object that has none but these fields.
    pub fn object(&self, known: &[&str]) -> Result<Fields<'a>, String> {
        let values = self.value.as_object().ok_or_else(|| self.wrong("must be an object"))?;
        let fields = Fields { place: self.place.clone(), prefix: self.field.clone(), values };
        match values.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, value)) => Err(fields.node(name, value).wrong("there is no such field")),
            None => Ok(fields),
        }
    }
}

/// The fields of an object.
pub struct Fields<'a> {
    place: String,
    prefix: String,
    values: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn node(&self, name: &str, value: &'a Value) -> Node<'a> {
        let dot = if self.prefix.is_empty() { "" } else { "." };
        Node { place: self.place.clone(), field: format!("{}{dot}{name}", self.prefix), value }
    }

    /// A field that may be missing.
    pub fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Node<'a>) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.values.get(name).map(|value| read(&self.node(name, value))).transpose()
    }

    /// A field that has to be there.
    pub fn required<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Node<'a>) -> Result<T, String>,
    ) -> Result<T, String> {
        let missing = || self.node(name, &Value::Null).wrong("is missing");
        self.optional(name, read)?.ok_or_else(missing)
    }

    /// A whole number up to `limit`, or `default` if it is missing.
    pub fn number(&self, name: &str, default: u64, limit: u64) -> Result<u64, String> {
        Ok(self.optional(name, |node| node.number(limit))?.unwrap_or(default))
    }
}
