//! `/api/memory`.

use super::{Command, MAX_FIX_CHARS, MAX_TRIGGER_CHARS, NewDiscovery};
use crate::api::{Fields, Method, Problem, Reply, Request, Route, Validator, schema_of};
use crate::core::ids::{AgentId, LineageId};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::json;
use std::fmt::Write as _;

const CONSTRAINT_CHARS: (usize, usize) = (3, 500);
const MAX_CATEGORY_CHARS: usize = 40;
/// Characters of a role.
pub const MAX_ROLE_CHARS: usize = 50;
const MAX_AGENT_CHARS: usize = 64;
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 500;
const DEFAULT_COUNT: usize = 3;
const MAX_COUNT: usize = super::MAX_CHAIN;

/// The routes of the memory.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = constraint_routes();
    routes.extend(chain_routes());
    routes.extend(discovery_routes());
    routes
}

fn constraint_routes() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/memory/constraints", "The rules for all agents", Read(constraints)),
        Route::new(
            Method::Post,
            "/api/memory/constraints",
            "Set a rule for all agents",
            Write(Anyone, add_constraint),
        )
        .body(|| schema_of(constraint))
        .replies(&[
            (201, "added, hash, category; evicted when the oldest had to go"),
            (200, "it is known already"),
            (400, "text must have 3 to 500 characters"),
        ]),
        Route::new(
            Method::Delete,
            "/api/memory/constraints/:hash",
            "Lift a rule",
            Write(Anyone, |ask| Ok(Command::RemoveConstraint(ask.params.get("hash").to_owned()).into())),
        )
        .replies(&[(200, "removed"), (404, "no such rule")]),
    ]
}

fn chain_routes() -> Vec<Route<Handler>> {
    use Handler::Read;
    vec![
        Route::new(Method::Get, "/api/memory/handoff-chain", "Roles with a handoff chain", Read(roles)),
        Route::new(
            Method::Get,
            "/api/memory/handoff-chain/:role",
            "The last handoffs of a role, newest first",
            Read(chain),
        ),
        Route::new(
            Method::Get,
            "/api/memory/handoff-chain/:role/recent",
            "The last handoffs of a role as one text",
            Read(recent),
        )
        .query(&[("count", "how many, 3 unless told, 10 at most")])
        .replies(&[(200, "Markdown; role, count, markdown when Accept asks for JSON")]),
    ]
}

fn discovery_routes() -> Vec<Route<Handler>> {
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/memory/discoveries", "What worked, newest first", Read(discoveries))
            .query(&[("role", "only of this role"), ("limit", "how many, 100 unless told, 500 at most")]),
        Route::new(
            Method::Post,
            "/api/memory/discoveries",
            "Tell what worked",
            Write(Access::Anyone, add_discovery),
        )
        .body(|| schema_of(discovery))
        .replies(&[(201, "added"), (200, "a duplicate, or no success"), (400, "a field is wrong")]),
        Route::new(
            Method::Get,
            "/api/memory/specializations",
            "What agents and roles have shown",
            Read(specializations),
        ),
        Route::new(
            Method::Get,
            "/api/memory/specializations/:agentId",
            "One agent's profile",
            Read(specialization),
        )
        .replies(&[(200, "the profile"), (404, "nothing is known of it")]),
    ]
}

fn constraints(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&json!({"constraints": ask.state.memory.constraints()})))
}

fn add_constraint(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(ask.request.read(constraint)?.into())
}

fn constraint(fields: &mut Fields) -> Command {
    let text = sized(fields, "text", CONSTRAINT_CHARS).unwrap_or_default();
    fields.tell("category", || json!({"pattern": "^[a-z0-9-]{1,40}$", "default": "general"}));
    let category = fields.string("category").unwrap_or("general").to_owned();
    let fits = (1..=MAX_CATEGORY_CHARS).contains(&category.len())
        && category.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    fields.validator.check(fits, "category", || {
        format!("category must be 1 to {MAX_CATEGORY_CHARS} of the characters a-z 0-9 -, it is {category:?}")
    });
    Command::AddConstraint { text, category }
}

fn add_discovery(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::AddDiscovery(ask.request.read(discovery)?).into())
}

fn discovery(fields: &mut Fields) -> NewDiscovery {
    fields.tell("agentId", || json!({"maxLength": MAX_AGENT_CHARS}));
    let agent_id = fields.string("agentId").filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let fits = agent_id.as_ref().is_none_or(|id| {
        id.len() <= MAX_AGENT_CHARS && id.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    });
    fields
        .validator
        .check(fits, "agentId", || format!("agentId must be an agent's id or name, it is {agent_id:?}"));
    fields.tell("role", || json!({"pattern": "^[A-Za-z0-9_-]{1,50}$", "default": "unknown"}));
    let role = fields.string("role").filter(|text| !text.is_empty()).map(ToOwned::to_owned);
    let fits = role.as_ref().is_none_or(|role| is_role(role));
    fields.validator.check(fits, "role", || {
        format!("role must be 1 to {MAX_ROLE_CHARS} of the characters A-Z a-z 0-9 _-, it is {role:?}")
    });
    fields.tell("outcome", || json!({"default": "success"}));
    NewDiscovery {
        agent_id,
        role,
        trigger: sized(fields, "trigger", (1, MAX_TRIGGER_CHARS)).unwrap_or_default(),
        fix: sized(fields, "fix", (1, MAX_FIX_CHARS)).unwrap_or_default(),
        outcome: fields.string("outcome").unwrap_or("success").to_owned(),
    }
}

/// Whether it is a role's name.
pub fn is_role(role: &str) -> bool {
    (1..=MAX_ROLE_CHARS).contains(&role.len())
        && role.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A text that must be there, trimmed, of so many characters.
fn sized(fields: &mut Fields, name: &str, (min, max): (usize, usize)) -> Option<String> {
    fields.tell(name, || json!({"type": "string", "minLength": min, "maxLength": max}));
    fields.tell_required(name);
    if fields.value(name).is_none() {
        fields
            .validator
            .fail(name, format!("{name} is required and must be a string of {min} to {max} characters"));
        return None;
    }
    let text = fields.string(name)?.trim();
    let chars = text.chars().count();
    fields.validator.check((min..=max).contains(&chars), name, || {
        format!("{name} must have {min} to {max} characters, it has {chars}")
    });
    fields.validator.check(!text.contains('\0'), name, || format!("{name} must not contain NUL"));
    Some(text.to_owned())
}

/// A whole number of the query, from 1 to `max`.
fn number(request: &Request, name: &str, default: usize, max: usize) -> Result<usize, Problem> {
    let mut validator = Validator::default();
    let number = validator.whole_number(name, request.query(name), default, max);
    validator.finish().map(|()| number)
}

fn roles(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&json!({"roles": ask.state.memory.chain_roles().collect::<Vec<_>>()})))
}

fn chain(ask: &Ask) -> Result<Reply, Problem> {
    let role = ask.params.get("role");
    let entries: Vec<_> = ask.state.memory.chain(role).collect();
    Ok(Reply::ok(&json!({"role": role, "entries": entries})))
}

fn recent(ask: &Ask) -> Result<Reply, Problem> {
    let role = ask.params.get("role");
    let count = number(ask.request, "count", DEFAULT_COUNT, MAX_COUNT)?;
    let mut markdown = String::new();
    let mut told = 0;
    for entry in ask.state.memory.chain(role).take(count) {
        if told > 0 {
            markdown.push_str("\n---\n\n");
        }
        let _ = writeln!(
            markdown,
            "<!-- rotation {} of {role}: {} ({}), {} -->\n\n{}",
            entry.rotation_n,
            entry.agent_name,
            entry.reason,
            entry.ts,
            entry.body.trim_end()
        );
        told += 1;
    }
    if wants_json(ask.request) {
        return Ok(Reply::ok(&json!({"role": role, "count": told, "markdown": markdown})));
    }
    Ok(Reply::bytes(200, "text/markdown; charset=utf-8", markdown))
}

/// Whether `Accept` asks for JSON: it is named, and Markdown is not named before it.
fn wants_json(request: &Request) -> bool {
    let accept = request.header("accept").unwrap_or_default().to_ascii_lowercase();
    let place =
        |kind: &str| accept.split(',').position(|part| part.split(';').next().unwrap_or("").trim() == kind);
    match (place("text/markdown"), place("application/json")) {
        (Some(markdown), Some(json)) => json < markdown,
        (_, json) => json.is_some(),
    }
}

fn discoveries(ask: &Ask) -> Result<Reply, Problem> {
    let limit = number(ask.request, "limit", DEFAULT_LIMIT, MAX_LIMIT)?;
    let role = ask.request.query("role").filter(|role| !role.is_empty());
    let fitting =
        ask.state.memory.discoveries().rev().filter(|found| role.is_none_or(|role| found.role == role));
    Ok(Reply::ok(&json!({"discoveries": fitting.take(limit).collect::<Vec<_>>()})))
}

fn specializations(ask: &Ask) -> Result<Reply, Problem> {
    let threshold = ask.state.settings.config().rotation_threshold;
    Ok(Reply::ok(&ask.state.memory.specializations().shown(threshold)))
}

/// By the agent's id, an earlier id, its name, or its lineage's id.
fn specialization(ask: &Ask) -> Result<Reply, Problem> {
    let target = ask.params.get("agentId");
    let known = ask.state.memory.specializations();
    let threshold = ask.state.settings.config().rotation_threshold;
    let by_record = ask.state.agents.find(target).ok().map(|agent| agent.lineage_id);
    let by_profile = target.parse::<AgentId>().ok().and_then(|id| known.lineage_of(id));
    let by_lineage = target.parse::<LineageId>().ok();
    let found = [by_record, by_profile, by_lineage].into_iter().flatten();
    let mut profiles = found.filter_map(|lineage| known.agent(lineage, threshold));
    let profile = profiles.next().ok_or_else(|| {
        Problem::not_found(format!(
            "nothing is known of an agent {target:?}; GET /api/memory/specializations lists all"
        ))
    })?;
    Ok(Reply::ok(&profile))
}
