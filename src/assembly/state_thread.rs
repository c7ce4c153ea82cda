//! The one thread that owns all state: it takes events from its lanes, applies them, publishes the new
//! snapshot, and only then performs the effects, so that a client reads its own writes.

use super::outbox::Outbox;
use super::rules::name_of;
use super::step::step;
use super::unwritten::MAX_UNWRITTEN;
use crate::api::Problem;
use crate::core::{Actor, CallId, Command, Document, Durability, Effect, Event, Response, State};
use crate::record::worker_tape::Tape;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use svc_sys::clock;
use svc_sys::clock_set::ClockSet;
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
/// Where the kernel does not tell when the clock is set, the loop looks this often.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The loop wakes at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
/// A caller waits for its answer this long; longer than any deferred answer of the core.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// Stack of the state thread in bytes.
const STACK_BYTES: usize = 2 << 20;

type CallMessage = (Actor, Command, Sender<Response>);

/// The door to the core, for any thread. The lanes hold boxes: their room is taken at the start, and for what
/// is in them it would be a quarter of what an idle daemon holds.
#[derive(Clone)]
pub struct Core {
    control: Sender<Box<Event>>,
    calls: Sender<Box<CallMessage>>,
    disk: Sender<Box<Event>>,
    work: Sender<Box<Event>>,
    clock: Sender<()>,
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
        let (clock, clock_in) = bounded(1);
        let snapshot = Snapshot::default();
        snapshot.publish(Arc::new(state.clone()));
        let core = Self { control, calls, disk, work, clock, snapshot: snapshot.clone() };
        let lanes =
            Lanes { control: control_in, calls: calls_in, disk: disk_in, work: work_in, clock: clock_in };
        let thread = StateThread {
            state,
            lanes,
            snapshot,
            waiting: HashMap::new(),
            next_call: 0,
            exit_sent: false,
            longest_wait: HEARTBEAT,
            tape: Tape::off(),
        };
        (core, thread)
    }

    /// Asks for something on behalf of `actor`; the answer comes on the channel. Blocks while the lane is
    /// full. A channel that ends without an answer means that the daemon stops.
    pub fn ask(&self, actor: Actor, command: Command) -> Receiver<Response> {
        let (answer, wait) = bounded(1);
        // Unsent, its sender is dropped: the channel ends.
        let _ = self.calls.send_timeout(Box::new((actor, command, answer)), CALL_TIMEOUT);
        wait
    }

    /// Asks for something on behalf of `actor` and waits for the answer.
    pub fn call(&self, actor: Actor, command: Command) -> Response {
        match self.ask(actor, command).recv_timeout(CALL_TIMEOUT) {
            Ok(reply) => reply,
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => crate::core::stopping().into(),
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
        let _ = self.work.send(Box::new(event));
    }

    /// Reports what became of a write; blocks while the lane is full.
    pub fn on_disk(&self, event: Event) {
        // The core is gone only when the daemon ends: nobody is left to tell.
        let _ = self.disk.send(Box::new(event));
    }

    /// Reports a fact that goes before all others and never blocks.
    pub fn control(&self, event: Event) {
        if let Err(TrySendError::Full(event)) = self.control.try_send(Box::new(event)) {
            log::warn!("the control lane is full, dropped {event:?}");
        }
    }

    /// Has the core look at the clock, which was set.
    fn look_at_clock(&self) {
        // Full, it is about to look.
        let _ = self.clock.try_send(());
    }

    /// Asks the core to end, as a signal does. Blocks while its lane is full, so that this is never lost.
    fn end(&self) {
        // Unsent, the thread has ended already.
        let _ = self.control.send(Box::new(Event::Terminate));
    }

    /// The latest published state.
    pub fn snapshot(&self) -> Arc<State> {
        self.snapshot.load()
    }
}

struct Lanes {
    control: Receiver<Box<Event>>,
    calls: Receiver<Box<CallMessage>>,
    disk: Receiver<Box<Event>>,
    work: Receiver<Box<Event>>,
    /// A look at the clock is due.
    clock: Receiver<()>,
}

/// The body of the state thread.
pub struct StateThread {
    state: State,
    lanes: Lanes,
    snapshot: Snapshot,
    waiting: HashMap<CallId, Sender<Response>>,
    next_call: u64,
    exit_sent: bool,
    longest_wait: Duration,
    tape: Tape,
}

/// The state thread, running. Dropped, it is told to end and waited for: whatever fails while the daemon is
/// put together, no thread is left that nobody tells.
pub struct RunningCore {
    core: Core,
    thread: Option<Thread>,
    /// Without it, the thread looks at the clock by itself.
    _clock: Option<ClockSet>,
}

impl RunningCore {
    /// Runs `body` on a thread of its own, with `outbox`.
    ///
    /// Errors: the system gives no thread.
    pub fn start(core: Core, mut body: StateThread, mut outbox: Outbox) -> io::Result<Self> {
        let teller = core.clone();
        let clock = ClockSet::start(move || teller.look_at_clock());
        match &clock {
            Ok(_) => body.longest_wait = LONGEST_WAIT,
            Err(error) => log::info!("the kernel does not tell when the clock is set ({error}): looked at"),
        }
        let thread = Thread::with_stack("state", STACK_BYTES, move || {
            body.run(&mut outbox);
        })?;
        Ok(Self { core, thread: Some(thread), _clock: clock.ok() })
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

/// A document of which the store is to know before it hears of others of the turn.
fn goes_first(effect: &Effect) -> Option<Document> {
    match effect {
        Effect::Put(document, _) if document.goes_before_all() => Some(*document),
        _ => None,
    }
}

/// The effects of one event.
type Turn = Vec<(Vec<Effect>, &'static str)>;

impl StateThread {
    /// Writes down on `tape` what it takes in.
    #[must_use]
    pub fn recorded_on(mut self, tape: Tape) -> Self {
        self.tape = tape;
        self
    }

    /// Runs until [`Effect::Exit`]; gives the last state back.
    pub fn run(mut self, outbox: &mut Outbox) -> State {
        loop {
            let first = self.wait();
            let began = Instant::now();
            let mut turn = Turn::new();
            if let Some(jump) = clock::follow() {
                self.step(Event::ClockSet(jump), false, &mut turn);
            }
            if let Some(event) = first {
                self.step(event, false, &mut turn);
            }
            self.drain(&mut turn);
            self.due_timers(&mut turn);
            if turn.is_empty() {
                continue;
            }
            let published = Arc::new(self.state.clone());
            self.snapshot.publish(Arc::clone(&published));
            self.tape.turn_over(&published);
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
            // Nor may what is still to be told be written later than what it tells of.
            for document in turn.iter().flat_map(|(effects, _)| effects).filter_map(goes_first) {
                outbox.perform(Effect::Put(document, Durability::Soon), &published);
            }
            let mut exit = false;
            for (effects, _) in turn {
                exit |= self.perform(effects, &published, outbox);
            }
            if exit {
                self.tape.end(&self.state);
                return self.state;
            }
        }
    }

    /// Waits for an event, a deadline or a look at the clock.
    fn wait(&mut self) -> Option<Event> {
        let now = clock::now();
        let longest = self.longest_wait;
        let due = self.state.timers.next().map_or(longest, |(at, _)| at.since(now).min(longest));
        if let Ok(event) = self.lanes.control.try_recv() {
            return Some(*event);
        }
        select! {
            recv(self.lanes.control) -> event => event.ok().map(|event| *event),
            recv(self.lanes.calls) -> message => message.ok().map(|message| self.admit(*message)),
            recv(self.lanes.disk) -> event => event.ok().map(|event| *event),
            recv(self.lanes.work) -> event => event.ok().map(|event| *event),
            recv(self.lanes.clock) -> _ => None,
            default(due) => None,
        }
    }

    /// Takes a bounded batch from each lane, control first.
    fn drain(&mut self, turn: &mut Turn) {
        for _ in 0..TURN_EVENTS {
            let Ok(event) = self.lanes.control.try_recv() else { break };
            self.step(*event, false, turn);
        }
        for _ in 0..TURN_EVENTS {
            let Ok(event) = self.lanes.disk.try_recv() else { break };
            self.step(*event, false, turn);
        }
        for _ in 0..TURN_EVENTS {
            let Ok(message) = self.lanes.calls.try_recv() else { break };
            let event = self.admit(*message);
            self.step(event, false, turn);
        }
        for _ in 0..TURN_EVENTS {
            let Ok(event) = self.lanes.work.try_recv() else { break };
            self.step(*event, false, turn);
        }
    }

    fn due_timers(&mut self, turn: &mut Turn) {
        let now = clock::now();
        while let Some(timer) = Arc::make_mut(&mut self.state.timers).take_due(now) {
            self.step(Event::Timer(timer), true, turn);
        }
    }

    /// Gives a call its number.
    fn admit(&mut self, (actor, command, answer): CallMessage) -> Event {
        self.next_call += 1;
        let call = CallId(self.next_call);
        self.waiting.insert(call, answer);
        Event::Call(call, actor, command)
    }

    /// Applies one event; `is_due`: a deadline that was taken from the state.
    fn step(&mut self, event: Event, is_due: bool, turn: &mut Turn) {
        let name = name_of(&event);
        let (now, seed) = (clock::now(), clock::random());
        self.tape.take(&self.state, self.exit_sent, now, seed, is_due, &event);
        let step = step(&mut self.state, &mut self.exit_sent, now, seed, event);
        if step.panicked {
            log::error!("handling {name} panicked; the state before it was kept");
        }
        turn.push((step.effects, if step.panicked { "panicked" } else { name }));
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
