//! The pure heart of the daemon: all state, and what may happen to it. Data and names only: the rules stand
//! in the features, and [`apply`](crate::assembly::apply::apply), which gives each event to its rule, above
//! them.
//!
//! No I/O, no clock, no randomness, no channels. Time and a random seed come in with the event; orders to
//! threads go out as [`Effect`]s. Whoever holds a [`State`] can replay, simulate and test the whole daemon
//! without a socket.
//!
//! Words, each with one meaning: a **Command** is a wish, an **Event** a fact, an **Effect** an order to a
//! thread, a **Report** a fact from a thread, a **Notice** what WebSocket clients get.
//!
//! **Invariant:** every call gets exactly one reply, at once or through a later event.

mod context;
mod documents;
mod moments;
pub mod notice;
mod response;
mod timers;
mod unwritten;

pub use context::Context;
pub use documents::{Document, DocumentError, Journal};
pub use moments::Moment;
pub use notice::Notice;
pub use response::Response;
pub use svc_base::actor::Actor;
pub use svc_base::untrusted::{untrusted_line, untrusted_prose, untrusted_text};
pub use svc_base::{actor, ids, nearest, time};
pub use timers::{Timer, Timers};
pub use unwritten::{Logged, Unwritten};

use crate::agents::report::RunReport;
use crate::agents::{self, AgentChanges, LogEntry, RunOrder};
use crate::api::Problem;
use crate::approvals;
use crate::context as briefing;
use crate::context::triggers;
use crate::coordination;
use crate::credentials;
use crate::federation;
use crate::gateways;
use crate::integrations;
use crate::isolation;
use crate::journalist;
use crate::market;
use crate::memory;
use crate::oversight::cleanup;
use crate::oversight::timeline;
use crate::oversight::{pm, questions};
use crate::ownership;
use crate::programs::registry;
use crate::settings;
use crate::usage;
use crate::workspace;
use ids::{AgentId, LineageId};
use std::sync::Arc;
use time::Time;

/// Names a waiting caller. The state thread knows the channel behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Facts about this daemon that never change while it runs.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// The project's root, absolute.
    pub dir: std::path::PathBuf,
    /// This program's own file, for agents that call it back; `None` where it is not known.
    pub program: Option<std::path::PathBuf>,
    /// Our process id.
    pub pid: u32,
    /// When we started.
    pub started_at: Time,
    /// The bound address, for example `127.0.0.1`.
    pub host: String,
    /// The bound port.
    pub port: u16,
    /// Whether the kernel can fence a process in: see [`crate::providers::Info::needs_fence`].
    pub can_fence: bool,
    /// Whether this system can give a process a room of its own: see [`crate::providers::Room`].
    pub can_cage: bool,
    /// Why not, in words for people.
    pub no_cage: String,
}

impl Project {
    /// Where agents and the command line reach this daemon.
    pub fn url(&self) -> String {
        if self.host.contains(':') {
            format!("http://[{}]:{}", self.host, self.port)
        } else {
            format!("http://{}:{}", self.host, self.port)
        }
    }
}

/// Counters that tell whether the daemon itself is well.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Events whose handling panicked; each cost only itself.
    pub panics: u64,
    /// Descendants of agents that could not be ended, since start.
    pub leaked: u64,
    /// Why state cannot be written at the moment, if so.
    pub storage_error: Option<Arc<str>>,
    /// Set once a shutdown was asked for.
    pub stopping: bool,
    /// State files that were broken at the start, with the names under which they were put aside: what stood
    /// in them is missing in this daemon's life.
    pub set_aside: Vec<String>,
}

impl Health {
    /// Whether a change can be acknowledged now.
    ///
    /// Errors: 503 `stopping`, 503 `storage_unavailable`.
    pub fn writable(&self) -> Result<(), Problem> {
        self.running()?;
        let Some(error) = &self.storage_error else { return Ok(()) };
        let text = format!("state cannot be written ({error}); {} and retry", remedy(error));
        Err(Problem::new(503, "storage_unavailable", text).with_header("Retry-After", "5"))
    }

    /// Whether anything new is begun: 503 `stopping` once a shutdown was asked for.
    pub fn running(&self) -> Result<(), Problem> {
        if self.stopping { Err(stopping()) } else { Ok(()) }
    }
}

/// 503 from a daemon that ends.
pub fn stopping() -> Problem {
    Problem::new(503, "stopping", "the daemon is stopping; start it again with svc start")
}

/// Whether these words of the system say that this process, or the machine, has no file descriptor left.
pub fn is_out_of_files(error: &str) -> bool {
    error.contains("Too many open files")
}

/// What a person can do about state that cannot be written, by the words of the system.
pub fn remedy(error: &str) -> &'static str {
    if is_out_of_files(error) {
        "too many files are open: end some agents or clients, or raise the limit (ulimit -n),"
    } else if error.contains("no regular file") {
        "move away what stands in the place of the file"
    } else {
        "free space in the project's .svc folder, or see to its permissions,"
    }
}

/// All state. Cheap to clone: one `Arc` per feature.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Fixed facts.
    pub project: Arc<Project>,
    /// The daemon's own health.
    pub health: Arc<Health>,
    /// The agents.
    pub agents: Arc<agents::State>,
    /// The vault's sealed entries.
    pub credentials: Arc<credentials::State>,
    /// Who holds which shared resources.
    pub coordination: Arc<coordination::State>,
    /// What waits for a person's yes or no.
    pub approvals: Arc<approvals::State>,
    /// The chat gateways.
    pub gateways: Arc<gateways::State>,
    /// Teams, recommendations, plans.
    pub teams: Arc<crate::teams::State>,
    /// What is started by the clock.
    pub schedules: Arc<crate::schedules::State>,
    /// The integrations.
    pub integrations: Arc<integrations::State>,
    /// Who owns which files.
    pub ownership: Arc<ownership::State>,
    /// The configuration.
    pub settings: Arc<settings::State>,
    /// What agents use, and what follows from it.
    pub usage: Arc<usage::State>,
    /// Which providers are installed.
    pub providers: Arc<registry::State>,
    /// What is known of the project's files.
    pub workspace: Arc<workspace::State>,
    /// When agents are rotated, and what was learned from their lives.
    pub triggers: Arc<triggers::State>,
    /// What the counters said and what happened to agents.
    pub timeline: Arc<timeline::State>,
    /// What a thread keeps ready for briefings.
    pub context: Arc<briefing::State>,
    /// What agents did, written down.
    pub journalist: Arc<journalist::State>,
    /// The project manager's reviews.
    pub pm: Arc<pm::State>,
    /// Questions of the daemon's own to a model.
    pub questions: Arc<questions::State>,
    /// What the agents have learned.
    pub memory: Arc<memory::State>,
    /// The installed skills.
    pub market: Arc<market::State>,
    /// When old things were removed last.
    pub cleanup: Arc<cleanup::State>,
    /// Other daemons.
    pub federation: Arc<federation::State>,
    /// Deadlines.
    pub timers: Arc<Timers>,
    /// Changes that are in force when they are on disk, in the order in which they were wished.
    pub unwritten: Arc<Vec<Arc<Unwritten>>>,
}

/// A wish. REST, command line, chat and schedules all use this door.
#[derive(Debug, Clone)]
pub enum Command {
    /// About agents.
    Agents(agents::Command),
    /// About credentials, sealed already.
    Credentials(credentials::Command),
    /// About locks.
    Coordination(coordination::Command),
    /// About approvals.
    Approvals(approvals::Command),
    /// About chat gateways.
    Gateways(gateways::Command),
    /// About teams.
    Teams(crate::teams::Command),
    /// About toys.
    Toys(crate::toys::Command),
    /// About schedules.
    Schedules(crate::schedules::Command),
    /// About integrations.
    Integrations(integrations::Command),
    /// About who may write which file.
    Ownership(ownership::Command),
    /// About the worktrees of agents.
    Isolation(isolation::Command),
    /// About the configuration.
    Settings(settings::Command),
    /// About the project's files.
    Workspace(workspace::Command),
    /// About what the agents have learned.
    Memory(memory::Command),
    /// About the journalist.
    Journalist(journalist::Command),
    /// About reviews.
    Pm(pm::Command),
    /// About skills.
    Market(market::Command),
    /// About other daemons.
    Federation(federation::Command),
    /// End the daemon.
    Shutdown,
}

/// A fact.
#[derive(Debug, Clone)]
pub enum Event {
    /// Somebody wishes something and waits for the answer.
    Call(CallId, Actor, Command),
    /// The threads of a run report.
    Run(AgentId, RunReport),
    /// A one-off job of an agent reports.
    Job(agents::JobReport),
    /// The threads of a chat gateway report.
    Gateway(gateways::Report),
    /// A planner's file was looked at.
    Plan(crate::teams::plan::Found),
    /// The threads of the integrations report.
    Integration(integrations::Report),
    /// What was found of some providers; the first report means that the start is over.
    Detected(Vec<registry::Detection>),
    /// A thread of the workspace reports.
    Workspace(workspace::Report),
    /// The journalist's documents are written, or not.
    Journalist(journalist::Report),
    /// The daily cleanup is over.
    Cleanup(cleanup::Report),
    /// Files of owners were looked at; `None` when they could not be.
    Ownership(Option<ownership::commands::Looked>),
    /// A document that agents are told has changed.
    Context(briefing::Report),
    /// Writing state failed (`Some`) or works again (`None`).
    Storage(Option<String>),
    /// What this call has changed is on disk, or why not; see [`Effect::AwaitDisk`].
    OnDisk(CallId, Result<(), String>),
    /// A deadline has come.
    Timer(Timer),
    /// Somebody shows a wrong operator's token.
    WrongToken {
        /// Where from: an address, or who on this machine.
        from: String,
        /// Wrong tokens of this source since the first one.
        attempts: u32,
    },
    /// The wall clock has jumped: its event's time is the first after it.
    ClockSet(time::Jump),
    /// Handling an event panicked.
    Panicked,
    /// A signal asks the daemon to end.
    Terminate,
}

/// How long a reply waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Written within [`SOON`], and not along with what others wait for: the disk has the same already, but
    /// for times that have passed.
    Later,
    /// Written within [`SOON`]; nobody waits.
    Soon,
    /// The replies of the same event are sent after it is on disk.
    BeforeReply,
}

/// Counters reach the disk within this time.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(1);

/// An order to a thread. The core never waits for one.
#[derive(Debug)]
pub enum Effect {
    /// Answer a waiting caller.
    Reply(CallId, Response),
    /// Answer a waiting caller whose change is on disk already: only the journals' lines of the same event go
    /// before it.
    ReplyStored(CallId, Response),
    /// Write a document.
    Put(Document, Durability),
    /// Remove a document.
    Remove(Document),
    /// Say [`Event::OnDisk`] when everything put so far to be durable is on disk: for deeds that must not be
    /// done before.
    AwaitDisk(CallId),
    /// What this timer stands for is to happen once everything put before is on disk.
    WhenStored(Timer),
    /// Append a line (without its end) to a journal, before the replies of the same event are sent.
    Append(Journal, Arc<[u8]>),
    /// Cut a journal to its last entries, so many.
    Trim(Journal, usize),
    /// Push a message to WebSocket clients.
    Notice(Arc<Notice>),
    /// Push the output of a run.
    Output(agents::report::Batch),
    /// The registry has changed: push `state` or `state:delta`.
    StateChanged(AgentChanges),
    /// An order to the threads of a run.
    Run(AgentId, RunOrder),
    /// A one-off job.
    Job(agents::Job),
    /// An order to the threads of the chat gateways.
    Gateway(gateways::Order),
    /// Documents of the journalist to be written.
    Journalist(journalist::Order),
    /// Remove what is old.
    Cleanup(cleanup::Order),
    /// Import a repository.
    Import(workspace::import::Order),
    /// An order to the threads of the integrations.
    Integration(integrations::Order),
    /// A line of an agent's log that does not come from the agent itself.
    Log(LineageId, AgentId, LogEntry),
    /// Look at a planner's file.
    Plan(crate::teams::plan::Look),
    /// Look which files of owners have changed.
    Look(ownership::commands::Order),
    /// A warning for the daemon's log.
    Warn(String),
    /// All agents are gone: end.
    Exit,
}
