//! What is written to disk, and where. How it reads is said by the feature whose it is.

use super::ids::LineageId;
use std::fmt;

/// The documents' names and paths, by the table of all.
macro_rules! document {
    ($($(#[$doc:meta])* $Name:ident = $path:literal $(: $($kept:ident)+)?;)*) => {
        /// One file of state. The one above is written first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
        pub enum Document {
            /// The task of a lineage. It is written before the record that it belongs to.
            Prompt(LineageId),
            /// The handoff brief with which the next fresh life of a lineage begins. It is written before the
            /// record, too.
            Handoff(LineageId),
            $($(#[$doc])* $Name,)*
        }

        impl Document {
            /// Whether it has to be on disk before the records of agents are that know of it.
            pub fn goes_before_records(self) -> bool {
                matches!(self, Self::Prompt(_) | Self::Handoff(_))
            }

            /// Whether it holds what is still to be told of what stands in others: nothing is written before
            /// it.
            pub fn goes_before_all(self) -> bool {
                matches!(self, Self::Webhooks | Self::Phones)
            }

            /// Its path below `.svc/`.
            pub fn path(self) -> String {
                match self {
                    $(Self::$Name => $path.into(),)*
                    Self::Prompt(lineage) => format!("state/prompts/{lineage}.json"),
                    Self::Handoff(lineage) => format!("state/handoffs/{lineage}.json"),
                }
            }
        }
    };
}
crate::features::documents!(document);

/// A file of lines that only grows, until it is rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
pub enum Journal {
    /// Who changed what: JSON lines `{ts,event,actor,...}`.
    Audit,
}

impl Journal {
    /// Its path below `.svc/`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Audit => "audit.jsonl",
        }
    }

    /// Above this many bytes it is renamed to `<path>.1`, in place of an earlier one, and begun anew.
    pub fn max_bytes(self) -> u64 {
        match self {
            Self::Audit => 5 << 20,
        }
    }
}

/// A document that cannot be encoded or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError(pub String);

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DocumentError {}

impl Document {
    /// Whether it holds no more than counters and grows with the history: it is written when it is due, and
    /// never along with what somebody waits for.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Usage | Self::Outcomes | Self::Timeline | Self::Specializations | Self::Adaptive)
    }
}
