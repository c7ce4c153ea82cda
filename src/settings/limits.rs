//! What a person allows at the limits of a provider and of the budget.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use svc_base::choice::of_word;

/// What an agent does at its provider's usage limit.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum OnLimit {
    /// It waits until a person says what then.
    #[default]
    Ask,
    /// It goes on by itself when the limit opens.
    Wait,
    /// It goes on at once with another provider.
    Handover,
    /// It ends.
    Stop,
}

impl OnLimit {
    /// The words of all.
    pub const WORDS: &[&str] = &["ask", "wait", "handover", "stop"];

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Wait => "wait",
            Self::Handover => "handover",
            Self::Stop => "stop",
        }
    }
}

/// `budget`.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// What becomes of agents inside of a turn when the daily budget is spent.
    pub mid_turn: MidTurn,
}

/// See [`Budget::mid_turn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum MidTurn {
    /// They end their turns; nothing new begins.
    Warn,
    /// They are stopped at the next safe place.
    Stop,
}

/// `limits`.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// By team, its id or its name.
    pub teams: BTreeMap<String, OnLimit>,
    /// Accounts and ids of providers, between commas, the first first.
    pub handover_to: Option<String>,
    /// Percent of each window of a provider that are kept for the person.
    pub reserve: Option<u8>,
    /// When no agent goes on by itself.
    pub quiet_hours: Option<QuietHours>,
    /// Tokens of one agent above which a person is asked.
    pub cap_tokens: Option<u64>,
    /// The same in dollars.
    pub cap_usd: Option<f64>,
    /// The first delay where nobody tells one.
    pub retry_seconds: u64,
}

/// Minutes of the day, in the machine's time. One that ends before it begins lasts over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct QuietHours {
    /// Their first minute.
    pub from: u16,
    /// The first minute after them.
    pub to: u16,
}

impl QuietHours {
    /// Reads `22:00-07:00`.
    pub fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(60 * hour + minute)
        };
        let (from, to) = text.split_once('-')?;
        let hours = Self { from: minute(from)?, to: minute(to)? };
        (hours.from != hours.to).then_some(hours)
    }

    /// Whether this minute of the day is quiet.
    pub fn has(self, minute: u16) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

impl<'de> Deserialize<'de> for QuietHours {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not HH:MM-HH:MM"))
    }
}

fn quiet_hours(value: &Value) -> Option<String> {
    let fits = value.as_str().is_some_and(|text| QuietHours::parse(text).is_some());
    (!fits).then(|| "must be like 22:00-07:00, with two different times, or null".into())
}

/// Accounts and providers that a person may name.
const MAX_TARGETS: usize = 8;

/// That the accounts are there is seen when one is added or removed, and by `PATCH /api/config`.
fn handover_to(value: &Value) -> Option<String> {
    let is_word = |name: &str| !name.is_empty() && name.len() <= 40 && !name.contains(char::is_whitespace);
    let names: Option<Vec<&str>> = value.as_str().map(|text| text.split(',').map(str::trim).collect());
    let fits =
        names.is_some_and(|names| names.len() <= MAX_TARGETS && names.iter().all(|name| is_word(name)));
    (!fits)
        .then(|| format!("must be 1 to {MAX_TARGETS} accounts or provider ids with commas between, or null"))
}

/// Teams a person may name.
const MAX_TEAMS: usize = 200;

fn teams(value: &Value) -> Option<String> {
    let known = |word: &Value| word.as_str().is_some_and(|word| of_word::<OnLimit>(word).is_some());
    let fits = value.as_object().is_some_and(|map| map.len() <= MAX_TEAMS && map.values().all(known));
    (!fits).then(|| format!("must map at most {MAX_TEAMS} teams to one of {}", OnLimit::WORDS.join(", ")))
}

/// The settings of this file.
pub(super) const KEYS: [&str; 9] = [
    "budget.midTurn",
    "onLimit",
    "limits.teams",
    "limits.handoverTo",
    "limits.reserve",
    "limits.quietHours",
    "limits.capTokens",
    "limits.capUsd",
    "limits.retrySeconds",
];

/// What is wrong with the value of one of [`KEYS`].
pub(super) fn check(key: &str, value: &Value) -> Option<String> {
    let word = |choices: &[&str]| {
        let fits = value.as_str().is_some_and(|text| choices.contains(&text));
        (!fits).then(|| format!("must be one of {}", choices.join(", ")))
    };
    let whole = |low: u64, high: u64| {
        let fits = value.as_u64().is_some_and(|n| (low..=high).contains(&n));
        (!fits).then(|| format!("must be a whole number from {low} to {high}"))
    };
    match key {
        "budget.midTurn" => word(&["warn", "stop"]),
        "onLimit" => word(OnLimit::WORDS),
        "limits.teams" => teams(value),
        "limits.retrySeconds" => whole(1, 3_600),
        _ if value.is_null() => None,
        "limits.handoverTo" => handover_to(value),
        "limits.reserve" => whole(1, 99),
        "limits.quietHours" => quiet_hours(value),
        "limits.capTokens" => whole(1_000, 1_000_000_000_000),
        _ => super::budget(value),
    }
}
