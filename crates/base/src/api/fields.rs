//! Reading fields out of a JSON object with strict types, gathering every violation before refusing.
//!
//! What reads a body also describes it: [`schema_of`] watches it read one with nothing in it, and makes a
//! JSON schema of what it asked for. So the description cannot say anything else than what is done.

use super::{FieldError, Problem};
use serde_json::{Map, Value, json};

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

    /// A whole number from 1 to `most`, as the text of a query has it; `usual` where there is none.
    pub fn whole_number(&mut self, name: &str, text: Option<&str>, usual: usize, most: usize) -> usize {
        let Some(text) = text else { return usual };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        self.check(number.is_some(), name, || {
            format!("{name} must be a whole number from 1 to {most}, it is {text:?}")
        });
        number.unwrap_or(usual)
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
    /// What was asked for, where that is wanted: the properties, and the names of those that must be there.
    watched: Option<(Map<String, Value>, Vec<String>)>,
    pub validator: Validator,
}

impl<'a> Fields<'a> {
    /// Starts reading `object`.
    pub fn new(object: &'a Map<String, Value>) -> Self {
        Self { object, watched: None, validator: Validator::default() }
    }

    /// The raw value; JSON `null` counts as absent.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Whether the field is there at all, `null` included.
    pub fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// Adds to what the schema says of a field: limits, patterns and the like that are checked by hand.
    pub fn tell(&mut self, name: &str, more: impl FnOnce() -> Value) {
        let Some((properties, _)) = &mut self.watched else { return };
        let property = properties.entry(name).or_insert_with(|| json!({}));
        if let (Some(property), Value::Object(more)) = (property.as_object_mut(), more()) {
            property.extend(more);
        }
    }

    /// Says that a field must be there, for the schema.
    pub fn tell_required(&mut self, name: &str) {
        if let Some((_, required)) = &mut self.watched {
            required.push(name.to_owned());
        }
    }

    /// An optional string.
    pub fn string(&mut self, name: &str) -> Option<&'a str> {
        self.tell(name, || json!({"type": "string"}));
        self.word(name)
    }

    fn word(&mut self, name: &str) -> Option<&'a str> {
        let value = self.value(name)?;
        let text = value.as_str();
        self.wrong_type(text.is_none(), name, "a string", value);
        text
    }

    /// An optional string of at most `max` characters, without the white space around it and without NUL.
    pub fn text(&mut self, name: &str, max: usize) -> Option<&'a str> {
        self.tell(name, || json!({"maxLength": max}));
        let text = self.string(name)?.trim();
        let chars = text.chars().count();
        self.validator.check(chars <= max && !text.contains('\0'), name, || {
            format!("{name} must have at most {max} characters and no NUL, it has {chars}")
        });
        Some(text)
    }

    /// As [`Self::text`]; it must be there and not be blank. Empty where it is not.
    pub fn required_text(&mut self, name: &str, max: usize) -> String {
        let text = if self.required_string(name).is_some() || self.watched.is_some() {
            self.text(name, max)
        } else {
            None
        };
        text.unwrap_or_default().to_owned()
    }

    /// A name for people, trimmed: of 1 to [`MAX_TITLE_CHARS`] printable characters. Empty where it is wrong.
    pub fn title(&mut self, name: &str) -> String {
        self.tell(name, || json!({"minLength": 1, "maxLength": MAX_TITLE_CHARS}));
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
        self.tell(name, || json!({"type": "string"}));
        self.required_word(name)
    }

    fn required_word(&mut self, name: &str) -> Option<&'a str> {
        self.tell_required(name);
        if self.value(name).is_none() {
            self.validator.fail(name, format!("{name} is required and must be a string"));
            return None;
        }
        let text = self.word(name)?;
        if text.trim().is_empty() {
            self.validator.fail(name, format!("{name} must not be empty"));
            return None;
        }
        Some(text)
    }

    /// An optional boolean.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        self.tell(name, || json!({"type": "boolean"}));
        let value = self.value(name)?;
        self.wrong_type(!value.is_boolean(), name, "true or false", value);
        value.as_bool()
    }

    /// An optional whole number from `low` to `high`.
    pub fn integer(&mut self, name: &str, low: u64, high: u64) -> Option<u64> {
        self.tell(name, || json!({"type": "integer", "minimum": low, "maximum": high}));
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
        self.tell(name, || json!({"type": "array", "items": {"type": "string"}}));
        let value = self.value(name)?;
        let list =
            value.as_array().and_then(|items| items.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        self.wrong_type(list.is_none(), name, "a list of strings", value);
        list
    }

    /// An optional word out of a closed list.
    pub fn choice(&mut self, name: &str, choices: &[&'static str]) -> Option<&'static str> {
        self.tell(name, || json!({"enum": choices}));
        let text = self.word(name)?;
        let found = choices.iter().find(|choice| **choice == text).copied();
        if found.is_none() {
            self.validator
                .fail(name, format!("{name} must be one of {}, it is {text:?}", choices.join(", ")));
        }
        found
    }

    /// A word out of a closed list that must be there.
    pub fn required_choice(&mut self, name: &str, choices: &[&'static str]) -> Option<&'static str> {
        self.tell(name, || json!({"enum": choices}));
        self.required_word(name)?;
        self.choice(name, choices)
    }

    /// As [`Self::choice`], for words that people are shown with capitals: case does not count, and a word of
    /// `shown` means the choice beside it.
    pub fn shown_choice(
        &mut self,
        name: &str,
        choices: &[&'static str],
        shown: &[(&str, &'static str)],
    ) -> Option<&'static str> {
        self.tell(name, || json!({"enum": choices}));
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

/// The JSON schema of the bodies that `read` takes.
pub fn schema_of<T>(read: impl FnOnce(&mut Fields) -> T) -> Value {
    let nothing = Map::new();
    let mut fields = Fields { watched: Some((Map::new(), Vec::new())), ..Fields::new(&nothing) };
    read(&mut fields);
    let (properties, required) = fields.watched.unwrap_or_default();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
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
    fn what_reads_a_body_describes_it() {
        let read = |fields: &mut Fields| {
            fields.tell("id", || json!({"pattern": "^[a-z]$"}));
            let id = fields.required_string("id").map(ToOwned::to_owned);
            let kind = fields.required_choice("kind", &["a", "b"]);
            (id, kind, fields.required_text("why", 3), fields.integer("n", 1, 5), fields.boolean("on"))
        };
        assert_eq!(
            schema_of(read),
            json!({
                "type": "object",
                "required": ["id", "kind", "why"],
                "properties": {
                    "id": {"type": "string", "pattern": "^[a-z]$"},
                    "kind": {"enum": ["a", "b"]},
                    "why": {"type": "string", "maxLength": 3},
                    "n": {"type": "integer", "minimum": 1, "maximum": 5},
                    "on": {"type": "boolean"},
                },
            })
        );
        let body = json!({"id": "x", "kind": "b", "why": " abc ", "n": 2});
        let mut fields = Fields::new(body.as_object().unwrap());
        assert_eq!(read(&mut fields), (Some("x".into()), Some("b"), "abc".into(), Some(2), None));
        let body = json!({"kind": "c", "why": "abcd"});
        let mut fields = Fields::new(body.as_object().unwrap());
        read(&mut fields);
        let faults = fields.validator.finish().unwrap_err().errors;
        let named: Vec<_> = faults.iter().map(|fault| fault.message.as_str()).collect();
        let kind = "kind must be one of a, b, it is \"c\"";
        let why = "why must have at most 3 characters and no NUL, it has 4";
        assert_eq!(named, ["id is required and must be a string", kind, why]);
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
