//! Looks at the planner's file, on a thread of its own, so that the core never waits for the disk.

use super::plan::{FILE, Found, Look, MAX_FILE_BYTES};
use crate::agents::worker::ROOMS;
use crate::core::ids::AgentId;
use crossbeam_channel::{Sender, TrySendError, bounded};
use sha2::{Digest, Sha256};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use svc_base::hex;
use svc_sys::files::if_there;
use svc_sys::threads::Thread;

/// Orders that wait; a further one is dropped with a warning, for the next turn's end looks again.
const MAX_WAITING: usize = 64;

/// The thread that looks. It ends when this is dropped.
pub struct PlanReader {
    // Before the thread: its end is what ends the thread.
    orders: Sender<Look>,
    _thread: Thread,
}

impl PlanReader {
    /// Starts the thread.
    pub fn start(project: PathBuf, report: impl Fn(Found) + Send + 'static) -> std::io::Result<Self> {
        let (orders, waiting) = bounded::<Look>(MAX_WAITING);
        let thread = Thread::spawn("plan-reader", move || {
            for Look(planner) in waiting {
                let file = read_of(&project, planner).transpose();
                report(Found { planner, file });
            }
        })?;
        Ok(Self { orders, _thread: thread })
    }

    /// Has the file looked at.
    pub fn order(&self, look: Look) {
        if let Err(TrySendError::Full(_)) = self.orders.try_send(look) {
            log::warn!("too many planners end at once: {FILE} is looked at when the next turn ends");
        }
    }
}

/// The file of this planner: as it stands in its room while it has one, else in the project.
fn read_of(project: &Path, planner: AgentId) -> Result<Option<(String, String)>, String> {
    let in_room = project.join(ROOMS).join(planner.to_string()).join(FILE.replacen(".svc", "svc", 1));
    match read(&in_room) {
        Ok(None) => read(&project.join(FILE)),
        found => found,
    }
}

/// Text of a plain file, and a digest of that and its time, so that the same text written again is new;
/// `None` when there is none.
fn read(path: &Path) -> Result<Option<(String, String)>, String> {
    // Neither a link, which may lead anywhere, nor a pipe, which may never end.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let Some(file) = if_there(file).map_err(|error| error.to_string())? else { return Ok(None) };
    let data = file.metadata().map_err(|error| error.to_string())?;
    if !data.is_file() {
        return Err("is not a plain file".into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("has more than {MAX_FILE_BYTES} bytes"));
    }
    let text = hex::encode(&Sha256::digest(&bytes));
    let digest = format!("{}.{:09}-{text}", data.mtime(), data.mtime_nsec());
    String::from_utf8(bytes).map(|text| Some((text, digest))).map_err(|_| "is not UTF-8 text".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_file_of_bounded_size_is_read() {
        let folder = std::env::temp_dir().join(format!("svc-plan-reader-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("team.json");
        assert_eq!(read(&file), Ok(None));
        std::fs::write(&file, "{}").unwrap();
        let (text, digest) = read(&file).unwrap().unwrap();
        assert_eq!(text, "{}");
        assert_eq!(read(&file).unwrap().unwrap().1, digest, "the same file is the same");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert_ne!(read(&file).unwrap().unwrap().1, digest, "the same text written again is new");
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(read(&file), Err("is not UTF-8 text".into()));
        let large = usize::try_from(MAX_FILE_BYTES).unwrap() + 1;
        std::fs::write(&file, vec![b' '; large]).unwrap();
        assert!(read(&file).unwrap_err().contains("bytes"));
        std::os::unix::fs::symlink("/etc/hostname", folder.join("link")).unwrap();
        assert!(read(&folder.join("link")).is_err(), "a link may lead anywhere");
        assert_eq!(read(&folder), Err("is not a plain file".into()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
