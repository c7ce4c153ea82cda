//! Why an agent is in its status: closed words for programs, and the one place that makes sentences of them
//! for people. Nothing decides by the sentences: [`StatusReason`] gives its text to no comparison.

use crate::core::ids::AgentId;
use crate::core::time::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt::{self, Display, Formatter};

#[cfg(test)]
#[path = "reason_tests.rs"]
mod tests;
#[path = "reason_words.rs"]
mod words;

use words::{above_ceiling, cut_off, limited, moved, provider_busy, put_away, silent};

/// Why an agent is in its status. The names of the variants in kebab-case are `statusCode` of the API and
/// stand in the state file, so they never change; the sentences may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(tag = "code", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Reason {
    /// The order to start it was given.
    #[default]
    Starting,
    /// The order to start it was given, in place of the life that a rotation ended.
    Succeeding {
        /// The life before.
        old: AgentId,
        /// Why it was rotated.
        rotation: String,
    },
    /// Its process runs and has said nothing yet.
    ProcessRuns,
    /// Its process says things.
    Working,
    /// Its program told of trouble in these words, such as tries that are repeated.
    Trouble { text: String },
    /// No output inside an open turn for this long.
    Silent {
        /// The silence so far.
        seconds: u64,
        /// What it was before, where that says more than that it worked.
        before: Option<String>,
    },
    /// Its turn ended well.
    TurnEnded,
    /// Its turn ended well, and these tools were refused to it.
    TurnEndedWithRefusals { denied: Vec<String> },
    /// Its turn failed; the process still runs.
    TurnFailed {
        /// The first words of the error.
        error: String,
    },
    /// Its provider's usage limit is reached.
    Limited {
        error: String,
        /// When the provider says that it opens.
        resets: Option<Time>,
        /// When it goes on by itself; `None` when a person has to say so.
        next: Option<Time>,
        name: String,
        /// No more is left of it than a person keeps.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_kept: bool,
    },
    /// Its provider has too much to do, or cannot be reached.
    ProviderBusy {
        /// The first words of the refusal.
        error: String,
        /// When it is asked again.
        next: Option<Time>,
    },
    /// It waits for room on this machine.
    Queued {
        /// That it does, and why there was none.
        text: String,
    },
    /// It waits for a person.
    AwaitsDecision(Awaited),
    /// Its process went while it waited for a person, because memory was short.
    PutAway {
        /// What it waits for, if that was not decided meanwhile.
        awaited: Option<Awaited>,
        name: String,
    },
    /// All its processes stand still while memory is short.
    Frozen,
    /// The line to the machine that it works on is cut; it works on there.
    Unreachable {
        runner: String,
        why: String,
        /// What it was before, as the state file has it.
        before: Option<String>,
    },
    /// Its branch and its session are on their way to another machine, where it goes on.
    Moving {
        /// Where to, for a sentence.
        to: String,
    },
    /// It is there, and goes on with the next word; or why it did not go on by itself.
    Moved { to: String, name: String, refused: Option<String> },
    /// It is where it was.
    MoveFailed { to: String, error: String, name: String },
    /// A session that a person had is its own now, and it goes on there with the next word.
    Adopted {
        /// That it was, and how it goes on.
        text: String,
    },
    /// What it waited for was decided.
    Decided,
    /// A successor is prepared.
    Rotating {
        /// Why it is rotated.
        rotation: String,
    },
    /// No successor could be prepared; it goes on.
    RotationFailed { error: String },
    /// It is being ended because somebody wished it.
    Stopping,
    /// It is being ended because its successor is ready.
    BeingReplaced,
    /// It ends because a person is to be at its screen.
    HandingOver,
    /// A person is at its screen.
    Attached,
    /// The person has left its screen.
    GivenBack,
    /// It is being ended because it has used what it may.
    StoppingAtLimit,
    /// It is being ended because the daemon stops.
    DaemonStopping,
    /// It was ended because somebody wished it.
    Stopped,
    /// Its successor goes on with its work.
    Replaced,
    /// It was ended because it had used what it may.
    LimitReached { limit: String, name: String },
    /// The daemon was stopped while it ran.
    DaemonStopped,
    /// The daemon ended by itself while it ran.
    DaemonEnded {
        /// The process that was left.
        pid: Option<u32>,
    },
    /// It has done its work.
    Finished,
    /// It has done its work, and tools were refused to it.
    FinishedWithRefusals { denied: usize },
    /// It has done its work so far, and goes on when a person has decided.
    FinishedAwaitsDecision(Awaited),
    /// It exited well inside of a turn.
    CutShort,
    /// It exited well without the end of a turn.
    NoResult,
    /// It exited, and its last turn had failed.
    LastTurnFailed {
        /// The first words of the error.
        error: String,
    },
    /// It exited, and its last turn had failed because nobody is logged in.
    LoginNeeded {
        /// The first words of the error.
        error: String,
        /// How to log in.
        remedy: String,
    },
    /// It exited with a code other than 0.
    ExitCode {
        exit: i32,
        /// The line of its standard error that says most.
        cause: Option<String>,
    },
    /// A signal ended it that nobody here sent.
    ForeignSignal { signal: i32 },
    /// The daemon's signal ended it.
    EndedByDaemon { signal: i32 },
    /// Its process is gone and nobody knows how.
    Vanished,
    /// No daemon came for so long that its keeper ended it.
    Orphaned,
    /// The process that kept it is gone.
    KeeperGone,
    /// It was ended because it held more memory than one agent may: megabytes.
    MemoryCeiling { used: u64, ceiling: u64, name: String },
    /// There never was a process.
    StartFailed { error: String },
    /// Words of a state file that has no code.
    Other { text: String },
}

/// What an agent waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Awaited {
    /// The id of the approval.
    pub approval: String,
    /// What the agent wants to do, in words.
    pub action: String,
    /// Whether its process waits for that, and not just the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_process: bool,
}

impl Reason {
    /// The code of each reason, in the order of the variants.
    pub const CODES: &[&str] = &[
        "starting",
        "succeeding",
        "process-runs",
        "working",
        "trouble",
        "silent",
        "turn-ended",
        "turn-ended-with-refusals",
        "turn-failed",
        "limited",
        "provider-busy",
        "queued",
        "awaits-decision",
        "put-away",
        "frozen",
        "unreachable",
        "moving",
        "moved",
        "move-failed",
        "adopted",
        "decided",
        "rotating",
        "rotation-failed",
        "stopping",
        "being-replaced",
        "handing-over",
        "attached",
        "given-back",
        "stopping-at-limit",
        "daemon-stopping",
        "stopped",
        "replaced",
        "limit-reached",
        "daemon-stopped",
        "daemon-ended",
        "finished",
        "finished-with-refusals",
        "finished-awaits-decision",
        "cut-short",
        "no-result",
        "last-turn-failed",
        "login-needed",
        "exit-code",
        "foreign-signal",
        "ended-by-daemon",
        "vanished",
        "orphaned",
        "keeper-gone",
        "memory-ceiling",
        "start-failed",
        "other",
    ];

    /// The stable word for programs: `statusCode` of a record.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Succeeding { .. } => "succeeding",
            Self::ProcessRuns => "process-runs",
            Self::Working => "working",
            Self::Trouble { .. } => "trouble",
            Self::Silent { .. } => "silent",
            Self::TurnEnded => "turn-ended",
            Self::TurnEndedWithRefusals { .. } => "turn-ended-with-refusals",
            Self::TurnFailed { .. } => "turn-failed",
            Self::Limited { .. } => "limited",
            Self::ProviderBusy { .. } => "provider-busy",
            Self::Queued { .. } => "queued",
            Self::AwaitsDecision(_) => "awaits-decision",
            Self::PutAway { .. } => "put-away",
            Self::Frozen => "frozen",
            Self::Unreachable { .. } => "unreachable",
            Self::Moving { .. } => "moving",
            Self::Moved { .. } => "moved",
            Self::MoveFailed { .. } => "move-failed",
            Self::Adopted { .. } => "adopted",
            Self::Decided => "decided",
            Self::Rotating { .. } => "rotating",
            Self::RotationFailed { .. } => "rotation-failed",
            Self::Stopping => "stopping",
            Self::BeingReplaced => "being-replaced",
            Self::HandingOver => "handing-over",
            Self::Attached => "attached",
            Self::GivenBack => "given-back",
            Self::StoppingAtLimit => "stopping-at-limit",
            Self::DaemonStopping => "daemon-stopping",
            Self::Stopped => "stopped",
            Self::Replaced => "replaced",
            Self::LimitReached { .. } => "limit-reached",
            Self::DaemonStopped => "daemon-stopped",
            Self::DaemonEnded { .. } => "daemon-ended",
            Self::Finished => "finished",
            Self::FinishedWithRefusals { .. } => "finished-with-refusals",
            Self::FinishedAwaitsDecision(_) => "finished-awaits-decision",
            Self::CutShort => "cut-short",
            Self::NoResult => "no-result",
            Self::LastTurnFailed { .. } => "last-turn-failed",
            Self::LoginNeeded { .. } => "login-needed",
            Self::ExitCode { .. } => "exit-code",
            Self::ForeignSignal { .. } => "foreign-signal",
            Self::EndedByDaemon { .. } => "ended-by-daemon",
            Self::Vanished => "vanished",
            Self::Orphaned => "orphaned",
            Self::KeeperGone => "keeper-gone",
            Self::MemoryCeiling { .. } => "memory-ceiling",
            Self::StartFailed { .. } => "start-failed",
            Self::Other { .. } => "other",
        }
    }

    /// What a person is to decide, where it waits for that.
    pub fn awaited(&self) -> Option<&Awaited> {
        match self {
            Self::AwaitsDecision(awaited) => Some(awaited),
            _ => None,
        }
    }

    /// What no output for this long means after this reason.
    pub fn silent(seconds: u64, before: &StatusReason) -> Self {
        let is_plain = before.remarks.is_empty() && matches!(before.why, Self::Working | Self::ProcessRuns);
        Self::Silent { seconds, before: (!is_plain).then(|| before.to_string()) }
    }

    /// The reason of a state file that tells only its words. What rules ask for is known again by them; in no
    /// other place are the words of a reason read.
    fn of_words(text: String) -> Self {
        const FIXED: [Reason; 18] = [
            Reason::Starting,
            Reason::ProcessRuns,
            Reason::Working,
            Reason::TurnEnded,
            Reason::Decided,
            Reason::Stopping,
            Reason::BeingReplaced,
            Reason::HandingOver,
            Reason::Attached,
            Reason::GivenBack,
            Reason::StoppingAtLimit,
            Reason::DaemonStopping,
            Reason::Stopped,
            Reason::Replaced,
            Reason::DaemonStopped,
            Reason::Finished,
            Reason::CutShort,
            Reason::NoResult,
        ];
        if let Some(known) = FIXED.iter().find(|known| known.to_string() == text) {
            return known.clone();
        }
        let signal = text.strip_prefix("signal ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        if let Some(known) = signal.map(|signal| Self::ForeignSignal { signal })
            && known.to_string() == text
        {
            return known;
        }
        let awaited = text.strip_prefix(AWAITS).and_then(|rest| rest.strip_prefix(APPROVAL));
        match awaited.and_then(|rest| rest.split_once(": ")) {
            Some((approval, action)) => {
                let (approval, action) = (approval.into(), action.into());
                Self::FinishedAwaitsDecision(Awaited { approval, action, in_process: false })
            }
            None => Self::Other { text },
        }
    }
}

/// How the sentence about one begins that goes on after a decision.
const AWAITS: &str = "finished so far, and goes on after the decision: ";
/// Why a keeper has ended its run.
const ORPHANED: &str = "its keeper ended it: no daemon was there for keeper.orphanMinutes, or it was being \
                        stopped when the last one died";
/// What stands before the id of the approval.
const APPROVAL: &str = "it waits for approval ";

impl Display for Awaited {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{APPROVAL}{}: {}", self.approval, self.action)
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("its process is being started"),
            Self::Succeeding { old, rotation } => write!(f, "it succeeds {old} ({rotation})"),
            Self::ProcessRuns => f.write_str("its process runs"),
            Self::Working => f.write_str("working"),
            Self::Trouble { text }
            | Self::Queued { text }
            | Self::Adopted { text }
            | Self::Other { text } => f.write_str(text),
            Self::Silent { seconds, before } => silent(f, *seconds, before.as_deref()),
            Self::TurnEnded => f.write_str("its turn ended"),
            Self::TurnEndedWithRefusals { denied } => {
                write!(f, "its turn ended with {} refused tool calls: {}", denied.len(), denied.join(", "))
            }
            Self::TurnFailed { error } => write!(f, "its turn failed: {error}"),
            Self::Limited { .. } => limited(f, self),
            Self::ProviderBusy { error, next } => provider_busy(f, error, *next),
            Self::AwaitsDecision(awaited) => awaited.fmt(f),
            Self::PutAway { awaited, name } => put_away(f, awaited.as_ref(), name),
            Self::Frozen => f.write_str("frozen while memory is short: it goes on by itself where it stands"),
            Self::Unreachable { runner, why, .. } => cut_off(f, runner, why),
            Self::Moving { .. } | Self::Moved { .. } | Self::MoveFailed { .. } => moved(f, self),
            Self::Decided => f.write_str("what it waited for was decided"),
            Self::Rotating { rotation } => write!(f, "a rotation ({rotation}) prepares its successor"),
            Self::RotationFailed { error } => write!(f, "its rotation failed: {error}"),
            Self::Stopping => f.write_str("being stopped on request"),
            Self::BeingReplaced => f.write_str("being replaced by its successor"),
            Self::HandingOver => f.write_str("handed over to a person at its screen"),
            Self::Attached => f.write_str("a person is at its screen"),
            Self::GivenBack => f.write_str("the person has left its screen"),
            Self::StoppingAtLimit => f.write_str("being stopped at its limit"),
            Self::DaemonStopping => f.write_str("being stopped because the daemon stops"),
            Self::Stopped => f.write_str("stopped on request"),
            Self::Replaced => f.write_str("replaced by its successor"),
            Self::LimitReached { limit, name } => {
                write!(f, "stopped: {limit}; svc resume {name} continues it")
            }
            Self::DaemonStopped => {
                f.write_str("the daemon was stopped while it ran; svc resume continues it")
            }
            Self::DaemonEnded { pid } => {
                let pid = pid.map_or_else(|| "not yet known".to_owned(), |pid| pid.to_string());
                write!(f, "the daemon ended while it ran (pid {pid}); svc resume continues it")
            }
            Self::Finished => f.write_str("finished"),
            Self::FinishedWithRefusals { denied } => write!(f, "finished, with {denied} refused tool calls"),
            Self::FinishedAwaitsDecision(awaited) => write!(f, "{AWAITS}{awaited}"),
            Self::CutShort => f.write_str("it exited while a turn was open: its output may be cut short"),
            Self::NoResult => f.write_str("it exited without reporting a result"),
            Self::LastTurnFailed { error } => write!(f, "its last turn failed: {error}"),
            Self::LoginNeeded { error, remedy } => write!(f, "its last turn failed: {error}; {remedy}"),
            Self::ExitCode { exit, cause: None } => write!(f, "it exited with code {exit}"),
            Self::ExitCode { exit, cause: Some(cause) } => write!(f, "it exited with code {exit}: {cause}"),
            Self::ForeignSignal { signal } => {
                write!(f, "signal {signal} ended it; the daemon did not send it")
            }
            Self::EndedByDaemon { signal } => write!(f, "the daemon ended it with signal {signal}"),
            Self::Vanished => f.write_str("its process vanished without an exit status"),
            Self::Orphaned => f.write_str(ORPHANED),
            Self::KeeperGone => {
                f.write_str("the process that kept it was ended by somebody, and it with it; resume goes on")
            }
            Self::MemoryCeiling { used, ceiling, name } => above_ceiling(f, *used, *ceiling, name),
            Self::StartFailed { error } => write!(f, "its process could not be started: {error}"),
        }
    }
}

/// What people have to know beside the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "kebab-case")]
pub enum Remark {
    /// The provider does not know its session any more.
    SessionGone,
    /// These many messages wait for its next life.
    Undelivered { count: usize, name: String },
    /// It ended by itself while its successor was prepared, which goes on all the same.
    Rotating {
        /// Why it is rotated.
        rotation: String,
    },
}

impl Display for Remark {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SessionGone => f.write_str("its session is gone, the next resume starts a new one"),
            Self::Rotating { rotation } => write!(f, "{}", Reason::Rotating { rotation: rotation.clone() }),
            Self::Undelivered { count, name } => {
                let (words, them) =
                    if *count == 1 { ("instruction was", "it") } else { ("instructions were", "them") };
                write!(f, "{count} {words} not delivered, svc resume {name} delivers {them}")
            }
        }
    }
}

/// The reason in a record, with remarks. It can be shown and asked for its [`Reason`], and that is all.
///
/// In the state file: `statusReason`, the words; `statusCause`, the reason with its `code`; `statusRemarks`.
/// A file of an earlier version has the words alone; a cause that this version does not know counts as none.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct StatusReason {
    why: Reason,
    remarks: Vec<Remark>,
}

impl StatusReason {
    /// What rules decide by.
    pub fn why(&self) -> &Reason {
        &self.why
    }

    /// The stable word for programs, see [`Reason::code`].
    pub fn code(&self) -> &'static str {
        self.why.code()
    }

    /// `statusReason` and `statusCode`, for clients.
    pub fn shown<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Shown { status_reason: self.to_string(), status_code: self.code() }.serialize(serializer)
    }

    /// Says this, too, until the next reason.
    pub fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// Why it is rotated, if it is: while it lives, or after it has ended by itself.
    pub fn rotation(&self) -> Option<&str> {
        let remarked = self.remarks.iter().find_map(|remark| match remark {
            Remark::Rotating { rotation } => Some(rotation.as_str()),
            _ => None,
        });
        match &self.why {
            Reason::Rotating { rotation } => Some(rotation),
            _ => remarked,
        }
    }

    /// It has ended by itself and gets no successor after all.
    pub fn forget_rotation(&mut self) {
        self.remarks.retain(|remark| !matches!(remark, Remark::Rotating { .. }));
    }
}

impl From<Reason> for StatusReason {
    fn from(why: Reason) -> Self {
        Self { why, remarks: Vec::new() }
    }
}

impl Display for StatusReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        self.remarks.iter().try_for_each(|remark| write!(f, "; {remark}"))
    }
}

/// As clients see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    status_reason: String,
    status_code: &'static str,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "statusReason")]
    words: String,
    #[serde(rename = "statusCause")]
    cause: &'a Reason,
    #[serde(rename = "statusRemarks", skip_serializing_if = "<[Remark]>::is_empty")]
    remarks: &'a [Remark],
}

#[derive(Deserialize)]
struct Read {
    #[serde(rename = "statusReason")]
    words: String,
    #[serde(rename = "statusCause", default)]
    cause: Value,
    #[serde(rename = "statusRemarks", default)]
    remarks: Value,
}

impl Serialize for StatusReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written { words: self.to_string(), cause: &self.why, remarks: &self.remarks }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StatusReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { words, cause, remarks } = Read::deserialize(deserializer)?;
        let known: Option<Reason> = serde_json::from_value(cause).ok();
        let remarks = match remarks {
            Value::Null => Some(Vec::new()),
            told => serde_json::from_value(told).ok(),
        };
        Ok(match known.zip(remarks) {
            Some((why, remarks)) => Self { why, remarks },
            None => Reason::of_words(words).into(),
        })
    }
}
