//! The methods of the protocol that an editor calls.

use super::super::session::complain;
use super::super::target::text;
use super::Door;
use super::seat::{self, Seat};
use super::wire::Fault;
use super::{permission, turn, words};
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread;
use svc_providers::acp::PROTOCOL_VERSION;

/// Names that are told of what was not taken.
const NAMED_MAX: usize = 20;

/// A message of the editor: a request, a notification, or the answer to a request of ours.
pub fn heard(door: &Arc<Door>, message: &Value) {
    let (method, params) = (text(message, "method"), &message["params"]);
    match (message["method"].is_string(), message.get("id")) {
        (true, Some(id)) if method == "session/prompt" => prompt(door, id, params),
        (true, Some(id)) => door.wire.answer(id, call(door, method, params)),
        // Of other notifications a server need not know anything.
        (true, None) if method == "session/cancel" => {
            if let Some(seat) = door.seats().get(text(params, "sessionId")) {
                seat.cancel();
            }
        }
        (true, None) => {}
        (false, Some(_)) if message.get("result").is_some() || message.get("error").is_some() => {
            permission::answered(door, message);
        }
        (false, _) => door.wire.refuse(&Value::Null, &Fault::no_message()),
    }
}

fn call(door: &Door, method: &str, params: &Value) -> Result<Value, Fault> {
    match method {
        "initialize" => initialize(params),
        "session/new" => {
            let seat = seat::open(door, &params["cwd"])?;
            Ok(with_servers(params, json!({"sessionId": seat.id})))
        }
        "session/load" => {
            let (seat, record) = seat::load(door, text(params, "sessionId"), &params["cwd"])?;
            if seat.is_busy() {
                let words =
                    "a prompt of this session is under way; send session/cancel, or wait for its answer";
                return Err(Fault::request(words));
            }
            turn::replay(door, &seat, &record)?;
            Ok(with_servers(params, json!({})))
        }
        other => Err(Fault::no_method(other)),
    }
}

fn initialize(params: &Value) -> Result<Value, Fault> {
    if !params["protocolVersion"].is_u64() {
        return Err(Fault::parameter("protocolVersion: must be a whole number; send 1"));
    }
    Ok(json!({
        // An editor that speaks another version decides itself whether it goes on.
        "protocolVersion": PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": false, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": false, "sse": false},
        },
        "agentInfo": {"name": "svc", "title": "svc", "version": crate::help::VERSION},
        "authMethods": [],
    }))
}

/// An answer that names the editor's own tool servers, if it has sent any: agents get theirs from the daemon,
/// where a person has installed them.
fn with_servers(params: &Value, mut result: Value) -> Value {
    let servers = params["mcpServers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = servers.iter().map(|server| text(server, "name")).take(NAMED_MAX).collect();
    if !names.is_empty() {
        complain(&format!(
            "the editor's MCP servers are not taken ({}); install them with 'svc integrations add'",
            names.join(", ")
        ));
        result["_meta"] = json!({"svc": {"mcpServersNotTaken": names}});
    }
    result
}

fn prompt(door: &Arc<Door>, id: &Value, params: &Value) {
    let (seat, words) = match begin(door, params) {
        Ok(begun) => begun,
        Err(fault) => return door.wire.refuse(id, &fault),
    };
    let (door, id) = (Arc::clone(door), id.clone());
    // One for each session at most.
    thread::spawn(move || {
        let result = turn::take(&door, &seat, &words);
        seat.end();
        door.wire.answer(&id, result);
    });
}

fn begin(door: &Door, params: &Value) -> Result<(Arc<Seat>, String), Fault> {
    let session = text(params, "sessionId");
    let seat = door.seats().get(session).cloned().ok_or_else(|| {
        Fault::missing("sessionId: there is no such session here; begin with session/new or session/load")
    })?;
    let words = words::of_prompt(&params["prompt"])?;
    seat.begin()?;
    Ok((seat, words))
}
