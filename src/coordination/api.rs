//! `/api/coordination`.

use super::{Command, DEFAULT_TTL_MS, Operation, Owner, shown_id, shown_name};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::core::ids::AgentId;
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of an agent id.
const MAX_AGENT_ID_CHARS: usize = 100;
/// Characters of an operation's name.
const MAX_OPERATION_CHARS: usize = 100;
/// Resources of one declaration.
const MAX_RESOURCES: usize = 100;
/// Characters of a resource.
const MAX_RESOURCE_CHARS: usize = 500;
/// Shortest time a lock may be asked for.
const MIN_TTL_MS: u64 = 1_000;
/// Longest time a lock may be asked for.
const MAX_TTL_MS: u64 = 86_400_000;

/// The routes of coordination.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/coordination", "Which agent holds which resources", Read(list)),
        Route::new(
            Method::Post,
            "/api/coordination/declare",
            "Take shared resources exclusively",
            Write(Anyone, declare),
        )
        .body(|| schema_of(|fields| declaration(fields, &|| None)))
        .replies(&[
            (200, "declared, operation, resources, expiresAt"),
            (403, "an agent acts for another"),
            (423, "conflict, owner, operation, resource, expiresAt"),
        ]),
        Route::new(
            Method::Post,
            "/api/coordination/complete",
            "Give an agent's resources back",
            Write(Anyone, complete),
        )
        .body(|| schema_of(|fields| completion(fields, &|| None)))
        .replies(&[
            (200, "completed, and how many resources were released"),
            (403, "an agent acts for another"),
        ]),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let mut by_owner: BTreeMap<&Owner, Vec<&Operation>> = BTreeMap::new();
    for (owner, operation) in ask.state.coordination.iter() {
        if operation.expires_at > ask.now {
            by_owner.entry(owner).or_default().push(operation);
        }
    }
    let mut operations = Map::new();
    for (owner, held) in by_owner {
        let Some(latest) = held.last() else { continue };
        let mut record = json!(latest);
        record["agentName"] = shown_name(ask.state, owner).into();
        if held.len() > 1 {
            record["all"] = json!(held);
        }
        operations.insert(shown_id(ask.state, owner), record);
    }
    Ok(Reply::ok(&json!({ "operations": operations })))
}

fn declare(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(ask.request.read(|fields| declaration(fields, ask.find_caller))?.into())
}

fn declaration(fields: &mut Fields, caller: Caller) -> Command {
    let agent_id = agent_id(fields, caller);
    let operation = sized(fields, "operation", MAX_OPERATION_CHARS);
    let resources = resources(fields);
    fields.tell("ttlMs", || json!({"default": DEFAULT_TTL_MS}));
    let ttl_ms = fields.integer("ttlMs", MIN_TTL_MS, MAX_TTL_MS).unwrap_or(DEFAULT_TTL_MS);
    Command::Declare { agent_id, operation, resources, ttl_ms }
}

fn complete(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(ask.request.read(|fields| completion(fields, ask.find_caller))?.into())
}

fn completion(fields: &mut Fields, caller: Caller) -> Command {
    let agent_id = agent_id(fields, caller);
    Command::Complete { agent_id, operation: fields.string("operation").map(ToOwned::to_owned) }
}

/// Finds out which agent calls, see [`Ask::caller`]; only where the body does not say.
type Caller<'a> = &'a dyn Fn() -> Option<AgentId>;

/// Required of everybody but an agent's process, whose id the kernel knows.
fn agent_id(fields: &mut Fields, caller: Caller) -> String {
    if fields.value("agentId").is_none()
        && let Some(caller) = caller()
    {
        return caller.to_string();
    }
    sized(fields, "agentId", MAX_AGENT_ID_CHARS)
}

fn sized(fields: &mut Fields, name: &str, max: usize) -> String {
    fields.tell(name, || json!({"minLength": 1, "maxLength": max}));
    let text = fields.required_string(name).unwrap_or_default().to_owned();
    let chars = text.chars().count();
    fields.validator.check(chars <= max && !text.contains('\0'), name, || {
        format!("{name} must have 1 to {max} characters and no NUL, it has {chars}")
    });
    text
}

/// The resources without duplicates, in their order.
fn resources(fields: &mut Fields) -> Vec<String> {
    let one = || json!({"type": "string", "minLength": 1, "maxLength": MAX_RESOURCE_CHARS});
    let all = || json!({"type": "array", "minItems": 1, "maxItems": MAX_RESOURCES, "items": one()});
    fields.tell("resources", all);
    fields.tell_required("resources");
    if fields.value("resources").is_none() {
        fields.validator.fail("resources", "resources is required and must be a list of strings");
        return Vec::new();
    }
    let Some(list) = fields.strings("resources") else { return Vec::new() };
    let fits = |text: &&str| (1..=MAX_RESOURCE_CHARS).contains(&text.chars().count()) && !text.contains('\0');
    let is_fine = (1..=MAX_RESOURCES).contains(&list.len()) && list.iter().all(fits);
    fields.validator.check(is_fine, "resources", || {
        format!("resources must have 1 to {MAX_RESOURCES} strings of 1 to {MAX_RESOURCE_CHARS} characters")
    });
    let mut seen = BTreeSet::new();
    list.into_iter().filter(|text| seen.insert(*text)).map(ToOwned::to_owned).collect()
}
