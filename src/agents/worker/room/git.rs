//! What a room shows of the project's git: folders in which commits are made, and in them, to be read only,
//! what makes a person's own git run programs or look elsewhere.
//!
//! Each folder on the way is a place of its own, because none of those can be moved away from inside.

use crate::agents::worker::fence;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use svc_sys::beneath::Root;

/// What of a git folder its git obeys.
const OBEYED: [&str; 5] = ["config", "config.worktree", "hooks", "commondir", "gitdir"];
/// Where agents' worktrees are.
const OF_AGENTS: &str = "/.svc/worktrees/";
/// Git folders that are looked at for one room, those of worktrees and submodules among them.
const FOLDERS_MAX: usize = 128;
/// How many parts the name of a submodule may have.
const NAME_PARTS_MAX: usize = 8;
/// Bytes that are read of a file that leads to another place, and of a configuration.
const POINTER_BYTES: u64 = 4096;
const CONFIG_BYTES: u64 = 64 * 1024;

/// Places that a room shows, the outer ones first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places(Vec<(PathBuf, bool)>);

impl Places {
    /// Those of a project without links in its path. Git that lies elsewhere counts when it says itself that
    /// it is this project's: the file that leads there may be an agent's.
    pub fn of(project: &Path) -> Self {
        let mut places = Self::default();
        let dot = project.join(".git");
        if fs::symlink_metadata(&dot).is_ok_and(|meta| meta.is_file()) {
            places.0.push((dot.clone(), false));
            if let Some(folder) = elsewhere(project, &dot) {
                places.add(&folder);
            }
        } else if let Some(folder) = fence::within(project, &dot).filter(|folder| folder.is_dir()) {
            places.add(&folder);
        }
        places
    }

    /// The places, and whether they can be written.
    pub fn into_iter(self) -> impl Iterator<Item = (PathBuf, bool)> {
        self.0.into_iter()
    }

    fn has_room(&self) -> bool {
        self.0.iter().filter(|(_, is_written)| *is_written).count() < FOLDERS_MAX
    }

    fn add(&mut self, folder: &Path) {
        if !self.has_room() {
            log::warn!("{}: more git folders than {FOLDERS_MAX} are not kept from agents", folder.display());
            return;
        }
        self.0.push((folder.to_path_buf(), true));
        make_what_is_obeyed(folder);
        self.0.extend(
            OBEYED.iter().map(|name| (folder.join(name), false)).filter(|(place, _)| is_plain(place)),
        );
        for (name, is_whole) in [("worktrees", false), ("modules", true)] {
            let inner = folder.join(name);
            if is_plain_folder(&inner) {
                self.0.push((inner.clone(), true));
                self.add_all(&inner, is_whole, NAME_PARTS_MAX);
            }
        }
    }

    /// The git folders in a folder: of worktrees, or whole ones, whose names may have several parts.
    fn add_all(&mut self, folder: &Path, whole: bool, parts: usize) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let inner = entry.path();
            // Those of agents come and go at any time, and no person's git works in them.
            let leads_to = || read(&inner.join("gitdir"), POINTER_BYTES).unwrap_or_default();
            if !is_plain_folder(&inner) || (!whole && leads_to().contains(OF_AGENTS)) {
                continue;
            }
            if !whole || inner.join("HEAD").exists() {
                self.add(&inner);
            } else if parts > 0 && self.has_room() {
                self.0.push((inner.clone(), true));
                self.add_all(&inner, whole, parts - 1);
            }
        }
    }
}

/// What is not there could be made by an agent. A whole git folder obeys hooks in any case, and settings of
/// its worktree where it says so; empty ones change nothing.
fn make_what_is_obeyed(folder: &Path) {
    let config = folder.join("config");
    if !is_plain(&config) {
        return;
    }
    let hooks = folder.join("hooks");
    if fs::symlink_metadata(&hooks).is_err()
        && let Err(error) = fs::create_dir(&hooks)
    {
        log::warn!("{} cannot be made: {error}", hooks.display());
    }
    let has_more =
        read(&config, CONFIG_BYTES).is_some_and(|text| text.to_lowercase().contains("worktreeconfig"));
    let more = folder.join("config.worktree");
    if has_more
        && fs::symlink_metadata(&more).is_err()
        && let Err(error) = fs::File::create_new(&more)
    {
        log::warn!("{} cannot be made: {error}", more.display());
    }
}

/// In a git folder, the file that leads git to another one for all but the worktree. No usual `.git` has it.
const LEADS_AWAY: &str = "commondir";

/// Whether the project's own git folder leads git to another one.
pub fn is_led(project: &Path) -> bool {
    fs::symlink_metadata(project.join(".git").join(LEADS_AWAY)).is_ok()
}

/// Removes what an agent has made to lead git elsewhere: what is not there cannot be covered in a room.
pub fn lead_back(project: &Path) {
    let git = Root::open(project).and_then(|root| root.dir(".git"));
    match git.and_then(|git| git.remove_file(LEADS_AWAY)) {
        Ok(()) => {
            log::warn!("an agent has made .git/{LEADS_AWAY}, which leads git elsewhere: it was removed");
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        Err(error) => log::warn!(".git/{LEADS_AWAY} cannot be removed: {error}"),
    }
}

/// The git folder that the file `dot` leads to, when it leads back: the one in which a linked worktree's
/// commits are kept, or a submodule's.
fn elsewhere(project: &Path, dot: &Path) -> Option<PathBuf> {
    let text = read(dot, POINTER_BYTES)?;
    let folder = project.join(text.strip_prefix("gitdir:")?.trim()).canonicalize().ok()?;
    let leads_to = |words: &str, place: &Path| {
        folder.join(words.trim()).canonicalize().is_ok_and(|found| found == place)
    };
    if let Some(back) = read(&folder.join("gitdir"), POINTER_BYTES) {
        let common = folder.parent().filter(|parent| parent.ends_with("worktrees"))?.parent()?;
        let is_common =
            read(&folder.join("commondir"), POINTER_BYTES).is_some_and(|text| leads_to(&text, common));
        return (leads_to(&back, dot) && is_common).then(|| common.to_path_buf());
    }
    let config = read(&folder.join("config"), CONFIG_BYTES)?;
    let tree =
        config.lines().find_map(|line| line.trim().strip_prefix("worktree")?.trim().strip_prefix('='))?;
    leads_to(tree.trim().trim_matches('"'), project).then_some(folder)
}

fn read(path: &Path, limit: u64) -> Option<String> {
    if !is_plain(path) {
        return None;
    }
    let mut text = String::new();
    fs::File::open(path).ok()?.take(limit).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Whether it is a file or folder; no link, and nothing that never ends.
fn is_plain(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir())
}

fn is_plain_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn git(folder: &Path, line: &str) {
        let done = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"])
            .args(line.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(done.status.success(), "git {line}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Names below `top`, with a star for what can be written.
    fn shown(top: &Path, project: &str) -> Vec<String> {
        let name = |(place, is_written): (PathBuf, bool)| {
            let place = place.strip_prefix(top).unwrap().display().to_string();
            if is_written { place + "*" } else { place }
        };
        Places::of(&top.join(project)).into_iter().map(name).collect()
    }

    #[test]
    fn worktrees_and_submodules_lead_to_where_their_commits_are_kept() {
        let top = std::env::temp_dir().join(format!("svc-room-git-{}", std::process::id()));
        fs::create_dir_all(top.join("main")).unwrap();
        let top = top.canonicalize().unwrap();
        let main = top.join("main");
        fs::create_dir(top.join("lib")).unwrap();
        for folder in [&main, &top.join("lib")] {
            git(folder, "init -q --template=");
            git(folder, "commit -q --allow-empty -m one");
        }
        assert_eq!(
            shown(&top, "main"),
            ["main/.git*", "main/.git/config", "main/.git/hooks"],
            "hooks are made"
        );
        git(&main, "submodule --quiet add ../lib deep/sub");
        git(&main, "worktree add -q ../linked");
        git(&main, "worktree add -q .svc/worktrees/agent-1");
        let whole = [
            "main/.git*",
            "main/.git/config",
            "main/.git/hooks",
            "main/.git/worktrees*",
            "main/.git/worktrees/linked*",
            "main/.git/worktrees/linked/commondir",
            "main/.git/worktrees/linked/gitdir",
            "main/.git/modules*",
            "main/.git/modules/deep*",
            "main/.git/modules/deep/sub*",
            "main/.git/modules/deep/sub/config",
            "main/.git/modules/deep/sub/hooks",
        ];
        assert_eq!(shown(&top, "main"), whole);
        assert_eq!(shown(&top, "linked"), [&["linked/.git"], &whole[..]].concat());
        assert_eq!(shown(&top, "main/deep/sub"), [&["main/deep/sub/.git"], &whole[9..]].concat());
        // A file that an agent has written leads to a folder that does not know of it.
        fs::create_dir(top.join("other")).unwrap();
        for target in ["../main/.git", "../main/.git/worktrees/linked", "../main/.git/modules/deep/sub", "/"]
        {
            fs::write(top.join("other/.git"), format!("gitdir: {target}\n")).unwrap();
            assert_eq!(shown(&top, "other"), ["other/.git"], "{target}");
        }
        git(&main, "config extensions.worktreeConfig true");
        assert!(shown(&top, "main").contains(&"main/.git/config.worktree".to_owned()), "it is made, too");
        fs::remove_dir_all(&top).unwrap();
    }
}
