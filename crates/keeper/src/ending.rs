//! The thread that waits for the program's end, or for the order to bring it about, and ends whatever is left
//! of the run.

use crossbeam_channel::{Receiver, Sender, bounded, select};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use svc_sys::process::{Exit, Identity, Marker, Processes, StopReport};

/// Between TERM and KILL for what a program left behind when it ended by itself.
const SWEEP_GRACE: Duration = Duration::from_secs(1);
/// How long the exit of a stopped program may take to be collected.
const EXIT_LIMIT: Duration = Duration::from_secs(1);
/// Between TERM and KILL at most, whatever is asked for.
const GRACE_MAX: Duration = Duration::from_secs(60 * 60);
/// Stack of the thread in bytes.
const STACK_BYTES: usize = 128 << 10;

/// How a run has ended.
pub(crate) struct Ended {
    pub exit: Exit,
    /// By an order, not by itself.
    pub signalled: bool,
    pub swept: StopReport,
}

/// The thread, as the loop sees it.
pub(crate) struct Ending {
    deadline: Arc<Mutex<Option<Instant>>>,
    order: Sender<()>,
    news: Receiver<Ended>,
    bell: PipeReader,
}

impl Ending {
    /// Errors: no thread, no pipe.
    pub fn start(
        processes: Arc<Processes>,
        leader: Identity,
        exit: Receiver<Exit>,
        marker: Marker,
    ) -> io::Result<Self> {
        let (bell, ring) = io::pipe()?;
        let (order, ordered) = bounded(1);
        let (tell, news) = bounded(1);
        let deadline = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&deadline);
        let body = move || {
            let ended = end(&processes, leader, &exit, &marker, &ordered, &shared);
            // The loop takes one, and lives for as long as this does.
            let _ = tell.send(ended);
            let _ = ring_once(&ring);
        };
        std::thread::Builder::new().name("ending".into()).stack_size(STACK_BYTES).spawn(body)?;
        Ok(Self { deadline, order, news, bell })
    }

    /// Ends the run; never blocks. A shorter grace than one ordered before counts.
    pub fn order(&self, grace: Duration, now: Instant) {
        let new = now + grace.min(GRACE_MAX);
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = Some(deadline.map_or(new, |old| old.min(new)));
        drop(deadline);
        // One that was ordered already is enough.
        let _ = self.order.try_send(());
    }

    /// Readable once there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// How it ended, once.
    pub fn news(&mut self) -> Option<Ended> {
        let ended = self.news.try_recv().ok()?;
        // The byte follows at once, and is not to wake anybody again.
        let _ = self.bell.read(&mut [0]);
        Some(ended)
    }
}

fn ring_once(mut bell: &PipeWriter) -> io::Result<()> {
    bell.write_all(&[1])
}

fn end(
    processes: &Processes,
    leader: Identity,
    exit: &Receiver<Exit>,
    marker: &Marker,
    ordered: &Receiver<()>,
    deadline: &Mutex<Option<Instant>>,
) -> Ended {
    let by_itself = select! {
        recv(exit) -> exit => Some(exit.unwrap_or_default()),
        recv(ordered) -> _ => exit.try_recv().ok(),
    };
    let usual = Instant::now() + SWEEP_GRACE;
    let deadline = || deadline.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(usual);
    let until = || if by_itself.is_some() { usual.min(deadline()) } else { deadline() };
    let swept = processes.end_below(leader, marker, &until);
    let signalled = by_itself.is_none();
    let exit = by_itself.unwrap_or_else(|| exit.recv_timeout(EXIT_LIMIT).unwrap_or_default());
    Ended { exit, signalled, swept }
}
