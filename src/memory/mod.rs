//! What the project's agents have learned: constraints, discoveries, handoff chains, specializations.
//!
//! Everything stands in files a person can read, below `.svc/memory/`, and what is relevant to a task is
//! told to every new agent (see `context::briefing`).
//!
//! **Invariant:** each store has a cap; what is dropped at it is the oldest, of discoveries the least
//! useful, and a dropped constraint is told.
//! **Invariant:** an acknowledged constraint, discovery or handoff is on disk.
//! **Invariant:** no two constraints have one hash, no two discoveries one pair of trigger and fix.

pub mod api;
mod chain;
mod discoveries;
pub use svc_base::relevance;
pub mod select;
mod specializations;
pub mod store;
#[cfg(test)]
mod tests;

pub use chain::{ChainEntry, MAX_CHAIN, brief_written};
pub use discoveries::{Discovery, Learned, NewDiscovery, mined, told_in};
pub use discoveries::{MAX_FIX_CHARS, MAX_TRIGGER_CHARS};
pub use select::{Handoff, Selected, Wanted};
pub use specializations::{heard, session_scored};

use crate::agents;
use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::ids::UNKNOWN_AGENT;
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All};
use chain::Chains;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use specializations::Specializations;
use std::collections::VecDeque;
use std::sync::Arc;
use svc_base::hex;

/// Constraints kept; the oldest is evicted, and told.
pub const MAX_CONSTRAINTS: usize = 50;
/// Discoveries kept; the least useful goes first, and of equals the oldest.
pub const MAX_DISCOVERIES: usize = 1000;
/// Hexadecimal digits of a constraint's hash.
pub const HASH_DIGITS: usize = 12;

/// A rule a person has set for all agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Constraint {
    /// The first [`HASH_DIGITS`] hexadecimal digits of the SHA-256 of the trimmed, lower-cased text.
    pub hash: String,
    /// A word to sort by, `general` unless told.
    pub category: String,
    pub text: Arc<str>,
    /// When it was set, RFC 3339.
    pub added_at: String,
    /// The lineage of the agent that set it, or `unknown` for a process that has left its agent; absent for a
    /// person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
}

/// All memory of the project. One `Arc` for each part: counting a touched file must not copy the discoveries.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    /// Oldest first.
    constraints: Vec<Constraint>,
    /// Oldest first.
    discoveries: Arc<VecDeque<Discovery>>,
    /// Which of them living agents were told of.
    told: Arc<discoveries::Told>,
    chains: Arc<Chains>,
    specializations: Arc<Specializations>,
}

/// A wish about memory.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    AddConstraint {
        /// 3 to 500 characters, trimmed.
        text: String,
        /// 1 to 40 characters.
        category: String,
    },
    RemoveConstraint(String),
    AddDiscovery(NewDiscovery),
}

impl State {
    /// The rules, oldest first.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// What worked, oldest first.
    pub fn discoveries(&self) -> impl DoubleEndedIterator<Item = &Discovery> + ExactSizeIterator {
        self.discoveries.iter()
    }

    /// The roles that have a handoff chain.
    pub fn chain_roles(&self) -> impl Iterator<Item = &str> {
        self.chains.roles()
    }

    /// The handoffs of a role, newest first, at most [`MAX_CHAIN`].
    pub fn chain(&self, role: &str) -> impl Iterator<Item = &Arc<ChainEntry>> {
        self.chains.of(role)
    }
}

/// The hash by which a constraint is known and by which duplicates are found.
pub fn constraint_hash(text: &str) -> String {
    let digest = Sha256::digest(text.trim().to_lowercase().as_bytes());
    hex::encode(&digest[..HASH_DIGITS / 2])
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    if let Err(problem) = all.health.writable() {
        return cx.reply(call, problem);
    }
    let result = match command {
        Command::AddConstraint { text, category } => add_constraint(all, cx, &text, &category),
        Command::RemoveConstraint(hash) => remove_constraint(all, cx, &hash),
        Command::AddDiscovery(new) => discoveries::add(all, cx, &new),
    };
    cx.answer(call, result);
}

/// The agent behind an event, as a constraint names it; `None` for a person.
fn setter(all: &All, cx: &Context) -> Option<String> {
    let caller = cx.actor.agent()?;
    let agent = agents::rights::known(all, caller);
    Some(agent.map_or_else(|| "unknown".into(), |agent| agent.lineage_id.to_string()))
}

/// Errors: 403 `agent_may_not` when the cap is reached by what people have set, and an agent would evict it.
fn add_constraint(all: &mut All, cx: &mut Context, text: &str, category: &str) -> Result<Reply, Problem> {
    let hash = constraint_hash(text);
    if all.memory.constraints.iter().any(|known| known.hash == hash) {
        return Ok(Reply::ok(&json!({"added": false, "hash": hash, "reason": "duplicate"})));
    }
    let set_by = setter(all, cx);
    let full = all.memory.constraints.len() >= MAX_CONSTRAINTS;
    // A person's rule does not go because an agent has many.
    let oldest = all.memory.constraints.iter().position(|old| set_by.is_none() || old.set_by.is_some());
    let memory = Arc::make_mut(&mut all.memory);
    let evicted = match (full, oldest, cx.actor.agent()) {
        (false, ..) => None,
        (true, Some(at), _) => Some(memory.constraints.remove(at)),
        (true, None, caller) => {
            let what = format!("add to the {MAX_CONSTRAINTS} rules that people have set: one would be lost");
            return Err(agents::rights::refusal(caller.unwrap_or(UNKNOWN_AGENT), &what));
        }
    };
    let mut body = json!({"added": true, "hash": hash, "category": category});
    memory.constraints.push(Constraint {
        hash: hash.clone(),
        category: category.to_owned(),
        text: text.trim().into(),
        added_at: cx.now.to_string(),
        set_by,
    });
    cx.audit("memory.constraint.add", &json!({"hash": hash, "category": category, "text": text.trim()}));
    if let Some(evicted) = evicted {
        body["evicted"] = json!(evicted);
        let told = json!({"hash": evicted.hash, "text": evicted.text, "for": hash});
        cx.audit("memory.constraint.evict", &told);
        cx.notice(Notice::ConstraintRemoved { hash: evicted.hash, reason: "evicted" });
    }
    cx.notice(Notice::ConstraintAdded { hash, category: category.to_owned() });
    cx.push(Effect::Put(Document::Constraints, Durability::BeforeReply));
    Ok(Reply::json(201, &body))
}

/// Errors: 404, 403 `agent_may_not` for an agent that has not set the rule itself.
fn remove_constraint(all: &mut All, cx: &mut Context, hash: &str) -> Result<Reply, Problem> {
    let Some(at) = all.memory.constraints.iter().position(|known| known.hash == hash) else {
        let text = format!("no constraint has the hash {hash:?}; GET /api/memory/constraints lists them");
        return Err(Problem::not_found(text));
    };
    if let Some(caller) = cx.actor.agent() {
        let is_known = agents::rights::known(all, caller).is_some();
        if !is_known || all.memory.constraints[at].set_by != setter(all, cx) {
            return Err(agents::rights::refusal(caller, "lift a rule that it has not set itself"));
        }
    }
    let removed = Arc::make_mut(&mut all.memory).constraints.remove(at);
    cx.audit("memory.constraint.remove", &json!({"hash": removed.hash, "text": removed.text}));
    cx.notice(Notice::ConstraintRemoved { hash: removed.hash.clone(), reason: "removed" });
    cx.push(Effect::Put(Document::Constraints, Durability::BeforeReply));
    Ok(Reply::ok(&json!({"removed": true, "hash": removed.hash})))
}

/// Something has happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    chain::told(all, cx, moment);
    discoveries::moment(all, cx, moment);
    specializations::told(all, cx, moment);
}
