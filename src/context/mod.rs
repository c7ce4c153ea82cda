//! What an agent is told: the briefing of a new one, the handoff brief of a successor.

pub mod brief;
pub mod briefing;
mod fence;
mod paths;
#[cfg(test)]
pub(crate) mod testing;

pub use fence::{fenced, one_line};
pub use paths::project_path;
