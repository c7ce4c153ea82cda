//! A failing list of steps made short: delta debugging.

use super::invariants::Rule;
use super::machine::Plant;
use super::play;
use std::time::{Duration, Instant};

/// The shortest list of steps of `seed` that was found within `limit`, out of the first `steps`, which still
/// breaks `rule`.
pub fn shrink(seed: u64, steps: usize, plant: Plant, rule: Rule, limit: Duration) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..steps).collect();
    let began = Instant::now();
    let fails = |list: &[usize]| {
        let is_in_time = began.elapsed() < limit;
        is_in_time && play(seed, list, plant, false).broken.is_some_and(|broken| broken.rule == rule)
    };
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        let mut is_shorter = false;
        while at < kept.len() {
            let end = (at + size).min(kept.len());
            let without: Vec<usize> = kept[..at].iter().chain(&kept[end..]).copied().collect();
            if fails(&without) {
                kept = without;
                is_shorter = true;
            } else {
                at = end;
            }
        }
        size = if is_shorter && size < kept.len() { size } else { size / 2 };
    }
    kept
}
