//! The history of the whole: what the counters said every 30 seconds, and what happened to agents.
//!
//! **Invariant:** while no agent lives and nothing changes, nothing is noted and no deadline stands.

use crate::agents::Status;
use crate::api::{Method, Reply, Route};
use crate::core::ids::AgentId;
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, Document, Durability, Effect, Moment, State as All, Timer};
use crate::endpoint::Handler;
use crate::prices;
use crate::providers::Activity;
use serde::de::Deserializer;
use serde::ser::{Error, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use svc_base::bounded;
use svc_base::recorded::{Reader, Recorded};

/// Between two snapshots.
pub const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(30);
/// Snapshots kept; the oldest goes first.
pub const MAX_SNAPSHOTS: usize = 2_000;
/// Lifecycle events kept; the oldest goes first.
pub const MAX_EVENTS: usize = 500;

/// The history.
#[derive(Debug, Clone, Default, Recorded)]
pub struct State {
    snapshots: Entries<Snapshot>,
    events: Entries<Happened>,
}

/// A list that is copied by its pointers, of entries that never change.
type Entries<T> = Arc<VecDeque<Arc<Kept<T>>>>;

/// An entry, and how it looks: encoded once, for every reader and every write.
#[derive(Debug)]
pub struct Kept<T> {
    entry: T,
    encoded: OnceLock<Box<RawValue>>,
}

impl<T> From<T> for Kept<T> {
    fn from(entry: T) -> Self {
        Self { entry, encoded: OnceLock::new() }
    }
}

impl<T: Recorded> Recorded for Kept<T> {
    const SHAPE: u64 = T::SHAPE;

    fn write(&self, to: &mut Vec<u8>) {
        self.entry.write(to);
    }

    #[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
    extern "C" fn read(from: &mut Reader) -> Self {
        T::read(from).into()
    }
}

impl<T: Serialize> Serialize for Kept<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(known) = self.encoded.get() {
            return known.serialize(serializer);
        }
        let encoded = serde_json::value::to_raw_value(&self.entry).map_err(S::Error::custom)?;
        self.encoded.get_or_init(|| encoded).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Kept<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

/// What the counters said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    #[serde(with = "rfc3339")]
    pub timestamp: Time,
    pub active: usize,
    pub total: usize,
    /// Tokens used by agents so far.
    pub tokens_used: u64,
    /// Tokens saved so far.
    pub tokens_saved: u64,
    /// Dollars so far; without those of `unpriced_tokens`.
    pub cost_usd: f64,
    /// Tokens so far of which nobody knows what they cost.
    #[serde(default)]
    pub unpriced_tokens: u64,
    /// Rotations so far.
    pub rotations: u64,
}

/// What happened to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Happened {
    #[serde(with = "rfc3339")]
    pub timestamp: Time,
    /// `spawned`, `rotated`, `resumed`, `removed`, or the status with which it ended.
    #[serde(rename = "type")]
    pub kind: String,
    pub agent_id: AgentId,
    /// Its name; empty when its record is gone.
    pub agent_name: String,
    /// Why, or which agent it replaces.
    pub detail: String,
}

/// `.svc/state/timeline.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    snapshots: Entries<Snapshot>,
    events: Entries<Happened>,
}

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

impl State {
    /// The history, to be written.
    pub fn stored(&self) -> Stored {
        let (snapshots, events) = (Arc::clone(&self.snapshots), Arc::clone(&self.events));
        Stored { version: STORED_VERSION, snapshots, events }
    }

    /// The history of an earlier daemon.
    pub fn restore(stored: Stored) -> Self {
        Self { snapshots: stored.snapshots, events: stored.events }
    }
}

/// `GET /api/timeline`.
#[derive(Serialize)]
struct Shown<'a> {
    events: &'a Entries<Happened>,
    snapshots: &'a Entries<Snapshot>,
}

/// The routes of the timeline.
pub fn routes() -> Vec<Route<Handler>> {
    vec![Route::new(
        Method::Get,
        "/api/timeline",
        "Snapshots of the counters, and what happened to agents",
        Handler::Read(|ask| {
            let timeline = &ask.state.timeline;
            Ok(Reply::ok(&Shown { events: &timeline.events, snapshots: &timeline.snapshots }))
        }),
    )]
}

/// Something has changed: a snapshot is taken, not sooner than [`SNAPSHOT_INTERVAL`] after the last one.
pub fn changed(all: &mut All, now: Time) {
    if all.timers.is_set(Timer::Snapshot) {
        return;
    }
    let last = all.timeline.snapshots.back().map(|snapshot| snapshot.entry.timestamp);
    let due = last.map_or(now, |last| (last + SNAPSHOT_INTERVAL).clamp(now, now + SNAPSHOT_INTERVAL));
    Arc::make_mut(&mut all.timers).set(Timer::Snapshot, due);
}

/// Whatever an agent does, the counters have changed.
pub fn heard(all: &mut All, cx: &mut Context, _agent: AgentId, _activities: &[Activity]) {
    changed(all, cx.now);
}

/// The deadline of a snapshot has come.
pub fn snapshot(all: &mut All, cx: &mut Context) {
    let total = all.usage.total();
    let snapshot = Snapshot {
        timestamp: cx.now,
        active: all.agents.live().count(),
        total: all.agents.iter().count(),
        tokens_used: total.tokens.total(),
        tokens_saved: all.usage.saved().total(),
        cost_usd: prices::rounded(total.cost_usd),
        unpriced_tokens: total.unpriced,
        rotations: all.agents.rotations().total,
    };
    let snapshots = &mut Arc::make_mut(&mut all.timeline).snapshots;
    let lives = snapshot.active > 0;
    bounded::push(Arc::make_mut(snapshots), Arc::new(snapshot.into()), MAX_SNAPSHOTS);
    if lives {
        // Silence of living agents is a part of the history, too.
        changed(all, cx.now);
    }
    cx.push(Effect::Put(Document::Timeline, Durability::Soon));
}

/// Something happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    changed(all, cx.now);
    let agent = |id: AgentId| all.agents.get(id);
    let (kind, id, detail) = match *moment {
        Moment::Spawned(id) => ("spawned", id, agent(id).map(|agent| format!("role {}", agent.role))),
        Moment::Rotated { old, new } => {
            let last = all.agents.rotations().entries.last();
            ("rotated", new, last.map(|entry| format!("it replaces {old}: {}", entry.reason)))
        }
        Moment::Resumed { old, new } => ("resumed", new, Some(format!("it continues {old}"))),
        Moment::Ended(id) => {
            let kind = match agent(id).map(|agent| agent.status) {
                Some(Status::Completed) => "completed",
                Some(Status::Killed) => "killed",
                Some(Status::Interrupted) => "interrupted",
                _ => "crashed",
            };
            (kind, id, agent(id).map(|agent| agent.status_reason.to_string()))
        }
        Moment::Removed(id, _) => ("removed", id, None),
        _ => return,
    };
    let name = agent(id).map(|agent| agent.name.clone()).unwrap_or_default();
    let happened = Happened {
        timestamp: cx.now,
        kind: kind.to_owned(),
        agent_id: id,
        agent_name: name,
        detail: detail.unwrap_or_default(),
    };
    let events = &mut Arc::make_mut(&mut all.timeline).events;
    bounded::push(Arc::make_mut(events), Arc::new(happened.into()), MAX_EVENTS);
    cx.push(Effect::Put(Document::Timeline, Durability::Soon));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::report::{Batch, Credit, Packed, RunReport};
    use crate::core::Event;
    use crate::providers::{Activity, TokensDelta, Usage};
    use crate::testing::Bench;
    use serde_json::{Value, json};

    fn timeline(bench: &mut Bench) -> Value {
        let (status, body) = bench.ask("GET", "/api/timeline", &Value::Null);
        assert_eq!(status, 200);
        body
    }

    fn uses(bench: &mut Bench, id: AgentId, input: i64, cost_usd: Option<f64>) {
        let delta = TokensDelta { input, ..TokensDelta::default() };
        let activities = vec![Activity::Usage(Usage { delta, cost_usd, ..Usage::default() })];
        let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
        bench.apply(Event::Run(id, RunReport::Output(batch)));
    }

    #[test]
    fn spec_dashboard_has_every_field() {
        let mut bench = Bench::new();
        let id = bench.agent("one");
        uses(&mut bench, id, 120, Some(0.75));
        bench.rotates("one");
        let (status, body) = bench.ask("GET", "/api/dashboard", &Value::Null);
        assert_eq!(status, 200);
        assert_eq!(body["agents"], json!({"active": 1, "total": 1, "rotations": 1}));
        assert_eq!(body["tokens"], json!({"used": 120, "saved": 0, "budget": null, "budgetUsd": null}));
        for part in ["rotation", "coldStart", "conflict"] {
            assert_eq!(body["savings"][part], 0, "{part}");
        }
        assert!(body["uptime"].is_number());
        bench.ask("PATCH", "/api/config", &json!({"safety": {"dailyBudgetUsd": 0.5}}));
        let (_, body) = bench.ask("GET", "/api/dashboard", &Value::Null);
        assert_eq!(body["tokens"]["budget"], json!(null), "dollars are no tokens");
        assert_eq!(body["tokens"]["budgetUsd"], 0.5);
        assert_eq!((&body["cost"]["todayUsd"], &body["cost"]["budgetReached"]), (&json!(0.75), &json!(true)));
        assert!(body["cost"]["message"].as_str().unwrap().contains("nothing new starts"));
    }

    #[test]
    fn limits_snapshots_come_every_30_s_while_an_agent_lives() {
        let mut bench = Bench::new();
        let id = bench.agent("one");
        let count = |bench: &mut Bench| timeline(bench)["snapshots"].as_array().unwrap().len();
        bench.pass(Duration::from_secs(1));
        assert_eq!(count(&mut bench), 1);
        for n in 2..=20 {
            bench.pass(SNAPSHOT_INTERVAL);
            assert_eq!(count(&mut bench), n, "it lives, however silent");
        }
        uses(&mut bench, id, 300, None);
        bench.pass(SNAPSHOT_INTERVAL);
        let body = timeline(&mut bench);
        let last = &body["snapshots"][20];
        assert_eq!(
            (&last["tokensUsed"], &last["active"], &last["total"]),
            (&json!(300), &json!(1), &json!(1))
        );
        bench.exits(id, 0);
        bench.pass(SNAPSHOT_INTERVAL);
        let ended = count(&mut bench);
        bench.pass(Duration::from_secs(600));
        assert_eq!(count(&mut bench), ended, "nobody lives and nothing changes");
    }

    #[test]
    fn limits_at_most_2000_snapshots_and_500_lifecycle_events() {
        let mut bench = Bench::new();
        for _ in 0..=MAX_SNAPSHOTS {
            bench.with(snapshot);
        }
        for n in 0..MAX_EVENTS {
            let id = bench.agent(&format!("a{n}"));
            bench.exits(id, 0);
            bench.ask("DELETE", &format!("/api/agents/a{n}"), &Value::Null);
        }
        let body = timeline(&mut bench);
        assert_eq!(body["snapshots"].as_array().unwrap().len(), MAX_SNAPSHOTS);
        assert_eq!(body["events"].as_array().unwrap().len(), MAX_EVENTS);
    }

    #[test]
    fn decisions_13_the_timeline_tells_what_happened_to_agents() {
        let mut bench = Bench::new();
        bench.agent("one");
        let id = bench.rotates("one");
        bench.exits(id, 0);
        bench.ask("POST", "/api/agents/one/resume", &json!({}));
        let id = bench.state.agents.find("one").unwrap().id;
        bench.exits(id, 3);
        bench.ask("DELETE", "/api/agents/one", &Value::Null);
        let body = timeline(&mut bench);
        let kinds: Vec<&str> =
            body["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["spawned", "rotated", "completed", "resumed", "crashed", "removed"]);
        assert!(body["events"][1]["detail"].as_str().unwrap().ends_with(": manual"));
    }
}
