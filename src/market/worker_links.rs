//! Attached skills beside a running agent: links `.agents/skills/<id>` and `.claude/skills/<id>` in its
//! working directory, which lead to `.svc/skills/<id>`. These two folders reach all known providers.
//!
//! **Invariant:** what a person put there stays: a name that is taken is not linked, nothing is written
//! through a link, and only links that lead into `.svc/skills` are removed.
//! **Invariant:** a link's path is on disk before the link is, so that the next daemon can remove what one
//! that died has left.

use super::worker_files::{FOLDER, folder_of, is_intact, sweep};
use super::{Attached, check_id};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use svc_base::sorted::Gather;
use svc_sys::files::replace;
use svc_sys::process::Prepare;

/// Where providers look for skills, below an agent's working directory.
const PLACES: [&str; 2] = [".agents", ".claude"];
/// In a folder of ours: keeps it out of version control, and tells it from a person's.
const MARK: &str = "# Made by svc for the skills of running agents.\n*\n";
/// The same, where the folder above is ours, too.
const MARK_BOTH: &str = "# Made by svc for the skills of running agents, with the folder above.\n*\n";
/// The list of links below `.svc/`.
const LIST: &str = "state/skill-links.json";

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    links: Vec<String>,
}

/// All links, and how many runs use each.
pub struct Links {
    project: PathBuf,
    users: Mutex<BTreeMap<PathBuf, usize>>,
}

/// The links of one run; dropping it gives them back.
struct Lease {
    links: Arc<Links>,
    paths: Vec<PathBuf>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.links.release(&self.paths);
    }
}

/// What a run does before its program starts; nothing where no skill is attached.
pub fn prepare(links: &Arc<Links>, working_dir: &Path, skills: Vec<Attached>) -> Option<Prepare> {
    if skills.is_empty() {
        return None;
    }
    let (links, folder) = (Arc::clone(links), working_dir.to_path_buf());
    Some(Box::new(move || -> Box<dyn Any + Send> {
        let paths = links.attach(&folder, &skills);
        Box::new(Lease { links, paths })
    }))
}

/// As [`prepare`], for a program that an earlier daemon has started in this folder.
pub fn prepare_again(links: &Arc<Links>, working_dir: &Path) -> Option<Prepare> {
    let (links, folder) = (Arc::clone(links), working_dir.to_path_buf());
    Some(Box::new(move || -> Box<dyn Any + Send> {
        let paths = links.users().keys().filter(|path| is_in(path, &folder)).cloned().collect();
        Box::new(Lease { links, paths })
    }))
}

/// Whether a link is beside an agent that works in this folder.
fn is_in(link: &Path, working_dir: &Path) -> bool {
    link.ancestors().nth(3) == Some(working_dir)
}

impl Links {
    /// Removes what an earlier daemon that died has left, but for agents that work on in the folders `kept`,
    /// each named once for each of them.
    pub fn start(project: &Path, kept: &[PathBuf]) -> Self {
        let links = Self { project: project.to_path_buf(), users: Mutex::default() };
        sweep(project);
        let list =
            fs::read(links.list()).ok().and_then(|bytes| serde_json::from_slice::<Stored>(&bytes).ok());
        let left: Vec<PathBuf> = list.unwrap_or_default().links.into_iter().map(PathBuf::from).collect();
        let users_of = |path: &Path| kept.iter().filter(|folder| is_in(path, folder)).count();
        let (used, unused): (Vec<_>, Vec<_>) =
            left.into_iter().map(|path| (users_of(&path), path)).partition(|(users, _)| *users > 0);
        for (_, path) in &unused {
            links.unlink(path);
        }
        let used = used.into_iter().map(|(users, path)| (path, users)).gather();
        if !unused.is_empty() {
            links.write_down(&used);
        }
        *links.users() = used;
        links
    }

    fn list(&self) -> PathBuf {
        self.project.join(".svc").join(LIST)
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<PathBuf, usize>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Links what is attached; the paths that this run now holds. What cannot be linked is told in the log:
    /// an agent works without a skill, too.
    fn attach(&self, working_dir: &Path, skills: &[Attached]) -> Vec<PathBuf> {
        let mut users = self.users();
        let mut held: Vec<(PathBuf, PathBuf)> = Vec::new();
        for skill in skills.iter().filter(|skill| check_id(&skill.id).is_ok()) {
            if !is_intact(&self.project, &skill.id, &skill.digest) {
                log::warn!(
                    "skill {} is not attached: its file is not the installed one; update it",
                    skill.id
                );
                continue;
            }
            let target = folder_of(&self.project, &skill.id);
            let paths = PLACES.iter().map(|place| working_dir.join(place).join("skills").join(&skill.id));
            held.extend(paths.map(|path| (path, target.clone())));
        }
        held.retain(|(path, target)| self.may_link(path, target));
        for (path, _) in &held {
            *users.entry(path.clone()).or_default() += 1;
        }
        self.write_down(&users);
        held.retain(|(path, target)| match link(path, target) {
            Ok(()) => true,
            Err(error) => {
                log::warn!("{} could not be linked: {error}", path.display());
                forget_use(&mut users, path);
                false
            }
        });
        held.into_iter().map(|(path, _)| path).collect()
    }

    /// Whether the name is free, or is a link of ours.
    fn may_link(&self, path: &Path, target: &Path) -> bool {
        let folder = path.parent().unwrap_or(path);
        let above = folder.parent().unwrap_or(folder);
        for folder in [above, folder] {
            if fs::symlink_metadata(folder).is_ok_and(|found| !found.is_dir()) {
                log::info!("{} is a link or a file: no skill is put there", folder.display());
                return false;
            }
        }
        let is_free = match fs::read_link(path) {
            Ok(found) => found == target || self.is_ours(&found),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if !is_free {
            log::info!("{} is the project's own and stays", path.display());
        }
        is_free
    }

    fn is_ours(&self, target: &Path) -> bool {
        target.parent() == Some(&self.project.join(FOLDER))
    }

    fn release(&self, paths: &[PathBuf]) {
        let mut users = self.users();
        for path in paths {
            if forget_use(&mut users, path) {
                self.unlink(path);
            }
        }
        self.write_down(&users);
    }

    /// Removes a link of ours, and the folders that were made for it once they are empty.
    fn unlink(&self, path: &Path) {
        if fs::read_link(path).is_ok_and(|target| self.is_ours(&target))
            && let Err(error) = fs::remove_file(path)
        {
            log::warn!("{} is left over: {error}", path.display());
        }
        if let Some(folder) = path.parent() {
            tidy(folder);
        }
    }

    fn write_down(&self, users: &BTreeMap<PathBuf, usize>) {
        let links = users.keys().filter_map(|path| path.to_str().map(str::to_owned)).collect();
        // Strings always serialise.
        let bytes = serde_json::to_vec(&Stored { version: 1, links }).unwrap_or_default();
        if let Err(error) = replace(&self.list(), &bytes) {
            log::warn!("the list of linked skills cannot be written: {error}");
        }
    }
}

/// One user less; whether that was the last one.
fn forget_use(users: &mut BTreeMap<PathBuf, usize>, path: &Path) -> bool {
    let Some(count) = users.get_mut(path) else { return false };
    *count -= 1;
    if *count == 0 {
        users.remove(path);
        return true;
    }
    false
}

fn link(path: &Path, target: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    let above = folder.parent().unwrap_or(folder);
    let above_is_new = made(above)?;
    if made(folder)? {
        fs::write(folder.join(".gitignore"), if above_is_new { MARK_BOTH } else { MARK })?;
    }
    match symlink(target, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && fs::read_link(path)? == target => Ok(()),
        outcome => outcome,
    }
}

/// Makes a folder; whether it was missing.
fn made(folder: &Path) -> io::Result<bool> {
    match fs::create_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a folder that we have made once nothing but our mark is in it.
fn tidy(folder: &Path) {
    let mark = folder.join(".gitignore");
    let Ok(text) = fs::read_to_string(&mark) else { return };
    let alone = fs::read_dir(folder).is_ok_and(|entries| entries.count() == 1);
    if !alone || (text != MARK && text != MARK_BOTH) {
        return;
    }
    // A folder that somebody fills meanwhile is not empty, and stays.
    let gone = fs::remove_file(&mark).and_then(|()| fs::remove_dir(folder)).is_ok();
    if gone
        && text == MARK_BOTH
        && let Some(above) = folder.parent()
    {
        let _ = fs::remove_dir(above);
    }
}
