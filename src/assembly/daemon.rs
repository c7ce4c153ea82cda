//! Putting the daemon together, and taking it apart: the order of both stands here and nowhere else.

use super::agent_tokens::AgentTokens;
use super::detect::Programs;
use super::door::{self, Desk, Door};
use super::fleet::Fleet;
use super::host::Host;
use super::lock::{Lock, LockError};
use super::outbox::{FRAMES, Outbox, state_body};
use super::phone_service::{self, PhoneService};
use super::service::Service;
use super::shared_replies::SharedReplies;
use super::state_thread::{Core, RunningCore, StateThread};
use super::tokens::{self, Tokens};
use super::{caller, detect, folder};
use crate::agents::worker;
use crate::agents::worker_log::LogStore;
use crate::agents::working_folder;
use crate::console::worker_sessions::Sessions;
use crate::context::{self, worker_documents};
use crate::core::time::Time;
use crate::core::{Event, Project, State};
use crate::credentials::Vault;
use crate::credentials::worker::KEY_FILE;
use crate::federation::worker::Keeper;
use crate::integrations;
use crate::market::worker_client::Marketplace;
use crate::phones::worker_door;
use crate::programs::registry;
use crate::recall::worker as recall;
use crate::record::worker_tape::{Recorder, Tape};
use crate::settings::Config;
use crate::workspace;
use crate::workspace::worker_index::Indexer;
use crate::workspace::worker_map::Mapper;
use crate::workspace::worker_watch::Watcher;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use svc_sys::http::{self, Bound, Policy};
use svc_sys::process::Processes;
use svc_sys::signals::Signals;
use svc_sys::threads::Thread;
use svc_sys::ws::{Hub, HubHandle};
use svc_sys::{clock, confine, control_group, logger, memory, reserve, secrets};

/// What `svc start` asks for.
pub struct DaemonOptions {
    /// The project's root; its state goes to `.svc/` in there.
    pub project_dir: PathBuf,
    /// `--host`: the address to bind instead of the configured one.
    pub host: Option<String>,
    /// `--port`: the port to bind, this one or none, instead of the configured one; 0 takes any.
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
    /// Proves a person to the console, once: the part of a link after `#code=`.
    pub code: Option<String>,
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

/// The state of an earlier daemon, its runs that their keepers have kept, and whether others ended with it.
fn load(
    project_dir: &Path,
    state_folder: &Path,
    now: Time,
) -> Result<(State, Vec<worker::Kept>, bool), DaemonError> {
    let mut found = worker::Found::default();
    let find_kept = |config: &Config| {
        found = worker::find_kept(project_dir, config.keeper.orphan());
        found.kept.iter().map(|kept| kept.agent).collect()
    };
    let mut state = folder::load(state_folder, find_kept, now).map_err(failed)?;
    let has_lost = state.agents.has_lost();
    let worker::Found { kept, begun, replaced } = found;
    Arc::make_mut(&mut state.agents).tell_replaced(now, replaced);
    Arc::make_mut(&mut state.agents).tell_unbegun(|agent| begun.contains(&agent));
    Ok((state, kept, has_lost))
}

/// Runs the daemon until it is told to end.
///
/// Errors: the folder cannot be used, another daemon has the project, no port is free.
pub fn run(options: DaemonOptions) -> Result<(), DaemonError> {
    memory::share_pools();
    secrets::keep_memory();
    let project_dir = options
        .project_dir
        .canonicalize()
        .map_err(|error| failed(format!("the project folder {}: {error}", options.project_dir.display())))?;
    let state_folder = folder::prepare(&project_dir).map_err(failed)?;
    logger::start(&state_folder, options.stderr_is_log);
    reserve::fill();
    let mut lock = Lock::take(&state_folder).map_err(not_locked)?;
    let unclean = lock.left_unclean();
    let started_at = clock::now();
    if let Err(error) = worker::note_project(&project_dir) {
        log::warn!("rooms of other projects show the state of this one: it cannot be noted: {error}");
    }
    let (mut state, kept, has_lost) = load(&project_dir, &state_folder, started_at)?;
    let processes =
        Processes::start().map_err(|error| failed(format!("processes cannot be owned: {error}")))?;
    let bound = bind(&options, &state)?;
    let mut seat = door::join(&project_dir, started_at);
    let project = Project {
        dir: project_dir,
        name: seat.as_ref().map(|seat| seat.name().to_owned()).unwrap_or_default(),
        program: std::env::current_exe().ok(),
        pid: std::process::id(),
        started_at,
        host: bound.address.ip().to_string(),
        port: bound.address.port(),
        zone: jiff::tz::TimeZone::system().iana_name().unwrap_or_default().to_owned(),
        can_fence: confine::is_possible(),
        can_cage: false,
        no_cage: String::new(),
    };
    state.context = Arc::new(context::State::new(worker_documents::read(&project.dir)));
    let fleet = Fleet::new(&project.name);
    state.fleet = Arc::new(crate::fleet::State::new(fleet.others(&state, started_at), started_at));
    state.project = Arc::new(project);
    state.providers = Arc::new(registry::State::new(detect::at_first()));
    // Keepers and their agents are where this puts the daemon.
    match control_group::prepare() {
        Ok(()) => log::info!("each agent has a control group of its own"),
        Err(why) => log::info!("agents have no control groups of their own: {why}"),
    }
    caller::prepare();
    if unclean || has_lost {
        end_leftovers(&processes, &state, &kept);
    }
    let rooms: Vec<PathBuf> = kept.iter().filter_map(worker::Kept::room).collect();
    worker::remove_rooms(&state.project.dir, &rooms);
    let no_cage = worker::why_no_room(&processes);
    let project = Arc::make_mut(&mut state.project);
    project.can_cage = no_cage.is_none();
    project.no_cage = no_cage.unwrap_or_default();
    let project = Arc::clone(&state.project);
    // Whoever asks for any port does not want to be the one whom all find.
    let takes_door = options.port != Some(0);
    let desk = Desk::new(&project, bound.address, state.settings.config().door, takes_door).map(Arc::new);
    let started = Daemon::start(state, bound, &state_folder, processes, kept, &mut lock, desk);
    let daemon = match started {
        Ok(daemon) => daemon,
        Err(error) => {
            lock.release();
            return Err(failed(format!("the daemon cannot start: {error}")));
        }
    };
    let code = daemon.console.code(false, Instant::now()).ok();
    door::tell(seat.as_mut(), &project);
    (options.on_ready)(&Listening { url: project.url(), port: project.port, code });
    memory::let_go_of_code();
    daemon.wait();
    lock.release();
    Ok(())
}

fn not_locked(error: LockError) -> DaemonError {
    match error {
        LockError::Held(whose) => failed(format!(
            "a daemon of this project runs already ({whose}); stop it with svc stop, or use it as it is"
        )),
        LockError::Io(error) => failed(format!("the lock file cannot be used: {error}")),
    }
}

fn bind(options: &DaemonOptions, state: &State) -> Result<Bound, DaemonError> {
    let config = state.settings.config();
    let host = options.host.as_deref().unwrap_or(&config.host);
    let is_door = options.port.unwrap_or(config.port) == config.door && host == "127.0.0.1";
    if let Some(listener) = is_door.then(|| door::ask_for(&options.project_dir, config.door)).flatten() {
        let address = (std::net::Ipv4Addr::LOCALHOST, config.door).into();
        return Ok(Bound { listener, address });
    }
    let port = options.port.map_or(http::Port::Usual(config.port), http::Port::Named);
    http::bind(host, port, http::CONFLICT_WAIT)
        .map_err(|error| DaemonError { exit_code: error.exit_code(), message: error.to_string() })
}

/// Ends what an earlier daemon that was killed has left running.
fn end_leftovers(processes: &Processes, state: &State, kept: &[worker::Kept]) {
    let keepers: Vec<u32> = kept.iter().map(worker::Kept::keeper).collect();
    let leftovers = processes.sweep_leftovers(&state.project.dir, &keepers);
    if leftovers.found > 0 {
        log::warn!(
            "an earlier daemon had left {} processes of its agents; {} could not be ended",
            leftovers.found,
            leftovers.remaining
        );
    }
    let native = state.agents.iter().filter(|agent| {
        !agent.status.is_live()
            && !agent.integrations.is_empty()
            && integrations::instructions::is_native(&agent.provider)
    });
    for agent in native {
        integrations::worker_mcp_file::clean(&working_folder(state, agent));
    }
}

/// Lets metrics tell what connections and clients count.
fn count(host: &Host, server: &http::Server, hub: HubHandle) {
    let stats = server.stats();
    let counters = move || stats.counters().into_iter().chain(hub.counters()).collect();
    // Set once, here.
    let _ = host.counters.set(Box::new(counters));
}

/// The running threads. Fields in the order in which they end.
struct Daemon {
    signals: Signals,
    phones: Arc<worker_door::Door>,
    server: http::Server,
    core: Core,
    console: Arc<Sessions>,
    state: RunningCore,
    programs: Arc<Programs>,
    indexing: Indexing,
    door: Option<Door>,
    /// Of documents, and of what the logs say.
    watches: (worker_documents::Watch, recall::Indexing),
    processes: Arc<Processes>,
}

impl Daemon {
    fn start(
        state: State,
        bound: Bound,
        folder: &Path,
        processes: Arc<Processes>,
        mut kept: Vec<worker::Kept>,
        lock: &mut Lock,
        desk: Option<Arc<Desk>>,
    ) -> std::io::Result<Self> {
        let logs = LogStore::open(&folder.join("logs"));
        let logs = Arc::new(logs.map_err(|error| named("the agents' logs", &error))?);
        let (project, project_dir) = (Arc::clone(&state.project), state.project.dir.clone());
        let (core, thread, recorder) = recorded(state, folder);
        let (to_core, snapshot, seq) = (core.clone(), core.clone(), clock::now().0.saturating_mul(1000));
        // Before anything else runs: from here on a signal is an orderly end at any moment.
        let signals = Signals::start(move || to_core.control(Event::Terminate))?;
        let hub = Hub::start(seq, Some(&folder.join(FRAMES)), move || state_body(&snapshot.snapshot()))?;
        let vault = vault(folder, &core)?;
        let programs = Arc::new(Programs::new(core.clone(), Arc::clone(&processes)));
        let (console, phones) = (Arc::new(Sessions::default()), Arc::new(worker_door::Door::new(folder)));
        let agent_tokens = Arc::new(AgentTokens::open(folder)?);
        let host = Arc::new(Host {
            desk: desk.clone(),
            fleet: Fleet::new(&project.name),
            core: core.clone(),
            project: project_dir.clone(),
            logs: Arc::clone(&logs),
            console: Arc::clone(&console),
            phones: Arc::clone(&phones),
            vault,
            processes: Arc::clone(&processes),
            indexer: Arc::new(Indexer::new(project_dir.clone())),
            map: Arc::new(Mapper::new(project_dir.clone())),
            market: Marketplace::new(),
            federation: Keeper::new(folder, clock::now()),
            inlets: crate::inlets::worker::Brake::default(),
            programs: Arc::clone(&programs),
            snapshots: Arc::new(crate::snapshots::worker::Snapshots::open(&project_dir, &processes)?),
            recorder,
            counters: OnceLock::new(),
            strays: Mutex::default(),
        });
        let hub_handle = hub.handle();
        let service = Service {
            core: core.clone(),
            host: Arc::clone(&host),
            table: crate::assembly::routes::table(),
            hub: hub_handle.clone(),
            listener: Arc::new(Watcher::new(project_dir.clone(), hub_handle.clone())),
            tokens: tokens(folder, &bound)?,
            agent_tokens: Arc::clone(&agent_tokens),
            shared: SharedReplies::default(),
            desk: desk.clone(),
        };
        if kept.iter().any(|kept| kept.room().is_none()) {
            // They have worked without a room, and may have read it.
            service.tokens.expose();
        }
        let catch_up = worker::CatchUp::of(&mut kept);
        let outbox = Outbox::start(&core, hub, folder, &host, agent_tokens, kept)?;
        let state = RunningCore::start(core.clone(), thread, outbox)?;
        // Before the first request, so that nobody is told that what is installed is not.
        programs.look();
        // Nor that an agent works that has ended meanwhile.
        catch_up.wait();
        // Whoever is let in finds a daemon that stays: what may still be refused comes before.
        lock.publish(&project).map_err(|error| unpublished(&error))?;
        let server = serve(bound, service, hub_handle)?;
        let door = desk.and_then(|desk| Door::open(desk, server.handle()));
        let watches = (watch_documents(&core, &project_dir)?, recall::Indexing::start(Arc::clone(&logs))?);
        let indexing = start_indexing(&core, &host)?;
        Ok(Self {
            signals,
            phones,
            server,
            core,
            console,
            state,
            programs,
            indexing,
            door,
            watches,
            processes,
        })
    }

    /// Waits until the state thread has ended, and takes everything apart.
    fn wait(self) {
        self.state.wait();
        drop(self.door);
        drop(self.watches);
        drop(self.core);
        drop(self.indexing);
        self.programs.stop();
        self.phones.end();
        self.server.stop(CONNECTION_GRACE);
        let strays = self.processes.sweep_strays();
        if strays.leaked > 0 {
            log::error!("leaked: {} processes could not be ended", strays.leaked);
        } else {
            log::info!("leaked: 0");
        }
        drop(self.signals);
    }
}

fn named(what: &str, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn vault(folder: &Path, core: &Core) -> std::io::Result<Arc<Vault>> {
    let vault = Arc::new(Vault::start(folder).map_err(std::io::Error::other)?);
    let sealed = core.snapshot().credentials.iter().count();
    if sealed > 0 && !vault.has_key() {
        log::error!(
            "{sealed} credentials cannot be opened: {KEY_FILE} is missing; restore it, or set them again"
        );
    }
    Ok(vault)
}

/// Says what a person can do about a port file that cannot be written.
fn unpublished(error: &std::io::Error) -> std::io::Error {
    let text = format!(
        "the port file cannot be written: {error}; free space in .svc, or move away what stands in its place"
    );
    std::io::Error::new(error.kind(), text)
}

fn tokens(folder: &Path, bound: &Bound) -> std::io::Result<Tokens> {
    let operator = tokens::of_variable(std::env::var_os(tokens::VARIABLE))?;
    Tokens::open(folder, !bound.address.ip().is_loopback(), operator, secrets::random)
}

/// The core, and what records it where that is wanted. Without a recorder the daemon works all the same.
fn recorded(state: State, folder: &Path) -> (Core, StateThread, Option<Arc<Recorder>>) {
    let wanted = state.settings.config().record;
    let (core, thread) = Core::new(state);
    if !wanted.enabled {
        return (core, thread, None);
    }
    match Tape::start(folder, wanted.max_megabytes << 20) {
        Ok((tape, recorder)) => (core, thread.recorded_on(tape), Some(recorder)),
        Err(error) => {
            log::warn!("the flight recorder does not run: {error}");
            (core, thread, None)
        }
    }
}

/// Lets callers in, and phones where a person has said so.
fn serve(bound: Bound, service: Service, hub: HubHandle) -> std::io::Result<http::Server> {
    let (service, policy) = (Arc::new(service), Policy::local(bound.address.ip()));
    let config = http::Config { limits: http::Limits::default(), policy, server: "svc" };
    let server = http::Server::start(bound, config, Arc::clone(&service) as Arc<dyn http::Service>)?;
    serve_phones(&service.host.phones, &service, &service.core.snapshot());
    count(&service.host, &server, hub);
    Ok(server)
}

/// Lets phones in, where a person has said so. They keep no daemon from starting.
fn serve_phones(door: &Arc<worker_door::Door>, service: &Arc<Service>, state: &State) {
    let service = Arc::downgrade(service);
    door.set_serve(Box::new(move |bound, front, authority| {
        let service = service.upgrade().ok_or_else(|| std::io::Error::other("the daemon ends"))?;
        let (limits, policy) = (phone_service::limits(), Policy::only(authority));
        let config = http::Config { limits, policy, server: "svc" };
        http::Server::start_behind(Some(front), bound, config, Arc::new(PhoneService { service }))
    }));
    crate::phones::worker::resume(door, state);
}

fn watch_documents(core: &Core, project: &Path) -> std::io::Result<worker_documents::Watch> {
    let known = core.snapshot().context.architecture().cloned();
    let core = core.clone();
    worker_documents::Watch::start(project, known, move |report| core.control(Event::Context(report)))
}

/// The first scan of the codebase. Dropping it waits for a scan that was told to stop.
struct Indexing {
    indexer: Arc<Indexer>,
    map: Arc<Mapper>,
    _thread: Thread,
}

impl Drop for Indexing {
    fn drop(&mut self) {
        self.indexer.stop();
        self.map.stop();
    }
}

/// Scans the codebase once, beside everything else: nobody waits for it.
fn start_indexing(core: &Core, host: &Host) -> std::io::Result<Indexing> {
    let (indexer, map) = (&host.indexer, Arc::clone(&host.map));
    let (core, theirs) = (core.clone(), Arc::clone(indexer));
    let thread = Thread::spawn("indexer", move || match theirs.scan(clock::now()) {
        Ok(index) => core.report(Event::Workspace(workspace::Report::Indexed(Arc::new(index)))),
        Err(error) => log::info!("{error}"),
    })?;
    Ok(Indexing { indexer: Arc::clone(indexer), map, _thread: thread })
}
