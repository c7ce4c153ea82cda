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

use crate::agents::report::{Batch, RunReport};
use crate::agents::{AgentChanges, Job, JobReport, LogEntry, RunOrder};
use crate::api::Problem;
use crate::programs::registry;
use ids::{AgentId, LineageId};
use std::sync::Arc;
use time::Time;

/// Names a waiting caller. The state thread knows the channel behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
pub struct CallId(pub u64);

/// Facts about this daemon that never change while it runs.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Project {
    /// The project's root, absolute.
    pub dir: std::path::PathBuf,
    /// Its name among all projects of this user; empty where it has no place in their registry.
    pub name: String,
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
    /// The name of the time zone in which this machine's clock is read; an unknown one is UTC.
    pub zone: String,
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
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
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

/// What the daemon is made of, by the table of all features.
macro_rules! model {
    ($(
        #[doc = $doc:literal]
        $feature:ident $Name:ident:
            $(state($State:ident))? $(wish($Wish:ident))? $(report($Report:ident))? $(order($Order:ident))?
            => $moment:tt, $heard:tt, $routes:tt;
    )*) => {
        /// All state. Cheap to clone: one `Arc` per feature.
        #[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
        pub struct State {
            /// Fixed facts.
            pub project: Arc<Project>,
            /// The daemon's own health.
            pub health: Arc<Health>,
            /// Which providers are installed.
            pub providers: Arc<registry::State>,
            /// Deadlines.
            pub timers: Arc<Timers>,
            /// Changes that are in force when they are on disk, in the order in which they were wished.
            pub unwritten: Arc<Vec<Arc<Unwritten>>>,
            $($(#[doc = $doc] pub $feature: Arc<crate::$feature::$State>,)?)*
        }

        /// A wish. REST, command line, chat and schedules all use this door.
        #[derive(Debug, Clone, svc_base::recorded::Recorded)]
        pub enum Command {
            $($(#[doc = $doc] $Name(crate::$feature::$Wish),)?)*
            /// End the daemon: with all agents, or leaving them to their keepers and the next daemon.
            Shutdown { keep: bool },
        }

        $($(impl From<crate::$feature::$Wish> for Command {
            fn from(wish: crate::$feature::$Wish) -> Self {
                Self::$Name(wish)
            }
        })?)*

        /// A fact.
        #[derive(Debug, Clone, svc_base::recorded::Recorded)]
        pub enum Event {
            /// Somebody wishes something and waits for the answer.
            Call(CallId, Actor, Command),
            /// The threads of a run report.
            Run(AgentId, RunReport),
            /// A one-off job of an agent reports.
            Job(JobReport),
            /// What was found of some providers; the first report means that the start is over.
            Detected(Vec<registry::Detection>),
            $($(#[doc = $doc] $Name(crate::$feature::$Report),)?)*
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

        /// An order to a thread. The core never waits for one.
        #[derive(Debug)]
        pub enum Effect {
            /// Answer a waiting caller.
            Reply(CallId, Response),
            /// Answer a waiting caller whose change is on disk already: only the journals' lines of the same
            /// event go before it.
            ReplyStored(CallId, Response),
            /// Write a document.
            Put(Document, Durability),
            /// Remove a document.
            Remove(Document),
            /// Say [`Event::OnDisk`] when everything put so far to be durable is on disk: for deeds that must
            /// not be done before.
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
            Output(Batch),
            /// The registry has changed: push `state` or `state:delta`.
            StateChanged(AgentChanges),
            /// An order to the threads of a run.
            Run(AgentId, RunOrder),
            /// Tell a run once everything put so far is on disk, see
            /// [`RunReport::Checkpoint`](crate::agents::report::RunReport::Checkpoint).
            Settled(AgentId, u64),
            /// Leave all runs to their keepers and the next daemon.
            LeaveRuns,
            /// A one-off job.
            Job(Job),
            $($(#[doc = $doc] $Name(crate::$feature::$Order),)?)*
            /// A line of an agent's log that does not come from the agent itself.
            Log(LineageId, AgentId, LogEntry),
            /// A warning for the daemon's log.
            Warn(String),
            /// All agents are gone: end.
            Exit,
        }
    };
}
crate::features::features!(model);

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
