//! From activities to the log and to batches for the core.

use super::Reporter;
use crate::agents::report::{BATCH_MAX, Batch, Credit, LogEntry, RunReport};
use crate::agents::wire::Wire;
use crate::agents::worker_log::LogStore;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::providers::Activity;
use crossbeam_channel::{Receiver, Sender, bounded, select};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use svc_base::packed::Packed;

/// Batches of one run that the core has not finished with.
pub const BATCHES_IN_FLIGHT: usize = 4;
/// How long an activity waits for others to travel with.
const BATCH_WAIT: Duration = Duration::from_millis(5);
/// Encoded bytes after which a batch travels, however few it holds.
const BATCH_BYTES: usize = 512 * 1024;

/// Where all threads of a run put what the agent did. Its lock is held while a batch waits for a credit, so
/// batches keep their order; nothing that stops a run takes it.
pub(super) struct Output {
    agent: AgentId,
    lineage: LineageId,
    logs: Arc<LogStore>,
    report: Arc<Reporter>,
    permits: (Sender<()>, Receiver<()>),
    /// Disconnected when nobody counts credits any more.
    gate: Receiver<()>,
    pending: Mutex<Pending>,
}

struct Pending {
    wire: Wire,
    activities: Vec<Activity>,
    /// How many of them are in the log, and when the others were read.
    logged: usize,
    ts: Time,
    frames: Packed,
    since: Instant,
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
        let (activities, frames) = (Vec::new(), Packed::default());
        let (logged, ts, since) = (0, Time(0), Instant::now());
        let pending = Pending { wire, activities, logged, ts, frames, since };
        Self { agent, lineage, logs, report, permits, gate, pending: Mutex::new(pending) }
    }

    /// Logs, encodes, and hands over every batch that is full. Blocks while no credit is left.
    pub fn push(&self, activities: impl IntoIterator<Item = Activity>) {
        let mut pending = self.lock();
        self.take(&mut pending, now(), activities);
        self.write_log(&mut pending);
    }

    /// As [`Output::push`], but for the log, which is written with the next batch or by [`Output::log_read`]:
    /// for a caller that comes again at once. `ts` is when it was read.
    pub fn push_read(&self, ts: Time, activities: impl IntoIterator<Item = Activity>) {
        self.take(&mut self.lock(), ts, activities);
    }

    /// Writes what [`Output::push_read`] has left.
    pub fn log_read(&self) {
        self.write_log(&mut self.lock());
    }

    fn take(&self, pending: &mut Pending, ts: Time, activities: impl IntoIterator<Item = Activity>) {
        for activity in activities {
            if pending.activities.is_empty() {
                pending.since = Instant::now();
            }
            if pending.logged == pending.activities.len() {
                pending.ts = ts;
            }
            let Pending { wire, frames, .. } = &mut *pending;
            frames.add(|text| wire.frame(&activity, text));
            pending.activities.push(activity);
            if pending.activities.len() >= BATCH_MAX || pending.frames.bytes() >= BATCH_BYTES {
                self.hand_over(pending);
            }
        }
    }

    /// A log that cannot be written is counted by the store; the agent goes on.
    fn write_log(&self, pending: &mut Pending) {
        let entries = &pending.activities[pending.logged..];
        if !entries.is_empty() {
            self.logs.append_all(self.lineage, self.agent, pending.ts, entries);
            pending.logged = pending.activities.len();
        }
    }

    /// Adds an entry that is not of the agent's own doing to the log only.
    pub fn log(&self, entry: &LogEntry) {
        let mut pending = self.lock();
        // What it did before stands before.
        self.write_log(&mut pending);
        let _ = self.logs.append(self.lineage, self.agent, now(), entry);
    }

    /// Whether something has waited long enough.
    pub fn is_due(&self) -> bool {
        let pending = self.lock();
        !pending.activities.is_empty() && pending.since.elapsed() >= BATCH_WAIT
    }

    /// Hands over what is there; whether there was anything.
    pub fn flush(&self) -> bool {
        let mut pending = self.lock();
        let has_any = !pending.activities.is_empty();
        if has_any {
            self.hand_over(&mut pending);
        }
        has_any
    }

    /// Tells the core at once, beside the batches.
    pub fn report(&self, report: RunReport) {
        (self.report)(self.agent, report);
    }

    fn hand_over(&self, pending: &mut Pending) {
        self.write_log(pending);
        let credit = self.take_credit();
        let activities = std::mem::take(&mut pending.activities);
        pending.logged = 0;
        // The next one will be of about this size, if there is one.
        let room = Packed::with_room_of(&pending.frames);
        let frames = std::mem::replace(&mut pending.frames, room);
        self.report(RunReport::Output(Batch { activities, frames, credit }));
    }

    fn take_credit(&self) -> Credit {
        select! {
            recv(self.permits.1) -> _ => Credit::new(Permit(self.permits.0.clone())),
            recv(self.gate) -> _ => Credit::free(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
