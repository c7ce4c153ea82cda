//! For the pure tests of the features: a core, its clock, and agents to act with.

use crate::agents::report::{Batch, Credit, Keeper, Packed, RunReport};
use crate::agents::{self, SpawnRequest};
use crate::api::{Found, Method, Params, Problem, Reply, Request, Table};
use crate::assembly::apply::apply;
use crate::assembly::routes::table;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, CallId, Command, Context, Effect, Event, Journal, Response, State};
use crate::endpoint::{Ask, Handler};
use crate::providers::Activity;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A core under test.
pub struct Bench {
    /// Its state.
    pub state: State,
    /// Its clock.
    pub now: Time,
    /// Who calls.
    pub actor: Actor,
    /// All effects but replies so far.
    pub effects: Vec<Effect>,
    /// Whether nothing ever reaches the disk.
    pub disk_hangs: bool,
    /// What the disk says to a call that waits for it; `None` while it says nothing.
    pub disk: Option<Result<(), String>>,
    table: Table<Handler>,
    seed: u64,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// An empty daemon.
    pub fn new() -> Self {
        let now = Time(1_767_225_600_000);
        let (effects, table) = (Vec::new(), table());
        let state = State::default();
        Self {
            state,
            now,
            actor: Actor::Operator,
            effects,
            disk_hangs: false,
            disk: Some(Ok(())),
            table,
            seed: 1,
        }
    }

    /// Runs `change` as one event would.
    pub fn with<T>(&mut self, change: impl FnOnce(&mut State, &mut Context) -> T) -> T {
        self.seed += 1;
        let mut cx = Context::new(self.now, self.seed);
        cx.actor = self.actor.clone();
        let outcome = change(&mut self.state, &mut cx);
        self.effects.extend(cx.take());
        outcome
    }

    /// Applies an event; the reply as HTTP has it, if one came.
    pub fn apply(&mut self, event: Event) -> Option<Reply> {
        self.respond(event).map(Reply::from)
    }

    /// Applies an event; the answer, if one came.
    pub fn respond(&mut self, event: Event) -> Option<Response> {
        self.seed += 1;
        let mut cx = Context::new(self.now, self.seed);
        apply(&mut self.state, &mut cx, event);
        let mut answer = None;
        let mut awaited = Vec::new();
        let mut stored = Vec::new();
        for effect in cx.take() {
            match effect {
                Effect::AwaitDisk(call) => awaited.push(call),
                Effect::Reply(_, reply) | Effect::ReplyStored(_, reply) => {
                    assert!(answer.replace(reply).is_none(), "two replies to one call");
                }
                Effect::WhenStored(timer) if !self.disk_hangs => stored.push(timer),
                other => self.effects.push(other),
            }
        }
        for call in awaited {
            if let Some(outcome) = self.disk.clone() {
                answer = self.respond(Event::OnDisk(call, outcome)).or(answer);
            }
        }
        for timer in stored {
            self.apply(Event::Timer(timer));
        }
        answer
    }

    /// A command of the operator or of whoever is the actor.
    pub fn command(&mut self, command: Command) -> Option<Reply> {
        self.response(command).map(Reply::from)
    }

    /// As [`Bench::command`], for callers that do not call by HTTP.
    pub fn response(&mut self, command: Command) -> Option<Response> {
        self.respond(Event::Call(CallId(self.seed), self.actor.clone(), command))
    }

    /// A request as its route takes it: status and body.
    pub fn ask(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        self.wish(method, target, body).expect("an answer")
    }

    /// As [`Bench::ask`]; `None` when the answer is still to come.
    pub fn wish(&mut self, method: &str, target: &str, body: &Value) -> Option<(u16, Value)> {
        let reply = match self.route(method, target, body) {
            Ok(reply) => reply,
            Err(command) => self.command(command)?,
        };
        let body = serde_json::from_slice(reply.body.bytes()).unwrap_or(Value::Null);
        Some((reply.status, body))
    }

    fn route(&self, method: &str, target: &str, body: &Value) -> Result<Reply, Command> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let address = "127.0.0.1:1".parse().unwrap();
        let request = Request {
            method: method.parse::<Method>().unwrap(),
            path: path.to_owned(),
            segments: path.trim_start_matches('/').split('/').map(ToOwned::to_owned).collect(),
            query: crate::api::parse_query(query).unwrap(),
            headers: Vec::new(),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            peer: address,
            local: address,
            caller: Arc::default(),
        };
        let Found::Route(route, params) = self.table.find(&request.method, &request.segments) else {
            panic!("no route for {method} {target}");
        };
        self.handle(route.handler, &request, &params)
    }

    fn handle(&self, handler: Handler, request: &Request, params: &Params) -> Result<Reply, Command> {
        let caller = self.actor.agent();
        let find_caller = || caller;
        let ask = Ask { request, params, state: &self.state, now: self.now, find_caller: &find_caller };
        let refuse = |problem: Problem| Ok(problem.into());
        match handler {
            Handler::Read(read) | Handler::Shared(read) => read(&ask).or_else(refuse),
            Handler::Write(_, parse) => match parse(&ask) {
                Ok(command) => Err(command),
                Err(problem) => refuse(problem),
            },
            Handler::Work(..) => panic!("{} does I/O", request.path),
        }
    }

    /// A running agent of this name.
    pub fn agent(&mut self, name: &str) -> AgentId {
        self.agent_like(SpawnRequest {
            role: "dev".into(),
            name: Some(name.into()),
            provider: Some("script".into()),
            ..SpawnRequest::default()
        })
    }

    /// A running agent with this configuration, which has a name.
    pub fn agent_like(&mut self, request: SpawnRequest) -> AgentId {
        let name = request.name.clone().expect("a name");
        self.command(Command::Agents(agents::Command::Spawn(Box::new(request))));
        let id = self.state.agents.find(&name).expect("spawned").id;
        self.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
        id
    }

    /// An agent does these things.
    pub fn does(&mut self, id: AgentId, activities: Vec<Activity>) {
        let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
        self.apply(Event::Run(id, RunReport::Output(batch)));
    }

    /// The process of an agent exits with this code.
    pub fn exits(&mut self, id: AgentId, code: i32) {
        let report = RunReport::Exited {
            code: Some(code),
            signal: None,
            stderr_tail: String::new(),
            leaked: 0,
            keeper: Keeper::Told,
            signalled: false,
        };
        self.apply(Event::Run(id, report));
    }

    /// Replaces an agent by a successor that runs.
    pub fn rotates(&mut self, name: &str) -> AgentId {
        let old = self.state.agents.find(name).expect("known").id;
        self.command(Command::Agents(agents::Command::Rotate(name.into())));
        self.apply(Event::Job(agents::JobReport::Brief(old, Ok("brief".into()))));
        self.exits(old, 0);
        let new = self.state.agents.find(name).expect("known").id;
        self.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
        assert_ne!(old, new);
        new
    }

    /// Time passes; deadlines come due in their order.
    pub fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        while let Some((at, _)) = self.state.timers.next().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            let timer = Arc::make_mut(&mut self.state.timers).take_due(self.now).expect("due");
            self.apply(Event::Timer(timer));
        }
        self.now = until;
    }

    /// The bodies of the notices of this type so far.
    pub fn notices(&self, kind: &str) -> Vec<Value> {
        let body = |effect: &Effect| match effect {
            Effect::Notice(notice) if notice.kind() == kind => Some(notice.message()),
            _ => None,
        };
        self.effects.iter().filter_map(body).collect()
    }

    /// The entries of the audit log so far, those of this event.
    pub fn audited(&self, event: &str) -> Vec<Value> {
        let entry = |effect: &Effect| match effect {
            Effect::Append(Journal::Audit, line) => serde_json::from_slice::<Value>(line).ok(),
            _ => None,
        };
        self.effects.iter().filter_map(entry).filter(|entry| entry["event"] == event).collect()
    }
}
