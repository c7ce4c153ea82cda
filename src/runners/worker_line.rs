//! `svc __line`: the program of a keeper here whose agent works on another machine. It passes on what the
//! program there prints and is told, and is the daemon of the keeper there.
//!
//! ```text
//! keeper here ──pipes── svc __line ──ssh── svc __far ──socket── keeper there ── program
//! ```
//!
//! **Invariant:** what is passed on was passed on once: records up to `offset`, and of each write the keeper
//! there takes a `seq` once.

use super::dialogue::{BACK, CUT, LENT, OVER, PLAN, Plan, Says};
use super::kind::{Seen, engine};
use super::worker_bundle;
use super::worker_client::{Client, NoAnswer, answer, look};
use super::worker_host;
use super::worker_input::Shared;
use super::worker_parcel;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use svc_base::untrusted::untrusted_prose;
use svc_keeper::client::{self, Link, Next, Writer};
use svc_keeper::protocol::{Record, ToKeeper, records};
use svc_sys::process::begin_keeping;

/// The hidden sub-command; its one word is the folder of the run.
pub const SUB_COMMAND: &str = "__line";
/// The other end may have to make a tree of files first; a line that is cut meanwhile ends by itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(600);
/// The same where it only has to find its keeper.
const FOUND_LIMIT: Duration = Duration::from_secs(30);
/// How long the keeper there may take to greet.
const WELCOME_LIMIT: Duration = Duration::from_secs(20);
/// How long the first word for the program may take, to go along with the first of the line.
const FIRST_WORD: Duration = Duration::from_millis(500);
/// What was passed on is told to the keeper there within this time, or after so many bytes.
const TOLD_WITHIN: Duration = Duration::from_millis(250);
const TOLD_BYTES: u64 = 256 << 10;
/// How long it is tried to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);
/// Between two tries: the first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(15);
/// A connection that has stood for so long was one.
const STOOD: Duration = Duration::from_secs(30);
/// Beyond the time after which the keeper there has ended the program for want of a daemon.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);
/// So long may the other end say nothing: it says something every 5 s, whatever the program there does.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// How long a place may wait until it stands, as a job in a queue does.
const QUEUE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long the end of the line may take once all is over.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why there is no connection.
enum Trouble {
    /// It may stand again.
    Cut(String),
    /// It will not.
    Final(String),
}

/// How following a keeper ended.
enum Followed {
    /// With this exit code, and whether a signal has ended it.
    Over(u8, bool),
    Cut,
    Silent,
    /// What it says cannot be; another try would come to the same.
    Wrong(&'static str),
}

/// Runs it.
pub fn main(args: &[OsString]) -> ExitCode {
    let run = |folder: &OsString| {
        let path = Path::new(folder).join(PLAN);
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let plan: Plan =
            serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if plan.parcel.is_some() {
            return worker_parcel::send(plan, Path::new(folder)).map(|()| 0);
        }
        let mut line = Line::new(plan, PathBuf::from(folder))?;
        line.run()
    };
    match args.first().ok_or_else(|| "it is the daemon's own".to_owned()).and_then(run) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("svc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One end of the line.
struct Line {
    plan: Plan,
    folder: PathBuf,
    shared: Arc<Shared>,
    /// The end of the last record that was passed on.
    offset: u64,
    /// The last write that the program there has.
    written: u64,
    began: Instant,
    /// Whether the keeper there has ever greeted.
    has_begun: bool,
    is_told_cut: bool,
    /// Whether the last complaint of the program ended with its line.
    at_line_start: bool,
}

impl Line {
    fn new(mut plan: Plan, folder: PathBuf) -> Result<Self, String> {
        let told = begin_keeping().map_err(|error| error.to_string())?;
        told.set_nonblocking(false).map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared::default());
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(body).map_err(|error| error.to_string())
        };
        // Without one there is nothing to be closed there, either.
        if plan.opening.stdin {
            let shared = Arc::clone(&shared);
            spawn("input", Box::new(move || shared.read_input()))?;
        }
        let stopper = Arc::clone(&shared);
        let stop = move || {
            // It says a byte for each TERM, and ends with this process.
            if (&told).read(&mut [0]).is_ok_and(|count| count > 0) {
                stopper.stop();
            }
        };
        spawn("stop", Box::new(stop))?;
        let beating = Arc::clone(&shared);
        spawn("beat", Box::new(move || beating.beat()))?;
        plan.opening.tip = worker_bundle::tip(&plan.project, &plan.opening.branch)?;
        Ok(Self {
            plan,
            folder,
            shared,
            offset: 0,
            written: 0,
            began: Instant::now(),
            has_begun: false,
            is_told_cut: false,
            at_line_start: true,
        })
    }

    /// To the end of the program there.
    fn run(&mut self) -> Result<u8, String> {
        let minutes = self.plan.opening.orphan_ms / 60_000;
        let give_up = Duration::from_millis(self.plan.opening.orphan_ms).saturating_add(GIVE_UP_AFTER);
        let mut cut_at = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut is_last = false;
        // One that waited when its line was begun is asked first, and then each that is not reached.
        let mut is_asked = self.plan.waits;
        loop {
            let waits = if std::mem::replace(&mut is_asked, true) { self.look_or_over()? } else { None };
            let connected = match waits {
                Some(why) => {
                    cut_at = Instant::now();
                    self.say_waits(&why)?;
                    Err(Trouble::Cut(why))
                }
                None => self.connect(),
            };
            match connected {
                Ok((link, sent, mut client)) => {
                    self.say_back();
                    let began = Instant::now();
                    let why = match self.follow(link, sent) {
                        Followed::Over(code, by_signal) => {
                            self.note(OVER);
                            client.end(FAREWELL);
                            if by_signal {
                                // The place may have ended it, and that is the reason then.
                                let _ = self.look()?;
                            }
                            return Ok(code);
                        }
                        Followed::Wrong(why) => {
                            return Err(format!("what its machine says cannot be: {why}"));
                        }
                        Followed::Cut => client.words(),
                        Followed::Silent => "nothing was heard of it".to_owned(),
                    };
                    cut_at = Instant::now();
                    if began.elapsed() >= STOOD {
                        pause = FIRST_PAUSE;
                    }
                    self.say_cut(&why);
                }
                Err(Trouble::Final(why)) => return Err(why),
                Err(Trouble::Cut(why)) if !self.has_begun && cut_at.elapsed() >= BEGIN_LIMIT => {
                    return Err(why);
                }
                Err(Trouble::Cut(why)) if cut_at.elapsed() >= give_up => {
                    return Err(format!(
                        "its machine could not be reached for {} s ({why})",
                        give_up.as_secs()
                    ));
                }
                Err(Trouble::Cut(why)) => self.say_cut(&why),
            }
            // Whoever is told to end it there tries once more at once.
            if !self.shared.pause(pause) && std::mem::replace(&mut is_last, true) {
                return Err(format!(
                    "its machine cannot be reached to end it there: what runs there is ended by its keeper after \
                     {minutes} minutes without a daemon"
                ));
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// As [`Line::look`]; with its place all has ended that ran there.
    fn look_or_over(&mut self) -> Result<Option<String>, String> {
        let seen = self.look();
        if seen.is_err() {
            self.note(OVER);
        }
        seen
    }

    /// Why its place does not stand yet; `None` where it does, or nobody can tell.
    ///
    /// Errors: it has ended, and how.
    fn look(&self) -> Result<Option<String>, String> {
        let noun = engine(self.plan.spot.kind).places.as_ref().map_or("", |places| places.noun);
        match look(&self.plan.spot) {
            None | Some(Seen::Stands(_)) => Ok(None),
            Some(Seen::Waits(_, why)) => Ok(Some(format!("its {noun} {why}"))),
            Some(Seen::Stopped(_)) => Err(format!("its {noun} was stopped, and with it what ran there")),
            Some(Seen::Over(why)) => Err(format!("its {noun} {why}")),
            Some(Seen::Nothing) => Err(format!("its {noun} is gone, and what was in it alone")),
        }
    }

    /// Errors: it has waited for too long.
    fn say_waits(&mut self, why: &str) -> Result<(), String> {
        if self.began.elapsed() >= QUEUE_LIMIT {
            return Err(format!("{why}; that is given up after {} hours", QUEUE_LIMIT.as_secs() / 3600));
        }
        if !std::mem::replace(&mut self.is_told_cut, true) {
            self.note(&format!("{CUT}{why}"));
        }
        Ok(())
    }

    fn say_cut(&mut self, why: &str) {
        if self.has_begun && !self.is_told_cut {
            self.is_told_cut = true;
            self.note(&format!("{CUT}{why}"));
        }
    }

    fn say_back(&mut self) {
        self.has_begun = true;
        if std::mem::take(&mut self.is_told_cut) {
            self.note(BACK);
        }
    }

    /// Tells the daemon something, on a line of its own among the complaints.
    fn note(&mut self, words: &str) {
        let start = if self.at_line_start { "" } else { "\n" };
        self.at_line_start = true;
        eprintln!("{start}{}{}", self.plan.mark, untrusted_prose(words));
    }

    /// A connection with the keeper there, and the last write that went along with its first words.
    fn connect(&mut self) -> Result<(Link, u64, Client), Trouble> {
        // Good for the first try: whatever is cut is as good as new by a command.
        let direct = self.plan.direct.take().and_then(|path| Client::direct(&path).ok());
        match direct.map(|(client, socket)| self.call(client, socket)) {
            Some(Err(Trouble::Cut(_))) | None => {}
            Some(called) => return called,
        }
        let script = worker_host::run_script(&self.plan.program, engine(self.plan.spot.kind).open);
        let started = Client::start(&self.plan, &script);
        let (client, socket) = started.map_err(|error| Trouble::Final(error.to_string()))?;
        self.call(client, socket)
    }

    /// Asks the other end for the keeper there.
    fn call(&mut self, mut client: Client, mut socket: UnixStream) -> Result<(Link, u64, Client), Trouble> {
        let cut = |error: io::Error| Trouble::Cut(error.to_string());
        let wrong = |error: String| Trouble::Final(error);
        if self.plan.opening.stdin && !self.has_begun {
            self.shared.await_input(FIRST_WORD);
        }
        let (frames, sent, _) = self.shared.behind(0);
        let mut first = client::hello(&self.plan.opening.token, self.offset).map_err(cut)?;
        for frame in &frames {
            first.extend(frame.encode().map_err(|error| wrong(error.to_string()))?);
        }
        let lent = if self.has_begun { Vec::new() } else { lent() };
        let words = self.plan.call(!self.has_begun, lent, &first).map_err(wrong)?;
        socket.write_all(&words).map_err(|_| Trouble::Cut(client.words()))?;
        let limit = if self.has_begun { FOUND_LIMIT } else { ANSWER_LIMIT };
        let until = Instant::now() + limit;
        let mut may_want = !self.has_begun;
        loop {
            match answer(&mut socket, until) {
                Ok(Says::There) => break,
                Ok(Says::Wants { have }) if std::mem::take(&mut may_want) => {
                    let Plan { project, opening, .. } = &self.plan;
                    let scratch = self.folder.join("bundle");
                    worker_bundle::send(project, &opening.branch, &have, &scratch, &mut socket)
                        .map_err(wrong)?;
                }
                Ok(Says::Wants { .. }) => {
                    return Err(wrong("that machine wants the repository twice".into()));
                }
                Ok(says @ (Says::Gone { .. } | Says::Refused { .. })) => {
                    return Err(wrong(self.refused(says)));
                }
                Err(NoAnswer::Wrong(why)) => return Err(wrong(why)),
                Err(NoAnswer::Cut) => return Err(Trouble::Cut(client.words())),
            }
        }
        socket.set_read_timeout(None).map_err(cut)?;
        let link = client::through(socket, WELCOME_LIMIT)
            .map_err(|none| if none.is_final { Trouble::Final(none.why) } else { Trouble::Cut(none.why) })?;
        Ok((link, sent, client))
    }

    /// Why it runs there no more, or never did.
    fn refused(&mut self, says: Says) -> String {
        let (why, is_over) = match says {
            Says::Gone { why } => (why, true),
            // Of one that was begun it says that it cannot be reached.
            Says::Refused { why } => (why, !self.has_begun),
            Says::There | Says::Wants { .. } => (String::new(), false),
        };
        if is_over {
            self.note(OVER);
        }
        untrusted_prose(&why)
    }

    /// Passes on what the keeper there has, and what it is to have.
    fn follow(&mut self, link: Link, sent: u64) -> Followed {
        let Link { welcome, mut reader, writer } = link;
        if welcome.last_seq > self.shared.last_seq() || welcome.first > self.offset {
            return Followed::Wrong("its keeper has more than it was given, or less than it was to keep");
        }
        self.shared.arrived(welcome.last_seq);
        self.shared.stands(Some((reader.waker(), Arc::clone(&writer))));
        let followed = self.take_turns(&mut reader, &writer, sent.max(welcome.last_seq));
        self.shared.stands(None);
        followed
    }

    fn take_turns(&mut self, reader: &mut client::Reader, writer: &Writer, mut sent: u64) -> Followed {
        let mut is_stop_told = false;
        let mut told = (self.offset, self.written);
        let mut due: Option<Instant> = None;
        let mut heard = Instant::now();
        loop {
            if self.send(writer, &mut sent, &mut is_stop_told).is_err() {
                return Followed::Cut;
            }
            let silent = heard + SILENCE_LIMIT;
            match reader.next(Some(due.map_or(silent, |due| due.min(silent)))) {
                Next::Records { offset, .. } => match self.pass_on(offset, reader.bytes()) {
                    // Behind what may have waited for its taker.
                    Ok(None) => heard = Instant::now(),
                    Ok(Some((code, by_signal))) => {
                        // It keeps what nobody has taken.
                        let _ = writer.send(&ToKeeper::Forget);
                        return Followed::Over(code, by_signal);
                    }
                    Err(why) => return Followed::Wrong(why),
                },
                Next::TimedOut if silent <= Instant::now() => return Followed::Silent,
                Next::Woken | Next::TimedOut => {}
                Next::Gone if reader.is_broken() => return Followed::Wrong("it is no word of a keeper's"),
                Next::Gone => return Followed::Cut,
            }
            let now = (self.offset, self.written);
            self.shared.passed_on(now.0, now.1);
            if now == told {
                continue;
            }
            let is_due = due.is_some_and(|due| due <= Instant::now()) || now.0 - told.0 >= TOLD_BYTES;
            if !is_due {
                due.get_or_insert_with(|| Instant::now() + TOLD_WITHIN);
                continue;
            }
            if writer.send(&ToKeeper::Taken { offset: now.0, seq: now.1 }).is_err() {
                return Followed::Cut;
            }
            (told, due) = (now, None);
        }
    }

    fn send(&self, writer: &Writer, sent: &mut u64, is_stop_told: &mut bool) -> io::Result<()> {
        let (new, last, stops) = self.shared.behind(*sent);
        for write in new {
            writer.send(&write)?;
        }
        *sent = last;
        if stops && !std::mem::replace(is_stop_told, true) {
            writer.send(&ToKeeper::Stop { grace_ms: self.plan.opening.stop_grace_ms })?;
        }
        Ok(())
    }

    /// The exit code, when the program there is over, and whether a signal has ended it.
    ///
    /// Errors: why these cannot be what follows.
    fn pass_on(&mut self, offset: u64, bytes: &[u8]) -> Result<Option<(u8, bool)>, &'static str> {
        if offset > self.offset {
            return Err("some of what was printed is missing");
        }
        for (end, _, record) in records(bytes) {
            let end = offset.checked_add(end).ok_or("there is no such place in what was printed")?;
            if end <= self.offset {
                continue;
            }
            self.offset = end;
            match record {
                Record::Out(bytes) => pass(io::stdout().lock(), bytes),
                Record::Err(bytes) => {
                    pass(io::stderr().lock(), bytes);
                    self.at_line_start = bytes.ends_with(b"\n");
                }
                Record::Written { seq } | Record::Lost { seq } => {
                    if seq > self.shared.last_seq() {
                        return Err("a word arrived that was never said");
                    }
                    self.written = self.written.max(seq);
                    self.shared.arrived(seq);
                }
                Record::Started { .. } | Record::Stuck { .. } => {}
                Record::StartFailed { error } => {
                    eprintln!("svc: {}", untrusted_prose(&error));
                    return Ok(Some((127, false)));
                }
                Record::Ended { code, signal, .. } => {
                    if let (None, Some(signal)) = (code, signal) {
                        eprintln!("svc: on its machine signal {signal} ended it");
                    }
                    let by_signal = signal.and_then(|signal| u8::try_from(signal).ok()?.checked_add(128));
                    let code = code.and_then(|code| u8::try_from(code).ok());
                    return Ok(Some((code.or(by_signal).unwrap_or(1), by_signal.is_some())));
                }
            }
        }
        Ok(None)
    }
}

/// The keys that were granted.
fn lent() -> Vec<(String, String)> {
    let all = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    all.filter_map(|(name, value)| Some((name.strip_prefix(LENT)?.to_owned(), value.into_string().ok()?)))
        .collect()
}

/// Whoever reads no more has gone, and this process with it: the keeper here ends it.
fn pass(mut out: impl Write, bytes: &[u8]) {
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
