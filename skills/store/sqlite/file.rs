//! The file behind the store: which one was opened, and that it is still there.

use super::StoreError;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Whether a database that is not there yet is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It is made: the service starts on an empty folder.
    OrMake,
    /// It must be there: a mistyped path is an error and no new database.
    Existing,
}

/// A database file as it was when it was opened.
#[derive(Debug, Clone)]
pub struct Served {
    path: PathBuf,
    identity: (u64, u64),
}

/// Device and inode, through links.
fn identity(file: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(file).map(|found| (found.dev(), found.ino()))
}

impl Served {
    /// Opens the path, or makes the file where that is wanted.
    ///
    /// Errors: a file that must be there and is not, or is empty.
    pub fn open(path: &Path, opening: Opening) -> Result<Self, StoreError> {
        if opening == Opening::Existing && !fs::metadata(path).is_ok_and(|found| found.len() > 0) {
            let text = "there is no database in it; name the right file with --db FILE, or let svc-skills serve \
                        make one";
            return Err(StoreError::Unavailable(text.into()));
        }
        // Made here, so that nobody else on the machine can read it.
        let make = opening == Opening::OrMake;
        OpenOptions::new().create(make).append(true).mode(0o600).open(path)?;
        Ok(Self { path: path.to_path_buf(), identity: identity(path)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether another path leads to the same file.
    pub fn is(&self, other: &Path) -> bool {
        identity(other).is_ok_and(|found| found == self.identity)
    }

    /// Refuses to go on with a file that its path no longer leads to: what is written there is lost with
    /// the last process that holds it open.
    ///
    /// Errors: the file was removed or replaced.
    pub fn is_in_place(&self) -> Result<(), StoreError> {
        if self.is(&self.path) {
            return Ok(());
        }
        Err(StoreError::Unavailable(format!(
            "the database {} was removed or replaced while it was open; put it back, or restart on the new one",
            self.path.display()
        )))
    }
}
