//! The longer sentences of reasons.

use super::{Awaited, Reason};
use crate::core::time::Time;
use std::fmt::{self, Formatter};

/// Why a waiting agent has no process.
const PUT_AWAY: &str = "put away because memory is short: the next word starts it again in its session";

/// That a line is cut, and why.
pub(super) fn cut_off(f: &mut Formatter<'_>, runner: &str, why: &str) -> fmt::Result {
    write!(f, "the line to {runner} is cut, it works on there ({why})")
}

/// What no output for so long means.
pub(super) fn silent(f: &mut Formatter<'_>, seconds: u64, before: Option<&str>) -> fmt::Result {
    match before {
        None => write!(f, "no output for {seconds} s inside an open turn"),
        Some(before) => write!(f, "no output for {seconds} s; before that: {before}"),
    }
}

/// How far a move is, and what lets it go on.
pub(super) fn moved(f: &mut Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::Moving { to } => write!(f, "it is moved, to go on {to}"),
        Reason::Moved { to, name, refused: None } => {
            write!(f, "it goes on {to} with the next word (svc instruct {name})")
        }
        Reason::Moved { to, name, refused: Some(why) } => {
            write!(f, "it is to go on {to}, and was not started there ({why}); svc resume {name} does")
        }
        Reason::MoveFailed { to, error, name } => {
            write!(f, "it could not be moved to go on {to}; svc resume {name} goes on where it was: {error}")
        }
        _ => Ok(()),
    }
}

/// That a usage limit is reached, or the rest kept, when it opens, and what happens then.
pub(super) fn limited(f: &mut Formatter<'_>, reason: &Reason) -> fmt::Result {
    let Reason::Limited { error, resets, next, name, is_kept } = reason else { return Ok(()) };
    let kept = "the rest of its provider's window is kept for you";
    f.write_str(if *is_kept { kept } else { "its provider's usage limit is reached" })?;
    if let Some(resets) = resets {
        write!(f, " and opens at {resets}")?;
    }
    match next {
        Some(next) => write!(f, "; it goes on by itself at {next}")?,
        None => write!(f, "; svc resume {name} lets it go on, see svc quota")?,
    }
    write!(f, ": {error}")
}

/// When a provider that does not answer is asked again.
pub(super) fn provider_busy(f: &mut Formatter<'_>, error: &str, next: Option<Time>) -> fmt::Result {
    match next {
        Some(next) => write!(f, "its provider does not answer now; it is asked again at {next}: {error}"),
        None => write!(f, "its provider does not answer now: {error}"),
    }
}

/// That it has no process, and what it waits for.
pub(super) fn put_away(f: &mut Formatter<'_>, awaited: Option<&Awaited>, name: &str) -> fmt::Result {
    match awaited {
        Some(awaited) => write!(f, "{PUT_AWAY}; {awaited}"),
        None => write!(f, "{PUT_AWAY}; svc resume {name} does, too"),
    }
}

/// What it held in megabytes, and what it may.
pub(super) fn above_ceiling(f: &mut Formatter<'_>, used: u64, ceiling: u64, name: &str) -> fmt::Result {
    write!(
        f,
        "ended alone: it and what it had started held {used} MB of memory, and an agent may hold {ceiling} \
         (governor.agentMegabytes); svc resume {name} continues it"
    )
}
