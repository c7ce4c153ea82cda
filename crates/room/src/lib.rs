//! The room of an agent. A hidden sub-command, `svc __cage PLAN -- PROGRAM ARG..`, makes namespaces of its
//! own, puts together what a [`Plan`] shows of the machine, and runs the program in there.
//!
//! ```text
//! svc __cage    the daemon's child: waits, and ends as the program ended
//!   └─ process 1 of the room: reaps; ends when `svc __cage` does, and with it everything inside
//!        └─ the program
//! ```
//!
//! **Invariant:** a program that is to be caged and cannot be does not start.
//!
//! **Invariant:** when `svc __cage` is gone, however it ended, so is every process of the room: the kernel
//! ends all processes of a process namespace with its first.

mod plan;
mod tried;

#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod run;

pub use plan::{Plan, Step};
#[cfg(target_os = "linux")]
pub use run::main;
pub use tried::{Cause, Refusal, Tried};

/// The hidden sub-command.
pub const SUB_COMMAND: &str = "__cage";
/// In the place of a plan: makes an empty room and ends. What it comes to is a [`Tried`] on standard output.
pub const TRY: &str = "--try";

/// Elsewhere there is no cage.
#[cfg(not(target_os = "linux"))]
pub fn main(_args: &[std::ffi::OsString]) -> std::process::ExitCode {
    eprintln!("svc: only Linux has what a cage is made of");
    std::process::ExitCode::from(126)
}
