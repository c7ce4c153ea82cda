//! `/api/agents`: fields in, records out.

use super::queue::Priority;
use super::record::View;
use super::{
    Agent, Command, Deliver, Isolation, Patch, SpawnRequest, Wish, moving, scope, spawn, worker_api,
};
use crate::api::{FieldError, Fields, Method, Problem, Reply, Route, schema_of};
use crate::core::State;
use crate::endpoint::{Access, Ask, Handler, Worker};
use crate::providers::environment::Extra;
use crate::providers::{self, Effort, Permission, Purpose};
use crate::settings::OnLimit;
use serde_json::{Map, Value, json};
use svc_base::choice::of_word;

/// Characters of a prompt, instruction or question.
pub const MAX_PROMPT_CHARS: usize = 200_000;
const MAX_ROLE_CHARS: usize = 50;
const MAX_NAME_CHARS: usize = 64;
const MAX_LIST: usize = 50;
const MAX_WORD_CHARS: usize = 200;

/// The kind of terminal that most are.
const DEFAULT_TERM: &str = "xterm-256color";

const EFFORTS: [&str; 4] = ["low", "medium", "high", "max"];
const PERMISSIONS: [&str; 2] = ["auto", "full"];

/// The routes of the agents.
pub fn routes(spawn: Worker) -> Vec<Route<Handler>> {
    let mut routes = record_routes(spawn);
    routes.extend(talk_routes());
    routes
}

fn talk_routes() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::Write;
    vec![
        Route::new(
            Method::Post,
            "/api/agents/:id/attach",
            "Let a person be at the program's own screen: 'svc attach' asks until there is a token",
            Write(OperatorOnly, attach),
        )
        .body(|| schema_of(wish))
        .replies(&[
            (200, "agentId, agentName, token: null until the screen is there"),
            (409, "its program has no such screen, there is no session, or it is about something else"),
        ]),
        Route::new(
            Method::Delete,
            "/api/agents/:id/attach",
            "Withdraw the wish, or let the person leave the screen",
            Write(OperatorOnly, |ask| Ok(Command::GiveBack(ask.target()).into())),
        )
        .replies(&[(200, "it is on its way"), (409, "nobody is there or waits")]),
        Route::new(
            Method::Post,
            "/api/agents/:id/move",
            "Let an agent go on on another machine, or here again, in its session and with its work",
            Write(OperatorOnly, moves),
        )
        .body(|| schema_of(whither))
        .body_limit(2 << 20)
        .replies(&[
            (200, "runner, session: goes, new or none, why; waits: its turn has to end first; agent"),
            (400, "the runner is not known or lacks something"),
            (409, "already_there, no_worktree, move_under_way, unreachable, or it is about something else"),
            (502, "move_failed: it stays where it was, and why"),
        ]),
        Route::new(
            Method::Post,
            "/api/agents/:id/instruct",
            "Say something to an agent",
            Write(Anyone, instruct),
        )
        .body(|| schema_of(instruction))
        .body_limit(2 << 20),
        Route::new(
            Method::Post,
            "/api/agents/:id/query",
            "Ask a question without disturbing it",
            Write(Anyone, query),
        )
        .body(|| schema_of(question))
        .body_limit(2 << 20)
        .replies(&[
            (200, "answer, agentId, agentName, tokens"),
            (409, "its provider cannot"),
            (504, "no answer within 60 s"),
        ]),
        Route::new(
            Method::Post,
            "/api/agents/:id/rotate",
            "Replace an agent by a fresh one with a handoff brief",
            Write(Anyone, |ask| Ok(Command::Rotate(ask.target()).into())),
        )
        .replies(&[
            (200, "old, new, handoffBrief, reason, agent"),
            (409, "it has ended or is being rotated"),
        ]),
        Route::new(Method::Post, "/api/agents/:id/resume", "Continue an ended agent", Write(Anyone, resume))
            .body(|| schema_of(resumption))
            .body_limit(2 << 20),
    ]
}

fn record_routes(spawn: Worker) -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::{Read, Shared, Work, Write};
    vec![
        Route::new(Method::Get, "/api/agents", "All agents", Shared(list))
            .query(&[("fields", "names of fields, separated by commas: only these of each record")])
            .replies(&[(200, "an array of records"), (304, "as If-None-Match says"), (400, "no such field")]),
        Route::new(Method::Post, "/api/agents", "Start an agent", Work(Anyone, spawn))
            .body(spawn_schema)
            .body_limit(2 << 20)
            .replies(&[
                (201, "the record"),
                (400, "a field is wrong; every fault is listed"),
                (409, "maxAgents are alive already; no_runner_fits: no runner with that label, and why"),
            ]),
        Route::new(Method::Get, "/api/agents/:id", "One agent, with its whole prompt", Read(get))
            .replies(&[(200, "the record"), (404, "no such agent")]),
        Route::new(Method::Patch, "/api/agents/:id", "Change a record", Write(Anyone, patch))
            .body(|| schema_of(changes)),
        Route::new(
            Method::Delete,
            "/api/agents/:id",
            "End an agent and everything it started; remove an ended one",
            Write(Anyone, |ask| Ok(Command::Delete(ask.target()).into())),
        )
        .replies(&[(200, "it is gone"), (404, "no such agent")]),
        Route::new(
            Method::Get,
            "/api/agents/:id/log",
            "What an agent did, as normalised activity",
            Work(Anyone, worker_api::log),
        )
        .query(&[
            ("tail", "the last N entries; 100 when neither tail nor since is given"),
            ("since", "entries after this number, or after this RFC 3339 time"),
        ]),
        Route::new(Method::Get, "/api/agents/:id/files", "Files an agent touched", Read(files)),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let agents = ask.state.agents.iter().map(|agent| agent.rest());
    match ask.request.query("fields") {
        None => Ok(Reply::ok(&agents.collect::<Vec<_>>())),
        Some(names) => Ok(Reply::ok(&agents.map(|agent| only(names, agent)).collect::<Result<Vec<_>, _>>()?)),
    }
}

/// These fields of a record, in the record's own order.
///
/// Errors: 400 for a field that no record has.
fn only(names: &str, agent: View) -> Result<Map<String, Value>, Problem> {
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let Value::Object(mut all) = json!(agent) else { return Ok(Map::new()) };
    if let Some(name) = names.iter().find(|name| !all.contains_key(**name)) {
        let known = all.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let error = FieldError {
            field: "fields".into(),
            message: format!("there is no field \"{name}\"; there are {known}"),
        };
        return Err(Problem::validation(vec![error]));
    }
    all.retain(|name, _| names.contains(&name.as_str()));
    Ok(all)
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    let agent = ask.state.agents.find(&ask.target())?;
    let mut body = json!(agent.rest());
    body["prompt"] = json!(agent.prompt);
    body["instructions"] = json!(agent.queue);
    body["env"] = json!(agent.env);
    body["room"] = room_shown(ask.state, agent);
    Ok(Reply::ok(&body))
}

/// The room of an agent as people see it: `home` as the setting has it, and the places that it can write to
/// and that stay when it ends; `null` for one without.
fn room_shown(state: &State, agent: &Agent) -> Value {
    let Some(room) = spawn::room(state) else { return Value::Null };
    let project = spawn::fence(state, agent, Purpose::Work).unwrap_or_else(|| vec!["**".to_owned()]);
    let own = providers::info_of(&agent.provider).state_places.iter().map(|place| format!("~/{place}"));
    let kept: Vec<String> = project.into_iter().chain(own).chain(room.grants).collect();
    json!({"home": room.home, "kept": kept})
}

fn files(ask: &Ask) -> Result<Reply, Problem> {
    let agent = ask.state.agents.find(&ask.target())?;
    let files: Vec<_> = agent
        .files
        .iter()
        .map(|(path, touched)| json!({"path": path, "reads": touched.reads, "writes": touched.writes}))
        .collect();
    Ok(Reply::ok(&json!({"agentId": agent.id, "files": files})))
}

/// Reads a wish for an agent, wherever it comes from, by the rules of `POST /api/agents`.
///
/// Errors: 400 with every fault.
pub fn spawn_body(body: &Map<String, Value>) -> Result<SpawnRequest, Problem> {
    spawn_request(Fields::new(body))
}

/// Reads the fields of a new agent that somebody asks for.
///
/// Errors: 400 with every fault.
pub fn spawn_request(mut fields: Fields) -> Result<SpawnRequest, Problem> {
    let request = asked(&mut fields);
    fields.validator.finish()?;
    Ok(request)
}

fn asked(fields: &mut Fields) -> SpawnRequest {
    // Only here: what agents write (plans, schedules, recommendations) has none of these.
    let env = env_field(fields).unwrap_or_default();
    let on_limit = on_limit(fields);
    let priority = fields.choice("priority", Priority::WORDS).and_then(of_word).unwrap_or_default();
    SpawnRequest { env, on_limit, priority, ..placed(fields) }
}

/// With whose login it works, and where.
fn placed(fields: &mut Fields) -> SpawnRequest {
    let account = bounded_word(fields, "account");
    let runner = bounded_word(fields, "runner");
    let described = described(fields);
    // Its branch is here, wherever it works.
    let isolation = if runner.is_some() { Isolation::Worktree } else { described.isolation };
    SpawnRequest { isolation, account, runner, ..described }
}

/// Reads the fields of an agent, wherever they stand: in a request, a schedule, a plan's task.
///
/// Errors: 400 with every fault.
pub fn spawn_fields(mut fields: Fields) -> Result<SpawnRequest, Problem> {
    let request = placed(&mut fields);
    fields.validator.finish()?;
    Ok(request)
}

/// Whether these fields name another machine.
pub fn names_runner(fields: &Fields) -> bool {
    fields.value("runner").and_then(Value::as_str).is_some_and(|runner| !runner.is_empty())
}

fn described(fields: &mut Fields) -> SpawnRequest {
    fields.tell("role", || json!({"pattern": "^[A-Za-z0-9_-]{1,50}$"}));
    let role = fields.required_string("role").unwrap_or_default().to_owned();
    if !role.is_empty() {
        word(fields, "role", &role, MAX_ROLE_CHARS, "_-");
    }
    let name = name_field(fields);
    let globs = scope_field(fields).unwrap_or_default();
    let prompt = bounded(fields, "prompt").unwrap_or_default().to_owned();
    let model = model(fields);
    let provider = bounded_word(fields, "provider");
    let command = list_of_words(fields, "command");
    let is_acp = provider.as_deref() == Some("acp");
    fields.validator.check(command.is_empty() || is_acp, "command", || {
        "command goes with provider acp only; other providers know theirs".to_owned()
    });
    SpawnRequest {
        role,
        name,
        scope: globs,
        provider,
        model,
        working_dir: bounded_word(fields, "workingDir").unwrap_or_default(),
        prompt,
        integrations: list_of_words(fields, "integrations"),
        skills: list_of_words(fields, "skills"),
        permission: permission(fields).unwrap_or_default(),
        effort: effort(fields).unwrap_or_default(),
        team_id: bounded_word(fields, "teamId"),
        isolation: fields.choice("isolation", &["shared", "worktree"]).and_then(of_word).unwrap_or_default(),
        command,
        ..SpawnRequest::default()
    }
}

/// What a person says for one agent.
fn on_limit(fields: &mut Fields) -> Option<OnLimit> {
    fields.choice("onLimit", OnLimit::WORDS).and_then(of_word)
}

fn patch(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::Patch(ask.target(), Box::new(ask.request.read(changes)?)).into())
}

fn changes(fields: &mut Fields) -> Patch {
    Patch {
        name: name_field(fields),
        scope: scope_field(fields),
        model: Some(model(fields)).filter(|_| fields.has("model")),
        effort: effort(fields),
        permission: permission(fields),
        team_id: bounded_word(fields, "teamId"),
        on_limit: on_limit(fields),
    }
}

/// `null` and an empty text leave it to routing.
fn model(fields: &mut Fields) -> Option<String> {
    let model = bounded_word(fields, "model");
    fields.tell("model", || json!({"type": ["string", "null"]}));
    model
}

fn moves(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::Move(ask.target(), ask.request.read(whither)?).into())
}

fn whither(fields: &mut Fields) -> moving::Wish {
    let runner = fields.required_string("runner").unwrap_or_default().to_owned();
    let now = fields.boolean("now").unwrap_or_default();
    moving::Wish { runner, now, message: message(fields) }
}

fn instruct(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let (message, deliver) = ask.request.read(instruction)?;
    Ok(Command::Instruct { target: ask.target(), message, deliver }.into())
}

fn instruction(fields: &mut Fields) -> (String, Deliver) {
    let message = required(fields, "message");
    let deliver = fields.choice("deliver", &["rotation", "now", "idle", "auto"]).and_then(of_word);
    (message, deliver.unwrap_or_default())
}

fn attach(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::Attach(ask.target(), ask.request.read(wish)?).into())
}

fn wish(fields: &mut Fields) -> Wish {
    let now = fields.boolean("now").unwrap_or(false);
    fields.tell("term", || json!({"pattern": "^[A-Za-z0-9+._-]{1,64}$"}));
    let term = fields.string("term").unwrap_or(DEFAULT_TERM).to_owned();
    word(fields, "term", &term, MAX_NAME_CHARS, "+._-");
    Wish { now, term }
}

fn query(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::Query { target: ask.target(), question: ask.request.read(question)? }.into())
}

fn question(fields: &mut Fields) -> String {
    required(fields, "question")
}

fn resume(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let (message, runner) = ask.request.read(resumption)?;
    Ok(Command::Resume { target: ask.target(), message, runner }.into())
}

fn resumption(fields: &mut Fields) -> (Option<String>, Option<String>) {
    (message(fields), bounded_word(fields, "runner"))
}

fn message(fields: &mut Fields) -> Option<String> {
    bounded(fields, "message").filter(|text| !text.trim().is_empty()).map(ToOwned::to_owned)
}

fn required(fields: &mut Fields, name: &str) -> String {
    if fields.required_string(name).is_none() {
        fields.tell(name, || json!({"maxLength": MAX_PROMPT_CHARS}));
        return String::new();
    }
    bounded(fields, name).unwrap_or_default().to_owned()
}

fn bounded<'a>(fields: &mut Fields<'a>, name: &str) -> Option<&'a str> {
    fields.tell(name, || json!({"maxLength": MAX_PROMPT_CHARS}));
    let text = fields.string(name)?;
    let chars = text.chars().count();
    fields.validator.check(chars <= MAX_PROMPT_CHARS, name, || {
        format!("{name} must have at most {MAX_PROMPT_CHARS} characters, it has {chars}")
    });
    fields.validator.check(!text.contains('\0'), name, || format!("{name} must not contain NUL"));
    Some(text)
}

/// A short string; empty counts as absent.
fn bounded_word(fields: &mut Fields, name: &str) -> Option<String> {
    let text = fields.string(name)?;
    let fits = text.chars().count() <= MAX_WORD_CHARS && !text.chars().any(char::is_control);
    fields.validator.check(fits, name, || {
        format!("{name} must have at most {MAX_WORD_CHARS} characters and no control characters")
    });
    (!text.is_empty()).then(|| text.to_owned())
}

fn list_of_words_schema() -> Value {
    json!({"type": "array", "items": {"type": "string", "maxLength": MAX_WORD_CHARS}})
}

fn list_of_words(fields: &mut Fields, name: &str) -> Vec<String> {
    let list = fields.strings(name).unwrap_or_default();
    fields.tell(name, list_of_words_schema);
    let fits = |text: &&str| (1..=MAX_WORD_CHARS).contains(&text.chars().count()) && !text.contains('\0');
    fields.validator.check(list.len() <= MAX_LIST && list.iter().all(fits), name, || {
        format!("{name} must have at most {MAX_LIST} strings of 1 to {MAX_WORD_CHARS} characters")
    });
    list.into_iter().map(ToOwned::to_owned).collect()
}

fn word(fields: &mut Fields, name: &str, text: &str, max: usize, extra: &str) {
    let fits = (1..=max).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c));
    fields.validator.check(fits, name, || {
        format!("{name} must be 1 to {max} of the characters A-Z a-z 0-9 {extra}, it is {text:?}")
    });
}

/// Who is no agent: names that stand for somebody else where a person reads who did or asks something.
const OTHERS: [&str; 19] = [
    "admin",
    "administrator",
    "chat",
    "console",
    "daemon",
    "discord",
    "human",
    "me",
    "nobody",
    "operator",
    "person",
    "root",
    "slack",
    "svc",
    "system",
    "telegram",
    "unknown",
    "user",
    "you",
];

/// The name of an agent: a word, and nobody else's.
fn name_field(fields: &mut Fields) -> Option<String> {
    fields.tell("name", || json!({"pattern": "^[A-Za-z0-9_.-]{1,64}$"}));
    let name = fields.string("name")?.to_owned();
    word(fields, "name", &name, MAX_NAME_CHARS, "_.-");
    let folded: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    fields.validator.check(!OTHERS.contains(&folded.as_str()), "name", || {
        format!("name {name:?} stands for somebody who is no agent, choose another")
    });
    Some(name)
}

/// A list of globs; a single string counts as one.
fn scope_field(fields: &mut Fields) -> Option<Vec<String>> {
    fields.tell("scope", list_of_words_schema);
    let value = fields.value("scope")?;
    let globs = match value.as_str() {
        Some(one) => vec![one],
        None => fields.strings("scope")?,
    };
    scope::check(&globs, &mut fields.validator);
    Some(globs.into_iter().map(ToOwned::to_owned).collect())
}

/// `{"pass": [NAME..], "set": {NAME: VALUE}}`.
fn env_field(fields: &mut Fields) -> Option<Extra> {
    let set = || json!({"type": "object", "additionalProperties": {"type": ["string", "null"]}});
    let parts = || json!({"pass": list_of_words_schema(), "set": set()});
    fields.tell("env", || json!({"type": "object", "properties": parts()}));
    let value = fields.value("env")?;
    match serde_json::from_value::<Extra>(value.clone()) {
        Ok(extra) => {
            for (part, fault) in extra.faults() {
                fields.validator.fail("env", format!("env.{part} {fault}"));
            }
            Some(extra)
        }
        Err(error) => {
            fields
                .validator
                .fail("env", format!("env must be like {{\"pass\": [], \"set\": {{}}}}: {error}"));
            None
        }
    }
}

fn effort(fields: &mut Fields) -> Option<Effort> {
    fields.shown_choice("effort", &EFFORTS, &[]).and_then(of_word)
}

fn permission(fields: &mut Fields) -> Option<Permission> {
    fields.shown_choice("permission", &PERMISSIONS, &[("full send", "full")]).and_then(of_word)
}

/// With the fields that a schedule is made of, which are read beside it.
fn spawn_schema() -> Value {
    schema_of(|fields| {
        fields.tell("schedule", || json!({"type": "string"}));
        fields.tell("timezone", || json!({"type": "string"}));
        asked(fields)
    })
}
