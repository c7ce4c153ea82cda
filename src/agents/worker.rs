//! The runs of the agents: every program that works for one, and the threads around it.
//!
//! [`Runs`] takes orders and never makes its caller wait; what happens is told through the reporter, in
//! order, and ends with exactly one [`RunReport::StartFailed`] or [`RunReport::Exited`] per run.
//!
//! **Invariant:** when `Exited` is reported, every descendant is gone or counted as leaked, all output has
//! been reported, and every accepted message has had its [`RunReport::Said`].

mod checkpoint;
mod env;
mod far;
mod fence;
mod kept;
mod lines;
mod notes;
mod orders;
mod output;
mod projects;
mod record_file;
mod room;
mod run;
mod session_record;
mod stream;
mod turns;

pub use env::{Beside, own_program, process_spec};
pub use far::{Far, ORPHAN_LEAST};
pub use fence::{Temporary, place_below};
pub use kept::{CatchUp, Found, Kept, find as find_kept};
pub use orders::Settings;
pub use output::BATCHES_IN_FLIGHT;
pub use projects::{note as note_project, user_folder};
pub use room::{RoomFolder, remove_all as remove_rooms, why_none as why_no_room};

use super::LAST_CHECKPOINT;
use super::report::RunReport;
use super::wire::Wire;
use super::worker_log::LogStore;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::providers::{LaunchRequest, Provider, Ruling};
pub use checkpoint::RunFolder;
use crossbeam_channel::{Receiver, Sender, bounded};
use orders::{Order, Orders};
use output::Output;
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use svc_keeper::client::Writer;
use svc_sys::clock;
use svc_sys::process::{Prepare, Processes, STOP_GRACE, let_answers_go_first};

/// After the order to finish and the last output, how long a program may take to end by itself.
pub const FINISH_GRACE: Duration = Duration::from_secs(10);
/// Where the folders of rooms are, below the project.
pub const ROOMS: &str = ".svc/rooms";
/// Stack of a run's thread in bytes: parsers recurse on it.
const STACK_BYTES: usize = 1024 * 1024;

/// Takes what the threads report. It may block, which makes the agent wait; once nobody listens it must
/// return.
pub type Reporter = dyn Fn(AgentId, RunReport) + Send + Sync;

/// Who has to know when an agent begins to work, before it does, and when it has stopped: what stands in its
/// folder is kept then. Each call returns when that is done; it has a time limit of its own.
pub trait Turns: Send {
    /// A turn is about to begin; or has begun by itself, which is `late` to hear of it.
    fn begin(&self, late: bool);
    /// A turn is over, or its program is.
    fn end(&self);
}

/// What to run.
pub struct RunSpec {
    /// The agent.
    pub agent: AgentId,
    /// Whose log it writes.
    pub lineage: LineageId,
    /// For the provider.
    pub request: LaunchRequest,
    /// The provider.
    pub provider: &'static dyn Provider,
    /// Variables beyond the allow-list, for example `SVC_AGENT_NAME`, `SVC_DAEMON_URL` and those of attached
    /// integrations. `SVC_AGENT_ID` and `SVC_PROJECT_DIR` come by themselves.
    pub env_extra: Vec<(String, String)>,
    /// What is to be made ready beside the program.
    pub prepare: Vec<Prepare>,
    /// How long its keeper lets it go on without a daemon; zero ends it at once.
    pub orphan: Duration,
    /// How far it stands back behind what else wants the processor, 0 to 19 as for `nice`.
    pub nice: u32,
    /// Bytes of memory above which it is ended; 0 for no ceiling.
    pub ceiling: u64,
    /// For a person at the program's own screen: since when what is said there is to be told.
    pub at_screen: Option<Time>,
    /// What is to be added to the request when everything else is ready.
    pub complete: Option<Complete>,
    /// Who is told of its turns.
    pub turns: Option<Box<dyn Turns>>,
    /// Where it is to run, when that is not here.
    pub far: Option<Far>,
    /// Makes the branch that it begins with, where that is not there yet.
    pub ground: Option<Ground>,
}

/// Makes what a run stands on; a sentence where it cannot.
pub type Ground = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// Completes what a provider is asked to run.
pub type Complete = Box<dyn FnOnce(&mut LaunchRequest) + Send>;

/// Times that tests shorten.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// See [`FINISH_GRACE`].
    pub finish_grace: Duration,
    /// Between TERM and KILL.
    pub stop_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { finish_grace: FINISH_GRACE, stop_grace: STOP_GRACE }
    }
}

/// What the state knows of a run that its keeper has kept.
pub struct Known {
    /// Whose log it writes.
    pub lineage: LineageId,
    pub provider: &'static dyn Provider,
    /// The deeds that it has heard.
    pub heard: u64,
    /// Its program, if it has heard of that.
    pub process: Option<(u32, u64)>,
    /// Messages that were handed to it and not confirmed.
    pub sent: Vec<u64>,
    /// What is to be held on to while it lasts.
    pub prepare: Vec<Prepare>,
    /// What holds for its keeper.
    pub settings: Settings,
    /// Who is told of its turns.
    pub turns: Option<Box<dyn Turns>>,
}

/// One run, as others than its thread see it.
struct Run {
    agent: AgentId,
    orders: Arc<Orders>,
}

/// Keepers whose run is over, until that is on disk.
type Ended = HashMap<AgentId, (Arc<Writer>, RunFolder)>;

/// All runs. Dropping it stops them and joins their threads.
pub struct Runs {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_closed: AtomicBool,
    /// Dropped to let everything through without credits.
    gate: Mutex<Option<Sender<()>>>,
    gate_watch: Receiver<()>,
}

/// What the run threads need.
struct Inner {
    processes: Arc<Processes>,
    logs: Arc<LogStore>,
    report: Arc<Reporter>,
    limits: Limits,
    keeper_program: OsString,
    ended: Mutex<Ended>,
    live: Mutex<HashMap<AgentId, Arc<Run>>>,
    threads_alive: Mutex<usize>,
    thread_ended: Condvar,
}

impl Runs {
    /// No run yet; `keeper_program` is this program.
    pub fn new(
        processes: Arc<Processes>,
        logs: Arc<LogStore>,
        report: Arc<Reporter>,
        keeper_program: OsString,
    ) -> Self {
        Self::with_limits(processes, logs, report, keeper_program, Limits::default())
    }

    /// As [`Runs::new`], with other times.
    pub fn with_limits(
        processes: Arc<Processes>,
        logs: Arc<LogStore>,
        report: Arc<Reporter>,
        keeper_program: OsString,
        limits: Limits,
    ) -> Self {
        let (gate, gate_watch) = bounded(0);
        let inner = Inner {
            processes,
            logs,
            report,
            limits,
            keeper_program,
            ended: Mutex::default(),
            live: Mutex::default(),
            threads_alive: Mutex::new(0),
            thread_ended: Condvar::new(),
        };
        let (threads, is_closed) = (Mutex::default(), AtomicBool::new(false));
        Self { inner: Arc::new(inner), threads, is_closed, gate: Mutex::new(Some(gate)), gate_watch }
    }

    /// Starts a run: `Started` or `StartFailed` follows.
    ///
    /// Errors (nothing follows then): the agent runs already, the daemon is stopping, or there is no thread
    /// left.
    pub fn start(&self, spec: RunSpec) -> Result<(), String> {
        let output =
            self.output(spec.agent, spec.lineage, spec.provider.info().id, spec.request.model.as_ref());
        self.on_thread(spec.agent, move |inner, run| run::run(inner, run, spec, output))
    }

    /// Goes on with a run that an earlier daemon has left to its keeper: what the state has not heard
    /// follows.
    ///
    /// Errors: as [`Runs::start`].
    pub fn go_on(&self, mut kept: Kept, known: Known) -> Result<(), String> {
        let model = kept.file.model.as_ref();
        let mut output = self.output(kept.agent, known.lineage, known.provider.info().id, model);
        output.awaited = kept.awaited();
        self.on_thread(kept.agent, move |inner, run| run::go_on(inner, run, kept, known, output))
    }

    fn output(
        &self,
        agent: AgentId,
        lineage: LineageId,
        provider: &'static str,
        model: Option<&String>,
    ) -> Output {
        let (logs, report) = (Arc::clone(&self.inner.logs), Arc::clone(&self.inner.report));
        let wire = Wire::new(agent).of(provider, model.cloned());
        Output::new(agent, lineage, logs, report, self.gate_watch.clone(), wire)
    }

    fn on_thread(
        &self,
        agent: AgentId,
        body: impl FnOnce(&Inner, &Arc<Run>) + Send + 'static,
    ) -> Result<(), String> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err("the daemon is stopping".into());
        }
        let inner = Arc::clone(&self.inner);
        let run = Arc::new(Run { agent, orders: Arc::default() });
        {
            let mut live = inner.live();
            if live.contains_key(&agent) {
                return Err(format!("agent {agent} runs already"));
            }
            live.insert(agent, Arc::clone(&run));
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are joined here, so their number is that of the live runs.
        for ended in threads.extract_if(.., |thread| thread.is_finished()) {
            let _ = ended.join();
        }
        let alive = Alive::new(Arc::clone(&inner));
        let builder = std::thread::Builder::new().name(format!("run-{agent}")).stack_size(STACK_BYTES);
        match builder.spawn(move || {
            let_answers_go_first();
            body(&alive.0, &run);
        }) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                inner.forget(agent);
                return Err(format!("cannot start a thread for agent {agent}: {error}"));
            }
        }
        Ok(())
    }

    /// Says something to a running agent: `Said` follows. `false` (and nothing follows) when it does not
    /// run, or too much waits to be read by it already.
    pub fn say(&self, agent: AgentId, message_id: u64, text: String) -> bool {
        self.order(agent, Order::Say { message_id, text })
    }

    /// Answers the provider's question whether a tool may be used; harmless when nobody waits for it any
    /// more.
    pub fn decide(&self, agent: AgentId, question: &str, ruling: &Ruling) {
        self.order(agent, Order::Decide { question: question.to_owned(), ruling: ruling.clone() });
    }

    /// Asks the program to leave its turn; harmless where it cannot be asked.
    pub fn interrupt(&self, agent: AgentId) {
        self.order(agent, Order::Interrupt);
    }

    /// Tells the keeper of a run what holds from now on.
    pub fn settings(&self, agent: AgentId, settings: Settings) {
        self.order(agent, Order::Settings(settings));
    }

    /// Lets the program end now that its turn is over. One that has not ended after [`FINISH_GRACE`] is
    /// stopped; its `Exited` carries code and signal as they are.
    pub fn finish(&self, agent: AgentId) {
        self.order(agent, Order::Finish);
    }

    fn order(&self, agent: AgentId, order: Order) -> bool {
        self.run(agent).is_some_and(|run| run.orders.push(order))
    }

    /// What a way to tell of [`RunReport::Checkpoint`]s that their state is on disk needs.
    pub fn settler(&self) -> impl Fn(AgentId, u64) + Send + Sync + use<> {
        let inner = Arc::clone(&self.inner);
        move |agent, n| inner.settled(agent, n)
    }

    /// Leaves all runs to their keepers and the next daemon: each reports [`RunReport::Left`], or its end.
    pub fn leave_all(&self) {
        self.is_closed.store(true, Ordering::Release);
        for run in self.inner.live().values() {
            run.orders.leave();
        }
    }

    /// Stops an agent and everything it started. Harmless when it does not run; a run that has not started
    /// its program yet reports `Exited` without code and signal.
    pub fn stop(&self, agent: AgentId) {
        if let Some(run) = self.run(agent) {
            run.orders.stop();
        }
    }

    /// Stops all, in parallel, and refuses to start more. Does not wait.
    pub fn stop_all(&self) {
        self.is_closed.store(true, Ordering::Release);
        let runs: Vec<Arc<Run>> = self.inner.live().values().cloned().collect();
        for run in runs {
            run.orders.stop();
        }
    }

    /// Stops all and waits until their last reports have been taken, at most until `deadline`. Not for the
    /// thread that takes the reports. Returns how many runs were not over by then.
    pub fn shutdown(&self, deadline: Instant) -> usize {
        self.stop_all();
        let left = self.wait_until(deadline);
        if left == 0 {
            let strays = self.inner.processes.sweep_strays();
            if strays.killed + strays.leaked > 0 {
                log::warn!("strays at the end, killed: {}, leaked: {}", strays.killed, strays.leaked);
            }
        }
        left
    }

    fn wait_until(&self, deadline: Instant) -> usize {
        let alive = self.inner.threads_alive();
        let limit = deadline.saturating_duration_since(Instant::now());
        let waited = self.inner.thread_ended.wait_timeout_while(alive, limit, |alive| *alive > 0);
        let (alive, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *alive
    }

    fn run(&self, agent: AgentId) -> Option<Arc<Run>> {
        self.inner.live().get(&agent).cloned()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.stop_all();
        // Whoever still holds credits will not give them back.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).take();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Whoever was to tell that their end is on disk is gone, and it is: the store ends after the runs.
        for (writer, folder) in self.ended().drain().map(|(_, ended)| ended) {
            kept::forget(&writer, &folder);
        }
    }
}

impl Inner {
    fn live(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Run>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads_alive(&self) -> MutexGuard<'_, usize> {
        self.threads_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of this checkpoint is on disk.
    fn settled(&self, agent: AgentId, n: u64) {
        if n != LAST_CHECKPOINT {
            if let Some(run) = self.live().get(&agent) {
                run.orders.push(Order::Settled(n));
            }
            return;
        }
        let ended = self.ended().remove(&agent);
        if let Some((writer, folder)) = ended {
            kept::forget(&writer, &folder);
        }
    }

    /// Orders to this agent reach nothing any more.
    fn forget(&self, agent: AgentId) {
        self.live().remove(&agent);
    }
}

/// What nobody else can say.
fn random() -> String {
    format!("{:016x}{:016x}", clock::random(), clock::random())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Counts a run's thread while it lives, panic or not.
struct Alive(Arc<Inner>);

impl Alive {
    fn new(inner: Arc<Inner>) -> Self {
        *inner.threads_alive() += 1;
        Self(inner)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        *self.0.threads_alive() -= 1;
        self.0.thread_ended.notify_all();
    }
}
