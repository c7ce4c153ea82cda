//! Whether a reply is what the `OpenAPI` document says, for tests. Stricter than the schemas themselves: an
//! object has no field that they do not name, so that a new field is told as well.

use super::openapi::address;
use serde_json::{Map, Value};

/// What of a reply is not as the document says; empty when all is well. `path` has `:name` parameters,
/// `media` is the content type without what stands behind a semicolon.
pub fn faults(
    document: &Value,
    (method, path): (&str, &str),
    (status, media): (u16, &str),
    body: &Value,
) -> Vec<String> {
    let operation = &document["paths"][address(path)][method.to_ascii_lowercase()];
    let responses = &operation["responses"];
    let response = match &responses[status.to_string()] {
        Value::Null if status >= 400 => &responses["default"],
        told => told,
    };
    if response.is_null() {
        return vec![format!("{method} {path}: status {status} is not told")];
    }
    let content = &response["content"];
    let told = match content.as_object() {
        None if media.is_empty() => return Vec::new(),
        Some(map) if !media.is_empty() => map.get(media).or_else(|| map.get("*/*")),
        _ => None,
    };
    let Some(told) = told else {
        return vec![format!("{method} {path} {status}: {media:?} is not told, but {content}")];
    };
    if told["schema"].is_null() {
        // It is no JSON.
        return Vec::new();
    }
    of_value(document, &told["schema"], body)
        .into_iter()
        .map(|fault| format!("{method} {path} {status}: {fault}"))
        .collect()
}

/// As [`faults`], of a value and the schema that it shall have. References lead into `document`.
pub fn of_value(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut checker = Checker { document, faults: Vec::new() };
    checker.check(schema, value, "", None);
    checker.faults
}

struct Checker<'a> {
    document: &'a Value,
    faults: Vec<String>,
}

/// All that may stand in a schema here: what the checker does not know, it must not pass over. A `pattern` is
/// looked at by who reads the body, to whom every example is sent.
const KNOWN: [&str; 22] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "writeOnly",
];

/// Limits, with what they are limits of.
const LIMITS: [(&str, &str); 3] =
    [("minLength", "maxLength"), ("minItems", "maxItems"), ("minimum", "maximum")];

impl<'a> Checker<'a> {
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let Some(name) = schema["$ref"].as_str() else { return schema };
        self.document.pointer(name.trim_start_matches('#')).unwrap_or(&Value::Null)
    }

    fn fault(&mut self, at: &str, text: impl std::fmt::Display) {
        self.faults.push(format!("{}: {text}", if at.is_empty() { "/" } else { at }));
    }

    /// `siblings` are further properties that an object may have.
    fn check(&mut self, schema: &'a Value, value: &Value, at: &str, siblings: Option<&[&'a str]>) {
        let schema = self.resolved(schema);
        let Some(map) = schema.as_object() else {
            return self.fault(at, format!("there is no such schema: {schema}"));
        };
        if let Some(word) = map.keys().find(|word| !KNOWN.contains(&word.as_str())) {
            self.fault(at, format!("{word} is not looked at"));
        }
        if map.get("enum").and_then(Value::as_array).is_some_and(|words| !words.contains(value))
            || map.get("const").is_some_and(|only| only != value)
        {
            self.fault(at, format!("{value} is none of {schema}"));
        }
        if let Some(kinds) = map.get("type") {
            let is_one = |kind: &Value| kind.as_str().is_some_and(|kind| is_of(kind, value));
            if !(is_one(kinds) || kinds.as_array().is_some_and(|kinds| kinds.iter().any(is_one))) {
                self.fault(at, format!("{value} is not of type {kinds}"));
            }
        }
        for (least, most) in LIMITS {
            let counted = |count: usize| u32::try_from(count).map_or(f64::INFINITY, f64::from);
            let size = match least {
                "minLength" => value.as_str().map(|text| counted(text.chars().count())),
                "minItems" => value.as_array().map(|items| counted(items.len())),
                _ => value.as_f64(),
            };
            let limit = |name: &str| map.get(name).and_then(Value::as_f64);
            let is_out = |size: f64| {
                limit(least).is_some_and(|least| size < least) || limit(most).is_some_and(|most| size > most)
            };
            if size.is_some_and(is_out) {
                self.fault(at, format!("{value} is beyond {least} or {most} of {schema}"));
            }
        }
        if map.get("format").is_some_and(|format| format == "date-time") {
            self.time(value, at);
        }
        self.either(map, value, at, siblings);
        if let Some(parts) = map.get("allOf").and_then(Value::as_array) {
            let mut names: Vec<&str> = siblings.unwrap_or_default().to_vec();
            for part in parts {
                self.names_of(part, &mut names);
            }
            for part in parts {
                self.check(part, value, at, Some(&names));
            }
        }
        if let (Some(items), Some(list)) = (map.get("items"), value.as_array()) {
            for (n, item) in list.iter().enumerate() {
                self.check(items, item, &format!("{at}/{n}"), None);
            }
        }
        if let (Some("object"), Some(object)) = (map.get("type").and_then(Value::as_str), value.as_object()) {
            self.object(map, object, at, siblings.unwrap_or_default());
        }
    }

    fn either(&mut self, map: &'a Map<String, Value>, value: &Value, at: &str, siblings: Option<&[&'a str]>) {
        let Some(choices) = map.get("anyOf").and_then(Value::as_array) else { return };
        let mut told = Vec::new();
        for choice in choices {
            let before = std::mem::take(&mut self.faults);
            self.check(choice, value, at, siblings);
            let found = std::mem::replace(&mut self.faults, before);
            if found.is_empty() {
                return;
            }
            told.push(found.join(", "));
        }
        self.fault(at, format!("none of its choices: {}", told.join(" / ")));
    }

    fn object(
        &mut self,
        map: &'a Map<String, Value>,
        object: &Map<String, Value>,
        at: &str,
        siblings: &[&str],
    ) {
        let required = map.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                self.fault(at, format!("{name} is missing"));
            }
        }
        let properties = map.get("properties").and_then(Value::as_object);
        for (name, value) in object {
            let place = format!("{at}/{name}");
            match (properties.and_then(|all| all.get(name)), map.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema)) => self.check(schema, value, &place, None),
                // Nothing is told of what is in it.
                (None, None) if properties.is_none() && required.is_none() => {}
                (None, None) if siblings.contains(&name.as_str()) => {}
                (None, None) => self.fault(&place, format!("is not told: {value}")),
            }
        }
    }

    fn names_of(&self, schema: &'a Value, names: &mut Vec<&'a str>) {
        let schema = self.resolved(schema);
        let own = schema["properties"].as_object();
        names.extend(own.into_iter().flatten().map(|(name, _)| name.as_str()));
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.names_of(part, names);
        }
    }

    fn time(&mut self, value: &Value, at: &str) {
        let is_time = |text: &str| text.parse::<jiff::Timestamp>().is_ok();
        if value.as_str().is_some_and(|text| !is_time(text)) {
            self.fault(at, format!("{value} is no point in time"));
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shapes::Shapes;
    use serde_json::json;

    fn told(value: &Value) -> Vec<String> {
        let shapes =
            Shapes::read("A = {a: int, b?: [\"x\"|\"y\"]}\nB = A & {c: A|null, d: {*: num}}").unwrap();
        let named: Map<String, Value> = shapes.named.into_iter().collect();
        let document = json!({"components": {"schemas": named}});
        of_value(&document, &json!({"$ref": "#/components/schemas/B"}), value)
    }

    #[test]
    fn a_value_is_held_against_its_schema() {
        assert_eq!(told(&json!({"a": 1, "b": ["x"], "c": {"a": 2}, "d": {"any": 1.5}})), [""; 0]);
        for (value, fault) in [
            (json!({"a": 1, "c": null, "d": {}, "e": 1}), "/e: is not told: 1"),
            (json!({"a": 1, "c": null}), "/: d is missing"),
            (json!({"a": 1.5, "c": null, "d": {}}), "/a: 1.5 is not of type \"integer\""),
            (json!({"a": 1, "c": null, "d": {"x": "1"}}), "/d/x: \"1\" is not of type \"number\""),
            (json!({"a": 1, "c": {"a": 1, "z": 1}, "d": {}}), "/c/z: is not told: 1"),
            (json!({"a": 1, "b": ["z"], "c": null, "d": {}}), "/b/0: \"z\" is none of"),
        ] {
            let faults = told(&value);
            assert!(faults.iter().any(|one| one.contains(fault)), "{value}: {faults:?}");
        }
    }

    #[test]
    fn a_reply_is_held_against_its_status_and_media_type() {
        let document = json!({"paths": {"/a/{id}": {"get": {"responses": {
            "200": {"content": {"application/json": {"schema": {"type": "integer"}}}}, "204": {},
            "default": {"content": {"application/problem+json": {"schema": {"type": "string"}}}},
        }}}}});
        let of = |status, media, body: Value| faults(&document, ("GET", "/a/:id"), (status, media), &body);
        assert_eq!(of(200, "application/json", json!(1)), [""; 0]);
        assert_eq!(of(204, "", Value::Null), [""; 0]);
        assert_eq!(of(404, "application/problem+json", json!("no")), [""; 0]);
        assert_eq!(of(200, "application/json", json!("1")).len(), 1);
        assert_eq!(of(201, "application/json", json!(1)), ["GET /a/:id: status 201 is not told"]);
        assert_eq!(of(200, "text/plain", json!(1)).len(), 1);
        assert_eq!(of(204, "application/json", json!(1)).len(), 1);
    }
}
