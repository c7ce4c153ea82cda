//! Handoff chains: per role the briefs of its last rotations.

use crate::core::ids::AgentId;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use svc_base::bounded;
use svc_base::sorted::Gather;

/// Handoffs kept for one role; the oldest goes first.
pub const MAX_CHAIN: usize = 10;
/// Roles that have a chain; the one whose last handoff is oldest goes first.
pub const MAX_ROLES: usize = 64;
/// Characters of the summary.
const SUMMARY_CHARS: usize = 300;

/// A rotation's brief.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct ChainEntry {
    /// Which rotation of the role it was, from 1.
    pub rotation_n: u64,
    /// The whole brief, Markdown.
    pub body: Arc<str>,
    /// One line: the task and how far it got. Later briefs carry this and never the body.
    pub summary: String,
    /// The agent that was replaced.
    pub agent_id: AgentId,
    pub agent_name: String,
    /// The rotation's reason code.
    pub reason: String,
    /// When, RFC 3339.
    pub ts: String,
}

/// All chains, and the briefs of rotations under way.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Chains {
    by_role: BTreeMap<String, VecDeque<Arc<ChainEntry>>>,
    /// Written, but the successor does not run yet.
    pending: BTreeMap<AgentId, Arc<str>>,
}

impl Chains {
    /// Roles that have handed over, sorted.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.by_role.keys().map(String::as_str)
    }

    /// A role's handoffs, newest first.
    pub fn of(&self, role: &str) -> impl Iterator<Item = &Arc<ChainEntry>> {
        self.by_role.get(role).into_iter().flat_map(|chain| chain.iter().rev())
    }

    /// As stored: per role, oldest first.
    pub fn stored(&self) -> BTreeMap<String, Vec<Arc<ChainEntry>>> {
        self.by_role.iter().map(|(role, chain)| (role.clone(), chain.iter().cloned().collect())).gather()
    }

    /// The counterpart of [`Self::stored`].
    pub fn restore(stored: BTreeMap<String, Vec<Arc<ChainEntry>>>) -> Self {
        let by_role = stored.into_iter().map(|(role, chain)| (role, chain.into())).gather();
        Self { by_role, pending: BTreeMap::new() }
    }

    fn push(&mut self, role: &str, entry: ChainEntry) {
        let last = |chain: &VecDeque<Arc<ChainEntry>>| chain.back().map(|entry| entry.ts.clone());
        bounded::make_room(&mut self.by_role, role, MAX_ROLES, last);
        let chain = self.by_role.entry(role.to_owned()).or_default();
        let rotation_n = chain.back().map_or(1, |last| last.rotation_n + 1);
        bounded::push(chain, Arc::new(ChainEntry { rotation_n, ..entry }), MAX_CHAIN);
    }
}

fn pending(all: &mut All) -> &mut BTreeMap<AgentId, Arc<str>> {
    &mut Arc::make_mut(&mut Arc::make_mut(&mut all.memory).chains).pending
}

/// The brief of a rotation under way is there. It joins the chain when the successor runs.
pub fn brief_written(all: &mut All, agent: AgentId, brief: &str) {
    if all.agents.get(agent).is_some() {
        pending(all).insert(agent, brief.into());
    }
}

/// Keeps a written brief when its successor runs, and forgets one that nobody took up.
pub fn told(all: &mut All, cx: &mut Context, moment: &Moment) {
    let forgotten = match *moment {
        Moment::Rotated { old, new } => {
            rotated(all, cx, old, new);
            return;
        }
        Moment::Ended(agent) | Moment::Removed(agent, _) => agent,
        // One that goes on in its session has no use for its brief.
        Moment::Resumed { old, new } if !crate::agents::rotation::under_way(all, new) => old,
        _ => return,
    };
    if all.memory.chains.pending.contains_key(&forgotten) {
        pending(all).remove(&forgotten);
    }
}

fn rotated(all: &mut All, cx: &mut Context, old: AgentId, new: AgentId) {
    let Some(agent) = all.agents.get(new).cloned() else { return };
    let Some(body) = pending(all).remove(&old) else { return };
    let history = all.agents.rotations();
    let reason = history.entries.iter().rev().find(|entry| entry.old == old);
    let reason = reason.map_or_else(|| "manual".to_owned(), |entry| entry.reason.clone());
    let mut summary = format!("task: {}", one_line(&agent.prompt));
    let written: Vec<&str> =
        agent.files.iter().filter(|(_, touched)| touched.writes > 0).map(|(path, _)| path.as_str()).collect();
    if !written.is_empty() {
        let shown = written.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let _ = write!(summary, "; {} files changed: {shown}", written.len());
    }
    let entry = ChainEntry {
        rotation_n: 0,
        body,
        summary,
        agent_id: old,
        agent_name: agent.name.clone(),
        reason,
        ts: cx.now.to_string(),
    };
    Arc::make_mut(&mut Arc::make_mut(&mut all.memory).chains).push(&agent.role, entry);
    cx.push(Effect::Put(Document::HandoffChains, Durability::BeforeReply));
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(SUMMARY_CHARS) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}
