//! One run: the thread that starts its keeper, or finds it again, and takes in what comes from it.
//!
//! ```text
//! program ──pipes──▶ keeper ──records──▶ this thread ──▶ log, batches for the core
//!                      ▲ writes, stop          │ checkpoints
//!                      └───────────────────────┘
//! ```

use super::checkpoint::{Checkpoint, RunFile, RunFolder};
use super::env::{Beside, on_terminal, process_spec};
use super::kept::forget;
use super::notes::Act;
use super::orders::Order;
use super::output::{Output, Taken};
use super::stream::{End, Stream};
use super::{Inner, Kept, Known, Run, RunSpec, far, millis, random};
use crate::agents::report::{Keeper, RunReport};
use crate::core::time::Time;
use crate::providers::{Launch, Provider, Ruling, SessionStart};
use crate::runners::dialogue::PLAN;
use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_keeper::client::{self, Link, Next, Reader};
use svc_keeper::protocol::{Order as KeeperOrder, records};
use svc_sys::files::replace_soon;
use svc_sys::process::{Identity, Marker};

/// A run that prints on and on hands over a batch this often, unless one is full before: waking the core for
/// every line would cost many times what the line does.
const PACE: Duration = Duration::from_millis(2);
/// How long records gather meanwhile, when few have come.
const REST: Duration = Duration::from_millis(1);
/// Bytes that are few: there is room for many times as much while this thread rests.
const SMALL_READ_BYTES: usize = 16 * 1024;
/// Records since the last checkpoint that are worth one, when a turn is not over.
const CHECKPOINT_BYTES: u64 = 256 * 1024;
/// Between two checkpoints at least: each has the state written.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// A checkpoint is made after this long, however little has come.
const CHECKPOINT_LATEST: Duration = Duration::from_secs(10);

/// How long the end of a program with a person at its screen may take, which tells only then what was said:
/// longer than `svc __terminal` gives it for both.
const SCREEN_GRACE: Duration = Duration::from_secs(40);

/// How the thread of a run came to its end.
enum Over {
    Ended(End),
    /// The keeper is gone.
    KeeperGone,
    /// The next daemon goes on.
    Left,
}

/// What is taken away when a run is over.
type Held = Vec<Box<dyn Any + Send>>;

/// A run from its beginning. What was made ready for it is gone when the exit is reported.
pub(super) fn run(inner: &Inner, run: &Arc<Run>, mut spec: RunSpec, output: Output) {
    let prepared: Held = spec.prepare.drain(..).map(|prepare| prepare()).collect();
    if run.orders.is_stopping() {
        drop(prepared);
        return never_started(inner, run, &output);
    }
    if let Some(Err(error)) = spec.ground.take().map(|make| make()) {
        drop(prepared);
        return fail(inner, run, &output, error);
    }
    if let Some(complete) = spec.complete.take() {
        complete(&mut spec.request);
    }
    let project = spec.request.project_dir.clone();
    let folder = RunFolder::of(&project, spec.agent);
    let started = Beside::make(&spec.request, &spec.agent.to_string())
        .and_then(|beside| Ok((launch(inner, &spec, &folder, &beside)?, beside)));
    let ((launch, order, file), beside) = match started {
        Ok(started) => started,
        Err(error) => {
            drop(prepared);
            return fail(inner, run, &output, error);
        }
    };
    let mut stream = Stream::new(output, Arc::clone(&run.orders), launch.conversation);
    let grace = stop_grace(inner, &file);
    stream.output.line_mark.clone_from(&file.line_mark);
    stream.record.look_for(spec.provider, file.record_folders, file.at_screen);
    if let (true, SessionStart::Resume { id, .. }) = (file.at_screen, &spec.request.session) {
        // Before anybody can write there again.
        stream.record.read_on_from_the_end(id);
    }
    stream.turns.by = spec.turns.take();
    // Before the program is there: some have their first message on the command line.
    stream.turns.begin(false);
    let first = Checkpointed::first(inner, &folder, &stream);
    let link = first.and_then(|checkpointed| {
        Ok((client::start(&inner.processes, inner.keeper_program.clone(), &order)?, checkpointed))
    });
    match link {
        Ok((link, checkpointed)) => {
            let marker = order.marker;
            let held: (Beside, Held) = (beside, prepared);
            stream.speak_to(&link, grace);
            follow(inner, run, stream, link, checkpointed, &marker, held);
        }
        Err(error) => {
            drop((beside, prepared));
            let _ = folder.remove();
            fail(inner, run, &stream.output, error);
        }
    }
}

/// A run that an earlier daemon has left to its keeper.
pub(super) fn go_on(inner: &Inner, run: &Arc<Run>, kept: Kept, mut known: Known, mut output: Output) {
    let Kept { link, folder, file, project, .. } = kept;
    let marker = Marker { agent: run.agent, project_dir: project.clone() };
    let prepared: Held = known.prepare.drain(..).map(|prepare| prepare()).collect();
    let held: (Beside, Held) = (Beside::of(&file, &project), prepared);
    let found = folder.newest(known.heard).ok_or("no checkpoint of it is as old as the state on disk");
    let (provider, lineage) = (known.provider, output.lineage);
    let restored = found
        .map_err(str::to_owned)
        .and_then(|found| Ok((Stream::conversation_of(&found.saved, provider, file.at_screen)?, found)));
    let (conversation, found) = match restored {
        Ok(restored) => restored,
        Err(error) => {
            log::error!("agent {} cannot be gone on with, and is ended: {error}", run.agent);
            forget(&link.writer, &folder);
            drop(held);
            return fail(inner, run, &output, format!("it could not be gone on with: {error}"));
        }
    };
    let logged = inner.logs.last_deed(lineage, run.agent).unwrap_or_else(|error| {
        log::warn!("agent {}: its log cannot be read: {error}", run.agent);
        known.heard
    });
    if let Err(error) = inner.logs.rewind_raw(lineage, found.raw) {
        log::warn!("agent {}: some of its raw lines stand there twice: {error}", run.agent);
    }
    output.go_on(found.saved.deed, Taken { heard: known.heard, logged });
    let mut stream = Stream::new(output, Arc::clone(&run.orders), conversation);
    let grace = stop_grace(inner, &file);
    stream.output.line_mark.clone_from(&file.line_mark);
    stream.record.look_for(provider, file.record_folders, file.at_screen);
    stream.started = known.process;
    let checkpointed = Checkpointed::at(&folder, &found);
    stream.restore(found.saved);
    stream.turns.by = known.turns.take();
    let tail = String::from_utf8_lossy(&stream.tail).into_owned();
    if let Some(word) = stream.output.last_word_of_line(&tail) {
        // No deed has counted it: the state may be one of before it.
        stream.output.report(word);
    }
    stream.speak_to(&link, grace);
    stream.tell_settings(known.settings);
    let (at, end, acts) = (stream.offset, link.welcome.end, link.welcome.notes.len());
    log::info!("agent {}: gone on with at {at} of {end} bytes, {acts} acts kept", run.agent);
    for message in known.sent {
        if !stream.is_underway(message) {
            // It never reached the keeper.
            stream.said(message, false);
        }
    }
    follow(inner, run, stream, link, checkpointed, &marker, held);
}

/// Follows a keeper to the end of its run.
fn follow(
    inner: &Inner,
    run: &Arc<Run>,
    mut stream: Stream,
    link: Link,
    mut checkpointed: Checkpointed,
    marker: &Marker,
    held: (Beside, Held),
) {
    let Link { mut reader, writer, .. } = link;
    run.orders.wake_by(reader.waker());
    let known = stream.started;
    let over = listen(inner, &mut stream, &mut reader, &mut checkpointed, known.is_some());
    let waiting = run.orders.close();
    if matches!(over, Over::Left) {
        // A last checkpoint is the newest the state can be; the others stay, in case the state is not.
        stream.write_logs();
        stream.flush();
        checkpointed.make(inner, &stream);
        std::mem::forget(held);
        inner.forget(run.agent);
        stream.output.report(RunReport::Left);
        return writer.close();
    }
    for order in waiting {
        if let Order::Say { message_id, .. } = order {
            stream.said(message_id, false);
        }
    }
    stream.turns.end();
    let report = match over {
        Over::Ended(End::StartFailed(error)) => RunReport::StartFailed { error },
        Over::Ended(End::Exited { code, signal, signalled, leaked, over }) => {
            let keeper = match over {
                Some(over) => Keeper::Ceiling { held: over.held, ceiling: over.ceiling },
                // Some other than this daemon has ended it: its keeper had nobody left.
                None if signalled && !stream.is_stop_told() => Keeper::Orphaned,
                None => Keeper::Told,
            };
            let stderr_tail = stream.stderr_tail();
            RunReport::Exited { code, signal, signalled, stderr_tail, leaked, keeper }
        }
        Over::KeeperGone | Over::Left => {
            let leaked = end_tree(inner, &stream, marker);
            stream.write_logs();
            stream.flush();
            let stderr_tail = stream.stderr_tail();
            let keeper = Keeper::Gone;
            RunReport::Exited { code: None, signal: None, signalled: false, stderr_tail, leaked, keeper }
        }
    };
    log::info!("agent {}: ended: {report:?}", run.agent);
    if stream.output.is_left_there() && matches!(report, RunReport::Exited { .. }) {
        stream.output.report(RunReport::LeftThere);
    }
    drop(held);
    inner.ended().insert(run.agent, (writer, checkpointed.folder));
    inner.forget(run.agent);
    stream.output.report(report);
}

/// Takes in what comes until there is an end.
fn listen(
    inner: &Inner,
    stream: &mut Stream,
    reader: &mut Reader,
    checkpointed: &mut Checkpointed,
    mut is_start_told: bool,
) -> Over {
    let mut tells_catching_up = stream.is_open();
    // The first line of a burst travels at once, the others with those that come right behind them.
    let mut handed_over: Option<Instant> = None;
    let since = |then: Option<Instant>| then.map_or(Duration::MAX, |then| then.elapsed());
    stream.act_again();
    loop {
        if stream.orders.is_leaving() {
            return Over::Left;
        }
        stream.heed_stop();
        if stream.has_caught_up() {
            if !stream.is_open() {
                stream.act(Act::Open);
            }
            if std::mem::take(&mut tells_catching_up) {
                stream.flush();
                stream.output.report(RunReport::CaughtUp);
            }
            // One whose program is gone already is waited for until its keeper has told of the end.
            let is_there = |(pid, start_ticks)| inner.processes.is_alive(Identity { pid, start_ticks });
            if stream.output.awaited.is_some() && stream.started.is_none_or(is_there) {
                stream.output.awaited = None;
            }
            while let Some(order) = stream.orders.pop() {
                obey(stream, order, checkpointed);
            }
            checkpointed.make_if_due(inner, stream);
        }
        let finish = finish_deadline(inner, stream).filter(|_| !stream.is_stop_told());
        if finish.is_some_and(|deadline| deadline <= Instant::now()) {
            stream.stop();
        }
        let limit = [finish, checkpointed.due(stream), stream.look_at_record()].into_iter().flatten().min();
        let count = match reader.next(limit) {
            Next::Records { offset, .. } => {
                let bytes = reader.bytes();
                for (end, ts, record) in records(bytes) {
                    let end = offset + end;
                    if end <= stream.offset {
                        // Of before the checkpoint, kept until its state was on disk.
                        continue;
                    }
                    let over = stream.take(end, Time(ts), record);
                    if let Some((pid, start_ticks)) = stream.started.filter(|_| !is_start_told) {
                        is_start_told = true;
                        stream.output.report(RunReport::Started { pid, start_ticks });
                    }
                    if let Some(over) = over {
                        return Over::Ended(over);
                    }
                }
                bytes.len()
            }
            Next::Woken | Next::TimedOut => continue,
            Next::Gone => return Over::KeeperGone,
        };
        stream.write_logs();
        if count < SMALL_READ_BYTES && since(handed_over) < PACE {
            reader.rest(REST);
        }
        let due = stream.output.is_due() || !reader.is_ready(PACE.saturating_sub(since(handed_over)));
        if due && stream.flush() {
            handed_over = Some(Instant::now());
        }
    }
}

fn obey(stream: &mut Stream, order: Order, checkpointed: &mut Checkpointed) {
    match order {
        // What an earlier daemon has said already is not said again because this one has heard why.
        Order::Say { message_id, .. } if stream.was_said(message_id) => {}
        Order::Say { message_id, text } => stream.act(Act::Say { message: message_id, text }),
        Order::Decide { question, ruling: Ruling { allow, reason } } => {
            stream.act(Act::Decide { question, allow, reason });
        }
        Order::Interrupt => stream.act(Act::Interrupt),
        Order::Finish => stream.act(Act::Finish),
        Order::Settings(settings) => stream.tell_settings(settings),
        Order::Settled(n) => checkpointed.settled(n, stream),
    }
}

/// When a program that was let go is stopped.
fn finish_deadline(inner: &Inner, stream: &Stream) -> Option<Instant> {
    let let_go = stream.let_go.filter(|_| !stream.turn_open)?;
    let is_at_screen = stream.record.look.is_some();
    let grace = if is_at_screen { SCREEN_GRACE } else { inner.limits.finish_grace };
    Some(let_go.max(stream.last_output) + grace)
}

/// Between TERM and KILL.
fn stop_grace(inner: &Inner, file: &RunFile) -> Duration {
    let usual = inner.limits.stop_grace;
    match file {
        RunFile { at_screen: true, .. } => SCREEN_GRACE.max(usual),
        RunFile { line_mark: Some(_), .. } => usual + far::STOP_GRACE,
        _ => usual,
    }
}

/// Ends what a keeper that is gone has left; how many processes could not be.
fn end_tree(inner: &Inner, stream: &Stream, marker: &Marker) -> u32 {
    let Some((pid, start_ticks)) = stream.started else { return 0 };
    let leader = Identity { pid, start_ticks };
    inner.processes.stop_tree(leader, Some(marker), Duration::ZERO).leaked
}

/// Reports that there was no run: always last, instead of an exit.
fn fail(inner: &Inner, run: &Run, output: &Output, error: String) {
    refuse_rest(inner, run, output);
    output.report(RunReport::StartFailed { error });
}

fn never_started(inner: &Inner, run: &Run, output: &Output) {
    refuse_rest(inner, run, output);
    let (code, signal, stderr_tail) = (None, None, String::new());
    let keeper = Keeper::Told;
    output.report(RunReport::Exited { code, signal, signalled: false, stderr_tail, leaked: 0, keeper });
}

/// What was said and never heard is answered.
fn refuse_rest(inner: &Inner, run: &Run, output: &Output) {
    for order in run.orders.close() {
        if let Order::Say { message_id, .. } = order {
            output.report(RunReport::Said { message_id, delivered: false });
        }
    }
    inner.forget(run.agent);
}

/// Makes what a run needs: its folder, and the order for its keeper.
fn launch(
    inner: &Inner,
    spec: &RunSpec,
    folder: &RunFolder,
    beside: &Beside,
) -> Result<(Launch, KeeperOrder, RunFile), String> {
    let info = spec.provider.info();
    let far = spec.far.as_ref().map(|far| far.request(&spec.request));
    let request = far.as_ref().unwrap_or(&spec.request);
    let made = catch_unwind(AssertUnwindSafe(|| match spec.at_screen {
        None => Ok((spec.provider.launch(request)?, None)),
        Some(since) => {
            spec.provider.at_terminal(&spec.request, since.0).map(|screen| (screen.launch, Some(screen.last)))
        }
    }));
    let (mut launch, last) =
        made.unwrap_or_else(|_| Err(format!("the provider {} failed (a bug in this program)", info.id)))?;
    let line = spec.far.as_ref().map(|far| far.line(inner, spec, &launch)).transpose()?;
    let marker = Marker { agent: spec.agent, project_dir: spec.request.project_dir.clone() };
    let spec_of =
        |launch: &Launch| process_spec(launch, info, &spec.env_extra, &spec.request, &marker, beside);
    let process = match (&spec.far, last) {
        (Some(far), _) => far.process(spec, folder),
        (None, None) => spec_of(&launch),
        (None, Some(args)) => {
            let process = spec_of(&launch);
            let last = (!args.is_empty()).then(|| {
                launch.args = args;
                spec_of(&launch)
            });
            on_terminal(process, last, folder.path())
        }
    };
    let (beside, has_room) = beside.place();
    // What runs elsewhere has neither a screen nor a record of its session here.
    let at_screen = spec.at_screen.is_some() && line.is_none();
    let record_folders = match line {
        Some(_) => Vec::new(),
        None => record_folders(spec.provider, &process.env, at_screen),
    };
    let (line_mark, plan) = line.unzip();
    let file = RunFile {
        agent: spec.agent,
        model: spec.request.model.clone(),
        beside,
        has_room,
        at_screen,
        line_mark,
        record_folders,
    };
    let made = folder.make().and_then(|()| folder.write_run(&file));
    let made = made.and_then(|()| plan.map_or(Ok(()), |plan| replace_soon(&folder.path().join(PLAN), &plan)));
    made.map_err(|error| format!("its folder {} cannot be made: {error}", folder.path().display()))?;
    let order = KeeperOrder {
        token: random(),
        run_dir: folder.path().to_path_buf(),
        program: process.program,
        args: process.args,
        env: process.env,
        cwd: process.cwd,
        stdin: launch.stdin,
        marker,
        stop_grace_ms: millis(stop_grace(inner, &file)),
        orphan_ms: millis(spec.orphan),
        nice: spec.nice,
        ceiling: spec.ceiling,
    };
    Ok((launch, order, file))
}

/// The variables that a provider looks at to find a record of a session, with their values.
fn record_folders(
    provider: &'static dyn Provider,
    env: &[(std::ffi::OsString, std::ffi::OsString)],
    at_screen: bool,
) -> Vec<(String, PathBuf)> {
    let found = RefCell::new(Vec::new());
    let folder = |name: &str| {
        // A later value replaces an earlier one.
        let value = env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| PathBuf::from(value))?;
        found.borrow_mut().push((name.to_owned(), value.clone()));
        Some(value)
    };
    let nobodys = "00000000-0000-0000-0000-000000000000";
    let _ =
        if at_screen { provider.session_file(nobodys, &folder) } else { provider.record(nobodys, &folder) };
    found.into_inner()
}

/// The checkpoints of a run.
struct Checkpointed {
    folder: RunFolder,
    /// The newest: its number, where it stands, and when it was made.
    n: u64,
    offset: u64,
    seq: u64,
    at: Instant,
    /// One that the state is not on disk for yet: its number, offset and last write.
    pending: Option<(u64, u64, u64)>,
}

impl Checkpointed {
    fn first(inner: &Inner, folder: &RunFolder, stream: &Stream) -> Result<Self, String> {
        let mut checkpointed =
            Self { folder: folder.clone(), n: 0, offset: 0, seq: 0, at: Instant::now(), pending: None };
        checkpointed
            .write(inner, stream, 0)
            .map_err(|error| format!("its folder {} cannot be used: {error}", folder.path().display()))?;
        Ok(checkpointed)
    }

    fn at(folder: &RunFolder, found: &Checkpoint) -> Self {
        let Checkpoint { n, saved, .. } = found;
        let (offset, seq) = (saved.offset, saved.seq);
        // Newer ones, whose state was not written, are none.
        folder.forget_after(*n);
        Self { folder: folder.clone(), n: *n, offset, seq, at: Instant::now(), pending: None }
    }

    /// When the next one is to be made, if nothing else happens.
    fn due(&self, stream: &Stream) -> Option<Instant> {
        if self.pending.is_some() || !self.has_news(stream) {
            return None;
        }
        let is_worth_it = !stream.turn_open || stream.offset - self.offset >= CHECKPOINT_BYTES;
        Some(self.at + if is_worth_it { CHECKPOINT_EVERY } else { CHECKPOINT_LATEST })
    }

    fn has_news(&self, stream: &Stream) -> bool {
        stream.offset > self.offset || stream.seq() > self.seq
    }

    fn make_if_due(&mut self, inner: &Inner, stream: &mut Stream) {
        if self.due(stream).is_some_and(|due| due <= Instant::now()) {
            stream.write_logs();
            stream.flush();
            if self.make(inner, stream) {
                stream.output.report(RunReport::Checkpoint { n: self.n, deed: stream.output.deed });
                self.pending = Some((self.n, self.offset, self.seq));
            }
        }
    }

    /// Makes one, where that can be done now.
    fn make(&mut self, inner: &Inner, stream: &Stream) -> bool {
        self.at = Instant::now();
        match self.write(inner, stream, self.n + 1) {
            Ok(made) => made,
            Err(error) => {
                log::warn!("agent {}: no checkpoint can be written: {error}", stream.output.agent);
                false
            }
        }
    }

    fn write(&mut self, inner: &Inner, stream: &Stream, n: u64) -> std::io::Result<bool> {
        let Some(saved) = stream.save() else { return Ok(false) };
        let (offset, seq) = (saved.offset, saved.seq);
        let raw = inner.logs.raw_place(stream.output.lineage)?;
        self.folder.write(&Checkpoint { n, raw, saved })?;
        (self.n, self.offset, self.seq) = (n, offset, seq);
        Ok(true)
    }

    /// The state is on disk as it was at this one: nothing before is needed again.
    fn settled(&mut self, n: u64, stream: &mut Stream) {
        let Some((_, offset, seq)) = self.pending.take_if(|(pending, ..)| *pending == n) else { return };
        self.folder.forget_before(n);
        stream.tell_taken(offset, seq);
    }
}
