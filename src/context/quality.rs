//! How well a life goes: a score from 0 to 100 over its last events.
//!
//! 70, less 5 per failed tool, less 6 per repeated write of a file (30 at most), less 6 when failures rise
//! (3 more when they fall), less 10 per scope violation, less 10 per file written five times or more, and 20
//! times what the tools' success rate is above 0.8, and 2 per file written (10 at most).
//!
//! A life is judged by more than that: by the later half of it, and by what ended well. A command that failed
//! and then succeeded has not failed; one that fails anew after files were written is a red test on the way
//! to a green one, up to [`RED_RUNS`] times; and to write a file again after it was tried is no repetition.

use crate::providers::Activity;
use crate::usage::classifier::{hash, is_event};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use svc_base::bounded;

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
/// A command may fail so often, with files written in between, before each further time counts.
pub const RED_RUNS: u32 = 8;
/// Commands that have failed, as many are remembered.
const REDS_MAX: usize = 64;

/// One event, as far as it matters here. Paths are kept as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
enum Seen {
    Other,
    Ok,
    /// Which command.
    Failed(u64),
    Wrote(u64),
    Violation,
    /// A failure or a write that was made good.
    FailedExcused(u64),
    WroteExcused(u64),
}

impl Seen {
    fn excused(self) -> Self {
        match self {
            Self::Failed(command) => Self::FailedExcused(command),
            Self::Wrote(path) => Self::WroteExcused(path),
            other => other,
        }
    }
}

/// A command that failed last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
struct Red {
    times: u32,
    /// Whether a file was written since.
    tried: bool,
}

/// No command, or no file.
const NONE: u64 = 0;

/// The last events of one life.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Window {
    seen: VecDeque<Seen>,
    count: u64,
    /// Calls under way: to the file that is written, and to the command that is run.
    open: BTreeMap<u64, (u64, u64)>,
    reds: BTreeMap<u64, Red>,
}

impl Window {
    /// Takes in an activity. A tool's failure is what its own result says, joined by its id.
    pub fn take(&mut self, activity: &Activity) {
        if !is_event(activity) {
            return;
        }
        let seen = match activity {
            Activity::ToolStarted { id, path, writes, input, .. } => {
                let written = path.as_ref().filter(|_| *writes).map_or(NONE, |path| hash(path));
                let command = command_of(input).map_or(NONE, |command| hash(&command));
                if (written, command) != (NONE, NONE) && self.open.len() < OPEN_MAX {
                    self.open.insert(hash(id), (written, command));
                }
                Seen::Other
            }
            Activity::ToolEnded { id, error, .. } => {
                let (path, command) = self.open.remove(&hash(id)).unwrap_or((NONE, NONE));
                self.ended(path, command, *error)
            }
            _ => Seen::Other,
        };
        self.push(seen);
    }

    /// What the end of a call says, also of what was before.
    fn ended(&mut self, path: u64, command: u64, error: bool) -> Seen {
        if path != NONE && !error {
            self.reds.values_mut().for_each(|red| red.tried = true);
            return Seen::Wrote(path);
        }
        if command == NONE {
            return if error { Seen::Failed(NONE) } else { Seen::Ok };
        }
        if !error {
            if self.reds.remove(&command).is_some() {
                self.excuse(|seen| matches!(seen, Seen::Wrote(_)) || seen == Seen::Failed(command));
            }
            return Seen::Ok;
        }
        if self.reds.len() >= REDS_MAX && !self.reds.contains_key(&command) {
            return Seen::Failed(command);
        }
        let red = self.reds.entry(command).or_default();
        let is_on_the_way = red.times < RED_RUNS && (red.times == 0 || red.tried);
        *red = Red { times: red.times + 1, tried: false };
        if !is_on_the_way {
            return Seen::Failed(command);
        }
        self.excuse(|seen| matches!(seen, Seen::Wrote(_)));
        Seen::FailedExcused(command)
    }

    fn excuse(&mut self, which: impl Fn(Seen) -> bool) {
        for seen in self.seen.iter_mut().filter(|seen| which(**seen)) {
            *seen = seen.excused();
        }
    }

    /// Takes in a write outside of the agent's scope.
    pub fn violation(&mut self) {
        self.push(Seen::Violation);
    }

    fn push(&mut self, seen: Seen) {
        bounded::push(&mut self.seen, seen, WINDOW);
        self.count += 1;
    }

    /// Events of this life.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The score, once there are [`MIN_EVENTS`].
    pub fn score(&self) -> Option<f64> {
        let plain = |seen: &Seen| match *seen {
            Seen::FailedExcused(command) => Seen::Failed(command),
            Seen::WroteExcused(path) => Seen::Wrote(path),
            other => other,
        };
        (self.count >= MIN_EVENTS).then(|| formula(&self.seen.iter().map(plain).collect::<Vec<_>>()))
    }

    /// The score by which a life is judged: that of its later half, without what was made good, where it is
    /// better than that of all.
    pub fn judged(&self) -> Option<f64> {
        let half = (self.seen.len() / 2).max(usize::try_from(MIN_EVENTS).unwrap_or(usize::MAX));
        let earlier = self.seen.len().saturating_sub(half);
        let later: Vec<Seen> = self.seen.iter().skip(earlier).copied().collect();
        self.score().map(|score| score.max(formula(&later)))
    }
}

/// What is run, without where and on what: the first words of the last of several commands.
fn command_of(input: &Value) -> Option<String> {
    let text = match &input["command"] {
        Value::Array(parts) => parts.last()?.as_str()?,
        other => other.as_str()?,
    };
    let last = text.rsplit("&&").next()?.rsplit(';').next()?.split('|').next()?;
    let is_plain = |word: &&str| !word.starts_with('-') && !word.contains(['=', '>', '<']);
    let mut words = last.split_whitespace().filter(is_plain);
    let program = words.next()?;
    // What follows is a command of the program's own, or what it is run on.
    let own = words.next().filter(|word| !word.contains('/') && !word.contains("::")).unwrap_or_default();
    Some(format!("{program} {own}"))
}

fn formula(seen: &[Seen]) -> f64 {
    let mut writes: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut tools, mut failed, mut violations) = (0_u32, 0_u32, 0_u32);
    for seen in seen {
        match seen {
            Seen::Wrote(path) => *writes.entry(*path).or_default() += 1,
            Seen::WroteExcused(path) => {
                writes.entry(*path).or_default();
            }
            Seen::Failed(_) => failed += 1,
            Seen::Violation => violations += 1,
            Seen::Ok | Seen::Other | Seen::FailedExcused(_) => {}
        }
        tools += u32::from(is_result(*seen));
    }
    let repeated: u32 = writes.values().map(|count| count.saturating_sub(1)).sum();
    let churned = writes.values().filter(|count| **count >= CHURN_WRITES).count();
    let files = u32::try_from(writes.len()).unwrap_or(u32::MAX);
    // Without a tool there is no success rate, and nothing to add or take for it.
    let rate = if tools == 0 { 0.8 } else { f64::from(tools - failed) / f64::from(tools) };
    let score = 70.0 - 5.0 * f64::from(failed) - (6.0 * f64::from(repeated)).min(30.0) + trend(seen)
        - 10.0 * f64::from(violations)
        - 10.0 * f64::from(u32::try_from(churned).unwrap_or(u32::MAX))
        + 20.0 * (rate - 0.8)
        + (2.0 * f64::from(files)).min(10.0);
    // Rounded, so that sums that people do by hand come out alike.
    ((score * 100.0).round() / 100.0).clamp(0.0, 100.0)
}

/// Whether it is what a tool came to, and counts.
fn is_result(seen: Seen) -> bool {
    matches!(seen, Seen::Ok | Seen::Failed(_) | Seen::Wrote(_) | Seen::WroteExcused(_))
}

/// Less 6 when the later half of the tool results failed more often than the earlier one, 3 more when
/// less often.
fn trend(seen: &[Seen]) -> f64 {
    let results = seen.iter().filter(|seen| is_result(**seen));
    let results: Vec<bool> = results.map(|seen| matches!(seen, Seen::Failed(_))).collect();
    let (earlier, later) = results.split_at(results.len() / 2);
    let failures = |part: &[bool]| part.iter().filter(|failed| **failed).count();
    // Shares of halves that may differ by one, compared without dividing.
    match (failures(later) * earlier.len()).cmp(&(failures(earlier) * later.len())) {
        std::cmp::Ordering::Greater => -6.0,
        std::cmp::Ordering::Less => 3.0,
        std::cmp::Ordering::Equal => 0.0,
    }
}
