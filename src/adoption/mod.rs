//! Sessions that people had with a program outside of the daemon: they are listed (`svc sessions`), words
//! are found in them (`svc search --outside`), and one of them becomes an agent (`svc adopt`) with its
//! history and all that was counted.
//!
//! The programs' own records are read and never written. What is looked at is bounded: files, bytes and time.

pub mod api;
#[cfg(test)]
mod tests;
pub mod worker;
mod worker_read;
mod worker_running;
mod worker_search;

use crate::agents::adopt::{Adopted, adopt};
use crate::core::{CallId, Context, State as All};

/// A wish of a person's.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// A session was read, and its history stands in the log of the lineage that it is to be.
    Adopt(Box<Adopted>),
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let Command::Adopt(adopted) = command;
    let result = all.health.writable().and_then(|()| adopt(all, cx, *adopted));
    cx.answer(call, result);
}
