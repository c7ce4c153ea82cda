//! The pure core with a virtual clock and hand-made facts.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use svc::agents::report::{Batch, Credit, Keeper, Packed, RunReport};
use svc::agents::{self, JobReport, RunOrder};
use svc::api::{Found, Method, Reply, Request, Table, decode_percent, parse_query};
use svc::assembly::apply::apply;
use svc::assembly::documents::encode;
use svc::assembly::routes::table;
use svc::assembly::spawn;
use svc::core::ids::AgentId;
use svc::core::time::Time;
use svc::core::{
    Actor, CallId, Command, Context, Document, Durability, Effect, Event, Project, State, Timer,
};
use svc::endpoint::{Ask, Handler};
use svc::providers::{Activity, Tokens, TokensDelta, TurnEnd, Usage};
use svc::teams;

/// A core, its clock, and what it is to show.
pub struct World {
    /// The state.
    pub state: State,
    /// The virtual clock.
    pub now: Time,
    table: Table<Handler>,
    seed: u64,
    next_call: u64,
    shown: Vec<String>,
    exit_sent: bool,
    last_query: Option<CallId>,
}

impl World {
    /// An empty daemon at 2026-01-01.
    pub fn new() -> Self {
        let project = Project {
            program: None,
            dir: "/project".into(),
            pid: 4242,
            started_at: Time(1_767_225_600_000),
            host: "127.0.0.1".into(),
            port: 31415,
            ..Project::default()
        };
        let state = State { project: Arc::new(project), ..State::default() };
        Self {
            state,
            now: Time(1_767_225_600_000),
            table: table(),
            seed: 0,
            next_call: 0,
            shown: Vec::new(),
            exit_sent: false,
            last_query: None,
        }
    }

    /// Limits the fields shown of agent records.
    pub fn show(&mut self, fields: &str) -> Vec<String> {
        self.shown = fields.split(',').map(|field| field.trim().to_owned()).collect();
        Vec::new()
    }

    /// Another daemon takes over, with what it has read.
    pub fn restart(&mut self, state: State) {
        self.state = state;
        self.exit_sent = false;
    }

    /// The random bits of the last event.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The random bits of the events from here on follow this number.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Applies one event and returns its effects, unrendered.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        // Snapshots of the counters need no randomness: the ids of a script do not depend on them.
        if !matches!(event, Event::Timer(Timer::Snapshot)) {
            self.seed = self.seed.wrapping_add(1);
        }
        let mut cx = Context::new(self.now, self.seed);
        cx.exit_sent = self.exit_sent;
        apply(&mut self.state, &mut cx, event);
        self.exit_sent = cx.exit_sent;
        cx.take()
    }

    /// The state of which this document is written now, to be encoded when it is read; `None` where there is
    /// nothing to write.
    pub fn written(&self, document: Document) -> Option<Arc<State>> {
        let may_be_gone = matches!(document, Document::Prompt(_) | Document::Handoff(_));
        let is_there = !may_be_gone || encode(document, &self.state).is_some();
        is_there.then(|| Arc::new(self.state.clone()))
    }

    /// A call as an event; the number is new.
    pub fn call(&mut self, command: Command) -> (CallId, Event) {
        self.next_call += 1;
        let call = CallId(self.next_call);
        (call, Event::Call(call, Actor::Operator, command))
    }

    /// `METHOD PATH [BODY]`.
    pub fn wish(&mut self, line: &str) -> Vec<String> {
        let (method, rest) = line.split_once(' ').unwrap_or((line, "/"));
        let (target, body) = rest.split_once(' ').unwrap_or((rest, ""));
        match self.handle(method, target, body) {
            Ok(reply) => vec![self.reply(&reply)],
            Err(command) => {
                let (_, event) = self.call(command);
                let effects = self.apply(event);
                self.render(effects)
            }
        }
    }

    /// Routes a request: a reply at once, or the command it becomes.
    pub fn handle(&self, method: &str, target: &str, body: &str) -> Result<Reply, Command> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let segments: Vec<String> =
            path.trim_start_matches('/').split('/').map(|part| decode_percent(part).unwrap()).collect();
        let address = "127.0.0.1:1".parse().unwrap();
        let request = Request {
            method: method.parse::<Method>().unwrap(),
            path: path.to_owned(),
            segments,
            query: parse_query(query).unwrap(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.as_bytes().to_vec(),
            peer: address,
            caller: std::sync::Arc::default(),
            local: address,
            base: String::new(),
        };
        let Found::Route(route, params) = self.table.find(&request.method, &request.segments) else {
            panic!("no route for {method} {target}");
        };
        let ask = Ask {
            request: &request,
            params: &params,
            state: &self.state,
            now: self.now,
            find_caller: &|| None,
            phone: None,
        };
        let outcome = match route.handler {
            Handler::Read(handler) | Handler::Shared(handler) => {
                return Ok(handler(&ask).unwrap_or_else(Into::into));
            }
            Handler::Write(_, handler) => handler(&ask),
            // Its I/O is counting strays.
            Handler::Work(..) if target == "/api/health" => return Ok(svc::oversight::api::health(&ask, 0)),
            // Their I/O is looking at folders.
            Handler::Work(..) if target.ends_with("/load") => Ok(Command::Teams(teams::Command::Load {
                target: params.get("name").to_owned(),
                prepared: std::collections::BTreeMap::new(),
            })),
            Handler::Work(..) if target.ends_with("/launch") => teams::api::parse_launch(&ask)
                .map(|launch| Command::Teams(teams::Command::Launch(Box::new(launch)))),
            // The only other handler with I/O that becomes a command; its I/O is looking at the folder.
            Handler::Work(..) if method == "POST" => {
                spawn::parse(&request).map(|(agent, timing)| spawn::command(agent, timing))
            }
            Handler::Work(..) => panic!("{target} does I/O"),
        };
        match outcome {
            Ok(command) => Err(command),
            Err(problem) => Ok(problem.into()),
        }
    }

    /// The id of the agent of this name.
    pub fn id(&self, name: &str) -> AgentId {
        self.state.agents.find(name).unwrap_or_else(|problem| panic!("{problem}")).id
    }

    /// `NAME WHAT [..]`, or `answer TEXT` for the last question.
    pub fn fact(&mut self, line: &str) -> Vec<String> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (what, words) = rest.split_once(' ').unwrap_or((rest, ""));
        let event = match name {
            "answer" => {
                let tokens = Tokens { input: 10, output: 5, ..Tokens::default() };
                Event::Job(JobReport::Query(self.last_query.unwrap(), Ok((rest.to_owned(), tokens))))
            }
            "storage" => Event::Storage((what != "works").then(|| rest.to_owned())),
            "signal" => Event::Terminate,
            _ if what == "plan-file" => Event::Teams(teams::plan::Found {
                planner: self.id(name),
                file: Some(Ok((words.to_owned(), words.to_owned()))),
            }),
            _ if what == "brief" => Event::Job(JobReport::Brief(self.id(name), Ok(words.to_owned()))),
            _ if what == "no-brief" => Event::Job(JobReport::Brief(self.id(name), Err(words.to_owned()))),
            _ => Event::Run(self.id(name), self.report(name, what, words)),
        };
        let effects = self.apply(event);
        self.render(effects)
    }

    fn report(&self, name: &str, what: &str, words: &str) -> RunReport {
        let number = |text: &str| text.parse::<i32>().unwrap();
        match what {
            "started" => RunReport::Started { pid: 100, start_ticks: 1 },
            "start-fails" => RunReport::StartFailed { error: words.to_owned() },
            "exits" => RunReport::Exited {
                code: Some(number(words)),
                signal: None,
                stderr_tail: String::new(),
                leaked: 0,
                keeper: Keeper::Told,
                signalled: false,
            },
            "dies-by-signal" => RunReport::Exited {
                code: None,
                signal: Some(number(words)),
                stderr_tail: String::new(),
                leaked: 0,
                keeper: Keeper::Told,
                signalled: false,
            },
            "takes" | "refuses" => {
                let agent = self.state.agents.find(name).unwrap();
                let message = agent.queue.iter().find(|message| message.sent).unwrap();
                RunReport::Said { message_id: message.id, delivered: what == "takes" }
            }
            "writes" => {
                let ended = Activity::ToolEnded { id: "t1".into(), error: false, output: String::new() };
                output(vec![activity(what, words), ended])
            }
            _ => output(vec![activity(what, words)]),
        }
    }

    /// `10m`, `30s`, `100ms`: time passes and deadlines come due.
    pub fn pass(&mut self, length: &str) -> Vec<String> {
        let split = length.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let count: u64 = length[..split].parse().unwrap();
        let millis = match &length[split..] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            unit => panic!("no such unit: {unit}"),
        };
        let mut told = Vec::new();
        let until = self.now + Duration::from_millis(count * millis);
        while let Some(effects) = self.next_due(until) {
            told.extend(self.render(effects));
        }
        told
    }

    /// Moves to the next deadline before `until` and applies it; `None` when there is none, at `until`.
    pub fn next_due(&mut self, until: Time) -> Option<Vec<Effect>> {
        let Some((at, _)) = self.state.timers.next().filter(|(at, _)| *at <= until) else {
            self.now = until;
            return None;
        };
        self.now = self.now.max(at);
        let timer = Arc::make_mut(&mut self.state.timers).take_due(self.now)?;
        Some(self.apply(Event::Timer(timer)))
    }

    fn render(&mut self, effects: Vec<Effect>) -> Vec<String> {
        let mut lines = Vec::new();
        for effect in effects.into_iter().filter(|effect| !is_counting(effect)) {
            // The disk of a script takes everything at once.
            let awaited = if let Effect::AwaitDisk(call) = &effect { Some(*call) } else { None };
            lines.push(self.line(&effect));
            if let Some(call) = awaited {
                let then = self.apply(Event::OnDisk(call, Ok(())));
                lines.extend(self.render(then));
            }
        }
        lines
    }

    fn name(&self, id: AgentId) -> String {
        self.state.agents.get(id).map_or_else(|| id.to_string(), |agent| agent.name.clone())
    }

    /// An effect, in a line.
    pub fn line(&mut self, effect: &Effect) -> String {
        match effect {
            Effect::Reply(_, reply) | Effect::ReplyStored(_, reply) => self.reply(&reply.http()),
            Effect::Put(document, Durability::BeforeReply) => {
                format!("! write {} before the reply", document.path())
            }
            Effect::Put(document, Durability::Soon) => format!("! write {} soon", document.path()),
            Effect::Put(document, Durability::Later) => format!("! write {} later", document.path()),
            Effect::Append(_, line) => {
                let entry: Value = serde_json::from_slice(line).unwrap();
                format!(
                    "! audit {} by {}",
                    entry["event"].as_str().unwrap(),
                    entry["actor"].as_str().unwrap()
                )
            }
            Effect::Trim(journal, entries) => format!("! trim {} to {entries}", journal.path()),
            Effect::Remove(document) => format!("! remove {}", document.path()),
            Effect::WhenStored(timer) => format!("! when stored {timer:?}"),
            Effect::Notice(notice) => {
                let text = format!("{}}}", String::from_utf8(notice.frame().to_vec()).unwrap());
                let value: Value = serde_json::from_str(&text).unwrap();
                format!("~ {}", self.trim(&value))
            }
            Effect::Output(batch) => format!("~ {} lines of output", batch.activities.len()),
            Effect::StateChanged(changes) => {
                let changed: Vec<_> = changes.changed.iter().map(|id| self.name(*id)).collect();
                let removed: Vec<_> = changes.removed.iter().map(ToString::to_string).collect();
                format!("~ state changed=[{}] removed=[{}]", changed.join(" "), removed.join(" "))
            }
            Effect::Run(id, order) => format!("! {} {}", order_words(order), self.name(*id)),
            Effect::Integrations(order) => format!("! integration {order:?}"),
            Effect::Job(job) => {
                if let agents::Job::Query { call, .. } = job {
                    self.last_query = Some(*call);
                }
                format!("! job {}", job_words(job))
            }
            Effect::Log(_, id, entry) => format!("! log {} {}", self.name(*id), json!(entry)),
            Effect::Teams(look) => format!("! look at the plan of {}", self.name(look.0)),
            Effect::Warn(text) => format!("! warn {text}"),
            Effect::Gateways(order) => format!("! gateway {order:?}"),
            Effect::Cleanup(_) => "! clean up".to_owned(),
            Effect::AwaitDisk(_) => "! await the disk".into(),
            Effect::Journalist(order) => {
                let names: Vec<_> = order.files.iter().map(|(name, _)| *name).collect();
                format!("! write down {}", names.join(" "))
            }
            Effect::Governor(order) => format!("! governor {order:?}"),
            Effect::Accounts(order) => format!("! accounts {order:?}"),
            Effect::Alerts(order) => format!("! tell {order:?}"),
            Effect::Telemetry(order) => format!("! export {} spans", order.spans.len()),
            Effect::Webhooks(order) => format!("! webhook {order:?}"),
            Effect::Phones(order) => format!("! phone {order:?}"),
            Effect::Workspace(order) => format!("! import {} {}", order.id, order.request.path),
            Effect::Runners(order) => {
                format!("! do {} errands on runner {}", order.errands.len(), order.runner.name)
            }
            Effect::Ownership(order) => format!("! look for changes in {:?}", order.roots),
            Effect::Settled(id, n) => format!("! tell {} when {n} is stored", self.name(*id)),
            Effect::LeaveRuns => "! leave all runs to their keepers".into(),
            Effect::Exit => "! exit".into(),
        }
    }

    fn reply(&self, reply: &Reply) -> String {
        let body: Value = serde_json::from_slice(reply.body.bytes()).unwrap_or_default();
        format!("< {} {}", reply.status, self.trim(&body))
    }

    /// Keeps the chosen fields of agent records, wherever they stand.
    fn trim(&self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.trim(item)).collect(),
            Value::Object(map) => {
                let record = map.contains_key("lineageId") && !self.shown.is_empty();
                let kept = map.iter().filter(|(key, _)| !record || self.shown.contains(key));
                Value::Object(kept.map(|(key, value)| (key.clone(), self.trim(value))).collect())
            }
            other => other.clone(),
        }
    }
}

/// Counters that are written now and then say nothing about an event.
fn is_counting(effect: &Effect) -> bool {
    let documents = [Document::Usage, Document::Adaptive, Document::Timeline];
    matches!(effect, Effect::Put(document, Durability::Soon) if documents.contains(document))
        || matches!(effect, Effect::Settled(..))
}

/// A batch without frames.
pub fn output(activities: Vec<Activity>) -> RunReport {
    RunReport::Output(Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() })
}

/// An activity in few words.
pub fn activity(what: &str, words: &str) -> Activity {
    match what {
        "says" => Activity::Text { text: words.to_owned() },
        "session" => Activity::Session { id: words.to_owned(), model: None },
        "trouble" => Activity::Trouble { text: words.to_owned() },
        "writes" => Activity::ToolStarted {
            id: "t1".into(),
            name: "write".into(),
            input: json!({"path": words}),
            path: Some(words.to_owned()),
            writes: true,
        },
        "uses" => {
            let numbers: Vec<i64> = words.split('/').map(|n| n.parse().unwrap()).collect();
            Activity::Usage(Usage {
                delta: TokensDelta { input: numbers[0], output: numbers[1], ..TokensDelta::default() },
                context_tokens: u64::try_from(numbers[0]).ok(),
                context_window: Some(1000),
                ..Usage::default()
            })
        }
        "ends-turn" => Activity::TurnEnded(TurnEnd { text: words.to_owned(), ..TurnEnd::default() }),
        "fails-turn" => {
            Activity::TurnEnded(TurnEnd { is_error: true, error: words.to_owned(), ..TurnEnd::default() })
        }
        other => panic!("no such fact: {other}"),
    }
}

fn order_words(order: &RunOrder) -> String {
    match order {
        RunOrder::Decide { question, ruling } => format!("decide {question} {} for", ruling.allow),
        RunOrder::Start(start) => format!(
            "start with {:?} as {:?}:",
            start.request.prompt.lines().next().unwrap_or_default(),
            start.request.session
        ),
        RunOrder::Say { text, .. } => format!("say {text:?} to"),
        RunOrder::Finish => "finish".into(),
        RunOrder::Interrupt => "interrupt".into(),
        RunOrder::Settings => "settings".into(),
        RunOrder::Stop => "stop".into(),
    }
}

fn job_words(job: &agents::Job) -> String {
    match job {
        agents::Job::Brief { facts, .. } => format!("brief for {}", facts.name),
        agents::Job::Learn { agent, .. } => format!("learn from the log of {agent}"),
        agents::Job::Query { request, .. } => format!("query {:?}", request.prompt),
        agents::Job::Move(order) => format!("move {}", order.agent.name),
        agents::Job::CancelQuery(_) => "cancel query".into(),
    }
}
