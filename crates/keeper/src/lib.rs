//! The keeper: a process that stays when the daemon goes, one for each run of an agent. It starts the agent's
//! program, owns its pipes, keeps what it prints until a daemon has taken it in, and ends it with everything
//! it has started.
//!
//! ```text
//! svc start ──Start, Write, Stop, Taken──▶ svc __keep ──standard input──▶ the agent's program
//!           ◀──────Welcome, Records──────  (run/sock)  ◀──its output────
//! ```
//!
//! **Invariant:** a record stays until a daemon has said that it is taken, and its offset is never another's.
//!
//! **Invariant:** when the keeper is gone, the program is: the kernel ends it.

mod bytes;
mod ceiling;
pub mod client;
mod ending;
pub mod frames;
mod input;
mod limits;
mod output;
mod peers;
mod place;
pub mod protocol;
mod run;
mod spool;
mod still;
pub mod terminal;

pub use limits::Limits;
pub use run::{main, main_within};

/// The hidden sub-command.
pub const SUB_COMMAND: &str = svc_sys::process::KEEPER_SUB_COMMAND;
