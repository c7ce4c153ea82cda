//! What a person allows agents to take of the machine.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `governor`.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Governor {
    /// What becomes of an agent for which there is no room.
    pub admit: Admit,
    /// Megabytes of memory that agents leave free; `None` is a part of it all.
    pub reserve_megabytes: Option<u64>,
    /// Megabytes that one agent may hold with all that it starts; 0 is as much as there is.
    pub agent_megabytes: u64,
    /// Whether idle agents lose their processes while memory is short.
    pub put_away: bool,
    /// Whether agents inside of a turn stand still while memory is short.
    pub freeze: bool,
}

impl Governor {
    /// [`Governor::agent_megabytes`] in bytes.
    pub fn ceiling(&self) -> u64 {
        self.agent_megabytes << 20
    }
}

/// See [`Governor::admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// It is started all the same.
    Off,
    /// It waits its turn.
    Queue,
    /// It is refused.
    Refuse,
}

/// The settings of this file.
pub(super) const KEYS: [&str; 5] = [
    "governor.admit",
    "governor.reserveMegabytes",
    "governor.agentMegabytes",
    "governor.putAway",
    "governor.freeze",
];
/// With less than this no agent program begins.
const LEAST_CEILING: u64 = 32;
/// More than any machine has.
const MAX_MEGABYTES: u64 = 1 << 24;

/// What is wrong with the value of one of [`KEYS`].
pub(super) fn check(key: &str, value: &Value) -> Option<String> {
    const WORDS: [&str; 3] = ["off", "queue", "refuse"];
    if key == "governor.putAway" || key == "governor.freeze" {
        return (!value.is_boolean()).then(|| "must be true or false".into());
    }
    if key == "governor.agentMegabytes" {
        let fits = |n| n == 0 || (LEAST_CEILING..=MAX_MEGABYTES).contains(&n);
        return (!value.as_u64().is_some_and(fits))
            .then(|| format!("must be 0, or a whole number from {LEAST_CEILING} to {MAX_MEGABYTES}"));
    }
    if key != "governor.admit" {
        let fits = value.is_null() || value.as_u64().is_some_and(|n| n <= MAX_MEGABYTES);
        return (!fits).then(|| format!("must be a whole number from 0 to {MAX_MEGABYTES}, or null"));
    }
    let fits = value.as_str().is_some_and(|text| WORDS.contains(&text));
    (!fits).then(|| format!("must be one of {}", WORDS.join(", ")))
}
