//! The worktrees themselves: making one, looking into one, taking one away.

use super::changes::{Change, parse_changes, parse_status};
use super::worker_git::{Git, words};
use crate::agents::Isolation;
use crate::agents::worker_api::look_at;
use crate::agents::{Agent, SpawnRequest};
use crate::api::Problem;
use crate::assembly::host::Host;
use crate::endpoint::Ask;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_base::folders::WORKTREES;
use svc_sys::files::missing_is_fine;
use svc_sys::process::{Captured, Processes};

/// What belongs to svc in a worktree, and never to the agent's work.
pub(super) const EXCLUDED: [&str; 1] = [":(top,exclude).svc"];

/// For each comparison: no driver, no look into the repositories of submodules.
pub const SAFE_DIFF: [&str; 3] = ["--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"];

/// Looks at what an agent that is to be started wants, and makes its worktree where it wants one.
///
/// Errors: 400.
pub fn prepare(host: &Host, ask: &Ask, request: &mut SpawnRequest) -> Result<(), Problem> {
    look_at(host, ask, request)?;
    if request.isolation == Isolation::Worktree {
        request.worktree = Some(make(host, request)?);
    }
    Ok(())
}

/// Makes a git worktree for an agent of its own; answers its path below the project.
///
/// Errors: 400 `worktree_failed`.
fn make(host: &Host, request: &SpawnRequest) -> Result<String, Problem> {
    let path = format!("{WORKTREES}/{}-{:08x}", request.role, svc_sys::clock::random() >> 32);
    make_at(&host.processes, &host.project, &path)?;
    Ok(path)
}

/// Makes the worktree at this path, where it is not there yet: of an agent that the clock or a plan starts.
///
/// Errors: 400 `worktree_failed`.
pub fn have(processes: &Arc<Processes>, project: &Path, path: &str) -> Result<(), Problem> {
    if project.join(path).join(".git").exists() { Ok(()) } else { make_at(processes, project, path) }
}

fn make_at(processes: &Arc<Processes>, folder: &Path, path: &str) -> Result<(), Problem> {
    let refuse = |text: String| Problem::bad_request("worktree_failed", text);
    let project = Git::with(processes, folder.to_path_buf());
    if let Some(prefix) = project.ask(&["rev-parse", "--show-prefix"])?.filter(|prefix| !prefix.is_empty()) {
        let text = format!(
            "isolation worktree needs a project that is the whole repository, and this one is its folder \
             {prefix}; start the daemon in the repository's top folder"
        );
        return Err(refuse(text));
    }
    let branch = branch_of(path);
    let failed =
        |said: &Captured| refuse(format!("isolation worktree needs git to make one: {}", words(said)));
    let made = project.try_admin(&["worktree", "add", "--quiet", "--no-checkout", "-b", &branch, path])?;
    if !made.is_success() {
        return Err(failed(&made));
    }
    let filled = Git::with(processes, folder.join(path)).try_write(&["reset", "--hard", "--quiet"]);
    match filled {
        Ok(said) if said.is_success() => Ok(()),
        other => {
            unmake(processes, folder, path);
            Err(failed(&other?))
        }
    }
}

/// The branch that a worktree begins on.
fn branch_of(path: &str) -> String {
    format!("svc/{}", path.rsplit('/').next().unwrap_or_default())
}

/// Removes a worktree that was made for an agent that then was refused: nobody has worked in it.
pub fn unmake(processes: &Arc<Processes>, project: &Path, path: &str) {
    let git = Git::with(processes, project.to_path_buf());
    let removed = git
        .admin(&["worktree", "remove", "--force", path])
        .and_then(|_| git.admin(&["branch", "--quiet", "-D", &branch_of(path)]));
    if let Err(problem) = removed {
        log::warn!("the worktree {path} could not be removed: {problem}");
    }
}

/// The worktree of an agent beside the project it belongs to.
pub(super) struct Place {
    /// Git in the project.
    pub project: Git,
    /// Git in the worktree.
    pub tree: Git,
    /// Where the worktree is, relative to the project.
    pub path: String,
    /// The branch the agent works on, or the commit when it has left all branches.
    pub branch: String,
}

impl Place {
    /// The worktree of this agent.
    ///
    /// Errors: 409 `no_worktree` when it has none, or none any more.
    pub fn open(host: &Host, agent: &Agent) -> Result<Self, Problem> {
        Self::with(&host.processes, &host.project, agent)
    }

    /// As [`Place::open`], for threads without the whole [`Host`].
    pub fn with(processes: &Arc<Processes>, project: &Path, agent: &Agent) -> Result<Self, Problem> {
        let Some(path) = agent.worktree.clone() else {
            let text = format!(
                "{} has no worktree, so there is nothing to merge: it was started without one, or its worktree \
                 was removed; svc spawn --isolation worktree gives an agent a branch of its own",
                agent.name
            );
            return Err(Problem::new(409, "no_worktree", text));
        };
        let folder = project.join(&path);
        if !folder.join(".git").exists() {
            let text =
                format!("the worktree {path} of {} is gone; git worktree list shows the rest", agent.name);
            return Err(Problem::new(409, "no_worktree", text));
        }
        let (project, tree) = (Git::with(processes, project.to_path_buf()), Git::with(processes, folder));
        if tree.folders()?.1 != project.folders()?.1 {
            let text =
                format!("the .git file of the worktree {path} leads to another repository; look at it");
            return Err(Problem::new(409, "no_worktree", text));
        }
        let branch = match tree.ask(&["symbolic-ref", "--quiet", "--short", "HEAD"])? {
            Some(branch) => branch,
            None => tree.run(&["rev-parse", "--short", "HEAD"])?,
        };
        Ok(Self { project, tree, path, branch })
    }

    /// Whether the agent has left all branches.
    pub fn is_detached(&self) -> Result<bool, Problem> {
        Ok(self.tree.ask(&["symbolic-ref", "--quiet", "HEAD"])?.is_none())
    }

    /// The files with changes that no commit holds, and whether some of it is staged.
    pub fn uncommitted(&self) -> Result<Vec<(String, bool)>, Problem> {
        changed_files(&self.tree)
    }

    /// Removes the worktree and, when all of it is merged, its branch.
    ///
    /// Errors: 409 `worktree_dirty` when it holds work that no commit does; nothing is removed then.
    pub fn remove(&self) -> Result<(), Problem> {
        let dirty = self.uncommitted()?;
        if !dirty.is_empty() {
            let names: Vec<String> = dirty.into_iter().map(|(path, _)| path).collect();
            let text = format!("the worktree {} holds work that no commit does: {}", self.path, list(&names));
            return Err(Problem::new(409, "worktree_dirty", text).with("files", names));
        }
        // What svc itself has put there is no work, but git would take it for some.
        let own = self.tree.folder().join(".svc");
        if fs::symlink_metadata(&own).is_ok()
            && self.tree.ask(&["ls-files", "--", ".svc"])?.is_some_and(|l| l.is_empty())
        {
            let _ = fs::remove_dir_all(&own);
        }
        take_away(&self.project, &self.tree, &self.path)?;
        // Without force: a branch that is not merged stays.
        self.project.try_admin(&["branch", "--quiet", "-d", &self.branch])?;
        Ok(())
    }
}

/// Removes a worktree of which it is known that it holds no work that no commit does.
///
/// Errors: 409 `worktree_kept`.
fn take_away(project: &Git, tree: &Git, path: &str) -> Result<(), Problem> {
    let kept =
        |why: &str| Err(Problem::new(409, "worktree_kept", format!("git keeps the worktree {path}: {why}")));
    // By force, because git would look for work by itself, filters included. What it also keeps is kept here.
    if fs::read_dir(tree.folders()?.0.join("modules")).is_ok_and(|mut inside| inside.next().is_some()) {
        return kept("it contains submodules");
    }
    let removed = project.try_admin(&["worktree", "remove", "--force", path])?;
    if removed.is_success() { Ok(()) } else { kept(&words(&removed)) }
}

/// Removes the worktree of an agent that is gone, and its branch when all of it is in the project's own.
///
/// Errors: 409 `worktree_dirty`, 409 `worktree_kept`; 502 `git_failed`.
pub fn clear(processes: &Arc<Processes>, project: &Path, path: &str) -> Result<String, Problem> {
    let tree = Git::with(processes, project.join(path));
    let project = Git::with(processes, project.to_path_buf());
    if tree.folders()?.1 != project.folders()?.1 {
        let text = format!("the .git file of the worktree {path} leads to another repository");
        return Err(Problem::new(409, "worktree_kept", text));
    }
    let status = ["status", "--porcelain", "--untracked-files=all", "--ignore-submodules=dirty"];
    if !tree.run(&status)?.is_empty() {
        let text = format!("the worktree {path} holds work that no commit does");
        return Err(Problem::new(409, "worktree_dirty", text));
    }
    take_away(&project, &tree, path)?;
    Ok(words(&project.try_admin(&["branch", "-d", &branch_of(path)])?))
}

/// The files that differ from the last commit, untracked ones included, and whether some of it is staged.
pub(super) fn changed_files(git: &Git) -> Result<Vec<(String, bool)>, Problem> {
    let mut args =
        vec!["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--", "."];
    args.extend(EXCLUDED);
    Ok(parse_status(&git.run(&args)?))
}

/// `git add` of everything below the folder, but svc's own and what is a submodule already: git would look
/// into its repository, with the settings that stand there.
pub(super) fn add(git: &Git, options: &[&str]) -> Result<Captured, Problem> {
    let known = git.run(&["ls-files", "--stage", "-z"])?;
    let modules = known.split('\0').filter(|entry| entry.starts_with("160000 "));
    let excluded: Vec<String> = modules
        .filter_map(|entry| entry.split_once('\t'))
        .map(|(_, path)| format!(":(exclude,literal){path}"))
        .collect();
    let mut args = vec!["add"];
    args.extend(options);
    args.extend(["--", "."]);
    args.extend(EXCLUDED);
    args.extend(excluded.iter().map(String::as_str));
    git.try_write(&args)
}

/// The files that differ between two commits, or between a commit and what the index and the folder hold.
pub(super) fn changes(git: &Git, options: &[&str], paths: &[&str]) -> Result<Vec<Change>, Problem> {
    let ask = |kind: &str| {
        let mut args = vec!["diff"];
        args.extend(SAFE_DIFF);
        args.extend(["-M", "-z", kind]);
        args.extend(options);
        args.push("--");
        args.extend(paths);
        git.run(&args)
    };
    Ok(parse_changes(&ask("--name-status")?, &ask("--numstat")?))
}

/// A copy of a folder's index that may be changed, removed on drop.
pub(super) struct OwnIndex(PathBuf);

impl OwnIndex {
    /// The copy, and git that uses it.
    ///
    /// Errors: 502 `git_failed`.
    pub fn of(git: &Git) -> Result<(Self, Git), Problem> {
        let real = git.folders()?.0.join("index");
        let name = format!("svc-index-{:016x}", svc_sys::clock::random());
        let copy = real.with_file_name(name);
        let own = Self(copy.clone());
        // A repository without a commit may have none yet.
        copied(&real, &copy).or_else(missing_is_fine).map_err(|error| {
            let text = format!("the index of {} cannot be copied: {error}", git.folder().display());
            Problem::new(502, "git_failed", text)
        })?;
        Ok((own, git.var("GIT_INDEX_FILE", copy)))
    }
}

/// With the age of the original: of files that changed within the second of their index git looks at the
/// content, and a younger copy would have it believe that one of the same size is as it was.
fn copied(real: &Path, copy: &Path) -> std::io::Result<()> {
    let written = fs::metadata(real)?.modified()?;
    fs::copy(real, copy)?;
    fs::File::options().write(true).open(copy)?.set_modified(written)
}

impl Drop for OwnIndex {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.0.with_extension("lock"));
    }
}

/// Names for a sentence: the first [`super::MAX_NAMED_FILES`] and how many more there are.
pub(super) fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(super::MAX_NAMED_FILES);
    let shown = names.iter().take(super::MAX_NAMED_FILES).cloned().collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::copied;
    use std::fs;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_copy_of_an_index_is_as_old_as_the_index() {
        let folder = std::env::temp_dir().join(format!("svc-index-{:016x}", svc_sys::clock::random()));
        fs::create_dir(&folder).unwrap();
        let (real, copy) = (folder.join("index"), folder.join("copy"));
        fs::write(&real, "entries").unwrap();
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(&real).unwrap().set_modified(written).unwrap();
        copied(&real, &copy).unwrap();
        let found = (fs::read(&copy).unwrap(), fs::metadata(&copy).unwrap().modified().unwrap());
        let missing = copied(&folder.join("none"), &copy).unwrap_err().kind();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, (b"entries".to_vec(), written));
        assert_eq!(missing, std::io::ErrorKind::NotFound, "a repository without a commit may have none yet");
    }
}
