//! Locks: an agent declares what it is about to do to shared resources, and others keep off until it is done.
//!
//! A resource is any text that the agents agree on, compared exactly. Locks of an agent belong to its
//! lineage, so a rotation or resume takes them along. Somebody who is no agent may hold locks under a name
//! of its own.
//!
//! **Invariant:** a resource is held by one owner, in one operation.
//! **Invariant:** an agent that has ended holds nothing. One that was interrupted with the daemon keeps its
//! locks until they expire, for it may be resumed in the middle of the operation.

pub mod api;
mod store;
#[cfg(test)]
mod tests;

pub use store::{Stored, VERSION as STORED_VERSION, restore};

use crate::agents;
use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::ids::LineageId;
use crate::core::time::{Jump, Time};
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All, Timer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted::Gather;

/// How long a lock is held when the caller does not say.
pub const DEFAULT_TTL_MS: u64 = 600_000;
/// Operations of one owner at most.
pub const MAX_OPERATIONS: usize = 100;
/// Resources held by all owners together at most.
pub const MAX_HELD: usize = 5_000;

/// Who holds a lock.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// An agent, in whichever life.
    Agent(LineageId),
    /// Somebody else, under the id that it gave.
    Named(Arc<str>),
}

/// What an owner is about to do, and to what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// For people.
    pub name: String,
    /// Held exclusively; unique among all operations.
    pub resources: Vec<String>,
    /// Milliseconds since 1970.
    pub acquired_at: Time,
    /// Milliseconds since 1970.
    pub expires_at: Time,
}

/// All locks.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    held: BTreeMap<Owner, Vec<Operation>>,
}

/// A wish about locks. `agent_id` is an agent's id, earlier id or name, or any other text.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    Declare {
        agent_id: String,
        /// What it is about to do.
        operation: String,
        /// Without duplicates, in the order of the request.
        resources: Vec<String>,
        /// Until when at most, in milliseconds from now.
        ttl_ms: u64,
    },
    Complete {
        agent_id: String,
        operation: Option<String>,
    },
}

/// Why a lock ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Expired,
    Exited,
}

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Expired => "expired",
            Self::Exited => "exited",
        }
    }
}

impl State {
    /// Every operation with its owner.
    pub fn iter(&self) -> impl Iterator<Item = (&Owner, &Operation)> {
        self.held.iter().flat_map(|(owner, operations)| operations.iter().map(move |one| (owner, one)))
    }

    /// The resources an agent holds now, for its handoff brief.
    pub fn held_by(&self, lineage: LineageId) -> impl Iterator<Item = &Operation> {
        self.held.get(&Owner::Agent(lineage)).into_iter().flatten()
    }

    fn next_expiry(&self) -> Option<Time> {
        self.iter().map(|(_, operation)| operation.expires_at).min()
    }

    /// The first of `resources` that somebody else holds.
    fn conflict(&self, own: &Owner, resources: &[String]) -> Option<(&Owner, &Operation, String)> {
        let wanted: BTreeSet<&str> = resources.iter().map(String::as_str).gather();
        let mut held: BTreeMap<&str, (&Owner, &Operation)> = BTreeMap::new();
        for (owner, operation) in self.iter().filter(|(owner, _)| *owner != own) {
            let met = operation.resources.iter().filter(|resource| wanted.contains(resource.as_str()));
            held.extend(met.map(|resource| (resource.as_str(), (owner, operation))));
        }
        let first = resources.iter().find(|resource| held.contains_key(resource.as_str()))?;
        held.get(first.as_str()).map(|(owner, operation)| (*owner, *operation, first.clone()))
    }

    /// Gives `resources` to an operation of this owner, taking them out of its other ones.
    fn hold(&mut self, owner: Owner, name: String, resources: &[String], now: Time, expires_at: Time) {
        let operations = self.held.entry(owner).or_default();
        let known = operations.iter().position(|operation| operation.name == name);
        let mut operation = known.map_or_else(
            || Operation { name, resources: Vec::new(), acquired_at: now, expires_at },
            |at| operations.remove(at),
        );
        let taken: BTreeSet<&str> = resources.iter().map(String::as_str).gather();
        operation.resources.retain(|resource| !taken.contains(resource.as_str()));
        operation.resources.extend(resources.iter().cloned());
        operation.expires_at = expires_at;
        for other in operations.iter_mut() {
            other.resources.retain(|resource| !taken.contains(resource.as_str()));
        }
        operations.retain(|operation| !operation.resources.is_empty());
        operations.push(operation);
    }

    /// Takes the operations out that `gone` picks.
    fn release(&mut self, gone: impl Fn(&Owner, &Operation) -> bool) -> Vec<(Owner, Operation)> {
        let mut out = Vec::new();
        for (owner, operations) in &mut self.held {
            let (go, stay): (Vec<_>, Vec<_>) = operations.drain(..).partition(|one| gone(owner, one));
            *operations = stay;
            out.extend(go.into_iter().map(|operation| (owner.clone(), operation)));
        }
        self.held.retain(|_, operations| !operations.is_empty());
        out
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| {
        // A deadline that has come, but whose timer was not served yet, blocks nobody.
        expire(all, cx);
        match command {
            Command::Declare { agent_id, operation, resources, ttl_ms } => {
                declare(all, cx, &agent_id, &operation, &resources, Duration::from_millis(ttl_ms))
            }
            Command::Complete { agent_id, operation } => complete(all, cx, &agent_id, operation.as_deref()),
        }
    });
    cx.answer(call, result);
}

fn declare(
    all: &mut All,
    cx: &mut Context,
    agent_id: &str,
    operation: &str,
    resources: &[String],
    ttl: Duration,
) -> Result<Reply, Problem> {
    let owner = owner(all, cx, agent_id)?;
    if let Ok(agent) = all.agents.find(agent_id).map(Arc::clone)
        && !agent.status.is_live()
    {
        let text = format!("agent {} has ended ({}) and can hold no lock", agent.name, agent.status_reason);
        return Err(Problem::new(409, "agent_ended", text));
    }
    if let Some((holder, held, resource)) = all.coordination.conflict(&owner, resources) {
        return Err(locked(all, holder, held, &resource));
    }
    check_room(all, &owner, operation, resources)?;
    let shown = shown_id(all, &owner);
    let expires_at = cx.now + ttl;
    let state = Arc::make_mut(&mut all.coordination);
    state.hold(owner, operation.to_owned(), resources, cx.now, expires_at);
    let told = Notice::CoordinationDeclared {
        agent_id: shown,
        operation: operation.to_owned(),
        resources: resources.to_vec(),
    };
    cx.audit("coordination.declare", &told.body());
    cx.notice(told);
    written(all, cx);
    Ok(Reply::ok(&json!({
        "declared": true, "operation": operation, "resources": resources, "expiresAt": expires_at,
    })))
}

fn complete(
    all: &mut All,
    cx: &mut Context,
    agent_id: &str,
    operation: Option<&str>,
) -> Result<Reply, Problem> {
    let own = owner(all, cx, agent_id)?;
    let is_meant =
        |owner: &Owner, held: &Operation| *owner == own && operation.is_none_or(|name| name == held.name);
    let released = end(all, cx, End::Completed, is_meant);
    Ok(Reply::ok(&json!({"completed": released > 0, "released": released})))
}

/// The wall clock has jumped: a lock lasts as long as it was asked for.
pub fn clock_set(all: &mut All, cx: &mut Context, jump: Jump) {
    if all.coordination.held.is_empty() {
        return;
    }
    for operation in Arc::make_mut(&mut all.coordination).held.values_mut().flatten() {
        operation.acquired_at = operation.acquired_at.moved(jump);
        operation.expires_at = operation.expires_at.moved(jump);
    }
    written(all, cx);
}

/// No lock was taken after `now`.
pub fn not_after(all: &mut All, now: Time) {
    for operation in Arc::make_mut(&mut all.coordination).held.values_mut().flatten() {
        if operation.acquired_at > now {
            operation.expires_at = now + operation.expires_at.since(operation.acquired_at);
            operation.acquired_at = now;
        }
    }
    if let Some(at) = all.coordination.next_expiry() {
        Arc::make_mut(&mut all.timers).set(Timer::Locks, at);
    }
}

/// Deadlines have come.
pub fn expire(all: &mut All, cx: &mut Context) {
    let now = cx.now;
    if all.coordination.next_expiry().is_some_and(|at| at <= now) {
        end(all, cx, End::Expired, |_, operation| operation.expires_at <= now);
    }
}

/// Something has happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Ended(id) => {
            // It may be alive again by now, or be resumed after the daemon's next start.
            let Ok(agent) = all.agents.find(&id.to_string()) else { return };
            let keeps = agent.status.is_live() || agent.status == agents::Status::Interrupted;
            let lineage = agent.lineage_id;
            if !keeps {
                end(all, cx, End::Exited, |owner, _| *owner == Owner::Agent(lineage));
            }
        }
        Moment::Removed(_, lineage) => {
            end(all, cx, End::Exited, |owner, _| *owner == Owner::Agent(lineage));
        }
        _ => {}
    }
}

/// Releases what `gone` picks and tells of it; the number of resources that are free now.
fn end(all: &mut All, cx: &mut Context, why: End, gone: impl Fn(&Owner, &Operation) -> bool) -> usize {
    if !all.coordination.iter().any(|(owner, operation)| gone(owner, operation)) {
        return 0;
    }
    let released = Arc::make_mut(&mut all.coordination).release(gone);
    let mut by_owner: BTreeMap<Owner, Vec<Operation>> = BTreeMap::new();
    for (owner, operation) in released {
        by_owner.entry(owner).or_default().push(operation);
    }
    let mut count = 0;
    for (owner, operations) in by_owner {
        let resources: Vec<String> =
            operations.iter().flat_map(|operation| operation.resources.iter().cloned()).collect();
        count += resources.len();
        let told = Notice::CoordinationCompleted {
            agent_id: shown_id(all, &owner),
            reason: why.word(),
            operations: operations.into_iter().map(|operation| operation.name).collect(),
            resources,
        };
        let actor = cx.actor.clone();
        if why != End::Completed {
            // Whoever's call brought this to light did not do it.
            cx.actor = crate::core::Actor::Daemon;
        }
        cx.audit("coordination.release", &told.body());
        cx.actor = actor;
        cx.notice(told);
    }
    written(all, cx);
    count
}

fn written(all: &mut All, cx: &mut Context) {
    cx.push(Effect::Put(Document::Locks, Durability::BeforeReply));
    Arc::make_mut(&mut all.timers).put(Timer::Locks, all.coordination.next_expiry());
}

/// Whom an id means. An agent's process speaks for its own lineage alone.
fn owner(all: &All, cx: &Context, agent_id: &str) -> Result<Owner, Problem> {
    let meant = all.agents.find(agent_id).ok().map(|agent| agent.lineage_id);
    if let Some(caller) = cx.actor.agent() {
        let own = all.agents.find(&caller.to_string()).ok().map(|agent| agent.lineage_id);
        if own.is_none() || own != meant {
            let text = format!("agent {caller} may not act as {agent_id:?}; give its own id or none");
            return Err(Problem::new(403, "agent_may_not", text));
        }
    }
    Ok(meant.map_or_else(|| Owner::Named(agent_id.into()), Owner::Agent))
}

/// The id to show: the present life of an agent, or what was given.
fn shown_id(all: &All, owner: &Owner) -> String {
    match owner {
        Owner::Named(text) => text.to_string(),
        Owner::Agent(lineage) => {
            let agent = all.agents.by_lineage(*lineage);
            agent.map_or_else(|| lineage.to_string(), |agent| agent.id.to_string())
        }
    }
}

fn shown_name(all: &All, owner: &Owner) -> String {
    let Owner::Agent(lineage) = owner else { return shown_id(all, owner) };
    let agent = all.agents.by_lineage(*lineage);
    agent.map_or_else(|| lineage.to_string(), |agent| agent.name.clone())
}

/// 423 as specified.
fn locked(all: &All, owner: &Owner, held: &Operation, resource: &str) -> Problem {
    let name = shown_name(all, owner);
    let text = format!(
        "resource {resource:?} is held by {name} for {:?} until {}; retry then, or after it completes",
        held.name, held.expires_at
    );
    Problem::new(423, "resource_locked", text)
        .with("conflict", true)
        .with("owner", shown_id(all, owner))
        .with("ownerName", name)
        .with("operation", held.name.clone())
        .with("resource", resource)
        .with("expiresAt", held.expires_at.0)
}

fn check_room(all: &All, owner: &Owner, operation: &str, resources: &[String]) -> Result<(), Problem> {
    let state = &all.coordination;
    let own = state.held.get(owner).map_or(&[][..], Vec::as_slice);
    let is_new = own.iter().all(|held| held.name != operation);
    if is_new && own.len() >= MAX_OPERATIONS {
        let text = format!("{MAX_OPERATIONS} operations are held already; complete some first");
        return Err(Problem::new(409, "too_many_locks", text));
    }
    let held: usize = state.iter().map(|(_, held)| held.resources.len()).sum();
    if held + resources.len() > MAX_HELD {
        let text = format!("{held} resources are held and {MAX_HELD} is the limit; complete some first");
        return Err(Problem::new(409, "too_many_locks", text));
    }
    Ok(())
}
