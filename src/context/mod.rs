//! What a new agent is told: the briefing of a fresh one, the handoff brief of a successor.

pub mod adaptive;
pub mod brief;
pub mod briefing;
pub mod quality;
pub mod triggers;
pub mod triggers_api;
#[cfg(test)]
mod triggers_tests;
