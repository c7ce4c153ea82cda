//! The threads, sockets, files and processes. Features never import this module; their `worker*` files
//! and the route table do.

pub mod beneath;
pub mod caller;
pub mod clock;
pub mod confine;
pub mod daemon;
mod descriptors;
pub mod detect;
mod folder;
pub mod host;
pub mod http;
pub mod journal;
pub mod lock;
mod logger;
mod outbox;
mod port_holder;
pub mod process;
pub mod regular;
pub mod rehearsal_signals;
pub mod reserve;
pub mod secrets;
mod service;
pub mod signals;
mod socket_table;
pub mod state_thread;
pub mod store;
pub mod terminal;
pub mod threads;
pub(crate) mod tokens;
pub mod ws;
