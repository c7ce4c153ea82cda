//! Putting the daemon together, and taking it apart: the order of both stands here and nowhere else.

use super::host::Host;
use super::http::{self, Bound, Policy};
use super::lock::{Lock, LockError};
use super::outbox::{Outbox, state_body};
use super::process::Processes;
use super::service::Service;
use super::signals::Signals;
use super::state_thread::{Core, StateThread};
use super::store::{Store, Told};
use super::threads::Thread;
use super::ws::Hub;
use super::{clock, detect, folder, logger};
use crate::agents::worker::Runs;
use crate::agents::worker_jobs::Jobs;
use crate::agents::worker_log::LogStore;
use crate::agents::working_folder;
use crate::context::{self, worker_documents};
use crate::core::{Event, Project, State};
use crate::credentials::Vault;
use crate::federation::api::ENVELOPE_PATH;
use crate::federation::worker::Keeper;
use crate::gateways::worker::Gateways;
use crate::integrations::{self, worker::Servers};
use crate::journalist::worker::Writer;
use crate::market::worker_client::Marketplace;
use crate::market::worker_links::Links;
use crate::oversight::worker_cleanup::Cleaner;
use crate::teams::worker::PlanReader;
use crate::workspace;
use crate::workspace::worker_import::Imports;
use crate::workspace::worker_index::Indexer;
use crate::workspace::worker_watch::Watcher;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What `svc start` asks for.
pub struct DaemonOptions {
    /// The project's root; its state goes to `.svc/` in there.
    pub project_dir: PathBuf,
    /// `--host`: the address to bind instead of the configured one.
    pub host: Option<String>,
    /// `--port`: the port to bind instead of the configured one; 0 takes any.
    pub port: Option<u16>,
    /// Whether standard error is `.svc/daemon.log` already (`svc start --background`), so that the daemon
    /// writes each log line once.
    pub stderr_is_log: bool,
    /// Called once when the daemon accepts connections and its port file is written.
    pub on_ready: Box<dyn FnOnce(&Listening) + Send>,
}

/// Where a daemon that accepts connections is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// For example `http://127.0.0.1:31415`, without a slash at the end.
    pub url: String,
    /// The port really bound.
    pub port: u16,
}

/// Why the daemon did not start, or did not end well.
#[derive(Debug)]
pub struct DaemonError {
    /// 1: it failed. 2: it was asked for something impossible.
    pub exit_code: u8,
    /// For people.
    pub message: String,
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DaemonError {}

fn failed(message: impl fmt::Display) -> DaemonError {
    DaemonError { exit_code: 1, message: message.to_string() }
}

/// How long open connections may finish when the daemon ends.
const CONNECTION_GRACE: Duration = Duration::from_secs(3);

/// Runs the daemon until it is told to end.
///
/// Errors: the folder cannot be used, another daemon has the project, no port is free.
pub fn run(options: DaemonOptions) -> Result<(), DaemonError> {
    let project_dir = options
        .project_dir
        .canonicalize()
        .map_err(|error| failed(format!("the project folder {}: {error}", options.project_dir.display())))?;
    let state_folder = folder::prepare(&project_dir).map_err(failed)?;
    logger::start(&state_folder, options.stderr_is_log);
    let mut lock = Lock::take(&state_folder).map_err(|error| match error {
        LockError::Held(whose) => failed(format!(
            "a daemon of this project runs already ({whose}); stop it with svc stop, or use it as it is"
        )),
        LockError::Io(error) => failed(format!("the lock file cannot be used: {error}")),
    })?;
    let unclean = lock.left_unclean();
    let started_at = clock::now();
    let mut state = folder::load(&state_folder, started_at).map_err(failed)?;
    let bound = bind(&options, &state)?;
    let project = Project {
        dir: project_dir,
        program: std::env::current_exe().ok(),
        pid: std::process::id(),
        started_at,
        host: bound.address.ip().to_string(),
        port: bound.address.port(),
    };
    state.context = Arc::new(context::State::new(worker_documents::read(&project.dir)));
    state.project = Arc::new(project);
    let processes =
        Processes::start().map_err(|error| failed(format!("processes cannot be owned: {error}")))?;
    if unclean {
        end_leftovers(&processes, &state);
    }
    let logs =
        LogStore::open(&state_folder.join("logs")).map_err(|e| failed(format!("the agents' logs: {e}")))?;
    let daemon = Daemon::start(state, bound, &state_folder, processes, &Arc::new(logs)).map_err(failed)?;
    let project = Arc::clone(&daemon.core.snapshot().project);
    lock.publish(&project).map_err(|error| failed(format!("the port file: {error}")))?;
    (options.on_ready)(&Listening { url: project.url(), port: project.port });
    daemon.wait();
    lock.release();
    Ok(())
}

fn bind(options: &DaemonOptions, state: &State) -> Result<Bound, DaemonError> {
    let config = state.settings.config();
    let host = options.host.as_deref().unwrap_or(&config.host);
    let port = options.port.unwrap_or(config.port);
    http::bind(host, port, http::CONFLICT_WAIT)
        .map_err(|error| DaemonError { exit_code: error.exit_code(), message: error.to_string() })
}

/// Ends what an earlier daemon that was killed has left running.
fn end_leftovers(processes: &Processes, state: &State) {
    let leftovers = processes.sweep_leftovers(&state.project.dir, &[]);
    if leftovers.found > 0 {
        log::warn!(
            "an earlier daemon had left {} processes of its agents; {} could not be ended",
            leftovers.found,
            leftovers.remaining
        );
    }
    let native = state.agents.iter().filter(|agent| {
        !agent.integrations.is_empty() && integrations::instructions::is_native(&agent.provider)
    });
    for agent in native {
        integrations::worker_mcp_file::clean(&working_folder(state, agent));
    }
}

/// The running threads. Fields in the order in which they end.
struct Daemon {
    _signals: Signals,
    server: http::Server,
    core: Core,
    state: Thread,
    _detection: Thread,
    indexing: Indexing,
    _documents: worker_documents::Watch,
    processes: Arc<Processes>,
}

impl Daemon {
    fn start(
        state: State,
        bound: Bound,
        folder: &std::path::Path,
        processes: Arc<Processes>,
        logs: &Arc<LogStore>,
    ) -> std::io::Result<Self> {
        let project_dir = state.project.dir.clone();
        let (core, thread) = Core::new(state);
        let snapshot = core.clone();
        let hub = Hub::start(clock::now().0.saturating_mul(1000), move || state_body(&snapshot.snapshot()))?;
        let vault = Arc::new(Vault::start(folder).map_err(std::io::Error::other)?);
        let federation = Keeper::new(folder, clock::now());
        let operator_token = std::env::var("SVC_OPERATOR_TOKEN").ok().filter(|token| !token.is_empty());
        let mut policy = Policy::local(bound.address.ip(), token(folder, &bound, operator_token.clone())?);
        policy.signed_path = Some(ENVELOPE_PATH);
        let config = http::Config { limits: http::Limits::default(), policy, server: "svc" };
        let host = Arc::new(Host {
            project: project_dir.clone(),
            logs: Arc::clone(logs),
            vault: Arc::clone(&vault),
            processes: Arc::clone(&processes),
            indexer: Arc::new(Indexer::new(project_dir.clone())),
            market: Marketplace::new(),
            federation,
            counters: OnceLock::new(),
        });
        let hub_handle = hub.handle();
        let service = Service {
            core: core.clone(),
            host: Arc::clone(&host),
            table: crate::routes::table(),
            hub: hub_handle.clone(),
            listener: Arc::new(Watcher::new(project_dir.clone(), hub_handle.clone())),
            operator_token,
        };
        let outbox = outbox(&core, hub, folder, &project_dir, &processes, logs, vault)?;
        let state = spawn_state_thread(thread, outbox)?;
        let server = http::Server::start(bound, config, Arc::new(service))?;
        let stats = server.stats();
        let counters = move || stats.counters().into_iter().chain(hub_handle.counters()).collect();
        // Set once, here.
        let _ = host.counters.set(Box::new(counters));
        let to_core = core.clone();
        let signals = Signals::start(move || to_core.control(Event::Terminate))?;
        let documents = watch_documents(&core, &project_dir)?;
        let detection = start_detection(&core, &processes, project_dir)?;
        let indexing = start_indexing(&core, &host.indexer)?;
        Ok(Self {
            _signals: signals,
            server,
            core,
            state,
            _detection: detection,
            indexing,
            _documents: documents,
            processes,
        })
    }

    /// Waits until the state thread has ended, and takes everything apart.
    fn wait(self) {
        let Self {
            _signals: signals,
            server,
            core,
            state,
            _detection: detection,
            indexing,
            _documents: documents,
            processes,
        } = self;
        drop(state);
        drop(documents);
        drop(core);
        indexing.indexer.stop();
        server.stop(CONNECTION_GRACE);
        drop(detection);
        drop(indexing);
        let strays = processes.sweep_strays();
        if strays.leaked > 0 {
            log::error!("leaked: {} processes could not be ended", strays.leaked);
        } else {
            log::info!("leaked: 0");
        }
        drop(signals);
    }
}

fn outbox(
    core: &Core,
    hub: Hub,
    folder: &std::path::Path,
    project: &std::path::Path,
    processes: &Arc<Processes>,
    logs: &Arc<LogStore>,
    vault: Arc<Vault>,
) -> std::io::Result<Outbox> {
    let to_core = core.clone();
    let report = Arc::new(move |agent, report| to_core.report(Event::Run(agent, report)));
    let runs = Runs::new(Arc::clone(processes), Arc::clone(logs), report);
    let to_core = core.clone();
    let report = Arc::new(move |report| to_core.report(Event::Job(report)));
    let jobs = Jobs::new(Arc::clone(processes), Arc::clone(logs), project.to_path_buf(), report);
    let to_core = core.clone();
    let report = Arc::new(move |report| to_core.report(Event::Integration(report)));
    let servers = Servers::new(Arc::clone(processes), project.to_path_buf(), Arc::clone(&vault), report);
    let to_core = core.clone();
    let store = Store::start(folder.to_path_buf(), Arc::clone(logs), move |told| match told {
        Told::Trouble(trouble) => to_core.control(Event::Storage(trouble)),
        Told::Stored(timer) => to_core.report(Event::Timer(timer)),
    })?;
    let gateways = Gateways::new(core.clone(), Arc::clone(&vault), Arc::clone(logs));
    let to_core = core.clone();
    let journalist = Writer::start(project.to_path_buf(), move |report| {
        to_core.report(Event::Journalist(report));
    })?;
    let links = Arc::new(Links::start(project));
    let to_core = core.clone();
    let (theirs, ours) = (Arc::clone(logs), Arc::clone(processes));
    let cleaner = Cleaner::start(project.to_path_buf(), theirs, ours, move |report| {
        to_core.report(Event::Cleanup(report));
    })?;
    let to_core = core.clone();
    let report = Arc::new(move |id, progress| {
        to_core.report(Event::Workspace(workspace::Report::Import(id, progress)));
    });
    let imports = Imports::new(Arc::clone(processes), project.to_path_buf(), report);
    let plans = PlanReader::start(core.clone(), project.to_path_buf())?;
    Ok(Outbox {
        core: core.clone(),
        vault,
        gateways,
        links,
        jobs,
        imports,
        plans,
        runs,
        servers,
        hub,
        journalist,
        cleaner,
        store,
    })
}

fn spawn_state_thread(thread: StateThread, mut outbox: Outbox) -> std::io::Result<Thread> {
    Thread::with_stack("state", 2 << 20, move || {
        thread.run(&mut outbox);
    })
}

/// The operator token of a daemon that listens beyond this machine: the `given` one, or one made on first
/// use.
fn token(folder: &std::path::Path, bound: &Bound, given: Option<String>) -> std::io::Result<Option<String>> {
    if bound.address.ip().is_loopback() {
        return Ok(None);
    }
    if given.is_some() {
        return Ok(given);
    }
    let path = folder.join("token");
    if let Ok(token) = std::fs::read_to_string(&path) {
        return Ok(Some(token.trim().to_owned()));
    }
    let token = format!("{:016x}{:016x}", clock::random(), clock::random());
    super::store::replace(&path, format!("{token}\n").as_bytes())?;
    Ok(Some(token))
}

fn watch_documents(core: &Core, project: &std::path::Path) -> std::io::Result<worker_documents::Watch> {
    let known = core.snapshot().context.architecture().cloned();
    let core = core.clone();
    worker_documents::Watch::start(project, known, move |report| core.control(Event::Context(report)))
}

fn start_detection(core: &Core, processes: &Arc<Processes>, project: PathBuf) -> std::io::Result<Thread> {
    let (core, processes) = (core.clone(), Arc::clone(processes));
    Thread::spawn("detect", move || {
        let found = detect::detect(&processes, &project);
        core.control(Event::Detected(found));
    })
}

/// The first scan of the codebase. Dropping it waits for a scan that was told to stop.
struct Indexing {
    indexer: Arc<Indexer>,
    _thread: Thread,
}

/// Scans the codebase once, beside everything else: nobody waits for it.
fn start_indexing(core: &Core, indexer: &Arc<Indexer>) -> std::io::Result<Indexing> {
    let (core, theirs) = (core.clone(), Arc::clone(indexer));
    let thread = Thread::spawn("indexer", move || match theirs.scan(clock::now()) {
        Ok(index) => core.report(Event::Workspace(workspace::Report::Indexed(Arc::new(index)))),
        Err(error) => log::info!("{error}"),
    })?;
    Ok(Indexing { indexer: Arc::clone(indexer), _thread: thread })
}
