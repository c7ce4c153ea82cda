//! Looking after the daemon: health, status, metrics.

pub mod api;
pub mod dashboard;
pub mod timeline;
pub mod worker_api;
