//! The history of rotations, and how fast tokens were used before and after each.

use super::last_word::LastWord;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, Document, Durability, Effect, State as All, Timer, Timers};
use crate::usage;
use crate::usage::ledger::VELOCITY_WINDOW;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Entries of the rotation history kept.
pub const MAX_HISTORY: usize = 500;
/// The reason of an entry that replaced nobody: the provider made its context smaller itself.
pub const NATURAL_COMPACTION: &str = "natural_compaction";

/// Past rotations.
#[derive(Debug, Clone, Default, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct History {
    /// All there ever were; natural compactions are none.
    pub total: u64,
    /// The last [`MAX_HISTORY`], oldest first.
    pub entries: Vec<Entry>,
}

/// A past rotation, in JSON as in `GET /api/rotation`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The agent that was replaced.
    pub old: AgentId,
    pub new: AgentId,
    pub agent_name: String,
    /// A reason code of the specification.
    pub reason: String,
    /// When the successor ran.
    #[serde(with = "rfc3339")]
    pub timestamp: Time,
    /// All its lives; `None` in entries of earlier versions.
    #[serde(default)]
    pub lineage_id: Option<LineageId>,
    /// Measured: context the old agent held and the new one does not start with.
    #[serde(default)]
    pub tokens_saved: u64,
    /// Tokens of the lineage in the 10 minutes before.
    #[serde(rename = "preRotationVelocity", default)]
    pub pre_velocity: Option<u64>,
    /// Tokens of the lineage in the 10 minutes after, once they are over.
    #[serde(rename = "postRotationVelocity", default)]
    pub post_velocity: Option<u64>,
    #[serde(default)]
    pub velocity_delta: Option<i64>,
    /// What the lineage had used by then.
    #[serde(default)]
    pub tokens_before: u64,
    /// What became of the question before it; `None` where none was asked.
    #[serde(default)]
    pub last_word: Option<LastWord>,
}

impl History {
    /// When a lineage was rotated last.
    pub fn last_of(&self, lineage: LineageId) -> Option<Time> {
        let of_it = |entry: &&Entry| entry.lineage_id == Some(lineage) && entry.reason != NATURAL_COMPACTION;
        self.entries.iter().rev().find(of_it).map(|entry| entry.timestamp)
    }

    /// When a lineage was rotated for this reason within `length` before `now`, oldest first.
    pub fn since(&self, lineage: LineageId, reason: &str, now: Time, length: Duration) -> Vec<Time> {
        let of_it = |entry: &&Entry| {
            let recent = now.since(entry.timestamp) < length;
            entry.lineage_id == Some(lineage) && entry.reason == reason && recent
        };
        self.entries.iter().filter(of_it).map(|entry| entry.timestamp).collect()
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        if self.entries.len() > MAX_HISTORY {
            self.entries.remove(0);
        }
    }

    /// Moves what happened after `now`, by a clock that was wrong.
    pub(super) fn move_future(&mut self, now: Time, moved: impl Fn(Time) -> Time) {
        for entry in self.entries.iter_mut().filter(|entry| entry.timestamp > now) {
            entry.timestamp = moved(entry.timestamp);
        }
    }

    /// Arranges that what is still to be measured will be, after a start of the daemon.
    pub fn watch(&self, timers: &mut Timers) {
        for entry in &self.entries {
            if entry.pre_velocity.is_some() && entry.post_velocity.is_none() {
                timers.set(Timer::Velocity(entry.new), entry.timestamp + VELOCITY_WINDOW);
            }
        }
    }
}

/// Notes a rotation that is complete, and arranges its second measurement.
pub(super) fn record(all: &mut All, now: Time, mut entry: Entry) {
    if let Some(lineage) = entry.lineage_id {
        entry.pre_velocity = Some(all.usage.account(lineage).map_or(0, |account| account.velocity(now)));
        entry.tokens_before = all.usage.tokens_of(lineage);
        Arc::make_mut(&mut all.timers).set(Timer::Velocity(entry.new), now + VELOCITY_WINDOW);
    }
    let history = Arc::make_mut(&mut Arc::make_mut(&mut all.agents).rotations);
    history.total += 1;
    history.push(entry);
}

/// Notes that a provider has compacted the context of an agent itself: nobody is replaced.
pub fn compacted(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let entry = Entry {
        old: id,
        new: id,
        agent_name: agent.name.clone(),
        reason: NATURAL_COMPACTION.to_owned(),
        timestamp: cx.now,
        lineage_id: Some(agent.lineage_id),
        ..Entry::default()
    };
    Arc::make_mut(&mut Arc::make_mut(&mut all.agents).rotations).push(entry);
    cx.push(Effect::Put(Document::Agents, Durability::Soon));
}

/// Ten minutes are over since the rotation to `new`: measures what was used in them.
pub fn velocity_due(all: &mut All, cx: &mut Context, new: AgentId) {
    let ledger = Arc::clone(&all.usage);
    let history = Arc::make_mut(&mut Arc::make_mut(&mut all.agents).rotations);
    let open = |entry: &&mut Entry| entry.new == new && entry.pre_velocity.is_some();
    let Some(entry) = history.entries.iter_mut().rev().find(open) else { return };
    let used = entry.lineage_id.map_or(0, |lineage| ledger.tokens_of(lineage));
    let after = used.saturating_sub(entry.tokens_before);
    entry.post_velocity = Some(after);
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    entry.velocity_delta = entry.pre_velocity.map(|before| signed(before) - signed(after));
    if let Some(lineage) = entry.lineage_id {
        usage::saving::due(all, cx, lineage, new);
    }
    cx.push(Effect::Put(Document::Agents, Durability::Soon));
}
