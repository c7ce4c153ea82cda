//! The daemon put together: the state's thread, the store, what carries effects out, and the service behind
//! the HTTP edge. The floor below, `svc-sys`, has threads, sockets, files and processes and is named here,
//! too. Features never import this module; their `worker*` files and the route table do.

mod ahead;
pub mod caller;
pub mod daemon;
pub mod detect;
mod folder;
pub mod host;
pub mod lock;
mod outbox;
mod service;
mod shared_replies;
pub mod state_thread;
pub mod store;
pub(crate) mod tokens;

pub use svc_sys::{
    beneath, clock, confine, descriptors, files, http, journal, logger, port_holder, process, regular,
    rehearsal_signals, reserve, secrets, signals, socket_table, terminal, threads, ws,
};
