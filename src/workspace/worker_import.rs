//! Running git for an import: into a folder of our own first, into its place when it is whole.
//!
//! Git gets no hooks, no prompts, no system configuration, no transports but https and ssh, and no more
//! room and time than the limits here.

use super::import::{ImportId, Order, Progress};
use super::path::ProjectPath;
use super::worker_files::{refusal, root};
use super::worker_write::{folder_of, remove_tree};
use super::{Command, import};
use crate::api::Problem;
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::isolation::worker_git;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use svc_base::bounded;
use svc_base::sorted;
use svc_sys::beneath::Root;
use svc_sys::files::{if_there, missing_is_fine};
use svc_sys::process::{Processes, Running, Spec, Stdin};
use svc_sys::threads::Thread;

/// Bytes of an imported repository, history included.
const SIZE_LIMIT_BYTES: u64 = 2 << 30;
/// An import may take this long.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The size is looked at this often.
const SIZE_INTERVAL: Duration = Duration::from_secs(1);
/// Clients are told of progress within a phase this often at most.
const TELL_INTERVAL: Duration = Duration::from_millis(500);
/// Between looks whether the daemon is ending.
const TICK: Duration = Duration::from_millis(100);
/// Between TERM and KILL for git.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of one line of git's that are kept.
const LINE_BYTES: usize = 1_024;
/// Lines of git's that explain a failure.
const LAST_LINES: usize = 4;
/// Lines on their way from git; above this git waits.
const MAX_LINES: usize = 256;
/// Agent settings told at most, and folder levels that are looked at.
const MAX_SETTINGS: usize = 100;
const SETTINGS_LEVELS: usize = 3;
/// Where imports grow, below the project's root.
const NURSERY: &str = ".svc/imports";

/// Variables that git needs to get out and to know its user, beyond those of every tool.
const VARIABLES: [&str; 9] = [
    "SSH_AUTH_SOCK",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "LOGNAME",
];
/// What git is set to, whatever stands in its files: nothing of the clone runs, and nothing leads elsewhere.
const CONFIGURATION: [&str; 7] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.ssh.allow=always",
    "http.followRedirects=initial",
];
/// What keeps git from asking anybody and from running anything.
const SETTINGS: [(&str, &str); 12] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GCM_INTERACTIVE", "never"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "https:ssh"),
    ("GIT_LFS_SKIP_SMUDGE", "1"),
];
/// Names of files and folders that tell coding agents, or the editors around them, what to do.
const AGENT_SETTINGS: [&str; 30] = [
    ".claude",
    ".mcp.json",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "AGENTS.md",
    "AGENTS.override.md",
    ".agents",
    ".codex",
    ".gemini",
    "GEMINI.md",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".cursor",
    ".cursorrules",
    ".windsurf",
    ".windsurfrules",
    ".clinerules",
    ".roo",
    ".continue",
    ".aider.conf.yml",
    ".goosehints",
    ".qwen",
    "QWEN.md",
    ".kiro",
    "copilot-instructions.md",
    ".vscode",
    ".devcontainer",
    ".envrc",
    ".svc",
];

type Report = Arc<dyn Fn(ImportId, Progress) + Send + Sync>;

/// `POST /api/repos/import`.
pub fn begin(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let request = import::parse(ask.request)?;
    let path = &request.path;
    let root = root(host)?;
    if if_there(root.locate(path.as_str())).map_err(|error| refusal(&error, path))?.is_some() {
        return Err(refusal(&io::Error::from_raw_os_error(libc::EEXIST), path).with("path", path.as_str()));
    }
    Ok(Answer::Command(Command::Import(request).into()))
}

/// Runs imports, each on a thread of its own; the core bounds how many. Dropping it ends them.
pub struct Imports {
    means: Arc<Means>,
    threads: Vec<Thread>,
}

struct Means {
    processes: Arc<Processes>,
    project: PathBuf,
    report: Report,
    stopping: AtomicBool,
}

impl Drop for Imports {
    fn drop(&mut self) {
        self.means.stopping.store(true, Ordering::Relaxed);
        self.threads.clear();
    }
}

impl Imports {
    /// Nothing runs yet. What a killed daemon has left half done is removed.
    pub fn new(processes: Arc<Processes>, project: PathBuf, report: Report) -> Self {
        let nursery = project.join(NURSERY);
        if let Err(error) = fs::remove_dir_all(&nursery).or_else(missing_is_fine) {
            log::warn!("{} could not be removed: {error}", nursery.display());
        }
        let means = Means { processes, project, report, stopping: AtomicBool::new(false) };
        Self { means: Arc::new(means), threads: Vec::new() }
    }

    /// Begins an import, without waiting for it.
    pub fn order(&mut self, order: Order) {
        self.threads.retain(|thread| !thread.is_finished());
        let means = Arc::clone(&self.means);
        let id = order.id;
        match Thread::spawn("import", move || means.run(&order)) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => (self.means.report)(id, Progress::Ended(Err(format!("no thread for it: {error}")))),
        }
    }
}

impl Means {
    fn run(&self, order: &Order) {
        let folder = self.project.join(NURSERY).join(order.id.to_string());
        let outcome = self.import(order, &folder);
        if outcome.is_err()
            && let Err(error) = self.remove(order.id)
        {
            log::warn!("what is left of import {} could not be removed: {error}", order.id);
        }
        (self.report)(order.id, Progress::Ended(outcome));
    }

    fn remove(&self, id: ImportId) -> io::Result<()> {
        let nursery = Root::open(&self.project.join(NURSERY))?.dir("")?;
        remove_tree(&nursery, &id.to_string()).or_else(missing_is_fine)
    }

    fn import(&self, order: &Order, folder: &Path) -> Result<Vec<String>, String> {
        let nursery = self.project.join(NURSERY);
        fs::create_dir_all(&nursery).map_err(|error| format!("{}: {error}", nursery.display()))?;
        self.clone_into(order, &nursery, folder)?;
        let settings = agent_settings(folder);
        self.place(order)?;
        Ok(settings)
    }

    /// Moves the finished clone to its place, which must still be free.
    fn place(&self, order: &Order) -> Result<(), String> {
        let path = &order.request.path;
        let said = |problem: Problem| problem.error;
        let root = Root::open(&self.project).map_err(|error| said(refusal(&error, path)))?;
        let (dir, place) = folder_of(&root, path, true).map_err(said)?;
        let nursery = root.dir(NURSERY).map_err(|error| said(refusal(&error, path)))?;
        nursery
            .rename_new(&order.id.to_string(), &dir, place.split().1)
            .and_then(|()| dir.sync())
            .map_err(|error| said(refusal(&error, path)))
    }

    fn clone_into(&self, order: &Order, nursery: &Path, folder: &Path) -> Result<(), String> {
        let running = self.processes.spawn(&spec(order, nursery)).map_err(|error| error.to_string())?;
        let Running { identity, stdout, stderr, exit, .. } = running;
        // Git prints its progress as complaints, and nothing else.
        drop(stdout);
        let (sender, lines) = bounded(MAX_LINES);
        let reader = Thread::spawn("import-reader", move || read_lines(stderr, &sender));
        let outcome = self.listen(order, folder, &lines);
        // Unblocks a reader whose lines nobody takes any more.
        drop(lines);
        let stopped = outcome.as_ref().err().cloned();
        if stopped.is_some() {
            self.processes.stop_tree(identity, None, GRACE);
        }
        let exited = exit.recv_timeout(GRACE).ok();
        self.processes.sweep(identity, None);
        drop(reader);
        let last = outcome?;
        match exited {
            Some(exit) if exit.code == Some(0) => Ok(()),
            _ => Err(format!("git could not clone it: {last}")),
        }
    }

    /// Takes what git says until it has said all; its last words.
    ///
    /// Errors: a limit was reached, or the daemon is ending.
    fn listen(&self, order: &Order, folder: &Path, lines: &Receiver<String>) -> Result<String, String> {
        let began = Instant::now();
        let mut measured = began;
        let mut words = Words::default();
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => {
                    if let Some((phase, percent)) = words.hear(line) {
                        (self.report)(order.id, Progress::At(phase, percent));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::from(words.last).join("; ")),
            }
            if self.stopping.load(Ordering::Relaxed) {
                return Err("the daemon was stopped".into());
            }
            if began.elapsed() > TIME_LIMIT {
                return Err(format!("it took longer than {} minutes", TIME_LIMIT.as_secs() / 60));
            }
            if measured.elapsed() >= SIZE_INTERVAL {
                measured = Instant::now();
                if size_of_tree(folder, SIZE_LIMIT_BYTES) > SIZE_LIMIT_BYTES {
                    return Err(format!("it is larger than {} GiB", SIZE_LIMIT_BYTES >> 30));
                }
            }
        }
    }
}

/// The command line of git, and all of its environment.
fn spec(order: &Order, nursery: &Path) -> Spec {
    let id = order.id.to_string();
    let args = [
        "clone",
        "--depth",
        "1",
        "--single-branch",
        "--no-tags",
        "--no-recurse-submodules",
        "--template=",
        "--progress",
        "--",
        &order.request.url,
        &id,
    ];
    let mut spec = Spec::tool("git", &worker_git::set(&CONFIGURATION, &args), nursery);
    spec.stdin = Stdin::Null;
    let inherited = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
    spec.env.extend(VARIABLES.iter().filter_map(inherited));
    spec.env.extend(SETTINGS.iter().map(|(name, value)| (name.into(), value.into())));
    // Nor does the repository around it have a say.
    spec.env.push(("GIT_CEILING_DIRECTORIES".into(), nursery.into()));
    spec
}

/// What git has said.
#[derive(Default)]
struct Words {
    /// The phase told last, and when.
    told: Option<(String, Instant)>,
    /// The last lines that are no progress.
    last: VecDeque<String>,
}

impl Words {
    /// Takes a line; progress that is worth telling.
    fn hear(&mut self, line: String) -> Option<(String, u8)> {
        let Some((phase, percent)) = parse_progress(&line) else {
            bounded::push(&mut self.last, line, LAST_LINES);
            return None;
        };
        if self.told.as_ref().is_some_and(|(of, at)| *of == phase && at.elapsed() < TELL_INTERVAL) {
            return None;
        }
        self.told = Some((phase.clone(), Instant::now()));
        Some((phase, percent))
    }
}

/// Sends git's lines; a progress line ends with a carriage return.
fn read_lines(mut file: File, lines: &Sender<String>) {
    let mut chunk = [0; 4_096];
    let mut line = Vec::new();
    while let Ok(count) = file.read(&mut chunk) {
        for byte in &chunk[..count] {
            if !matches!(byte, b'\n' | b'\r') {
                if line.len() < LINE_BYTES {
                    line.push(*byte);
                }
                continue;
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if !text.is_empty() && lines.send(text).is_err() {
                return;
            }
        }
        if count == 0 {
            return;
        }
    }
}

/// `Receiving objects:  45% (9/20), 1.2 MiB`: the phase and the percents.
pub fn parse_progress(line: &str) -> Option<(String, u8)> {
    let line = line.strip_prefix("remote:").unwrap_or(line).trim();
    let (phase, rest) = line.split_once(':')?;
    let percent = rest.trim_start().split_once("% (")?.0.parse::<u8>().ok()?;
    (percent <= 100).then(|| (phase.to_owned(), percent))
}

/// Bytes of everything below a folder; counted no further than a little above `limit`.
fn size_of_tree(folder: &Path, limit: u64) -> u64 {
    let mut total = 0;
    let mut waiting = vec![folder.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                total += meta.len();
            }
        }
        if total > limit {
            break;
        }
    }
    total
}

/// What in a clone tells agents what to do, by path relative to it.
fn agent_settings(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(ProjectPath::found(""), 0)]);
    while let Some((at, level)) = waiting.pop_front() {
        for entry in fs::read_dir(folder.join(at.as_str())).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let here = at.join(&name);
            if AGENT_SETTINGS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                found.push(here.as_str().to_owned());
            } else if level + 1 < SETTINGS_LEVELS
                && name != ".git"
                && entry.file_type().is_ok_and(|t| t.is_dir())
            {
                waiting.push_back((here, level + 1));
            }
        }
        if found.len() >= MAX_SETTINGS {
            break;
        }
    }
    found.truncate(MAX_SETTINGS);
    sorted::up(&mut found);
    found
}
