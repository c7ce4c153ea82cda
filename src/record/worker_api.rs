//! What the routes of the recorder read from the disk.

use super::api::Play;
use super::worker_tape::export;
use super::{events_of, segments};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use svc_sys::threads::Thread;

/// Events told, unless it is said how many, and at most.
const USUAL: usize = 200;
const MOST: usize = 1000;

/// As much as the state thread has: the same rules run on it.
const STACK_BYTES: usize = 2 << 20;
/// Held while one is played: each holds the file and a second state.
static PLAYING: Mutex<()> = Mutex::new(());
/// Played and waiting at once, at most: a few pages of one person. Who comes then is refused.
const MOST_AT_ONCE: usize = 5;
static AT_ONCE: AtomicUsize = AtomicUsize::new(0);

/// `GET /api/record`.
pub fn status(host: &Host, _ask: &Ask) -> Result<Answer, Problem> {
    let off = || json!({"recording": false, "trouble": "record.enabled is false, or was at the start"});
    Ok(Answer::Reply(Reply::ok(&host.recorder.as_ref().map_or_else(off, |recorder| recorder.shown()))))
}

/// One of those that play or wait for it.
struct Place;

impl Place {
    /// Errors: 429 `busy` where too many have one.
    fn take() -> Result<Self, Problem> {
        let place = Self;
        if AT_ONCE.fetch_add(1, Ordering::Relaxed) < MOST_AT_ONCE {
            return Ok(place);
        }
        let text = "recordings are being played; retry when they are done, or play a file with svc replay";
        Err(Problem::new(429, "busy", text).with_header("Retry-After", "2"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        AT_ONCE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `GET /api/record/replay`, with what plays.
pub fn replay(host: &Host, ask: &Ask, play: Play) -> Result<Answer, Problem> {
    let whole = |name: &str, low: u64, high: u64| {
        let Some(text) = ask.request.query(name) else { return Ok(None) };
        let fault = || format!("{name} must be a whole number from {low} to {high}, it is {text:?}");
        let number = text.parse().ok().filter(|number| (low..=high).contains(number));
        number.map(Some).ok_or_else(|| Problem::bad_request("validation_failed", fault()))
    };
    let limit =
        whole("limit", 1, MOST as u64)?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(USUAL);
    let from = whole("from", 1, u64::MAX)?;
    let file = export(&host.project.join(".svc")).map_err(|error| {
        Problem::not_found(format!("the recording cannot be read: {error}; is record.enabled true?"))
    })?;
    let from = if let Some(from) = from {
        from
    } else {
        let all = segments(&file).map_err(Problem::not_found)?.iter().map(events_of).sum::<u64>();
        all.saturating_sub(limit as u64) + 1
    };
    let until = ask.request.query("until").unwrap_or_default().to_owned();
    let _place = Place::take()?;
    let _playing = PLAYING.lock().unwrap_or_else(PoisonError::into_inner);
    let played = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&played);
    let thread = Thread::with_stack("replay", STACK_BYTES, move || {
        let reply = play(&file, from, &until, limit);
        *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
    });
    drop(thread.map_err(|error| Problem::new(503, "no_thread", format!("no thread: {error}; retry")))?);
    let reply = played.lock().unwrap_or_else(PoisonError::into_inner).take();
    let failed =
        || Problem::new(500, "internal", "playing it has met a bug in svc; export it, and report that");
    reply.ok_or_else(failed)?.map(Answer::Reply)
}
