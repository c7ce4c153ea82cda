//! Which programs of providers are on the `PATH`, and what they say of their version and login.
//!
//! The `PATH` is looked at with some hundred `stat`s, within a fraction of a millisecond: before the first
//! request, and again when somebody asks. Programs take seconds to answer (a cold Node.js, a loaded machine),
//! so each is asked on a thread of its own, and what it says is reported by itself.

use super::state_thread::Core;
use crate::accounts::Report;
use crate::agents::worker::{Temporary, place_below};
use crate::core::Event;
use crate::core::ids::AgentId;
use crate::programs::registry::{Detection, Presence};
use crate::providers::environment::Extra;
use crate::providers::login::{Answer, Login, Source, StateFile};
use crate::providers::{Info, Program, environment};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs};
use svc_sys::files::on_path;
use svc_sys::process::{Marker, Processes, Spec, Stdin};
use svc_sys::threads::Thread;

/// A program that does not tell its version in this time counts as installed, version unknown.
const VERSION_TIMEOUT: Duration = Duration::from_secs(60);
/// One that could not be asked for its version, or did not answer, is asked again when somebody looks, but
/// not before this time is over.
const VERSION_AGAIN: Duration = Duration::from_secs(5);
/// How often in all.
const VERSION_TRIES: u32 = 3;
/// A program that does not tell its login in this time leaves it unknown.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// A login that was told is not asked about again before this time is over.
const LOGIN_FRESH: Duration = Duration::from_secs(5);
/// What was told of the login of an account is forgotten after this.
const ACCOUNT_KEPT: Duration = Duration::from_secs(600);
/// Programs that are asked at once who is logged in to accounts.
const ASKED_AT_ONCE: usize = 4;
/// The `PATH` is not looked at again before this time is over, unless for a program that was absent.
const PATH_FRESH: Duration = Duration::from_millis(500);
/// How long somebody may wait for what is still to be told.
const PATIENCE: Duration = Duration::from_secs(20);
const VERSION_CHARS: usize = 60;
/// Bytes of an answer, and of a file with a login.
const ANSWER_BYTES: usize = 16 << 10;
const FILE_BYTES: u64 = 1 << 20;
/// So many folders above a program's file its package is looked for.
const PACKAGE_LEVELS: usize = 4;
/// From here on processes of the daemon's own are marked, one number a provider, as those of agents are: what
/// they say to the daemon is never a person's word.
const FIRST_MARK: u32 = 0xFFFF_FF00;
/// Those that are asked for accounts have marks of their own: what is left of one when it has ended is ended
/// by its mark, and several of one provider are asked at once.
const FIRST_ACCOUNT_MARK: u32 = 0xFFFF_FF80;

/// What is known of the programs, and the threads that ask them.
pub struct Programs {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Thread>>,
}

struct Shared {
    core: Core,
    processes: Arc<Processes>,
    known: Mutex<Known>,
    /// Held by who asks for accounts.
    asking: Mutex<()>,
    /// Rings when a program has been asked.
    told: Condvar,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    programs: BTreeMap<&'static str, Entry>,
    /// Of accounts, and when it was told: as many as there are names, [`crate::accounts::MAX_ACCOUNTS`] and
    /// the providers.
    accounts: BTreeMap<String, (Instant, Option<Login>)>,
}

struct Entry {
    file: Option<FileMark>,
    detection: Detection,
    login_told: Option<Instant>,
    /// How often its version was asked for in vain, and when last.
    unanswered: (u32, Option<Instant>),
    /// Somebody wants to know who is logged in.
    wants_login: bool,
    /// A thread asks, and goes on until nothing more is wanted.
    is_being_asked: bool,
}

impl Entry {
    fn new(file: Option<FileMark>, detection: Detection, is_being_asked: bool) -> Self {
        Self { file, detection, login_told: None, unanswered: (0, None), wants_login: false, is_being_asked }
    }

    /// Whether its version is worth another question.
    fn asks_again(&self) -> bool {
        let (tries, last) = self.unanswered;
        (1..VERSION_TRIES).contains(&tries) && last.is_some_and(|last| last.elapsed() >= VERSION_AGAIN)
    }

    /// Takes what the program said to the question for its version, if it said anything.
    fn told_version(&mut self, answer: Option<&(String, bool)>) {
        self.unanswered = match answer {
            Some(_) => (0, None),
            None => (self.unanswered.0 + 1, Some(Instant::now())),
        };
        self.detection.presence = Presence::Version(version_in(answer));
    }
}

/// Whose login is asked for: by which name that is told, whose program, and its variables.
pub type Asked = (String, &'static Info, Extra);

/// What is to be asked of a program next.
enum Question {
    Version(PathBuf, &'static [&'static str]),
    Login(Option<PathBuf>),
}

/// Tells one program file from another of the same name: an update changes it.
#[derive(PartialEq, Eq)]
struct FileMark {
    path: PathBuf,
    inode: u64,
    changed: (i64, i64),
}

impl Programs {
    /// Nothing is looked at yet.
    pub fn new(core: Core, processes: Arc<Processes>) -> Self {
        let shared = Shared {
            core,
            processes,
            known: Mutex::default(),
            asking: Mutex::default(),
            told: Condvar::new(),
            is_over: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// Looks at the `PATH`, reports what has changed, and lets new programs be asked for their version.
    pub fn look(&self) {
        self.look_again(false);
    }

    /// As [`Programs::look`], with everybody's login. What is known now; with `waits`, when all was told, or
    /// patience is over.
    pub fn look_at_all(&self, waits: bool) -> Vec<Detection> {
        self.look_again(true);
        let mut known = self.shared.lock();
        let deadline = Instant::now() + PATIENCE;
        while waits && known.programs.values().any(|entry| entry.is_being_asked) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.is_over.load(Ordering::Acquire) {
                break;
            }
            known = self.shared.told.wait_timeout(known, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        known.programs.values().map(|entry| entry.detection.clone()).collect()
    }

    /// As [`Programs::logins_of`], on a thread of its own, which tells the core.
    pub fn ask_later(&self, wanted: Vec<Asked>) {
        let shared = Arc::clone(&self.shared);
        let ask = move || {
            let told = shared.logins_of(wanted);
            if !told.is_empty() && !shared.is_over.load(Ordering::Acquire) {
                shared.core.report(Event::Accounts(Report::Logins(told)));
            }
        };
        match Thread::spawn("ask-accounts", ask) {
            Ok(thread) => self.keep(thread),
            Err(error) => log::warn!("nobody can be asked who is logged in: {error}"),
        }
    }

    fn keep(&self, thread: Thread) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Asks who is logged in with the variables of some accounts, a few programs at a time; what was told a
    /// moment ago is not asked again, and left out.
    pub fn logins_of(&self, wanted: Vec<Asked>) -> Vec<(String, Option<Login>)> {
        self.shared.logins_of(wanted)
    }

    /// What was told of the login of an account.
    pub fn known_login(&self, name: &str) -> Option<Login> {
        self.shared.lock().accounts.get(name)?.1.clone()
    }

    /// Ends what is being asked, and waits for that.
    pub fn stop(&self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.told.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        drop(threads);
    }

    fn look_again(&self, with_logins: bool) {
        let mut known = self.shared.lock();
        let (changed, to_ask) = known.update(with_logins);
        if !changed.is_empty() {
            // While nobody else can look: whoever finds nothing new may rely on it that the core knows.
            self.shared.core.control(Event::Detected(changed));
        }
        drop(known);
        for info in to_ask {
            let shared = Arc::clone(&self.shared);
            match Thread::spawn(&format!("ask-{}", info.id), move || shared.ask(info)) {
                Ok(thread) => self.keep(thread),
                Err(error) => {
                    log::warn!("{} cannot be asked for its version: {error}", info.id);
                    self.shared.give_up(info.id);
                }
            }
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // A start that fails must not wait for slow programs.
        self.stop();
    }
}

impl Known {
    /// Compares with the `PATH`: what has changed, and who is to be asked.
    fn update(&mut self, with_logins: bool) -> (Vec<Detection>, Vec<&'static Info>) {
        let (mut changed, mut to_ask) = (Vec::new(), Vec::new());
        let is_fresh = self.looked.is_some_and(|looked| looked.elapsed() < PATH_FRESH);
        for provider in crate::providers::all() {
            let info = provider.info();
            let known = self.programs.get(info.id);
            let is_there = known.is_some_and(|entry| entry.detection.presence != Presence::Absent);
            if !(is_fresh && is_there) {
                let file = find(info);
                if known.is_none_or(|entry| entry.file != file) {
                    let detection = first(info, file.is_some());
                    changed.push(detection.clone());
                    let is_being_asked = known.is_some_and(|entry| entry.is_being_asked);
                    self.programs.insert(info.id, Entry::new(file, detection, is_being_asked));
                }
            }
            let Some(entry) = self.programs.get_mut(info.id) else { continue };
            let has_login = entry.login_told.is_some_and(|told| told.elapsed() < LOGIN_FRESH);
            let is_unasked = entry.detection.presence == Presence::Present && info.program != Program::Itself;
            let no_version = is_unasked || entry.asks_again();
            let asks_login = with_logins && !matches!(info.login.source, Source::Nowhere) && !has_login;
            let is_there = entry.detection.presence != Presence::Absent;
            entry.wants_login |= is_there && asks_login;
            if is_there && !entry.is_being_asked && (no_version || entry.wants_login) {
                entry.is_being_asked = true;
                to_ask.push(info);
            }
        }
        if !is_fresh {
            self.looked = Some(Instant::now());
        }
        (changed, to_ask)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`Programs::logins_of`].
    fn logins_of(&self, wanted: Vec<Asked>) -> Vec<(String, Option<Login>)> {
        // One after the other: the marks are in use.
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.lock();
        let names: Vec<&String> = wanted.iter().map(|(name, ..)| name).collect();
        known.accounts.retain(|name, (told, _)| names.contains(&name) || told.elapsed() < ACCOUNT_KEPT);
        let is_old =
            |name: &String| known.accounts.get(name).is_none_or(|(told, _)| told.elapsed() >= LOGIN_FRESH);
        let asked: Vec<_> = wanted.into_iter().filter(|(name, ..)| is_old(name)).collect();
        drop(known);
        let mut answers = Vec::with_capacity(asked.len());
        for some in asked.chunks(ASKED_AT_ONCE) {
            std::thread::scope(|scope| {
                let ask = |(mark, (name, info, extra)): (u32, &(String, &'static Info, Extra))| {
                    let (name, info, extra) = (name.clone(), *info, extra.clone());
                    scope.spawn(move || {
                        let program = find(info).map(|file| file.path);
                        (name, self.login(info, program.as_deref(), &extra, mark))
                    })
                };
                let asking: Vec<_> = (FIRST_ACCOUNT_MARK..).zip(some).map(ask).collect();
                answers.extend(asking.into_iter().filter_map(|thread| thread.join().ok()));
            });
        }
        let mut known = self.lock();
        for (name, login) in &answers {
            known.accounts.insert(name.clone(), (Instant::now(), login.clone()));
        }
        answers
    }

    /// Asks one program until nothing more is wanted, on a thread of its own.
    fn ask(&self, info: &'static Info) {
        while let Some(question) = self.next(info) {
            match &question {
                Question::Version(path, args) => {
                    let answer = self.version(info, path, args);
                    self.report(info.id, path, |entry| entry.told_version(answer.as_ref()));
                }
                Question::Login(path) => {
                    let login = self.login(info, path.as_deref(), &Extra::default(), mark_of(info));
                    self.report(info.id, path.as_deref().unwrap_or(Path::new("")), |entry| {
                        entry.detection.login = login;
                        entry.login_told = Some(Instant::now());
                    });
                }
            }
        }
        self.told.notify_all();
    }

    /// What is to be asked next; `None` lets the thread end.
    fn next(&self, info: &Info) -> Option<Question> {
        let mut known = self.lock();
        let entry = known.programs.get_mut(info.id)?;
        let path = entry.file.as_ref().map(|file| file.path.clone());
        let is_over = self.is_over.load(Ordering::Acquire) || entry.detection.presence == Presence::Absent;
        let is_wanted = entry.detection.presence == Presence::Present || entry.asks_again();
        match (path, is_wanted, info.program) {
            (Some(path), true, Program::OnPath(_, args)) if !is_over => Some(Question::Version(path, args)),
            (path, _, _) if !is_over && std::mem::take(&mut entry.wants_login) => Some(Question::Login(path)),
            _ => {
                entry.is_being_asked = false;
                None
            }
        }
    }

    fn give_up(&self, id: &str) {
        if let Some(entry) = self.lock().programs.get_mut(id) {
            entry.is_being_asked = false;
        }
        self.told.notify_all();
    }

    /// Takes an answer and tells the core, unless the daemon ends.
    fn report(&self, id: &str, asked: &Path, take: impl FnOnce(&mut Entry)) {
        let mut known = self.lock();
        let Some(entry) = known.programs.get_mut(id) else { return };
        if entry.file.as_ref().is_some_and(|file| file.path != asked) {
            // Another program has taken its place meanwhile, which is asked next.
            return;
        }
        let before = entry.detection.clone();
        take(entry);
        let after = entry.detection.clone();
        // Reported before anybody else can change it: the core hears of changes in their order.
        if before != after && !self.is_over.load(Ordering::Acquire) {
            self.core.control(Event::Detected(vec![after]));
        }
    }

    /// Who is logged in; with the variables of an account, in there.
    fn login(
        &self,
        info: &'static Info,
        program: Option<&Path>,
        account: &Extra,
        mark: u32,
    ) -> Option<Login> {
        match info.login.source {
            Source::Nowhere => None,
            Source::Program(args, read) => {
                let (text, is_success) = self.run(info, program?, args, LOGIN_TIMEOUT, account, mark)?;
                read(Answer { text: &text, is_success })
            }
            Source::File(file) => Some(login_in(&file, account).unwrap_or_else(|| Login {
                is_in: false,
                told: format!("no login found in {}", shown_place(&file, account)),
            })),
            Source::Endpoint => Some(match crate::ollama::look() {
                Ok(address) => Login { is_in: true, told: format!("answers at {address}") },
                Err(address) => Login { is_in: false, told: format!("nobody answers at {address}") },
            }),
        }
    }

    /// What a program says of its version. The question changes nothing: of a program that writes into its
    /// home folder whenever it runs, an agent that starts just then may read empty settings.
    fn version(&self, info: &'static Info, program: &Path, args: &[&str]) -> Option<(String, bool)> {
        if let Some(version) = packaged_version(info.package, program) {
            return Some((version, true));
        }
        if info.home_variable.is_empty() {
            return self.run(info, program, args, VERSION_TIMEOUT, &Extra::default(), mark_of(info));
        }
        let folder = Temporary::make()
            .inspect_err(|error| log::warn!("{} is not asked for its version: {error}", info.id))
            .ok()?;
        let home = Some(folder.path().to_str()?.to_owned());
        let own = Extra { set: [(info.home_variable.to_owned(), home)].into(), ..Extra::default() };
        self.run(info, program, args, VERSION_TIMEOUT, &own, mark_of(info))
    }

    /// What a program prints, and whether it ended well; it gets what its agents get, and `own` ones.
    fn run(
        &self,
        info: &'static Info,
        program: &Path,
        args: &[&str],
        timeout: Duration,
        own: &Extra,
        mark: u32,
    ) -> Option<(String, bool)> {
        let state = self.core.snapshot();
        let extra = state.settings.config().env.of(info.id).then(own);
        let spec = Spec {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            env: environment::of_child(env::vars_os(), info, &extra, &[], &[]),
            // Not in the project, whose files agents write: programs take settings from where they stand.
            cwd: PathBuf::from("/"),
            stdin: Stdin::Null,
            marker: Some(Marker { agent: AgentId(mark), project_dir: state.project.dir.clone() }),
        };
        let told = self.processes.capture_unless(&spec, b"", timeout, ANSWER_BYTES, &self.is_over).ok()?;
        let text = [&told.stdout[..], b"\n", &told.stderr].concat();
        Some((String::from_utf8_lossy(&text).into_owned(), told.is_success()))
    }
}

/// The mark of the processes that are asked for a provider.
fn mark_of(info: &Info) -> u32 {
    let index = crate::providers::all().iter().position(|provider| provider.info().id == info.id);
    FIRST_MARK + u32::try_from(index.unwrap_or_default()).unwrap_or_default()
}

/// What is on the `PATH` now, without asking any program.
pub fn at_first() -> Vec<Detection> {
    crate::providers::all()
        .iter()
        .map(|provider| provider.info())
        .map(|i| first(i, find(i).is_some()))
        .collect()
}

fn first(info: &'static Info, is_found: bool) -> Detection {
    let is_there = is_found || info.program == Program::Itself;
    Detection {
        provider: info.id,
        presence: if is_there { Presence::Present } else { Presence::Absent },
        has_key: !info.env_key.is_empty() && env::var_os(info.env_key).is_some_and(|key| !key.is_empty()),
        login: None,
    }
}

fn find(info: &Info) -> Option<FileMark> {
    let Program::OnPath(program, _) = info.program else { return None };
    mark_on_path(program)
}

fn mark_on_path(program: &str) -> Option<FileMark> {
    let (path, file) = on_path(program)?;
    Some(FileMark { path, inode: file.ino(), changed: (file.ctime(), file.ctime_nsec()) })
}

fn version_in(answer: Option<&(String, bool)>) -> String {
    let words = answer.map(|(text, _)| text.as_str()).unwrap_or_default().split_whitespace();
    let number = words.into_iter().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let number = number.unwrap_or("unknown").trim_end_matches(['.', ',', ')']);
    let printable = number.chars().filter(|c| !c.is_control());
    printable.take(VERSION_CHARS).collect()
}

fn login_in(file: &StateFile, account: &Extra) -> Option<Login> {
    (file.read)(&json_in(&place_of(file, account)?)?)
}

fn place_of(file: &StateFile, account: &Extra) -> Option<PathBuf> {
    let variable = |name: &str| match account.set.get(name) {
        Some(set) => set.as_ref().map(OsString::from),
        None => env::var_os(name),
    };
    place_below(Path::new(&env::var_os("HOME")?), file.path, &variable)
}

fn shown_place(file: &StateFile, account: &Extra) -> String {
    let own = place_of(file, account).filter(|_| !account.set.is_empty());
    own.map_or_else(|| format!("~/{}", file.path), |place| place.display().to_string())
}

/// The version of the npm package of this name, if the program stands in it.
fn packaged_version(name: &str, program: &Path) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let file = program.canonicalize().ok()?;
    let packages = file.ancestors().skip(1).take(PACKAGE_LEVELS);
    let package = packages.filter_map(|folder| json_in(&folder.join("package.json")));
    let version =
        package.into_iter().find(|package| package["name"] == name)?["version"].as_str()?.to_owned();
    Some(version).filter(|version| !version.is_empty())
}

/// What a file that is not too large says in JSON.
fn json_in(path: &Path) -> Option<Value> {
    if !path.metadata().is_ok_and(|data| data.is_file() && data.len() <= FILE_BYTES) {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
