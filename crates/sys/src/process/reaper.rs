//! The one thread that waits for children.
//!
//! It asks the kernel for a child that has ended *without* collecting it, and collects it under the lock that
//! a spawn holds from before the fork until the child is registered. So an exit is never lost, and the failed
//! child that `std` collects itself when an `exec` fails is never snatched from it.
#![allow(unsafe_code, reason = "system calls that std does not offer")]

use super::{Exit, Identity};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use svc_base::ids::AgentId;

/// How long the reaper may take to notice that it should end, before it is woken again.
const WAKE_AGAIN: Duration = Duration::from_millis(50);
/// Stack of the reaper thread in bytes.
const STACK_BYTES: usize = 128 * 1024;

/// Children are the whole process's, so is the table of them: two reapers do not steal from each other.
static TABLE: Table =
    Table { inner: Mutex::new(Inner::new()), arrived: Condvar::new(), gone: Condvar::new() };

struct Table {
    inner: Mutex<Inner>,
    /// A child was started, or a reaper should end.
    arrived: Condvar,
    /// A child was collected.
    gone: Condvar,
}

struct Inner {
    /// Started and not yet collected; at most as many as the system lets one user have.
    children: Option<HashMap<u32, Child>>,
    started: u64,
    collected: u64,
}

struct Child {
    start_ticks: u64,
    /// Whom it works for; `None` for a tool of our own.
    agent: Option<AgentId>,
    exit: Sender<Exit>,
}

impl Inner {
    const fn new() -> Self {
        Self { children: None, started: 0, collected: 0 }
    }
}

fn lock() -> MutexGuard<'static, Inner> {
    TABLE.inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `start`, which forks, and registers the child it returns before the reaper can collect it.
pub(super) fn register<T>(
    agent: Option<AgentId>,
    start: impl FnOnce() -> io::Result<(Identity, T)>,
) -> io::Result<(Identity, T, Receiver<Exit>)> {
    let mut inner = lock();
    let (identity, value) = start()?;
    // One exit is all that is ever sent, so the reaper never waits here.
    let (exit, receiver) = bounded(1);
    let child = Child { start_ticks: identity.start_ticks, agent, exit };
    // Still under the lock: the child may have ended already, and its exit must find this entry.
    inner.children.get_or_insert_default().insert(identity.pid, child);
    inner.started += 1;
    drop(inner);
    TABLE.arrived.notify_all();
    Ok((identity, value, receiver))
}

/// Signals the whole group that this child leads, if the child has not been collected yet: until then
/// neither its id nor its group's can have been given to anyone else.
pub(super) fn signal_group(leader: Identity, signal: i32) -> bool {
    let inner = lock();
    let ours = inner.children.as_ref().and_then(|children| children.get(&leader.pid));
    if ours.is_none_or(|child| child.start_ticks != leader.start_ticks) {
        return false;
    }
    let Some(pid) = libc::pid_t::try_from(leader.pid).ok().filter(|pid| *pid > 1) else { return false };
    // SAFETY: kill takes numbers; the lock keeps the id from being collected meanwhile.
    unsafe { libc::kill(-pid, signal) == 0 }
}

/// Whether this is a child that was started here and has not been collected yet.
pub(super) fn is_registered(identity: Identity) -> bool {
    let inner = lock();
    let child = inner.children.as_ref().and_then(|children| children.get(&identity.pid));
    child.is_some_and(|child| child.start_ticks == identity.start_ticks)
}

/// Whom a child that was started here works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Agent(AgentId),
    /// The daemon itself, as a tool.
    Tool,
}

/// What a child was started for that is not collected yet; `None` for every other process, adopted ones
/// included.
pub(super) fn purpose_of(pid: u32) -> Option<Purpose> {
    let inner = lock();
    let child = inner.children.as_ref()?.get(&pid)?;
    Some(child.agent.map_or(Purpose::Tool, Purpose::Agent))
}

/// How many children have been collected so far; see [`wait_collected`].
pub(super) fn collected() -> u64 {
    lock().collected
}

/// Returns when more than `seen` children have been collected, or after `limit`.
pub(super) fn wait_collected(seen: u64, limit: Duration) {
    let inner = lock();
    drop(TABLE.gone.wait_timeout_while(inner, limit, |inner| inner.collected == seen));
}

/// The thread; ended and joined on drop.
pub(super) struct Reaper {
    closing: Arc<AtomicBool>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Collects ended children from now on.
    pub fn start() -> io::Result<Self> {
        let closing = Arc::new(AtomicBool::new(false));
        let (alive, ended) = bounded::<()>(0);
        let flag = Arc::clone(&closing);
        let thread =
            std::thread::Builder::new().name("reaper".into()).stack_size(STACK_BYTES).spawn(move || {
                // Dropped at the end, which is what the owner waits for.
                let _alive = alive;
                reap_until(&flag);
            })?;
        Ok(Self { closing, ended, thread: Some(thread) })
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        {
            // Under the lock, so that the reaper cannot go to sleep between its check and the bell.
            let _inner = lock();
            self.closing.store(true, Ordering::Release);
        }
        TABLE.arrived.notify_all();
        // Children may live on; the end of a short one wakes a reaper that waits for them.
        while matches!(self.ended.try_recv(), Err(crossbeam_channel::TryRecvError::Empty)) {
            start_and_end_a_child();
            let _ = self.ended.recv_timeout(WAKE_AGAIN);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn start_and_end_a_child() {
    // SAFETY: the child does nothing but end, which is safe after a fork of a threaded process.
    unsafe {
        if libc::fork() == 0 {
            libc::_exit(0);
        }
    }
}

fn reap_until(closing: &AtomicBool) {
    loop {
        // Read before the wait: a child that starts between ECHILD and the sleep is not slept through.
        let seen = {
            let inner = lock();
            if closing.load(Ordering::Acquire) {
                return;
            }
            inner.started
        };
        match wait_for_any() {
            Ok(pid) => collect(pid),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                let inner = lock();
                let idle = |inner: &mut Inner| inner.started == seen && !closing.load(Ordering::Acquire);
                drop(TABLE.arrived.wait_while(inner, idle));
            }
            // A signal handler ran on this thread.
            Err(_) => {}
        }
    }
}

/// Blocks until some child has ended, and leaves it uncollected.
fn wait_for_any() -> io::Result<libc::pid_t> {
    // SAFETY: all-zero bytes are a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call; WNOWAIT leaves the child as it is.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid has filled in the fields of a child's state change.
    Ok(unsafe { info.si_pid() })
}

fn collect(pid: libc::pid_t) {
    let mut inner = lock();
    let mut status = 0;
    // SAFETY: `status` outlives the call, which does not block.
    if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } != pid {
        // Somebody was first: std after a failed exec, or another reaper.
        return;
    }
    inner.collected += 1;
    // None for a stray that was adopted: nobody waits for its exit.
    let child = u32::try_from(pid).ok().and_then(|pid| inner.children.as_mut()?.remove(&pid));
    drop(inner);
    if let Some(child) = child {
        let _ = child.exit.try_send(decode(status));
    }
    TABLE.gone.notify_all();
}

fn decode(status: i32) -> Exit {
    if libc::WIFSIGNALED(status) {
        Exit { code: None, signal: Some(libc::WTERMSIG(status)) }
    } else {
        Exit { code: Some(libc::WEXITSTATUS(status)), signal: None }
    }
}
