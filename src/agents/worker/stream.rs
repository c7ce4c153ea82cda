//! What is said with an agent's program: its output comes in as records of its keeper, goes through the
//! provider's conversation, and becomes deeds; what the conversation wants written goes back.
//!
//! **Invariant:** the same records and acts in the same order give the same deeds and the same writes. So the
//! next daemon reads on from a checkpoint: acts of this one come again from the keeper, at the offset after
//! which they were done, and writes that the keeper has are not sent again.
//!
//! **Invariant:** the keeper has an act before anybody hears of what came of it.

use super::lines::Lines;
use super::millis;
use super::notes::{Act, Notes, message_of};
use super::orders::{Orders, Settings, tell_stop};
use super::output::Output;
use super::record_file::{LOOK_BYTES, RecordFile};
use super::session_record::SessionRecord;
use super::turns::Told;
use crate::agents::report::{LogEntry, Other, RunReport};
use crate::agents::worker_log::{RawLines, Stream as Pipe};
use crate::core::time::Time;
use crate::providers::{Activity, Conversation, Provider, RecordPlace, Ruling, Step, terminal};
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_keeper::client::{Link, Writer};
use svc_keeper::protocol::{Note, Over, Record, ToKeeper};

/// Bytes of one line of standard output.
const LINE_LIMIT_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of acts that one look at a record may become.
const LOOK_TEXT_BYTES: usize = LOOK_BYTES + (1 << 20);
/// So many looks behind a program's end, which nobody may have followed; what is still left is not told.
const LAST_LOOKS: usize = 16;
/// Bytes of one line of standard error.
const STDERR_LINE_LIMIT_BYTES: usize = 64 * 1024;
/// Bytes of standard error that are told with the exit.
const STDERR_TAIL_BYTES: usize = 4096;

/// A message on its way into the program's input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Underway {
    seq: u64,
    message: u64,
    text: String,
}

/// How a program's run ended, as its keeper tells.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// It never started.
    StartFailed(String),
    /// It ran.
    Exited { code: Option<i32>, signal: Option<i32>, signalled: bool, leaked: u32, over: Option<Over> },
}

/// The state of a conversation between two records, to go on from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saved {
    /// The end of the last record that was taken in.
    pub offset: u64,
    /// The last write.
    pub seq: u64,
    /// The last deed.
    pub deed: u64,
    conversation: String,
    wire: serde_json::Value,
    out: Vec<u8>,
    err: Vec<u8>,
    tail: Vec<u8>,
    underway: VecDeque<Underway>,
    pub turn_open: bool,
    is_let_go: bool,
    record: Option<(RecordPlace, u64)>,
}

/// The conversation of one run, with all that it depends on.
pub(super) struct Stream {
    pub output: Output,
    pub orders: Arc<Orders>,
    conversation: Box<dyn Conversation>,
    writer: Option<Arc<Writer>>,
    out: Lines,
    err: Lines,
    raw_out: RawLines,
    raw_err: RawLines,
    /// The end of the last record that was taken in.
    pub offset: u64,
    seq: u64,
    /// What the keeper has had of an earlier daemon.
    seq_known: u64,
    /// The end of the records that an earlier daemon may have taken in.
    end_known: u64,
    again: VecDeque<(u64, Note)>,
    /// Messages of such notes, which the state may not know to be said.
    said_before: HashSet<u64>,
    notes: Notes,
    underway: VecDeque<Underway>,
    pub record: SessionRecord,
    pub tail: Vec<u8>,
    pub started: Option<(u32, u64)>,
    /// A message taken late may have begun another turn; the program is not stopped in the middle of it.
    pub turn_open: bool,
    /// When it was let go.
    pub let_go: Option<Instant>,
    pub last_output: Instant,
    is_stop_told: bool,
    stop_grace: Duration,
    room: Room,
    pub turns: Told,
}

/// Room for what a conversation wants done, kept from line to line.
#[derive(Default)]
struct Room {
    steps: Vec<Step>,
    events: Vec<Activity>,
    /// What a person has said at the screen, each behind so many events.
    said: Vec<(usize, String)>,
}

/// What a conversation wants written.
#[derive(Default)]
struct Wanted {
    bytes: Vec<u8>,
    close: bool,
}

impl Stream {
    pub fn new(output: Output, orders: Arc<Orders>, conversation: Box<dyn Conversation>) -> Self {
        let raw = |pipe| RawLines::new(output.agent, pipe);
        let (raw_out, raw_err) = (raw(Pipe::Stdout), raw(Pipe::Stderr));
        Self {
            output,
            orders,
            conversation,
            writer: None,
            out: Lines::new(LINE_LIMIT_BYTES),
            err: Lines::new(STDERR_LINE_LIMIT_BYTES),
            raw_out,
            raw_err,
            offset: 0,
            seq: 0,
            seq_known: 0,
            end_known: 0,
            again: VecDeque::new(),
            said_before: HashSet::new(),
            notes: Notes::default(),
            underway: VecDeque::new(),
            record: SessionRecord::default(),
            tail: Vec::new(),
            started: None,
            turn_open: false,
            let_go: None,
            last_output: Instant::now(),
            is_stop_told: false,
            stop_grace: Duration::ZERO,
            room: Room::default(),
            turns: Told::default(),
        }
    }

    /// Looks at the record of a session with a person at the screen, if it is time; when to look next.
    pub fn look_at_record(&mut self) -> Option<Instant> {
        if self.record.is_due() {
            self.read_record(super::output::now(), false);
            self.write_logs();
            self.flush();
        }
        self.record.look
    }

    /// What writes go to, and how much of them its keeper has had already.
    pub fn speak_to(&mut self, link: &Link, grace: Duration) {
        let seq = self.seq;
        self.writer = Some(Arc::clone(&link.writer));
        self.seq_known = link.welcome.last_seq;
        self.end_known = link.welcome.end;
        self.again = link.welcome.notes.iter().filter(|(at, _)| *at > seq).cloned().collect();
        self.said_before = self.again.iter().filter_map(|(_, note)| message_of(note)).collect();
        self.stop_grace = grace;
    }

    /// Whether an earlier daemon has said this message, and it was not lost on its way.
    pub fn was_said(&self, message: u64) -> bool {
        self.said_before.contains(&message)
    }

    /// Tells the keeper that nothing before is needed again.
    pub fn tell_taken(&mut self, offset: u64, seq: u64) {
        self.notes.settled(seq);
        self.tell(&ToKeeper::Taken { offset, seq });
    }

    /// Tells the keeper what holds from now on.
    pub fn tell_settings(&self, settings: Settings) {
        let Settings { orphan, ceiling, frozen } = settings;
        self.tell(&ToKeeper::Settings { orphan_ms: millis(orphan), ceiling: Some(ceiling), frozen });
    }

    fn tell(&self, order: &ToKeeper) {
        if let Some(writer) = &self.writer
            && let Err(error) = writer.send(order)
        {
            // Its reader sees the same.
            log::debug!("a keeper does not hear what it is told: {error}");
        }
    }

    /// What is to be kept to go on from here; `None` while it would be too much: in the middle of a long
    /// line.
    pub fn save(&self) -> Option<Saved> {
        let (out, err) = (self.out.rest()?, self.err.rest()?);
        Some(Saved {
            offset: self.offset,
            seq: self.seq,
            deed: self.output.deed,
            conversation: self.conversation.save(),
            wire: self.output.wire.save(),
            out,
            err,
            tail: self.tail.clone(),
            underway: self.underway.clone(),
            turn_open: self.turn_open,
            is_let_go: self.let_go.is_some(),
            record: self.record.file.as_ref().map(RecordFile::save),
        })
    }

    /// Goes on from there.
    pub fn restore(&mut self, saved: Saved) {
        (self.offset, self.seq) = (saved.offset, saved.seq);
        self.output.wire.restore(saved.wire);
        self.out.go_on(saved.out);
        self.err.go_on(saved.err);
        self.tail = saved.tail;
        self.underway = saved.underway;
        self.turn_open = saved.turn_open;
        self.turns.has_begun = saved.turn_open;
        self.let_go = saved.is_let_go.then(Instant::now);
        self.record.file = saved.record.map(|(place, at)| RecordFile::go_on(place, at));
    }

    /// The conversation to go on with, as it was saved.
    pub fn conversation_of(
        saved: &Saved,
        provider: &'static dyn Provider,
        at_screen: bool,
    ) -> Result<Box<dyn Conversation>, String> {
        if at_screen {
            return terminal::restore(provider.info().id, &saved.conversation);
        }
        provider.restore(&saved.conversation)
    }

    /// The last write.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether all that an earlier daemon has heard and done has come again: whatever is done before that
    /// would take the numbers of what it has heard.
    pub fn has_caught_up(&self) -> bool {
        self.again.is_empty() && self.offset >= self.end_known
    }

    /// Whether the program was spoken to.
    pub fn is_open(&self) -> bool {
        self.seq > 0
    }

    /// Whether this message is on its way, or was lost on it.
    pub fn is_underway(&self, message: u64) -> bool {
        self.underway.iter().any(|one| one.message == message)
            || self.again.iter().any(|(_, note)| message_of(note) == Some(message))
    }

    /// Takes in a record that was made at `ts` and ends at `end`; the last one tells the end.
    pub fn take(&mut self, end: u64, ts: Time, record: Record<'_>) -> Option<End> {
        let mut over = None;
        match record {
            Record::Started { pid, start_ticks } => {
                self.started = Some((pid, start_ticks));
                self.last_output = Instant::now();
            }
            Record::StartFailed { error } => over = Some(End::StartFailed(error)),
            Record::Out(bytes) => self.printed(ts, bytes),
            Record::Err(bytes) => self.complained(ts, bytes),
            Record::Written { seq } => self.arrived(ts, seq, true),
            Record::Lost { seq } => self.arrived(ts, seq, false),
            Record::Stuck { seconds } => {
                let text = format!("it has not read its standard input for {seconds} s");
                self.push(ts, [Activity::Trouble { text }]);
                self.flush();
            }
            Record::Ended { code, signal, signalled, leaked, over: why, .. } => {
                over = Some(End::Exited { code, signal, signalled, leaked, over: why });
            }
        }
        self.offset = end;
        match over {
            None => self.act_again(),
            Some(End::StartFailed(_)) => self.lose_all(),
            Some(End::Exited { .. }) => self.at_the_end(ts),
        }
        over
    }

    /// Writes the files of what was taken in.
    pub fn write_logs(&mut self) {
        let Self { output, raw_out, raw_err, .. } = self;
        output.logs.append_raw(output.lineage, raw_out);
        output.logs.append_raw(output.lineage, raw_err);
        output.log_read();
    }

    /// Does what was not done by an earlier daemon.
    pub fn act(&mut self, act: Act) {
        if let Act::Say { message, text } = &act
            && !self.notes.has_room(text.len())
        {
            // It stays with the agent's record, which says that it waits.
            return self.said(*message, false);
        }
        self.act_at(super::output::now(), act);
        self.flush();
    }

    /// Acts of an earlier daemon that were done at this place.
    pub fn act_again(&mut self) {
        while let Some((seq, note)) = self.again.front() {
            if note.after > self.offset {
                return;
            }
            if *seq != self.seq + 1 {
                log::error!("agent {}: write {seq} comes after {} (a bug)", self.output.agent, self.seq);
                self.seq = seq.saturating_sub(1);
            }
            let act = serde_json::from_value(note.what.clone());
            self.again.pop_front();
            match act {
                Ok(act) => {
                    if let (Act::Record { at, .. }, Some(file)) = (&act, &mut self.record.file) {
                        file.skip_to(*at);
                    }
                    self.act_at(super::output::now(), act);
                }
                Err(error) => log::error!("agent {}: an act is lost: {error}", self.output.agent),
            }
        }
    }

    fn act_at(&mut self, ts: Time, act: Act) {
        if matches!(act, Act::Open | Act::Say { .. }) && self.has_caught_up() {
            self.turns.begin(false);
        }
        let mut is_taken = true;
        let wanted = self.converse(|conversation, steps| match &act {
            Act::Open => conversation.open(steps),
            Act::Say { text, .. } => is_taken = conversation.say(text, steps),
            Act::Decide { question, allow, reason } => {
                let ruling = Ruling { allow: *allow, reason: reason.clone() };
                conversation.decide(question, &ruling, steps);
            }
            Act::Interrupt => conversation.interrupt(steps),
            Act::Finish => conversation.finish(steps),
            Act::Record { line, .. } => conversation.record(line, steps),
        });
        let is_idle = wanted.bytes.is_empty() && !wanted.close && self.room.is_empty();
        if is_idle && matches!(act, Act::Record { .. }) {
            // Nearly all lines of a record tell nothing.
            return;
        }
        let what = serde_json::to_value(&act).unwrap_or_default();
        let is_sent = self.write(wanted, Some(Note { after: self.offset, what }));
        self.tell_events(ts);
        match act {
            Act::Say { message, text } if is_taken && is_sent => {
                self.underway.push_back(Underway { seq: self.seq, message, text });
            }
            Act::Say { message, .. } => self.said(message, false),
            Act::Finish => self.let_go = Some(Instant::now()),
            _ => {}
        }
    }

    /// A message has reached the program, or has not.
    fn arrived(&mut self, ts: Time, seq: u64, delivered: bool) {
        let Some(at) = self.underway.iter().position(|one| one.seq == seq) else { return };
        let Some(Underway { message, text, .. }) = self.underway.remove(at) else { return };
        // The end of a turn that it has heard before is not the end of what this message begins.
        self.flush();
        if delivered {
            self.output.log_taken(ts, &LogEntry::Other(Other::User { text }));
        }
        self.said(message, delivered);
    }

    /// Tells whether a message has reached the program.
    pub fn said(&mut self, message_id: u64, delivered: bool) {
        if !delivered {
            self.said_before.remove(&message_id);
        }
        self.output.report(RunReport::Said { message_id, delivered });
    }

    fn printed(&mut self, ts: Time, bytes: &[u8]) {
        self.last_output = Instant::now();
        // What it wrote there before it said this.
        self.read_record(ts, false);
        self.raw_out.at(ts);
        let mut lines = std::mem::take(&mut self.out);
        lines.feed(bytes, |line| {
            self.raw_out.push(line);
            self.hear(ts, |conversation, steps| conversation.line(line, steps));
        });
        self.out = lines;
    }

    fn complained(&mut self, ts: Time, bytes: &[u8]) {
        self.raw_err.at(ts);
        let mut lines = std::mem::take(&mut self.err);
        lines.feed(bytes, |line| self.complaint(ts, line));
        self.err = lines;
        self.tail.extend_from_slice(bytes);
        let surplus = self.tail.len().saturating_sub(STDERR_TAIL_BYTES);
        self.tail.drain(..surplus);
        // Not in the middle of a character.
        let broken = self.tail.iter().take_while(|byte| surplus > 0 && (0x80..0xC0).contains(*byte)).count();
        self.tail.drain(..broken);
    }

    fn complaint(&mut self, ts: Time, line: &str) {
        if let Some(word) = self.output.word_of_line(line) {
            self.flush();
            return self.output.report(word);
        }
        self.raw_err.push(line);
        let mut is_told = false;
        self.hear(ts, |conversation, steps| {
            conversation.complaint(line, steps);
            is_told = !steps.is_empty();
        });
        if is_told {
            self.flush();
        }
    }

    fn at_the_end(&mut self, ts: Time) {
        let mut lines = std::mem::take(&mut self.out);
        lines.end(|line| {
            self.raw_out.push(line);
            self.hear(ts, |conversation, steps| conversation.line(line, steps));
        });
        std::mem::take(&mut self.err).end(|line| self.complaint(ts, line));
        self.act_again();
        self.read_record(ts, true);
        self.hear(ts, |conversation, steps| conversation.end(steps));
        self.write_logs();
        self.flush();
        self.lose_all();
    }

    /// What is still on its way arrives nowhere.
    fn lose_all(&mut self) {
        for one in std::mem::take(&mut self.underway) {
            self.said(one.message, false);
        }
    }

    /// The end of what it wrote to standard error.
    pub fn stderr_tail(&self) -> String {
        self.output.without_line(&String::from_utf8_lossy(&self.tail))
    }

    /// Tells the conversation what the program has written into its record meanwhile.
    fn read_record(&mut self, ts: Time, last: bool) {
        for _ in 0..if last { LAST_LOOKS } else { 1 } {
            if !self.has_caught_up() || !self.notes.has_room(LOOK_TEXT_BYTES) {
                // What an earlier daemon has read there comes again as its acts; or the rest waits a while.
                return;
            }
            let Some(file) = &mut self.record.file else { return };
            let (lines, has_more) = (file.look(last), file.has_more());
            for (line, at) in lines {
                self.act_at(ts, Act::Record { line, at });
            }
            if !has_more {
                return;
            }
        }
    }

    /// Lets the conversation hear something, and does what it wants.
    fn hear(&mut self, ts: Time, act: impl FnOnce(&mut dyn Conversation, &mut Vec<Step>)) {
        let wanted = self.converse(act);
        if !wanted.bytes.is_empty() || wanted.close {
            self.write(wanted, None);
        }
        if !self.room.is_empty() {
            self.tell_events(ts);
        }
    }

    /// Lets the conversation act; what has happened is in the room then.
    fn converse(&mut self, act: impl FnOnce(&mut dyn Conversation, &mut Vec<Step>)) -> Wanted {
        let is_new = self.output.is_new(self.room.events.len() + 1);
        let Self { conversation, room: Room { steps, events, said }, .. } = self;
        if catch_unwind(AssertUnwindSafe(|| act(conversation.as_mut(), steps))).is_err() {
            let text = "a line of its output could not be understood (a bug in this program)".into();
            steps.push(Step::Event(Activity::Trouble { text }));
        }
        let mut wanted = Wanted::default();
        for step in steps.drain(..) {
            match step {
                Step::Event(activity) => {
                    self.turns.hear(&activity);
                    match &activity {
                        Activity::Session { id, .. } => self.record.of(id),
                        Activity::TurnStarted => self.turn_open = true,
                        Activity::TurnEnded(_) => self.turn_open = false,
                        _ => {}
                    }
                    events.push(activity);
                }
                Step::Write(text) => wanted.bytes.extend_from_slice(text.as_bytes()),
                Step::CloseInput => wanted.close = true,
                Step::Said(text) => said.push((events.len(), text)),
            }
        }
        self.turns.tell(is_new);
        wanted
    }

    /// Gives the keeper what is to be written, unless it has it of an earlier daemon; whether it has it.
    fn write(&mut self, wanted: Wanted, note: Option<Note>) -> bool {
        self.seq += 1;
        if let Some(note) = &note {
            self.notes.add(self.seq, note.what.to_string().len());
        }
        if self.seq <= self.seq_known {
            return true;
        }
        let Some(writer) = &self.writer else { return false };
        let Wanted { bytes, close } = wanted;
        writer.send(&ToKeeper::Write { seq: self.seq, note, bytes, close }).is_ok()
    }

    fn tell_events(&mut self, ts: Time) {
        let mut events = std::mem::take(&mut self.room.events);
        let mut told = 0;
        for (at, text) in std::mem::take(&mut self.room.said) {
            self.push(ts, events.drain(..at - told));
            told = at;
            self.output.log_taken(ts, &LogEntry::Other(Other::User { text }));
        }
        self.push(ts, events.drain(..));
        self.room.events = events;
    }

    fn push(&mut self, ts: Time, activities: impl IntoIterator<Item = Activity>) {
        let Self { output, orders, writer, is_stop_told, stop_grace, .. } = self;
        output.push(ts, activities, orders, &mut || {
            tell_stop(orders, writer.as_ref(), is_stop_told, *stop_grace);
        });
    }

    /// Hands over what was heard; whether there was anything.
    pub fn flush(&mut self) -> bool {
        let Self { output, orders, writer, is_stop_told, stop_grace, .. } = self;
        output.flush(orders, &mut || tell_stop(orders, writer.as_ref(), is_stop_told, *stop_grace))
    }

    /// Tells the keeper of the order to stop, once.
    pub fn heed_stop(&mut self) {
        tell_stop(&self.orders, self.writer.as_ref(), &mut self.is_stop_told, self.stop_grace);
    }

    /// Stops the program without an order.
    pub fn stop(&mut self) {
        self.orders.stop();
        self.heed_stop();
    }

    /// Whether the keeper was told to stop.
    pub fn is_stop_told(&self) -> bool {
        self.is_stop_told
    }
}

impl Room {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.said.is_empty()
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
