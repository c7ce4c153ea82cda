//! Looking after the daemon: health, status, metrics.

pub mod api;
pub mod audit;
pub mod dashboard;
pub mod timeline;
pub mod worker_api;
pub mod worker_audit;
