//! One table of deadlines: at most one per key, one next time-out for the whole daemon.

use super::CallId;
use super::ids::{AgentId, PhoneId, ScheduleId, WebhookId};
use super::time::{Jump, Time};
use crate::approvals::{ApprovalId, RuleId};
use crate::gateways::GatewayId;
use crate::integrations::RunId;
use std::collections::{BTreeMap, BTreeSet};
use svc_base::sorted::Gather;

/// The deadlines' names, by the table of all.
macro_rules! timer {
    ($($(#[$doc:meta])* $Name:ident $(($id:ident: $Of:ident))? => $($rule:ident)::+;)*) => {
        /// What a deadline is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
        pub enum Timer {
            $($(#[$doc])* $Name $(($Of))?,)*
        }
    };
}
crate::features::timers!(timer);

/// The deadlines, findable by key and by time.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Timers {
    by_key: BTreeMap<Timer, Time>,
    by_time: BTreeSet<(Time, Timer)>,
}

impl Timers {
    /// Sets or moves the deadline of `timer`.
    pub fn set(&mut self, timer: Timer, at: Time) {
        self.clear(timer);
        self.by_key.insert(timer, at);
        self.by_time.insert((at, timer));
    }

    /// Removes the deadline of `timer`, if it has one.
    pub fn clear(&mut self, timer: Timer) {
        if let Some(at) = self.by_key.remove(&timer) {
            self.by_time.remove(&(at, timer));
        }
    }

    /// Sets or moves the deadline of `timer`; with no time, removes it.
    pub fn put(&mut self, timer: Timer, at: Option<Time>) {
        match at {
            Some(at) => self.set(timer, at),
            None => self.clear(timer),
        }
    }

    /// Whether `timer` has a deadline.
    pub fn is_set(&self, timer: Timer) -> bool {
        self.by_key.contains_key(&timer)
    }

    /// The deadline of `timer`.
    pub fn get(&self, timer: Timer) -> Option<Time> {
        self.by_key.get(&timer).copied()
    }

    /// Moves the deadlines of the timers that `moves` picks along with the clock.
    pub fn move_by(&mut self, jump: Jump, moves: impl Fn(Timer) -> bool) {
        for (timer, at) in &mut self.by_key {
            if moves(*timer) {
                *at = at.moved(jump);
            }
        }
        self.by_time = self.by_key.iter().map(|(timer, at)| (*at, *timer)).gather();
    }

    /// All deadlines, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = &(Time, Timer)> {
        self.by_time.iter()
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<(Time, Timer)> {
        self.by_time.first().copied()
    }

    /// Takes the earliest deadline out if it is due at `now`.
    pub fn take_due(&mut self, now: Time) -> Option<Timer> {
        let (at, timer) = self.next()?;
        if at > now {
            return None;
        }
        self.clear(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_at_most_one_deadline_and_the_earliest_comes_first() {
        let mut timers = Timers::default();
        timers.set(Timer::StateNotice, Time(50));
        timers.set(Timer::Silence(AgentId(1)), Time(20));
        timers.set(Timer::StateNotice, Time(10));
        assert_eq!(timers.next(), Some((Time(10), Timer::StateNotice)));
        assert_eq!(timers.take_due(Time(9)), None);
        assert_eq!(timers.take_due(Time(30)), Some(Timer::StateNotice));
        assert_eq!(timers.take_due(Time(30)), Some(Timer::Silence(AgentId(1))));
        assert_eq!(timers.take_due(Time(99)), None);
    }
}
