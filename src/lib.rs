//! `svc` runs many AI coding agents on one machine: it spawns, tracks, rotates and stops them, holds their
//! registry, pushes state over WebSocket and answers REST calls on one local port.
//!
//! The modules in reading order: [`core`] is the pure heart (state, events, effects), [`endpoint`] what a
//! request comes to, then the features, whose rules these are, then [`assembly`], which gives each event to
//! its rule and puts the daemon together. Below them are
//! crates: `svc-base` (the pure side of HTTP, ids, time), `svc-sys` (threads, sockets, processes),
//! `svc-providers` (the agent programs) and `svc-agents` (the two that are built in). `svc-cli` is a client
//! of the REST API; the program puts both together.

pub mod core;
mod features;

pub use svc_agents::{ollama, rehearsal};
pub use svc_base::api;
pub use svc_providers as providers;

pub mod accounts;
pub mod adoption;
pub mod agents;
pub mod alerts;
pub mod approvals;
pub mod cards;
pub mod comments;
pub mod console;
pub mod context;
pub mod coordination;
pub mod credentials;
pub mod federation;
pub mod fleet;
pub mod gateways;
pub mod governor;
pub mod inlets;
pub mod integrations;
pub mod isolation;
pub mod journalist;
pub mod market;
pub mod memory;
pub mod oversight;
pub mod ownership;
pub mod phones;
pub mod prices;
pub mod programs;
pub mod recall;
pub mod record;
pub mod runners;
pub mod schedules;
pub mod settings;
pub mod snapshots;
pub mod teams;
pub mod telemetry;
pub mod toys;
pub mod usage;
pub mod webhooks;
pub mod workspace;

pub mod assembly;
pub mod endpoint;

// Features in the folder of another one, by the names that the table of all has for them.
pub(crate) use context::triggers;
pub(crate) use oversight::{cleanup, pm, questions, timeline};
pub(crate) use usage::outcomes;

#[cfg(test)]
mod testing;

/// The release, as `GET /api/health` and `svc --version` tell it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
