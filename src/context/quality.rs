//! How well a life goes: a score from 0 to 100 over its last events.
//!
//! 70, less 5 per failed tool, less 6 per repeated write of a file (30 at most), less 6 when failures rise
//! (3 more when they fall), less 10 per scope violation, less 10 per file written five times or more, and 20
//! times what the tools' success rate is above 0.8, and 2 per file written (10 at most).

use crate::providers::Activity;
use crate::usage::classifier::{hash, is_event};
use std::collections::{BTreeMap, VecDeque};

/// Events scored.
pub const WINDOW: usize = 200;
/// Events before a score counts.
pub const MIN_EVENTS: u64 = 30;
/// Below this score a life has degraded.
pub const THRESHOLD: f64 = 55.0;
/// How much lower the threshold is for a converged profile.
pub const CONVERGED_RELIEF: f64 = 15.0;
/// Writes whose end is awaited, at most.
const OPEN_MAX: usize = 256;
/// From this many writes on a file counts as churned.
const CHURN_WRITES: u32 = 5;

/// One event, as far as it matters here. Paths are kept as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Other,
    Ok,
    Failed,
    Wrote(u64),
    Violation,
}

/// The last events of one life.
#[derive(Debug, Clone, Default)]
pub struct Window {
    seen: VecDeque<Seen>,
    count: u64,
    /// Writes under way: call to file.
    open: BTreeMap<u64, u64>,
}

impl Window {
    /// Takes in an activity. A tool's failure is what its own result says, joined by its id.
    pub fn take(&mut self, activity: &Activity) {
        if !is_event(activity) {
            return;
        }
        let seen = match activity {
            Activity::ToolStarted { id, path: Some(path), writes: true, .. } => {
                if self.open.len() < OPEN_MAX {
                    self.open.insert(hash(id), hash(path));
                }
                Seen::Other
            }
            Activity::ToolEnded { id, error, .. } => match (self.open.remove(&hash(id)), error) {
                (_, true) => Seen::Failed,
                (Some(path), false) => Seen::Wrote(path),
                (None, false) => Seen::Ok,
            },
            _ => Seen::Other,
        };
        self.push(seen);
    }

    /// Takes in a write outside of the agent's scope.
    pub fn violation(&mut self) {
        self.push(Seen::Violation);
    }

    fn push(&mut self, seen: Seen) {
        self.seen.push_back(seen);
        if self.seen.len() > WINDOW {
            self.seen.pop_front();
        }
        self.count += 1;
    }

    /// Events of this life.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The score, once there are [`MIN_EVENTS`].
    pub fn score(&self) -> Option<f64> {
        (self.count >= MIN_EVENTS).then(|| self.formula())
    }

    fn formula(&self) -> f64 {
        let mut writes: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut tools, mut failed, mut violations) = (0_u32, 0_u32, 0_u32);
        for seen in &self.seen {
            match seen {
                Seen::Wrote(path) => *writes.entry(*path).or_default() += 1,
                Seen::Failed => failed += 1,
                Seen::Violation => violations += 1,
                Seen::Ok | Seen::Other => {}
            }
            tools += u32::from(matches!(seen, Seen::Ok | Seen::Failed | Seen::Wrote(_)));
        }
        let repeated: u32 = writes.values().map(|count| count - 1).sum();
        let churned = writes.values().filter(|count| **count >= CHURN_WRITES).count();
        let files = u32::try_from(writes.len()).unwrap_or(u32::MAX);
        // Without a tool there is no success rate, and nothing to add or take for it.
        let rate = if tools == 0 { 0.8 } else { f64::from(tools - failed) / f64::from(tools) };
        let score = 70.0 - 5.0 * f64::from(failed) - (6.0 * f64::from(repeated)).min(30.0) + self.trend()
            - 10.0 * f64::from(violations)
            - 10.0 * f64::from(u32::try_from(churned).unwrap_or(u32::MAX))
            + 20.0 * (rate - 0.8)
            + (2.0 * f64::from(files)).min(10.0);
        // Rounded, so that sums that people do by hand come out alike.
        ((score * 100.0).round() / 100.0).clamp(0.0, 100.0)
    }

    /// Less 6 when the later half of the tool results failed more often than the earlier one, 3 more when
    /// less often.
    fn trend(&self) -> f64 {
        let results: Vec<bool> = self
            .seen
            .iter()
            .filter(|seen| matches!(seen, Seen::Ok | Seen::Failed | Seen::Wrote(_)))
            .map(|seen| *seen == Seen::Failed)
            .collect();
        let (earlier, later) = results.split_at(results.len() / 2);
        let failures = |part: &[bool]| part.iter().filter(|failed| **failed).count();
        // Shares of halves that may differ by one, compared without dividing.
        match (failures(later) * earlier.len()).cmp(&(failures(earlier) * later.len())) {
            std::cmp::Ordering::Greater => -6.0,
            std::cmp::Ordering::Less => 3.0,
            std::cmp::Ordering::Equal => 0.0,
        }
    }
}
