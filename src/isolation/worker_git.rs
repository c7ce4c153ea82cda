//! Git for the worktrees of agents: it runs nothing that a repository or a person's settings bring along,
//! asks nobody, and has a time limit.

use crate::api::Problem;
use crate::runtime::host::Host;
use crate::runtime::process::{Captured, Processes, Spec};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// One call of `git` gets this long.
const LIMIT: Duration = Duration::from_secs(20);
/// A commit or a merge, which write files, gets this long.
const WRITE_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of git's output that are kept.
pub const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// Settings that win over those of the repository and the user: no hook, no watcher, no signature, no
/// background work, and nothing but a merge when a merge is asked for.
const SETTINGS: [&str; 9] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "merge.autoStash=false",
    "merge.verifySignatures=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Git in one folder.
#[derive(Clone)]
pub struct Git {
    processes: Arc<Processes>,
    folder: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl Git {
    /// Git in `folder`.
    pub fn new(host: &Host, folder: PathBuf) -> Self {
        Self::with(&host.processes, folder)
    }

    /// Git in `folder`, for threads without the whole [`Host`].
    pub fn with(processes: &Arc<Processes>, folder: PathBuf) -> Self {
        // Its words are shown to people and searched for nothing; they come in one language.
        let env = [("GIT_TERMINAL_PROMPT", "0"), ("GIT_EDITOR", "true"), ("LC_ALL", "C")];
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { processes: Arc::clone(processes), folder, env }
    }

    /// The folder it runs in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same with another variable set.
    #[must_use]
    pub fn var(&self, name: &str, value: impl Into<OsString>) -> Self {
        let mut other = self.clone();
        other.env.push((name.into(), value.into()));
        other
    }

    /// The same as this person; both as the author and as the committer.
    #[must_use]
    pub fn as_person(&self, name: &str, address: &str) -> Self {
        self.var("GIT_AUTHOR_NAME", name)
            .var("GIT_AUTHOR_EMAIL", address)
            .var("GIT_COMMITTER_NAME", name)
            .var("GIT_COMMITTER_EMAIL", address)
    }

    /// Runs it, whatever comes of it.
    ///
    /// Errors: 502 `git_failed` when it cannot be started or takes too long.
    pub fn try_run(&self, args: &[&str]) -> Result<Captured, Problem> {
        self.capture(args, LIMIT)
    }

    /// As [`Git::try_run`], for calls that write files.
    pub fn try_write(&self, args: &[&str]) -> Result<Captured, Problem> {
        self.capture(args, WRITE_LIMIT)
    }

    fn capture(&self, args: &[&str], limit: Duration) -> Result<Captured, Problem> {
        let mut all: Vec<&str> = Vec::with_capacity(SETTINGS.len() * 2 + args.len());
        for setting in SETTINGS {
            all.extend(["-c", setting]);
        }
        all.extend(args);
        let mut spec = Spec::tool("git", &all, &self.folder);
        spec.env.extend(self.env.iter().cloned());
        self.processes
            .capture(&spec, b"", limit, MAX_OUTPUT_BYTES)
            .map_err(|error| Problem::new(502, "git_failed", error))
    }

    /// What it prints, when it succeeds; `None` when it fails.
    ///
    /// Errors: as [`Git::try_run`].
    pub fn ask(&self, args: &[&str]) -> Result<Option<String>, Problem> {
        let said = self.try_run(args)?;
        Ok(said.is_success().then(|| String::from_utf8_lossy(&said.stdout).trim_end_matches('\n').to_owned()))
    }

    /// What it prints; it has to succeed.
    ///
    /// Errors: 502 `git_failed` with git's own words.
    pub fn run(&self, args: &[&str]) -> Result<String, Problem> {
        succeeded(&self.try_run(args)?)
    }

    /// As [`Git::run`], for calls that write files.
    pub fn write(&self, args: &[&str]) -> Result<String, Problem> {
        succeeded(&self.try_write(args)?)
    }

    /// The commit a name stands for, if there is one.
    ///
    /// Errors: as [`Git::try_run`].
    pub fn commit(&self, name: &str) -> Result<Option<String>, Problem> {
        self.ask(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")])
    }
}

fn succeeded(said: &Captured) -> Result<String, Problem> {
    if said.is_success() {
        return Ok(String::from_utf8_lossy(&said.stdout).trim_end_matches('\n').to_owned());
    }
    Err(Problem::new(502, "git_failed", format!("git failed: {}", words(said))))
}

/// What git complains about, on one line.
pub fn words(said: &Captured) -> String {
    let spoken = if said.stderr.is_empty() { &said.stdout } else { &said.stderr };
    let text = String::from_utf8_lossy(spoken);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
