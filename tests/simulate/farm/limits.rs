//! Limits of providers: what programs were told of them, what they were working on, and what people have
//! said, kept outside of the daemon. Whoever is held goes on once, and only when and as that allows.

use super::invariants::{Rule, ensure};
use super::keepers::Kept;
use super::machine::Machine;
use super::programs::Process;
use crate::support::world::activity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc::agents::{Agent, Status};
use svc::core::ids::{AgentId, LineageId};
use svc::core::time::Time;
use svc::core::{Actor, CallId, Document, State};
use svc::providers::{Activity, limit::Limit};
use svc::settings::OnLimit;

/// Of what an agent works on so many words are kept: messages, answers and what became of its wishes. Each is
/// a paragraph or more of what it was told.
const KEPT_WORDS: usize = 20;

/// The end of a run at a limit.
struct Hold {
    /// When it opens, where the program was told.
    opens: Option<Time>,
    /// The paragraphs that it was working on.
    words: Vec<String>,
    /// Its next life was ordered, and the machine has not lost that since.
    is_issued: bool,
    /// A person has said that it goes on, or its limit was seen to be open. That holds until its program has
    /// begun, also over a power cut behind which the clock is wrong.
    is_allowed: bool,
}

/// All of them, of lineages.
#[derive(Default)]
pub struct Holds {
    holds: BTreeMap<LineageId, Hold>,
    /// People who let somebody go on, and have no answer yet.
    asked: BTreeMap<CallId, LineageId>,
}

/// What a program was told, by paragraphs.
pub fn paragraphs(words: &str) -> Vec<String> {
    words.split("\n\n").map(str::to_owned).collect()
}

/// The messages of people that stand in these words.
pub fn messages(words: &str) -> Vec<String> {
    let parts = words.split_inclusive(';');
    parts.filter_map(|part| part.rfind("message-").map(|at| part[at..].to_owned())).collect()
}

impl Holds {
    /// A call is answered.
    pub fn answered(&mut self, call: CallId) {
        self.asked.remove(&call);
    }

    /// The daemon is gone, and has come back with this state: what it has not begun is to be issued again.
    pub fn restarted(&mut self, state: &State) {
        self.asked.clear();
        for (lineage, hold) in &mut self.holds {
            let agent = state.agents.by_lineage(*lineage);
            hold.is_issued &= agent.is_none_or(|agent| agent.status != Status::Limited);
        }
    }
}

/// What holds for it, as people have set it.
fn policy(state: &State, agent: &Agent) -> OnLimit {
    agent.on_limit.unwrap_or(state.settings.config().on_limit)
}

impl Machine {
    /// A program's turn ends because its provider refuses: until some time, of which it is mostly told.
    pub fn comes_to_limit(&mut self, id: AgentId) {
        let tells = self.dice.below(5) > 0;
        let opens = tells.then(|| Time(self.core.now.0 + 60_000 + self.dice.below(7_200_000)));
        let closed = Limit { closed: true, ..Limit::window("five_hour", Some(100.0), opens.map(|at| at.0)) };
        self.seen.count("limits of providers");
        let session = activity("session", &format!("s{}", id.0));
        self.prints(id, vec![session, Activity::Limit(closed), activity("fails-turn", "a usage limit")]);
    }

    /// A person says what becomes of agents at limits.
    pub fn says_on_limit(&mut self) {
        let on_limit = self.dice.pick(&["wait", "wait", "wait", "ask", "stop", "handover"]).unwrap();
        let body = json!({"onLimit": on_limit});
        let agents: Vec<AgentId> = self.core.state.agents.live().map(|agent| agent.id).collect();
        match self.dice.pick(&agents).filter(|_| self.dice.below(2) == 0) {
            Some(id) => {
                self.asks_for("PATCH", &format!("/api/agents/{id}"), &body, super::promises::Claim::Change);
            }
            None => self.asks_for("PATCH", "/api/config", &body, super::promises::Claim::Change),
        }
    }

    /// Somebody who is held, or waits for room, is to go on now: a person may say so, and no agent.
    pub fn lets_go_on(&mut self) {
        let held = self.core.state.agents.live();
        let held = held.filter(|agent| agent.status == Status::Limited || agent.is_queued());
        let held: Vec<(AgentId, LineageId)> = held.map(|agent| (agent.id, agent.lineage_id)).collect();
        let Some((id, lineage)) = self.dice.pick(&held) else { return };
        let others: Vec<AgentId> = self.programs.processes.keys().copied().collect();
        let agent = self.dice.pick(&others).filter(|_| self.dice.below(3) == 0);
        let actor = agent.map_or(Actor::Operator, Actor::Agent);
        if actor == Actor::Operator {
            self.limits.asked.insert(self.coming_call(), lineage);
            self.room.person_lets(self.coming_call(), id);
            if let Some(hold) = self.limits.holds.get_mut(&lineage) {
                hold.is_allowed = true;
            }
        } else {
            self.agent_decisions.insert(self.coming_call());
        }
        let path = format!("/api/agents/{id}/resume");
        self.ask(&actor, "POST", &path, &Value::Null, super::promises::Claim::Change);
    }

    /// A run is over and was told: it is held, if it was at a limit.
    pub fn ended_at_limit(&mut self, id: AgentId, kept: &Kept, by_itself: bool, before: &State) {
        let state = &self.core.state;
        let (Some(was), Some(agent)) = (before.agents.get(id), state.agents.get(id)) else { return };
        let is_held = agent.status == Status::Limited;
        let is_to_be = kept.is_at_limit && by_itself && policy(before, was) != OnLimit::Stop;
        let said = || format!("{} came to a limit, and is {:?}", agent.name, agent.status);
        ensure(Rule::HeldAtLimit, is_held || !is_to_be, said);
        if is_held {
            // What was open when its end was told stays so, also where the clock goes back behind that.
            let opens = kept.opens.filter(|opens| *opens > self.core.now);
            let words = kept.working.clone();
            self.limits
                .holds
                .insert(agent.lineage_id, Hold { opens, words, is_issued: false, is_allowed: false });
            self.seen.count("agents held at limits");
        }
    }

    /// Next lives of held agents that were not there before: the time has come, or a person has said so.
    pub fn check_due(&mut self, before: &State) {
        let state = self.core.state.clone();
        if std::sync::Arc::ptr_eq(&before.agents, &state.agents) {
            return;
        }
        for agent in state.agents.live().filter(|agent| agent.has_no_run()) {
            if agent.is_put_away() {
                let is_well =
                    agent.status == Status::Waiting && agent.held.is_none() && agent.queued.is_none();
                ensure(Rule::NoGhost, is_well, || {
                    format!("{} is put away and {:?}", agent.name, agent.status)
                });
                self.seen.count("looks at agents that were put away");
                continue;
            }
            let (name, is_due) = (&agent.name, agent.held.as_ref().is_some_and(|held| held.is_due));
            if agent.queued.is_some() {
                let is_well =
                    agent.status == if agent.is_queued() { Status::Queued } else { Status::Starting };
                ensure(Rule::NoGhost, is_well, || format!("{name} waits for room and is {:?}", agent.status));
                continue;
            }
            let is_well =
                if is_due { agent.status == Status::Starting } else { agent.status == Status::Limited };
            ensure(Rule::NoGhost, is_well, || format!("{name} has no process and is {:?}", agent.status));
            let waits = state.timers.get(svc::core::Timer::LimitOpens(agent.id));
            let next = agent.held.as_ref().and_then(|held| held.next_try).filter(|_| !is_due);
            let said = || format!("{name} is to go on at {next:?}, and is awaited at {waits:?}");
            ensure(Rule::HeldAtLimit, waits.is_some() == next.is_some(), said);
            if !is_due || before.agents.get(agent.id).is_some() {
                continue;
            }
            let now = self.core.now;
            let hold = self.limits.holds.get(&agent.lineage_id);
            let asks = self.limits.asked.values().any(|lineage| *lineage == agent.lineage_id);
            let by_person = asks || hold.is_some_and(|hold| hold.is_allowed);
            let opens = hold.and_then(|hold| hold.opens);
            let may = policy(before, agent) == OnLimit::Wait && opens.is_none_or(|opens| opens <= now);
            let said =
                || format!("{name} goes on at {now}, its limit opens at {opens:?}, and nobody says so");
            ensure(Rule::OnceAtReset, by_person || may, said);
            if let Some(hold) = self.limits.holds.get_mut(&agent.lineage_id) {
                hold.is_allowed = true;
            }
            let (used, budget) =
                (before.usage.today_usd(now), state.settings.config().safety.daily_budget_usd);
            let said = || format!("{name} goes on, with {used} of {budget:?} used");
            ensure(Rule::Budget, budget.is_none_or(|budget| used < budget), said);
        }
    }

    /// A life is ordered: that of a held agent once, with what it was working on, and from the disk.
    pub fn check_goes_on(&mut self, before: &State, id: AgentId, lineage: LineageId, prompt: &str) {
        let agent = before.agents.get(id).filter(|agent| agent.has_no_run());
        let Some(agent) = agent else { return };
        let name = agent.name.clone();
        let stored = self.disk.files.get(&Document::Agents).map(|bytes| String::from_utf8_lossy(bytes));
        let is_there = stored.is_some_and(|stored| stored.contains(&id.to_string()));
        ensure(Rule::OnceAtReset, is_there, || {
            format!("{name} goes on as {id}, of which the disk knows nothing")
        });
        let hold = self.limits.holds.get_mut(&lineage);
        let is_first = hold.as_ref().is_some_and(|hold| !hold.is_issued);
        ensure(Rule::OnceAtReset, is_first, || format!("{name} goes on again, or was not held"));
        let Some(hold) = hold else { return };
        hold.is_issued = true;
        for word in hold.words.iter().rev().take(KEPT_WORDS).flat_map(|words| messages(words)) {
            let count = prompt.matches(&word).count();
            ensure(Rule::OnceAtReset, count == 1, || format!("{name} goes on with {word:?} {count} times"));
        }
        self.seen.count("agents that went on behind a limit");
    }
}

impl Kept {
    /// What a program prints, as far as limits go.
    pub fn notes_limit(&mut self, activity: &Activity) {
        match activity {
            Activity::Limit(limit) => {
                self.is_at_limit = true;
                self.opens = limit.resets_at_ms.map(Time).or(self.opens);
            }
            Activity::Text { .. } | Activity::ToolStarted { .. } => {
                (self.is_at_limit, self.opens) = (false, None);
            }
            Activity::TurnEnded(end) if !end.is_error => {
                (self.is_at_limit, self.opens) = (false, None);
                self.working.clear();
            }
            _ => {}
        }
    }
}

/// Whether a program in this state ends by itself.
pub fn ends_by_itself(process: Option<&Process>) -> bool {
    matches!(process, Some(Process::Runs | Process::Finishing))
}
