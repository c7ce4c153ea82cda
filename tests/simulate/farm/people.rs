//! What people and agents ask for.

use super::invariants::{Rule, ensure};
use super::machine::{Machine, Plant};
use super::promises::{Claim, Fact, Key};
use serde_json::{Value, json};
use std::sync::Arc;
use svc::agents::Agent;
use svc::approvals::Action;
use svc::core::ids::{AgentId, LineageId, ScheduleId};
use svc::core::{Actor, CallId, State};

/// A gated call: who wants what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gated {
    /// Who.
    pub lineage: LineageId,
    /// The number in its parameters.
    pub number: u64,
}

const CRONS: [&str; 7] = [
    "* * * * *",
    "*/2 * * * *",
    "*/5 * * * *",
    "1-59/7 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "15,45 1-3 * * *",
];
const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];

fn nothing(_: &Value, _: &State) -> Vec<(Key, Fact)> {
    Vec::new()
}

fn text(body: &Value, field: &str) -> String {
    body[field].as_str().unwrap_or_default().to_owned()
}

/// What the answer says of a schedule.
fn schedule_fact(body: &Value, _: &State) -> Vec<(Key, Fact)> {
    let says = json!([body["cron"], body["timezone"], body["enabled"], body["maxConcurrent"]]);
    vec![(Key::Schedule(text(body, "id")), Some(says))]
}

fn approval_fact(body: &Value, _: &State) -> Vec<(Key, Fact)> {
    vec![(Key::Approval(text(body, "approvalId")), Some(Value::Null))]
}

fn plan_fact(body: &Value, _: &State) -> Vec<(Key, Fact)> {
    vec![(Key::Plan(text(body, "planId")), Some(Value::Null))]
}

/// The life that the answer tells of.
fn life_fact(body: &Value, state: &State) -> Vec<(Key, Fact)> {
    let id = ["new", "id"].iter().find_map(|field| body[*field].as_str()?.parse::<AgentId>().ok());
    let agent = id.and_then(|id| state.agents.find(&id.to_string()).ok().map(|agent| (id, agent.lineage_id)));
    agent.map(|(id, lineage)| (Key::Life(lineage, id), Some(Value::Null))).into_iter().collect()
}

impl Machine {
    fn some_agent(&mut self) -> Option<Arc<Agent>> {
        let agents: Vec<Arc<Agent>> = self.core.state.agents.iter().cloned().collect();
        self.dice.pick(&agents)
    }

    fn live_agent(&mut self) -> Option<Arc<Agent>> {
        let agents: Vec<Arc<Agent>> = self.core.state.agents.live().cloned().collect();
        self.dice.pick(&agents)
    }

    /// Somebody wants something.
    pub fn person_acts(&mut self) {
        match self.dice.below(52) {
            0..=4 => self.spawns(),
            5 | 6 => self.deletes(),
            7 => self.wants_life("rotate"),
            8 => self.wants_life("resume"),
            9 => self.questions(),
            10 | 11 => self.patches(),
            12..=15 | 40..=45 => self.instructs(),
            46..=48 => self.says_on_limit(),
            49..=51 => self.lets_go_on(),
            16 | 17 => self.agent_locks(),
            18..=20 => self.stranger_locks(),
            21 | 22 => self.calls_gated(),
            23..=25 => self.decides(),
            26 => self.asks_a_person(),
            27 | 28 => self.remembers(),
            29..=31 => self.schedules(),
            32 | 33 => self.teams(),
            34 => self.launches(),
            35 => self.settings(),
            36 | 37 => self.gateways(),
            38 => self.writes_a_file(),
            _ => {
                let hub = json!({"id": "hub", "command": "hub-server", "env": [], "gatedTools": ["send"]});
                self.asks_for("POST", "/api/integrations", &hub, Claim::Change);
            }
        }
    }

    /// A person asks.
    pub fn asks_for(&mut self, method: &str, path: &str, body: &Value, claim: Claim) {
        self.ask(&Actor::Operator, method, path, body, claim);
    }

    fn spawns(&mut self) {
        let scope = self.dice.below(5);
        let scope = if scope == 4 { json!([]) } else { json!([format!("src/p{scope}/**")]) };
        let mut body = json!({"role": "dev", "provider": "script", "scope": scope, "integrations": []});
        if self.dice.below(3) == 0 && self.core.state.integrations.is_installed("hub") {
            body["integrations"] = json!(["hub"]);
        }
        let teams: Vec<String> = self.core.state.teams.iter().map(|team| team.id.to_string()).collect();
        if self.dice.below(3) == 0 {
            body["teamId"] = json!(self.dice.pick(&teams));
        }
        body["priority"] = json!(self.dice.pick(&["normal", "normal", "normal", "low", "high"]));
        if self.dice.below(3) == 0 {
            // The daemon looks at the machine before a wish for an agent, if that is long ago.
            self.looks(false);
        }
        let actor = match self.live_agent() {
            Some(agent) if self.dice.below(4) == 0 => Actor::Agent(agent.id),
            _ => Actor::Operator,
        };
        self.plays_account(&actor, &mut body);
        self.ask(&actor, "POST", "/api/agents", &body, Claim::Body(Vec::new(), Box::new(life_fact)));
    }

    fn deletes(&mut self) {
        let Some(agent) = self.some_agent() else { return };
        let lineage = agent.lineage_id;
        self.promises.forget(|key| matches!(key, Key::Life(of, _) | Key::Effort(of) if *of == lineage));
        self.asks_for("DELETE", &format!("/api/agents/{}", agent.id), &Value::Null, Claim::Change);
    }

    /// A rotation of somebody alive, or a resume of anybody.
    fn wants_life(&mut self, what: &str) {
        let agent = if what == "rotate" { self.live_agent() } else { self.some_agent() };
        let Some(agent) = agent else { return };
        if agent.has_no_run() && (what == "rotate" || !agent.is_put_away()) {
            // That is another wish.
            return self.lets_go_on();
        }
        let claim = Claim::Body(Vec::new(), Box::new(life_fact));
        self.asks_for("POST", &format!("/api/agents/{}/{what}", agent.id), &Value::Null, claim);
    }

    fn questions(&mut self) {
        let Some(agent) = self.some_agent() else { return };
        let path = format!("/api/agents/{}/query", agent.id);
        self.asks_for("POST", &path, &json!({"question": "?"}), Claim::Look);
    }

    fn patches(&mut self) {
        let Some(agent) = self.some_agent() else { return };
        let (path, lineage) = (format!("/api/agents/{}", agent.id), agent.lineage_id);
        let effort = self.dice.pick(&["low", "medium", "high"]).unwrap();
        let claim = Claim::Facts(vec![(Key::Effort(lineage), Some(json!(effort)))]);
        self.asks_for("PATCH", &path, &json!({"effort": effort}), claim);
    }

    fn instructs(&mut self) {
        // Most that there are have ended, and most words are for those that work.
        let to_live = self.dice.below(4) > 0;
        let agent = if to_live { self.live_agent() } else { self.some_agent() };
        let Some(agent) = agent else { return };
        self.serial += 1;
        let text = format!("message-{};", self.serial);
        let deliver = self.dice.pick(&["now", "idle", "idle", "rotation"]).unwrap();
        let path = format!("/api/agents/{}/instruct", agent.id);
        let claim = Claim::Message(agent.lineage_id, text.clone());
        self.asks_for("POST", &path, &json!({"message": text, "deliver": deliver}), claim);
    }

    fn agent_locks(&mut self) {
        let Some(agent) = self.live_agent() else { return };
        let (actor, id) = (Actor::Agent(agent.id), agent.id.to_string());
        if self.dice.below(4) == 0 {
            let body = json!({"agentId": id});
            return self.ask(&actor, "POST", "/api/coordination/complete", &body, Claim::Change);
        }
        let mut resources = vec![format!("r{}", self.dice.below(4)), format!("r{}", self.dice.below(4))];
        resources.dedup();
        let body = json!({
            "agentId": id, "operation": format!("o{}", self.dice.below(3)), "resources": resources,
            "ttlMs": 1_000 + self.dice.below(200_000),
        });
        self.ask(&actor, "POST", "/api/coordination/declare", &body, Claim::Change);
    }

    /// Locks of somebody who is no agent: nothing but time and their own word ends them.
    fn stranger_locks(&mut self) {
        let resource = format!("s{}", self.dice.below(4));
        let owner = format!("ci-{resource}");
        let key = Key::Lock(resource.clone());
        if self.dice.below(3) == 0 {
            let claim = Claim::Facts(vec![(key, None)]);
            return self.asks_for("POST", "/api/coordination/complete", &json!({"agentId": owner}), claim);
        }
        let ttl = 1_000 + self.dice.below(3_000_000);
        let body = json!({"agentId": owner, "operation": resource, "resources": [resource], "ttlMs": ttl});
        // It ends so long after it was written that whoever waited for the disk has all of it.
        let earliest = self.core.now.0 + ttl;
        let read = move |body: &Value, _: &State| {
            let lock = Some(json!([owner, body["expiresAt"], earliest]));
            // A clock that went back meanwhile took its end along, and the disk may not have that yet:
            // nothing is known of it, as of those that were acknowledged before the clock was set.
            let is_known = body["expiresAt"].as_u64() >= Some(earliest);
            is_known.then(|| (Key::Lock(resource.clone()), lock)).into_iter().collect()
        };
        let claim = Claim::Body(vec![key], Box::new(read));
        self.asks_for("POST", "/api/coordination/declare", &body, claim);
    }

    /// An agent calls the gated tool, with an approval or without.
    fn calls_gated(&mut self) {
        let agents: Vec<Arc<Agent>> = self.core.state.agents.live().cloned().collect();
        let able: Vec<_> = agents.into_iter().filter(|agent| !agent.integrations.is_empty()).collect();
        let Some(agent) = self.dice.pick(&able) else { return };
        let wish = Gated { lineage: agent.lineage_id, number: self.dice.below(3) };
        let known: Vec<String> =
            self.core.state.approvals.iter().map(|approval| approval.id.to_string()).collect();
        let approval = if self.dice.below(3) == 0 { None } else { self.dice.pick(&known) };
        let mut body = json!({"tool": "send", "params": {"n": wish.number}});
        if let Some(id) = approval {
            body["approvalId"] = json!(id);
            self.programs.gated.insert(self.coming_call(), (id, wish));
        }
        self.ask(&Actor::Agent(agent.id), "POST", "/api/integrations/hub/exec", &body, Claim::Look);
    }

    /// A person decides, or an agent tries to.
    fn decides(&mut self) {
        let all: Vec<_> = self.core.state.approvals.pending().cloned().collect();
        let Some(approval) = self.dice.pick(&all) else { return };
        let (decision, status) =
            if self.dice.below(4) == 0 { ("reject", "rejected") } else { ("approve", "approved") };
        let id = approval.id.to_string();
        let body = json!({"id": id, "decision": decision});
        if self.dice.below(5) == 0
            && let Some(agent) = self.live_agent()
        {
            let actor =
                if self.plant == Plant::AgentsDecide { Actor::Operator } else { Actor::Agent(agent.id) };
            self.agent_decisions.insert(self.coming_call());
            return self.ask(&actor, "POST", "/api/approvals", &body, Claim::Change);
        }
        self.person_says(decision, &id);
        let claim = Claim::Facts(vec![(Key::Approval(id), Some(json!(status)))]);
        self.seen.count("decisions");
        self.asks_for("POST", "/api/approvals", &body, claim);
    }

    /// A person has said this; whether or not it is heard.
    pub fn person_says(&mut self, decision: &str, id: &str) {
        let Ok(approval) = self.core.state.approvals.find(id) else { return };
        let (Action::IntegrationExec { params, .. }, Some(lineage)) = (&approval.action, approval.lineage_id)
        else {
            return;
        };
        if decision == "approve" {
            let number = params["n"].as_u64().unwrap_or_default();
            self.programs.approved.insert(id.to_owned(), Gated { lineage, number });
        }
    }

    /// A call is answered: an agent's decision never well.
    pub fn decided(&mut self, call: CallId, status: u16) {
        let is_agents = self.agent_decisions.remove(&call);
        let said = || format!("an agent's decision was answered {status}");
        ensure(Rule::AgentsDecideNothing, !is_agents || status >= 400, said);
    }

    fn asks_a_person(&mut self) {
        self.serial += 1;
        let body = json!({"question": format!("may I {}?", self.serial)});
        let asker = self.live_agent().filter(|_| self.dice.below(2) == 0);
        // Whoever asks an agent's question sees it go with the agent.
        let (actor, read) = asker
            .map_or((Actor::Operator, approval_fact as fn(&Value, &State) -> _), |agent| {
                (Actor::Agent(agent.id), nothing as fn(&Value, &State) -> _)
            });
        self.ask(&actor, "POST", "/api/questions", &body, Claim::Body(Vec::new(), Box::new(read)));
    }

    fn remembers(&mut self) {
        let number = self.dice.below(12);
        if self.dice.below(3) == 0 {
            let trigger = format!("trouble {number}");
            let body = json!({"role": "dev", "trigger": trigger, "fix": "f", "outcome": "success"});
            let claim = Claim::Facts(vec![(Key::Discovery(trigger), Some(Value::Null))]);
            return self.asks_for("POST", "/api/memory/discoveries", &body, claim);
        }
        let text = format!("Rule number {number}");
        let key = Key::Rule(text.clone());
        if self.dice.below(3) == 0 {
            let path = format!("/api/memory/constraints/{}", svc::memory::constraint_hash(&text));
            self.asks_for("DELETE", &path, &Value::Null, Claim::Facts(vec![(key, None)]));
        } else {
            let claim = Claim::Facts(vec![(key, Some(Value::Null))]);
            self.asks_for("POST", "/api/memory/constraints", &json!({"text": text}), claim);
        }
    }

    fn timing(&mut self) -> Value {
        let cron = self.dice.pick(&CRONS).unwrap();
        let zone = self.dice.pick(&ZONES).unwrap();
        let catch_up = self.dice.pick(&["skip", "once"]).unwrap();
        json!({"cron": cron, "timezone": zone, "catchUp": catch_up, "maxConcurrent": 1 + self.dice.below(2)})
    }

    fn creates_schedule(&mut self) {
        let mut wish = self.timing();
        self.serial += 1;
        let prompt = format!("[S{}]", self.serial);
        wish["agent"] = json!({"role": "tick", "provider": "script", "prompt": prompt});
        let claim = Claim::Body(Vec::new(), Box::new(schedule_fact));
        self.asks_for("POST", "/api/schedules", &wish, claim);
    }

    fn schedules(&mut self) {
        let known: Vec<ScheduleId> = self.core.state.schedules.iter().map(|schedule| schedule.id).collect();
        let wants_new = known.len() < 5 && self.dice.below(3) == 0;
        let Some(id) = self.dice.pick(&known).filter(|_| !wants_new) else {
            return self.creates_schedule();
        };
        let path = format!("/api/schedules/{id}");
        let key = Key::Schedule(id.to_string());
        let changed = Claim::Body(vec![key.clone()], Box::new(schedule_fact));
        match self.dice.below(8) {
            0 => {
                self.watch.forget(id);
                self.asks_for("DELETE", &path, &Value::Null, Claim::Facts(vec![(key, None)]));
            }
            1 | 2 => self.asks_for("POST", &format!("{path}/run"), &Value::Null, Claim::Change),
            3 => self.asks_for("POST", &format!("{path}/disable"), &Value::Null, changed),
            4 | 5 => self.asks_for("POST", &format!("{path}/enable"), &Value::Null, changed),
            _ => {
                let wish = self.timing();
                self.asks_for("PATCH", &path, &wish, changed);
            }
        }
    }

    fn teams(&mut self) {
        let name = format!("crew-{}", self.dice.below(5));
        let key = Key::Team(name.clone());
        if self.dice.below(3) == 0 {
            let claim = Claim::Facts(vec![(key, None)]);
            self.asks_for("DELETE", &format!("/api/teams/{name}"), &Value::Null, claim);
        } else {
            let claim = Claim::Facts(vec![(key, Some(Value::Null))]);
            self.asks_for("POST", "/api/teams", &json!({"name": name}), claim);
        }
    }

    fn launches(&mut self) {
        self.serial += 1;
        let (count, phases) = (1 + self.dice.below(3), 1 + self.dice.below(2));
        let mut agents = Vec::new();
        for member in 0..count {
            let (phase, prompt) = (1 + self.dice.below(phases), format!("[L{}-{member}] build", self.serial));
            agents.push(json!({"role": "dev", "provider": "script", "phase": phase, "prompt": prompt}));
        }
        let claim = Claim::Body(Vec::new(), Box::new(plan_fact));
        self.seen.count("plans asked for");
        self.asks_for("POST", "/api/recommended-team/launch", &json!({"agents": agents}), claim);
    }

    fn settings(&mut self) {
        let count = 6 + self.dice.below(8);
        let budget = if self.dice.below(2) == 0 { Value::Null } else { json!(2.0) };
        let admit = self.dice.pick(&["queue", "queue", "queue", "queue", "refuse", "off"]);
        let body = json!({
            "maxAgents": count, "safety": {"dailyBudgetUsd": budget}, "governor": {"admit": admit},
        });
        let claim = Claim::Facts(vec![(Key::MaxAgents, Some(json!(count)))]);
        self.asks_for("PATCH", "/api/config", &body, claim);
    }

    fn writes_a_file(&mut self) {
        let Some(agent) = self.live_agent() else { return };
        let path = format!("src/p{}/f{}.rs", self.dice.below(4), self.dice.below(6));
        let body = json!({"agentId": agent.id, "tool": "Write", "path": path});
        self.ask(&Actor::Agent(agent.id), "POST", "/api/hooks/write", &body, Claim::Look);
    }
}
