//! Words in sessions that people had outside of the daemon, as they were typed, on the caller's own thread.
//! There is no index: the programs' records are read from their beginnings, those changed last first.
//!
//! **Invariant:** a search takes [`SEARCH_TIME`], opens [`OPENED_MAX`] records of a home and reads
//! [`ADOPTED_BYTES`] of each, at most; a note says what was not looked at.

use super::worker::{Home, OPENED_MAX, homes, told, wanted_provider};
use super::worker_read::{self, ADOPTED_BYTES};
use crate::agents::LogEntry;
use crate::agents::adopt::owner;
use crate::agents::worker_log::{Exact, said};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::time::Time;
use crate::core::{State, untrusted_line};
use crate::endpoint::{Answer, Ask};
use crate::providers::Step;
use crate::providers::outside::{Files, Kept, LISTED_MAX, Reader, Session};
use crate::recall::{self, Search};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::path::Path;
use std::time::{Duration, Instant};
use svc_base::sorted;

/// A search takes so long at most.
const SEARCH_TIME: Duration = Duration::from_secs(20);

/// `GET /api/sessions/search`.
pub fn search(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let search = recall::api::search(ask)?;
    let only = wanted_provider(ask)?;
    let mut looking = Looking {
        host,
        state: ask.state,
        search: &search,
        deadline: Instant::now() + SEARCH_TIME,
        hits: Vec::new(),
        notes: Vec::new(),
    };
    for home in homes(ask.state, &host.project, only) {
        match &home.kept {
            Kept::Files(files) => looking.files(&home, files),
            Kept::Told { file, .. } if !file.is_file() => {}
            Kept::Told { .. } => {
                if let Err(fault) = looking.asks(&home) {
                    let name = home.provider.info().name;
                    looking.notes.push(format!("{name} was asked for its sessions: {fault}"));
                }
            }
        }
    }
    let Looking { mut hits, notes, .. } = looking;
    let more = hits.len() > search.most;
    hits.truncate(search.most);
    let hits: Vec<Value> = hits.into_iter().map(|hit| hit.shown).collect();
    Ok(Answer::Reply(Reply::ok(&json!({"query": search.words, "hits": hits, "more": more, "notes": notes}))))
}

/// A search under way.
struct Looking<'a> {
    host: &'a Host,
    state: &'a State,
    search: &'a Search,
    deadline: Instant,
    /// The newest of all that was looked at, newest first, one more than are wanted.
    hits: Vec<Hit>,
    notes: Vec<String>,
}

struct Hit {
    at: Option<Time>,
    shown: Value,
}

/// An entry that has all words.
struct Found {
    at: Option<Time>,
    kind: Value,
    tool: Value,
    excerpt: String,
}

impl Looking<'_> {
    /// Looks through the records of a home, those changed last first.
    fn files(&mut self, home: &Home, files: &Files) {
        let (name, project) = (home.provider.info().name, &self.host.project);
        for (at, (changed, path)) in worker_read::changed_records(files).into_iter().enumerate() {
            if self.is_over(Some(changed)) {
                break;
            }
            if at >= OPENED_MAX || self.is_late() {
                self.notes.push(format!("older sessions of {name} were not looked at"));
                break;
            }
            let mut found = Vec::new();
            let take = &mut |reader: &Reader, steps: &mut Vec<Step>| self.take(reader, steps, &mut found);
            let goes_on = |reader: &Reader| !self.is_late() && !self.is_agents(home, reader.session());
            let read =
                worker_read::read_until(home.provider, files, &path, project, ADOPTED_BYTES, goes_on, take);
            let Some(seen) = read.filter(|seen| !self.is_agents(home, &seen.session)) else { continue };
            if seen.is_cut {
                let id = untrusted_line(&seen.session.id);
                self.notes.push(format!("only the beginning of session {id} of {name} was looked at"));
            }
            self.keep(home, &seen.session, found);
        }
    }

    /// Looks through what a program tells of its sessions itself.
    fn asks(&mut self, home: &Home) -> Result<(), String> {
        let Kept::Told { list, read, said, .. } = &home.kept else { return Ok(()) };
        let listed = told(self.host, home, list, self.deadline)?;
        let mut sessions: Vec<Session> = listed.lines().filter_map(read).collect();
        sorted::by_key(&mut sessions, |session| Reverse(session.changed));
        if sessions.len() >= LISTED_MAX {
            let name = home.provider.info().name;
            self.notes.push(format!("sessions of {name} beyond the newest {LISTED_MAX} were not looked at"));
        }
        for session in &sessions {
            if self.is_over(session.changed) {
                break;
            }
            if self.is_agents(home, session) {
                continue;
            }
            let Some(mut reader) = home.provider.session_reader() else { break };
            let (mut found, mut steps) = (Vec::new(), Vec::new());
            for line in told(self.host, home, &said(&session.id), self.deadline)?.lines() {
                reader.line(line, &mut steps);
                self.take(&reader, &mut steps, &mut found);
            }
            self.keep(home, session, found);
        }
        Ok(())
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether it is an agent's, whose log has it.
    fn is_agents(&self, home: &Home, session: &Session) -> bool {
        !session.id.is_empty() && owner(self.state, home.provider.info().id, &session.id).is_some()
    }

    /// Whether what was changed last at that time, and all before it, cannot count.
    fn is_over(&self, changed: Option<Time>) -> bool {
        let Some(changed) = changed else { return false };
        let is_full = self.hits.len() > self.search.most;
        let is_older = self.hits.last().and_then(|last| last.at).is_some_and(|last| changed < last);
        self.search.within.since.is_some_and(|since| changed < since) || is_full && is_older
    }

    /// Takes the entries of a line that count.
    fn take(&self, reader: &Reader, steps: &mut Vec<Step>, found: &mut Vec<Found>) {
        let within = &self.search.within;
        let is_old = within.since.is_some_and(|since| reader.at().is_none_or(|at| at < since));
        for step in steps.drain(..).filter(|_| !is_old) {
            let entry = match step {
                Step::Said(text) => LogEntry::user(text),
                Step::Event(activity) => LogEntry::Activity(activity),
                Step::Write(_) | Step::CloseInput => continue,
            };
            let Some((kind, text)) = said(&entry) else { continue };
            if within.kind.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            let Some(place) = self.search.exact.find(&text) else { continue };
            let known = json!(entry);
            let (kind, tool) = (known["type"].clone(), known["name"].clone());
            found.push(Found { at: reader.at(), kind, tool, excerpt: Exact::excerpt(&text, place) });
            // Of one session the newest: what comes later pushes the oldest out.
            if found.len() > self.search.most + 1 {
                found.remove(0);
            }
        }
    }

    /// Takes what was found in a session.
    fn keep(&mut self, home: &Home, session: &Session, found: Vec<Found>) {
        let below = Path::new(&session.folder).strip_prefix(&self.host.project).ok();
        let folder =
            below.map_or_else(|| session.folder.clone(), |below| below.to_string_lossy().into_owned());
        let shown = |found: Found| Hit {
            at: found.at,
            shown: json!({
                "sessionId": session.id, "provider": home.provider.info().id, "account": home.account,
                "folder": folder, "ts": found.at.map(|at| at.to_string()), "type": found.kind,
                "tool": found.tool, "text": found.excerpt,
            }),
        };
        // Later entries of one time first.
        self.hits.extend(found.into_iter().rev().map(shown));
        sorted::by_key(&mut self.hits, |hit| Reverse(hit.at));
        self.hits.truncate(self.search.most + 1);
    }
}
