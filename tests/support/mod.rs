//! What several test binaries need. Each uses a part of it.
#![allow(dead_code, reason = "every test binary uses another part")]

pub mod aimock;
pub mod chat;
pub mod chat_endpoint;
pub mod conformance;
pub mod daemon;
pub mod dice;
pub mod document;
pub mod folder;
pub mod market;
pub mod mcp;
pub mod phone;
pub mod postgres;
pub mod processes;
pub mod proxy;
pub mod push;
pub mod real;
pub mod receiver;
pub mod rehearsal;
pub mod tap;
pub mod tools;
pub mod wait;
pub mod world;
