//! The rate limit: at most 30 calls in any 60 seconds, per integration, over all agents together.

use crate::core::time::{Jump, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// Calls of one integration within [`WINDOW`].
pub const MAX_CALLS: usize = 30;
/// The length of the sliding window.
pub const WINDOW: Duration = Duration::from_secs(60);

/// The admitted calls of one integration within the last [`WINDOW`], oldest first. Never more than
/// [`MAX_CALLS`].
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Window {
    admitted: VecDeque<Time>,
}

impl Window {
    /// The wall clock has jumped.
    pub fn clock_set(&mut self, jump: Jump) {
        for at in &mut self.admitted {
            *at = at.moved(jump);
        }
    }

    /// Admits a call at `now`. A refused call does not count, so that a client that keeps trying gets
    /// through as soon as there is room.
    ///
    /// Errors: how long until there is room.
    pub fn admit(&mut self, now: Time) -> Result<(), Duration> {
        while self.admitted.front().is_some_and(|at| now.since(*at) >= WINDOW) {
            self.admitted.pop_front();
        }
        match self.admitted.front() {
            Some(oldest) if self.admitted.len() >= MAX_CALLS => {
                Err(WINDOW.saturating_sub(now.since(*oldest)))
            }
            _ => {
                self.admitted.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_thirty_calls_a_minute_in_a_sliding_window_to_the_millisecond() {
        let mut window = Window::default();
        for n in 0..30 {
            assert_eq!(window.admit(Time(1_000_000 + n * 1000)), Ok(()), "call {n}");
        }
        assert_eq!(window.admit(Time(1_029_000)), Err(Duration::from_secs(31)));
        assert_eq!(window.admit(Time(1_059_999)), Err(Duration::from_millis(1)));
        assert_eq!(window.admit(Time(1_060_000)), Ok(()), "the first call has left the window");
        assert_eq!(window.admit(Time(1_060_000)), Err(Duration::from_secs(1)));
        assert_eq!(window.admit(Time(1_061_000)), Ok(()));
    }

    #[test]
    fn limits_no_minute_ever_has_more_than_thirty_calls() {
        // Calls of irregular spacing; the model keeps every admitted call and counts over all windows.
        let (mut window, mut admitted, mut now) = (Window::default(), Vec::new(), 1_000_000_u64);
        for step in 0..5000_u64 {
            now += (step * 7919) % 1900;
            if window.admit(Time(now)).is_ok() {
                admitted.push(now);
            }
            let recent = admitted.iter().filter(|at| now - **at < 60_000).count();
            assert!(recent <= MAX_CALLS, "{recent} calls in the minute before {now}");
        }
        assert!(admitted.len() > 1000);
    }
}
