//! What agents do, in one vocabulary for all providers. These values also are the lines of the built-in
//! agents (`script`, `ollama`) and of the activity logs.

use super::limit::Limit;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::{Add, AddAssign, Sub};

/// Token counts, each class apart: `input` never contains cached tokens.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "camelCase", default)]
pub struct Tokens {
    /// Fresh input, cached input excluded.
    pub input: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Input read from the provider's cache.
    pub cache_read: u64,
    /// Input written to the provider's cache.
    pub cache_creation: u64,
}

impl Tokens {
    /// All classes together: the `tokensUsed` of an agent. A program's nonsense stops at the highest number.
    pub fn total(self) -> u64 {
        [self.output, self.cache_read, self.cache_creation].into_iter().fold(self.input, u64::saturating_add)
    }

    /// What has to be added to `earlier` to get `self`.
    pub fn minus(self, earlier: Self) -> TokensDelta {
        let diff = |now: u64, then: u64| {
            i64::try_from(now).unwrap_or(i64::MAX) - i64::try_from(then).unwrap_or(i64::MAX)
        };
        TokensDelta {
            input: diff(self.input, earlier.input),
            output: diff(self.output, earlier.output),
            cache_read: diff(self.cache_read, earlier.cache_read),
            cache_creation: diff(self.cache_creation, earlier.cache_creation),
        }
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_creation: self.cache_creation.saturating_add(other.cache_creation),
        }
    }
}

impl AddAssign<TokensDelta> for Tokens {
    /// A correction below zero stops at zero: a provider's nonsense never wraps a counter.
    fn add_assign(&mut self, delta: TokensDelta) {
        self.input = self.input.saturating_add_signed(delta.input);
        self.output = self.output.saturating_add_signed(delta.output);
        self.cache_read = self.cache_read.saturating_add_signed(delta.cache_read);
        self.cache_creation = self.cache_creation.saturating_add_signed(delta.cache_creation);
    }
}

/// A change of [`Tokens`]; negative where a provisional figure was too high.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "camelCase", default)]
pub struct TokensDelta {
    /// As in [`Tokens`].
    pub input: i64,
    /// As in [`Tokens`].
    pub output: i64,
    /// As in [`Tokens`].
    pub cache_read: i64,
    /// As in [`Tokens`].
    pub cache_creation: i64,
}

impl TokensDelta {
    /// Whether it changes nothing.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

impl Sub for TokensDelta {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            cache_read: self.cache_read.saturating_sub(other.cache_read),
            cache_creation: self.cache_creation.saturating_sub(other.cache_creation),
        }
    }
}

/// A change of the agent's consumption.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// The model that has used it, where that is another than the session's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// To be added to the agent's tokens.
    pub delta: TokensDelta,
    /// The provider's own cumulative figure for its session, where it has one: kept with the session id
    /// and handed back on a resume, so that what was counted is not counted again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_total: Option<Tokens>,
    /// Tokens in the context after the last main-thread message. Sub-agents do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The model's context window in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// To be added to the agent's cost, where the provider reports one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// How a turn ended, from the provider's own words.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct TurnEnd {
    /// The final answer; where the program does not repeat it at the end, what was remembered of it: at most
    /// 256 KiB. Empty when there is none.
    pub text: String,
    /// The provider calls it a failure.
    pub is_error: bool,
    /// Why, for people; empty when it is no error.
    pub error: String,
    /// Model round trips, where told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// Milliseconds, where told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The cost of this turn in US dollars, where told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Tools that were refused for lack of permission.
    pub denied: Vec<String>,
}

impl TurnEnd {
    /// The end of a turn with this answer; of one that failed, with the reason instead.
    pub(super) fn of(text: String, failure: Option<String>) -> Self {
        match failure {
            None => Self { text, ..Self::default() },
            Some(error) => Self { is_error: true, error, ..Self::default() },
        }
    }
}

/// One thing an agent did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Activity {
    /// The provider named its session (and perhaps the model in use).
    Session {
        /// What a resume needs.
        id: String,
        /// The model the provider says it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// A turn has begun: the agent is working until [`Activity::TurnEnded`].
    TurnStarted,
    /// Words of the assistant, one whole message or paragraph (deltas are joined).
    Text { text: String },
    /// Thinking, where the provider shows it.
    Thinking {
        #[recorded(skip)]
        text: String,
    },
    /// A tool call has begun.
    ToolStarted {
        /// Joins it with its end.
        id: String,
        /// The provider's name of the tool.
        name: String,
        input: Value,
        /// The file it reads or writes, where it names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Whether it changes that file.
        #[serde(default)]
        writes: bool,
    },
    /// A tool call has ended.
    ToolEnded {
        /// As in its start.
        id: String,
        /// Whether the tool failed (or was refused).
        error: bool,
        /// What it returned, cut to 64 KiB.
        #[recorded(line)]
        output: String,
    },
    /// The provider asks whether a tool may be used; its turn is paused until it is answered.
    PermissionAsked {
        /// By which [`crate::Conversation::decide`] answers it.
        question: String,
        /// The provider's name of the tool.
        name: String,
        input: Value,
    },
    /// Tokens, context or cost have changed.
    Usage(Usage),
    /// The provider retries against its endpoint, or warns: shown as the status reason.
    Trouble {
        /// For people, for example `retry 2 of 10 after error 429`.
        text: String,
    },
    /// What the provider told of a window of its limits, or that it answers nothing for now.
    Limit(Limit),
    /// The provider has compacted its context itself.
    Compacted,
    /// The turn is over.
    TurnEnded(TurnEnd),
    /// Output that is not of the protocol.
    Noise {
        /// The line, cut to 4 KiB.
        #[recorded(skip)]
        text: String,
    },
}
