//! The registry as it stands on disk, and what becomes of it after the daemon has died.

use super::reason::Reason;
use super::record::{Agent, Phase, Status};
use super::{MAX_ENDED, State, history::History};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::providers::Tokens;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// `.svc/state/agents.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    pub version: u32,
    /// All records, without prompts.
    pub agents: Vec<Arc<Agent>>,
    /// Earlier ids and their lineages, oldest first.
    pub aliases: Vec<(AgentId, LineageId)>,
    pub rotations: History,
    /// What questions have cost.
    pub qa_tokens: Tokens,
    /// The last message id given.
    pub next_message: u64,
}

/// `.svc/state/prompts/<lineage>.json`, written once.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredPrompt {
    pub version: u32,
    /// The task as it was given.
    pub prompt: Arc<str>,
}

/// The version this code writes.
pub const VERSION: u32 = 1;

impl State {
    /// The registry to be written.
    pub fn stored(&self) -> Stored {
        let aliases =
            self.alias_order.iter().filter_map(|id| self.aliases.get(id).map(|lineage| (*id, *lineage)));
        Stored {
            version: VERSION,
            agents: self.iter().map(Arc::clone).collect(),
            aliases: aliases.collect(),
            rotations: (*self.rotations).clone(),
            qa_tokens: self.qa_tokens,
            next_message: self.next_message,
        }
    }

    /// The prompt of a lineage, to be written.
    pub fn stored_prompt(&self, lineage: LineageId) -> Option<StoredPrompt> {
        let agent = self.by_lineage(lineage)?;
        Some(StoredPrompt { version: VERSION, prompt: Arc::clone(&agent.prompt) })
    }

    /// The registry after a start. Those `kept` by a keeper live on; whatever else was alive is
    /// `interrupted`, for its processes are gone or will be ended before anything else happens. Of ended
    /// records the newest [`MAX_ENDED`] are taken, so that no start and no first change has thousands of them
    /// to tell everybody of.
    pub fn restore(
        stored: Stored,
        mut prompt: impl FnMut(LineageId) -> Arc<str>,
        kept: &HashSet<AgentId>,
        now: Time,
    ) -> Self {
        let mut state = Self {
            rotations: Arc::new(stored.rotations),
            qa_tokens: stored.qa_tokens,
            next_message: stored.next_message,
            ..Self::default()
        };
        for agent in newest(stored.agents) {
            let mut agent = Arc::unwrap_or_clone(agent);
            agent.prompt = prompt(agent.lineage_id);
            if agent.status.is_live() && kept.contains(&agent.id) {
                agent.phase = Phase::Working;
                if agent.status == Status::Rotating {
                    // Whoever began that is gone; what has led to it will do so again.
                    agent.set_status(now, Status::Running, Reason::Working);
                }
            } else if agent.interrupted(now) {
                state.lost.push(agent.id);
            }
            state.records.insert(agent.id, Arc::new(agent));
        }
        let known: HashSet<LineageId> = state.iter().map(|agent| agent.lineage_id).collect();
        for (id, lineage) in stored.aliases.into_iter().filter(|(_, lineage)| known.contains(lineage)) {
            state.alias(id, lineage);
        }
        state
    }
}

impl Agent {
    /// It ended with an earlier daemon, or before; whether with it.
    fn interrupted(&mut self, now: Time) -> bool {
        self.phase = Phase::Ended;
        self.turn_open = false;
        for message in &mut self.queue {
            // Written to its input but not confirmed: the next life hears it, rather twice than never.
            message.sent = false;
        }
        let was_live = self.status.is_live();
        if was_live {
            let reason = Reason::DaemonEnded { pid: self.pid };
            self.set_status(now, Status::Interrupted, reason);
            self.current_activity = None;
        }
        was_live
    }
}

/// All that were alive, and of the ended ones as many as a daemon keeps.
fn newest(mut agents: Vec<Arc<Agent>>) -> Vec<Arc<Agent>> {
    let ended = agents.iter().filter(|agent| !agent.status.is_live()).count();
    let Some(surplus) = ended.checked_sub(MAX_ENDED).filter(|surplus| *surplus > 0) else { return agents };
    let mut oldest: Vec<_> = agents
        .iter()
        .filter(|agent| !agent.status.is_live())
        .map(|agent| (agent.status_since, agent.id))
        .collect();
    oldest.sort_unstable();
    oldest.truncate(surplus);
    let gone: HashSet<AgentId> = oldest.into_iter().map(|(_, id)| id).collect();
    agents.retain(|agent| !gone.contains(&agent.id));
    agents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use serde_json::{Value, json};

    #[test]
    fn every_earlier_id_leads_to_the_life_of_today_after_rotations_and_resumes() {
        let mut bench = Bench::new();
        let mut lives = vec![bench.agent("dev")];
        for _ in 0..2 {
            lives.push(bench.rotates("dev"));
            bench.exits(*lives.last().unwrap(), 0);
            assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &Value::Null).0, 200);
            lives.push(bench.state.agents.find("dev").unwrap().id);
        }
        for life in &lives {
            let found = bench.state.agents.find(&life.to_string()).unwrap();
            assert_eq!(Some(&found.id), lives.last(), "{life} of {lives:?}");
        }
    }

    /// The file is written with every change: it must not grow with agents that are gone.
    #[test]
    fn the_ids_of_earlier_lives_go_with_the_record() {
        let mut bench = Bench::new();
        let (first, other) = (bench.agent("dev"), bench.agent("other"));
        let second = bench.rotates("dev");
        bench.rotates("other");
        let before: Value = serde_json::to_value(bench.state.agents.stored()).unwrap();
        assert_eq!(before["aliases"].as_array().unwrap().len(), 2);
        bench.exits(second, 0);
        assert_eq!(bench.ask("DELETE", &format!("/api/agents/{first}"), &Value::Null).0, 200);
        let mut after: Value = serde_json::to_value(bench.state.agents.stored()).unwrap();
        let lineage = bench.state.agents.find("other").unwrap().lineage_id;
        assert_eq!(after["aliases"], json!([[other, lineage]]));
        assert_eq!(bench.ask("GET", &format!("/api/agents/{other}"), &Value::Null).0, 200);
        // An earlier version has kept them.
        after["aliases"] = before["aliases"].clone();
        let state = State::restore(
            serde_json::from_value(after).unwrap(),
            |_| "p".into(),
            &HashSet::new(),
            bench.now,
        );
        assert_eq!(state.stored().aliases, [(other, lineage)]);
        assert_eq!(state.find(&other.to_string()).unwrap().lineage_id, lineage);
    }

    #[test]
    fn who_was_kept_lives_on_as_it_was_and_who_was_not_is_interrupted() {
        let mut bench = Bench::new();
        let (kept, lost) = (bench.agent("kept"), bench.agent("lost"));
        let say = json!({"message": "go on", "deliver": "now"});
        for name in ["kept", "lost"] {
            assert_eq!(bench.ask("POST", &format!("/api/agents/{name}/instruct"), &say).0, 200);
        }
        let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
        let before = Arc::clone(bench.state.agents.get(kept).unwrap());
        let state = State::restore(
            serde_json::from_slice(&stored).unwrap(),
            |_| "p".into(),
            &HashSet::from([kept]),
            bench.now,
        );
        let (kept, lost) = (state.get(kept).unwrap(), state.get(lost).unwrap());
        assert_eq!((kept.status, &kept.phase), (before.status, &Phase::Working));
        assert!(kept.turn_open == before.turn_open && kept.queue == before.queue && kept.queue[0].sent);
        assert_eq!((lost.status, &lost.phase), (Status::Interrupted, &Phase::Ended));
        assert!(!lost.turn_open && !lost.queue[0].sent, "its next life hears it");
    }

    #[test]
    fn limits_a_start_takes_the_newest_ended_records_and_reads_no_task_of_the_others() {
        let mut bench = Bench::new();
        let id = bench.agent("dev");
        bench.exits(id, 0);
        let mut stored: Value = serde_json::to_value(bench.state.agents.stored()).unwrap();
        let record = stored["agents"][0].clone();
        let copy = |n: usize| {
            let mut record = record.clone();
            record["id"] = json!(format!("{n:08x}"));
            record["lineageId"] = json!(format!("{n:08x}"));
            record["statusSince"] = json!(Time(1_000_000_000 + 1_000 * n as u64).to_string());
            record
        };
        stored["agents"] = (1..=MAX_ENDED + 100).map(copy).collect();
        let mut read = Vec::new();
        let stored = serde_json::from_value(stored).unwrap();
        let state = State::restore(
            stored,
            |lineage| {
                read.push(lineage);
                "p".into()
            },
            &HashSet::new(),
            bench.now,
        );
        assert_eq!((state.iter().count(), read.len()), (MAX_ENDED, MAX_ENDED));
        assert!(state.iter().all(|agent| agent.id.0 > 100), "the oldest are gone");
    }

    #[test]
    fn a_registry_from_before_reasons_had_codes_loads_and_tells_the_same_words() {
        let mut bench = Bench::new();
        let (one, two) = (bench.agent("one"), bench.agent("two"));
        bench.exits(one, 0);
        bench.exits(two, 3);
        let words = |state: &State| -> Vec<_> {
            state.iter().map(|agent| (agent.name.clone(), agent.status_reason.to_string())).collect()
        };
        let mut stored: Value = serde_json::to_value(bench.state.agents.stored()).unwrap();
        let now = State::restore(
            serde_json::from_value(stored.clone()).unwrap(),
            |_| "p".into(),
            &HashSet::new(),
            bench.now,
        );
        assert_eq!(words(&now), words(&bench.state.agents));
        assert_eq!(now.get(two).unwrap().status_reason.code(), "exit-code");
        for record in stored["agents"].as_array_mut().unwrap() {
            assert!(record.as_object_mut().unwrap().remove("statusCause").is_some());
        }
        let old = State::restore(
            serde_json::from_value(stored).unwrap(),
            |_| "p".into(),
            &HashSet::new(),
            bench.now,
        );
        assert_eq!(words(&old), words(&bench.state.agents));
        let codes = [one, two].map(|id| old.get(id).unwrap().status_reason.code());
        assert_eq!(codes, ["no-result", "other"]);
    }
}
