//! One run: its process and its threads.
//!
//! ```text
//! run-<agent>  starts the program, waits for its end or for the order to stop it, sweeps, joins, and
//!              reports Exited
//! out-<agent>  standard output -> lines -> conversation -> log, batches
//! err-<agent>  standard error -> raw log, conversation, the last 4 KiB
//! in-<agent>   queue -> standard input
//! ```

use super::env::{Beside, process_spec};
use super::input::{Input, Item, write_input};
use super::lines::Lines;
use super::output::{Output, now};
use super::record_file::RecordFile;
use super::{Inner, Limits, RunSpec};
use crate::agents::report::RunReport;
use crate::agents::worker_log::{LogStore, RawLines, Stream};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::providers::{Activity, Conversation, RecordPlace, Step};
use crossbeam_channel::{Receiver, Sender, at, bounded, never, select};
use std::any::Any;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use svc_sys::process::{Exit, Marker, Running, STOP_GRACE, Sink, Source, StopReport, Wake};

/// Bytes of one line of standard output.
const LINE_LIMIT_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one line of standard error.
const STDERR_LINE_LIMIT_BYTES: usize = 64 * 1024;
/// Bytes of standard error that are told with the exit.
const STDERR_TAIL_BYTES: usize = 4096;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// A run that prints on and on hands over a batch this often, unless one is full before: waking the core for
/// every line would cost many times what the line does.
const PACE: Duration = Duration::from_millis(2);
/// How long lines gather in the pipe meanwhile, when a read has brought few.
const REST: Duration = Duration::from_millis(1);
/// Bytes of a read that are few: the pipe has room for many times as much while the reader rests.
const SMALL_READ_BYTES: usize = 16 * 1024;
/// How long the readers may take once every process of the run is gone, before they are told to end.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// How long the exit of a stopped program may take to be collected.
const EXIT_LIMIT: Duration = Duration::from_secs(1);
/// Stack of a thread in bytes; parsers recurse, so their thread has more.
const STACK_BYTES: usize = 256 * 1024;
const PARSER_STACK_BYTES: usize = 1024 * 1024;

/// What the threads of a run share.
pub(super) struct Run {
    pub agent: AgentId,
    pub input: Input,
    pub output: Output,
    conversation: Mutex<Option<Box<dyn Conversation>>>,
    is_stopping: AtomicBool,
    times: Mutex<Times>,
    bell: (Sender<()>, Receiver<()>),
    stderr_tail: Mutex<Vec<u8>>,
    record: Mutex<Record>,
}

/// The program's record of its session, see [`RecordFile`].
#[derive(Default)]
struct Record {
    /// Where the record of a session is.
    place: Option<FindRecord>,
    file: Option<RecordFile>,
}

type FindRecord = Box<dyn Fn(&str) -> Option<RecordPlace> + Send>;

struct Times {
    last_output: Instant,
    finish_ordered: Option<Instant>,
    /// A message taken late may have begun another turn; the program is not stopped in the middle of it.
    turn_open: bool,
}

/// The threads of a run that has started its program.
struct Threads {
    handles: Vec<JoinHandle<()>>,
    wakes: Vec<Wake>,
    input_wake: Option<Wake>,
    /// Each reader holds a clone.
    alive: Option<Sender<()>>,
    /// Disconnected when both readers have ended.
    readers: Receiver<()>,
}

impl Run {
    pub fn new(agent: AgentId, output: Output) -> Self {
        Self {
            agent,
            input: Input::default(),
            output,
            conversation: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            times: Mutex::new(Times { last_output: Instant::now(), finish_ordered: None, turn_open: false }),
            bell: bounded(1),
            stderr_tail: Mutex::default(),
            record: Mutex::default(),
        }
    }

    /// Orders the stop; never blocks.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.ring();
    }

    /// Orders the end; never blocks.
    pub fn finish(&self) {
        self.input.push(Item::Finish);
        self.times().finish_ordered.get_or_insert_with(Instant::now);
        self.ring();
    }

    fn ring(&self) {
        // A bell that rings already is enough.
        let _ = self.bell.0.try_send(());
    }

    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// When a program that was to end is stopped.
    fn finish_deadline(&self, limits: Limits) -> Option<Instant> {
        let times = self.times();
        if times.turn_open {
            return None;
        }
        times.finish_ordered.map(|ordered| ordered.max(times.last_output) + limits.finish_grace)
    }

    /// Lets the conversation act and does what it wants done: writes go to the queue in the order the
    /// conversation made them, events to the output. `false` when not all writes were taken.
    pub fn converse(&self, act: impl FnOnce(&mut dyn Conversation, &mut Vec<Step>)) -> bool {
        self.converse_into(|item| self.input.push(item), act)
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session_named(&self, session: &str) {
        let mut record = self.record();
        if record.file.is_none()
            && let Some(place) = record.place.as_ref().and_then(|place| place(session))
        {
            record.file = Some(RecordFile::new(place));
        }
    }

    /// Tells the conversation what the program has written into its record meanwhile.
    fn read_record(&self, last: bool) {
        let lines = self.record().file.as_mut().map(|file| file.look(last)).unwrap_or_default();
        if !lines.is_empty() {
            self.converse(|conversation, steps| {
                for line in &lines {
                    conversation.record(line, steps);
                }
            });
        }
    }

    /// As [`Run::converse`], with another way into the queue.
    pub fn converse_into(
        &self,
        push: impl Fn(Item) -> bool,
        act: impl FnOnce(&mut dyn Conversation, &mut Vec<Step>),
    ) -> bool {
        let mut room = Room::default();
        let accepted = self.act(push, act, &mut room);
        self.output.push(room.events);
        accepted
    }

    /// A line of standard output that was read at `ts`; more may come at once.
    fn line_read(&self, ts: Time, line: &str, room: &mut Room) {
        self.act(|item| self.input.push(item), |conversation, steps| conversation.line(line, steps), room);
        if !room.events.is_empty() {
            self.output.push_read(ts, room.events.drain(..));
        }
    }

    /// Lets the conversation act; what has happened is in `room` then. `false` when not all writes were
    /// taken.
    fn act(
        &self,
        push: impl Fn(Item) -> bool,
        act: impl FnOnce(&mut dyn Conversation, &mut Vec<Step>),
        room: &mut Room,
    ) -> bool {
        let Room { steps, events } = room;
        let mut accepted = true;
        {
            let mut guard = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(conversation) = guard.as_mut() else { return false };
            if catch_unwind(AssertUnwindSafe(|| act(conversation.as_mut(), steps))).is_err() {
                let text = "a line of its output could not be understood (a bug in this program)".into();
                steps.push(Step::Event(Activity::Trouble { text }));
            }
            for step in steps.drain(..) {
                match step {
                    Step::Event(activity) => {
                        match &activity {
                            Activity::Session { id, .. } => self.session_named(id),
                            Activity::TurnStarted => self.times().turn_open = true,
                            Activity::TurnEnded(_) => self.times().turn_open = false,
                            _ => {}
                        }
                        events.push(activity);
                    }
                    Step::Write(text) => accepted &= push(Item::Write(text)),
                    Step::CloseInput => accepted &= push(Item::Close),
                }
            }
        }
        if !accepted && !self.input.is_closed() {
            let text = "16 MiB wait to be read from its standard input: more was dropped".into();
            events.push(Activity::Trouble { text });
        }
        accepted
    }
}

/// Room for what a conversation wants done, kept from line to line.
#[derive(Default)]
struct Room {
    steps: Vec<Step>,
    events: Vec<Activity>,
}

/// The run's own thread. What was made ready for it is gone when the exit is reported.
pub(super) fn run(inner: &Inner, run: &Arc<Run>, spec: &RunSpec, prepared: Vec<Box<dyn Any + Send>>) {
    let marker = Marker { agent: spec.agent, project_dir: spec.request.project_dir.clone() };
    let lineage = spec.lineage;
    if run.is_stopping() {
        return end(inner, run, Exit::default(), false, 0);
    }
    let started = Beside::make(&spec.request, &spec.agent.to_string())
        .and_then(|beside| Ok((launch(inner, run, spec, &marker, &beside)?, beside)));
    let (running, beside) = match started {
        Ok(started) => started,
        Err(error) => return fail(inner, run, error),
    };
    let (identity, exit_channel) = (running.identity, running.exit.clone());
    run.output.report(RunReport::Started { pid: identity.pid, start_ticks: identity.start_ticks });
    let mut threads = Threads::new();
    let failed = threads.start(inner, run, lineage, running).err();
    if failed.is_some() {
        run.stop();
    }
    let ended = wait(inner.limits, run, &exit_channel);
    let signalled = ended.is_none();
    let (exit, swept) = if let Some(exit) = ended {
        (exit, inner.processes.sweep(identity, Some(&marker)))
    } else {
        let report = inner.processes.stop_tree(identity, Some(&marker), inner.limits.stop_grace);
        (exit_channel.recv_timeout(EXIT_LIMIT).unwrap_or_default(), report)
    };
    let StopReport { leaked, killed } = swept;
    log::info!("agent {}: ended, killed: {killed}, leaked: {leaked}", run.agent);
    threads.join(run);
    drop((beside, prepared));
    match failed {
        // However its program took it that nobody listened: it never worked.
        Some(error) => fail(inner, run, format!("no threads for it: {error}")),
        None => end(inner, run, exit, signalled, leaked),
    }
}

/// Reports that there was no run: always last, instead of an exit.
fn fail(inner: &Inner, run: &Run, error: String) {
    run.input.close();
    // What was said and never read is answered here.
    write_input(run, None);
    inner.forget(run.agent);
    run.output.report(RunReport::StartFailed { error });
}

/// Reports the exit: always last, exactly once.
fn end(inner: &Inner, run: &Run, exit: Exit, signalled: bool, leaked: u32) {
    run.input.close();
    // What was said and never read is answered here when no input thread did.
    write_input(run, None);
    inner.forget(run.agent);
    let tail = run.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
    let stderr_tail = String::from_utf8_lossy(&tail).into_owned();
    drop(tail);
    let Exit { code, signal } = exit;
    run.output.report(RunReport::Exited { code, signal, signalled, stderr_tail, leaked });
}

fn launch(
    inner: &Inner,
    run: &Run,
    spec: &RunSpec,
    marker: &Marker,
    beside: &Beside,
) -> Result<Running, String> {
    let info = spec.provider.info();
    let launch = catch_unwind(AssertUnwindSafe(|| spec.provider.launch(&spec.request)))
        .unwrap_or_else(|_| Err(format!("the provider {} failed (a bug in this program)", info.id)))?;
    let process = process_spec(&launch, info, &spec.env_extra, &spec.request, marker, beside);
    let environment = process.env.clone();
    let provider = spec.provider;
    run.record().place = Some(Box::new(move |session| {
        // A later value replaces an earlier one.
        let value = |name: &str| environment.iter().rev().find(|(key, _)| key == name);
        let folder = |name: &str| value(name).map(|(_, value)| PathBuf::from(value));
        provider.record(session, &folder)
    }));
    let running = inner.processes.spawn(&process).map_err(|error| error.to_string())?;
    *run.conversation.lock().unwrap_or_else(PoisonError::into_inner) = Some(launch.conversation);
    run.times().last_output = Instant::now();
    Ok(running)
}

/// Waits for the exit; `None` when the program is to be stopped first.
fn wait(limits: Limits, run: &Run, exit: &Receiver<Exit>) -> Option<Exit> {
    loop {
        if run.is_stopping() {
            return exit.try_recv().ok();
        }
        let deadline = run.finish_deadline(limits);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return exit.try_recv().ok();
        }
        select! {
            recv(exit) -> exit => return Some(exit.unwrap_or_default()),
            recv(run.bell.1) -> _ => {}
            recv(deadline.map_or_else(never, at)) -> _ => {}
        }
    }
}

impl Threads {
    fn new() -> Self {
        let (alive, readers) = bounded(0);
        Self { handles: Vec::new(), wakes: Vec::new(), input_wake: None, alive: Some(alive), readers }
    }

    fn start(
        &mut self,
        inner: &Inner,
        run: &Arc<Run>,
        lineage: LineageId,
        running: Running,
    ) -> io::Result<()> {
        let (stdout, stdout_wake) = Source::new(running.stdout)?;
        let (stderr, stderr_wake) = Source::new(running.stderr)?;
        let (sink, input_wake) = running.stdin.map(Sink::new).transpose()?.unzip();
        self.wakes.extend([stdout_wake, stderr_wake]);
        self.input_wake = input_wake;
        run.converse(|conversation, steps| conversation.open(steps));
        run.output.flush();
        let raw = |stream| RawLog {
            logs: Arc::clone(&inner.logs),
            lineage,
            lines: RawLines::new(run.agent, stream),
        };
        let (out_raw, err_raw) = (raw(Stream::Stdout), raw(Stream::Stderr));
        let alive = self.alive.clone();
        let shared = Arc::clone(run);
        self.spawn(run, "out", PARSER_STACK_BYTES, move || {
            let _alive = alive;
            read_output(&shared, stdout, out_raw);
        })?;
        let alive = self.alive.clone();
        let shared = Arc::clone(run);
        self.spawn(run, "err", STACK_BYTES, move || {
            let _alive = alive;
            read_errors(&shared, stderr, err_raw);
        })?;
        let shared = Arc::clone(run);
        self.spawn(run, "in", STACK_BYTES, move || write_input(&shared, sink))
    }

    fn spawn(
        &mut self,
        run: &Run,
        name: &str,
        stack: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(format!("{name}-{}", run.agent)).stack_size(stack);
        self.handles.push(builder.spawn(body)?);
        Ok(())
    }

    /// Every process is gone, so the pipes end by themselves; if one does not, its reader is told to.
    fn join(mut self, run: &Run) {
        run.input.close();
        self.input_wake = None;
        self.alive = None;
        let _ = self.readers.recv_timeout(DRAIN_LIMIT);
        self.wakes.clear();
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                log::error!("agent {}: one of its threads panicked", run.agent);
            }
        }
    }
}

/// What a program really printed, on its way into its file: written once for each read.
struct RawLog {
    logs: Arc<LogStore>,
    lineage: LineageId,
    lines: RawLines,
}

impl RawLog {
    fn write(&mut self) {
        self.logs.append_raw(self.lineage, &mut self.lines);
    }
}

fn read_output(run: &Run, mut source: Source, mut raw: RawLog) {
    let mut lines = Lines::new(LINE_LIMIT_BYTES);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut room = Room::default();
    // The first line of a burst travels at once, the others with those that come right behind them.
    let mut handed_over: Option<Instant> = None;
    let since = |then: Option<Instant>| then.map_or(Duration::MAX, |then| then.elapsed());
    loop {
        let count = match source.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        run.times().last_output = Instant::now();
        // What it wrote there before it said this.
        run.read_record(false);
        let ts = now();
        raw.lines.at(ts);
        lines.feed(&chunk[..count], |line| {
            raw.lines.push(line);
            run.line_read(ts, line, &mut room);
        });
        raw.write();
        run.output.log_read();
        if count < SMALL_READ_BYTES && since(handed_over) < PACE {
            source.rest(REST);
        }
        let due = run.output.is_due() || !source.is_ready(PACE.saturating_sub(since(handed_over)));
        if due && run.output.flush() {
            handed_over = Some(Instant::now());
        }
    }
    lines.end(|line| {
        raw.lines.push(line);
        run.line_read(now(), line, &mut room);
    });
    raw.write();
    run.read_record(true);
    run.converse(|conversation, steps| conversation.end(steps));
    run.output.flush();
}

fn read_errors(run: &Run, mut source: Source, mut raw: RawLog) {
    let mut lines = Lines::new(STDERR_LINE_LIMIT_BYTES);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut take = |line: &str| {
        raw.lines.at(now());
        raw.lines.push(line);
        raw.write();
        let mut is_told = false;
        run.converse(|conversation, steps| {
            conversation.complaint(line, steps);
            is_told = !steps.is_empty();
        });
        if is_told {
            run.output.flush();
        }
    };
    while let Ok(count) = source.read(&mut chunk) {
        if count == 0 {
            break;
        }
        lines.feed(&chunk[..count], &mut take);
        let mut tail = run.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&chunk[..count]);
        let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..surplus);
        // Not in the middle of a character.
        let broken = tail.iter().take_while(|byte| surplus > 0 && (0x80..0xC0).contains(*byte)).count();
        tail.drain(..broken);
    }
    lines.end(&mut take);
}

impl Default for Limits {
    fn default() -> Self {
        Self { finish_grace: super::FINISH_GRACE, stop_grace: STOP_GRACE }
    }
}
