//! Servers that speak the protocols of Telegram, Discord and Slack, as strict as the originals where it
//! matters: tokens, lengths, limits, order. Written from the official documentation;
//! `tests/it/gateways_oracles.rs` has the platforms' own public libraries talk to them.

pub mod discord;
pub mod slack;
pub mod telegram;
pub mod web;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
