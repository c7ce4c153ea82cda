//! Which projects this user has daemons for: each notes itself below `~/.config/svc`, which no room shows, so
//! that a room of one project hides the state of all others: their keys, their tokens, their agents' words.

use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use svc_base::hex;
use svc_sys::files::replace_soon;
use svc_sys::regular;

pub use svc_sys::registry::user_folder;

/// Projects looked at; of more, some stay shown, and a warning says so.
const PROJECTS_MAX: usize = 1000;

/// Notes a project. Nothing is noted for a user without a home folder.
///
/// Errors: the system's words.
pub fn note(project: &Path) -> io::Result<()> {
    let Some(folder) = user_folder() else { return Ok(()) };
    let folder = folder.join("projects");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let bytes = project.as_os_str().as_bytes();
    let name: String = hex::encode(&Sha256::digest(bytes)).chars().take(16).collect();
    replace_soon(&folder.join(name), bytes)
}

/// The state folders of all other projects that were noted and are still there.
pub(super) fn states_of_others(project: &Path) -> Vec<PathBuf> {
    let Some(folder) = user_folder() else { return Vec::new() };
    let Ok(entries) = fs::read_dir(folder.join("projects")) else { return Vec::new() };
    let entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    if entries.len() > PROJECTS_MAX {
        log::warn!("{} projects are noted: rooms hide the state of {PROJECTS_MAX} of them", entries.len());
    }
    let state = |entry: PathBuf| {
        let other = PathBuf::from(OsString::from_vec(regular::read(&entry).ok()?));
        let state = other.join(".svc");
        if !state.is_dir() {
            // It was removed or moved; a daemon there notes it anew. Else the list would only grow.
            let _ = fs::remove_file(entry);
            return None;
        }
        (other != project && !project.starts_with(&state)).then_some(state)
    };
    entries.into_iter().take(PROJECTS_MAX).filter_map(state).collect()
}
