//! How much memory a run may hold: above that it is ended, and it alone.
//!
//! Where this program may make control groups the kernel sees to it; what it swaps out, and all of it where
//! there are no groups, is added up here.

use super::ending::Ended;
use super::protocol::Over;
use std::time::{Duration, Instant};
use svc_base::ids::AgentId;
use svc_sys::control_group::Group;
use svc_sys::process::Tree;

/// Between two looks at most.
const CALM: Duration = Duration::from_secs(1);
/// Between two looks at least, while it grows.
const LEAST: Duration = Duration::from_millis(100);
/// While the kernel sees to all but what is swapped out.
const GUARDED: Duration = Duration::from_secs(2);

/// The ceiling of a run.
pub(crate) struct Ceiling {
    group: Option<Group>,
    /// Bytes; 0 for none.
    bytes: u64,
    next: Option<Instant>,
    /// What it held at the last look, and when that was.
    last: Option<(u64, Instant)>,
    /// What it held when it was above.
    passed: Option<u64>,
}

impl Ceiling {
    /// For a run that is to begin.
    pub fn new(agent: AgentId, bytes: u64) -> Self {
        let mut ceiling = Self { group: Group::make(agent), bytes: 0, next: None, last: None, passed: None };
        ceiling.set(bytes);
        ceiling
    }

    /// In which group the run is to be, if there is one.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// It is another from now on.
    pub fn set(&mut self, bytes: u64) {
        if let Some(group) = self.group.as_ref().filter(|_| bytes != self.bytes) {
            group.end_above(bytes);
        }
        self.bytes = bytes;
        self.next = (bytes > 0).then(Instant::now);
    }

    /// When it is looked at next.
    pub fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Looks, if it is time for that; `true` once, when the run is to be ended.
    pub fn is_passed(&mut self, now: Instant) -> bool {
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        let grouped = self.group.as_ref().and_then(Group::held);
        let held = grouped.unwrap_or_else(|| self.counted());
        let interval = if grouped.is_some() { GUARDED } else { self.interval(held, now) };
        self.last = Some((held, now));
        // Looking takes no more than half of the time, be the machine ever so busy.
        let seen = Instant::now();
        self.next = Some(seen + interval.max(seen.saturating_duration_since(now)));
        if held <= self.bytes {
            return false;
        }
        (self.passed, self.next) = (Some(held), None);
        true
    }

    /// Until it has come half of the way to its ceiling, at the pace at which it grows.
    fn interval(&self, held: u64, now: Instant) -> Duration {
        let Some((before, then)) = self.last.filter(|(before, _)| *before < held) else { return CALM };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let way = self.bytes.saturating_sub(held) / 2;
        let time = millis(now.saturating_duration_since(then)).saturating_mul(way) / (held - before);
        Duration::from_millis(time).clamp(LEAST, CALM)
    }

    /// What the processes below this one hold. What they share is divided among them only when it matters:
    /// that walks all their pages.
    fn counted(&self) -> u64 {
        let tree = Tree::below(std::process::id());
        let at_most = tree.held_at_most();
        if at_most > self.bytes { tree.held() } else { at_most }
    }

    /// The run has ended: whether this is why. Its group is gone from now on.
    pub fn ended(&mut self, ended: &Ended) -> Option<Over> {
        self.next = None;
        let by_kernel = self.group.take().filter(|_| !ended.signalled).and_then(|group| group.was_ended());
        let held = self.passed.or(by_kernel)?;
        Some(Over { held, ceiling: self.bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_grows_fast_is_looked_at_more_often_the_nearer_it_is() {
        let now = Instant::now();
        let after = |before: u64, held: u64| {
            let last = Some((before, now));
            let ceiling = Ceiling { group: None, bytes: 1_000, next: None, last, passed: None };
            ceiling.interval(held, now + Duration::from_secs(1))
        };
        assert_eq!((after(100, 100), after(100, 90)), (CALM, CALM));
        assert_eq!(after(100, 200), CALM, "it comes there in eight seconds");
        assert_eq!(after(100, 600), Duration::from_millis(400));
        assert_eq!((after(100, 1_000), after(100, 980)), (LEAST, LEAST));
    }
}
