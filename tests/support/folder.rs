//! A folder of a test's own, removed at its end.

use super::processes::{daemons_of, keepers_of, of_project};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh, empty folder.
pub struct Folder(PathBuf);

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Folder {
    /// A new one, named after the test's purpose.
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// A new one outside of the temporary folder, which some programs treat apart.
    pub fn in_target(name: &str) -> Self {
        Self::below(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// A new one in a place of the test's choice.
    pub fn below(parent: &Path, name: &str) -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("svc-{name}-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    /// Where it is, without links.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes everything in it a user's own.
    pub fn give_to(&self, user: u32) {
        let mut open = vec![self.0.clone()];
        while let Some(path) = open.pop() {
            std::os::unix::fs::lchown(&path, Some(user), Some(user)).unwrap();
            if path.is_dir() && !path.is_symlink() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }

    /// Writes a file below it.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.0.join(".svc").is_dir() {
            // Agents outlive a daemon that was killed: here no other comes.
            let left = daemons_of(&self.0).into_iter().chain(of_project(&self.0)).chain(keepers_of(&self.0));
            let pids: Vec<String> = left.map(|pid| pid.to_string()).collect();
            if !pids.is_empty() {
                let _ = Command::new("kill").arg("-9").args(pids).stderr(Stdio::null()).status();
            }
        }
        // A test that failed may have left something that cannot be removed; that is not its message.
        let _ = fs::remove_dir_all(&self.0);
    }
}
