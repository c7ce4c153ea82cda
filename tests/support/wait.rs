//! Waiting on conditions with a deadline, never on time.

use std::time::{Duration, Instant};

/// The deadline of a condition that should hold within moments; generous for a loaded machine.
pub const SOON: Duration = Duration::from_secs(30);

/// Between two looks passes a tenth of what has passed, at least this and at most that: a look is a call of
/// the daemon, and all that wait long share two cores with what they wait for.
const BREATH: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

/// Waits until `look` finds something; panics with `what` after [`SOON`].
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(SOON, what, look)
}

/// Waits until `look` finds something; panics with `what` after `limit`.
pub fn wait_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = began.elapsed();
        assert!(waited < limit, "waited {} s in vain for {what}", limit.as_secs());
        // Not a wait for a time to pass but a breath between two looks.
        let [least, most] = BREATH;
        std::thread::park_timeout((waited / 10).clamp(least, most));
    }
}
