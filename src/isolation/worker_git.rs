//! All git of the daemon's own: for the worktrees of agents, for what the console shows of the project, for
//! cleaning up. It runs no program that a repository, an agent or a person's settings name (see
//! [`super::worker_shadow`]), asks nobody, reaches no other machine, and has a time limit.

use super::worker_shadow::{Real, Shadow};
use crate::api::Problem;
use crate::assembly::host::Host;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use svc_sys::process::{Captured, Processes, Spec};

/// One call of `git` gets this long.
const LIMIT: Duration = Duration::from_secs(20);
/// A commit or a merge, which write files, gets this long.
const WRITE_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of git's output that are kept.
pub const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// For every call: one language, no question, no editor, no other machine, and a lock only for what writes.
const VARIABLES: [(&str, &str); 7] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("GIT_PAGER", "cat"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("LC_ALL", "C"),
];
/// No settings but those of the git folder itself.
const ALONE: [(&str, &str); 3] =
    [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_ATTR_NOSYSTEM", "1")];
/// For the few calls on the real git folder, which touch no content of files: these win over its settings.
const SETTINGS: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "protocol.allow=never",
];

/// Git in one folder.
#[derive(Clone)]
pub struct Git {
    processes: Arc<Processes>,
    folder: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// Made with the first call; or what git said when it found no repository.
    shadow: Arc<OnceLock<Result<Shadow, Refused>>>,
}

/// Why there is no repository to work on.
enum Refused {
    Said(Captured),
    Failed(String),
}

impl Git {
    /// Git in `folder`.
    pub fn new(host: &Host, folder: PathBuf) -> Self {
        Self::with(&host.processes, folder)
    }

    /// Git in `folder`, for threads without the whole [`Host`].
    pub fn with(processes: &Arc<Processes>, folder: PathBuf) -> Self {
        Self { processes: Arc::clone(processes), folder, env: Vec::new(), shadow: Arc::default() }
    }

    /// Git on an object store of the daemon's own, which has no working tree. Its settings are `settings`,
    /// whatever stands in its folder by now.
    ///
    /// Errors: the system's words.
    pub fn of_store(processes: &Arc<Processes>, store: &Path, settings: &[u8]) -> std::io::Result<Self> {
        let git = Self::with(processes, store.to_path_buf());
        let [top, own, shared] = [(); 3].map(|()| store.to_path_buf());
        let shadow = Shadow::make(Real { top, own, shared }, settings)?;
        // It is new.
        let _ = git.shadow.set(Ok(shadow));
        Ok(git)
    }

    /// Runs it with this on its standard input, and keeps so many bytes of what it prints.
    ///
    /// Errors: as [`Git::run`].
    pub fn feed(&self, args: &[&str], input: &[u8], max_bytes: usize) -> Result<Vec<u8>, Problem> {
        let shadow = match self.shadow() {
            Ok(shadow) => shadow,
            Err(refused) => return refused.told().and_then(|said| succeeded(&said)).map(String::into_bytes),
        };
        let spec = self.spec(args, &alone(shadow.variables()));
        let said = self.processes.capture(&spec, input, WRITE_LIMIT, max_bytes).map_err(failed)?;
        if said.truncated {
            return Err(failed(format!("git prints more than {max_bytes} bytes")));
        }
        if said.is_success() { Ok(said.stdout) } else { Err(failed(format!("git failed: {}", words(&said)))) }
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
        let said = self.capture(args, WRITE_LIMIT)?;
        if let Ok(Some(head)) = self.shadow().map(Shadow::moved_head) {
            self.try_admin(&["update-ref", "--no-deref", "HEAD", &head])?;
        }
        Ok(said)
    }

    /// Runs it on the real git folder: for its own bookkeeping only (branches, list of worktrees), which
    /// neither reads nor writes the content of files, so that no filter or driver has a part in it.
    pub fn try_admin(&self, args: &[&str]) -> Result<Captured, Problem> {
        let shadow = match self.shadow() {
            Ok(shadow) => shadow,
            Err(refused) => return refused.told(),
        };
        let places = [("GIT_DIR", &shadow.real.own), ("GIT_WORK_TREE", &shadow.real.top)];
        let places = places.map(|(name, path)| (OsString::from(name), path.clone().into()));
        self.start(&set(&SETTINGS, args), &alone(places), WRITE_LIMIT).map_err(failed)
    }

    fn capture(&self, args: &[&str], limit: Duration) -> Result<Captured, Problem> {
        match self.shadow() {
            Ok(shadow) => self.start(args, &alone(shadow.variables()), limit).map_err(failed),
            Err(refused) => refused.told(),
        }
    }

    fn start(
        &self,
        args: &[&str],
        env: &[(OsString, OsString)],
        limit: Duration,
    ) -> Result<Captured, String> {
        self.processes.capture(&self.spec(args, env), b"", limit, MAX_OUTPUT_BYTES)
    }

    fn spec(&self, args: &[&str], env: &[(OsString, OsString)]) -> Spec {
        let mut spec = Spec::tool("git", args, &self.folder);
        spec.env.extend(VARIABLES.iter().map(|(name, value)| (name.into(), value.into())));
        spec.env.extend(env.iter().chain(&self.env).cloned());
        spec
    }

    fn shadow(&self) -> Result<&Shadow, &Refused> {
        self.shadow.get_or_init(|| self.find()).as_ref()
    }

    /// Looks for the repository, in which nothing is run yet: both calls only read names and settings.
    fn find(&self) -> Result<Shadow, Refused> {
        let holds_git = |folder: &&Path| {
            let git = folder.join(".git");
            git.is_file() || git.join("HEAD").exists()
        };
        // Not as `core.worktree` has it: that could lead anywhere.
        let top = self.folder.ancestors().find(holds_git);
        let top = top.unwrap_or(&self.folder).to_path_buf();
        let ask = |args: &[&str]| match self.start(&set(&SETTINGS, args), &[], LIMIT) {
            Ok(said) if said.is_success() => Ok(said.stdout),
            Ok(said) => Err(Refused::Said(said)),
            Err(error) => Err(Refused::Failed(error)),
        };
        let found = ask(&["rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir"])?;
        let found = String::from_utf8_lossy(&found);
        let Some((own, shared)) = found.trim_end().split_once('\n') else {
            return Err(Refused::Failed(format!("git tells no folder of {}", self.folder.display())));
        };
        let real = Real { top, own: own.into(), shared: shared.into() };
        let settings = ask(&["config", "--list", "-z"])?;
        Shadow::make(real, &settings).map_err(|error| {
            Refused::Failed(format!(
                "no git folder can be made in {}: {error}",
                std::env::temp_dir().display()
            ))
        })
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

    /// As [`Git::try_admin`]; it has to succeed.
    pub fn admin(&self, args: &[&str]) -> Result<String, Problem> {
        succeeded(&self.try_admin(args)?)
    }

    /// The commit a name stands for, if there is one.
    ///
    /// Errors: as [`Git::try_run`].
    pub fn commit(&self, name: &str) -> Result<Option<String>, Problem> {
        self.ask(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")])
    }

    /// The git folder of this working tree, and the one that all working trees of the repository share.
    ///
    /// Errors: 502 `git_failed` without a repository.
    pub fn folders(&self) -> Result<(&Path, &Path), Problem> {
        match self.shadow() {
            Ok(shadow) => Ok((&shadow.real.own, &shadow.real.shared)),
            Err(refused) => Err(refused.told().map_or_else(|problem| problem, |said| failed(words(&said)))),
        }
    }
}

impl Refused {
    fn told(&self) -> Result<Captured, Problem> {
        match self {
            Self::Said(said) => Ok(said.clone()),
            Self::Failed(error) => Err(failed(error.clone())),
        }
    }
}

fn alone(places: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let alone = ALONE.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    alone.chain(places).collect()
}

/// The arguments of a call for which these settings win over those of git's files.
pub fn set<'a>(settings: &[&'a str], args: &[&'a str]) -> Vec<&'a str> {
    settings.iter().flat_map(|setting| ["-c", setting]).chain(args.iter().copied()).collect()
}

fn failed(error: String) -> Problem {
    Problem::new(502, "git_failed", error)
}

/// What it has printed, where it has succeeded.
///
/// Errors: 502 `git_failed` with git's own words.
pub(super) fn succeeded(said: &Captured) -> Result<String, Problem> {
    if said.is_success() {
        return Ok(String::from_utf8_lossy(&said.stdout).trim_end_matches('\n').to_owned());
    }
    Err(failed(format!("git failed: {}", words(said))))
}

/// What git complains about, on one line.
pub fn words(said: &Captured) -> String {
    let spoken = if said.stderr.is_empty() { &said.stdout } else { &said.stderr };
    let text = String::from_utf8_lossy(spoken);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
