//! The registry as it stands on disk, and what becomes of it after the daemon has died.

use super::reason::Reason;
use super::record::{Agent, Attached, Phase, Status};
use super::{MAX_ENDED, State, history::History, moving, rotation};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::providers::Tokens;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use svc_base::sorted::{self, Gather};

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

/// `.svc/state/prompts/<lineage>.json`, written once, and `.svc/state/handoffs/<lineage>.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredPrompt {
    pub version: u32,
    /// The task as it was given; the brief.
    pub prompt: Arc<str>,
}

/// The version this code writes.
pub const VERSION: u32 = 1;
/// Numbers of messages that an earlier daemon may have given in its last second and not stored: a keeper can
/// have messages of that daemon, and none of this one is to be taken for them.
const NUMBERS_UNKNOWN: u64 = 10_000;

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

    /// The handoff brief of a lineage, to be written.
    pub fn stored_handoff(&self, lineage: LineageId) -> Option<StoredPrompt> {
        let brief = self.handoffs.get(&lineage)?;
        Some(StoredPrompt { version: VERSION, prompt: Arc::clone(brief) })
    }

    /// The handoff briefs after a start; none of a record that is gone.
    pub fn restore_handoffs(&mut self, brief: impl FnMut(LineageId) -> Option<Arc<str>>) {
        let lineages: Vec<LineageId> = self.iter().map(|agent| agent.lineage_id).collect();
        let mut brief = brief;
        self.handoffs = lineages.into_iter().filter_map(|of| Some((of, brief(of)?))).gather();
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
            next_message: stored.next_message + if kept.is_empty() { 0 } else { NUMBERS_UNKNOWN },
            ..Self::default()
        };
        for agent in newest(stored.agents) {
            let mut agent = Arc::unwrap_or_clone(agent);
            agent.prompt = prompt(agent.lineage_id);
            // The run of one that is held, put away or carried is over, also where its keeper has not heard
            // that this is known.
            let is_over = matches!(agent.status, Status::Limited | Status::Queued)
                || agent.is_put_away()
                || agent.is_carried();
            let runs = agent.status.is_live() && !is_over;
            if runs && kept.contains(&agent.id) {
                let is_here = agent.attached == Attached::Here;
                agent.phase = if is_here { Phase::Attached } else { Phase::Working };
            } else if agent.interrupted(now) {
                state.lost.push(agent.id);
            }
            state.records.insert(agent.id, Arc::new(agent));
        }
        rotation::restored(&mut state);
        let known: HashSet<LineageId> = state.iter().map(|agent| agent.lineage_id).collect();
        for (id, lineage) in stored.aliases.into_iter().filter(|(_, lineage)| known.contains(lineage)) {
            state.alias(id, lineage);
        }
        state
    }

    /// Tells lost agents whose order to start was carried out from those for which no keeper was ever there.
    pub fn tell_unbegun(&mut self, has_begun: impl Fn(AgentId) -> bool) {
        let is_unbegun = |agent: &Agent| {
            agent.opening.is_some() && agent.pid.is_none() && agent.heard == 0 && !has_begun(agent.id)
        };
        let lost = std::mem::take(&mut self.lost);
        for id in lost {
            if self.records.get(&id).is_some_and(|agent| is_unbegun(agent)) {
                // With the same prompt: what stands in it stays so.
                self.unbegun.push(id);
            } else {
                self.edit(id).into_iter().for_each(Agent::nothing_on_its_way);
                self.lost.push(id);
            }
        }
    }

    /// Tells that the last daemon was ending these for their successors, which it may not have written down.
    pub fn tell_replaced(&mut self, now: Time, replaced: Vec<(AgentId, String)>) {
        for (id, rotation) in replaced {
            if let Some(agent) = self.edit(id).filter(|agent| agent.status.is_live()) {
                agent.set_status(now, Status::Rotating, Reason::Rotating { rotation });
            }
        }
        rotation::restored(self);
    }

    /// Those that were to be started by the last daemon and were not, told once.
    pub fn take_unbegun(&mut self) -> Vec<AgentId> {
        std::mem::take(&mut self.unbegun)
    }
}

impl Agent {
    /// It ended with an earlier daemon, or before; whether with it.
    fn interrupted(&mut self, now: Time) -> bool {
        self.phase = Phase::Ended;
        (self.turn_open, self.turn_presumed) = (false, false);
        if moving::restored(self) {
            return false;
        }
        if self.is_queued() {
            // What stands in its first message stays there.
            return false;
        }
        if self.is_put_away() && self.status.is_live() {
            // It waits on, and for what it was told while nothing could be begun.
            self.nothing_on_its_way();
            return false;
        }
        self.put_away = None;
        // That it goes on is on disk: it is started as whatever else was to be, if it was not.
        self.queued = None;
        let is_started_again = self.opening.is_some() && self.held.is_none();
        for message in &mut self.queue {
            message.sent = false;
            message.in_prompt &= is_started_again;
        }
        if let Some(held) =
            self.held.as_mut().filter(|_| matches!(self.status, Status::Limited | Status::Starting))
        {
            // Of a life that was to begin no process is there: it has had nothing issued to it.
            held.next_try = if held.is_due { Some(now) } else { held.next_try };
            held.is_due = false;
            self.status = Status::Limited;
            return false;
        }
        self.attached = Attached::No;
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
    let gone: HashSet<AgentId> =
        first_ended(agents.iter(), surplus).into_iter().map(|(_, id, _)| id).collect();
    agents.retain(|agent| !gone.contains(&agent.id));
    agents
}

/// So many of those that have ended, the first to end first.
pub(super) fn first_ended<'a>(
    agents: impl Iterator<Item = &'a Arc<Agent>>,
    count: usize,
) -> Vec<(Time, AgentId, LineageId)> {
    let ended = agents.filter(|agent| !agent.status.is_live());
    let mut ended: Vec<_> = ended.map(|agent| (agent.status_since, agent.id, agent.lineage_id)).collect();
    sorted::up(&mut ended);
    ended.truncate(count);
    ended
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
        let asks = bench.agent("asks");
        bench.actor = crate::core::Actor::Agent(asks);
        assert_eq!(bench.ask("POST", "/api/questions", &json!({"question": "may I?"})).0, 202);
        bench.actor = crate::core::Actor::Operator;
        assert_eq!(bench.state.agents.get(asks).unwrap().status, Status::Waiting);
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
        assert!(
            state.next_message > bench.state.agents.next_message + 100,
            "some may be said that are not stored"
        );
        assert!(kept.turn_open == before.turn_open && kept.queue == before.queue && kept.queue[0].sent);
        assert_eq!((lost.status, &lost.phase), (Status::Interrupted, &Phase::Ended));
        assert!(!lost.turn_open && !lost.queue[0].sent, "its next life hears it");
        assert_eq!(state.get(asks).unwrap().status, Status::Interrupted, "nobody is there to be answered");
    }

    /// Their numbers tell messages apart that wait for one agent.
    #[test]
    fn no_message_of_a_later_daemon_has_the_number_of_an_earlier_one() {
        let mut bench = Bench::new();
        bench.agent("dev");
        let wait = json!({"message": "later", "deliver": "idle"});
        assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &wait).0, 200);
        let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
        let stored = serde_json::from_slice(&stored).unwrap();
        let state = State::restore(stored, |_| "p".into(), &HashSet::new(), bench.now);
        bench.state.agents = Arc::new(state);
        assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &wait).0, 200);
        let queue = &bench.state.agents.find("dev").unwrap().queue;
        assert_eq!(queue.len(), 2);
        assert_ne!(queue[0].id, queue[1].id);
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
