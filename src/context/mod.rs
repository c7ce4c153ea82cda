//! What a new agent is told: the briefing of a fresh one, the handoff brief of a successor.

pub mod brief;
pub mod briefing;
