//! What programs are told of this API: `OpenAPI` for the routes, `AsyncAPI` for what WebSocket clients hear.
//! The routes come from the table, the shapes of what they answer from the texts beside the features.
//!
//! **Invariant:** every reply that a test sees is held against these shapes, and objects have no field that
//! is not told here (`tests/support/conformance.rs`).

use super::routes::table;
use crate::agents::queue::Priority;
use crate::agents::{Deliver, Isolation, Reason, Status};
use crate::api::openapi;
use crate::api::shapes::Shapes;
use crate::api::{Problem, Reply};
use crate::approvals::Certainty;
use crate::approvals::Say;
use crate::endpoint::{Access, Ask, Handler};
use crate::gateways;
use crate::providers::{Effort, Permission, Tier};
use crate::settings::OnLimit;
use serde::de::value::Error;
use serde::de::{Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Value, json};

/// What each feature says of its replies.
const TEXTS: [&str; 16] = [
    include_str!("../agents/shapes.txt"),
    include_str!("../approvals/shapes.txt"),
    include_str!("../accounts/shapes.txt"),
    include_str!("../runners/shapes.txt"),
    include_str!("../memory/shapes.txt"),
    include_str!("../snapshots/shapes.txt"),
    include_str!("../usage/shapes.txt"),
    include_str!("../teams/shapes.txt"),
    include_str!("../integrations/shapes.txt"),
    include_str!("../gateways/shapes.txt"),
    include_str!("../webhooks/shapes.txt"),
    include_str!("../phones/shapes.txt"),
    include_str!("../inlets/shapes.txt"),
    include_str!("../telemetry/shapes.txt"),
    include_str!("../workspace/shapes.txt"),
    include_str!("../oversight/shapes.txt"),
];

/// The words of the code's own types, under the names by which the texts mean them.
fn words() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("AgentState", words_of::<Status>()),
        ("Certainty", words_of::<Certainty>()),
        ("Deliver", words_of::<Deliver>()),
        ("Effort", words_of::<Effort>()),
        ("GatewayKind", gateways::Kind::WORDS.to_vec()),
        ("Isolation", words_of::<Isolation>()),
        ("OnLimit", OnLimit::WORDS.to_vec()),
        ("Permission", words_of::<Permission>()),
        ("Priority", Priority::WORDS.to_vec()),
        ("Say", Say::WORDS.to_vec()),
        ("StatusCode", Reason::CODES.to_vec()),
        ("Tier", words_of::<Tier>()),
    ]
}

/// The words by which the variants of `T` stand in JSON, as its own reader knows them.
fn words_of<T: serde::de::DeserializeOwned>() -> Vec<&'static str> {
    let mut words = &[][..];
    let _ = T::deserialize(Words(&mut words));
    words.to_vec()
}

/// Reads nothing and keeps which variants were asked for.
struct Words<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Words<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("nothing is here"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = variants;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// All that the features say.
///
/// Errors: 500 for a text that cannot be read.
pub fn shapes() -> Result<Shapes, Problem> {
    let mut shapes = Shapes::read(&TEXTS.concat()).map_err(|wrong| Problem::new(500, "internal", wrong))?;
    let words = words().into_iter().map(|(name, words)| (name.to_owned(), json!({"enum": words})));
    shapes.named.extend(words);
    Ok(shapes)
}

/// `GET /api/openapi.json`.
pub fn openapi(_ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&document()?))
}

/// The `OpenAPI` document.
///
/// Errors: 500 for a text that cannot be read.
pub fn document() -> Result<Value, Problem> {
    let table = table();
    let mut document = openapi::document(&table, "svc daemon", crate::VERSION);
    openapi::complete(&mut document, &shapes()?);
    let person = "what is in .svc/token, or SVC_OPERATOR_TOKEN; not needed by who is seen to be a person";
    let agent = "SVC_AGENT_TOKEN of a living agent; not needed by its processes, which are seen";
    let bearer = |about: &str| json!({"type": "http", "scheme": "bearer", "description": about});
    document["components"]["securitySchemes"] = json!({"person": bearer(person), "agent": bearer(agent)});
    for route in table.routes() {
        let method = route.method.to_string().to_ascii_lowercase();
        let operation = &mut document["paths"][openapi::address(route.path)][method];
        operation["security"] = match route.handler {
            Handler::Write(Access::Anyone, _) | Handler::Work(Access::Anyone, _) => {
                json!([{}, {"person": []}, {"agent": []}])
            }
            Handler::Write(..) | Handler::Work(..) => json!([{}, {"person": []}]),
            Handler::Read(_) | Handler::Shared(_) => json!([{}, {"person": []}, {"agent": []}]),
        };
    }
    Ok(document)
}

/// `GET /api/asyncapi.json`.
pub fn asyncapi(_ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&messages()?))
}

/// Who says a message, and what is added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The daemon, to all: with a number and a time.
    ToAll,
    /// The daemon, to one client.
    ToOne,
    ByClient,
}

/// The `AsyncAPI` document.
///
/// Errors: 500 for a text that cannot be read.
pub fn messages() -> Result<Value, Problem> {
    let shapes = shapes()?;
    let (mut schemas, mut messages, mut heard) = (json!({}), json!({}), json!({}));
    for (name, schema) in &shapes.named {
        schemas[name] = schema.clone();
    }
    let (mut said, mut told) = (Vec::new(), Vec::new());
    for (kind, schema) in &shapes.messages {
        let (word, by) = match kind.split_at(1) {
            ("<", word) => (word, Said::ByClient),
            (">", word) => (word, Said::ToOne),
            _ => (kind.as_str(), Said::ToAll),
        };
        let name = message_name(word);
        schemas[&name] = message(word, by, schema);
        messages[&name] = json!({
            "name": word, "payload": {"$ref": format!("#/components/schemas/{name}")},
        });
        heard[&name] = json!({"$ref": format!("#/components/messages/{name}")});
        let list = if by == Said::ByClient { &mut said } else { &mut told };
        list.push(json!({"$ref": format!("#/channels/ws/messages/{name}")}));
    }
    let operation = |action: &str, about: &str, messages: Vec<Value>| {
        let channel = json!({"$ref": "#/channels/ws"});
        json!({"action": action, "channel": channel, "summary": about, "messages": messages})
    };
    Ok(json!({
        "asyncapi": "3.0.0",
        "info": {"title": "svc daemon", "version": crate::VERSION},
        "defaultContentType": "application/json",
        "channels": {"ws": {
            "address": "/ws",
            "messages": heard,
            "bindings": {"ws": {"query": {"type": "object", "properties": query()}}},
        }},
        "operations": {
            "tell": operation("send", "what the daemon tells", told),
            "say": operation("receive", "what a client may say", said),
        },
        "components": {"messages": messages, "schemas": schemas},
    }))
}

/// What the address of the WebSocket may ask for.
fn query() -> Value {
    let about = "seq of the last message heard: what came after it is said again";
    json!({
        "since": {"type": "integer", "description": about},
        "delta": {"enum": ["1"], "description": "state:delta instead of a further state"},
        "types": {"type": "string", "description": "only messages of these types, separated by commas"},
    })
}

/// The schema of a message with its `type`, and of what is told to all with its number and time.
fn message(word: &str, by: Said, schema: &Value) -> Value {
    let mut head = json!({"type": "object", "properties": {"type": {"const": word}}, "required": ["type"]});
    if by == Said::ToAll {
        head["properties"]["seq"] = json!({"type": "integer"});
        head["properties"]["ts"] = json!({"type": "string", "format": "date-time"});
        head["required"] = json!(["type", "seq", "ts"]);
    }
    if schema["type"] != "object" {
        return json!({"allOf": [schema, head]});
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        head["properties"][name] = property.clone();
    }
    if let Some(list) = head["required"].as_array_mut() {
        list.extend(schema["required"].as_array().cloned().unwrap_or_default());
    }
    head
}

/// The name of a message's schema: `AgentExitMessage` for `agent:exit`.
fn message_name(kind: &str) -> String {
    let mut name = String::new();
    for word in kind.split([':', '-']) {
        let (first, rest) = word.split_at(1.min(word.len()));
        name.extend([&first.to_ascii_uppercase(), rest]);
    }
    name + "Message"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conformance::of_value;
    use crate::core::Notice;
    use std::collections::BTreeSet;

    /// All places where a schema leads to another one.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(ToOwned::to_owned));
                for value in map.values() {
                    references(value, found);
                }
            }
            Value::Array(items) => {
                for value in items {
                    references(value, found);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_route_says_what_it_answers_and_nothing_else_does() {
        let of_table: Vec<String> =
            table().routes().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        let told: Vec<String> =
            shapes().unwrap().routes.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        let silent: Vec<_> = of_table.iter().filter(|route| !told.contains(route)).collect();
        let unknown: Vec<_> = told.iter().filter(|route| !of_table.contains(route)).collect();
        assert_eq!((silent, unknown, told.len()), (vec![], vec![], of_table.len()));
    }

    #[test]
    fn every_message_to_clients_is_told() {
        let told: Vec<String> = shapes().unwrap().messages.into_iter().map(|(kind, _)| kind).collect();
        let silent: Vec<_> =
            Notice::KINDS.iter().filter(|kind| !told.contains(&(**kind).to_owned())).collect();
        assert!(silent.is_empty(), "{silent:?}");
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_name_is_used() {
        for document in [document().unwrap(), messages().unwrap()] {
            let mut found = BTreeSet::new();
            references(&document, &mut found);
            for reference in &found {
                assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
            }
        }
        let mut used = BTreeSet::new();
        references(&document().unwrap(), &mut used);
        references(&messages().unwrap(), &mut used);
        for (name, _) in shapes().unwrap().named {
            assert!(used.contains(&format!("#/components/schemas/{name}")), "{name} is used by nothing");
        }
    }

    #[test]
    fn every_route_has_a_tag_and_who_takes_a_body_an_example_that_it_takes() {
        let document = document().unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                assert!(operation["tags"][0].is_string(), "{method} {path} has no tag");
                assert!(operation["security"].is_array(), "{method} {path}");
                let Some(content) = operation["requestBody"]["content"]["application/json"].as_object()
                else {
                    continue;
                };
                let example = content.get("example").unwrap_or_else(|| panic!("{method} {path}: no example"));
                let faults = of_value(&document, &content["schema"], example);
                assert!(faults.is_empty(), "{method} {path}: {}", faults.join(", "));
            }
        }
    }

    #[test]
    fn words_are_those_of_the_types() {
        assert_eq!(words_of::<Tier>(), ["light", "medium", "heavy"]);
        assert_eq!(words_of::<Deliver>(), ["rotation", "now", "idle", "auto"]);
        for (name, words) in words() {
            assert!(!words.is_empty(), "{name}");
        }
    }
}
