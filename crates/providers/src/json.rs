//! A line of a program as a tree that borrows its words from the line: no copy of a key, nor of a text
//! without escapes, of which most is never looked at. It reads as [`Value`] does, and takes the same lines.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use svc_base::sorted::Gather;

/// JSON, borrowed from its text.
#[derive(Debug)]
pub enum Json<'a> {
    /// `null`, and what is no JSON number, such as `1e999`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    Number(Number),
    /// A text, borrowed where it has no escapes.
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    /// The fields in the order of the text, those that come twice included: the last one holds.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// What the parsers ask of a tree, whether its words are borrowed or its own.
pub trait Look: Sized {
    /// The field of this name, the last where it comes twice; none where it is no object.
    fn get(&self, key: &str) -> Option<&Self>;
    /// The text, if it is one.
    fn as_str(&self) -> Option<&str>;
    /// The whole number, if it is one that is not negative.
    fn as_u64(&self) -> Option<u64>;
    /// The items, if it is a list.
    fn as_array(&self) -> Option<&[Self]>;
}

impl Look for Value {
    fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    fn as_u64(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }
}

impl Look for Json<'_> {
    fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(fields) = self else { return None };
        fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn as_u64(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    fn as_array(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }
}

impl<'a> Json<'a> {
    /// The tree of a text.
    ///
    /// Errors: it is not JSON, or is nested above 128 levels.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Yes or no, if it is that.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(is) = self { Some(*is) } else { None }
    }

    /// The whole number, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_i64() } else { None }
    }

    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        if let Self::Number(number) = self { number.as_f64() } else { None }
    }

    /// The fields by their names, each once; none where it is no object.
    pub fn fields(&self) -> BTreeMap<&str, &Self> {
        let Self::Object(fields) = self else { return BTreeMap::new() };
        fields.iter().map(|(name, value)| (name.as_ref(), value)).gather()
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// The same with words of its own.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(is) => Value::Bool(*is),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(fields) => {
                let members =
                    fields.iter().map(|(name, value)| (name.clone().into_owned(), value.to_value()));
                Value::Object(members.gather())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(is))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json<'de>, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Json::Object(fields))
    }
}

/// The name of a field.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_str(Tree)? {
            Json::Text(name) => Ok(Self(name)),
            _ => Err(D::Error::custom("a name is a text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_the_tree_with_words_of_its_own_does() {
        let texts = [
            r#"{"a": [1, -2, 1.5, 1e300, -0, 18446744073709551615], "b\n\u00e9": "c\"d", "e": {"": null}}"#,
            r#"{"twice": 1, "twice": {"x": true}, "z": false, "a": []}"#,
            "[]",
            "\"\u{1F600}\"",
            "null",
        ];
        for text in texts {
            let wanted: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Json::parse(text).unwrap().to_value(), wanted, "{text}");
        }
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for text in ["", "{", "{\"a\":1}x", "{'a':1}", "1e999", &deep(127), &deep(128)] {
            let own = serde_json::from_str::<Value>(text).is_ok();
            assert_eq!(Json::parse(text).is_ok(), own, "{text}");
        }
    }

    #[test]
    fn words_without_escapes_are_borrowed_and_the_last_of_two_fields_holds() {
        let tree = Json::parse(r#"{"k": "one", "k": "two", "n": 7, "m": -7, "f": 0.5}"#).unwrap();
        let Json::Object(fields) = &tree else { panic!("an object") };
        assert!(fields.iter().all(|(name, _)| matches!(name, Cow::Borrowed(_))));
        assert!(matches!(fields[0].1, Json::Text(Cow::Borrowed("one"))));
        assert_eq!(tree.get("k").and_then(Json::as_str), Some("two"));
        assert_eq!(tree.fields().keys().copied().collect::<Vec<_>>(), ["f", "k", "m", "n"]);
        assert_eq!(tree.fields()["k"].as_str(), Some("two"));
        let figures = ["n", "m", "f"].map(|key| tree.get(key).unwrap());
        assert_eq!(figures.map(Json::as_u64), [Some(7), None, None]);
        assert_eq!(figures.map(Json::as_i64), [Some(7), Some(-7), None]);
        assert_eq!(figures.map(Json::as_f64), [Some(7.0), Some(-7.0), Some(0.5)]);
    }
}
