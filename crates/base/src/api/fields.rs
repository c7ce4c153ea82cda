//! Reading fields out of a JSON object with strict types, gathering every violation before refusing.

use super::{FieldError, Problem};
use serde_json::{Map, Value};

/// Characters of a name that people give to a thing of theirs.
pub const MAX_TITLE_CHARS: usize = 100;

/// Gathers violations; [`Validator::finish`] refuses with all of them at once.
#[derive(Debug, Default)]
pub struct Validator {
    errors: Vec<FieldError>,
}

impl Validator {
    /// Records a violation. `message` names the field itself.
    pub fn fail(&mut self, field: &str, message: impl Into<String>) {
        self.errors.push(FieldError { field: field.to_owned(), message: message.into() });
    }

    /// Records a violation unless the rule holds.
    pub fn check(&mut self, holds: bool, field: &str, message: impl FnOnce() -> String) {
        if !holds {
            self.fail(field, message());
        }
    }

    /// Refuses when anything was recorded.
    pub fn finish(self) -> Result<(), Problem> {
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::validation(self.errors)) }
    }

    /// Whether nothing was recorded so far.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }
}

/// A JSON object read field by field; a wrong type is recorded and reads as absent.
#[derive(Debug)]
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// Where violations go.
    pub validator: Validator,
}

impl<'a> Fields<'a> {
    /// Starts reading `object`.
    pub fn new(object: &'a Map<String, Value>) -> Self {
        Self { object, validator: Validator::default() }
    }

    /// The raw value; JSON `null` counts as absent.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is there at all, `null` included.
    pub fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// An optional string.
    pub fn string(&mut self, name: &str) -> Option<&'a str> {
        let value = self.value(name)?;
        let text = value.as_str();
        self.wrong_type(text.is_none(), name, "a string", value);
        text
    }

    /// A name for people, trimmed: of 1 to [`MAX_TITLE_CHARS`] printable characters. Empty where it is wrong.
    pub fn title(&mut self, name: &str) -> String {
        let Some(title) = self.required_string(name) else { return String::new() };
        let title = title.trim();
        let chars = title.chars().count();
        let fits = chars <= MAX_TITLE_CHARS && !title.chars().any(char::is_control);
        self.validator.check(fits, name, || {
            format!(
                "{name} must have 1 to {MAX_TITLE_CHARS} characters and no control characters, it has {chars}"
            )
        });
        title.to_owned()
    }

    /// A string that must be there and must not be empty or blank.
    pub fn required_string(&mut self, name: &str) -> Option<&'a str> {
        if self.value(name).is_none() {
            self.validator.fail(name, format!("{name} is required and must be a string"));
            return None;
        }
        let text = self.string(name)?;
        if text.trim().is_empty() {
            self.validator.fail(name, format!("{name} must not be empty"));
            return None;
        }
        Some(text)
    }

    /// An optional boolean.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        self.wrong_type(!value.is_boolean(), name, "true or false", value);
        value.as_bool()
    }

    /// An optional whole number from `low` to `high`.
    pub fn integer(&mut self, name: &str, low: u64, high: u64) -> Option<u64> {
        let value = self.value(name)?;
        let number = value.as_u64().filter(|n| (low..=high).contains(n));
        if number.is_none() {
            self.validator
                .fail(name, format!("{name} must be a whole number from {low} to {high}, it is {value}"));
        }
        number
    }

    /// An optional list of strings.
    pub fn strings(&mut self, name: &str) -> Option<Vec<&'a str>> {
        let value = self.value(name)?;
        let list =
            value.as_array().and_then(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        self.wrong_type(list.is_none(), name, "a list of strings", value);
        list
    }

    /// An optional word out of a closed list.
    pub fn choice(&mut self, name: &str, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.string(name)?;
        let found = choices.iter().find(|choice| **choice == text).copied();
        if found.is_none() {
            self.validator
                .fail(name, format!("{name} must be one of {}, it is {text:?}", choices.join(", ")));
        }
        found
    }

    /// As [`Self::choice`], for words that people are shown with capitals: case does not count, and a word of
    /// `shown` means the choice beside it.
    pub fn shown_choice(
        &mut self,
        name: &str,
        choices: &[&'static str],
        shown: &[(&str, &'static str)],
    ) -> Option<&'static str> {
        let text = self.value(name)?.as_str().map(|text| text.trim().to_lowercase());
        let known = text.and_then(|text| {
            let meant = shown.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
            meant.or_else(|| choices.iter().find(|choice| **choice == text).copied())
        });
        known.or_else(|| self.choice(name, choices))
    }

    fn wrong_type(&mut self, wrong: bool, name: &str, wanted: &str, value: &Value) {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(items) if items.iter().all(Value::is_string) => "a list of strings",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.validator.check(!wrong, name, || format!("{name} must be {wanted}, it is {kind}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_as_people_are_shown_them_are_taken() {
        let choices = ["auto", "full"];
        let shown = [("full send", "full")];
        for (word, meant) in
            [("full", Some("full")), ("Full Send", Some("full")), ("AUTO", Some("auto")), ("x", None)]
        {
            let body = json!({"permission": word});
            let mut fields = Fields::new(body.as_object().unwrap());
            assert_eq!(fields.shown_choice("permission", &choices, &shown), meant, "{word}");
            assert_eq!(fields.validator.finish().is_ok(), meant.is_some(), "{word}");
        }
    }

    #[test]
    fn decisions_1_all_violations_come_at_once_and_types_are_strict() {
        let body = json!({"name": 5, "list": ["a", 1], "n": 1.5, "word": "x", "null": null});
        let mut fields = Fields::new(body.as_object().unwrap());
        assert_eq!(fields.string("name"), None);
        assert_eq!(fields.strings("list"), None);
        assert_eq!(fields.integer("n", 1, 5), None);
        assert_eq!(fields.choice("word", &["a", "b"]), None);
        assert_eq!(fields.required_string("missing"), None);
        assert_eq!(fields.string("null"), None);
        let problem = fields.validator.finish().unwrap_err();
        let named: Vec<_> = problem.errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(named, ["name", "list", "n", "word", "missing"]);
        assert_eq!(problem.errors[0].message, "name must be a string, it is a number");
        assert_eq!(problem.status, 400);
    }
}
