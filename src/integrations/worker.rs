//! The servers' processes and the threads around them.
//!
//! ```text
//! mcp-<id>      starts the program, waits for its end or the order to stop it, sweeps, joins, reports it
//! mcp-out-<id>  standard output -> lines -> protocol -> reports, answers to the server
//! mcp-in-<id>   orders and answers -> standard input
//! mcp-err-<id>  standard error -> log
//! ```
//!
//! A server is ended as its protocol has it: its standard input is closed, then TERM, then KILL.
//!
//! **Invariant:** each [`Order::Start`] ends with exactly one [`Report::Exited`]; then no process of it is
//! left.

use super::protocol::{Ask, Client, Step};
use super::worker_pipes::{ServerLog, read_errors, read_output, write_input};
use super::{Order, Report, RunId, ServerSpec};
use super::{worker_install, worker_oauth};
use crate::core::CallId;
use crate::credentials::Vault;
use crossbeam_channel::{Receiver, Sender, bounded, select};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use svc_base::percent;
use svc_sys::process::{Exit, Identity, Marker, Processes, Running, Sink, Source, Spec, Stdin, Wake};
use svc_sys::threads::{Thread, lock};

/// Orders and answers that wait to be written to one server; at more it is ended.
const MAX_QUEUED: usize = 1024;
/// Between closing a server's standard input and TERM.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// Between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long pipes may stay open after every process is gone.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

type Reporter = Arc<dyn Fn(Report) + Send + Sync>;

/// Takes orders and never makes its caller wait. Dropping it ends every server and joins all threads.
pub struct Servers {
    means: Arc<Means>,
    live: HashMap<RunId, Arc<Server>>,
    threads: Vec<Thread>,
    /// Dropped to end what is being installed.
    cancel: Option<Sender<()>>,
    cancelled: Receiver<()>,
}

/// What the threads need.
pub(super) struct Means {
    pub processes: Arc<Processes>,
    pub project: PathBuf,
    pub vault: Arc<Vault>,
    pub report: Reporter,
}

/// What the threads of one server share.
pub(super) struct Server {
    run: RunId,
    pub id: String,
    pub client: Mutex<Client>,
    /// `None` once the server is being ended.
    input: Mutex<Option<Sender<Item>>>,
    /// Rung to end the server.
    bell: (Sender<()>, Receiver<()>),
    /// Why it was ended, if not by an order.
    trouble: Mutex<Option<String>>,
    pub log: ServerLog,
    report: Reporter,
    /// Disconnected when the server is gone.
    gone: Receiver<()>,
}

/// For a server's standard input.
#[derive(Debug)]
pub(super) enum Item {
    Line(String),
    Ask(CallId, Ask),
    /// Nobody waits for it any more.
    Cancel(CallId),
}

impl Server {
    /// Ends the server; never blocks.
    fn stop(&self) {
        // A bell that rings already is enough.
        let _ = self.bell.0.try_send(());
    }

    /// Ends the server for a reason of ours.
    pub fn give_up(&self, why: String) {
        lock(&self.trouble).get_or_insert(why);
        self.stop();
    }

    /// Queues something for its standard input; never blocks.
    fn push(&self, item: Item) {
        let input = lock(&self.input);
        let is_full = input.as_ref().is_some_and(|input| input.try_send(item).is_err());
        drop(input);
        if is_full {
            self.give_up(format!("{MAX_QUEUED} messages wait for it to read its standard input"));
        }
    }

    /// Does what the protocol wants done; `write` takes the lines.
    pub fn perform(&self, steps: Vec<Step>, mut write: impl FnMut(String)) {
        for step in steps {
            match step {
                Step::Write(line) => write(line),
                Step::Ready(protocol, name) => (self.report)(Report::Ready(self.run, protocol, name)),
                Step::Refused(why) => self.give_up(why),
                Step::Answer(call, result) => {
                    let result = result.map_err(|words| self.log.masked(&words));
                    (self.report)(Report::Answered(self.run, call, result));
                }
                Step::Note(text) => self.log.line("note", &text),
            }
        }
    }

    /// Takes a line of its standard output.
    pub fn heard(&self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice(line) else {
            return self.log.line("out", &String::from_utf8_lossy(line));
        };
        let mut steps = Vec::new();
        lock(&self.client).message(message, &mut steps);
        self.perform(steps, |line| self.push(Item::Line(line)));
    }
}

impl Servers {
    /// None yet. `project` is the root, which has `.svc`.
    pub fn new(processes: Arc<Processes>, project: PathBuf, vault: Arc<Vault>, report: Reporter) -> Self {
        let (cancel, cancelled) = bounded(0);
        let means = Arc::new(Means { processes, project, vault, report });
        Self { means, live: HashMap::new(), threads: Vec::new(), cancel: Some(cancel), cancelled }
    }

    /// Does as ordered, without waiting for it.
    pub fn order(&mut self, order: Order) {
        self.threads.retain(|thread| !thread.is_finished());
        let is_alive = |server: &Arc<Server>| {
            server.gone.try_recv() != Err(crossbeam_channel::TryRecvError::Disconnected)
        };
        self.live.retain(|_, server| is_alive(server));
        match order {
            Order::Start(run, spec) => self.start(run, *spec),
            Order::Ask(run, call, ask) => self.push(run, Item::Ask(call, ask)),
            Order::Cancel(run, call) => self.push(run, Item::Cancel(call)),
            Order::Stop(run) => {
                if let Some(server) = self.live.get(&run) {
                    server.stop();
                }
            }
            Order::Exchange(call, order) => {
                let means = Arc::clone(&self.means);
                let id = order.id.clone();
                let failed = move |error| Report::Exchanged(call, id, Err(error));
                self.spawn("mcp-oauth", failed, move || {
                    let result = worker_oauth::exchange(&means.vault, &order);
                    (means.report)(Report::Exchanged(call, order.id.clone(), result));
                });
            }
            Order::Install(order) => {
                let (means, cancelled) = (Arc::clone(&self.means), self.cancelled.clone());
                let id = order.id.clone();
                let failed = move |error| Report::Installed(id, Err(error));
                self.spawn("mcp-install", failed, move || {
                    let result = worker_install::install(&means, &order, &cancelled);
                    (means.report)(Report::Installed(order.id.clone(), result));
                });
            }
            Order::Remove(id) => {
                let of_id = self.live.values().filter(|server| server.id == id);
                let gone: Vec<Receiver<()>> = of_id.map(|server| server.gone.clone()).collect();
                let means = Arc::clone(&self.means);
                let name = id.clone();
                let failed = move |error| Report::Removed(name, Err(error));
                self.spawn("mcp-remove", failed, move || {
                    for server in gone {
                        // Ends by disconnection.
                        let _ = server.recv();
                    }
                    let result = worker_install::remove(&means, &id);
                    (means.report)(Report::Removed(id, result));
                });
            }
        }
    }

    /// A run that is gone has reported its end, which fails its calls: nothing more is to be done for it.
    fn push(&self, run: RunId, item: Item) {
        if let Some(server) = self.live.get(&run) {
            server.push(item);
        }
    }

    fn start(&mut self, run: RunId, spec: ServerSpec) {
        let (input, orders) = bounded(MAX_QUEUED);
        let (alive, gone) = bounded::<()>(0);
        let server = Arc::new(Server {
            run,
            id: spec.id.clone(),
            client: Mutex::new(Client::new(root_for(&self.means.project, &spec.args))),
            input: Mutex::new(Some(input)),
            bell: bounded(1),
            trouble: Mutex::default(),
            log: ServerLog::new(&self.means.project, &spec.id),
            report: Arc::clone(&self.means.report),
            gone,
        });
        self.live.insert(run, Arc::clone(&server));
        let means = Arc::clone(&self.means);
        let failed = move |error| Report::Exited(run, error);
        self.spawn(&format!("mcp-{}", spec.id), failed, move || {
            let how = live(&means, &server, &spec, orders);
            let how = lock(&server.trouble).take().unwrap_or(how);
            let how = server.log.masked(&how);
            server.log.line("end", &how);
            drop(alive);
            (means.report)(Report::Exited(run, how));
        });
    }

    /// Runs `body` on a thread; without one, `failed` makes the report that the core waits for.
    fn spawn(
        &mut self,
        name: &str,
        failed: impl FnOnce(String) -> Report + Send + 'static,
        body: impl FnOnce() + Send + 'static,
    ) {
        match Thread::spawn(name, body) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                log::error!("no thread {name}: {error}");
                // From the core's own thread; the lane has room for the rare case that the system has no
                // thread.
                (self.means.report)(failed(format!("no thread for it: {error}")));
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.cancel = None;
        for server in self.live.values() {
            server.stop();
        }
        self.threads.clear();
    }
}

/// The project's root, unless the arguments name a folder: server-filesystem, for one, takes a client's roots
/// in place of its arguments, which would both take away what it was given and open what it was not.
fn root_for(project: &Path, args: &[String]) -> Option<String> {
    let is_folder = |arg: &String| {
        let value = arg.split_once('=').map_or(arg.as_str(), |(_, value)| value);
        let value = value.strip_prefix("file://").unwrap_or(value);
        !value.is_empty() && (value.ends_with('/') || value.starts_with('~') || project.join(value).is_dir())
    };
    (!args.iter().any(is_folder)).then(|| file_uri(project))
}

/// The project's root for `roots/list`.
fn file_uri(path: &Path) -> String {
    let parts: Vec<String> = path.to_string_lossy().split('/').map(percent::encode).collect();
    format!("file://{}", parts.join("/"))
}

/// A server's life; how it ended.
fn live(means: &Means, server: &Arc<Server>, spec: &ServerSpec, orders: Receiver<Item>) -> String {
    let marker = Marker { agent: spec.marker, project_dir: means.project.clone() };
    let started = credentials(means, server, spec).and_then(|env| {
        let spec = process_spec(means, spec, &env, &marker);
        means.processes.spawn_tied(&spec).map_err(|error| error.to_string())
    });
    let running = match started {
        Ok(running) => running,
        Err(error) => return error,
    };
    let (identity, exit_channel) = (running.identity, running.exit.clone());
    let mut threads = match Threads::start(server, running, orders) {
        Ok(threads) => threads,
        Err(error) => {
            means.processes.stop_tree(identity, Some(&marker), Duration::ZERO);
            return format!("its threads could not be started: {error}");
        }
    };
    let mut steps = Vec::new();
    lock(&server.client).open(&mut steps);
    server.perform(steps, |line| server.push(Item::Line(line)));
    let exit = select! {
        recv(exit_channel) -> exit => exit.ok(),
        recv(server.bell.1) -> _ => None,
    };
    let exit = exit.or_else(|| {
        lock(&server.input).take();
        exit_channel.recv_timeout(CLOSE_GRACE).ok()
    });
    lock(&server.input).take();
    let exit = end(means, identity, &marker, exit, &exit_channel);
    threads.join();
    describe(exit, server.log.last_words().as_deref())
}

/// The credentials of a server in plain text; an access token that is due is renewed first.
fn credentials(means: &Means, server: &Server, spec: &ServerSpec) -> Result<Vec<(String, String)>, String> {
    let mut env = means.vault.variables(&spec.secrets)?;
    server.log.hide(env.iter().map(|(_, value)| value.clone()).collect());
    let Some(renewal) = &spec.renewal else { return Ok(env) };
    let tokens = worker_oauth::exchange(&means.vault, renewal)
        .map_err(|error| format!("its access token could not be renewed: {error}"))?;
    let renewed = [(&renewal.refresh_name, &tokens.refresh)];
    let access = renewal.access_name.iter().map(|name| (name, &tokens.access));
    for (name, sealed) in renewed.into_iter().chain(access) {
        if let Some(sealed) = sealed {
            let key = name.rsplit('/').next().unwrap_or_default();
            env.push((key.to_owned(), means.vault.open(name, sealed)?.expose().to_owned()));
        }
    }
    server.log.hide(env.iter().map(|(_, value)| value.clone()).collect());
    (means.report)(Report::Renewed(spec.id.clone(), tokens));
    Ok(env)
}

/// Ends what is left of a server.
fn end(
    means: &Means,
    identity: Identity,
    marker: &Marker,
    exit: Option<Exit>,
    exit_channel: &Receiver<Exit>,
) -> Exit {
    let report = if exit.is_some() {
        means.processes.sweep(identity, Some(marker))
    } else {
        means.processes.stop_tree(identity, Some(marker), TERM_GRACE)
    };
    if report.leaked > 0 {
        log::error!("{} processes of a tool server could not be ended", report.leaked);
    }
    exit.unwrap_or_else(|| exit_channel.recv_timeout(DRAIN_LIMIT).unwrap_or_default())
}

fn describe(exit: Exit, last_words: Option<&str>) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    };
    last_words.map_or_else(|| how.clone(), |words| format!("{how}; its last words: {words}"))
}

/// The variables a server gets from the daemon's own: what programs need to run at all, and to reach the
/// network. Never a provider's key. A trailing `*` takes all with that prefix.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_*",
    "TERM",
    "TMPDIR",
    "TZ",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
];

/// The allowed ones of the daemon's own variables, `more` patterns included.
pub(super) fn inherited(more: &[&str]) -> Vec<(OsString, OsString)> {
    let is_allowed = |name: &str| {
        PASSED.iter().chain(more).any(|pattern| {
            pattern.strip_suffix('*').map_or(*pattern == name, |prefix| name.starts_with(prefix))
        })
    };
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_allowed)).collect()
}

fn process_spec(means: &Means, spec: &ServerSpec, credentials: &[(String, String)], marker: &Marker) -> Spec {
    let mut env = inherited(&[]);
    env.extend(credentials.iter().map(|(name, value)| (name.into(), value.into())));
    Spec {
        program: (&spec.program).into(),
        args: spec.args.iter().map(OsString::from).collect(),
        env,
        cwd: means.project.clone(),
        stdin: Stdin::Piped,
        marker: Some(marker.clone()),
    }
}

/// The threads at a server's pipes.
struct Threads {
    /// Dropped to end the readers and the writer.
    wakes: Vec<Wake>,
    /// Disconnected when both readers have ended.
    readers: Receiver<()>,
    handles: Vec<Thread>,
}

impl Threads {
    fn start(server: &Arc<Server>, running: Running, orders: Receiver<Item>) -> io::Result<Self> {
        let stdin = running.stdin.ok_or_else(|| io::Error::other("no standard input"))?;
        let (sink, input_wake) = Sink::new(stdin)?;
        let (out, out_wake) = Source::new(running.stdout)?;
        let (err, err_wake) = Source::new(running.stderr)?;
        let (alive, readers) = bounded::<()>(0);
        let mut all = Self { wakes: vec![input_wake, out_wake, err_wake], readers, handles: Vec::new() };
        let (shared, held) = (Arc::clone(server), alive.clone());
        all.spawn("out", server, move || {
            let _held = held;
            read_output(&shared, out);
        })?;
        let shared = Arc::clone(server);
        all.spawn("err", server, move || {
            let _held = alive;
            read_errors(&shared, err);
        })?;
        let shared = Arc::clone(server);
        all.spawn("in", server, move || write_input(&shared, sink, &orders))?;
        Ok(all)
    }

    fn spawn(&mut self, pipe: &str, server: &Server, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.handles.push(Thread::spawn(&format!("mcp-{pipe}-{}", server.id), body)?);
        Ok(())
    }

    /// Every process is gone, so the pipes end by themselves; if one does not, its thread is told to.
    fn join(&mut self) {
        let _ = self.readers.recv_timeout(DRAIN_LIMIT);
        self.wakes.clear();
        self.handles.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_no_root_of_a_server_whose_arguments_name_its_folders() {
        let folder = std::env::temp_dir();
        let root =
            |args: &[&str]| root_for(&folder, &args.iter().map(|arg| (*arg).into()).collect::<Vec<_>>());
        let inside = folder.file_name().map(|_| ".").unwrap_or_default();
        for own in [&["-y", "pkg", "/"][..], &[inside], &["--dir=/"], &["~/notes"], &["file:///"], &["new/"]]
        {
            assert_eq!(root(own), None, "{own:?}");
        }
        for none in [&[][..], &["-y", "@scope/server", "--port", "80"], &["server.js"], &["--log="]] {
            assert!(root(none).is_some_and(|root| root.starts_with("file:///")), "{none:?}");
        }
    }
}
