//! The folder of a run below `.svc/run/`: what the next daemon needs to go on with it.
//!
//! ```text
//! .svc/run/<agent>/run.json     what does not change: whose run it is, and what was made beside it
//!                  at-<n>.json  where to read on; a newer one counts when the state on disk is as new
//!                  replaced     why, once it was told to end for a successor
//!                  keeper.json, sock, keeper.log   the keeper's own
//! ```
//!
//! Nothing here waits for the disk: a power cut ends the keeper, too.

use super::stream::Saved;
use crate::agents::worker_log::{RawPlace, numbers};
use crate::core::ids::AgentId;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use svc_base::folders::RUNS;
use svc_base::sorted;
use svc_sys::files::{missing_is_fine, replace_soon};
use svc_sys::regular;

/// The file that says why a run was told to end.
const REPLACED: &str = "replaced";
/// Bytes of a file of ours at most; a larger one is none of ours.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What does not change while a run lasts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunFile {
    /// The agent.
    pub agent: AgentId,
    /// The model that was named for it: the record may name another by now.
    pub model: Option<String>,
    /// Its room, or its folder for temporary files.
    pub beside: Option<PathBuf>,
    /// Whether that is a room.
    pub has_room: bool,
    /// Whether a person is at its screen.
    #[serde(default)]
    pub at_screen: bool,
    /// Before what the line to another machine tells among the program's complaints, where it works there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_mark: Option<String>,
    /// The folders by which its record of a session is found.
    pub record_folders: Vec<(String, PathBuf)>,
}

/// Where to read on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Checkpoint {
    pub n: u64,
    pub raw: RawPlace,
    pub saved: Saved,
}

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// That of an agent.
    pub fn of(project: &Path, agent: AgentId) -> Self {
        Self(project.join(RUNS).join(agent.to_string()))
    }

    /// All that are there, in the order of their names.
    pub fn all(project: &Path) -> Vec<(AgentId, Self)> {
        let Ok(entries) = fs::read_dir(project.join(RUNS)) else { return Vec::new() };
        let agent = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let mut found: Vec<_> =
            entries.flatten().filter_map(|entry| Some((agent(&entry)?, Self(entry.path())))).collect();
        sorted::by_key(&mut found, |(agent, _)| *agent);
        found
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it anew, for its owner alone.
    ///
    /// Errors: the system's words.
    pub fn make(&self) -> io::Result<()> {
        self.remove()?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Removes it with its content.
    ///
    /// Errors: the system's words.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0).or_else(missing_is_fine)
    }

    /// Writes what does not change.
    ///
    /// Errors: the system's words.
    pub fn write_run(&self, run: &RunFile) -> io::Result<()> {
        replace_soon(&self.0.join("run.json"), &serde_json::to_vec(run)?)
    }

    /// Notes that the run is told to end because of this rotation: the next daemon goes on with it.
    ///
    /// Errors: the system's words.
    pub fn note_replaced(&self, reason: &str) -> io::Result<()> {
        replace_soon(&self.0.join(REPLACED), reason.as_bytes())
    }

    /// The rotation for which it was told to end, if it was.
    pub fn replaced(&self) -> Option<String> {
        String::from_utf8(read(&self.0.join(REPLACED)).ok()?).ok()
    }

    /// Reads what does not change.
    ///
    /// Errors: it is not there, or is none of ours.
    pub fn read_run(&self) -> io::Result<RunFile> {
        Ok(serde_json::from_slice(&read(&self.0.join("run.json"))?)?)
    }

    /// Writes a checkpoint.
    pub(super) fn write(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        replace_soon(&self.file_of(checkpoint.n), &serde_json::to_vec(checkpoint)?)
    }

    /// The newest checkpoint that the state on disk, which has heard so many deeds, is as new as.
    pub(super) fn newest(&self, heard: u64) -> Option<Checkpoint> {
        let read =
            |n: u64| -> io::Result<Checkpoint> { Ok(serde_json::from_slice(&read(&self.file_of(n))?)?) };
        self.numbers().into_iter().rev().filter_map(|n| read(n).ok()).find(|found| found.saved.deed <= heard)
    }

    /// Removes checkpoints before this one.
    pub(super) fn forget_before(&self, n: u64) {
        self.forget(|old| old < n);
    }

    /// Removes checkpoints after this one.
    pub(super) fn forget_after(&self, n: u64) {
        self.forget(|new| new > n);
    }

    fn forget(&self, is_needless: impl Fn(u64) -> bool) {
        for n in self.numbers().into_iter().filter(|n| is_needless(*n)) {
            if let Err(error) = fs::remove_file(self.file_of(n)) {
                log::warn!("{} cannot be removed: {error}", self.file_of(n).display());
            }
        }
    }

    /// Those of its checkpoints, in order.
    fn numbers(&self) -> Vec<u64> {
        numbers(&self.0, "at-", ".json").unwrap_or_default()
    }

    fn file_of(&self, n: u64) -> PathBuf {
        self.0.join(format!("at-{n}.json"))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if fs::symlink_metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large"));
    }
    regular::read(path)
}
