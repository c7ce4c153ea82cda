//! Every reply and every WebSocket message that a test sees is what the daemon's own description says.

use serde_json::{Value, json};
use std::sync::OnceLock;
use svc::api::{Found, Method, Table, conformance};
use svc::assembly::{description, routes};
use svc::endpoint::Handler;

/// Panics when a reply is not as the route's description says. `target` is a path, perhaps with a query.
pub fn hold_reply(method: &str, target: &str, status: u16, media: &str, body: &Value) {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    static TABLE: OnceLock<Table<Handler>> = OnceLock::new();
    // Benchmarks measure the daemon, not this.
    if !cfg!(debug_assertions) {
        return;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // A part of a record is asked for: which one, no schema can say.
    if query.starts_with("fields=") {
        return;
    }
    let segments: Vec<String> = path.split('/').skip(1).map(ToOwned::to_owned).collect();
    let table = TABLE.get_or_init(routes::table);
    let Ok(known) = method.parse::<Method>() else { return };
    // What no route serves is refused before any.
    let Found::Route(route, _) = table.find(&known, &segments) else { return };
    if known == Method::Head {
        return;
    }
    let document = DOCUMENT.get_or_init(|| description::document().expect("a description"));
    let media = media.split(';').next().unwrap_or_default();
    let faults = conformance::faults(document, (method, route.path), (status, media), body);
    assert!(faults.is_empty(), "{method} {target} is not as described: {}", faults.join("\n"));
}

/// Panics when a message to WebSocket clients is not as described.
pub fn hold_message(message: &Value) {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| description::messages().expect("a description"));
    let kind = message["type"].as_str().unwrap_or_default();
    let known = document["components"]["messages"].as_object().unwrap();
    let Some(found) = known.values().find(|one| one["name"] == kind) else {
        panic!("a message that is not described: {message}");
    };
    let faults = conformance::of_value(document, &json!({"$ref": found["payload"]["$ref"]}), message);
    assert!(faults.is_empty(), "{message} is not as described: {}", faults.join("\n"));
}
