//! Looking after the daemon: health, status, metrics.

pub mod api;
pub mod pm;
mod pm_checks;
#[cfg(test)]
mod pm_tests;
pub mod questions;
pub mod worker_api;
