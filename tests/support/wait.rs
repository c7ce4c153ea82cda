//! Waiting on conditions with a deadline, never on time.

use std::time::{Duration, Instant};

/// The deadline of a condition that should hold within moments; generous for a loaded machine.
pub const SOON: Duration = Duration::from_secs(30);

/// Waits until `look` finds something; panics with `what` after [`SOON`].
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(SOON, what, look)
}

/// Waits until `look` finds something; panics with `what` after `limit`.
pub fn wait_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {} s in vain for {what}", limit.as_secs());
        // Not a wait for a time to pass but a breath between two looks.
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
