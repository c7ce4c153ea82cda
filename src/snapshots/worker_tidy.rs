//! The thread that keeps the store small: old turns go, objects are packed, and what nothing leads to any
//! more is removed.

use super::lines::Line;
use super::worker::{Snapshots, git};
use crate::core::State;
use crate::core::ids::LineageId;
use crossbeam_channel::{Sender, bounded, select};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use svc_base::folders::WORKTREES;
use svc_sys::files::missing_is_fine;
use svc_sys::threads::Thread;

/// Objects in files of their own that are worth a pack.
pub const LOOSE_ENOUGH: u64 = 1_000;
/// How often half of all turns go, one time after the other, before it is given up.
const HALVINGS: usize = 8;

/// The running thread; it ends when this is dropped, after the step under way.
pub struct Tidier {
    _quit: Sender<()>,
    _thread: Thread,
}

/// What is kept at most.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Turns of each agent.
    pub turns: u64,
    pub bytes: u64,
}

impl Tidier {
    /// Starts the thread.
    ///
    /// Errors: no thread.
    pub fn start(all: Arc<Snapshots>, state: impl Fn() -> Arc<State> + Send + 'static) -> io::Result<Self> {
        let (quit, over) = bounded::<()>(0);
        let thread = Thread::spawn("snapshots", move || {
            loop {
                select! {
                    recv(over) -> _ => return,
                    recv(all.bell()) -> _ => {}
                }
                let state = state();
                let settings = state.settings.config().snapshots;
                let bounds = Bounds { turns: settings.turns, bytes: settings.max_megabytes << 20 };
                let known = state.agents.iter().map(|agent| agent.lineage_id).collect();
                drop(state);
                if let Err(error) = all.tidy(&known, bounds) {
                    log::warn!("the snapshots cannot be tidied: {error}");
                }
            }
        })?;
        Ok(Self { _quit: quit, _thread: thread })
    }
}

impl Snapshots {
    /// Removes what is beyond the bounds, and all of agents whose records are gone.
    ///
    /// Errors: the system's words, or git's.
    pub fn tidy(&self, known: &BTreeSet<LineageId>, bounds: Bounds) -> io::Result<()> {
        let mut has_gone = false;
        for lineage in self.lineages() {
            if known.contains(&lineage) {
                has_gone |= self.thin(lineage, bounds.turns)?;
            } else {
                self.forget(lineage)?;
                has_gone = true;
            }
        }
        has_gone |= self.forget_worktrees()?;
        let (bytes, loose) = self.store.size();
        if loose >= LOOSE_ENOUGH {
            self.pack(&["repack", "-d", "-q"])?;
        }
        if !(has_gone && bytes > bounds.bytes / 2 || bytes > bounds.bytes) {
            return Ok(());
        }
        self.pack_all()?;
        for _ in 0..HALVINGS {
            if self.store.size().0 <= bounds.bytes {
                return Ok(());
            }
            for lineage in self.lineages() {
                let turns: BTreeSet<u64> = self.lines(lineage).iter().map(|line| line.turn).collect();
                self.thin(lineage, (turns.len() as u64 / 2).max(1))?;
            }
            self.pack_all()?;
        }
        Err(io::Error::other("they are larger than snapshots.maxMegabytes although few are left"))
    }

    /// Forgets what was seen of worktrees that are gone; whether there was any.
    fn forget_worktrees(&self) -> io::Result<bool> {
        let Ok(files) = fs::read_dir(self.folder.join("seen")) else { return Ok(false) };
        let mut has_gone = false;
        for file in files.flatten() {
            let key = file.file_name().to_string_lossy().into_owned();
            let Some(name) = key.strip_prefix(".svc_worktrees_") else { continue };
            if !self.project.join(WORKTREES).join(name).exists() {
                fs::remove_file(file.path()).or_else(missing_is_fine)?;
                self.store.forget(&format!("seen/{key}"))?;
                has_gone = true;
            }
        }
        Ok(has_gone)
    }

    /// Everything into one pack, and what nothing leads to goes: meanwhile nobody may write.
    fn pack_all(&self) -> io::Result<()> {
        let _busy = self.enter_all().map_err(io::Error::other)?;
        self.pack(&["repack", "-a", "-d", "-q"])?;
        self.pack(&["prune", "--expire=now"])
    }

    fn pack(&self, args: &[&str]) -> io::Result<()> {
        let git = git(&self.processes, self.store.folder())?;
        let pack = || git.admin(args).map(drop).map_err(|problem| io::Error::other(problem.error));
        pack().or_else(|error| if self.store.mend_names()? > 0 { pack() } else { Err(error) })
    }

    /// Leaves the last turns of an agent; whether any had to go.
    fn thin(&self, lineage: LineageId, turns: u64) -> io::Result<bool> {
        let last = self.lines(lineage).last().map_or(0, |line| line.turn);
        let is_old = |line: &Line| line.turn + turns <= last;
        let old: Vec<Line> = self.lines(lineage).into_iter().filter(is_old).collect();
        if old.is_empty() {
            return Ok(false);
        }
        self.rewrite(lineage, |lines| lines.into_iter().filter(|line| !is_old(line)).collect())?;
        for line in old {
            self.store.forget(&format!("{lineage}/{}", line.n))?;
            self.forget_plan(lineage, line.n)?;
        }
        Ok(true)
    }

    fn forget(&self, lineage: LineageId) -> io::Result<()> {
        for line in self.lines(lineage) {
            self.forget_plan(lineage, line.n)?;
        }
        self.store.forget(&lineage.to_string())?;
        fs::remove_file(self.path_of(lineage)).or_else(missing_is_fine)
    }
}
