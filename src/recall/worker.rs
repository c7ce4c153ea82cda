//! Answering on the caller's own thread, and the thread that keeps the indexes of the logs.

use super::api;
use crate::agents::worker_log::LogStore;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use svc_sys::threads::Thread;

/// After the start, which has more urgent things to do.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// After each index, so that a gigabyte from before takes half a core at most.
const PAUSE: Duration = Duration::from_millis(100);

/// `GET /api/recall`.
pub fn answer(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let question = api::question(ask)?;
    let answer = super::ask(&host.logs, ask.state, &question)
        .map_err(|error| Problem::new(500, "log_unreadable", format!("the logs cannot be read: {error}")))?;
    Ok(Answer::Reply(Reply::ok(&answer)))
}

/// `GET /api/search`.
pub fn find(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let search = api::search(ask)?;
    let answer = super::find(&host.logs, ask.state, &search)
        .map_err(|error| Problem::new(500, "log_unreadable", format!("the logs cannot be read: {error}")))?;
    Ok(Answer::Reply(Reply::ok(&answer)))
}

/// The running thread; it ends when this is dropped.
pub struct Indexing {
    _stop: Sender<()>,
    _thread: Thread,
}

impl Indexing {
    /// Indexes what is there, and then what comes.
    ///
    /// Errors: no thread.
    pub fn start(logs: Arc<LogStore>) -> io::Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let thread = Thread::spawn("recall", move || keep(&logs, &stopped))?;
        Ok(Self { _stop: stop, _thread: thread })
    }
}

/// Looks once after the start, and then sleeps until the logs have grown.
fn keep(logs: &LogStore, stopped: &Receiver<()>) {
    let goes_on = |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    let growth = logs.growth();
    let mut failed = false;
    if !goes_on(FIRST_LOOK) {
        return;
    }
    loop {
        // A full disk is told elsewhere; the next growth tries again.
        if let Err(error) = logs.index_words(|| goes_on(PAUSE)) {
            if !failed {
                log::warn!("the logs cannot be indexed, so that questions take longer: {error}");
            }
            failed = true;
        }
        crossbeam_channel::select! {
            recv(growth) -> rung => if rung.is_err() { return },
            recv(stopped) -> _ => return,
        }
    }
}
