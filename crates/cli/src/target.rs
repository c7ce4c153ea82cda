//! Which agent is meant: an id, a name, or the beginning of one.

use super::client::{CallError, Client, encode};
use super::session::Failure;
use serde_json::Value;

/// Agents listed in an error.
const LISTED_MAX: usize = 10;

/// A member of a record as text; empty when it is absent.
pub fn text<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap_or_default()
}

/// The fine word for where an agent is in its life.
pub fn state(record: &Value) -> &str {
    let fine = text(record, "state");
    if fine.is_empty() { text(record, "status") } else { fine }
}

/// Whether the agent has not ended.
pub fn is_live(record: &Value) -> bool {
    matches!(state(record), "active" | "starting" | "running" | "waiting" | "rotating" | "limited" | "queued")
}

/// The record that `target` means: by exact id or name, else by the only id or name that begins so.
///
/// Errors: none or several fit; lists them.
pub fn resolve<'a>(agents: &'a [Value], target: &str) -> Result<&'a Value, Failure> {
    let exact = |name: &str| agents.iter().find(|agent| !target.is_empty() && text(agent, name) == target);
    if let Some(agent) = exact("id").or_else(|| exact("name")) {
        return Ok(agent);
    }
    let begins = |agent: &&Value, name: &str| text(agent, name).starts_with(target);
    let fitting: Vec<&Value> = agents
        .iter()
        .filter(|agent| !target.is_empty() && (begins(agent, "id") || begins(agent, "name")))
        .collect();
    match fitting.as_slice() {
        [one] => Ok(one),
        [] if agents.is_empty() => Err(Failure::failed(format!(
            "there is no agent '{target}': none exists yet; see 'svc help spawn'"
        ))),
        [] => {
            Err(Failure::failed(format!("there is no agent '{target}'; there are {}", listed(agents.iter()))))
        }
        several => {
            let list = listed(several.iter().copied());
            Err(Failure::failed(format!("'{target}' fits {list}; give more of the name or the id")))
        }
    }
}

fn listed<'a>(agents: impl Iterator<Item = &'a Value>) -> String {
    let all: Vec<String> = agents
        .map(|agent| format!("{} ({}, {})", text(agent, "name"), text(agent, "id"), state(agent)))
        .collect();
    let more = all.len().saturating_sub(LISTED_MAX);
    let shown = all.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more (see 'svc agents')") } else { shown }
}

/// All agents.
pub fn agents(client: &Client) -> Result<Vec<Value>, Failure> {
    match client.get("/api/agents")? {
        Value::Array(agents) => Ok(agents),
        _ => Err(Failure::failed("the list of agents is not a list: is this an svc daemon?")),
    }
}

/// The record that `target` means, asked from the daemon. An id that has been rotated away is followed to
/// its living successor, which only the daemon can do.
pub fn find(client: &Client, target: &str) -> Result<Value, Failure> {
    let agents = agents(client)?;
    let missing = match resolve(&agents, target) {
        Ok(agent) => return Ok(agent.clone()),
        Err(missing) => missing,
    };
    if target.parse::<svc_base::ids::AgentId>().is_err() {
        return Err(missing);
    }
    match client.try_call("GET", &format!("/api/agents/{}", encode(target)), None) {
        Ok(agent) => Ok(agent),
        Err(CallError::Refused { status: 404, .. }) => Err(missing),
        Err(error) => Err(client.explain(error)),
    }
}

/// The path of an agent's endpoint.
pub fn path(agent: &Value, rest: &str) -> String {
    format!("/api/agents/{}{rest}", encode(text(agent, "id")))
}

/// The record a lineage has now: the live one, else the one that was spawned last.
pub fn latest<'a>(agents: &'a [Value], lineage: &str) -> Option<&'a Value> {
    agents
        .iter()
        .filter(|agent| self::lineage(agent) == lineage)
        .max_by_key(|agent| (is_live(agent), text(agent, "spawnedAt")))
}

/// What stays the same when an agent is rotated; its id where the daemon names no lineage.
pub fn lineage(agent: &Value) -> &str {
    let lineage = text(agent, "lineageId");
    if lineage.is_empty() { text(agent, "id") } else { lineage }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn some() -> Vec<Value> {
        let agent =
            |id: &str, name: &str| json!({"id": id, "name": name, "status": "active", "state": "running"});
        vec![agent("3fa90001", "backend-1"), agent("3fb90002", "backend-10"), agent("77000003", "3fa")]
    }

    fn id(target: &str) -> Result<String, String> {
        match resolve(&some(), target) {
            Ok(agent) => Ok(text(agent, "id").to_owned()),
            Err(Failure::Say { code: 1, message }) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn exact_matches_win_over_beginnings() {
        for (target, expected) in [
            ("3fa90001", "3fa90001"),
            ("backend-1", "3fa90001"),
            ("3fa", "77000003"),
            ("3fb", "3fb90002"),
            ("7", "77000003"),
            ("backend-10", "3fb90002"),
        ] {
            assert_eq!(id(target).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn several_or_no_matches_are_listed() {
        let several = id("back").unwrap_err();
        assert!(
            several.contains("backend-1 (3fa90001, running), backend-10 (3fb90002, running);"),
            "{several}"
        );
        let none = id("front").unwrap_err();
        assert!(none.contains("no agent 'front'") && none.contains("3fa (77000003, running)"), "{none}");
        assert!(id("").is_err());
    }

    #[test]
    fn a_long_list_is_cut_at_ten() {
        let many: Vec<Value> =
            (0..12).map(|n| json!({"id": format!("{n:08x}"), "name": format!("a-{n}")})).collect();
        let Err(Failure::Say { message, .. }) = resolve(&many, "x") else { panic!("x is no agent") };
        assert!(
            message.contains("a-9 ") && !message.contains("a-10 ") && message.contains("2 more"),
            "{message}"
        );
    }

    #[test]
    fn a_rotated_agent_is_followed_by_its_lineage() {
        let agents = [
            json!({"id": "1", "lineageId": "l", "state": "running", "spawnedAt": "2026-01-01T00:00:00.000Z"}),
            json!({"id": "2", "lineageId": "l", "state": "killed", "spawnedAt": "2026-01-02T00:00:00.000Z"}),
            json!({"id": "3", "state": "crashed", "spawnedAt": "2026-01-03T00:00:00.000Z"}),
        ];
        assert_eq!(latest(&agents, "l").map(|agent| text(agent, "id")), Some("1"));
        assert_eq!(latest(&agents[1..], "l").map(|agent| text(agent, "id")), Some("2"));
        assert_eq!(latest(&agents, "3").map(state), Some("crashed"));
        assert_eq!(latest(&agents, "x"), None);
    }
}
