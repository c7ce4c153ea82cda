//! The threads, sockets, files and processes. Features never import this module.

pub mod daemon;
pub mod process;
pub mod rehearsal_signals;
pub mod terminal;
