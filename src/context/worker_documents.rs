//! The thread that keeps the architecture document ready, so that a briefing never waits for the disk.

use super::{ARCHITECTURE_CHARS, ARCHITECTURE_PATHS, Architecture, Report};
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;
use svc_sys::threads::Thread;

/// A change reaches briefings within this time.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Bytes that certainly hold [`ARCHITECTURE_CHARS`] characters and one more.
const READ_BYTES: u64 = (ARCHITECTURE_CHARS as u64 + 1) * 4;

/// The running thread; it ends when this is dropped.
pub struct Watch {
    _stop: Sender<()>,
    _thread: Thread,
}

impl Watch {
    /// Looks at the project's documents from time to time and reports changes; `known` is what briefings
    /// have.
    ///
    /// Errors: no thread.
    pub fn start(
        project: &Path,
        known: Option<Architecture>,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = bounded::<()>(0);
        let project = project.to_path_buf();
        let thread = Thread::spawn("documents", move || {
            let mut known = known;
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let found = read(&project);
                if found != known {
                    known.clone_from(&found);
                    report(Report::Architecture(found));
                }
            }
        })?;
        Ok(Self { _stop: stop, _thread: thread })
    }
}

/// The architecture document: the first of its places that holds a file inside the project.
pub fn read(project: &Path) -> Option<Architecture> {
    ARCHITECTURE_PATHS.iter().find_map(|place| {
        let path = project.join(place).canonicalize().ok()?;
        // Looked at before it is opened: a pipe would block.
        if !path.starts_with(project) || !path.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(&path).ok()?.take(READ_BYTES).read_to_end(&mut bytes).ok()?;
        Some(Architecture::new(place, &String::from_utf8_lossy(&bytes)))
    })
}
