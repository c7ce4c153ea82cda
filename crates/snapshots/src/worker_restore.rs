//! Putting files back: a plan of whole files to replace, which can be carried out again from anywhere in the
//! middle and comes to the same.
//!
//! **Invariant:** no step leads out of its folder or over a link, and none touches what is not as the plan
//! says: such a path is left as it is, and told.

use crate::diff::Entry;
use crate::rules::{NEVER, TEMPORARY};
use crate::worker_store::{Store, What, blob};
use crate::worker_walk::{content, what};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use svc_sys::beneath::{Dir, Kind, Root};

/// What is to become of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// As it is before; nothing else is replaced.
    pub from: Option<Entry>,
    /// As it is to be.
    pub to: Option<Entry>,
}

/// All of them, by path.
pub type Plan = BTreeMap<String, Step>;

/// A path that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub path: String,
    pub why: String,
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Whether there is no such place: nothing is there, or what is above is no folder.
fn is_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        // A link stands above.
        || error.raw_os_error() == Some(40)
}

/// The file or link at a path now. A folder is none.
///
/// Errors: what is there can neither be read nor compared, or is no file and no link.
pub fn current(root: &Root, path: &str) -> io::Result<Option<Entry>> {
    let (folder, name) = split(path);
    let dir = match root.dir(folder) {
        Ok(dir) => dir,
        Err(error) if is_nowhere(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = match dir.stat(name) {
        Ok(stat) => stat,
        Err(error) if is_nowhere(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = match stat.kind {
        Kind::Folder => return Ok(None),
        Kind::Other => return Err(io::Error::other("it is a socket, a pipe or a device")),
        Kind::Link => {
            let target = dir.link_target(name)?;
            return Ok(Some(Entry { what: What::Link, mode: 0, id: blob(target.as_os_str().as_bytes()) }));
        }
        Kind::File => content(&dir, name)?.ok_or_else(|| io::Error::other("it is larger than 32 MiB"))?,
    };
    Ok(Some(Entry { what: what(&stat), mode: stat.mode, id: blob(&bytes) }))
}

/// What stands where a file is to be put and would have to go for it, though the plan does not remove it.
///
/// Errors: it cannot be looked at.
pub fn obstacle(root: &Root, plan: &Plan, path: &str) -> io::Result<Option<String>> {
    let is_removed = |path: &str| plan.get(path).is_some_and(|step| step.to.is_none());
    for (at, _) in path.match_indices('/') {
        let above = &path[..at];
        let (folder, name) = split(above);
        let found = root.dir(folder).and_then(|dir| dir.stat(name));
        match found {
            Ok(stat) if stat.kind == Kind::Folder => {}
            Ok(_) if is_removed(above) => return Ok(None),
            Ok(_) => return Ok(Some(above.to_owned())),
            Err(error) if is_nowhere(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    match root.dir(path) {
        Ok(dir) => in_the_way(&dir, path, &is_removed),
        Err(_) => Ok(None),
    }
}

fn in_the_way(dir: &Dir, path: &str, is_removed: &dyn Fn(&str) -> bool) -> io::Result<Option<String>> {
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = format!("{path}/{name}");
        if entry.file_type()?.is_dir() {
            if let Some(found) = in_the_way(&dir.dir(&name)?, &below, is_removed)? {
                return Ok(Some(found));
            }
        } else if !is_removed(&below) && !name.starts_with(TEMPORARY) {
            return Ok(Some(below));
        }
    }
    Ok(None)
}

/// Carries a plan out, or the rest of it; what was not as it says is left and told.
pub fn apply(store: &Store, root: &Root, plan: &Plan) -> Vec<Left> {
    let removals = plan.iter().rev().filter(|(_, step)| step.to.is_none());
    let writes = plan.iter().filter(|(_, step)| step.to.is_some());
    let mut left = Vec::new();
    for (n, (path, step)) in removals.chain(writes).enumerate() {
        if let Err(error) = carry_out(store, root, plan, n, path, step) {
            left.push(Left { path: path.clone(), why: error.to_string() });
        }
    }
    left
}

fn carry_out(store: &Store, root: &Root, plan: &Plan, n: usize, path: &str, step: &Step) -> io::Result<()> {
    if path.split('/').any(|part| NEVER.contains(&part) || part.is_empty()) {
        return Err(io::Error::other("it is never touched"));
    }
    let now = current(root, path)?;
    if now == step.to {
        if step.to.is_none() {
            // One that was killed between a file and its folders has left these.
            fold_up(root, plan, path);
        }
        return Ok(());
    }
    if now != step.from {
        return Err(io::Error::other("somebody has changed it meanwhile"));
    }
    match &step.to {
        None => remove(root, plan, path),
        Some(entry) => put(store, root, n, path, entry),
    }
}

fn remove(root: &Root, plan: &Plan, path: &str) -> io::Result<()> {
    let (folder, name) = split(path);
    root.dir(folder)?.remove_file(name)?;
    fold_up(root, plan, path);
    Ok(())
}

/// A folder that nothing is left in goes with its last file, as git has it.
fn fold_up(root: &Root, plan: &Plan, path: &str) {
    let (mut folder, _) = split(path);
    while !folder.is_empty() {
        let below = format!("{folder}/");
        let mut next = plan.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
        let is_needed = next.any(|(_, step)| step.to.is_some());
        let (above, name) = split(folder);
        if is_needed || root.dir(above).and_then(|dir| dir.remove_dir(name)).is_err() {
            break;
        }
        folder = above;
    }
}

/// Removes a folder that holds nothing but such folders.
///
/// Errors: something else is in it, which stays.
fn remove_empty(dir: &Dir, name: &str) -> io::Result<()> {
    let within = dir.dir(name)?;
    for entry in within.entries()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_empty(&within, &entry.file_name().to_string_lossy())?;
        }
    }
    dir.remove_dir(name)
}

fn put(store: &Store, root: &Root, n: usize, path: &str, entry: &Entry) -> io::Result<()> {
    let bytes = store.get(entry.id)?;
    let (folder, name) = split(path);
    for (at, _) in path.match_indices('/') {
        let (above, part) = split(&path[..at]);
        match root.dir(above)?.make_dir(part) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let dir = root.dir(folder)?;
    if dir.stat(name).is_ok_and(|stat| stat.kind == Kind::Folder) {
        remove_empty(&dir, name)?;
    }
    let temporary = format!("{TEMPORARY}{n:x}");
    // One that was killed has left it.
    let _ = dir.remove_file(&temporary);
    let written = || -> io::Result<()> {
        if entry.what == What::Link {
            dir.make_link(Path::new(OsStr::from_bytes(&bytes)), &temporary)?;
        } else {
            let mut file = dir.create(&temporary, 0o600)?;
            file.write_all(&bytes)?;
            file.set_permissions(Permissions::from_mode(entry.mode))?;
            file.sync_data()?;
        }
        dir.rename(&temporary, &dir, name)
    };
    written().inspect_err(|_| {
        let _ = dir.remove_file(&temporary);
    })
}
