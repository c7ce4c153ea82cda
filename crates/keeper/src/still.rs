//! A run that stands still: each of its processes is stopped where it is, and goes on as if nothing had been.

use svc_sys::control_group::Group;
use svc_sys::process::freeze_below;

/// Whether the run stands still.
#[derive(Default)]
pub(crate) struct Still {
    is_on: bool,
    /// It is being ended, for which it has to move.
    is_over: bool,
}

impl Still {
    /// Whether it does.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Lets it stand still, or go on. With its group at once and with whatever it starts; without one, or
    /// where the kernel cannot, process by process.
    pub fn set(&mut self, is_on: bool, group: Option<&Group>) {
        let is_on = is_on && !self.is_over;
        if is_on == self.is_on {
            return;
        }
        let is_done = group.is_some_and(|group| group.freeze(is_on)) || freeze_below(is_on);
        // Half of it may stand still: then all is let go on again.
        self.is_on = is_on && is_done;
        if is_on && !is_done {
            eprintln!("svc: it cannot be made to stand still");
            freeze_below(false);
        }
    }

    /// It is being ended: it moves until then.
    pub fn over(&mut self, group: Option<&Group>) {
        self.set(false, group);
        self.is_over = true;
    }
}
