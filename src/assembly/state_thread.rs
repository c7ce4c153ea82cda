//! The one thread that owns all state: it takes events from its lanes, applies them, publishes the new
//! snapshot, and only then performs the effects, so that a client reads its own writes.

use super::apply::apply;
use super::outbox::Outbox;
use super::rules::name_of;
use super::unwritten::MAX_UNWRITTEN;
use crate::api::Problem;
use crate::core::{Actor, CallId, Command, Context, Durability, Effect, Event, Response, State, time::Time};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use svc_sys::clock;
use svc_sys::threads::Thread;

/// Waiting control events at most; a further one is dropped with a warning (they repeat or are idempotent).
const CONTROL_LANE: usize = 256;
/// Waiting calls at most; a further caller blocks on its connection's thread.
const CALL_LANE: usize = 512;
/// Waiting reports at most; a further one blocks its run: the pipe fills, the agent waits.
const WORK_LANE: usize = 256;
/// Waiting answers of the disk at most: of as many as there may be changes on their way to it, so that none
/// waits for agents' output.
const DISK_LANE: usize = MAX_UNWRITTEN + CALL_LANE;
/// Events of one lane handled in one turn.
const TURN_EVENTS: usize = 64;
/// A turn over this is logged with its events.
const SLOW_TURN: Duration = Duration::from_millis(50);
/// The loop wakes at least this often.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A caller waits for its answer this long; longer than any deferred answer of the core.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// Stack of the state thread in bytes.
const STACK_BYTES: usize = 2 << 20;

type CallMessage = (Actor, Command, Sender<Response>);

/// The door to the core, for any thread.
#[derive(Clone)]
pub struct Core {
    control: Sender<Event>,
    calls: Sender<CallMessage>,
    disk: Sender<Event>,
    work: Sender<Event>,
    snapshot: Snapshot,
}

/// The published state.
#[derive(Clone, Default)]
pub struct Snapshot(Arc<RwLock<Arc<State>>>);

impl Snapshot {
    /// The latest state.
    pub fn load(&self) -> Arc<State> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, state: Arc<State>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Core {
    /// The lanes, and the thread's body to be run on a thread of its own.
    pub fn new(state: State) -> (Self, StateThread) {
        let (control, control_in) = bounded(CONTROL_LANE);
        let (calls, calls_in) = bounded(CALL_LANE);
        let (disk, disk_in) = bounded(DISK_LANE);
        let (work, work_in) = bounded(WORK_LANE);
        let snapshot = Snapshot::default();
        snapshot.publish(Arc::new(state.clone()));
        let core = Self { control, calls, disk, work, snapshot: snapshot.clone() };
        let lanes = Lanes { control: control_in, calls: calls_in, disk: disk_in, work: work_in };
        let thread =
            StateThread { state, lanes, snapshot, waiting: HashMap::new(), next_call: 0, exit_sent: false };
        (core, thread)
    }

    /// Asks for something on behalf of `actor`; the answer comes on the channel. Blocks while the lane is
    /// full. A channel that ends without an answer means that the daemon stops.
    pub fn ask(&self, actor: Actor, command: Command) -> Receiver<Response> {
        let (answer, wait) = bounded(1);
        // Unsent, its sender is dropped: the channel ends.
        let _ = self.calls.send_timeout((actor, command, answer), CALL_TIMEOUT);
        wait
    }

    /// Asks for something on behalf of `actor` and waits for the answer.
    pub fn call(&self, actor: Actor, command: Command) -> Response {
        let (answer, wait) = bounded(1);
        let gone = || crate::core::stopping().into();
        if self.calls.send_timeout((actor, command, answer), CALL_TIMEOUT).is_err() {
            return gone();
        }
        match wait.recv_timeout(CALL_TIMEOUT) {
            Ok(reply) => reply,
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => gone(),
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                let seconds = CALL_TIMEOUT.as_secs();
                Problem::new(504, "timeout", format!("no answer within {seconds} s; look at /api/agents"))
                    .into()
            }
        }
    }

    /// Reports a fact; blocks while the lane is full.
    pub fn report(&self, event: Event) {
        // The core is gone only when the daemon ends: nobody is left to tell.
        let _ = self.work.send(event);
    }

    /// Reports what became of a write; blocks while the lane is full.
    pub fn on_disk(&self, event: Event) {
        // The core is gone only when the daemon ends: nobody is left to tell.
        let _ = self.disk.send(event);
    }

    /// Reports a fact that goes before all others and never blocks.
    pub fn control(&self, event: Event) {
        if let Err(TrySendError::Full(event)) = self.control.try_send(event) {
            log::warn!("the control lane is full, dropped {event:?}");
        }
    }

    /// Asks the core to end, as a signal does. Blocks while its lane is full, so that this is never lost.
    fn end(&self) {
        // Unsent, the thread has ended already.
        let _ = self.control.send(Event::Terminate);
    }

    /// The latest published state.
    pub fn snapshot(&self) -> Arc<State> {
        self.snapshot.load()
    }
}

struct Lanes {
    control: Receiver<Event>,
    calls: Receiver<CallMessage>,
    disk: Receiver<Event>,
    work: Receiver<Event>,
}

/// The body of the state thread.
pub struct StateThread {
    state: State,
    lanes: Lanes,
    snapshot: Snapshot,
    waiting: HashMap<CallId, Sender<Response>>,
    next_call: u64,
    exit_sent: bool,
}

/// The state thread, running. Dropped, it is told to end and waited for: whatever fails while the daemon is
/// put together, no thread is left that nobody tells.
pub struct RunningCore {
    core: Core,
    thread: Option<Thread>,
}

impl RunningCore {
    /// Runs `body` on a thread of its own, with `outbox`.
    ///
    /// Errors: the system gives no thread.
    pub fn start(core: Core, body: StateThread, mut outbox: Outbox) -> io::Result<Self> {
        let thread = Thread::with_stack("state", STACK_BYTES, move || {
            body.run(&mut outbox);
        })?;
        Ok(Self { core, thread: Some(thread) })
    }

    /// Waits until something else has told it to end, and it has.
    pub fn wait(mut self) {
        drop(self.thread.take());
    }
}

impl Drop for RunningCore {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.core.end();
            drop(thread);
        }
    }
}

/// The effects of one event.
type Turn = Vec<(Vec<Effect>, &'static str)>;

impl StateThread {
    /// Runs until [`Effect::Exit`]; gives the last state back.
    pub fn run(mut self, outbox: &mut Outbox) -> State {
        loop {
            let first = self.wait();
            let began = Instant::now();
            let mut turn = Turn::new();
            if let Some(jump) = clock::follow() {
                self.step(Event::ClockSet(jump), &mut turn);
            }
            if let Some(event) = first {
                self.step(event, &mut turn);
            }
            self.drain(&mut turn);
            self.due_timers(&mut turn);
            if turn.is_empty() {
                continue;
            }
            let published = Arc::new(self.state.clone());
            self.snapshot.publish(Arc::clone(&published));
            let took = began.elapsed();
            if took > SLOW_TURN {
                let names: Vec<_> = turn.iter().map(|(_, name)| *name).collect();
                log::warn!("a turn took {} ms: {}", took.as_millis(), names.join(", "));
            }
            // Every write of this turn holds the state after its last event. What that holds no more because
            // a log has it (an instruction that became a message) must not be gone from both after a kill.
            for (effects, _) in &mut turn {
                for line in effects.extract_if(.., |effect| matches!(effect, Effect::Log(..))) {
                    outbox.perform(line, &published);
                }
            }
            let mut exit = false;
            for (effects, _) in turn {
                exit |= self.perform(effects, &published, outbox);
            }
            if exit {
                return self.state;
            }
        }
    }

    /// Waits for an event, a deadline or the heartbeat.
    fn wait(&mut self) -> Option<Event> {
        let now = clock::now();
        let due = self.state.timers.next().map_or(HEARTBEAT, |(at, _)| at.since(now).min(HEARTBEAT));
        if let Ok(event) = self.lanes.control.try_recv() {
            return Some(event);
        }
        select! {
            recv(self.lanes.control) -> event => event.ok(),
            recv(self.lanes.calls) -> message => message.ok().map(|message| self.admit(message)),
            recv(self.lanes.disk) -> event => event.ok(),
            recv(self.lanes.work) -> event => event.ok(),
            default(due) => None,
        }
    }

    /// Takes a bounded batch from each lane, control first.
    fn drain(&mut self, turn: &mut Turn) {
        for _ in 0..TURN_EVENTS {
            let Ok(event) = self.lanes.control.try_recv() else { break };
            self.step(event, turn);
        }
        for _ in 0..TURN_EVENTS {
            let Ok(event) = self.lanes.disk.try_recv() else { break };
            self.step(event, turn);
        }
        for _ in 0..TURN_EVENTS {
            let Ok(message) = self.lanes.calls.try_recv() else { break };
            let event = self.admit(message);
            self.step(event, turn);
        }
        for _ in 0..TURN_EVENTS {
            let Ok(event) = self.lanes.work.try_recv() else { break };
            self.step(event, turn);
        }
    }

    fn due_timers(&mut self, turn: &mut Turn) {
        let now = clock::now();
        while let Some(timer) = Arc::make_mut(&mut self.state.timers).take_due(now) {
            self.step(Event::Timer(timer), turn);
        }
    }

    /// Gives a call its number.
    fn admit(&mut self, (actor, command, answer): CallMessage) -> Event {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.waiting.insert(call, answer);
        Event::Call(call, actor, command)
    }

    /// Applies one event. A panic costs that event alone: the old state stays.
    fn step(&mut self, event: Event, turn: &mut Turn) {
        let name = name_of(&event);
        let (call, is_written) = match &event {
            Event::Call(call, ..) => (Some(*call), false),
            Event::OnDisk(call, _) => (Some(*call), true),
            _ => (None, false),
        };
        let mut next = self.state.clone();
        let mut cx = self.context(clock::now());
        let outcome = catch_unwind(AssertUnwindSafe(|| apply(&mut next, &mut cx, event)));
        if outcome.is_ok() {
            self.state = next;
            self.exit_sent = cx.exit_sent;
            turn.push((cx.take(), name));
            return;
        }
        log::error!("handling {name} panicked; the state before it was kept");
        let mut cx = self.context(clock::now());
        apply(&mut self.state, &mut cx, Event::Panicked);
        let bug = "this request met a bug in svc; the daemon goes on";
        match call {
            // What is on disk of it is taken back.
            Some(call) if is_written => {
                apply(&mut self.state, &mut cx, Event::OnDisk(call, Err(bug.into())));
            }
            Some(call) => cx.reply(call, Problem::new(500, "internal", bug)),
            None => {}
        }
        turn.push((cx.take(), "panicked"));
    }

    fn context(&self, now: Time) -> Context {
        let mut cx = Context::new(now, clock::random());
        cx.exit_sent = self.exit_sent;
        cx
    }

    /// Performs the effects of one event; whether the daemon is to end. Replies wait for the disk when the
    /// event wrote something that must be durable first, and for the journals when it has a line in one.
    fn perform(&mut self, effects: Vec<Effect>, state: &Arc<State>, outbox: &mut Outbox) -> bool {
        let durable = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Put(_, Durability::BeforeReply) | Effect::Remove(_)));
        let journaled = effects.iter().any(|effect| matches!(effect, Effect::Append(..)));
        let (mut replies, mut stored) = (Vec::new(), Vec::new());
        let mut exit = false;
        for effect in effects {
            match effect {
                Effect::Reply(call, reply) => {
                    let Some(answer) = self.waiting.remove(&call) else {
                        log::error!("a call was answered twice");
                        continue;
                    };
                    if durable || journaled {
                        replies.push((answer, reply));
                    } else {
                        // The caller may have given up; its answer is then nobody's.
                        let _ = answer.send(reply);
                    }
                }
                Effect::ReplyStored(call, reply) => {
                    let answer = self.waiting.remove(&call);
                    stored.extend(answer.map(|answer| (answer, reply)));
                }
                Effect::Exit => exit = true,
                other => outbox.perform(other, state),
            }
        }
        if journaled && !stored.is_empty() {
            outbox.answer_after_lines(stored);
        } else {
            for (answer, reply) in stored {
                // The caller may have given up; its answer is then nobody's.
                let _ = answer.send(reply);
            }
        }
        if durable {
            outbox.commit(state, replies);
        } else if !replies.is_empty() {
            outbox.answer_after_lines(replies);
        }
        exit
    }
}
