//! What goes wrong with the machine: power, clock, and people who end the daemon.

use super::accounts;
use super::invariants::{self, Rule, ensure};
use super::keepers::Kept;
use super::machine::{Machine, Plant};
use super::promises::Key;
use crate::support::world::World;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use svc::agents::{Agent, Status};
use svc::assembly::documents::encode;
use svc::assembly::folder;
use svc::core::ids::AgentId;
use svc::core::time::Jump;
use svc::core::{Document, Event, State};
use svc::programs::registry::Detection;
use svc::usage;

/// Documents that a start takes over as they are.
const UNCHANGED: [Document; 9] = [
    Document::Accounts,
    Document::Schedules,
    Document::Teams,
    Document::Integrations,
    Document::Config,
    Document::Constraints,
    Document::Gateways,
    Document::Credentials,
    Document::PmReviews,
];

impl Machine {
    /// The machine loses power: only what was written is there afterwards.
    pub fn power_cut(&mut self) {
        self.seen.count("power cuts");
        let count = self.dice.roll(self.disk.round_len() + 1);
        self.disk.cut(count);
        self.note(|| "# The power goes.".to_owned());
        let dice = &mut self.dice;
        self.starts.lose(|| dice.below(2) == 0);
        self.gone(false);
    }

    /// The daemon is killed; the keepers of its agents are not.
    pub fn is_killed(&mut self) {
        self.seen.count("kills of the daemon");
        let count = self.dice.roll(self.disk.round_len() + 1);
        self.disk.cut(count);
        self.note(|| "# The daemon is killed.".to_owned());
        self.gone(true);
    }

    /// Another daemon is to take over: the agents are left to their keepers.
    pub fn hands_over(&mut self) {
        self.seen.count("ends that leave the agents at work");
        self.is_ending = true;
        let keep = svc::core::Command::Shutdown { keep: true };
        self.command(&svc::core::Actor::Operator, keep, super::promises::Claim::Look);
        for _ in 0..1000 {
            if self.programs.exit_asked {
                break;
            }
            let ids: Vec<AgentId> = self.programs.processes.keys().copied().collect();
            let is_left = self.programs.are_left && ids.into_iter().any(|id| self.leaves(id));
            if !is_left {
                self.write();
                self.pass(500);
            }
        }
        let asked = self.programs.exit_asked;
        ensure(Rule::ComesToRest, asked, || {
            "the daemon was told to leave its agents and does not".to_owned()
        });
        self.last_round();
        self.gone(true);
    }

    /// The daemon is gone, and is started again; the clock of the machine may be wrong then.
    fn gone(&mut self, keepers_stay: bool) {
        self.lose_calls();
        let kept = if keepers_stay { self.survivors() } else { BTreeMap::new() };
        self.programs.cut();
        self.programs.keepers = kept;
        self.chat.cut();
        self.agent_decisions.clear();
        self.is_up = false;
        self.is_ending = false;
        self.dies_soon = false;
        let off = match self.dice.below(8) {
            0 => self.dice.below(10 * 3_600_000),
            1..=3 => self.dice.below(600_000),
            _ => self.dice.below(20_000),
        };
        self.core.now = self.core.now + Duration::from_millis(off);
        self.live_on(off);
        if self.dice.below(4) == 0 {
            let by = Duration::from_millis(self.dice.below(900_000));
            self.core.now = self.core.now.moved(Jump { is_back: true, by });
            self.promises.forget(|key| matches!(key, Key::Lock(_)));
            self.seen.count("starts with a clock that was set back");
        }
        self.disk.make(&self.folder.0);
        if let Some(agents) = self.disk.files.get(&Document::Agents).filter(|_| self.disk.failed_last) {
            self.promises.not_taken_back(&String::from_utf8_lossy(agents));
        }
        let kept: HashSet<AgentId> = self.programs.keepers.keys().copied().collect();
        let loaded = folder::load_with(&self.folder.0, Map::new(), |_| kept, self.core.now);
        self.disk.recovered(&self.folder.0);
        ensure(Rule::NoPanic, loaded.is_ok(), || format!("the daemon does not start: {loaded:?}"));
        let mut state = loaded.unwrap();
        self.check_restored(&state);
        self.limits.restarted(&state);
        self.room.restarted(&state, &self.core.state);
        let stored = self.disk.files.get(&Document::Agents).map(|bytes| value(bytes));
        self.starts.restarted(stored.as_ref(), &state, &self.programs.keepers);
        let (starts, plant) = (&self.starts, self.plant);
        Arc::make_mut(&mut state.agents).tell_unbegun(|id| match plant {
            Plant::ForgetsBegun => false,
            Plant::ForgetsOrders => true,
            _ => starts.has_begun(id),
        });
        self.start(state);
    }

    /// The daemon runs over this state, and looks for its programs.
    pub fn start(&mut self, mut state: State) {
        let project = Arc::make_mut(&mut state.project);
        *project = (*World::new().state.project).clone();
        project.started_at = self.core.now;
        self.model = state
            .agents
            .iter()
            .map(|agent| (agent.id, serde_json::to_string(&agent.live_view()).unwrap()))
            .collect();
        for agent in state.agents.iter() {
            self.programs.fed.insert(agent.lineage_id, agent.tokens.total());
        }
        self.core.restart(state);
        self.accounts.doubts();
        self.greet();
        self.note(|| "# The daemon starts.".to_owned());
        self.apply(Event::Detected(
            ["script", accounts::PROVIDER].map(|id| Detection::installed(id, "1")).to_vec(),
        ));
        self.starts.check_all_ordered();
        self.pass(0);
        self.is_up = true;
        invariants::check(self, &State::default());
        self.promises.check(&self.core.state, self.core.now);
    }

    /// What was read is what stood on the disk.
    fn check_restored(&self, state: &State) {
        let aside = &state.health.set_aside;
        ensure(Rule::NoPanic, aside.is_empty(), || format!("state files were put aside: {aside:?}"));
        for agent in state.agents.iter() {
            let dead = !agent.status.is_live()
                || agent.has_no_run()
                || self.programs.keepers.contains_key(&agent.id);
            ensure(Rule::NobodySurvives, dead, || format!("{} is {:?}", agent.name, agent.status));
            let task = Document::Prompt(agent.lineage_id);
            let has_task = self.disk.files.contains_key(&task);
            ensure(Rule::RestoredWhole, has_task, || format!("the task of {} is lost", agent.name));
        }
        for document in UNCHANGED {
            let Some(bytes) = self.disk.files.get(&document) else { continue };
            let read = encode(document, state).map(Result::unwrap);
            let same = read.as_ref().is_some_and(|read| value(read) == value(bytes));
            let said =
                || format!("{} was {} and is {}", document.path(), text(Some(bytes)), text(read.as_ref()));
            ensure(Rule::RestoredWhole, same, said);
        }
        if let Some(bytes) = self.disk.files.get(&Document::Agents) {
            check_records(&value(bytes), state, &self.programs.keepers);
        }
        if let Some(bytes) = self.disk.files.get(&Document::Approvals) {
            let (was, is) =
                (value(bytes)["approvals"].as_array().map_or(0, Vec::len), state.approvals.iter().count());
            ensure(Rule::RestoredWhole, was == is, || format!("of {was} approvals {is} are there"));
        }
    }

    /// The wall clock is set, or the machine has slept.
    pub fn clock_jumps(&mut self) {
        let is_back = self.dice.below(2) == 0;
        let most = if self.dice.below(3) == 0 { 3 * 3_600_000 } else { 400_000 };
        let jump = Jump { is_back, by: Duration::from_millis(5_000 + self.dice.below(most)) };
        self.seen.count("jumps of the clock");
        self.note(|| {
            format!("# The clock goes {} {} s.", if is_back { "back" } else { "forward" }, jump.by.as_secs())
        });
        self.core.now = self.core.now.moved(jump);
        self.disk.clock_set(jump);
        self.promises.forget(|key| matches!(key, Key::Lock(_)));
        self.apply(Event::ClockSet(jump));
        self.pass(0);
    }

    /// Somebody ends the daemon in good order.
    pub fn shut_down(&mut self) {
        self.seen.count("ends in good order");
        self.note(|| "* signal".to_owned());
        self.is_ending = true;
        self.apply(Event::Terminate);
        for _ in 0..1000 {
            if self.programs.exit_asked {
                break;
            }
            if !self.wind_down() {
                self.write();
                self.pass(500);
            }
        }
        let asked = self.programs.exit_asked;
        ensure(Rule::ComesToRest, asked, || "the daemon was told to end and does not".to_owned());
        self.last_round();
        self.gone(false);
    }

    /// Everything that is due is written before the thread ends.
    fn last_round(&mut self) {
        for _ in 0..100 {
            if self.disk.is_busy() || self.disk.is_awaited() {
                self.write();
            }
        }
        self.core.now = self.core.now + Duration::from_secs(2);
        self.disk.begin(&self.core.state, self.core.now);
        let count = self.disk.round_len();
        self.disk.cut(count);
    }

    /// Everything comes to rest: every call is answered, and a follower knows what GET knows.
    pub fn settle(&mut self) {
        self.room.opens();
        let ids: Vec<String> = self.core.state.schedules.iter().map(|one| one.id.to_string()).collect();
        for id in ids {
            let path = format!("/api/schedules/{id}/disable");
            let actor = svc::core::Actor::Operator;
            self.ask(&actor, "POST", &path, &Value::Null, super::promises::Claim::Change);
        }
        let mut rests = 0;
        for _ in 0..20_000 {
            self.write();
            if !self.wind_down() {
                rests += 1;
                self.pass(30_000);
            }
            if rests > 6 && self.programs.is_quiet() && !self.disk.is_busy() && !self.disk.is_awaited() {
                break;
            }
        }
        let quiet = self.programs.is_quiet();
        ensure(Rule::ComesToRest, quiet, || format!("{} processes stay", self.programs.processes.len()));
        let is_spent = usage::check_budget(&self.core.state, self.core.now).is_err();
        // What a put away one was told while the budget was spent waits for the next look; and it may wait
        // for a person.
        let is_asking = |agent: &Agent| {
            let mut pending = self.core.state.approvals.pending();
            pending.any(|approval| approval.lineage_id == Some(agent.lineage_id))
        };
        let may_stay = |agent: &Agent| {
            agent.status == Status::Limited
                || (is_spent && agent.is_queued())
                || (agent.is_put_away() && (!agent.queue.is_empty() || is_asking(agent)))
        };
        let due = self.core.state.agents.live().find(|agent| !may_stay(agent));
        ensure(Rule::ComesToRest, due.is_none(), || format!("{} has not begun", due.unwrap().name));
        let open = self.open_calls();
        ensure(Rule::ComesToRest, open.is_empty(), || format!("nobody answers {open:?}"));
        self.tell_followers();
        let view =
            |agent: &Arc<svc::agents::Agent>| (agent.id, serde_json::to_string(&agent.live_view()).unwrap());
        let known = self.core.state.agents.iter().map(view).collect();
        ensure(Rule::Follower, self.model == known, || "it knows something else at the end".to_owned());
    }
}

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn text(bytes: Option<&Vec<u8>>) -> String {
    bytes.map_or_else(|| "nothing".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Each record is there, as it was; who was alive is interrupted, or goes on.
fn check_records(stored: &Value, state: &State, kept: &BTreeMap<AgentId, Kept>) {
    for was in stored["agents"].as_array().into_iter().flatten() {
        let id = was["id"].as_str().and_then(|id| id.parse::<AgentId>().ok()).unwrap();
        let is = state.agents.get(id);
        ensure(Rule::RestoredWhole, is.is_some(), || format!("the record of {} is lost", was["name"]));
        let is = is.unwrap();
        let mut now = serde_json::to_value(&**is).unwrap();
        let mut was = was.clone();
        // What was handed to a program that is gone is said again.
        for message in
            [&mut now, &mut was].into_iter().filter_map(|record| record["queue"].as_array_mut()).flatten()
        {
            for mark in ["sent", "in_prompt"] {
                message.as_object_mut().unwrap().remove(mark);
            }
        }
        for field in
            ["name", "role", "lineageId", "queue", "tokens", "sessionId", "effort", "teamId", "scope", "exit"]
        {
            let said = || format!("{field} of {} was {} and is {}", was["name"], was[field], now[field]);
            ensure(Rule::RestoredWhole, was[field] == now[field], said);
        }
        let status = serde_json::from_value::<Status>(was["status"].clone()).ok();
        let was_live = status.is_some_and(Status::is_live);
        let waits = status != Some(Status::Queued) || is.is_queued();
        ensure(Rule::QueuedOnce, waits, || format!("{} waited for room and is {:?}", was["name"], is.status));
        let goes_on = status == Some(Status::Starting) && was["held"]["isDue"] == true;
        let right = match was_live {
            _ if matches!(status, Some(Status::Limited | Status::Queued)) => status == Some(is.status),
            _ if was["putAway"]["isGone"] == true => is.is_put_away() && is.status == Status::Waiting,
            true if goes_on && !kept.contains_key(&id) => is.status == Status::Limited,
            true if kept.contains_key(&id) => is.status.is_live(),
            true => is.status == Status::Interrupted,
            false => now["status"] == was["status"],
        };
        let said = || format!("{} was {} and is {:?}", was["name"], was["status"], is.status);
        ensure(Rule::RestoredWhole, right, said);
    }
}
