//! Looking after the daemon: health, status, metrics.

pub mod api;
pub mod audit;
pub mod back;
pub mod cleanup;
pub mod dashboard;
pub mod pm;
mod pm_checks;
#[cfg(test)]
mod pm_tests;
pub mod questions;
pub mod timeline;
pub mod worker_api;
pub mod worker_audit;
pub mod worker_cleanup;

pub use back::moment;
