//! Identifiers. Each is a newtype, so that a lineage is never passed where an agent is meant.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Text that is not eight lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id has exactly 8 hexadecimal digits")
    }
}

impl std::error::Error for NotAnId {}

// `$prefix` stands before the digits, where a text is to say by itself what it names.
macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident $(, $prefix:literal)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(svc_base::recorded::Recorded)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($($prefix,)? "{:08x}"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                let hex = text.strip_prefix(concat!($($prefix)?)).ok_or(NotAnId)?;
                if hex.len() != 8 || !hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
                    return Err(NotAnId);
                }
                u32::from_str_radix(hex, 16).map(Self).map_err(|_| NotAnId)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hex_id!(
    /// One process life of an agent. A rotation or a resume after a restart makes a new one.
    AgentId
);
hex_id!(
    /// What stays the same over rotations: tokens, memory, schedules and chat are keyed by it.
    LineageId
);
hex_id!(
    /// A team.
    TeamId
);
hex_id!(
    /// A planned team on its way through its phases.
    PlanId
);
hex_id!(
    /// A schedule.
    ScheduleId
);

hex_id!(
    /// A webhook, out or in.
    WebhookId
);

hex_id!(
    /// A phone that a person has paired.
    PhoneId
);

hex_id!(
    /// Two daemons on their way to know each other; both call it the same.
    PairingId
);

hex_id!(
    /// An approval.
    ApprovalId,
    "apr-"
);

hex_id!(
    /// A rule for approvals that a person has made.
    RuleId,
    "rul-"
);

/// Stands for an agent's process when nobody can tell which agent's. No agent has this id.
pub const UNKNOWN_AGENT: AgentId = AgentId(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_1_ids_are_eight_hex_digits() {
        assert_eq!(AgentId(0xab).to_string(), "000000ab");
        assert_eq!("000000ab".parse(), Ok(AgentId(0xab)));
        assert_eq!(ApprovalId(0xab).to_string(), "apr-000000ab");
        assert_eq!("apr-000000ab".parse(), Ok(ApprovalId(0xab)));
        assert_eq!("000000ab".parse::<ApprovalId>(), Err(NotAnId));
        for bad in ["", "ab", "000000AB", "000000abc", "0000 0ab", "+00000ab"] {
            assert_eq!(bad.parse::<AgentId>(), Err(NotAnId), "{bad:?}");
        }
    }
}
