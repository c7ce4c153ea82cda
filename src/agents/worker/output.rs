//! From activities to the log and to batches for the core.
//!
//! **Invariant:** every activity of a run, and every message it has taken, is a deed with a number, from 1.
//! Reading a run's output again gives the same deeds with the same numbers, so that what the log or the core
//! has of an earlier daemon is left out, and nothing else.

use super::Reporter;
use super::kept::Awaited;
use super::orders::Orders;
use crate::agents::report::{BATCH_MAX, Batch, Credit, LogEntry, RunReport};
use crate::agents::wire::Wire;
use crate::agents::worker_log::LogStore;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::providers::Activity;
use crate::runners::dialogue;
use crossbeam_channel::{Receiver, Sender, bounded, select};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use svc_base::packed::Packed;

/// Batches of one run that the core has not finished with.
pub const BATCHES_IN_FLIGHT: usize = 4;
/// How long an activity waits for others to travel with.
const BATCH_WAIT: Duration = Duration::from_millis(5);
/// Encoded bytes after which a batch travels, however few it holds.
const BATCH_BYTES: usize = 512 * 1024;

/// Which deeds an earlier daemon has taken in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Up to this one they are in the state.
    pub heard: u64,
    /// Up to this one they are in the log.
    pub logged: u64,
}

/// Where the thread of a run puts what the agent did.
pub(super) struct Output {
    pub agent: AgentId,
    pub lineage: LineageId,
    pub logs: Arc<LogStore>,
    report: Arc<Reporter>,
    permits: (Sender<()>, Receiver<()>),
    /// Disconnected when nobody counts credits any more.
    gate: Receiver<()>,
    pub wire: Wire,
    /// The number of the last deed.
    pub deed: u64,
    taken: Taken,
    activities: Vec<Activity>,
    /// How many of them are in the log, and when the others were read.
    logged: usize,
    ts: Time,
    frames: Packed,
    since: Instant,
    /// Dropped when all that was there at the start is taken in, or when the run is over.
    pub awaited: Option<Awaited>,
    /// Before what the line to another machine tells.
    pub line_mark: Option<String>,
    /// The line has told that nothing of it runs on that machine any more.
    pub is_over_there: bool,
}

/// Gives the permit back when dropped.
struct Permit(Sender<()>);

impl Drop for Permit {
    fn drop(&mut self) {
        // Full only when the gate was opened meanwhile.
        let _ = self.0.try_send(());
    }
}

/// The wall clock.
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Output {
    pub fn new(
        agent: AgentId,
        lineage: LineageId,
        logs: Arc<LogStore>,
        report: Arc<Reporter>,
        gate: Receiver<()>,
        wire: Wire,
    ) -> Self {
        let permits = bounded(BATCHES_IN_FLIGHT);
        for _ in 0..BATCHES_IN_FLIGHT {
            let _ = permits.0.try_send(());
        }
        Self {
            agent,
            lineage,
            logs,
            report,
            permits,
            gate,
            wire,
            deed: 0,
            taken: Taken::default(),
            activities: Vec::new(),
            logged: 0,
            ts: Time(0),
            frames: Packed::default(),
            since: Instant::now(),
            awaited: None,
            line_mark: None,
            is_over_there: false,
        }
    }

    /// What a complaint says that is none of the program's but a word of the line to it.
    pub fn word_of_line(&mut self, complaint: &str) -> Option<RunReport> {
        let words = complaint.strip_prefix(self.line_mark.as_ref()?.as_str())?;
        self.is_over_there |= words == dialogue::OVER;
        Some(RunReport::Line { cut: words.strip_prefix(dialogue::CUT).map(str::to_owned) })
    }

    /// Whether something may run on that machine still.
    pub fn is_left_there(&self) -> bool {
        self.line_mark.is_some() && !self.is_over_there
    }

    /// The last such word among these complaints; all of them are heard.
    pub fn last_word_of_line(&mut self, complaints: &str) -> Option<RunReport> {
        complaints.lines().fold(None, |last, line| self.word_of_line(line).or(last))
    }

    /// These complaints without such words.
    pub fn without_line(&self, complaints: &str) -> String {
        let Some(mark) = &self.line_mark else { return complaints.to_owned() };
        complaints.split_inclusive('\n').filter(|line| !line.starts_with(mark.as_str())).collect()
    }

    /// Goes on behind this deed, where an earlier daemon has taken in some that come again.
    pub fn go_on(&mut self, deed: u64, taken: Taken) {
        (self.deed, self.taken) = (deed, taken);
    }

    /// Encodes, and hands over every batch that is full; [`Output::log_read`] writes the log. `ts` is when it
    /// was read. Waits while no credit is left, and does `meanwhile` whenever an order comes.
    pub fn push(
        &mut self,
        ts: Time,
        activities: impl IntoIterator<Item = Activity>,
        orders: &Orders,
        meanwhile: &mut dyn FnMut(),
    ) {
        for activity in activities {
            self.deed += 1;
            if self.deed <= self.taken.heard {
                self.pass_over(ts, &activity);
                continue;
            }
            if self.activities.is_empty() {
                self.since = Instant::now();
            }
            if self.logged == self.activities.len() {
                self.ts = ts;
            }
            let Self { wire, frames, .. } = &mut *self;
            frames.add(|text| wire.frame(&activity, text));
            self.activities.push(activity);
            if self.activities.len() >= BATCH_MAX || self.frames.bytes() >= BATCH_BYTES {
                self.hand_over(orders, meanwhile);
            }
        }
    }

    /// One that the state has already: later ones may lead back to it.
    fn pass_over(&mut self, ts: Time, activity: &Activity) {
        self.wire.frame(activity, &mut Vec::new());
        if self.deed > self.taken.logged {
            self.logs.append_deeds(self.lineage, self.agent, ts, self.deed, std::slice::from_ref(activity));
        }
    }

    /// Writes what [`Output::push`] has left. A log that cannot be written is counted by the store; the agent
    /// goes on.
    pub fn log_read(&mut self) {
        let entries = &self.activities[self.logged..];
        let count = entries.len() as u64;
        if count == 0 {
            return;
        }
        let first = self.deed + 1 - count;
        let known = self.taken.logged.saturating_sub(first - 1).min(count);
        let entries = &entries[usize::try_from(known).unwrap_or(usize::MAX)..];
        if !entries.is_empty() {
            self.logs.append_deeds(self.lineage, self.agent, self.ts, first + known, entries);
        }
        self.logged = self.activities.len();
    }

    /// Notes in the log that the agent has taken a message.
    pub fn log_taken(&mut self, ts: Time, entry: &LogEntry) {
        // What it did before stands before.
        self.log_read();
        self.deed += 1;
        if self.deed > self.taken.logged {
            self.logs.append_deeds(self.lineage, self.agent, ts, self.deed, std::slice::from_ref(entry));
        }
    }

    /// Whether nobody has heard of the deed that is so many behind the last one.
    pub fn is_new(&self, behind: usize) -> bool {
        self.deed + behind as u64 > self.taken.heard.max(self.taken.logged)
    }

    /// Whether something has waited long enough.
    pub fn is_due(&self) -> bool {
        !self.activities.is_empty() && self.since.elapsed() >= BATCH_WAIT
    }

    /// Whether something waits.
    pub fn has_any(&self) -> bool {
        !self.activities.is_empty()
    }

    /// Hands over what is there; whether there was anything.
    pub fn flush(&mut self, orders: &Orders, meanwhile: &mut dyn FnMut()) -> bool {
        let has_any = self.has_any();
        if has_any {
            self.hand_over(orders, meanwhile);
        }
        has_any
    }

    /// Tells the core at once, beside the batches.
    pub fn report(&self, report: RunReport) {
        (self.report)(self.agent, report);
    }

    fn hand_over(&mut self, orders: &Orders, meanwhile: &mut dyn FnMut()) {
        self.log_read();
        let credit = self.take_credit(orders, meanwhile);
        let activities = std::mem::take(&mut self.activities);
        self.logged = 0;
        // The next one will be of about this size, if there is one.
        let room = Packed::with_room_of(&self.frames);
        let frames = std::mem::replace(&mut self.frames, room);
        self.report(RunReport::Output(Batch { activities, frames, upto: self.deed, credit }));
    }

    fn take_credit(&self, orders: &Orders, meanwhile: &mut dyn FnMut()) -> Credit {
        loop {
            select! {
                recv(self.permits.1) -> _ => return Credit::new(Permit(self.permits.0.clone())),
                recv(self.gate) -> _ => return Credit::free(),
                recv(orders.bell()) -> _ => meanwhile(),
            }
        }
    }
}
