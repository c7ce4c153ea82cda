//! A git folder of the daemon's own, in front of one that agents may have written to.
//!
//! Git takes programs to run out of a repository's configuration: filters, merge and diff drivers, hooks,
//! watchers, helpers for keys and signatures, commands to reach a remote. It cannot be told to leave that
//! file unread, and naming what it may not run is a race with whoever writes. So its git gets another
//! folder, with a configuration that holds data only; objects, branches and the index are the real ones:
//!
//! ```text
//! <temporary>/svc-git-*/  config        written here: [`DATA_KEYS`] of the real one, and nothing else
//!                         HEAD          a copy
//!                         objects refs packed-refs logs info/exclude ..   links to the real ones
//! ```
//! Attributes still are read from the project's files. One that names a driver finds none: the content is
//! taken as it is.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use svc_sys::clock;

/// Settings that are data: none names a program, an address, another file of settings or of attributes.
const DATA_KEYS: [&str; 21] = [
    "author.email",
    "author.name",
    "committer.email",
    "committer.name",
    "core.autocrlf",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.longpaths",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "extensions.objectformat",
    "extensions.refstorage",
    "index.version",
    "user.email",
    "user.name",
];
/// What is the same for every repository: paths as they are, no signature, nothing in the background, no
/// attributes from elsewhere, no remote.
const OWN_SETTINGS: &str = "\
[core]\n\tbare = false\n\thooksPath = /dev/null\n\tfsmonitor = false\n\tattributesFile = /dev/null\n\
\tquotePath = false\n\tpager = cat\n\
[commit]\n\tgpgSign = false\n\
[diff]\n\tignoreSubmodules = dirty\n\
[gc]\n\tauto = 0\n\
[maintenance]\n\tauto = false\n\
[merge]\n\tautoStash = false\n\tverifySignatures = false\n\
[protocol]\n\tallow = never\n\
[submodule]\n\trecurse = false\n";
/// What of the shared git folder is linked to.
const SHARED: [&str; 5] = ["objects", "refs", "packed-refs", "reftable", "shallow"];
/// Bytes of a `HEAD` file at most.
const MAX_HEAD_BYTES: u64 = 4 << 10;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Real {
    /// The folder that holds `.git`.
    pub top: PathBuf,
    /// The git folder of this working tree.
    pub own: PathBuf,
    /// The git folder that all working trees share.
    pub shared: PathBuf,
}

/// The daemon's own git folder; it is removed on drop.
#[derive(Debug)]
pub(super) struct Shadow {
    pub real: Real,
    folder: PathBuf,
}

impl Shadow {
    /// Makes one; `settings` is what `git config --list -z` prints.
    pub fn make(real: Real, settings: &[u8]) -> io::Result<Self> {
        let name = format!("svc-git-{:016x}{:016x}", clock::random(), clock::random());
        let shadow = Self { real, folder: std::env::temp_dir().join(name) };
        DirBuilder::new().mode(0o700).create(&shadow.folder)?;
        shadow.fill(settings)?;
        Ok(shadow)
    }

    fn fill(&self, settings: &[u8]) -> io::Result<()> {
        let (own, shared, here) = (&self.real.own, &self.real.shared, &self.folder);
        for name in SHARED {
            link(&shared.join(name), &here.join(name))?;
        }
        for folder in ["info", "logs"] {
            fs::create_dir(here.join(folder))?;
        }
        link(&shared.join("info/exclude"), &here.join("info/exclude"))?;
        link(&own.join("info/sparse-checkout"), &here.join("info/sparse-checkout"))?;
        link(&shared.join("logs/refs"), &here.join("logs/refs"))?;
        link(&own.join("logs/HEAD"), &here.join("logs/HEAD"))?;
        // The halves of an index that is split.
        for entry in fs::read_dir(own)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("sharedindex.") {
                link(&entry.path(), &here.join(entry.file_name()))?;
            }
        }
        fs::write(here.join("HEAD"), head_of(own)?)?;
        fs::write(here.join("config"), config(settings))
    }

    /// What makes git use it.
    pub fn variables(&self) -> [(OsString, OsString); 3] {
        [
            ("GIT_DIR".into(), self.folder.clone().into()),
            ("GIT_WORK_TREE".into(), self.real.top.clone().into()),
            ("GIT_INDEX_FILE".into(), self.real.own.join("index").into()),
        ]
    }

    /// The commit that `HEAD` has come to name here, when it names one by itself and another one than in the
    /// real folder: on a branch the branch itself has moved.
    pub fn moved_head(&self) -> Option<String> {
        let (here, there) = (head_of(&self.folder).ok()?, head_of(&self.real.own).ok()?);
        let here = here.trim();
        (here != there.trim() && !here.starts_with("ref:")).then(|| here.to_owned())
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // Links are removed, not followed.
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            log::warn!("{} cannot be removed: {error}", self.folder.display());
        }
    }
}

fn head_of(folder: &Path) -> io::Result<String> {
    let path = folder.join("HEAD");
    if fs::metadata(&path)?.len() > MAX_HEAD_BYTES {
        return Err(io::Error::other(format!("{} is no HEAD of git", path.display())));
    }
    fs::read_to_string(path)
}

/// A link to what is there.
fn link(real: &Path, here: &Path) -> io::Result<()> {
    if real.exists() { symlink(real, here) } else { Ok(()) }
}

/// The configuration: the data of the real one, the last value of each, then our own.
fn config(settings: &[u8]) -> String {
    let settings = String::from_utf8_lossy(settings);
    let mut text = String::new();
    for key in DATA_KEYS {
        let mut last_first = settings.rsplit('\0').filter_map(|entry| entry.split_once('\n'));
        let Some((_, value)) = last_first.find(|(name, _)| *name == key) else { continue };
        let Some((section, name)) = key.split_once('.') else { continue };
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = write!(text, "[{section}]\n\t{name} = \"{quoted}\"\n");
    }
    text.push_str(OWN_SETTINGS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_comes_over_and_nothing_breaks_out_of_its_value() {
        let settings = b"user.name\nA \"B\" \\ C\n[filter \"x\"]\n\tclean = evil\0core.fsmonitor\nevil\0\
            filter.x.clean\nevil\0user.name\nlast\"\n[alias]\0core.autocrlf\ninput\0alias.st\n!evil\0\
            include.path\n/evil\0core.sshcommand\nevil\0core.attributesfile\n/evil\0";
        let text = config(settings);
        assert!(
            text.starts_with("[core]\n\tautocrlf = \"input\"\n[user]\n\tname = \"last\\\"\\n[alias]\"\n"),
            "{text}"
        );
        assert!(!text.contains("evil"), "{text}");
    }
}
