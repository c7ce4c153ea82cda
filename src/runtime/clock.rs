//! The wall clock, made never to go back.

use crate::core::time::Time;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static LAST_MS: AtomicU64 = AtomicU64::new(0);

/// Now. Never earlier than an earlier answer, even when the system's clock is set back.
pub fn now() -> Time {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let wall = u64::try_from(wall).unwrap_or(u64::MAX);
    let before = LAST_MS.fetch_max(wall, Ordering::Relaxed);
    Time(before.max(wall))
}

/// 64 random bits from the operating system.
pub fn random() -> u64 {
    // The kernel's generator does not fail once the system is up; time and address are a last resort
    // that still gives unique ids, which is all that these bits are for.
    getrandom::u64().unwrap_or_else(|_| now().0.rotate_left(32) ^ std::ptr::from_ref(&LAST_MS).addr() as u64)
}
