//! Where effects go. Nothing here blocks: each destination has a cap and says what happens at it.

use super::agent_tokens::{self, AgentTokens};
use super::detect::Programs;
use super::folder::orphaned_tasks;
use super::host::Host;
use super::state_thread::Core;
use super::store::{Store, Told};
use crate::accounts;
use crate::agents::report::RunReport;
use crate::agents::worker::{
    Complete, Ground, Kept, Known, RunFolder, RunSpec, Runs, Settings, Turns, own_program,
};
use crate::agents::worker_jobs::{Carrier, Jobs};
use crate::agents::worker_log::LogStore;
use crate::agents::{
    AgentChanges, Job, JobReport, Phase, RunOrder, StartOrder, Stop, why_rotated, working_folder,
};
use crate::alerts::worker::Teller;
use crate::core::ids::AgentId;
use crate::core::{Durability, Effect, Event, Response, SOON, State};
use crate::credentials::Vault;
use crate::gateways::worker::Gateways;
use crate::integrations::worker::Servers;
use crate::integrations::worker_mcp_file;
use crate::isolation::{worker_move, worker_worktree};
use crate::market::worker_links::{self, Links};
use crate::oversight::worker_cleanup::Cleaner;
use crate::ownership::commands::baseline;
use crate::ownership::worker_look::Looker;
use crate::providers::{self, LaunchRequest};
use crate::runners::worker_errands::Errands;
use crate::settings::Config;
use crate::snapshots::Tidier;
use crate::snapshots::worker::Snapshots;
use crate::teams::worker::PlanReader;
use crate::workspace::Report;
use crate::workspace::worker_import::Imports;
use crate::workspace::worker_map::Mapper;
use crossbeam_channel::Sender;
use serde_json::json;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use svc_sys::clock;
use svc_sys::process::{Prepare, Processes};
use svc_sys::ws::{Hub, HubMessage};

/// The threads that take orders. Fields in the order in which they end.
pub struct Outbox {
    /// Where refusals of the destinations go.
    core: Core,
    /// Runs git.
    processes: Arc<Processes>,
    /// Opens the keys that agents get.
    vault: Arc<Vault>,
    /// Tells agents of the files.
    map: Arc<Mapper>,
    /// Keeps what stands in the folders of agents.
    snapshots: Arc<Snapshots>,
    /// Makes what agents show of themselves.
    agent_tokens: Arc<AgentTokens>,
    gateways: Gateways,
    /// Posts what happens.
    webhooks: crate::webhooks::worker::Senders,
    /// Tells phones.
    phones: crate::phones::worker_push::Senders,
    /// Exports spans.
    telemetry: crate::telemetry::worker::Exporter,
    /// Tells a person's desktop.
    alerts: Teller,
    /// Links skills beside running agents.
    links: Arc<Links>,
    jobs: Jobs,
    imports: Imports,
    plans: PlanReader,
    runs: Runs,
    servers: Servers,
    /// WebSocket clients.
    hub: Hub,
    journalist: crate::journalist::Writer,
    looker: Looker,
    /// Ends and tidies what agents have left on other machines.
    errands: Errands,
    /// Keeps the snapshots small.
    _tidier: Tidier,
    governor: crate::governor::Watch,
    /// Asks who is logged in.
    programs: Arc<Programs>,
    cleaner: Cleaner,
    /// The disk; last, because all others may still have something to write.
    store: Store,
    /// Tells runs what is on disk.
    settled: Arc<dyn Fn(AgentId, u64) + Send + Sync>,
}

/// What WebSocket clients may have missed while a daemon takes the place of another, below `.svc/`.
pub const FRAMES: &str = "state/frames";

/// Where the threads report.
fn reports<R: 'static>(core: &Core, event: fn(R) -> Event) -> impl Fn(R) + Send + Sync + use<R> {
    let core = core.clone();
    move |report| core.report(event(report))
}

impl Outbox {
    /// Starts the threads, those first that others need; what they report goes to `core`.
    ///
    /// Errors: the system gives no thread.
    pub fn start(
        core: &Core,
        hub: Hub,
        folder: &Path,
        host: &Host,
        agent_tokens: Arc<AgentTokens>,
        kept: Vec<Kept>,
    ) -> io::Result<Self> {
        let Host { processes, logs, snapshots, .. } = host;
        let (vault, map) = (Arc::clone(&host.vault), Arc::clone(&host.map));
        let project = core.snapshot().project.dir.clone();
        let (theirs, to_core) = (|| Arc::clone(processes), core.clone());
        let of_run = Arc::new(move |agent, report| to_core.report(Event::Run(agent, report)));
        let of_import = reports(core, |(id, progress)| Event::Workspace(Report::Import(id, progress)));
        let to_core = core.clone();
        let store = Store::start(folder.to_path_buf(), Arc::clone(logs), move |told| match told {
            Told::Trouble(trouble) => to_core.control(Event::Storage(trouble)),
            Told::Stored(timer) => to_core.report(Event::Timer(timer)),
        })?;
        for task in orphaned_tasks(folder, &core.snapshot()) {
            store.remove(task);
        }
        let of_tools = Arc::new(reports(core, Event::Integrations));
        let runs = Runs::new(theirs(), Arc::clone(logs), of_run, own_program());
        let state = core.snapshot();
        log_prompts(&state, logs);
        let agents = kept.iter().filter_map(|kept| state.agents.get(kept.agent));
        let working_dirs: Vec<_> = agents.map(|agent| working_folder(&state, agent)).collect();
        let links = Arc::new(Links::start(&project, &working_dirs));
        go_on_with(kept, &runs, &links, core, snapshots);
        let to_core = core.clone();
        Ok(Self {
            core: core.clone(),
            processes: theirs(),
            settled: Arc::new(runs.settler()),
            runs,
            jobs: jobs(core, host, &project),
            servers: Servers::new(theirs(), project.clone(), Arc::clone(&vault), of_tools),
            gateways: Gateways::new(core.clone(), Arc::clone(&vault), Arc::clone(logs)),
            webhooks: crate::webhooks::worker::Senders::new(
                Arc::clone(&vault),
                reports(core, Event::Webhooks),
            ),
            phones: crate::phones::worker_push::Senders::new(
                Arc::clone(&host.phones),
                reports(core, |tried| Event::Phones(crate::phones::Report::Tried(tried))),
            ),
            telemetry: crate::telemetry::worker::Exporter::new(
                Arc::clone(&vault),
                reports(core, Event::Telemetry),
            ),
            journalist: crate::journalist::Writer::start(project.clone(), reports(core, Event::Journalist))?,
            alerts: Teller::start(project.clone(), theirs())?,
            links,
            cleaner: Cleaner::start(
                project.clone(),
                Arc::clone(logs),
                theirs(),
                reports(core, Event::Cleanup),
            )?,
            imports: Imports::new(
                theirs(),
                project.clone(),
                Arc::new(move |id, progress| of_import((id, progress))),
            ),
            plans: PlanReader::start(project.clone(), reports(core, Event::Teams))?,
            governor: crate::governor::Watch::start(core.clone(), Box::new(host.fleet.clone()))?,
            programs: Arc::clone(&host.programs),
            looker: Looker::start(project.clone(), reports(core, Event::Ownership))?,
            errands: Errands::new(theirs(), project, reports(core, Event::Runners)),
            _tidier: Tidier::start(Arc::clone(snapshots), move || to_core.snapshot())?,
            snapshots: Arc::clone(snapshots),
            vault,
            map,
            agent_tokens,
            hub,
            store,
        })
    }

    /// Performs one effect. Replies and the exit are the state thread's own business.
    pub fn perform(&mut self, effect: Effect, state: &Arc<State>) {
        match effect {
            Effect::Put(document, Durability::Later) => self.store.put_later(document, state),
            Effect::Put(document, Durability::Soon) => self.store.put(document, state, SOON),
            Effect::Put(document, Durability::BeforeReply) => self.store.put(document, state, Duration::ZERO),
            Effect::Remove(document) => self.store.remove(document),
            Effect::AwaitDisk(call) => {
                let core = self.core.clone();
                self.store.tell(state, call, move |outcome| core.on_disk(Event::OnDisk(call, outcome)));
            }
            Effect::WhenStored(timer) => self.store.tell_when_stored(timer),
            Effect::Append(journal, line) => self.store.append(journal, line),
            Effect::Trim(journal, entries) => self.store.trim(journal, entries),
            Effect::Notice(notice) => {
                self.hub.send(HubMessage::publish(notice.kind(), notice.frame()));
            }
            Effect::Output(batch) => {
                self.hub.send(HubMessage::Output { frames: batch.frames, credit: Box::new(batch.credit) });
            }
            Effect::StateChanged(changes) => self.hub.send(state_message(state, changes)),
            Effect::Run(agent, order) => self.order(agent, order, state),
            Effect::Settled(agent, n) => {
                let settled = Arc::clone(&self.settled);
                self.store.when_settled(move || settled(agent, n));
            }
            Effect::LeaveRuns => {
                self.runs.leave_all();
                self.hub.send(HubMessage::KeepIn(state.project.dir.join(".svc").join(FRAMES)));
            }
            Effect::Integrations(order) => self.servers.order(order),
            Effect::Job(job) => self.job(job),
            Effect::Gateways(order) => self.gateways.order(order),
            Effect::Webhooks(order) => {
                let given = self.webhooks.order(order);
                self.unless(given, Event::Webhooks);
            }
            Effect::Phones(order) => {
                let given = self.phones.order(order);
                self.unless(given, |tried| Event::Phones(crate::phones::Report::Tried(tried)));
            }
            Effect::Telemetry(order) => {
                let given = self.telemetry.order(order);
                self.unless(given, Event::Telemetry);
            }
            Effect::Alerts(order) => self.alerts.order(order),
            Effect::Journalist(order) => self.unless(self.journalist.order(order), Event::Journalist),
            Effect::Cleanup(order) => self.unless(self.cleaner.order(order), Event::Cleanup),
            Effect::Workspace(order) => self.imports.order(order),
            Effect::Log(lineage, agent, entry) => self.store.log(lineage, agent, clock::now(), entry),
            Effect::Teams(look) => self.plans.order(look),
            Effect::Ownership(order) => self.unless(self.looker.order(order), Event::Ownership),
            Effect::Runners(order) => self.unless(self.errands.order(order), Event::Runners),
            Effect::Governor(order) => self.governor.order(order),
            Effect::Accounts(accounts::Order::Ask(provider)) => {
                self.programs.ask_later(accounts::worker::asked(state, Some(providers::info_of(&provider))));
            }
            Effect::Warn(text) => log::warn!("{text}"),
            Effect::Reply(..) | Effect::ReplyStored(..) | Effect::Exit => {}
        }
    }

    /// Sends the answers when everything put before is on disk.
    pub fn commit(&mut self, state: &Arc<State>, answers: Vec<(Sender<Response>, Response)>) {
        self.store.commit(state, answers);
    }

    /// Sends the answers when the journals have every line given before.
    pub fn answer_after_lines(&self, answers: Vec<(Sender<Response>, Response)>) {
        self.store.answer_after_lines(answers);
    }

    /// A question's process gets the same keys as its agent.
    fn job(&mut self, mut job: Job) {
        if let Job::Query { call, env, secrets, .. } = &mut job {
            match self.vault.variables(secrets) {
                Ok(secrets) => env.extend(secrets),
                Err(error) => {
                    return self.core.control(Event::Job(JobReport::Query(*call, Err(error))));
                }
            }
        }
        self.jobs.order(job);
    }

    /// What a thread has refused is reported at once.
    fn unless<R>(&self, given: Result<(), R>, event: fn(R) -> Event) {
        if let Err(report) = given {
            self.core.control(event(report));
        }
    }

    /// Lets a program start only when it is known which files of others are there.
    fn seen_before(&self, agent: AgentId, state: &State) -> Option<Prepare> {
        let roots = baseline(state, agent);
        if roots.is_empty() {
            return None;
        }
        let look = self.looker.before_start(roots);
        Some(Box::new(move || {
            look();
            Box::new(())
        }))
    }

    /// Makes the worktree of an agent where the clock, or a plan, has started it.
    fn ground(&self, agent: AgentId, state: &State) -> Option<Ground> {
        let path = state.agents.get(agent)?.worktree.clone()?;
        let (processes, project) = (Arc::clone(&self.processes), state.project.dir.clone());
        let make = move || worker_worktree::have(&processes, &project, &path);
        Some(Box::new(move || make().map_err(|problem| problem.error)))
    }

    fn order(&mut self, agent: AgentId, order: RunOrder, state: &State) {
        match order {
            RunOrder::Start(start) => {
                let Some(provider) = providers::by_id(start.provider) else { return };
                let StartOrder { lineage, request, env, secrets, skills, at_screen, map, far, .. } = *start;
                let links = worker_links::prepare(&self.links, &request.working_dir, skills);
                let tools = worker_mcp_file::prepare(start.provider, &request);
                let prepare = [self.seen_before(agent, state), links, tools].into_iter().flatten().collect();
                let started = self.vault.variables(&secrets).and_then(|secrets| {
                    let far = far.transpose()?;
                    let ground = far.as_ref().filter(|far| far.is_new).and(self.ground(agent, state));
                    let own = (agent_tokens::VARIABLE.to_owned(), self.agent_tokens.token_of(agent));
                    let env_extra = env.into_iter().chain(secrets).chain([own]).collect();
                    let Config { keeper, governor, .. } = state.settings.config();
                    self.runs.start(RunSpec {
                        agent,
                        lineage,
                        request,
                        provider,
                        env_extra,
                        prepare,
                        orphan: keeper.orphan(),
                        nice: keeper.nice,
                        ceiling: governor.ceiling(),
                        at_screen,
                        turns: turns_of(&self.snapshots, state, agent),
                        far,
                        ground,
                        complete: map.map(|order| {
                            let map = Arc::clone(&self.map);
                            Box::new(move |request: &mut LaunchRequest| map.tell(&order, &mut request.prompt))
                                as Complete
                        }),
                    })
                });
                if let Err(error) = started {
                    self.core.control(Event::Run(agent, RunReport::StartFailed { error }));
                }
            }
            RunOrder::Say { message_id, text } => {
                let roots = baseline(state, agent);
                if !roots.is_empty() {
                    self.looker.before_turn(roots);
                }
                if !self.runs.say(agent, message_id, text) {
                    self.core.control(Event::Run(agent, RunReport::Said { message_id, delivered: false }));
                }
            }
            RunOrder::Decide { question, ruling } => self.runs.decide(agent, &question, &ruling),
            RunOrder::Interrupt => self.runs.interrupt(agent),
            RunOrder::Finish => self.runs.finish(agent),
            RunOrder::Settings => {
                self.runs.settings(agent, settings_of(state, agent));
            }
            RunOrder::Stop => {
                note_replaced(agent, state);
                self.runs.stop(agent);
            }
        }
    }
}

fn jobs(core: &Core, host: &Host, project: &Path) -> Jobs {
    let Host { processes, logs, .. } = host;
    let (theirs, folder) = (Arc::clone(processes), project.to_path_buf());
    let carrier: Carrier = Box::new(move |order| worker_move::carry(&theirs, &folder, order));
    let report = Arc::new(reports(core, Event::Job));
    Jobs::new(Arc::clone(processes), Arc::clone(logs), project.to_path_buf(), report, carrier)
}

/// What an order to end is for is not in the state file yet; a daemon that is killed leaves it here.
fn note_replaced(agent: AgentId, state: &State) {
    let record = state.agents.get(agent);
    if !record.is_some_and(|agent| matches!(agent.phase, Phase::Stopping(Stop::Rotate, _))) {
        return;
    }
    let Some(rotation) = why_rotated(&state.agents, agent) else { return };
    let noted = RunFolder::of(&state.project.dir, agent).note_replaced(rotation);
    if let Err(error) = noted {
        log::warn!("agent {agent}: that it is being replaced cannot be noted: {error}");
    }
}

/// What was to be started, and had not told that it runs, is in the state file before it is in the log.
fn log_prompts(state: &State, logs: &LogStore) {
    for agent in state.agents.iter() {
        let Some(opening) = agent.opening.as_ref().filter(|opening| !opening.prompt.is_empty()) else {
            continue;
        };
        if let Err(error) = logs.append_prompt(agent.lineage_id, agent.id, clock::now(), &opening.prompt) {
            log::warn!("what agent {} was started with is not in its log: {error}", agent.id);
        }
    }
}

/// What a run tells of its turns, where that is wished.
fn turns_of(snapshots: &Arc<Snapshots>, state: &State, agent: AgentId) -> Option<Box<dyn Turns>> {
    let record = state.agents.get(agent).filter(|_| state.settings.config().snapshots.enabled)?;
    if record.runner.is_some() {
        // Its turns change nothing here.
        return None;
    }
    let folder = record.worktree.as_deref().unwrap_or_default();
    Some(snapshots.turns_of(agent, record.lineage_id, folder))
}

/// Takes up the runs that an earlier daemon has left to their keepers.
fn go_on_with(kept: Vec<Kept>, runs: &Runs, links: &Arc<Links>, core: &Core, snapshots: &Arc<Snapshots>) {
    let state = core.snapshot();
    for kept in kept {
        let agent = state.agents.get(kept.agent);
        let Some(agent) = agent.filter(|agent| agent.status.is_live() && !agent.has_no_run()) else {
            kept.end();
            continue;
        };
        let Some(provider) = providers::by_id(&agent.provider) else {
            core.control(Event::Run(
                kept.agent,
                RunReport::StartFailed { error: "its provider is gone".to_owned() },
            ));
            kept.end();
            continue;
        };
        let working_dir = working_folder(&state, agent);
        let links = worker_links::prepare_again(links, &working_dir);
        let has_tools = !agent.integrations.is_empty();
        let tools = worker_mcp_file::prepare_again(&agent.provider, has_tools, &working_dir);
        let known = Known {
            lineage: agent.lineage_id,
            provider,
            heard: agent.heard,
            process: agent.pid.map(|pid| (pid, agent.start_ticks)),
            sent: agent.queue.iter().filter(|message| message.sent).map(|message| message.id).collect(),
            prepare: [links, tools].into_iter().flatten().collect(),
            settings: settings_of(&state, kept.agent),
            turns: turns_of(snapshots, &state, kept.agent),
        };
        let id = kept.agent;
        if let Err(error) = runs.go_on(kept, known) {
            core.control(Event::Run(id, RunReport::StartFailed { error }));
        }
    }
}

/// What holds for the keeper of a run.
fn settings_of(state: &State, agent: AgentId) -> Settings {
    let Config { keeper, governor, .. } = state.settings.config();
    let frozen = state.agents.get(agent).is_some_and(|agent| agent.stands_still());
    Settings { orphan: keeper.orphan(), ceiling: governor.ceiling(), frozen }
}

/// The full state is encoded only if some client wants it; the delta likewise.
fn state_message(state: &Arc<State>, changes: AgentChanges) -> HubMessage {
    let full_state = Arc::clone(state);
    let delta_state = Arc::clone(state);
    HubMessage::State {
        full: Box::new(move || state_body(&full_state)),
        delta: Box::new(move || {
            let changed: Vec<_> = changes
                .changed
                .iter()
                .filter_map(|id| delta_state.agents.get(*id))
                .map(|a| a.live_view())
                .collect();
            open(&json!({
                "type": "state:delta", "data": {"changed": changed, "removed": changes.removed},
            }))
        }),
    }
}

/// The `state` message without its closing brace.
pub fn state_body(state: &State) -> Vec<u8> {
    let agents: Vec<_> = state.agents.iter().map(|agent| agent.live_view()).collect();
    open(&json!({"type": "state", "data": agents}))
}

fn open(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = value.to_string().into_bytes();
    bytes.pop();
    bytes
}
