//! The record of an agent, and how it is shown.

use super::ceiling::Near;
use super::limit::Held;
use super::moving::Moving;
use super::open_tools::OpenTools;
use super::put_away::PutAway;
use super::queue::{Priority, Queued};
use super::reason::{Reason, StatusReason};
use super::sessions::Copied;
use super::touched::OpenFiles;
use crate::core::CallId;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::{Time, rfc3339};
use crate::prices;
use crate::providers::environment::Extra;
use crate::providers::limit::{Kind, Limit};
use crate::providers::{Effort, Permission, Tokens};
use crate::settings::OnLimit;
use crate::usage;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::sync::Arc;
use svc_base::recorded::Recorded;

/// Where an agent is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The order to start it was given.
    #[default]
    Starting,
    Running,
    /// It is blocked on an approval or a question.
    Waiting,
    /// Its replacement is being prepared.
    Rotating,
    /// Its provider answers nothing for now. It has no process, and goes on later.
    Limited,
    /// It waits for room on this machine. It has no process, and goes on by itself.
    Queued,
    /// It ended by itself, without an error.
    Completed,
    /// It ended with an error.
    Crashed,
    /// It was asked to stop, or a signal ended it.
    Killed,
    /// The daemon ended while it ran.
    Interrupted,
}

impl Status {
    /// Whether a process is there, on its way, or only put off.
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Completed | Self::Crashed | Self::Killed | Self::Interrupted)
    }
}

/// When a message is to be delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Deliver {
    /// With the next rotation.
    #[default]
    Rotation,
    /// At once: live input, or an immediate rotation.
    Now,
    /// When the current turn ends.
    Idle,
    /// At once where the provider takes live input, else with the next rotation. Never stored: it is one of
    /// the others by the time a message waits.
    Auto,
}

impl Deliver {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rotation => "rotation",
            Self::Now => "now",
            Self::Idle => "idle",
            Self::Auto => "auto",
        }
    }
}

/// Where an agent's changes go first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Into the project's folder, as everybody's. In stored wishes of earlier versions it may be empty.
    #[default]
    #[serde(alias = "")]
    Shared,
    /// Into a git worktree of its own.
    Worktree,
}

/// A message that waits for delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Recorded)]
pub struct Instruction {
    /// Unique within this daemon's life and its state file.
    pub id: u64,
    pub text: Arc<str>,
    /// When to deliver it.
    pub deliver: Deliver,
    /// Handed to the program, which has not confirmed yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sent: bool,
    /// It stands in the prompt of the life that is being started, whose program does not run yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_prompt: bool,
    /// The daemon's own remark: it goes with whatever is said next and is worth no turn of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_note: bool,
}

/// How its process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Recorded)]
pub struct ExitInfo {
    /// The exit code, if it exited.
    pub code: Option<i32>,
    /// The signal, if one ended it.
    pub signal: Option<i32>,
    #[serde(with = "rfc3339")]
    pub at: Time,
}

/// How often a file was read and written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
pub struct FileTouch {
    pub reads: u32,
    pub writes: u32,
}

/// Whether a person is at its own screen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Attached {
    #[default]
    No,
    /// A person wishes to be.
    Wanted {
        /// The kind of the person's terminal.
        term: String,
    },
    /// This life is one with a person.
    Here,
}

impl Attached {
    fn is_no(&self) -> bool {
        *self == Self::No
    }

    /// The word on the wire.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Wanted { .. } => Some("wanted"),
            Self::Here => Some("here"),
        }
    }
}

/// Why a live agent was ordered to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Recorded)]
pub enum Stop {
    /// A person or program wished it.
    Kill,
    /// Its replacement is ready.
    Rotate,
    /// A person is to be at its screen.
    Attach,
    /// It is to go on on another machine.
    Move,
    /// It has used what it may, and gets no successor.
    Limit,
    Shutdown,
}

/// The steps of a process's life.
///
/// ```text
/// Working ──turn over, nothing to say──▶ Finishing ──exit──▶ Ended
///    │                                       │                 ▲
///    └──────────── stop ordered ─────────────┴──▶ Stopping ────┘
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Recorded)]
pub enum Phase {
    Working,
    /// Told to end by itself.
    Finishing,
    /// Being ended; these callers wait.
    Stopping(Stop, Vec<CallId>),
    /// A person is at its screen, and nothing is said to it but there.
    Attached,
    /// Left to its keeper: this daemon hears no more of it.
    Left,
    #[default]
    Ended,
}

/// What an agent's program is to be started with, kept until it runs: a daemon that is killed before leaves
/// it to the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Opening {
    /// Its first message.
    pub prompt: String,
    /// The rotation that it is the successor of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succession: Option<Succession>,
    /// The session that its own is to be a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copied>,
}

/// What a rotation still has to do once the successor runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Succession {
    /// The life before.
    pub old: AgentId,
    /// Why it was replaced.
    pub reason: String,
    /// Tokens in its context.
    pub old_context_tokens: u64,
}

/// The facts of one agent. Stored as it is, but for what `serde(skip)` marks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// This life.
    pub id: AgentId,
    /// All its lives.
    pub lineage_id: LineageId,
    /// The life before, after a rotation or resume.
    pub predecessor_id: Option<AgentId>,
    /// Unique, for people.
    pub name: String,
    /// For example `backend`.
    pub role: String,
    pub provider: String,
    /// As asked for; `None` and `auto` route.
    pub model: Option<String>,
    /// The model the provider says it runs.
    pub actual_model: Option<String>,
    /// Globs of files it owns.
    pub scope: Arc<Vec<String>>,
    /// Relative to the project.
    pub working_dir: String,
    pub integrations: Arc<Vec<String>>,
    pub skills: Arc<Vec<String>>,
    /// What it may do unasked.
    pub permission: Permission,
    pub effort: Effort,
    pub team_id: Option<String>,
    /// Where its changes go first.
    pub isolation: Isolation,
    /// Where its git worktree is, relative to the project.
    pub worktree: Option<String>,
    /// For `acp`: the command to run.
    pub command: Arc<Vec<String>>,
    /// The agent that started it, over all its lives; `None` for a person.
    #[serde(default)]
    pub started_by: Option<LineageId>,
    /// Whether it was started by one that the kernel's fence was around, and so is in it too while its
    /// permission is [`Permission::Auto`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fenced: bool,
    /// What a person added to its environment.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub env: Arc<Extra>,
    /// The task. Stored in a document of its own.
    #[serde(skip)]
    pub prompt: Arc<str>,
    pub status: Status,
    #[serde(with = "rfc3339")]
    pub status_since: Time,
    /// Why, always.
    #[serde(flatten)]
    pub status_reason: StatusReason,
    /// When this life began.
    #[serde(with = "rfc3339")]
    pub spawned_at: Time,
    #[serde(with = "rfc3339")]
    pub last_activity: Time,
    /// What it does, in a few words.
    pub current_activity: Option<String>,
    /// Process id while alive, and after a crash of the daemon.
    pub pid: Option<u32>,
    /// Start time of that process in ticks since boot.
    pub start_ticks: u64,
    pub session_id: Option<String>,
    /// Sessions that it, or an earlier life, has left, the latest last.
    #[serde(default)]
    pub left_sessions: Arc<Vec<String>>,
    /// What the provider had counted for that session.
    pub session_counted: Tokens,
    /// Over all lives.
    pub tokens: Tokens,
    pub instance_tokens: Tokens,
    /// Tokens in the context after the last message.
    pub context_tokens: u64,
    /// Size of the context window; 0 when unknown.
    pub context_window: u64,
    /// Dollars: as the provider tells, else by the price table; without those of `unpriced_tokens`.
    pub cost_usd: f64,
    /// Tokens of models whose price nobody knows.
    #[serde(default)]
    pub unpriced_tokens: u64,
    pub turns: u64,
    pub exit: Option<ExitInfo>,
    /// Last words on standard error, or why a turn failed.
    pub error: Option<String>,
    /// Messages not yet delivered.
    pub queue: Vec<Instruction>,
    /// Files touched, over all lives.
    pub files: Arc<BTreeMap<String, FileTouch>>,
    /// The last turn's outcome in this life.
    pub last_turn: Option<LastTurn>,
    /// Whether a turn is open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turn_open: bool,
    /// Why it is held, and until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Box<Held>>,
    /// What is kept of its start while there is no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<Box<Queued>>,
    /// Whether its process went, or is to go, because memory was short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_away: Option<Box<PutAway>>,
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// The other machine that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// Where it is to go on instead, and how far that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Box<Moving>>,
    /// The account of its provider; `None` is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// What a person has said for it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<OnLimit>,
    /// What its provider told of the limit that its turn has come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Box<Limit>>,
    /// How often it has come to a limit since its last good turn.
    #[serde(default)]
    pub tries: u32,
    /// Words that it was given since then; the task where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<Arc<str>>,
    /// Whether it is open only because something was said that will begin one, and that may not arrive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub turn_presumed: bool,
    /// Whether a person is at its screen.
    #[serde(default, skip_serializing_if = "Attached::is_no")]
    pub attached: Attached,
    /// The last deed of its run that this record has taken in: the same one comes to it once.
    #[serde(default)]
    pub heard: u64,
    /// What its program is to be started with; `None` once it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening: Option<Arc<Opening>>,
    /// Tool calls that have begun and not ended, by id.
    #[serde(skip)]
    pub open_tools: OpenTools,
    /// Why it is being stopped at a limit.
    #[serde(skip)]
    pub limit: Option<Arc<str>>,
    /// Whether the provider has named its session in this life.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub session_confirmed: bool,
    /// Calls under way that name a file.
    #[serde(skip)]
    pub open_files: OpenFiles,
    /// What it holds, when that is near to what it may.
    #[serde(skip)]
    pub near_ceiling: Option<Near>,
    /// Since when all its processes stand still.
    #[serde(skip)]
    pub frozen: Option<Time>,
    /// Whether the current silence was announced.
    #[serde(skip)]
    pub stalled: bool,
    /// The steps of its process's life.
    #[serde(skip)]
    pub phase: Phase,
}

fn is_plain(env: &Extra) -> bool {
    env.is_empty()
}

/// What is kept of a turn's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Recorded)]
#[serde(rename_all = "camelCase")]
pub struct LastTurn {
    /// The provider called it a failure.
    pub is_error: bool,
    /// The error, or the first words of the answer.
    pub text: String,
    pub denied: usize,
}

impl Agent {
    /// Fraction of the context window in use, 0.0 when the window is unknown.
    #[allow(clippy::cast_precision_loss, reason = "a fraction for people; token counts are far below 2^52")]
    pub fn context_usage(&self) -> f64 {
        if self.context_window == 0 {
            return 0.0;
        }
        let fraction = self.context_tokens as f64 / self.context_window as f64;
        (fraction * 10_000.0).round() / 10_000.0
    }

    /// Whether it runs and was not told to end.
    pub fn is_working(&self) -> bool {
        self.phase == Phase::Working
    }

    /// Whether its model may be at work: one that was told to end may still begin a turn with what it took
    /// last.
    pub fn may_spend(&self) -> bool {
        self.turn_open && matches!(self.phase, Phase::Working | Phase::Finishing)
    }

    /// Sets status and reason; the time moves only when the status does.
    pub fn set_status(&mut self, now: Time, status: Status, reason: impl Into<StatusReason>) {
        if self.status != status {
            self.status = status;
            self.status_since = now;
        }
        self.status_reason = reason.into();
    }

    /// The record as REST shows it: a live agent is `active`, the fine word stands in `state`.
    pub fn rest(&self) -> View<'_> {
        View { agent: self, rest: true }
    }

    /// The record as WebSocket clients get it: `status` is the fine word.
    pub fn live_view(&self) -> View<'_> {
        View { agent: self, rest: false }
    }
}

/// A record on its way out.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    agent: &'a Agent,
    rest: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    id: AgentId,
    name: &'a str,
    role: &'a str,
    status: &'a str,
    state: &'a str,
    status_reason: Arguments<'a>,
    status_code: &'static str,
    #[serde(with = "rfc3339")]
    status_since: Time,
    provider: &'a str,
    model: &'a str,
    actual_model: Option<&'a str>,
    scope: &'a [String],
    tokens_used: u64,
    tokens: Tokens,
    context_usage: f64,
    context_window: u64,
    #[serde(with = "rfc3339")]
    spawned_at: Time,
    #[serde(with = "rfc3339")]
    last_activity: Time,
    current_activity: Option<&'a str>,
    working_dir: &'a str,
    integrations: &'a [String],
    skills: &'a [String],
    team_id: &'a str,
    permission: Permission,
    effort: Effort,
    prompt: &'a str,
    pid: Option<u32>,
    session_id: Option<&'a str>,
    lineage_id: LineageId,
    predecessor_id: Option<AgentId>,
    cost_usd: Option<f64>,
    unpriced_tokens: u64,
    turns: u64,
    exit: Option<ExitInfo>,
    error: Option<&'a str>,
    limit: Option<Value>,
    account: &'a str,
    on_limit: Option<OnLimit>,
    priority: Priority,
    pending_instructions: usize,
    isolation: Isolation,
    worktree: Option<&'a str>,
    started_by: Option<LineageId>,
    runner: Option<&'a str>,
    attached: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Near>,
}

/// Characters of the prompt in lists and pushed records; `GET /api/agents/:id` shows all.
pub const PROMPT_SHOWN_CHARS: usize = 500;

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let agent = self.agent;
        let fine = match agent.status {
            Status::Starting => "starting",
            Status::Running if agent.stands_still() => "waiting",
            Status::Running => "running",
            Status::Waiting => "waiting",
            Status::Rotating => "rotating",
            // Only a used-up window is a limit to people: the rest is waiting.
            Status::Limited if agent.held.as_ref().is_some_and(|held| held.kind != Kind::Window) => "waiting",
            Status::Limited => "limited",
            Status::Queued => "queued",
            Status::Completed => "completed",
            Status::Crashed => "crashed",
            Status::Killed => "killed",
            Status::Interrupted => "interrupted",
        };
        let cut =
            agent.prompt.char_indices().nth(PROMPT_SHOWN_CHARS).map_or(agent.prompt.len(), |(at, _)| at);
        let still = StatusReason::from(Reason::Frozen);
        let reason = if agent.stands_still() { &still } else { &agent.status_reason };
        Shown {
            id: agent.id,
            name: &agent.name,
            role: &agent.role,
            status: if self.rest && agent.status.is_live() { "active" } else { fine },
            state: fine,
            status_reason: format_args!("{reason}"),
            status_code: reason.code(),
            status_since: agent.status_since,
            provider: &agent.provider,
            model: agent.model.as_deref().unwrap_or("auto"),
            actual_model: agent.actual_model.as_deref(),
            scope: &agent.scope,
            tokens_used: agent.tokens.total(),
            tokens: agent.tokens,
            context_usage: agent.context_usage(),
            context_window: agent.context_window,
            spawned_at: agent.spawned_at,
            last_activity: agent.last_activity,
            current_activity: agent.current_activity.as_deref(),
            working_dir: &agent.working_dir,
            integrations: &agent.integrations,
            skills: &agent.skills,
            team_id: agent.team_id.as_deref().unwrap_or(usage::UNASSIGNED),
            permission: agent.permission,
            effort: agent.effort,
            prompt: &agent.prompt[..cut],
            pid: agent.pid.filter(|_| agent.status.is_live()),
            session_id: agent.session_id.as_deref(),
            lineage_id: agent.lineage_id,
            predecessor_id: agent.predecessor_id,
            cost_usd: prices::known(agent.cost_usd, agent.unpriced_tokens),
            unpriced_tokens: agent.unpriced_tokens,
            turns: agent.turns,
            exit: agent.exit,
            error: agent.error.as_deref(),
            limit: agent.held.as_ref().map(|held| held.shown()),
            account: agent.account_name(),
            on_limit: agent.on_limit,
            priority: agent.priority,
            pending_instructions: agent.queue.len(),
            isolation: agent.isolation,
            worktree: agent.worktree.as_deref(),
            started_by: agent.started_by,
            runner: agent.runner.as_deref(),
            attached: agent.attached.word(),
            memory: agent.near_ceiling.filter(|_| agent.status.is_live()),
        }
        .serialize(serializer)
    }
}
