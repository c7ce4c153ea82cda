//! Runs that an earlier daemon has left to their keepers.

use super::checkpoint::{RunFile, RunFolder};
use super::env::Beside;
use crate::core::ids::AgentId;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::collections::HashSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use svc_keeper::client::{self, Link, Writer};
use svc_keeper::protocol::ToKeeper;

/// Stack in bytes of a thread that asks one keeper.
const FIND_STACK_BYTES: usize = 256 * 1024;

/// A run whose keeper has answered.
pub struct Kept {
    pub agent: AgentId,
    pub(super) link: Link,
    pub(super) folder: RunFolder,
    pub(super) file: RunFile,
    pub(super) project: PathBuf,
    awaited: Option<Awaited>,
}

/// Held for a run until all that happened while no daemon was there is taken in.
pub(super) type Awaited = Sender<Infallible>;

/// How long the first answer of a daemon waits for what its agents did before it was there.
const CATCH_UP_LIMIT: Duration = Duration::from_millis(500);

/// Whom the first answer waits for, so that it says of nobody that has ended that it works.
pub struct CatchUp(Receiver<Infallible>);

impl CatchUp {
    /// All of these.
    pub fn of(all: &mut [Kept]) -> Self {
        let (awaited, told) = bounded(0);
        for kept in all {
            kept.awaited = Some(awaited.clone());
        }
        Self(told)
    }

    /// Waits for them, and not for one that takes too long, with much to read or to end. Whether all was
    /// taken in.
    pub fn wait(self) -> bool {
        let is_all = self.0.recv_timeout(CATCH_UP_LIMIT) != Err(RecvTimeoutError::Timeout);
        if !is_all {
            log::info!("requests are answered before all is known that agents did without a daemon");
        }
        is_all
    }
}

impl Kept {
    /// The keeper's process.
    pub fn keeper(&self) -> u32 {
        self.link.welcome.pid
    }

    /// Its room, if it has one.
    pub fn room(&self) -> Option<PathBuf> {
        self.file.beside.clone().filter(|_| self.file.has_room)
    }

    /// What is dropped when all is taken in.
    pub(super) fn awaited(&mut self) -> Option<Awaited> {
        self.awaited.take()
    }

    /// Ends it: nobody knows it any more, or it was to end with its daemon.
    pub fn end(self) {
        log::info!("agent {}: what its keeper has kept is ended", self.agent);
        forget(&self.link.writer, &self.folder);
        drop(Beside::of(&self.file, &self.project));
    }
}

/// What is left of the runs of an earlier daemon.
#[derive(Default)]
pub struct Found {
    pub kept: Vec<Kept>,
    /// Agents whose program may have been started: a keeper was there.
    pub begun: HashSet<AgentId>,
    /// Those that were being ended for a successor, and by which rotation.
    pub replaced: Vec<(AgentId, String)>,
}

/// Finds all that are kept; where agents are to end with their daemon (`orphan` is zero), ends them. Folders
/// of runs whose keeper is gone are removed: the state says what became of them.
///
/// All keepers are asked at once, so that one that does not answer delays no start for longer than itself.
pub fn find(project: &Path, orphan: Duration) -> Found {
    let mut found = Found::default();
    let folders = RunFolder::all(project);
    found.replaced =
        folders.iter().filter_map(|(agent, folder)| Some((*agent, folder.replaced()?))).collect();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let ask = |(agent, folder): (AgentId, RunFolder)| {
            let spare = (agent, folder.clone());
            std::thread::Builder::new()
                .name(format!("find-{agent}"))
                .stack_size(FIND_STACK_BYTES)
                .spawn_scoped(scope, move || one(project, agent, folder))
                .map_err(|_| spare)
        };
        let asked: Vec<_> = folders.into_iter().map(ask).collect();
        let answer = |asked: Result<ScopedJoinHandle<'_, Answer>, (AgentId, RunFolder)>| match asked {
            Ok(thread) => thread.join().unwrap_or_default(),
            // Out of threads: one after the other.
            Err((agent, folder)) => one(project, agent, folder),
        };
        asked.into_iter().map(answer).collect()
    });
    for (begun, kept) in answers {
        found.begun.extend(begun);
        found.kept.extend(kept);
    }
    if orphan.is_zero() {
        found.kept.drain(..).for_each(Kept::end);
    }
    found
}

/// Whether a keeper has begun there, and its run, if it can be gone on with.
type Answer = (Option<AgentId>, Option<Kept>);

fn one(project: &Path, agent: AgentId, folder: RunFolder) -> Answer {
    let was_left = client::is_left(folder.path());
    match client::find(folder.path(), 0) {
        Ok(Some(link)) => match folder.read_run() {
            Ok(file) if file.agent != agent => {
                log::error!("the keeper of agent {agent} is ended: its run.json is another's");
                forget(&link.writer, &folder);
            }
            Ok(file) => {
                let project = project.to_path_buf();
                return (Some(agent), Some(Kept { agent, link, folder, file, project, awaited: None }));
            }
            Err(error) => {
                log::error!("the keeper of agent {agent} is ended: its run.json says nothing: {error}");
                forget(&link.writer, &folder);
            }
        },
        Ok(None) => {
            // One that goes before it has begun takes back that it can be found.
            let has_begun = was_left || client::is_left(folder.path());
            remove(&folder);
            return (has_begun.then_some(agent), None);
        }
        Err(error) => {
            // Nobody could stop it any more, and it would be shown as ended.
            log::error!("the keeper of agent {agent} is ended, it does not answer: {error}");
            client::end(folder.path());
        }
    }
    (Some(agent), None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_waits_for_whom_there_is_to_wait_for_and_not_for_ever() {
        assert!(CatchUp::of(&mut []).wait(), "nobody was kept");
        let (awaited, told) = bounded(0);
        let (first, second) = (awaited.clone(), awaited);
        drop(first);
        assert!(!CatchUp(told.clone()).wait(), "one has more to take in than there is time for");
        drop(second);
        assert!(CatchUp(told).wait());
    }
}
