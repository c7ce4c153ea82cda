//! How a daemon speaks with a keeper.

use super::frames::Frames;
use super::place::{Folder, Place};
use super::protocol::{FRAME_BYTES_MAX, FromKeeper, Order, ToKeeper, VERSION, Welcome, take_records};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use svc_base::ids::AgentId;
use svc_sys::process::{self, Identity, KEEPER_LOG, Processes};
use svc_sys::sockets::{Poll, own_uid, peer};

/// How long a keeper that was just started may take to greet. A loaded machine starts fifty at once.
const WELCOME_LIMIT: Duration = Duration::from_secs(15);
/// How long a keeper may take none of a frame before it counts as gone.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// How long one that runs already may take: the daemon's start waits for it.
const FIND_LIMIT: Duration = Duration::from_secs(10);
/// How long a keeper that does not answer is given to be gone altogether.
const GONE_LIMIT: Duration = Duration::from_secs(1);
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A connection with a keeper that has greeted.
pub struct Link {
    pub welcome: Welcome,
    pub reader: Reader,
    pub writer: Arc<Writer>,
}

/// Starts a keeper from this program (its own is a daemon's best choice) and gives it its order.
///
/// Errors: a sentence; no keeper runs then.
pub fn start(processes: &Processes, program: OsString, order: &Order) -> Result<Link, String> {
    let frame = ToKeeper::Start(order.clone());
    let pair = UnixStream::pair().map_err(|error| format!("no socket for the keeper: {error}"))?;
    let (own, theirs) = (pair.0, OwnedFd::from(pair.1));
    let keeper = processes
        .spawn_keeper(program, &order.run_dir, theirs, order.marker.agent)
        .map_err(|error| error.to_string())?;
    greet(own, &frame, keeper, WELCOME_LIMIT).map_err(|(Failure::Silent(why) | Failure::Refuses(why))| {
        process::kill(keeper);
        let log = order.run_dir.join(KEEPER_LOG);
        format!("the keeper of agent {} {why}; see {}", order.marker.agent, log.display())
    })
}

/// Connects with the keeper of a run, and asks for its records from this offset on.
///
/// `None`: none is there; what one that was dead already has left is removed.
///
/// Errors: a sentence; it is there and refuses, or says nothing.
pub fn find(run_dir: &Path, from: u64) -> Result<Option<Link>, String> {
    let shown = run_dir.display();
    let Some(folder) = Folder::open(run_dir).map_err(|error| format!("{shown}: {error}"))? else {
        return Ok(None);
    };
    let Some(place) = folder.place()? else { return Ok(None) };
    let keeper = place.identity();
    if process::identity_of(keeper.pid) != Some(keeper) {
        folder.clear();
        return Ok(None);
    }
    // What is below it is this agent's from now on, whether or not it answers.
    process::know_keeper(keeper, place.agent);
    match connect(&folder, &place, from) {
        Ok(link) => Ok(Some(link)),
        // What it has left, if it has, stands there until the folder is cleaned: one that goes before it has
        // begun leaves nothing.
        Err(Failure::Silent(_)) if process::wait_gone(keeper, GONE_LIMIT) => Ok(None),
        Err(Failure::Silent(why) | Failure::Refuses(why)) => {
            Err(format!("the keeper in {shown} (process {}) {why}", keeper.pid))
        }
    }
}

/// The socket of the keeper of a run, for whoever passes on what another machine's daemon says to it. `None`:
/// none is there.
///
/// Errors: a sentence; it is there and cannot be reached.
pub fn door(run_dir: &Path) -> Result<Option<UnixStream>, String> {
    let shown = run_dir.display();
    let Some(folder) = Folder::open(run_dir).map_err(|error| format!("{shown}: {error}"))? else {
        return Ok(None);
    };
    let Some(place) = folder.place()? else { return Ok(None) };
    if process::identity_of(place.pid) != Some(place.identity()) {
        return Ok(None);
    }
    folder.connect().map(Some).map_err(|error| format!("the keeper in {shown} cannot be reached: {error}"))
}

/// The first frame for a keeper that is reached through a pipe.
///
/// Errors: the token is too long for one.
pub fn hello(token: &str, from: u64) -> io::Result<Vec<u8>> {
    Ok(ToKeeper::Hello { version: VERSION, token: token.to_owned(), from }.encode()?)
}

/// Why a keeper behind a pipe is not spoken to.
pub struct NoLink {
    /// A sentence.
    pub why: String,
    /// Another try comes to the same.
    pub is_final: bool,
}

/// A connection through a pipe with a keeper that [`hello`] was said to: which process it is on its machine
/// is not looked at here.
///
/// Errors: it refuses, or says nothing.
pub fn through(socket: UnixStream, limit: Duration) -> Result<Link, NoLink> {
    let link = halves(socket).and_then(|(reader, writer)| welcomed(reader, writer, limit));
    link.map_err(|failure| match failure {
        Failure::Silent(why) => NoLink { why: format!("its keeper {why}"), is_final: false },
        Failure::Refuses(why) => NoLink { why: format!("its keeper {why}"), is_final: true },
    })
}

/// Whether the folder of a run is one of a keeper that is gone, and had begun.
pub fn is_left(run_dir: &Path) -> bool {
    let place = Folder::open(run_dir).ok().flatten().and_then(|folder| folder.place().ok().flatten());
    place.is_some_and(|place| process::identity_of(place.pid) != Some(place.identity()))
}

/// Tells the keeper of a run of one of these agents to end what it keeps, as the signal TERM does; which
/// process it is. `None`: none is there, or it is another's.
pub fn tell_to_end(run_dir: &Path, is_theirs: impl FnOnce(AgentId) -> bool) -> Option<Identity> {
    let place = Folder::open(run_dir).ok().flatten()?.place().ok().flatten()?;
    let keeper = place.identity();
    (is_theirs(place.agent) && process::ask_to_end(keeper)).then_some(keeper)
}

/// Why there is no connection, to be put behind "the keeper".
enum Failure {
    /// It may be about to end.
    Silent(String),
    Refuses(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Silent(why)
    }
}

/// Ends a keeper that does not answer, and with it what it keeps, as far as the kernel does that.
pub fn end(run_dir: &Path) {
    let place = Folder::open(run_dir).ok().flatten().and_then(|folder| folder.place().ok().flatten());
    if let Some(place) = place {
        process::kill(place.identity());
    }
}

fn connect(folder: &Folder, place: &Place, from: u64) -> Result<Link, Failure> {
    let socket = folder.connect().map_err(|error| format!("cannot be reached: {error}"))?;
    let found = peer(&socket).map_err(|error| format!("is not told by the system: {error}"))?;
    if found.uid != own_uid() || (found.pid != 0 && found.pid != place.pid) {
        return Err(Failure::Refuses("is not what listens there".into()));
    }
    let hello = ToKeeper::Hello { version: VERSION, token: place.token.clone(), from };
    greet(socket, &hello, place.identity(), FIND_LIMIT)
}

/// Says the first word and waits for the answer.
fn greet(socket: UnixStream, word: &ToKeeper, keeper: Identity, limit: Duration) -> Result<Link, Failure> {
    let (reader, writer) = halves(socket)?;
    writer.send(word).map_err(|_| ended())?;
    let link = welcomed(reader, writer, limit)?;
    let Welcome { pid, start_ticks, .. } = link.welcome;
    if (Identity { pid, start_ticks }) != keeper {
        return Err(Failure::Refuses("is another than it was to be".into()));
    }
    Ok(link)
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Silent(format!("does not answer: {error}"))
    }
}

fn ended() -> Failure {
    Failure::Silent("has ended without a word".into())
}

fn halves(socket: UnixStream) -> Result<(Reader, Arc<Writer>), Failure> {
    socket.set_write_timeout(Some(SEND_LIMIT))?;
    let writer = Arc::new(Writer::new(socket.try_clone()?)?);
    Ok((Reader::new(socket)?, writer))
}

/// Waits for the answer to the first word.
fn welcomed(mut reader: Reader, writer: Arc<Writer>, limit: Duration) -> Result<Link, Failure> {
    let until = Instant::now() + limit;
    let (kind, place) = loop {
        if let Some(found) = reader.frames.next(FRAME_BYTES_MAX).map_err(|error| error.to_string())? {
            break found;
        }
        match reader.wait(Some(until))? {
            Ready::Socket => {}
            Ready::Wake | Ready::Nothing => {
                return Err(format!("has not answered for {} s", limit.as_secs()).into());
            }
        }
        // With its order unread, its end is a reset.
        if matches!(reader.frames.fill(&mut reader.socket), Ok(0) | Err(_)) {
            return Err(ended());
        }
    };
    match FromKeeper::decode(kind, reader.frames.payload(place)) {
        Ok(FromKeeper::Welcome(welcome)) => {
            if welcome.version != VERSION {
                return Err(Failure::Refuses("is another than it was to be".into()));
            }
            Ok(Link { welcome, reader, writer })
        }
        Ok(FromKeeper::Refused { why }) => Err(Failure::Refuses(format!("refuses: {why}"))),
        Ok(FromKeeper::Records { .. }) => Err(Failure::Refuses("has not greeted".into())),
        Err(error) => Err(Failure::Refuses(error.to_string())),
    }
}

/// What [`Reader::next`] has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// So many bytes of whole records, see [`Reader::bytes`]; the first starts at `offset`.
    Records {
        offset: u64,
        len: usize,
    },
    Woken,
    TimedOut,
    /// The keeper has ended, or has broken the protocol. It stays so.
    Gone,
}

enum Ready {
    Socket,
    Wake,
    Nothing,
}

/// The reading half.
pub struct Reader {
    socket: UnixStream,
    frames: Frames,
    records: Range<usize>,
    wake: PipeReader,
    waker: Waker,
    is_gone: bool,
    is_broken: bool,
}

impl Reader {
    fn new(socket: UnixStream) -> io::Result<Self> {
        let (wake, pipe) = io::pipe()?;
        let waker = Waker(Arc::new(Waking { is_rung: AtomicBool::new(false), pipe }));
        Ok(Self {
            socket,
            frames: Frames::new(CHUNK_BYTES),
            records: 0..0,
            wake,
            waker,
            is_gone: false,
            is_broken: false,
        })
    }

    /// Waits for the next frame, for the wake, or until `limit`.
    pub fn next(&mut self, limit: Option<Instant>) -> Next {
        self.records = 0..0;
        loop {
            if self.waker.take(&mut self.wake) {
                return Next::Woken;
            }
            if self.is_gone {
                return Next::Gone;
            }
            match self.frames.next(FRAME_BYTES_MAX) {
                Ok(Some((kind, place))) => return self.found(kind, place),
                Ok(None) => {}
                Err(_) => return self.broken(),
            }
            match self.wait(limit) {
                Ok(Ready::Wake) => {}
                Ok(Ready::Nothing) => return Next::TimedOut,
                Ok(Ready::Socket) => match self.frames.fill(&mut self.socket) {
                    Ok(count) if count > 0 => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => return self.gone(),
                },
                Err(_) => return self.gone(),
            }
        }
    }

    fn found(&mut self, kind: u8, place: Range<usize>) -> Next {
        let end = place.end;
        match take_records(kind, self.frames.payload(place)) {
            Ok((offset, bytes)) => {
                let len = bytes.len();
                self.records = end - len..end;
                Next::Records { offset, len }
            }
            Err(_) => self.broken(),
        }
    }

    fn broken(&mut self) -> Next {
        self.is_broken = true;
        self.gone()
    }

    fn gone(&mut self) -> Next {
        self.is_gone = true;
        Next::Gone
    }

    /// Whether what has come is no word of a keeper's.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// What the last [`Next::Records`] has brought.
    pub fn bytes(&self) -> &[u8] {
        self.frames.payload(self.records.clone())
    }

    /// Whether something is there to be read at once, or within `wait`.
    pub fn is_ready(&self, wait: Duration) -> bool {
        self.is_gone
            || self.frames.is_ready()
            || matches!(self.wait_for(true, Some(wait)), Ok(Ready::Socket | Ready::Wake) | Err(_))
    }

    /// Lets more gather for `wait`; a wake ends it early.
    pub fn rest(&self, wait: Duration) {
        // A wait that fails is one that is over.
        let _ = self.wait_for(false, Some(wait));
    }

    /// What wakes this reader, from any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn wait(&self, limit: Option<Instant>) -> io::Result<Ready> {
        self.wait_for(true, limit.map(|limit| limit.saturating_duration_since(Instant::now())))
    }

    fn wait_for(&self, with_socket: bool, limit: Option<Duration>) -> io::Result<Ready> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let mut poll = Poll::default();
            let wake = poll.add(self.wake.as_fd(), true, false);
            let socket = with_socket.then(|| poll.add(self.socket.as_fd(), true, false));
            poll.wait(until.map(|until| until.saturating_duration_since(Instant::now())))?;
            if poll.is_ready(wake) {
                return Ok(Ready::Wake);
            }
            if socket.is_some_and(|socket| poll.is_ready(socket)) {
                return Ok(Ready::Socket);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return Ok(Ready::Nothing);
            }
        }
    }
}

/// Wakes the [`Reader`] it came from.
#[derive(Clone)]
pub struct Waker(Arc<Waking>);

struct Waking {
    is_rung: AtomicBool,
    pipe: PipeWriter,
}

impl Waker {
    /// Remembered until [`Reader::next`] has answered it; never waits.
    pub fn wake(&self) {
        if !self.0.is_rung.swap(true, Ordering::AcqRel) {
            // One byte at most is in the pipe. Without a reader nobody need be woken.
            let _ = (&self.0.pipe).write_all(&[1]);
        }
    }

    fn take(&self, pipe: &mut PipeReader) -> bool {
        if !self.0.is_rung.load(Ordering::Acquire) {
            return false;
        }
        // The byte is there, or on its way. It goes first: a bell that rings between the two is this one.
        let _ = pipe.read(&mut [0]);
        self.0.is_rung.swap(false, Ordering::AcqRel)
    }
}

/// The writing half.
pub struct Writer {
    socket: Mutex<UnixStream>,
    /// To be closed while somebody writes.
    closing: UnixStream,
}

impl Writer {
    fn new(socket: UnixStream) -> io::Result<Self> {
        let closing = socket.try_clone()?;
        Ok(Self { socket: Mutex::new(socket), closing })
    }

    /// Sends a whole frame.
    ///
    /// Errors: it is too long, which leaves the connection as it was; or the keeper has gone, or takes
    /// nothing for 5 s, which closes it.
    pub fn send(&self, frame: &ToKeeper) -> io::Result<()> {
        let bytes = frame.encode()?;
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = socket.write_all(&bytes);
        if sent.is_err() {
            // Half a frame may be under way: nothing can follow it.
            self.close();
        }
        sent
    }

    /// Ends the connection; the reader sees its end.
    pub fn close(&self) {
        // It fails only when it is closed already.
        let _ = self.closing.shutdown(Shutdown::Both);
    }
}
