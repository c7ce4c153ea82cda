//! For the pure tests of the features: a core, its clock, and agents to act with.

use crate::accounts;
use crate::agents::report::{Batch, Credit, Keeper, Packed, RunReport};
use crate::agents::{self, SpawnRequest};
use crate::api::{Found, Method, Params, Problem, Reply, Request, Table, conformance};
use crate::assembly::apply::apply;
use crate::assembly::description;
use crate::assembly::routes::table;
use crate::assembly::spawn;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, CallId, Command, Context, Effect, Event, Journal, Project, Response, State};
use crate::endpoint::{Ask, Handler};
use crate::programs::registry::{Detection, State as Programs};
use crate::providers::Activity;
use crate::providers::login::Login;
use crate::record::tests::Again;
use crate::runners::{self, Facts};
use serde_json::{Value, json};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Duration;

/// So many events of a test are all played out of a recording, too, and of the others one in [`SOME_AGAIN`].
const ALL_AGAIN: u64 = 300;
/// See [`ALL_AGAIN`].
const SOME_AGAIN: u64 = 16;

/// Whether the event that comes now is played out of a recording, too.
fn is_played_again() -> bool {
    thread_local!(static EVENTS: Cell<u64> = const { Cell::new(0) });
    let count = EVENTS.replace(EVENTS.get() + 1);
    count < ALL_AGAIN || count.is_multiple_of(SOME_AGAIN)
}

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
    /// The head lines of all requests.
    pub headers: Vec<(String, String)>,
    /// The last answer that came with time.
    pub late: Option<Reply>,
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
            headers: Vec::new(),
            late: None,
            table,
            seed: 1,
        }
    }

    /// An empty daemon of the project `/project`.
    pub fn in_project() -> Self {
        let mut bench = Self::new();
        let (dir, host) = ("/project".into(), "127.0.0.1".into());
        bench.state.project = Arc::new(Project { dir, host, port: 31415, ..Project::default() });
        bench
    }

    /// An empty daemon with the programs of several providers.
    pub fn with_programs() -> Self {
        let mut bench = Self::new();
        let programs =
            ["claude-code", "codex", "opencode", "aider"].map(|id| Detection::installed(id, "1.0"));
        bench.state.providers = Arc::new(Programs::new(programs.to_vec()));
        bench
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
        let is_looked_at = is_played_again();
        let again = is_looked_at.then(|| Again::of(&self.state, self.now, self.seed, &event)).flatten();
        apply(&mut self.state, &mut cx, event);
        if let Some(again) = again {
            again.comes_to(&self.state);
        }
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
        self.reply(method, target, body).map(|reply| parsed(&reply))
    }

    /// As [`Bench::wish`], with the head lines.
    pub fn reply(&mut self, method: &str, target: &str, body: &Value) -> Option<Reply> {
        let reply = match self.route(method, target, body) {
            Ok(reply) => Some(reply),
            Err(command) => self.command(command),
        };
        if let Some(reply) = &reply {
            self.hold_against_description(method, target, reply);
        }
        reply
    }

    /// A reply is what the description of its route says.
    fn hold_against_description(&self, method: &str, target: &str, reply: &Reply) {
        thread_local!(static DOCUMENT: OnceCell<Value> = const { OnceCell::new() });
        let segments: Vec<String> =
            target.split('?').next().unwrap_or_default().split('/').skip(1).map(ToOwned::to_owned).collect();
        let Found::Route(route, _) = self.table.find(&method.parse().unwrap(), &segments) else { return };
        if target.contains("?fields=") {
            return;
        }
        let media = reply.content_type.split(';').next().unwrap_or_default();
        let faults = DOCUMENT.with(|document| {
            let document = document.get_or_init(|| description::document().expect("a description"));
            conformance::faults(document, (method, route.path), (reply.status, media), &parsed(reply).1)
        });
        assert!(faults.is_empty(), "{target} is not as described: {}", faults.join("\n"));
    }

    /// GET that must answer 200.
    pub fn get(&mut self, target: &str) -> Value {
        let (status, body) = self.ask("GET", target, &Value::Null);
        assert_eq!(status, 200, "{target}: {body}");
        body
    }

    /// POST that must succeed.
    pub fn post(&mut self, target: &str, body: &Value) -> Value {
        let (status, answer) = self.ask("POST", target, body);
        assert!((200..300).contains(&status), "{target}: {answer}");
        answer
    }

    fn route(&self, method: &str, target: &str, body: &Value) -> Result<Reply, Command> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let address = "127.0.0.1:1".parse().unwrap();
        let request = Request {
            method: method.parse::<Method>().unwrap(),
            path: path.to_owned(),
            segments: path.trim_start_matches('/').split('/').map(ToOwned::to_owned).collect(),
            query: crate::api::parse_query(query).unwrap(),
            headers: self.headers.clone(),
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            peer: address,
            local: address,
            base: String::new(),
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
        let ask = Ask {
            request,
            params,
            state: &self.state,
            now: self.now,
            find_caller: &find_caller,
            phone: None,
        };
        let refuse = |problem: Problem| Ok(problem.into());
        match handler {
            Handler::Read(read) | Handler::Shared(read) => read(&ask).or_else(refuse),
            Handler::Write(_, parse) => match parse(&ask) {
                Ok(command) => Err(command),
                Err(problem) => refuse(problem),
            },
            // Of what does I/O first, only this is a command of its own behind it.
            Handler::Work(..) if request.path == "/api/agents" => match spawn::parse(request) {
                Ok((agent, timing)) => Err(spawn::command(agent, timing)),
                Err(problem) => refuse(problem),
            },
            Handler::Work(..) => panic!("{} does I/O", request.path),
        }
    }

    /// Adds an account whose folder is there.
    pub fn account(&mut self, name: &str, provider: &str, home: Option<&str>) -> (u16, Value) {
        let home = home.map(str::to_owned);
        let command = accounts::Command::Add { name: name.into(), provider: provider.into(), home };
        parsed(&self.command(Command::Accounts(command)).expect("an answer"))
    }

    /// A program has said whether somebody is logged in to an account, or to a provider's default one.
    pub fn logged_in(&mut self, key: &str, is_in: bool) {
        let login = Some(Login { is_in, told: "told".into() });
        self.apply(Event::Accounts(accounts::Report::Logins(vec![(key.into(), login)])));
    }

    /// Gives a machine that ssh reaches a name; `found` is what a check of it came to, where one was made.
    pub fn runner(&mut self, name: &str, labels: &[&str], found: Option<Result<Facts, String>>) {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let (name, kind, destination) = (name.to_owned(), runners::Kind::Ssh, name.to_owned());
        let add = runners::Command::Add { name: name.clone(), kind, destination, labels };
        self.command(Command::Runners(add));
        if let Some(found) = found {
            self.checked(&name, false, found);
        }
    }

    /// A check of a runner comes to this; its status code.
    pub fn checked(&mut self, name: &str, copied: bool, found: Result<Facts, String>) -> Option<u16> {
        let (name, found) = (name.to_owned(), found.map(Box::new));
        let checked = runners::Command::Checked { name, took_ms: 7, copied, found };
        self.command(Command::Runners(checked)).map(|reply| reply.status)
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

    /// A running agent that was spawned by a request with this body, of `script` if it names no provider.
    pub fn spawn(&mut self, body: &Value) -> AgentId {
        let mut body = body.clone();
        if body["provider"].is_null() && body["account"].is_null() {
            body["provider"] = json!("script");
        }
        let id = self.post("/api/agents", &body)["id"].as_str().unwrap().parse().unwrap();
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
        self.hands_over(name, "brief")
    }

    /// As [`Bench::rotates`], with this brief.
    pub fn hands_over(&mut self, target: &str, brief: &str) -> AgentId {
        let old = self.state.agents.find(target).expect("known").clone();
        self.command(Command::Agents(agents::Command::Rotate(target.into())));
        self.apply(Event::Job(agents::JobReport::Brief(old.id, Ok(brief.into()))));
        self.exits(old.id, 0);
        let new = self.state.agents.find(&old.name).expect("known").id;
        self.apply(Event::Run(new, RunReport::Started { pid: 2, start_ticks: 2 }));
        assert_ne!(old.id, new);
        new
    }

    /// Time passes; deadlines come due in their order.
    pub fn pass(&mut self, length: Duration) {
        let until = self.now + length;
        while let Some((at, _)) = self.state.timers.next().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            let timer = Arc::make_mut(&mut self.state.timers).take_due(self.now).expect("due");
            if let Some(late) = self.apply(Event::Timer(timer)) {
                self.late = Some(late);
            }
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

    /// All notices since the last look; the effects so far are forgotten with it.
    pub fn told(&mut self) -> Vec<Value> {
        let message =
            |effect| if let Effect::Notice(notice) = effect { Some(notice.message()) } else { None };
        self.effects.drain(..).filter_map(message).collect()
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

/// What a check finds on a machine that has so many megabytes of memory left.
pub fn facts(available: u64) -> Facts {
    Facts {
        version: "1".into(),
        program: "ab".repeat(32),
        kernel: "6.12".into(),
        arch: "x86_64".into(),
        home: "/there".into(),
        processors: 2,
        memory: 64_000,
        available,
        no_room: None,
        git: Some("git version 2.39".into()),
    }
}

/// The status and the body as JSON, or as text; null where there is none.
pub fn parsed(reply: &Reply) -> (u16, Value) {
    let bytes = reply.body.bytes();
    if bytes.is_empty() {
        return (reply.status, Value::Null);
    }
    let body = serde_json::from_slice(bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(bytes)));
    (reply.status, body)
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
