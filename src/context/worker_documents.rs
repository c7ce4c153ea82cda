//! The thread that keeps the architecture document ready, so that a briefing never waits for the disk.

use super::{ARCHITECTURE_CHARS, ARCHITECTURE_PATHS, Architecture, Report};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, never, select};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_sys::threads::Thread;

/// A change reaches briefings within this time. (On a network's file system one that was made elsewhere does
/// with the next change that is made here.)
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
            let mut folders = Folders::new(&project);
            // What has changed before they were watched is found by the first look.
            loop {
                folders.watch(&project);
                let found = read(&project);
                if found != known {
                    known.clone_from(&found);
                    report(Report::Architecture(found));
                }
                let is_over = stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout);
                if is_over || !folders.wait(&stopped) {
                    return;
                }
            }
        })?;
        Ok(Self { _stop: stop, _thread: thread })
    }
}

/// The folders of the document's places, watched by the system; where it does not watch, there is always
/// something to look at.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    stirs: Receiver<()>,
}

impl Folders {
    fn new(project: &Path) -> Self {
        let (stirred, stirs) = bounded(1);
        // Full, a look is due already.
        let watcher = notify::recommended_watcher(move |_| {
            let _ = stirred.try_send(());
        });
        match watcher {
            Ok(watcher) => Self { watcher: Some(watcher), stirs },
            Err(error) => Self::unwatched(project, &error),
        }
    }

    fn unwatched(project: &Path, error: &notify::Error) -> Self {
        let every = LOOK_EVERY.as_secs();
        log::info!("{} cannot be watched ({error}): looked at every {every} s", project.display());
        Self { watcher: None, stirs: never() }
    }

    /// Watches those that are there now. What comes and goes in the project's own folder tells of the others.
    fn watch(&mut self, project: &Path) {
        let Some(watcher) = &mut self.watcher else { return };
        if let Err(error) = watcher.watch(project, RecursiveMode::NonRecursive) {
            *self = Self::unwatched(project, &error);
            return;
        }
        let folder = |path: PathBuf| path.parent().map(Path::to_path_buf);
        let places = ARCHITECTURE_PATHS.iter().map(|place| project.join(place));
        // A link's own folder and that of what it leads to.
        let folders = places.flat_map(|place| [place.canonicalize().ok().and_then(folder), folder(place)]);
        for folder in folders.flatten().filter(|folder| folder != project && folder.starts_with(project)) {
            // Not there, most of the time.
            let _ = watcher.watch(&folder, RecursiveMode::NonRecursive);
        }
    }

    /// Waits until there may be something new; `false` when the thread is to end.
    fn wait(&self, stopped: &Receiver<()>) -> bool {
        if self.watcher.is_none() {
            return true;
        }
        select! {
            recv(stopped) -> _ => false,
            recv(self.stirs) -> _ => true,
        }
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
