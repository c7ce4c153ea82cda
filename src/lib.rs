//! `svc` runs many AI coding agents on one machine: it spawns, tracks, rotates and stops them, holds
//! their registry, pushes state over WebSocket and answers REST calls on one local port.
//!
//! The modules in reading order: [`core`] is the pure heart (state, events, effects), [`api`] the pure
//! side of HTTP (requests, replies, routes), then the features, then [`runtime`], the only place with
//! threads, sockets, files and processes. [`cli`] is a client of the REST API and shares nothing else with it.

pub mod agents;
pub mod api;
pub mod cli;
pub mod core;
pub mod providers;
pub mod rehearsal;
pub mod runtime;
