//! `svc __far end` and `svc __far clear`: what is over here is ended there, and what it has left is taken
//! away.
//!
//! ```text
//! end PLACE WORK[.LIFE..]..     the keepers of these lives end what they keep; what of each work is there
//! clear PLACE WORK.TIP..        its folder goes, if its tree stands at this commit and holds no more
//!            WORK.none          the same, if it has no tree
//!            WORK.keep          the tree stays, and what its keepers have left goes
//! ```
//! **Invariant:** nothing goes but folders that are called after a lineage, in a project's own place.

use super::dialogue::{is_branch, is_name, place_folder};
use super::worker_bundle::is_id;
use super::worker_host::tell;
use super::worker_open::{Git, home};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use svc_base::ids::{AgentId, LineageId};
use svc_keeper::client;
use svc_sys::process::{self, Identity, Processes};

/// How long all that is to end may take: 5 s from the keeper's TERM to KILL, and what is read after that.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How the folders of runs are called.
const RUN: &str = "run-";
/// For [`far_clear`], instead of a commit.
pub(super) const NONE: &str = "none";
pub(super) const KEEP: &str = "keep";

/// What is there of an agent's work.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Found {
    pub work: String,
    /// Runs that were ended now.
    pub ended: u64,
    /// Whether something of these lives runs still.
    pub runs: bool,
    /// The commit that its tree stands at; `None` where there is no tree, or none that git knows.
    pub tip: Option<String>,
    /// Whether its tree holds what no commit does, or cannot be asked.
    pub dirty: bool,
}

/// What became of an agent's folder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cleared {
    pub work: String,
    /// Why it stays.
    pub left: Option<String>,
}

/// The folder of a work, whose name is that of a lineage and nothing else.
fn folder_of(place: &Path, work: &str) -> Result<PathBuf, String> {
    let is_one = work.parse::<LineageId>().is_ok_and(|lineage| lineage.to_string() == work);
    if is_one { Ok(place.join(work)) } else { Err(format!("{work:?} is no agent's folder")) }
}

/// The folders of its runs; what a link leads to is none.
fn runs_in(work: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(work).into_iter().flatten().flatten();
    let runs = entries.filter(|entry| {
        entry.file_name().to_string_lossy().starts_with(RUN)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    runs.map(|entry| entry.path()).collect()
}

/// Ends what the keepers of some agents keep in a work's folder, and waits for that; how many are gone now,
/// and whether one stays.
fn end_runs(work: &Path, is_theirs: impl Fn(&Path, AgentId) -> bool, until: Instant) -> (u64, bool) {
    let tell = |run: PathBuf| {
        let keeper = client::tell_to_end(&run, |agent| is_theirs(&run, agent))?;
        Some((run, keeper))
    };
    let told: Vec<(PathBuf, Identity)> = runs_in(work).into_iter().filter_map(tell).collect();
    let all = told.len();
    let gone = told.into_iter().filter(|(run, keeper)| {
        let is_gone = process::wait_gone(*keeper, until.saturating_duration_since(Instant::now()));
        if is_gone {
            let _ = fs::remove_dir_all(run);
        }
        is_gone
    });
    let gone = gone.count();
    (u64::try_from(gone).unwrap_or(u64::MAX), gone < all)
}

/// Before something begins on the tree of a work: what an earlier run has left there ends, all but this one.
///
/// Errors: a sentence; it does not end.
pub(super) fn end_others(work: &Path, run: Option<&Path>) -> Result<(), String> {
    let (_, is_left) = end_runs(work, |other, _| Some(other) != run, Instant::now() + END_LIMIT);
    if !is_left {
        return Ok(());
    }
    Err(format!("what it began there earlier still runs, and has not ended within {} s", END_LIMIT.as_secs()))
}

/// `svc __far end PLACE WORK[.LIFE..]..`.
pub(super) fn far_end(place: &str, words: &[&str]) -> Result<(), String> {
    let place = place_of(place)?;
    let processes = Processes::start().map_err(|error| error.to_string())?;
    let until = Instant::now() + END_LIMIT;
    let mut found = Vec::new();
    for word in words {
        let mut parts = word.split('.');
        let work = parts.next().unwrap_or_default();
        let folder = folder_of(&place, work)?;
        let lives: Vec<AgentId> = parts.filter_map(|life| life.parse().ok()).collect();
        let (ended, runs) = end_runs(&folder, |_, agent| lives.contains(&agent), until);
        let (tip, dirty) = tree_of(&processes, &folder);
        found.push(Found { work: work.to_owned(), ended, runs, tip, dirty });
    }
    tell(&found)
}

fn place_of(place: &str) -> Result<PathBuf, String> {
    if is_name(place) { Ok(place_folder(&home()?, place)) } else { Err("a name leads elsewhere".to_owned()) }
}

/// The commit that a tree stands at, and whether it holds more.
fn tree_of(processes: &Processes, work: &Path) -> (Option<String>, bool) {
    let tree = work.join("tree");
    if fs::symlink_metadata(&tree).is_err() {
        return (None, false);
    }
    let git = Git { processes, folder: &tree };
    let tip = git.run(&["rev-parse", "HEAD"]).map(|said| said.trim().to_owned());
    let changed = git.run(&["status", "--porcelain", "--", ".", ":(top,exclude).svc"]);
    (tip.ok(), !changed.is_ok_and(|changed| changed.trim().is_empty()))
}

/// `svc __far clear PLACE WORK.TIP..`.
pub(super) fn far_clear(place: &str, words: &[&str]) -> Result<(), String> {
    let place = place_of(place)?;
    let processes = Processes::start().map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    // Nobody makes a tree meanwhile. Without a place there is nothing to lock, nor to clear.
    let lock = File::options().write(true).open(place.join("lock"));
    if let Ok(lock) = &lock {
        lock.lock().map_err(|error| format!("{}: {error}", place.display()))?;
    }
    for word in words {
        let (work, tip) = word.split_once('.').ok_or("a word is missing")?;
        let folder = folder_of(&place, work)?;
        let left = clear(&processes, &place, &folder, tip).err();
        all.push(Cleared { work: work.to_owned(), left });
    }
    if lock.is_ok() {
        // Of one that was ended while it came.
        let _ = fs::remove_file(place.join("incoming.bundle"));
    }
    tell(&all)
}

/// Errors: why it stays.
fn clear(processes: &Processes, place: &Path, work: &Path, tip: &str) -> Result<(), String> {
    match fs::symlink_metadata(work) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err("it is no folder".to_owned()),
        Err(_) => return Ok(()),
    }
    for run in runs_in(work) {
        match client::door(&run) {
            Ok(None) => drop(fs::remove_dir_all(&run)),
            _ => return Err("something runs there".to_owned()),
        }
    }
    if tip == KEEP {
        return Ok(());
    }
    let (now, dirty) = tree_of(processes, work);
    if dirty || now.as_deref().unwrap_or(NONE) != tip {
        return Err("its tree has changed meanwhile".to_owned());
    }
    let tree = work.join("tree");
    let branch = Git { processes, folder: &tree }.run(&["symbolic-ref", "--quiet", "--short", "HEAD"]);
    let repo = place.join("repo.git");
    let git = Git { processes, folder: &repo };
    if now.is_some_and(|now| is_id(&now)) {
        // What git has against it, the folder goes with all that is in it.
        let _ = git.run(&["worktree", "remove", "--force", &tree.to_string_lossy()]);
    }
    fs::remove_dir_all(work).map_err(|error| format!("it cannot be removed: {error}"))?;
    let _ = git.run(&["worktree", "prune"]);
    if let Some(branch) = branch.ok().map(|name| name.trim().to_owned()).filter(|name| is_branch(name)) {
        let _ = git.run(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
    }
    Ok(())
}

#[cfg(test)]
#[path = "worker_tidy_tests.rs"]
mod tests;
