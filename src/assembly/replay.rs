//! Plays a recording of the flight recorder: the events of another time through the rules of this program,
//! compared with what the recorder saw of the state.

use super::documents::encode;
use super::rules::{name_of, words_of};
use super::step::{Step, step};
use crate::api::{Problem, Reply};
use crate::core::time::Time;
use crate::core::{Document, Effect, Event, State, Timer};
use crate::record::{
    Begins, Entry, Happened, Header, Segment, check, events_of, hash_of, remade, segments, take, told_event,
    whole,
};
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};
use std::sync::Arc;
use svc_base::recorded::{Reader, Recorded};
use svc_base::sorted::Gather;

/// Bytes of an event's words that are told.
const DETAIL_BYTES: usize = 400;
/// Effects of one event that are told one by one.
const TOLD_EFFECTS: usize = 40;

/// Which part is told.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// From this event on; segments that end before it are not played.
    pub from: u64,
    /// The last event, by its number.
    pub until: u64,
    /// And by its time.
    pub until_time: Time,
}

impl Part {
    /// `until` is the number of an event, a time, or empty for all.
    ///
    /// Errors: it is none of them.
    pub fn new(from: u64, until: &str) -> Result<Self, String> {
        let all = Self { from, until: u64::MAX, until_time: Time(u64::MAX) };
        if until.is_empty() {
            return Ok(all);
        }
        if let Ok(until) = until.parse() {
            return Ok(Self { until, ..all });
        }
        let fault = || {
            format!(
                "until must be the number of an event or a time such as 2026-01-31T12:00:00Z, it is {until:?}"
            )
        };
        Time::parse(until).map(|until_time| Self { until_time, ..all }).ok_or_else(fault)
    }
}

/// Plays a file. `line` is told of each event of the part and says whether to go on: `n` (its number in the
/// file), `at`, `event`, `detail`, `effects`, `agents` (those whose status or its reason is another one), and
/// `note` for what happened to the recording before it. What comes back is the sum: how many hashes were
/// compared, where the replay parts from what was recorded, and the state at the end.
///
/// Errors: it is no recording, or nothing of it can be read by this version.
pub fn play(file: &[u8], part: Part, line: &mut dyn FnMut(&Value) -> bool) -> Result<Value, String> {
    let segments = segments(file)?;
    let mut player = Player::new(part, line);
    for (at, segment) in segments.iter().enumerate() {
        let count = events_of(segment);
        // The last one is played in any case: the sum is of something.
        if player.n + count < part.from && at + 1 < segments.len() {
            player.n += count;
            continue;
        }
        if !player.segment(segment)? {
            break;
        }
    }
    player.sum()
}

/// The recording without the words of people and agents: prompts, messages, what was said and printed. What
/// becomes of the rest by the rules is what it then tells, with hashes of its own.
///
/// Errors: it is no recording of this version.
pub fn wordless(file: &[u8]) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    for segment in segments(file)? {
        let Segment { header, state, mut rest } = segment;
        if !header.is_readable() {
            return Err(format!("svc {} has recorded it: leave the words out with that one", header.version));
        }
        let mut state = State::read(&mut Reader::wordless(state));
        let (first, mut exit_sent) = (state.clone(), header.exit_sent);
        // Each segment stands for itself: what the one before comes to without words is another state.
        let begins = if header.begins == Begins::Goes { Begins::Gap } else { header.begins };
        let (header, mut told) = (Header { begins, ..header }, Vec::new());
        while let Some(entry) = take(&mut rest) {
            match entry {
                Entry::Event(bytes) => {
                    let one = Happened::read(&mut Reader::wordless(bytes));
                    let seed = u64::from_le_bytes(one.seed);
                    told_event(&mut told, one.now, seed, one.is_due, &one.event);
                    leave_deadline(&mut state, one.is_due, &one.event);
                    step(&mut state, &mut exit_sent, one.now, seed, one.event);
                }
                Entry::Check(seq, _) => check(&mut told, seq, &hash_of(&state).1),
                _ => {}
            }
        }
        all.push(remade(&header, &first, &told));
    }
    Ok(whole(all.iter().map(Vec::as_slice)))
}

/// A deadline that has come is taken out of the table before its event.
fn leave_deadline(state: &mut State, is_due: bool, event: &Event) {
    if is_due && let Event::Timer(timer) = event {
        Arc::make_mut(&mut state.timers).clear(*timer);
    }
}

struct Player<'a> {
    part: Part,
    line: &'a mut dyn FnMut(&Value) -> bool,
    /// Events so far, those of segments that were not played among them.
    n: u64,
    /// The number of the last event in its daemon's life.
    seq: u64,
    at: Time,
    state: Option<State>,
    exit_sent: bool,
    /// The hash with which a segment began that goes on from the one before.
    begun: Option<String>,
    played: u64,
    checked: u64,
    matched: u64,
    last_match: u64,
    parted: Option<Value>,
    unread: Option<Value>,
    versions: Vec<String>,
    note: Option<String>,
    /// Whether an event was told.
    is_begun: bool,
}

impl<'a> Player<'a> {
    fn new(part: Part, line: &'a mut dyn FnMut(&Value) -> bool) -> Self {
        Self {
            part,
            line,
            n: 0,
            seq: 0,
            at: Time(0),
            state: None,
            exit_sent: false,
            begun: None,
            played: 0,
            checked: 0,
            matched: 0,
            last_match: 0,
            parted: None,
            unread: None,
            versions: Vec::new(),
            note: None,
            is_begun: false,
        }
    }

    /// Plays a segment; whether there is more to play.
    fn segment(&mut self, segment: &Segment) -> Result<bool, String> {
        let header = &segment.header;
        if !self.versions.contains(&header.version) {
            self.versions.push(header.version.clone());
        }
        if !header.is_readable() {
            let text = format!(
                "recorded by svc {} with other types: play it with that version, this is {}",
                header.version,
                crate::VERSION
            );
            self.unread.get_or_insert_with(|| json!({"after": self.n, "why": text}));
            // The sum tells of the last state that was reached; nothing goes on from it.
            (self.n, self.seq) = (self.n + events_of(segment), u64::MAX - 1);
            return Ok(true);
        }
        let mut reader = Reader::new(segment.state);
        let state = State::read(&mut reader);
        if !reader.finish() {
            return Err(format!("the state behind event {} cannot be read: the file is broken", self.n));
        }
        let goes_on =
            header.begins == Begins::Goes && self.state.is_some() && header.seq == self.seq.wrapping_add(1);
        if goes_on {
            self.begun = Some(hash_of(&state).1);
        } else {
            self.note = Some(match header.begins {
                Begins::Start => format!("svc {} starts", header.version),
                _ if self.state.is_none() => "the recording begins here".into(),
                _ => format!("{} events were left out", header.seq.saturating_sub(self.seq.wrapping_add(1))),
            });
            (self.state, self.exit_sent) = (Some(state), header.exit_sent);
        }
        self.seq = header.seq.saturating_sub(1);
        let mut rest = segment.rest;
        while let Some(entry) = take(&mut rest) {
            match entry {
                Entry::Event(bytes) if !self.event(bytes)? => return Ok(false),
                Entry::Check(seq, hash) if seq == self.seq => self.compare(hash),
                _ => {}
            }
        }
        Ok(true)
    }

    fn compare(&mut self, recorded: &str) {
        let Some(state) = &self.state else { return };
        let (_, found) = hash_of(state);
        self.checked += 1;
        if found == recorded {
            self.matched += 1;
            self.last_match = self.n;
        } else if self.parted.is_none() {
            self.parted = Some(json!({
                "after": self.last_match, "by": self.n, "at": self.at.to_string(),
                "recorded": recorded, "played": found,
            }));
        }
    }

    /// Plays an event; whether there is more to play.
    fn event(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let mut reader = Reader::new(bytes);
        let happened = Happened::read(&mut reader);
        if !reader.finish() {
            return Err(format!("event {} cannot be read: the file is broken", self.n + 1));
        }
        let Happened { now, seed, is_due, event } = happened;
        if self.n + 1 > self.part.until || now > self.part.until_time {
            return Ok(false);
        }
        (self.n, self.seq, self.at, self.played) = (self.n + 1, self.seq + 1, now, self.played + 1);
        let begun = self.begun.take();
        let Some(state) = &mut self.state else { return Ok(true) };
        leave_deadline(state, is_due, &event);
        if let Some(hash) = begun {
            self.n -= 1;
            self.compare(&hash);
            self.n += 1;
        }
        let Some(state) = &mut self.state else { return Ok(true) };
        let is_told = self.n >= self.part.from;
        let shown = is_told.then(|| (state.clone(), name_of(&event), detail(&event)));
        let step = step(state, &mut self.exit_sent, now, u64::from_le_bytes(seed), event);
        let Some((before, name, detail)) = shown else { return Ok(true) };
        let note = self.note.take();
        // The first one tells of all agents, so that those behind it tell of their changes.
        let before = if self.is_begun && note.is_none() { before } else { State::default() };
        self.is_begun = true;
        let told = told(self.n, now, (name, &detail), &step, (&before, state), note.as_deref());
        Ok((self.line)(&told))
    }

    fn sum(self) -> Result<Value, String> {
        let Some(state) = &self.state else {
            let why = self.unread.as_ref().and_then(|unread| unread["why"].as_str()).unwrap_or_default();
            return Err(format!("nothing of this recording can be played: it was {why}"));
        };
        let (bytes, hash) = hash_of(state);
        Ok(json!({
            "version": crate::VERSION,
            "recordedBy": self.versions,
            "events": self.played,
            "last": self.n,
            "at": self.at.to_string(),
            "hashes": {"compared": self.checked, "equal": self.matched, "lastEqual": self.last_match},
            "parts": self.parted,
            "unread": self.unread,
            "hash": hash,
            "stateBytes": bytes.len(),
            "state": shown(state),
        }))
    }
}

fn told(
    n: u64,
    now: Time,
    (name, detail): (&str, &str),
    step: &Step,
    (before, after): (&State, &State),
    note: Option<&str>,
) -> Value {
    let mut effects: Vec<String> = step.effects.iter().take(TOLD_EFFECTS).map(told_effect).collect();
    if step.effects.len() > TOLD_EFFECTS {
        effects.push(format!("and {} more", step.effects.len() - TOLD_EFFECTS));
    }
    json!({
        "n": n, "at": now.to_string(), "event": name, "detail": detail, "effects": effects,
        "agents": changed(before, after), "panicked": step.panicked, "note": note,
    })
}

/// The agents that are new or in another status, or in theirs for another reason; and the ids of those gone.
fn changed(before: &State, after: &State) -> Vec<Value> {
    let mut all = Vec::new();
    for agent in after.agents.iter() {
        let old = before.agents.get(agent.id);
        let is_same = old.is_some_and(|old| {
            Arc::ptr_eq(old, agent)
                || (old.status == agent.status && old.status_reason.code() == agent.status_reason.code())
        });
        if !is_same {
            let view = serde_json::to_value(agent.live_view()).unwrap_or_default();
            all.push(json!({
                "id": agent.id, "name": agent.name, "status": agent.status,
                "was": old.map(|old| old.status), "code": view["statusCode"], "why": view["statusReason"],
            }));
        }
    }
    let gone = before.agents.iter().filter(|agent| after.agents.get(agent.id).is_none());
    all.extend(gone.map(|agent| json!({"id": agent.id, "name": agent.name, "status": null})));
    all
}

/// A text that takes no more than so many bytes.
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = DETAIL_BYTES.saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        self.0.push_str(&text[..end]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

fn detail(event: &Event) -> String {
    let mut cut = Cut(String::new());
    // It stops where it is full.
    let _ = write!(cut, "{event:?}");
    cut.0
}

fn told_effect(effect: &Effect) -> String {
    match effect {
        Effect::Reply(call, response) | Effect::ReplyStored(call, response) => {
            format!("answer call {} with {}", call.0, response.http().status)
        }
        Effect::Put(document, durability) => format!("write {} ({durability:?})", document.path()),
        Effect::Remove(document) => format!("remove {}", document.path()),
        Effect::AwaitDisk(call) => format!("wait for the disk for call {}", call.0),
        Effect::WhenStored(timer) => format!("when that is written: {}", words_of(timer)),
        Effect::Append(journal, line) => format!("{}: {}", journal.path(), String::from_utf8_lossy(line)),
        Effect::Trim(journal, entries) => format!("cut {} to {entries} entries", journal.path()),
        Effect::Notice(notice) => format!("tell clients: {}", notice.kind()),
        Effect::Output(batch) => format!("show {} pieces of output", batch.activities.len()),
        Effect::StateChanged(changes) => format!("push {} changed agents", changes.changed.len()),
        Effect::Run(agent, order) => format!("agent {agent}: {}", order.name()),
        Effect::Settled(agent, upto) => format!("agent {agent}: stored up to {upto}"),
        Effect::LeaveRuns => "leave the runs to their keepers".into(),
        Effect::Job(_) => "a job of its own".into(),
        Effect::Log(_, agent, _) => format!("a line in the log of {agent}"),
        Effect::Warn(text) => format!("warn: {text}"),
        Effect::Exit => "end".into(),
        _ => "an order to a thread".into(),
    }
}

/// The state for people: the documents as they would be written, the deadlines, the health.
pub fn shown(state: &State) -> Value {
    let documents = [
        Document::Agents,
        Document::Approvals,
        Document::Locks,
        Document::Teams,
        Document::Schedules,
        Document::Gateways,
        Document::Integrations,
        Document::Usage,
        Document::Config,
    ];
    let read = |document: Document| {
        let bytes = encode(document, state)?.ok()?;
        Some((document.path(), serde_json::from_slice(&bytes).ok()?))
    };
    let documents: Map<String, Value> = documents.into_iter().filter_map(read).gather();
    let agents: Vec<_> = state.agents.iter().map(|agent| json!(agent.live_view())).collect();
    let timers = |(at, timer): &(Time, Timer)| json!({"at": at.to_string(), "timer": format!("{timer:?}")});
    json!({
        "agents": agents,
        "deadlines": state.timers.iter().map(timers).collect::<Vec<_>>(),
        "unwritten": state.unwritten.len(),
        "stopping": state.health.stopping,
        "storageError": state.health.storage_error,
        "panics": state.health.panics,
        "documents": documents,
    })
}

/// The part of the daemon's own recording that `GET /api/record/replay` asks for: `limit` events and the
/// state after the last of them.
///
/// Errors: 400 for a wrong parameter, 404 for no recording.
pub fn answer(file: &[u8], from: u64, until: &str, limit: usize) -> Result<Reply, Problem> {
    let part = Part::new(from, until).map_err(|error| Problem::bad_request("validation_failed", error))?;
    let mut events = Vec::new();
    let sum = play(file, part, &mut |event| {
        events.push(event.clone());
        events.len() < limit
    });
    let mut sum = sum.map_err(Problem::not_found)?;
    sum["timeline"] = events.into();
    Ok(Reply::ok(&sum))
}
