//! Looking after the daemon: health, status, metrics.

pub mod api;
pub mod audit;
pub mod worker_audit;
