//! When a run's turns begin and end, for who has to know.

use super::Turns;
use crate::providers::Activity;

/// Who is told of the turns of a run, and what was told last.
#[derive(Default)]
pub(super) struct Told {
    /// Nobody, where snapshots are switched off.
    pub by: Option<Box<dyn Turns>>,
    /// Whether one was told to begin, and not to end.
    pub has_begun: bool,
    begins: bool,
    ends: bool,
}

impl Told {
    /// A turn is about to begin, unless one is open; or has begun by itself, which is late.
    pub fn begin(&mut self, late: bool) {
        if !std::mem::replace(&mut self.has_begun, true)
            && let Some(turns) = &self.by
        {
            turns.begin(late);
        }
    }

    /// It is over, if one was open.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.has_begun)
            && let Some(turns) = &self.by
        {
            turns.end();
        }
    }

    /// Takes in what a conversation has told.
    pub fn hear(&mut self, activity: &Activity) {
        match activity {
            Activity::TurnStarted => self.begins = true,
            Activity::TurnEnded(_) => (self.ends, self.begins) = (true, false),
            _ => {}
        }
    }

    /// Tells of that, unless an earlier daemon has done so: it had heard it, too.
    pub fn tell(&mut self, is_new: bool) {
        let (begins, ends) = (std::mem::take(&mut self.begins), std::mem::take(&mut self.ends));
        if is_new && ends {
            self.end();
        }
        if is_new && begins {
            // By itself, with what waited for it.
            self.begin(true);
        }
    }
}
