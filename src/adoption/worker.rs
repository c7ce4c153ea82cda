//! The list of sessions, and the reading of one that is adopted, on the caller's own thread.

use super::worker_read::{self, Seen};
use super::worker_running::{self, Running, holder};
use super::{Command, api};
use crate::accounts;
use crate::agents::adopt::{self, Adopted};
use crate::agents::{FileTouch, LogEntry, OpenFiles, SpawnRequest, Touched};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{State, untrusted_line};
use crate::endpoint::{Answer, Ask};
use crate::providers::environment::{self, Extra};
use crate::providers::outside::{Kept, LISTED_MAX, Reader, Session};
use crate::providers::{self, Activity, Info, Program, Provider, Step, Tokens};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::sorted;
use svc_sys::clock;
use svc_sys::files::on_path;
use svc_sys::process::{Spec, Stdin};

/// A list takes so long at most; what was not looked at then is said.
const LIST_TIME: Duration = Duration::from_secs(20);
/// A program that tells itself has so long to tell of one session.
const TOLD_TIME: Duration = Duration::from_secs(50);
/// Records of one home that are opened for a list: of some programs those of all projects lie together.
pub(super) const OPENED_MAX: usize = 1_000;
/// Bytes that a program may tell of its sessions.
const TOLD_BYTES: usize = 64 << 20;
/// Entries of a history; of a longer one the last.
const ENTRIES_MAX: usize = 50_000;

/// A place where a program keeps sessions.
pub(super) struct Home {
    pub provider: &'static dyn Provider,
    pub account: Option<String>,
    env: Vec<(OsString, OsString)>,
    pub kept: Kept,
}

/// The homes of all programs that keep sessions, the default ones and those of accounts.
pub(super) fn homes(state: &State, project: &Path, only: Option<&str>) -> Vec<Home> {
    let mut homes = Vec::new();
    let fits = |info: &Info| only.is_none_or(|id| info.id == id);
    for provider in providers::all().iter().filter(|provider| fits(provider.info())) {
        let info = provider.info();
        let own =
            state.accounts.iter().filter(|account| account.provider == info.id && account.home.is_some());
        let names = std::iter::once(None).chain(own.map(|account| Some(account.name.clone())));
        for account in names {
            let of_account = accounts::environment(state, info.id, account.as_deref());
            let extra: Extra = state.settings.config().env.of(info.id).then(&of_account);
            let env = environment::of_child(std::env::vars_os(), info, &extra, &[], &[]);
            let variable = |name: &str| {
                env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| PathBuf::from(value))
            };
            let Some(kept) = provider.kept_sessions(project, &variable) else { continue };
            homes.push(Home { provider: *provider, account, kept, env });
        }
    }
    homes
}

/// The only provider that is asked for.
///
/// Errors: 400 where it is none.
pub(super) fn wanted_provider<'a>(ask: &Ask<'a>) -> Result<Option<&'a str>, Problem> {
    let only = ask.request.query("provider").filter(|text| !text.is_empty());
    if let Some(id) = only.filter(|id| providers::by_id(id).is_none()) {
        let message = format!("provider {id:?} is not one; GET /api/providers lists them");
        return Err(Problem::invalid("provider", message));
    }
    Ok(only)
}

/// `GET /api/sessions`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let only = wanted_provider(ask)?;
    let deadline = Instant::now() + LIST_TIME;
    let mut notes = Vec::new();
    let mut found: Vec<(Option<Time>, Value)> = Vec::new();
    let running = worker_running::all(&host.project);
    for home in homes(ask.state, &host.project, only) {
        let sessions = listed(host, &home, deadline, &mut notes);
        let show = |seen: Seen| (seen.session.changed, shown(ask.state, host, &home, &seen, &running));
        found.extend(sessions.into_iter().map(show));
    }
    sorted::by_key(&mut found, |(changed, _)| std::cmp::Reverse(*changed));
    let sessions: Vec<Value> = found.into_iter().map(|(_, shown)| shown).collect();
    Ok(Answer::Reply(Reply::ok(&json!({"sessions": sessions, "notes": notes}))))
}

fn listed(host: &Host, home: &Home, deadline: Instant, notes: &mut Vec<String>) -> Vec<Seen> {
    let name = home.provider.info().name;
    match &home.kept {
        Kept::Told { file, list, read, .. } => {
            if !file.is_file() {
                return Vec::new();
            }
            match told(host, home, list, deadline) {
                Ok(text) => text
                    .lines()
                    .filter_map(read)
                    .take(LISTED_MAX)
                    .map(|session| Seen { session, is_cut: false })
                    .collect(),
                Err(fault) => {
                    notes.push(format!("{name} was asked for its sessions: {fault}"));
                    Vec::new()
                }
            }
        }
        Kept::Files(files) => {
            let mut seen = Vec::new();
            for (at, path) in worker_read::records(files).iter().enumerate() {
                if seen.len() >= LISTED_MAX || at >= OPENED_MAX || Instant::now() >= deadline {
                    notes.push(format!("older sessions of {name} were not looked at"));
                    break;
                }
                let in_time = worker_read::in_time(deadline);
                let (most, project) = (worker_read::LISTED_BYTES, &host.project);
                let nothing = &mut |_: &Reader, _: &mut Vec<Step>| {};
                let read =
                    worker_read::read_until(home.provider, files, path, project, most, in_time, nothing);
                seen.extend(read.filter(|seen| seen.session.turns > 0));
            }
            seen
        }
    }
}

/// What a program tells itself.
pub(super) fn told(host: &Host, home: &Home, args: &[String], deadline: Instant) -> Result<String, String> {
    let Program::OnPath(program, _) = home.provider.info().program else {
        return Err("it has no program".to_owned());
    };
    let (program, _) = on_path(program).ok_or("it is not installed")?;
    let spec = Spec {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        env: home.env.clone(),
        // Not in the project, whose files agents write: programs take settings from where they stand.
        cwd: PathBuf::from("/"),
        stdin: Stdin::Null,
        marker: None,
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let said = host.processes.capture(&spec, b"", left, TOLD_BYTES)?;
    if !said.is_success() {
        let words = String::from_utf8_lossy(&said.stderr).trim().chars().take(200).collect::<String>();
        return Err(if words.is_empty() { "it did not answer in time".to_owned() } else { words });
    }
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

fn shown(state: &State, host: &Host, home: &Home, seen: &Seen, running: &[Running]) -> Value {
    let (session, info) = (&seen.session, home.provider.info());
    let owner = adopt::owner(state, info.id, &session.id);
    let below = Path::new(&session.folder).strip_prefix(&host.project).ok();
    let counted = |value: Value| if seen.is_cut { Value::Null } else { value };
    let pid = owner.is_none().then(|| holder(info, session, running)).flatten();
    json!({
        "id": session.id, "provider": info.id, "account": home.account,
        "folder": below.map_or_else(|| session.folder.clone(), |below| below.to_string_lossy().into_owned()),
        "model": session.model, "began": session.began.map(|at| at.to_string()),
        "changed": session.changed.map(|at| at.to_string()), "words": untrusted_line(&session.words),
        "turns": counted(json!(session.turns)), "tokens": counted(json!(session.tokens.total())),
        "agentId": owner.map(|agent| agent.id), "agentName": owner.map(|agent| &agent.name), "pid": pid,
    })
}

/// What is taken out of a session for its agent.
#[derive(Default)]
struct History {
    entries: VecDeque<(Option<Time>, LogEntry)>,
    left_out: u64,
    prompt: Option<String>,
    counted: Tokens,
    context: (u64, u64),
    files: BTreeMap<String, FileTouch>,
    open: OpenFiles,
}

impl History {
    fn take(&mut self, at: Option<Time>, steps: &mut Vec<Step>) {
        for step in steps.drain(..) {
            let entry = match step {
                Step::Said(text) => {
                    self.prompt.get_or_insert_with(|| text.clone());
                    LogEntry::user(text)
                }
                Step::Event(activity) => {
                    self.note(&activity);
                    LogEntry::Activity(activity)
                }
                Step::Write(_) | Step::CloseInput => continue,
            };
            if self.entries.len() >= ENTRIES_MAX {
                self.entries.pop_front();
                self.left_out += 1;
            }
            self.entries.push_back((at, entry));
        }
    }

    fn note(&mut self, activity: &Activity) {
        if let Activity::Usage(usage) = activity {
            self.counted = usage.session_total.unwrap_or(self.counted);
            self.context.0 = usage.context_tokens.unwrap_or(self.context.0);
            self.context.1 = usage.context_window.unwrap_or(self.context.1);
        }
        if let Some(Touched { path, writes }) = self.open.take(activity) {
            let FileTouch { reads, writes: written } = self.files.entry(path).or_default();
            *if writes { written } else { reads } += 1;
        }
    }
}

/// `POST /api/sessions/:id/adopt`.
pub fn adopt(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let request = api::request(ask.request)?;
    let id = ask.params.get("id");
    // Before anything is read or asked.
    for provider in providers::all() {
        adopt::check(ask.state, provider.info().id, id, request.name.as_deref())?;
    }
    let (home, session, mut history) = found(host, ask.state, id)?;
    let info = home.provider.info();
    if let Some(pid) = holder(info, &session, &worker_running::all(&host.project)) {
        let text = format!(
            "the session may be open in process {pid} ({}); leave that program first, for a session has one writer",
            info.name
        );
        return Err(Problem::new(409, "session_running", text));
    }
    let folder = Path::new(&session.folder).strip_prefix(&host.project).unwrap_or(Path::new(""));
    let drawn = clock::random();
    let adopted = Adopted {
        id: AgentId(u32::try_from(drawn >> 32).unwrap_or_default()),
        lineage: LineageId(u32::try_from(drawn & u64::from(u32::MAX)).unwrap_or_default()),
        request: SpawnRequest {
            provider: Some(info.id.to_owned()),
            working_dir: folder.to_string_lossy().into_owned(),
            account: home.account.clone(),
            prompt: history.prompt.take().unwrap_or_default(),
            // It goes on as it was held, where its program tells with what.
            model: session.model.clone(),
            ..request
        },
        session: session.id.clone(),
        model: session.model.clone(),
        tokens: session.tokens,
        counted: history.counted,
        context_tokens: history.context.0,
        context_window: history.context.1,
        turns: session.turns,
        files: std::mem::take(&mut history.files).into_iter().collect(),
    };
    let (lineage, logs) = (adopted.lineage, Arc::clone(&host.logs));
    write(host, &adopted, &history, ask.now).inspect_err(|_| drop(logs.remove(lineage)))?;
    let command = Command::Adopt(Box::new(adopted)).into();
    Ok(Answer::Undoable(command, Box::new(move || drop(logs.remove(lineage)))))
}

/// Its log, before there is an agent.
fn write(host: &Host, adopted: &Adopted, history: &History, now: Time) -> Result<(), Problem> {
    let fault = |error: std::io::Error| {
        let text = format!("its history cannot be written: {error}; make room and try again");
        Problem::new(503, "log_unwritable", text).with_header("Retry-After", "5")
    };
    let mut at = history.entries.front().and_then(|(at, _)| *at).unwrap_or(now);
    let add =
        |at: Time, entry: &LogEntry| host.logs.append(adopted.lineage, adopted.id, at, entry).map_err(fault);
    if history.left_out > 0 {
        add(at, &LogEntry::life(format!("{} entries before this are left out", history.left_out)))?;
    }
    for (known, entry) in &history.entries {
        at = known.unwrap_or(at).min(now);
        add(at, entry)?;
    }
    add(now, &LogEntry::life(format!("adopted: session {} is this agent's now", adopted.session)))?;
    Ok(())
}

/// The session of this id, read to its end.
///
/// Errors: 404, 409 `session_too_large`, 503 where its program does not tell.
fn found(host: &Host, state: &State, id: &str) -> Result<(Home, Session, History), Problem> {
    let deadline = Instant::now() + TOLD_TIME;
    for home in homes(state, &host.project, None) {
        match &home.kept {
            Kept::Files(files) => {
                // Its name has the id, or as much of it as is told from others by.
                let short: String = id.chars().take(8).collect();
                let has_id = |path: &&PathBuf| {
                    !short.is_empty()
                        && path.file_name().is_some_and(|name| name.to_string_lossy().contains(&short))
                };
                for path in worker_read::records(files).iter().filter(has_id) {
                    let mut history = History::default();
                    let most = worker_read::ADOPTED_BYTES;
                    let take = |reader: &Reader, steps: &mut Vec<Step>| history.take(reader.at(), steps);
                    let seen = worker_read::read(home.provider, files, path, &host.project, most, take);
                    let Some(seen) = seen.filter(|seen| seen.session.id == id) else { continue };
                    if seen.is_cut {
                        let text = format!("the record of session {id} is longer than {most} bytes");
                        return Err(Problem::new(409, "session_too_large", text));
                    }
                    return Ok((home, seen.session, history));
                }
            }
            Kept::Told { file, list, read, said } => {
                if !file.is_file() {
                    continue;
                }
                let fault = |fault: String| {
                    let text = format!("{} was asked for its sessions: {fault}", home.provider.info().name);
                    Problem::new(503, "provider_silent", text)
                };
                let listed = told(host, &home, list, deadline).map_err(fault)?;
                let Some(session) = listed.lines().filter_map(read).find(|one| one.id == id) else {
                    continue;
                };
                let Some(mut reader) = home.provider.session_reader() else { continue };
                let (mut history, mut steps) = (History::default(), Vec::new());
                for line in told(host, &home, &said(id), deadline).map_err(fault)?.lines() {
                    reader.line(line, &mut steps);
                    history.take(reader.at(), &mut steps);
                }
                let read = reader.session();
                let session = Session { turns: read.turns, tokens: read.tokens, ..session };
                return Ok((home, session, history));
            }
        }
    }
    let text = format!("there is no session {id:?} in this project; svc sessions lists them");
    Err(Problem::not_found(text))
}
