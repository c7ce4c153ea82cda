//! The endpoints of the providers that look at this machine: its `PATH`, its environment.

use super::api;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::providers::by_id;
use crate::providers::environment::is_passed;
use serde_json::json;
use std::collections::BTreeSet;
use svc_base::sorted::Gather;

/// `GET /api/providers`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let found = host.programs.look_at_all(ask.request.query("wait") == Some("true"));
    Ok(Answer::Reply(Reply::ok(&api::shown(ask.state, &found))))
}

/// `GET /api/providers/:id/environment`: names only, values never.
pub fn environment(_host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let id = ask.params.get("id");
    let provider = by_id(id)
        .ok_or_else(|| Problem::not_found(format!("no provider {id:?}; GET /api/providers lists them")))?;
    let extra = ask.state.settings.config().env.of(id);
    let names: BTreeSet<String> =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).gather();
    let is_set = |switch: &str| extra.set.get(switch).map_or_else(|| names.contains(switch), Option::is_some);
    let is_there = |name: &&String| {
        is_passed(provider.info(), &extra, name, &is_set) && !extra.set.contains_key(name.as_str())
    };
    let (passed, rest): (Vec<&String>, Vec<&String>) = names.iter().partition(is_there);
    let set: Vec<&String> =
        extra.set.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect();
    let held: Vec<&String> = rest.into_iter().filter(|name| !set.contains(name)).collect();
    Ok(Answer::Reply(Reply::ok(&json!({"provider": id, "passed": passed, "set": set, "held": held}))))
}
