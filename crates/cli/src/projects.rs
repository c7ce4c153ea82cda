//! `svc ps`: the daemons of all projects of this user.

use super::client::{Address, Client};
use super::commands::{ANY, Command, Group, switch};
use super::render::{Table, age};
use super::session::{Failure, Outcome, Session, now};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;
use svc_sys::registry::{Entry, Registry};

/// A daemon that says nothing for so long is told as silent.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Daemons that are asked at the same time.
const ASKED_AT_ONCE: usize = 16;

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "ps",
    group: Group::Daemon,
    summary: "list the daemons of all your projects",
    usage: "ps [--forget [NAME..]]",
    words: (0, ANY),
    options: &[switch(
        "forget",
        "forget these projects, or all whose daemons are stopped; nothing of them is removed",
    )],
    details: "A project has a place in the list from its first daemon on, under a name that stays; 200 are kept,\n\
              and of more the one that was stopped longest ago goes. silent: its daemon gave no answer within 3 s.",
    run: ps,
    ..Command::PLAIN
}];

fn registry() -> Result<Registry, Failure> {
    Registry::of_user().ok_or_else(|| Failure::failed("there is no home folder: set HOME or XDG_CONFIG_HOME"))
}

/// All projects of this user.
pub(super) fn all() -> Result<Vec<Entry>, Failure> {
    registry()?.list().map_err(|error| Failure::failed(format!("the list of projects: {error}")))
}

/// A client of this project's daemon, which waits for no answer longer than `limit`; `None` for one that does
/// not listen.
pub(super) fn client_of(entry: &Entry, limit: Duration) -> Option<Client> {
    if !entry.is_running || entry.facts.url.is_empty() {
        return None;
    }
    let project = Some(entry.facts.project.clone());
    let address = Address { url: entry.facts.url.clone(), project, source: "daemon.port".into() };
    Some(Client::new(address).ok()?.within(limit))
}

/// What `ask` comes to for each of them, in their order.
pub(super) fn each<T: Send>(entries: &[Entry], ask: impl Fn(&Entry) -> T + Sync) -> Vec<T> {
    let mut answers = Vec::new();
    for some in entries.chunks(ASKED_AT_ONCE) {
        thread::scope(|scope| {
            let ask = &ask;
            let asked: Vec<_> = some.iter().map(|entry| scope.spawn(move || ask(entry))).collect();
            // A thread that panicked has said why.
            answers.extend(asked.into_iter().filter_map(|one| one.join().ok()));
        });
    }
    answers
}

fn ps(session: &Session) -> Outcome {
    let (args, out) = (&session.args, &session.out);
    if args.flag("forget") {
        return forget(session);
    }
    if !args.words.is_empty() {
        return Err(Failure::usage("svc ps takes names only with --forget; see 'svc help ps'"));
    }
    let answer = Value::from(each(&all()?, look));
    let Some(projects) = out.rows(&answer, &answer, "name")? else { return Ok(()) };
    let mut table = Table::new(&["NAME", "STATE", "AGENTS", "WAITING", "UP", "ADDRESS", "PROJECT"])
        .numeric(&[2, 3])
        .optional(&[5, 4]);
    for project in projects {
        let number = |name: &str| project[name].as_u64().map_or_else(|| "-".into(), |n| n.to_string());
        let word = |name: &str| super::target::text(project, name).to_owned();
        let up = project["since"].as_u64().map(|since| Duration::from_millis(now().0.saturating_sub(since)));
        table.row(&[
            word("name"),
            word("state"),
            number("running"),
            number("waiting"),
            up.map_or_else(|| "-".into(), age),
            word("url"),
            word("project"),
        ]);
    }
    out.table(&table, "no daemon was ever started; 'svc start --background' in a project starts one")
}

fn look(entry: &Entry) -> Value {
    let facts = &entry.facts;
    let mut shown = json!({"name": entry.name, "state": "stopped", "project": facts.project});
    if !entry.is_running {
        return shown;
    }
    let Some(client) = client_of(entry, ANSWER_LIMIT) else {
        shown["state"] = "starting".into();
        return shown;
    };
    shown["url"] = facts.url.clone().into();
    shown["pid"] = facts.pid.into();
    shown["since"] = facts.since.into();
    match client.try_call("GET", "/api/status", None) {
        Ok(status) => {
            shown["state"] = "running".into();
            for name in ["version", "agents", "running", "waiting"] {
                shown[name] = status[name].clone();
            }
        }
        Err(_) => shown["state"] = "silent".into(),
    }
    shown
}

fn forget(session: &Session) -> Outcome {
    let (out, registry) = (&session.out, registry()?);
    let names = &session.args.words;
    let stopped = || -> Result<Vec<String>, Failure> {
        let stopped = all()?.into_iter().filter(|entry| !entry.is_running);
        Ok(stopped.map(|entry| entry.name).collect())
    };
    let names = if names.is_empty() { stopped()? } else { names.clone() };
    for name in &names {
        match registry.forget(name) {
            Ok(true) => {}
            Ok(false) => {
                return Err(Failure::failed(format!("there is no project {name}; 'svc ps' lists them")));
            }
            Err(error) => {
                return Err(Failure::failed(format!("{name} cannot be forgotten: {error}; stop it first")));
            }
        }
    }
    out.told(&json!({"forgotten": names}), "", &format!("forgotten: {}", names.len()))
}
