//! What clients were told, as they remember it: the daemon has to agree, also after a power cut.

use super::invariants::{Rule, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use svc::core::State;
use svc::core::ids::{AgentId, LineageId};
use svc::core::time::Time;
use svc::{approvals, coordination};

/// What a fact is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The rule for all agents with this text.
    Rule(String),
    /// What was found, by its trigger.
    Discovery(String),
    /// A schedule, by its id.
    Schedule(String),
    /// A team, by its name.
    Team(String),
    /// How many agents there may be.
    MaxAgents,
    /// An approval, by its id.
    Approval(String),
    /// A resource of a stranger who is no agent.
    Lock(String),
    /// The effort of a lineage.
    Effort(LineageId),
    /// A life of a lineage, by the id that was told.
    Life(LineageId, AgentId),
    /// A gateway, by its id.
    Gateway(String),
    /// A plan, by its id.
    Plan(String),
    /// A command of a chat that was taken, by its number.
    Chat(u64),
}

/// What is true of it; `None`: it is not there.
pub type Fact = Option<Value>;

/// What an answer's body promises.
pub type FromBody = Box<dyn Fn(&Value, &State) -> Vec<(Key, Fact)>>;

/// What a client will know when its call is answered well.
pub enum Claim {
    /// Nothing that lasts is asked for.
    Look,
    /// Something changes; what, is nobody's promise here.
    Change,
    /// A message to a lineage.
    Message(LineageId, String),
    /// These are true then.
    Facts(Vec<(Key, Fact)>),
    /// What the answer says is true then; of these keys nothing is known until it comes.
    Body(Vec<Key>, FromBody),
}

impl Claim {
    fn keys(&self) -> Vec<Key> {
        match self {
            Self::Facts(facts) => facts.iter().map(|(key, _)| key.clone()).collect(),
            Self::Body(keys, _) => keys.clone(),
            _ => Vec::new(),
        }
    }
}

/// All that was promised.
#[derive(Default)]
pub struct Promises {
    facts: BTreeMap<Key, Fact>,
    /// Calls under way about a key: of it nothing is known for certain.
    under_way: BTreeMap<Key, usize>,
    /// Acknowledged messages that no program has taken.
    messages: Vec<(LineageId, String)>,
    /// Messages that a program has taken before the answer came, or after.
    heard: BTreeSet<String>,
    /// Messages that were answered 503.
    refused: BTreeSet<String>,
}

impl Promises {
    /// A call leaves.
    pub fn asked(&mut self, claim: &Claim) {
        for key in claim.keys() {
            self.facts.remove(&key);
            *self.under_way.entry(key).or_default() += 1;
        }
    }

    /// A call is answered.
    pub fn answered(&mut self, claim: Claim, status: u16, body: &Value, state: &State) {
        let keys = claim.keys();
        for key in &keys {
            let count = self.under_way.entry(key.clone()).or_default();
            *count = count.saturating_sub(1);
        }
        let is_done = status < 300;
        let facts = match claim {
            Claim::Message(lineage, text) => {
                match status {
                    200 if self.heard.remove(&text) => {}
                    200 => self.messages.push((lineage, text)),
                    503 if body["inForce"] == false => drop(self.refused.insert(text)),
                    _ => {}
                }
                return;
            }
            Claim::Facts(facts) if is_done => facts,
            Claim::Body(_, read) if is_done => read(body, state),
            _ => return,
        };
        for (key, fact) in facts {
            if self.under_way.get(&key).copied().unwrap_or_default() == 0 {
                self.facts.insert(key, fact);
            }
        }
        self.under_way.retain(|_, count| *count > 0);
    }

    /// Calls that were under way are lost with the daemon: what they asked for is, or is not.
    pub fn cut(&mut self) {
        for key in std::mem::take(&mut self.under_way).into_keys() {
            self.facts.remove(&key);
        }
    }

    /// Nothing is known any more of these.
    pub fn forget(&mut self, is_it: impl Fn(&Key) -> bool) {
        self.facts.retain(|key, _| !is_it(key));
    }

    /// A program has taken these words, or was started with them. Of those whose answer has not come yet
    /// it is remembered: beside them others may stand that were acknowledged long ago.
    pub fn taken(&mut self, lineage: LineageId, words: &str) {
        for part in words.split_inclusive(';') {
            let Some(text) = part.rfind("message-").map(|at| &part[at..]) else { continue };
            let count = self.messages.len();
            self.messages.retain(|(of, known)| *of != lineage || known != text);
            if count == self.messages.len() {
                self.heard.insert(text.to_owned());
            }
        }
    }

    /// This is there from now on.
    pub fn holds(&mut self, key: Key) {
        self.facts.insert(key, Some(Value::Null));
    }

    /// The daemon has gone before it could take these back from the disk, which it had told to be refused.
    pub fn not_taken_back(&mut self, agents: &str) {
        self.refused.retain(|text| !agents.contains(text.as_str()));
    }

    /// Messages are where they were promised to be, and those that were refused are nowhere.
    pub fn check_messages(&self, state: &State) {
        let waits = |agent: &svc::agents::Agent, text: &str| agent.queue.iter().any(|one| *one.text == *text);
        for (lineage, text) in &self.messages {
            let Some(agent) = state.agents.by_lineage(*lineage) else { continue };
            let said = || format!("{} lost the acknowledged {text:?}", agent.name);
            ensure(Rule::MessagesStay, waits(agent, text), said);
        }
        if self.refused.is_empty() {
            return;
        }
        for agent in state.agents.iter() {
            for message in &agent.queue {
                let is_refused = self.refused.contains(&*message.text);
                let said = || format!("{:?} was answered 503 and waits for {}", message.text, agent.name);
                ensure(Rule::RefusedIsNothing, !is_refused, said);
            }
        }
    }

    /// The daemon knows what its clients know.
    pub fn check(&self, state: &State, now: Time) {
        for (key, fact) in &self.facts {
            let found = look(state, now, key, fact);
            let holds = found.as_ref().is_none_or(|found| found == fact);
            let said =
                || format!("{key:?} was acknowledged as {}, it is {}", told(fact), told(&found.unwrap()));
            ensure(Rule::Kept, holds, said);
        }
    }
}

fn told(fact: &Fact) -> String {
    fact.as_ref().map_or_else(|| "gone".to_owned(), ToString::to_string)
}

/// What is true now; `None` where nothing can be said of it, because it may have ended by itself.
fn look(state: &State, now: Time, key: &Key, was: &Fact) -> Option<Fact> {
    let there = |is_there: bool| Some(is_there.then_some(Value::Null));
    match key {
        Key::Rule(text) => there(state.memory.constraints().iter().any(|rule| *rule.text == **text)),
        Key::Discovery(trigger) => there(state.memory.discoveries().any(|found| *found.trigger == **trigger)),
        Key::Schedule(id) => Some(state.schedules.find(id).ok().map(|schedule| {
            json!([schedule.timing.cron, schedule.timing.timezone, schedule.enabled, schedule.max_concurrent])
        })),
        Key::Team(name) => there(state.teams.iter().any(|team| team.name == *name)),
        Key::MaxAgents => Some(Some(json!(state.settings.config().max_agents))),
        Key::Approval(id) => look_approval(state, id, was),
        Key::Lock(resource) => look_lock(state, now, resource, was),
        Key::Effort(lineage) => {
            let agent = state.agents.by_lineage(*lineage)?;
            Some(Some(json!(agent.effort)))
        }
        Key::Life(lineage, id) => {
            state.agents.by_lineage(*lineage)?;
            let found = state.agents.find(&id.to_string()).ok();
            Some(found.filter(|agent| agent.lineage_id == *lineage).map(|_| Value::Null))
        }
        Key::Gateway(id) => Some(state.gateways.find(id).ok().map(|gateway| json!(gateway.chat_id))),
        Key::Plan(id) => {
            let plans = state.teams.plans();
            let kept = plans.iter().any(|plan| plan.id.to_string() == *id);
            // The oldest that is over goes when there are too many.
            (kept || plans.len() < svc::teams::phases::MAX_PLANS).then(|| kept.then_some(Value::Null))
        }
        Key::Chat(number) => {
            let entry = state.gateways.inbox().iter().find(|entry| entry.number == *number);
            Some(entry.map(|_| Value::Null))
        }
    }
}

/// One that was resolved is forgotten at some time, and may have expired before.
fn look_approval(state: &State, id: &str, was: &Fact) -> Option<Fact> {
    let full = state.approvals.resolved().len() >= approvals::MAX_RESOLVED;
    match state.approvals.find(id) {
        Err(_) if full => None,
        Err(_) => Some(None),
        Ok(approval) if approval.status == approvals::Status::Expired => None,
        // That it was asked for says nothing of what was decided.
        Ok(_) if was.as_ref().is_some_and(Value::is_null) => Some(Some(Value::Null)),
        Ok(approval) => Some(Some(json!(approval.status.word()))),
    }
}

fn look_lock(state: &State, now: Time, resource: &str, was: &Fact) -> Option<Fact> {
    let ends = was.as_ref().and_then(|was| was[1].as_u64());
    let earliest = was.as_ref().and_then(|was| was[2].as_u64()).or(ends);
    if earliest.is_some_and(|ends| ends <= now.0) {
        return None;
    }
    let held = state.coordination.iter().find(|(_, one)| one.resources.iter().any(|held| held == resource));
    Some(held.map(|(owner, operation)| {
        let owner = match owner {
            coordination::Owner::Named(name) => json!(name),
            coordination::Owner::Agent(lineage) => json!(lineage),
        };
        let (at, was) = (operation.expires_at.0, was.as_ref().filter(|was| was[0] == owner));
        // Of a call that has waited for the disk the disk may have the time at which it was asked.
        let waited = was.filter(|was| ends.is_some_and(|ends| at < ends) && was[2].as_u64() <= Some(at));
        waited.cloned().unwrap_or_else(|| json!([owner, at, was.map_or(&Value::Null, |was| &was[2])]))
    }))
}
