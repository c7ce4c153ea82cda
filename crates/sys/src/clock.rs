//! The wall clock, made never to jump unnoticed.
//!
//! Time goes on at the pace of the monotonic clock. When the system's clock has been set, or the machine
//! slept, the one thread that asks for it ([`follow`]) takes the jump over and tells the core of it; until
//! then, and everywhere else, time just goes on.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use svc_base::time::{Jump, Time};

/// A difference up to this is no jump: the two clocks are read one after the other, and network time moves
/// the wall clock by steps of up to 128 ms.
const TOLERANCE: Duration = Duration::from_millis(250);

static CLOCK: LazyLock<Clock> = LazyLock::new(|| Clock::new(wall()));
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What the time is from the time that has passed.
struct Clock {
    /// The wall clock's milliseconds when no time had passed.
    begin_ms: AtomicU64,
}

impl Clock {
    fn new(begin_ms: u64) -> Self {
        Self { begin_ms: AtomicU64::new(begin_ms) }
    }

    fn at(&self, passed: Duration) -> Time {
        Time(self.begin_ms.load(Ordering::Relaxed)) + passed
    }

    /// Takes over the wall clock's time; how far it was off, if that is worth telling.
    fn follow(&self, passed: Duration, wall: u64) -> Option<Jump> {
        let told = self.at(passed).0;
        let (is_back, by) = (wall < told, Duration::from_millis(wall.abs_diff(told)));
        if by <= TOLERANCE {
            return None;
        }
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        self.begin_ms.store(wall.saturating_sub(passed_ms), Ordering::Relaxed);
        Some(Jump { is_back, by })
    }
}

fn wall() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    u64::try_from(wall).unwrap_or(u64::MAX)
}

fn passed() -> Duration {
    BEGUN.elapsed()
}

/// Now. Goes on evenly, except where [`follow`] has told of a jump.
pub fn now() -> Time {
    // The first look begins both.
    let passed = passed();
    CLOCK.at(passed)
}

/// Takes over a jump of the system's clock. For the state thread alone, which tells the core.
pub fn follow() -> Option<Jump> {
    let passed = passed();
    CLOCK.follow(passed, wall())
}

/// 64 random bits from the operating system.
pub fn random() -> u64 {
    // The kernel's generator does not fail once the system is up; time and address are a last resort
    // that still gives unique ids, which is all that these bits are for.
    getrandom::u64().unwrap_or_else(|_| now().0.rotate_left(32) ^ std::ptr::from_ref(&CLOCK).addr() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_goes_on_evenly_whatever_the_wall_clock_does_until_the_jump_is_taken_over() {
        let clock = Clock::new(1_000_000);
        assert_eq!(clock.at(SECOND), Time(1_001_000));
        assert_eq!(clock.follow(SECOND, 1_001_100), None, "read one after the other");
        assert_eq!(clock.at(2 * SECOND), Time(1_002_000));
        // An hour back.
        let jump = clock.follow(3 * SECOND, 1_003_000 - 900_000);
        assert_eq!(jump, Some(Jump { is_back: true, by: 900 * SECOND }));
        assert_eq!(clock.at(3 * SECOND), Time(103_000));
        assert_eq!(clock.follow(4 * SECOND, 104_000), None, "told once");
        // The machine slept for an hour, in which no time passed for us.
        let jump = clock.follow(5 * SECOND, 105_000 + 3_600_000);
        assert_eq!(jump, Some(Jump { is_back: false, by: 3600 * SECOND }));
        assert_eq!(clock.at(6 * SECOND), Time(106_000 + 3_600_000));
    }

    #[test]
    fn a_clock_before_the_time_of_the_start_is_told_too() {
        let clock = Clock::new(1_000_000);
        // Nothing is before 1970, even for a clock that is set to it.
        assert!(clock.follow(2 * SECOND, 0).is_some_and(|jump| jump.is_back));
        assert_eq!(clock.at(2 * SECOND), Time(2_000));
    }
}
