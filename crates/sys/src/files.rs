//! Files that are replaced as a whole: a reader, or a power cut, finds the old bytes or the new ones.

use crate::regular;
use crate::reserve::with_reserve;
use std::env;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Syncs a folder, so that the names in it are on disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    with_reserve(|| File::open(folder))?.sync_all()
}

/// Where `program` is found on this process's `PATH`, and what is known of its file.
pub fn on_path(program: &str) -> Option<(PathBuf, Metadata)> {
    let executable = |path: PathBuf| {
        let file = path.metadata().ok().filter(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)?;
        Some((path, file))
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find_map(executable)
}

/// A file that is not there needs no removing.
pub fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// What was found; `None` where nothing is there.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) => missing_is_fine(error).map(|()| None),
    }
}

/// Replaces a file by a synced temporary one, readable by its owner alone. The folder is yet to be synced.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    swap_in(path, bytes, true)
}

/// As [`replace`], without waiting for the disk: for what can be made again after a power cut.
pub fn replace_soon(path: &Path, bytes: &[u8]) -> io::Result<()> {
    swap_in(path, bytes, false)
}

fn swap_in(path: &Path, bytes: &[u8], waits_for_disk: bool) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(named)?;
    }
    let temporary = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = with_reserve(|| regular::open(&temporary, &mut options))?;
        file.write_all(bytes)?;
        if waits_for_disk {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // A half-written temporary file would keep the very space that is short.
        let _ = fs::remove_file(&temporary);
        named(error)
    })
}
