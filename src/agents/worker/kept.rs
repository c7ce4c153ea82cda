//! Runs that an earlier daemon has left to their keepers.

use super::checkpoint::{RunFile, RunFolder};
use super::env::Beside;
use crate::core::ids::AgentId;
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_keeper::client::{self, Link, Writer};
use svc_keeper::protocol::ToKeeper;

/// A run whose keeper has answered.
pub struct Kept {
    pub agent: AgentId,
    pub(super) link: Link,
    pub(super) folder: RunFolder,
    pub(super) file: RunFile,
    pub(super) project: PathBuf,
}

impl Kept {
    /// The keeper's process.
    pub fn keeper(&self) -> u32 {
        self.link.welcome.pid
    }

    /// Where it works.
    pub fn working_dir(&self) -> &Path {
        &self.file.working_dir
    }

    /// Its room, if it has one.
    pub fn room(&self) -> Option<PathBuf> {
        self.file.beside.clone().filter(|_| self.file.has_room)
    }

    /// Ends it: nobody knows it any more, or it was to end with its daemon.
    pub fn end(self) {
        log::info!("agent {}: what its keeper has kept is ended", self.agent);
        forget(&self.link.writer, &self.folder);
        drop(Beside::of(&self.file, &self.project));
    }
}

/// Finds all that are kept; where agents are to end with their daemon (`orphan` is zero), ends them. Folders
/// of runs whose keeper is gone are removed: the state says what became of them.
pub fn find(project: &Path, orphan: Duration) -> Vec<Kept> {
    let found = all(project);
    if !orphan.is_zero() {
        return found;
    }
    found.into_iter().for_each(Kept::end);
    Vec::new()
}

fn all(project: &Path) -> Vec<Kept> {
    let mut found = Vec::new();
    for (agent, folder) in RunFolder::all(project) {
        match client::find(folder.path(), 0) {
            Ok(Some(link)) => match folder.read_run() {
                Ok(file) if file.agent != agent => {
                    log::error!("the keeper of agent {agent} is ended: its run.json is another's");
                    forget(&link.writer, &folder);
                }
                Ok(file) => {
                    let project = project.to_path_buf();
                    found.push(Kept { agent, link, folder, file, project });
                }
                Err(error) => {
                    log::error!("the keeper of agent {agent} is ended: its run.json says nothing: {error}");
                    forget(&link.writer, &folder);
                }
            },
            Ok(None) => remove(&folder),
            Err(error) => {
                // Nobody could stop it any more, and it would be shown as ended.
                log::error!("the keeper of agent {agent} is ended, it does not answer: {error}");
                client::end(folder.path());
            }
        }
    }
    found
}

/// Lets a keeper go whose run is over, and removes its folder.
pub(super) fn forget(writer: &Writer, folder: &RunFolder) {
    if let Err(error) = writer.send(&ToKeeper::Forget) {
        // One that is gone needs no letting go.
        log::debug!("a keeper does not hear that it may go: {error}");
    }
    writer.close();
    remove(folder);
}

fn remove(folder: &RunFolder) {
    if let Err(error) = folder.remove() {
        log::warn!("{} cannot be removed: {error}", folder.path().display());
    }
}
