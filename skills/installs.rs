//! Which installs count.

use svc_base::time::Time;

/// One install per skill and client counts within this; from the last counted one.
pub const WINDOW_MS: u64 = 3_600_000;
/// A day has as many milliseconds; installs are summed up by day.
pub const DAY_MS: u64 = 86_400_000;

/// Whether an install counts now, given the last one that did. One that lies more than a window ahead was
/// written by a clock that was wrong and holds nobody back.
pub fn counts(last_counted: Option<Time>, now: Time) -> bool {
    last_counted.is_none_or(|last| {
        now.0 >= last.0.saturating_add(WINDOW_MS) || last.0 > now.0.saturating_add(WINDOW_MS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_the_install_window_is_3600_s_from_the_last_counted() {
        assert!(counts(None, Time(0)));
        assert!(!counts(Some(Time(5)), Time(5 + WINDOW_MS - 1)));
        assert!(counts(Some(Time(5)), Time(5 + WINDOW_MS)));
        assert!(!counts(Some(Time(5)), Time(0)), "a clock set back does not count twice");
        assert!(!counts(Some(Time(WINDOW_MS)), Time(0)));
        assert!(counts(Some(Time(WINDOW_MS + 1)), Time(0)), "a clock that was far ahead holds nobody back");
    }
}
