//! A core for the tests of features: requests in, replies and effects out, without a thread, socket or clock.

use crate::agents::JobReport;
use crate::agents::report::{Batch, Credit, Keeper, Packed, RunReport};
use crate::api::{Found, Method, Reply, Request, decode_percent, parse_query};
use crate::assembly::apply::apply;
use crate::assembly::routes::table;
use crate::assembly::spawn;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, CallId, Command, Context, Effect, Event, Journal, Project, State};
use crate::endpoint::{Ask, Handler};
use crate::providers::Activity;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A core, its clock, and what it has ordered so far.
pub struct Core {
    pub state: State,
    pub now: Time,
    pub actor: Actor,
    /// Of all requests.
    pub headers: Vec<(String, String)>,
    /// Since the last look.
    pub effects: Vec<Effect>,
    seed: u64,
    calls: u64,
}

impl Core {
    pub fn new() -> Self {
        let project =
            Project { dir: "/project".into(), host: "127.0.0.1".into(), port: 31415, ..Project::default() };
        Self {
            state: State { project: Arc::new(project), ..State::default() },
            now: Time(1_767_225_600_000),
            actor: Actor::Operator,
            headers: vec![("content-type".into(), "application/json".into())],
            effects: Vec::new(),
            seed: 0,
            calls: 0,
        }
    }

    pub fn apply(&mut self, event: Event) {
        self.seed += 1;
        let mut cx = Context::new(self.now, self.seed);
        apply(&mut self.state, &mut cx, event);
        let effects = cx.take();
        let awaits = |effect: &Effect| if let Effect::AwaitDisk(call) = effect { Some(*call) } else { None };
        let awaited: Vec<CallId> = effects.iter().filter_map(awaits).collect();
        self.effects.extend(effects);
        for call in awaited {
            self.apply(Event::OnDisk(call, Ok(())));
        }
    }

    /// Lets time pass; deadlines come due in order.
    pub fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while let Some((at, _)) = self.state.timers.next().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            if let Some(timer) = Arc::make_mut(&mut self.state.timers).take_due(self.now) {
                self.apply(Event::Timer(timer));
            }
        }
        self.now = until;
    }

    /// Sends a request; `None` when its answer is still to come.
    pub fn ask(&mut self, method: &str, target: &str, body: &Value) -> Option<Reply> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let segments = path.trim_start_matches('/').split('/').map(|part| decode_percent(part).unwrap());
        let address = "127.0.0.1:1".parse().unwrap();
        let request = Request {
            method: method.parse::<Method>().unwrap(),
            path: path.to_owned(),
            segments: segments.collect(),
            query: parse_query(query).unwrap(),
            headers: self.headers.clone(),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            peer: address,
            local: address,
            caller: Arc::default(),
        };
        let table = table();
        let Found::Route(route, params) = table.find(&request.method, &request.segments) else {
            panic!("no route for {method} {target}");
        };
        let (state, caller) = (self.state.clone(), self.actor.agent());
        let find_caller = || caller;
        let ask = Ask {
            request: &request,
            params: &params,
            state: &state,
            now: self.now,
            find_caller: &find_caller,
        };
        let command = match route.handler {
            Handler::Read(handler) | Handler::Shared(handler) => {
                return Some(handler(&ask).unwrap_or_else(Into::into));
            }
            Handler::Write(_, handler) => handler(&ask),
            Handler::Work(..) => spawn::parse(&request).map(|(agent, timing)| spawn::command(agent, timing)),
        };
        match command {
            Ok(command) => self.wish(command),
            Err(problem) => Some(problem.into()),
        }
    }

    /// Gives a command; `None` when its answer is still to come.
    pub fn wish(&mut self, command: Command) -> Option<Reply> {
        self.calls += 1;
        let call = CallId(self.calls);
        self.apply(Event::Call(call, self.actor.clone(), command));
        self.replied(call)
    }

    /// The number of the last call.
    pub fn last_call(&self) -> CallId {
        CallId(self.calls)
    }

    /// The answer to a call, taken out.
    pub fn replied(&mut self, call: CallId) -> Option<Reply> {
        let at = self.effects.iter().position(
            |effect| matches!(effect, Effect::Reply(of, _) | Effect::ReplyStored(of, _) if *of == call),
        )?;
        match self.effects.remove(at) {
            Effect::Reply(_, response) | Effect::ReplyStored(_, response) => Some(response.into()),
            _ => None,
        }
    }

    /// Sends a request that is answered at once; status and body.
    pub fn send(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let reply = self.ask(method, target, body).expect("an answer at once");
        (reply.status, parsed(&reply))
    }

    /// GET that must answer 200.
    pub fn get(&mut self, target: &str) -> Value {
        let (status, body) = self.send("GET", target, &Value::Null);
        assert_eq!(status, 200, "{target}: {body}");
        body
    }

    /// POST that must succeed.
    pub fn post(&mut self, target: &str, body: &Value) -> Value {
        let (status, answer) = self.send("POST", target, body);
        assert!((200..300).contains(&status), "{target}: {answer}");
        answer
    }

    /// Spawns an agent of the rehearsal provider, whose process runs.
    pub fn spawn(&mut self, body: &Value) -> AgentId {
        let mut body = body.clone();
        if body["provider"].is_null() {
            body["provider"] = json!("script");
        }
        let id = self.post("/api/agents", &body)["id"].as_str().unwrap().parse().unwrap();
        self.apply(Event::Run(id, RunReport::Started { pid: 100, start_ticks: 1 }));
        id
    }

    /// An agent does something.
    pub fn hear(&mut self, agent: AgentId, activities: Vec<Activity>) {
        let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
        self.apply(Event::Run(agent, RunReport::Output(batch)));
    }

    /// The process of an agent ends.
    pub fn exit(&mut self, agent: AgentId, code: i32) {
        let report = RunReport::Exited {
            code: Some(code),
            signal: None,
            stderr_tail: String::new(),
            leaked: 0,
            keeper: Keeper::Told,
            signalled: false,
        };
        self.apply(Event::Run(agent, report));
    }

    /// Rotates an agent; its successor runs.
    pub fn rotate(&mut self, agent: AgentId, brief: &str) -> AgentId {
        let lineage = self.state.agents.get(agent).expect("an agent").lineage_id;
        assert!(self.ask("POST", &format!("/api/agents/{agent}/rotate"), &Value::Null).is_none());
        self.apply(Event::Job(JobReport::Brief(agent, Ok(brief.to_owned()))));
        self.exit(agent, 143);
        let new = self.state.agents.iter().find(|agent| agent.lineage_id == lineage).expect("a successor").id;
        self.apply(Event::Run(new, RunReport::Started { pid: 101, start_ticks: 1 }));
        new
    }

    /// The WebSocket messages since the last look, and nothing else is kept.
    pub fn notices(&mut self) -> Vec<Value> {
        let mut told = Vec::new();
        for effect in self.effects.drain(..) {
            if let Effect::Notice(notice) = effect {
                told.push(notice.message());
            }
        }
        told
    }

    /// The audit entries that wait here.
    pub fn audits(&self) -> Vec<Value> {
        let lines = self.effects.iter().filter_map(|effect| match effect {
            Effect::Append(Journal::Audit, line) => serde_json::from_slice(line).ok(),
            _ => None,
        });
        lines.collect()
    }
}

/// The body as JSON, or as text.
pub fn parsed(reply: &Reply) -> Value {
    let bytes = reply.body.bytes();
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes)))
}

/// A file is written.
pub fn writes(path: &str) -> Vec<Activity> {
    write_ended(path, false)
}

/// A file is to be written, and whether that failed or was refused.
pub fn write_ended(path: &str, error: bool) -> Vec<Activity> {
    let id = format!("w-{path}");
    let started = Activity::ToolStarted {
        id: id.clone(),
        name: "write".into(),
        input: json!({"path": path, "content": "x"}),
        path: Some(path.to_owned()),
        writes: true,
    };
    vec![started, Activity::ToolEnded { id, error, output: String::new() }]
}
