//! The daemon put together: which rule each event is for, the table of all endpoints, the state's thread, the
//! store, what carries effects out, and the service behind the HTTP edge. It knows every feature; no feature
//! knows it but by [`host::Host`].

mod agent_tokens;
pub mod ahead;
pub mod apply;
pub mod caller;
mod clock;
pub mod daemon;
pub mod description;
pub mod detect;
pub mod documents;
mod door;
mod fleet;
pub mod folder;
mod fork;
mod fork_session;
pub mod host;
pub mod lock;
mod moments;
mod outbox;
pub mod phone_service;
pub mod replay;
pub mod routes;
mod rules;
mod service;
mod shared_replies;
pub mod spawn;
pub mod state_thread;
pub mod step;
pub mod store;
pub(crate) mod tokens;
pub mod unwritten;
