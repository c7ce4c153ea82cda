//! The process that holds the terminal: one loop in one thread.

use super::{
    CHUNK, EXPECT, FRAME_MAX, HELLO, Hello, LEAVE, LEFT, OVER, SCREEN, SIZE, SOCKET, TOLD, TYPED, VERSION,
    is_for_now, put, size_of, write_some,
};
use crate::ending::{Ended, Ending};
use crate::frames::Frames;
use crate::peers::is_same;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_sys::process::{
    AGENT_ID_VARIABLE, Marker, PROJECT_DIR_VARIABLE, Processes, Size, Spec, Stdin, begin_keeping, resize,
};
use svc_sys::secrets;
use svc_sys::sockets::{Poll, own_uid, peer, set_nonblocking};

/// Persons who may come, at once; of one more the oldest may not any more.
const EXPECTED_MAX: usize = 8;
/// How long one may take to come.
const EXPECTED_FOR: Duration = Duration::from_secs(60);
/// Connections that have not said who they are; more wait at the door.
const STRANGERS_MAX: usize = 4;
/// How long one may take for that, and its token to be heard of.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// Bytes of what was typed that the program has not read; then no more is taken.
const TYPED_MAX: usize = 64 << 10;
/// Bytes of a line on standard input; the rest is dropped.
const LINE_MAX: usize = 1 << 10;
/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(4);
/// How long the last words may take to be sent.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes that are read of a terminal whose program has ended; no terminal holds more.
const REST_MAX: usize = 1 << 20;
/// How long the program whose output is told behind may take, and the bytes of it that are told.
const LAST_LIMIT: Duration = Duration::from_secs(30);
const LAST_MAX: usize = 16 << 20;

/// What tests shorten.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long nobody may be there before that counts as leaving.
    pub away: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { away: Duration::from_secs(60) }
    }
}

/// Runs the sub-command.
///
/// Exit codes: 0 where the person has left or nobody has come, else the program's own; 126 where it did not
/// start, 1 where the terminal cannot be held.
pub fn main(args: &[OsString]) -> ExitCode {
    main_within(args, Limits::default())
}

/// Runs it within these limits.
pub fn main_within(args: &[OsString], limits: Limits) -> ExitCode {
    secrets::keep_memory();
    match Hold::settle(args, limits).and_then(|mut hold| hold.run()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("svc: the terminal cannot be held: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A connection.
struct Guest {
    socket: UnixStream,
    frames: Frames,
    out: Vec<u8>,
    /// What it has said first.
    hello: Option<Hello>,
    until: Option<Instant>,
}

impl Guest {
    fn over(&mut self, why: &str) {
        put(&mut self.out, OVER, why.as_bytes());
        let until = Instant::now() + FAREWELL;
        while write_some(&self.socket, &mut self.out).is_ok() && !self.out.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let mut poll = Poll::default();
            poll.add(self.socket.as_fd(), false, true);
            if left.is_zero() || poll.wait(Some(left)).is_err() {
                return;
            }
        }
    }
}

enum Program {
    /// Nobody has come yet.
    Awaited,
    Runs {
        /// `None` once it shows nothing any more.
        screen: Option<File>,
        typed: Vec<u8>,
        ending: Ending,
    },
    Over(u8),
}

struct Hold {
    limits: Limits,
    program: Spec,
    last: Option<Spec>,
    marker: Marker,
    processes: Arc<Processes>,
    listener: UnixListener,
    term: UnixStream,
    input: Option<File>,
    line: Vec<u8>,
    expected: Vec<(String, Instant)>,
    strangers: Vec<Guest>,
    viewer: Option<Guest>,
    /// Since when nobody is there.
    alone: Option<Instant>,
    has_left: bool,
    state: Program,
}

impl Hold {
    fn settle(args: &[OsString], limits: Limits) -> io::Result<Self> {
        let wrong = |what: &'static str| io::Error::new(ErrorKind::InvalidInput, what);
        let [run_dir, count, words @ ..] = args else { return Err(wrong("it needs a folder and a program")) };
        let count = count.to_str().and_then(|count| count.parse().ok()).filter(|count| *count > 0);
        let split = count.and_then(|count: usize| words.split_at_checked(count));
        let (program, last) = split.ok_or_else(|| wrong("it needs a program"))?;
        let variable = |name| std::env::var(name).map_err(|_| wrong("it works for no agent"));
        let agent = variable(AGENT_ID_VARIABLE)?.parse().map_err(|_| wrong("it works for no agent"))?;
        let marker = Marker { agent, project_dir: variable(PROJECT_DIR_VARIABLE)?.into() };
        let cwd = std::env::current_dir()?;
        let spec = |words: &[OsString]| {
            let (program, args) = words.split_first()?;
            Some(Spec {
                program: program.clone(),
                args: args.to_vec(),
                env: std::env::vars_os().collect(),
                cwd: cwd.clone(),
                stdin: Stdin::Null,
                marker: Some(marker.clone()),
            })
        };
        let program = spec(program).ok_or_else(|| wrong("it needs a program"))?;
        let last = spec(last);
        let term = begin_keeping()?;
        let processes = Processes::start()?;
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        set_nonblocking(input.as_fd())?;
        let listener = listen(Path::new(run_dir))?;
        Ok(Self {
            limits,
            program,
            last,
            marker,
            processes,
            listener,
            term,
            input: Some(input),
            line: Vec::new(),
            expected: Vec::new(),
            strangers: Vec::new(),
            viewer: None,
            alone: Some(Instant::now()),
            has_left: false,
            state: Program::Awaited,
        })
    }

    fn run(&mut self) -> io::Result<u8> {
        let mut poll = Poll::default();
        loop {
            let now = Instant::now();
            self.look(now);
            if let Program::Over(code) = self.state {
                self.finish();
                return Ok(code);
            }
            let places = self.watch(&mut poll);
            poll.wait(self.due().map(|due| due.saturating_duration_since(Instant::now())))?;
            let is_ready = |place: Option<usize>| place.is_some_and(|place| poll.is_ready(place));
            let [term, input, listener, viewer, screen] = places.map(is_ready);
            if term {
                let mut bytes = [0; 16];
                while (&self.term).read(&mut bytes).is_ok_and(|count| count > 0) {}
                self.leave();
            }
            if input {
                self.hear_daemon(Instant::now());
            }
            if listener {
                self.accept(Instant::now());
            }
            if viewer {
                self.hear_viewer();
            }
            if screen {
                self.pump();
            }
        }
    }

    /// What is waited for: the order to end, standard input, the door, the person, the terminal.
    fn watch(&self, poll: &mut Poll) -> [Option<usize>; 5] {
        poll.clear();
        let term = poll.add(self.term.as_fd(), true, false);
        let input = self.input.as_ref().map(|input| poll.add(input.as_fd(), true, false));
        let has_room = self.strangers.len() < STRANGERS_MAX;
        let listener = has_room.then(|| poll.add(self.listener.as_fd(), true, false));
        for guest in &self.strangers {
            if guest.hello.is_none() {
                poll.add(guest.socket.as_fd(), true, false);
            }
        }
        let behind = self.viewer.as_ref().is_some_and(|guest| !guest.out.is_empty());
        let Program::Runs { screen, typed, ending } = &self.state else {
            let viewer = self.viewer.as_ref().map(|guest| poll.add(guest.socket.as_fd(), true, behind));
            return [Some(term), input, listener, viewer, None];
        };
        poll.add(ending.fd(), true, false);
        let takes = typed.len() < TYPED_MAX;
        let viewer = self.viewer.as_ref().filter(|_| takes || behind);
        let viewer = viewer.map(|guest| poll.add(guest.socket.as_fd(), takes, behind));
        // While the person's terminal does not keep up, the program waits, as it would at its own.
        let screen = screen.as_ref().filter(|_| !behind || !typed.is_empty());
        let screen = screen.map(|screen| poll.add(screen.as_fd(), !behind, !typed.is_empty()));
        [Some(term), input, listener, viewer, screen]
    }

    fn due(&self) -> Option<Instant> {
        let away = self.alone.filter(|_| !self.has_left).map(|since| since + self.limits.away);
        self.strangers.iter().filter_map(|guest| guest.until).chain(away).min()
    }

    /// What time alone brings about, who has said who they are, and the program's end.
    fn look(&mut self, now: Instant) {
        self.hear_strangers(now);
        if self.alone.is_some_and(|since| since + self.limits.away <= now) {
            self.leave();
        }
        let Program::Runs { ending, .. } = &mut self.state else { return };
        if let Some(ended) = ending.news() {
            self.ended(&ended);
        }
    }

    /// Lines from the daemon.
    fn hear_daemon(&mut self, now: Instant) {
        let mut chunk = [0; LINE_MAX];
        let Some(input) = &mut self.input else { return };
        match input.read(&mut chunk) {
            Err(error) if is_for_now(&error) => {}
            Ok(0) | Err(_) => self.input = None,
            Ok(count) => {
                for byte in &chunk[..count] {
                    if *byte != b'\n' {
                        if self.line.len() < LINE_MAX {
                            self.line.push(*byte);
                        }
                        continue;
                    }
                    let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
                    match line.split_once(' ') {
                        Some((EXPECT, token)) => self.expect(token, now),
                        None if line == LEAVE => self.leave(),
                        _ => {}
                    }
                }
            }
        }
    }

    fn expect(&mut self, token: &str, now: Instant) {
        if self.expected.len() >= EXPECTED_MAX {
            self.expected.remove(0);
        }
        self.expected.push((token.to_owned(), now + EXPECTED_FOR));
        if self.alone.is_some() {
            self.alone = Some(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.strangers.len() < STRANGERS_MAX {
            let Ok((socket, _)) = self.listener.accept() else { return };
            let is_own = peer(&socket).is_ok_and(|peer| peer.uid == own_uid());
            if is_own && socket.set_nonblocking(true).is_ok() {
                let until = Some(now + HELLO_LIMIT);
                let frames = Frames::new(CHUNK);
                self.strangers.push(Guest { socket, frames, out: Vec::new(), hello: None, until });
            }
        }
    }

    fn hear_strangers(&mut self, now: Instant) {
        self.expected.retain(|(_, until)| now < *until);
        for mut guest in std::mem::take(&mut self.strangers) {
            if guest.hello.is_none() && !hear_hello(&mut guest) {
                continue;
            }
            let shown = guest.hello.as_ref().map_or("", |hello| &hello.token);
            let known = |(token, _): &(String, _)| is_same(shown.as_bytes(), token.as_bytes());
            if let Some(at) = self.expected.iter().position(known) {
                // For one person, once.
                self.expected.remove(at);
                self.welcome(guest);
            } else if guest.until.is_none_or(|until| now < until) {
                // The daemon's word may be on its way.
                self.strangers.push(guest);
            } else if guest.hello.is_some() {
                guest.over("nobody with this token is expected; run 'svc attach' again");
            }
        }
    }

    fn welcome(&mut self, mut guest: Guest) {
        let size = guest.hello.as_ref().map(|hello| Size { columns: hello.columns, lines: hello.lines });
        let size = size.filter(|size| size.columns > 0 && size.lines > 0);
        let size = size.unwrap_or(Size { columns: 80, lines: 24 });
        guest.until = None;
        if let Some(mut before) = self.viewer.take() {
            before.over("somebody else has come to this terminal");
        }
        self.viewer = Some(guest);
        self.alone = None;
        match &self.state {
            Program::Awaited => self.start(size),
            Program::Runs { screen: Some(screen), .. } => {
                // Of another size it shows everything anew.
                let smaller = Size { lines: size.lines.saturating_sub(1).max(1), ..size };
                // A terminal that is gone is told by its program's end.
                let _ = resize(screen, smaller).and_then(|()| resize(screen, size));
            }
            _ => {}
        }
        // It may have come with its first word, and then nothing more would wake this.
        self.heed_viewer(true);
    }

    fn start(&mut self, size: Size) {
        let processes = Arc::clone(&self.processes);
        let started = processes.spawn_on_terminal(&self.program, size).and_then(|on| {
            set_nonblocking(on.screen.as_fd())?;
            let ending = Ending::start(Arc::clone(&processes), on.identity, on.exit, self.marker.clone())?;
            Ok(Program::Runs { screen: Some(on.screen), typed: Vec::new(), ending })
        });
        match started {
            Ok(runs) => {
                self.state = runs;
                tell("shown");
            }
            Err(error) => {
                eprintln!("svc: {error}");
                self.farewell(&error.to_string());
                self.last = None;
                self.state = Program::Over(126);
            }
        }
    }

    fn hear_viewer(&mut self) {
        let Some(guest) = &mut self.viewer else { return };
        let is_there = write_some(&guest.socket, &mut guest.out).is_ok();
        let read = guest.frames.fill(&mut guest.socket);
        let is_open = match read {
            Ok(count) => count > 0,
            Err(error) => is_for_now(&error),
        };
        self.heed_viewer(is_there && is_open);
    }

    /// Does what the person has said. Not `is_there`: nothing more will come.
    fn heed_viewer(&mut self, is_there: bool) {
        let Some(guest) = &mut self.viewer else { return };
        let mut is_well = is_there;
        let mut leaves = false;
        loop {
            let (kind, place) = match guest.frames.next(FRAME_MAX) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(_) => {
                    is_well = false;
                    break;
                }
            };
            let payload = guest.frames.payload(place);
            let Program::Runs { screen, typed, .. } = &mut self.state else { continue };
            match (kind, size_of(payload)) {
                (TYPED, _) => typed.extend_from_slice(payload),
                (SIZE, Some(size)) if size.columns > 0 && size.lines > 0 => {
                    // As above.
                    let _ = screen.as_ref().map(|screen| resize(screen, size));
                }
                // A terminal that does not know its size.
                (SIZE, Some(_)) => {}
                (LEFT, _) => leaves = true,
                _ => is_well = false,
            }
        }
        if !is_well {
            self.viewer = None;
            self.alone = Some(Instant::now());
        }
        if leaves {
            self.leave();
        }
        self.pump();
    }

    /// From the terminal to the person, and from the person to the terminal.
    fn pump(&mut self) {
        let Program::Runs { screen: terminal, typed, .. } = &mut self.state else { return };
        let Some(screen) = terminal else { return };
        if write_some(&*screen, typed).is_err() {
            typed.clear();
        }
        if self.viewer.as_ref().is_some_and(|guest| !guest.out.is_empty()) {
            return;
        }
        let mut chunk = [0; CHUNK];
        match screen.read(&mut chunk) {
            Ok(count) if count > 0 => {
                if let Some(guest) = &mut self.viewer {
                    put(&mut guest.out, SCREEN, &chunk[..count]);
                    // Its end is heard where it is read.
                    let _ = write_some(&guest.socket, &mut guest.out);
                }
            }
            Err(error) if is_for_now(&error) => {}
            // Nobody has the other end any more.
            Ok(_) | Err(_) => *terminal = None,
        }
    }

    fn leave(&mut self) {
        self.has_left = true;
        match &self.state {
            Program::Awaited => {
                self.last = None;
                self.state = Program::Over(0);
            }
            Program::Runs { ending, .. } => ending.order(GRACE, Instant::now()),
            Program::Over(_) => {}
        }
    }

    fn ended(&mut self, ended: &Ended) {
        let Program::Runs { screen, .. } = &mut self.state else { return };
        let mut rest = Vec::new();
        if let Some(screen) = screen {
            // Up to where it has nothing more, which is an error here.
            let _ = screen.take(REST_MAX as u64).read_to_end(&mut rest);
        }
        if let Some(guest) = &mut self.viewer {
            put(&mut guest.out, SCREEN, &rest);
        }
        let (code, why) = match (self.has_left, ended.exit.code, ended.exit.signal) {
            (true, ..) | (_, Some(0), _) => (0, String::new()),
            (_, Some(code), _) => {
                (u8::try_from(code).unwrap_or(1), format!("its program ended with exit code {code}"))
            }
            (_, None, signal) => {
                (1, format!("its program was ended by signal {}", signal.unwrap_or_default()))
            }
        };
        self.farewell(&why);
        tell(if self.has_left { "left" } else { "ended" });
        self.state = Program::Over(code);
    }

    fn farewell(&mut self, why: &str) {
        if let Some(mut guest) = self.viewer.take() {
            guest.over(why);
        }
    }

    /// Tells what the last program says.
    fn finish(&mut self) {
        self.farewell("");
        let Some(last) = self.last.take() else { return };
        let told = self.processes.capture(&last, b"", LAST_LIMIT, LAST_MAX).and_then(|captured| {
            let complaint = String::from_utf8_lossy(&captured.stderr);
            if captured.is_success() && !captured.truncated {
                return Ok(captured.stdout);
            }
            Err(complaint.trim().lines().last().unwrap_or("it failed").to_owned())
        });
        match told {
            Ok(mut told) => {
                told.push(b'\n');
                // Nobody reads it only where nobody wants it.
                let _ = io::stdout().write_all(&told);
                tell("told");
            }
            Err(error) => eprintln!("svc: what was said at the terminal cannot be told: {error}"),
        }
    }
}

/// Reads the first frame; `false` when there is none and none will come.
fn hear_hello(guest: &mut Guest) -> bool {
    let is_open = match guest.frames.fill(&mut guest.socket) {
        Ok(count) => count > 0,
        Err(error) => is_for_now(&error),
    };
    match guest.frames.next(FRAME_MAX) {
        Ok(None) => is_open,
        Ok(Some((HELLO, place))) => {
            let hello: Option<Hello> = serde_json::from_slice(guest.frames.payload(place)).ok();
            guest.hello = hello.filter(|hello| hello.version == VERSION);
            guest.hello.is_some()
        }
        _ => false,
    }
}

/// A line of its own on standard output.
fn tell(what: &str) {
    let _ = writeln!(io::stdout(), "{}", serde_json::json!({ TOLD: what }));
}

fn listen(run_dir: &Path) -> io::Result<UnixListener> {
    // By way of its folder, whatever its path's length.
    let cwd = std::env::current_dir()?;
    std::env::set_current_dir(run_dir)?;
    let _ = fs::remove_file(SOCKET);
    let listener = UnixListener::bind(SOCKET)?;
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    std::env::set_current_dir(cwd)?;
    Ok(listener)
}
