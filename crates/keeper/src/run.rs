//! The keeper itself: one loop in one thread over its connections, the program's pipes and its end.

use super::ceiling::Ceiling;
use super::ending::Ending;
use super::input::{Input, Item};
use super::limits::Limits;
use super::output::Output;
use super::peers::{Peer, Strangers};
use super::place::{Place, is_there, leave, settle};
use super::protocol::{CHUNK_BYTES_MAX, FromKeeper, Note, Order, Record, ToKeeper, VERSION, Welcome};
use super::spool::Spool;
use super::still::Still;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use svc_sys::process::{
    Identity, Processes, Spec, Stdin, begin_keeping, go_before_daemon, identity_of, stand_back,
};
use svc_sys::secrets;
use svc_sys::sockets::{Poll, set_nonblocking};

/// As long as records go out this often, more are let gather first: waking the daemon for every line would
/// cost many times what the line does.
const PACE: Duration = Duration::from_millis(2);
/// How long output gathers in the pipe, when a read has brought little.
const REST: Duration = Duration::from_millis(1);
/// While no daemon is there, a keeper looks this often whether one could still find it.
const FOUND_EVERY: Duration = Duration::from_secs(2);
/// Reads of what a daemon has left when another takes its place: more than a frame and a socket hold.
const LAST_READS_MAX: usize = 512;
/// Bytes of a read that are little: the pipe has room for many times as much meanwhile.
const SMALL_READ_BYTES: usize = 16 << 10;

/// Runs the sub-command.
pub fn main() -> ExitCode {
    main_within(Limits::default())
}

/// Runs it within these limits.
pub fn main_within(limits: Limits) -> ExitCode {
    go_before_daemon();
    secrets::keep_memory();
    match keep(limits) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("svc: the keeper ends: {error}");
            ExitCode::FAILURE
        }
    }
}

fn keep(limits: Limits) -> io::Result<()> {
    let term = begin_keeping()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut daemon = Peer::new(socket, None)?;
    let order = daemon.first_order()?;
    Keeper::settle(order, daemon, term, limits)?.run()
}

/// How far the program's life has come.
enum Life {
    Runs(Ending),
    /// It is gone, and so is all it had started; its pipes are read until then.
    Drains {
        until: Instant,
        last: Record<'static>,
    },
    /// Everything is written down; kept until then.
    Over {
        until: Option<Instant>,
    },
}

/// A write's note, and its bytes as JSON.
struct Noted {
    seq: u64,
    bytes: usize,
    note: Note,
}

struct Keeper {
    limits: Limits,
    own: Identity,
    token: String,
    stop_grace: Duration,
    orphan: Duration,
    listener: UnixListener,
    term: UnixStream,
    daemon: Option<Peer>,
    /// Since when there is none.
    orphaned: Option<Instant>,
    /// While there is none: when it looks whether one could still find it.
    looks_at: Option<Instant>,
    strangers: Strangers,
    spool: Spool,
    input: Input,
    outputs: [Output; 2],
    life: Life,
    ceiling: Ceiling,
    still: Still,
    last_seq: u64,
    notes: Vec<Noted>,
    /// When records were sent last, and until when output gathers.
    sent: Option<Instant>,
    rests: Option<Instant>,
    /// Told to end when the run is over.
    is_forgotten: bool,
    /// Told to end by a signal: not later than this once the run is over.
    leaves: Option<Instant>,
    chunk: Vec<u8>,
    /// Collects what has ended, up to the last.
    processes: Arc<Processes>,
}

/// Where in the poll's list everything stands.
#[derive(Default)]
struct Places {
    listener: Option<usize>,
    term: Option<usize>,
    daemon: Option<usize>,
    outputs: [Option<usize>; 2],
    input: Option<usize>,
    life: Option<usize>,
}

impl Keeper {
    /// Makes itself one that can be found, greets, and starts the program.
    ///
    /// Errors: it cannot be found; the daemon was told.
    fn settle(order: Order, mut daemon: Peer, term: UnixStream, limits: Limits) -> io::Result<Self> {
        let own = identity_of(std::process::id()).ok_or(ErrorKind::NotFound)?;
        let place = Place {
            version: VERSION,
            pid: own.pid,
            start_ticks: own.start_ticks,
            token: order.token.clone(),
            agent: order.marker.agent,
        };
        // Before there is any other thread, and so for all of them.
        stand_back(order.nice);
        let settled = std::env::set_current_dir(&order.run_dir).and_then(|()| settle(&place));
        let prepared = settled.and_then(|listener| match Processes::start() {
            Ok(processes) => Ok((listener, processes)),
            Err(error) => {
                leave();
                Err(error)
            }
        });
        let (listener, processes) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                daemon.answer(&FromKeeper::Refused {
                    why: format!("{} cannot be its place: {error}", order.run_dir.display()),
                });
                // It has room for one small frame.
                let _ = daemon.flush();
                return Err(error);
            }
        };
        let mut keeper = Self {
            limits,
            own,
            token: place.token,
            stop_grace: Duration::from_millis(order.stop_grace_ms),
            orphan: Duration::from_millis(order.orphan_ms),
            listener,
            term,
            daemon: None,
            orphaned: None,
            looks_at: None,
            strangers: Strangers::new(limits),
            spool: Spool::new(limits, ".".into()),
            input: Input::new(limits, None),
            outputs: [Output::new(None, false)?, Output::new(None, true)?],
            life: Life::Over { until: None },
            ceiling: Ceiling::new(order.marker.agent, order.ceiling),
            still: Still::default(),
            last_seq: 0,
            notes: Vec::new(),
            sent: None,
            rests: None,
            is_forgotten: false,
            leaves: None,
            chunk: vec![0; CHUNK_BYTES_MAX],
            processes,
        };
        keeper.greet(daemon, 0);
        keeper.send();
        // From here on the next daemon finds it; if there was none any more, it counts as never begun.
        if keeper.daemon.as_mut().is_none_or(Peer::is_over) {
            leave();
            return Err(Peer::too_late());
        }
        keeper.start(order);
        keeper.obey_all(Instant::now());
        Ok(keeper)
    }

    fn start(&mut self, order: Order) {
        let processes = Arc::clone(&self.processes);
        let Order { program, args, env, cwd, stdin, marker, .. } = order;
        let stdin = if stdin { Stdin::Piped } else { Stdin::Null };
        let spec = Spec { program, args, env, cwd, stdin, marker: Some(marker.clone()) };
        let started = processes.spawn_tied_in(&spec, self.ceiling.group()).and_then(|running| {
            let identity = running.identity;
            let ending = Ending::start(Arc::clone(&processes), identity, running.exit, marker.clone());
            let outputs = Output::new(Some(running.stdout), false)
                .and_then(|out| Ok([out, Output::new(Some(running.stderr), true)?]));
            let input = running.stdin.as_ref().map_or(Ok(()), |stdin| set_nonblocking(stdin.as_fd()));
            match (ending, outputs, input) {
                (Ok(ending), Ok(outputs), Ok(())) => Ok((identity, ending, outputs, running.stdin)),
                (Err(error), ..) | (_, Err(error), _) | (_, _, Err(error)) => {
                    processes.end_below(identity, &marker, &Instant::now);
                    Err(io::Error::new(error.kind(), format!("it cannot be kept: {error}")))
                }
            }
        });
        match started {
            Ok((identity, ending, outputs, stdin)) => {
                self.outputs = outputs;
                self.input = Input::new(self.limits, stdin);
                self.life = Life::Runs(ending);
                let Identity { pid, start_ticks } = identity;
                self.write_down(&Record::Started { pid, start_ticks });
            }
            Err(error) => {
                self.write_down(&Record::StartFailed { error: error.to_string() });
                self.life = Life::Over { until: Instant::now().checked_add(self.limits.stay) };
            }
        }
    }

    fn write_down(&mut self, record: &Record<'_>) {
        self.spool.push(record, now_ms(), Instant::now());
    }

    /// Goes on until the run is over and forgotten.
    fn run(&mut self) -> io::Result<()> {
        let mut poll = Poll::default();
        while !self.is_done() {
            self.send();
            let places = self.watch(&mut poll);
            let wait = self.due().map(|due| due.saturating_duration_since(Instant::now()));
            poll.wait(wait)?;
            let is_ready = |place: Option<usize>| place.is_some_and(|place| poll.is_ready(place));
            let now = Instant::now();
            if is_ready(places.term) {
                self.hear_term(now);
            }
            for at in 0..self.outputs.len() {
                if is_ready(places.outputs[at]) {
                    self.read(at, now);
                }
            }
            if is_ready(places.daemon) {
                self.hear_daemon(now);
            }
            self.hear_strangers(is_ready(places.listener), now);
            if is_ready(places.input) {
                self.input.pump(now);
            }
            self.look(now);
        }
        leave();
        Ok(())
    }

    /// Tells the poll what to wait for.
    fn watch(&self, poll: &mut Poll) -> Places {
        let mut places = Places::default();
        poll.clear();
        if self.strangers.have_room() {
            places.listener = Some(poll.add(self.listener.as_fd(), true, false));
        }
        places.term = Some(poll.add(self.term.as_fd(), true, false));
        if let Some(daemon) = &self.daemon {
            places.daemon = Some(poll.add(daemon.fd(), true, daemon.has_more(&self.spool)));
        }
        for stranger in self.strangers.fds() {
            poll.add(stranger, true, false);
        }
        let is_full = self.spool.is_full() || self.is_far_ahead();
        let reads = self.rests.is_none() && (!is_full || !self.runs());
        for (output, place) in self.outputs.iter().zip(&mut places.outputs).filter(|_| reads) {
            *place = output.pipe.as_ref().map(|pipe| poll.add(pipe.as_fd(), true, false));
        }
        places.input = self.input.waits_for().map(|fd| poll.add(fd, false, true));
        if let Life::Runs(ending) = &self.life {
            places.life = Some(poll.add(ending.fd(), true, false));
        }
        places
    }

    /// Whether the daemon of the day does not keep up: then the program waits, as it would at its pipe.
    fn is_far_ahead(&self) -> bool {
        self.daemon.as_ref().is_some_and(|daemon| daemon.behind(&self.spool) > self.limits.ahead_bytes_max)
    }

    fn runs(&self) -> bool {
        matches!(self.life, Life::Runs(_))
    }

    /// When something is to be done though nothing comes.
    fn due(&self) -> Option<Instant> {
        let life = match &self.life {
            Life::Runs(_) => {
                let orphaned = self.orphaned.and_then(|orphaned| orphaned.checked_add(self.orphan));
                orphaned.into_iter().chain(self.ceiling.due()).min()
            }
            Life::Drains { until, .. } => Some(*until),
            Life::Over { until } => self.leaves.or(*until),
        };
        [life, self.looks_at, self.rests, self.strangers.due(), self.input.stuck_at(), self.spool.retry()]
            .into_iter()
            .flatten()
            .min()
    }

    fn is_done(&self) -> bool {
        let Life::Over { until } = self.life else { return false };
        let now = Instant::now();
        let is_told = self.spool.first() == self.spool.end() || self.daemon.is_none();
        let leaves = self.leaves.is_some_and(|until| is_told || until <= now);
        self.is_forgotten || leaves || until.is_some_and(|until| until <= now)
    }

    /// What time alone brings about, and the program's end.
    fn look(&mut self, now: Instant) {
        if self.rests.is_some_and(|rests| rests <= now) {
            self.rests = None;
        }
        if self.looks_at.is_some_and(|looks| looks <= now) {
            self.look_for_itself(now);
        }
        if self.still.is_on() {
            self.input.begin_again(now);
        }
        self.input.look(now);
        self.spool.make_room(now);
        if let Life::Runs(ending) = &mut self.life {
            if self
                .orphaned
                .and_then(|orphaned| orphaned.checked_add(self.orphan))
                .is_some_and(|due| due <= now)
            {
                self.still.over(self.ceiling.group());
                ending.order(self.stop_grace, now);
                self.orphaned = None;
                // The next daemon asks for nothing of what was to end with this one.
                self.is_forgotten |= self.orphan.is_zero();
            }
            if self.ceiling.is_passed(now) {
                self.still.over(self.ceiling.group());
                ending.order(Duration::ZERO, now);
            }
            if let Some(ended) = ending.news() {
                let (exit, swept) = (ended.exit, ended.swept);
                let over = self.ceiling.ended(&ended);
                let last = Record::Ended {
                    code: exit.code,
                    signal: exit.signal,
                    signalled: ended.signalled,
                    leaked: swept.leaked,
                    killed: swept.killed,
                    over,
                };
                self.life = Life::Drains { until: now + self.limits.drain, last };
                self.rests = None;
                self.input.end(now);
                for output in &mut self.outputs {
                    output.left = Some(self.limits.drain_bytes);
                }
            }
        }
        for record in self.input.news() {
            if !matches!(self.life, Life::Over { .. }) {
                self.write_down(&record);
            }
        }
        self.finish(now);
    }

    /// A daemon that did not find it yet may have removed its folder: then none ever will.
    fn look_for_itself(&mut self, now: Instant) {
        self.looks_at = self.daemon.is_none().then(|| now + FOUND_EVERY);
        if self.daemon.is_none() && (self.orphan.is_zero() || !is_there(self.own)) {
            self.is_forgotten = true;
            self.stop(self.stop_grace, now);
        }
    }

    /// Writes the last record once nothing can come before it any more.
    fn finish(&mut self, now: Instant) {
        let Life::Drains { until, last } = &self.life else { return };
        let is_read = self.outputs.iter().all(|output| output.pipe.is_none() || output.left == Some(0));
        if is_read || *until <= now {
            let last = last.clone();
            self.write_down(&last);
            self.outputs.iter_mut().for_each(|output| output.pipe = None);
            self.life = Life::Over { until: now.checked_add(self.limits.stay) };
            self.leaves = self.leaves.map(|_| now + self.limits.farewell);
        }
    }

    fn read(&mut self, at: usize, now: Instant) {
        let output = &mut self.outputs[at];
        let count = output.read(&mut self.chunk);
        if count == 0 {
            return;
        }
        let bytes = &self.chunk[..count];
        let record = if output.is_err { Record::Err(bytes) } else { Record::Out(bytes) };
        self.spool.push(&record, now_ms(), now);
        let flows = self.sent.is_some_and(|sent| now.saturating_duration_since(sent) < PACE);
        if count < SMALL_READ_BYTES && flows && self.runs() {
            self.rests = Some(now + REST);
        }
    }

    /// Hands over what is there, as far as it is taken.
    fn send(&mut self) {
        let Some(daemon) = &mut self.daemon else { return };
        match daemon.send(&self.spool) {
            Ok(true) => self.sent = Some(Instant::now()),
            Ok(false) => {}
            Err(error) => {
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) {
                    self.hear_last();
                } else {
                    eprintln!("svc: the connection with the daemon is given up: {error}");
                }
                self.part();
            }
        }
    }

    /// What a daemon that is gone has said before that is in the socket still: it counts on it.
    fn hear_last(&mut self) {
        while self.daemon.as_mut().is_some_and(Peer::fill) {
            self.obey_all(Instant::now());
        }
        self.obey_all(Instant::now());
    }

    /// The daemon is gone.
    fn part(&mut self) {
        self.daemon = None;
        // Nobody is there who could let it go on.
        self.still.set(false, self.ceiling.group());
        self.orphaned = Some(Instant::now());
        self.looks_at = self.orphaned;
    }

    fn greet(&mut self, mut daemon: Peer, from: u64) {
        let welcome = Welcome {
            version: VERSION,
            pid: self.own.pid,
            start_ticks: self.own.start_ticks,
            first: self.spool.first(),
            end: self.spool.end(),
            last_seq: self.last_seq,
            notes: self.notes.iter().map(|noted| (noted.seq, noted.note.clone())).collect(),
        };
        daemon.answer(&FromKeeper::Welcome(welcome));
        daemon.greeted(from);
        // Whom the one before has frozen, this one does not know.
        self.still.set(false, self.ceiling.group());
        self.daemon = Some(daemon);
        self.orphaned = None;
        self.looks_at = None;
    }

    fn hear_strangers(&mut self, somebody_came: bool, now: Instant) {
        if somebody_came {
            self.strangers.accept(&self.listener, now);
        }
        if let Some(greeting) = self.strangers.hear(&self.token, &self.spool, now) {
            // What the one before has said with its last breath comes first: all of it, if it is gone.
            for _ in 0..LAST_READS_MAX {
                self.hear_daemon(now);
            }
            self.greet(greeting.peer, greeting.from);
            // It may have said more than that.
            self.obey_all(now);
        }
    }

    fn hear_term(&mut self, now: Instant) {
        let mut bytes = [0; 16];
        while (&self.term).read(&mut bytes).is_ok_and(|count| count > 0) {}
        self.leaves.get_or_insert(now + self.limits.farewell);
        self.stop(self.stop_grace, now);
    }

    fn stop(&mut self, grace: Duration, now: Instant) {
        if let Life::Runs(ending) = &self.life {
            self.still.over(self.ceiling.group());
            ending.order(grace, now);
        }
    }

    fn hear_daemon(&mut self, now: Instant) {
        let Some(daemon) = &mut self.daemon else { return };
        let is_open = daemon.fill();
        self.obey_all(now);
        if !is_open && self.daemon.is_some() {
            self.part();
        }
    }

    /// Does what has arrived as a whole.
    fn obey_all(&mut self, now: Instant) {
        while let Some(daemon) = &mut self.daemon {
            match daemon.next_order() {
                Ok(Some(order)) => self.obey(order, now),
                Ok(None) => return,
                Err(error) => {
                    eprintln!("svc: {error}");
                    self.part();
                }
            }
        }
    }

    fn obey(&mut self, order: ToKeeper, now: Instant) {
        match order {
            ToKeeper::Write { seq, note, bytes, close } => self.write(seq, note, bytes, close, now),
            ToKeeper::Stop { grace_ms } => self.stop(Duration::from_millis(grace_ms), now),
            ToKeeper::Taken { offset, seq } => {
                self.spool.taken(offset);
                self.notes.retain(|noted| noted.seq > seq);
            }
            ToKeeper::Settings { orphan_ms, ceiling, frozen } => {
                self.orphan = Duration::from_millis(orphan_ms);
                if let Some(bytes) = ceiling {
                    self.ceiling.set(bytes);
                }
                if self.runs() {
                    self.still.set(frozen, self.ceiling.group());
                }
            }
            ToKeeper::Forget => {
                self.is_forgotten = true;
                self.stop(Duration::ZERO, now);
            }
            // Said once, by strangers.
            ToKeeper::Start(_) | ToKeeper::Hello { .. } => self.part(),
        }
    }

    fn write(&mut self, seq: u64, note: Option<Note>, bytes: Vec<u8>, close: bool, now: Instant) {
        if seq <= self.last_seq {
            return;
        }
        self.last_seq = seq;
        let is_noted = note.is_some();
        if let Some(note) = note {
            let bytes = note.what.to_string().len() + size_of::<Noted>();
            if self.notes.iter().map(|noted| noted.bytes).sum::<usize>() + bytes > self.limits.note_bytes_max
            {
                return self.write_down_while_it_runs(&Record::Lost { seq });
            }
            self.notes.push(Noted { seq, bytes, note });
        }
        self.input.push(Item { seq, is_noted, bytes, close }, now);
    }

    fn write_down_while_it_runs(&mut self, record: &Record<'_>) {
        if !matches!(self.life, Life::Over { .. }) {
            self.write_down(record);
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
