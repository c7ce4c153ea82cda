//! The client's process of a line, and what its other end answers before the keeper there speaks.

use super::Kind;
use super::dialogue::{LENT, Plan, Says};
use super::kind::{Key, Line, Said, Seen, Spot, engine};
use super::worker_host::{self, SAYS};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use svc_base::untrusted::untrusted_prose;
use svc_sys::process::start_as_place;
use svc_sys::threads::lock;

/// How long ssh may take to say why it has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long an engine may take to say what has become of a place.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of all that stands before an answer, and the answer.
const ANSWER_BYTES: usize = 64 << 10;
/// Bytes of what ssh says that are kept.
const WORDS_BYTES: usize = 1 << 10;

/// What this process was lent is for the program there alone.
pub(super) fn without_lent(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(LENT) {
            command.env_remove(name);
        }
    }
    command
}

/// The client's process.
pub(super) struct Client {
    /// None where a socket leads there.
    child: Option<Child>,
    said: Arc<Mutex<String>>,
    listener: Option<thread::JoinHandle<()>>,
    socket: UnixStream,
}

impl Client {
    /// Starts it, with one socket for its input and output, whose other end is given back.
    ///
    /// Errors: the system's words; whether the client is there shows when it is to answer.
    pub fn start(plan: &Plan, script: &str) -> io::Result<(Self, UnixStream)> {
        let mut line = (engine(plan.spot.kind).run)(&plan.spot, script);
        if let Some(socket) = plan.socket.as_ref().filter(|_| plan.spot.kind == Kind::Ssh) {
            // Where nobody listens there any more, ssh makes a connection of its own.
            let words = ["-oControlMaster=no".to_owned(), format!("-oControlPath={}", socket.display())];
            line.args.splice(0..0, words);
        }
        Self::begin(&line, engine(plan.spot.kind).places.is_some())
    }

    fn begin(Line { program, args, .. }: &Line, is_place: bool) -> io::Result<(Self, UnixStream)> {
        let (own, theirs) = UnixStream::pair()?;
        // Whoever ends this line ends all that is below it: the word to end has to get through before.
        let mut command = Command::new("/bin/sh");
        if is_place {
            // What runs in a container would be taken for this agent's, here.
            start_as_place(&mut command);
        }
        let mut child = without_lent(&mut command)
            .args(["-c", "trap '' TERM; exec \"$@\"", "sh", program])
            .args(args)
            .stdin(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {program}: {error}")))?;
        let said = Arc::new(Mutex::new(String::new()));
        let (stderr, words) = (child.stderr.take(), Arc::clone(&said));
        let listener = thread::Builder::new().name("ssh".into()).spawn(move || listen(stderr, &words))?;
        let socket = own.try_clone()?;
        Ok((Self { child: Some(child), said, listener: Some(listener), socket }, own))
    }

    /// By a socket that leads there.
    ///
    /// Errors: nobody has it open.
    pub fn direct(path: &Path) -> io::Result<(Self, UnixStream)> {
        let own = UnixStream::connect(path)?;
        let socket = own.try_clone()?;
        Ok((Self { child: None, said: Arc::default(), listener: None, socket }, own))
    }

    /// What a command line comes to that is asked nothing.
    ///
    /// Errors: a sentence; it cannot be started, or has not ended by then.
    pub fn ask(line: &Line, until: Instant) -> Result<Said, String> {
        let (mut client, mut socket) = Self::begin(line, true).map_err(|error| error.to_string())?;
        // It fails when it has ended already.
        let _ = client.socket.shutdown(Shutdown::Write);
        let mut stdout = Vec::new();
        let ended = loop {
            match byte(&mut socket, until) {
                Ok(byte) if stdout.len() < ANSWER_BYTES => stdout.push(byte),
                _ => break client.ended(until),
            }
        };
        let stderr = client.words();
        let exit = ended.ok_or_else(|| format!("{} has not answered in time", line.program))?;
        let stdout = String::from_utf8_lossy(&stdout).into_owned();
        Ok(Said { is_success: exit.success(), stdout, stderr })
    }

    /// What it has complained, once it is gone.
    pub fn words(&mut self) -> String {
        self.end(LAST_WORDS);
        self.close();
        let until = Instant::now() + LAST_WORDS;
        // Somebody whom it has started may hold its end of the pipe still.
        while Instant::now() < until && self.listener.as_ref().is_some_and(|one| !one.is_finished()) {
            thread::sleep(Duration::from_millis(5));
        }
        let said = lock(&self.said);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let words = untrusted_prose(last.unwrap_or_default());
        if words.is_empty() { "the line ended without a word".to_owned() } else { words }
    }

    /// Lets what was said last go out.
    pub fn end(&mut self, limit: Duration) {
        // It fails when it has ended already.
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.ended(Instant::now() + limit);
    }

    fn ended(&mut self, until: Instant) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                ended => return ended.ok().flatten(),
            }
        }
    }

    fn close(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let Some(child) = &mut self.child else { return };
        // It may be gone, and is waited for once.
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

fn listen(stderr: Option<impl Read>, words: &Mutex<String>) {
    let Some(mut stderr) = stderr else { return };
    let mut chunk = [0; 512];
    while let Ok(count) = stderr.read(&mut chunk) {
        if count == 0 {
            return;
        }
        let mut words = lock(words);
        words.push_str(&String::from_utf8_lossy(&chunk[..count]));
        let surplus = words.len().saturating_sub(WORDS_BYTES);
        let at = (surplus..words.len()).find(|at| words.is_char_boundary(*at)).unwrap_or(words.len());
        words.drain(..at);
    }
}

/// What has become of a place; `None` where there is none, or nobody can tell.
pub(super) fn look(spot: &Spot) -> Option<Seen> {
    let places = engine(spot.kind).places.as_ref()?;
    let key = Key::Id(&spot.id);
    let line = (places.look)(&spot.destination, key);
    Client::ask(&line, Instant::now() + LOOK_LIMIT).and_then(|said| (places.seen)(key, &said)).ok()
}

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// The line ended before it.
    Cut,
    /// What comes is none; another try would come to the same.
    Wrong(String),
}

/// The next answer. A login shell may say something before it; nothing is read behind it.
pub(super) fn answer(socket: &mut UnixStream, until: Instant) -> Result<Says, NoAnswer> {
    let mut line = Vec::new();
    for _ in 0..ANSWER_BYTES {
        match byte(socket, until)? {
            b'\n' => {}
            byte => {
                line.push(byte);
                continue;
            }
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(said) = text.strip_prefix(SAYS) {
            let unread = |error| NoAnswer::Wrong(format!("what that machine tells cannot be read: {error}"));
            return serde_json::from_str(said).map_err(unread);
        }
        if worker_host::is_absent(&text) {
            let why = "this program is not on that machine any more: svc runner check puts it there";
            return Err(NoAnswer::Wrong(why.to_owned()));
        }
        line.clear();
    }
    Err(NoAnswer::Wrong(format!("that machine says {ANSWER_BYTES} bytes before it answers")))
}

/// One byte: what follows an answer is not for its reader.
fn byte(socket: &mut UnixStream, until: Instant) -> Result<u8, NoAnswer> {
    let mut byte = [0];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return Err(NoAnswer::Cut);
        }
        match socket.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(1) => return Ok(byte[0]),
            _ => return Err(NoAnswer::Cut),
        }
    }
}
