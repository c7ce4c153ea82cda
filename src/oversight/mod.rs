//! Looking after the daemon: health, status, metrics.

pub mod api;
pub mod worker_api;
