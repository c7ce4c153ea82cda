//! Bugs that tests plant in the rules, to see that they are found; in the program there is none.

use std::cell::Cell;

/// Which rule is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// It goes on a while before the reset.
    Early,
    /// Quiet hours are as others.
    Quiet,
    /// Asking is waiting.
    Consent,
    /// The prompt is issued twice.
    Twice,
    /// A restart forgets who was held.
    Lost,
    /// A limit is a crash.
    Crash,
}

thread_local!(static BUG: Cell<Option<Bug>> = const { Cell::new(None) });

/// Plants it, or none, in this thread.
pub fn set(bug: Option<Bug>) {
    BUG.set(bug);
}

/// Whether it is planted.
pub fn is(bug: Bug) -> bool {
    BUG.get() == Some(bug)
}
