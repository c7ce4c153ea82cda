//! The files of installed skills: `.svc/skills/<id>/SKILL.md`.

use super::{Installed, digest};
use crate::api::Problem;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use svc_sys::files::{missing_is_fine, replace};

/// Where skills are installed, below the project.
pub const FOLDER: &str = ".svc/skills";
/// The file of a skill.
pub const FILE: &str = "SKILL.md";
/// How a folder that is being removed is named until it is gone.
const ASIDE: &str = ".removed-";

/// The folder of a skill whose id was checked.
pub fn folder_of(project: &Path, id: &str) -> PathBuf {
    project.join(FOLDER).join(id)
}

/// Whether the file is what its record says.
pub fn is_intact(project: &Path, id: &str, wanted: &str) -> bool {
    read_intact(project, id, wanted).is_some()
}

/// The file's text, if it is what its record says.
pub fn read_intact(project: &Path, id: &str, wanted: &str) -> Option<String> {
    let bytes = fs::read(folder_of(project, id).join(FILE)).ok()?;
    if digest(&bytes) == wanted { String::from_utf8(bytes).ok() } else { None }
}

/// A skill's file that was written; [`Saved::undo`] puts back what was there.
pub struct Saved {
    folder: PathBuf,
    before: Option<Vec<u8>>,
}

/// Writes a skill's file durably.
///
/// Errors: 503, the disk refuses.
pub fn save(project: &Path, skill: &Installed, content: &str) -> Result<Saved, Problem> {
    let folder = folder_of(project, &skill.id);
    let before = fs::read(folder.join(FILE)).ok();
    let written = replace(&folder.join(FILE), content.as_bytes()).and_then(|()| sync(project, &folder));
    written.map_err(|error| {
        let text = format!("skill {} cannot be saved: {error}; free space in .svc and retry", skill.id);
        Problem::new(503, "storage_unavailable", text)
    })?;
    Ok(Saved { folder, before })
}

fn sync(project: &Path, folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()?;
    File::open(project.join(FOLDER))?.sync_all()
}

impl Saved {
    /// Puts back what was there.
    pub fn undo(self) {
        let undone = match &self.before {
            Some(bytes) => replace(&self.folder.join(FILE), bytes),
            None => fs::remove_dir_all(&self.folder),
        };
        if let Err(error) = undone {
            log::warn!("{} is left over: {error}", self.folder.display());
        }
    }
}

/// A skill's folder that was set aside. Dropping it deletes the folder, unless it was restored.
pub struct Removed {
    home: PathBuf,
    aside: Option<PathBuf>,
}

/// Sets a skill's folder aside. One that is missing is removed already.
///
/// Errors: 503, the disk refuses.
pub fn set_aside(project: &Path, id: &str) -> Result<Removed, Problem> {
    let (home, aside) = (folder_of(project, id), project.join(FOLDER).join(format!("{ASIDE}{id}")));
    let moved = fs::remove_dir_all(&aside).or_else(missing_is_fine).and_then(|()| fs::rename(&home, &aside));
    match moved {
        Ok(()) => Ok(Removed { home, aside: Some(aside) }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Removed { home, aside: None }),
        Err(error) => {
            let text = format!("skill {id} cannot be removed: {error}");
            Err(Problem::new(503, "storage_unavailable", text))
        }
    }
}

impl Removed {
    /// Puts the folder back.
    pub fn undo(mut self) {
        if let Some(aside) = self.aside.take()
            && let Err(error) = fs::rename(&aside, &self.home)
        {
            log::warn!("{} could not be put back: {error}", self.home.display());
        }
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside
            && let Err(error) = fs::remove_dir_all(aside)
        {
            log::warn!("{} is left over: {error}", aside.display());
        }
    }
}

/// Deletes what a daemon that died had set aside.
pub fn sweep(project: &Path) {
    let Ok(entries) = fs::read_dir(project.join(FOLDER)) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(ASIDE) {
            // Tried again at the next start.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
