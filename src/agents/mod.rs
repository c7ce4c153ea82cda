//! The agents: their registry, the life of a run, what is said to them.

pub mod report;
pub mod wire;
pub mod worker;
pub mod worker_log;
