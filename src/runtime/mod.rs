//! The threads, sockets, files and processes. Features never import this module.

pub mod process;
pub mod daemon;
pub mod terminal;
