//! The threads, sockets, files and processes. Features never import this module.

pub mod rehearsal_signals;
