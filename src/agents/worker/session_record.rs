//! Which record of a session is read, and when.

use super::record_file::RecordFile;
use crate::providers::{Provider, RecordPlace};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks at the record of a session with a person at the screen.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type FindRecord = Box<dyn Fn(&str) -> Option<RecordPlace> + Send>;

/// The program's record of its session.
#[derive(Default)]
pub(super) struct SessionRecord {
    /// Where a session's is, by the variables of the program that its provider looks at.
    of_session: Option<FindRecord>,
    pub file: Option<RecordFile>,
    /// With a person at the screen there is no output behind which to look: when it is looked at next.
    pub look: Option<Instant>,
}

impl SessionRecord {
    /// Where the provider finds that of a session, by these variables.
    pub fn look_for(
        &mut self,
        provider: &'static dyn Provider,
        folders: Vec<(String, PathBuf)>,
        at_screen: bool,
    ) {
        self.look = at_screen.then(Instant::now);
        self.of_session = Some(Box::new(move |session| {
            let folder =
                |name: &str| folders.iter().find(|(key, _)| key == name).map(|(_, folder)| folder.clone());
            if at_screen {
                provider.session_file(session, &folder)
            } else {
                provider.record(session, &folder)
            }
        }));
    }

    /// Of this session's only what comes from now on is read.
    pub fn read_on_from_the_end(&mut self, session: &str) {
        let place = self.of_session.as_ref().and_then(|place| place(session));
        self.file = place.map(RecordFile::at_end);
    }

    /// Whether it is to be looked at now; the next time is noted then.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.look.is_some_and(|look| look <= now);
        if is_due {
            self.look = Some(now + LOOK_EVERY);
        }
        is_due
    }

    /// The program has named its session.
    pub fn of(&mut self, session: &str) {
        if self.file.is_none()
            && let Some(place) = self.of_session.as_ref().and_then(|place| place(session))
        {
            self.file = Some(RecordFile::new(place));
        }
    }
}
