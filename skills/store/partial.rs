//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file's path with an end behind it.
pub fn beside(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// A file in the making, beside its place; removed unless it is kept.
pub struct Partial {
    path: PathBuf,
    kept: bool,
}

impl Partial {
    /// The name of a file while it is written.
    pub fn name(file: &Path) -> PathBuf {
        beside(file, ".partial")
    }

    /// Begins one, as private as the database itself.
    pub fn create(file: &Path) -> io::Result<Self> {
        let path = Self::name(file);
        // What a kill has left goes first, with whatever rights it had.
        let _ = fs::remove_file(&path);
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        Ok(Self { path, kept: false })
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place, once it is on disk.
    pub fn keep(mut self, file: &Path) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        fs::rename(&self.path, file)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.kept {
            // It may be gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}
