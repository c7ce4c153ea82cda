//! The flight recorder: what came into the core, on disk, so that it can be played again.
//!
//! ```text
//! state thread ──event, time, random bits──▶ tape ──▶ recorder's thread ──▶ .svc/record/*.rec (a ring)
//!                                                                                  │ svc record export
//!                                         apply() ◀── svc replay ◀── one file ◀────┘
//! ```
//!
//! A recording is made of segments, each of which begins with the whole state and can be played without the
//! others, so that the oldest ones can go. Between the events stand hashes of the state as it was: whoever
//! plays them compares.
//!
//! **Invariant:** recording never makes the core wait: what the disk does not take in time is left out, and
//! the next segment says so.
//! **Invariant:** no secret is in a recording: of what is sealed it has the length.

pub mod api;
mod entries;
#[cfg(test)]
pub mod tests;
pub mod worker_api;
pub mod worker_tape;

pub use entries::{
    Begins, Entry, Happened, Header, Segment, check, events_of, hash_of, remade, segments, take, told_event,
    whole,
};

/// What a recording begins with.
pub const MAGIC: &[u8] = b"svc-record 1\n";
/// Below `.svc/`.
pub const FOLDER: &str = "record";
/// How the names of segments end.
pub const ENDING: &str = "rec";
