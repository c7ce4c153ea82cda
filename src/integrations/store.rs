//! What is written to disk: which integrations are installed, and with which command.

use super::catalogue::Definition;
use crate::core::time::{Time, rfc3339};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The format of [`Stored`]; a newer one is refused.
pub const VERSION: u32 = 1;

/// An installed integration. The command is the one that was installed: a later catalogue does not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Installed {
    pub id: String,
    /// For one that the operator added; `None` for one of the catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// Relative to the project, absolute, or to be found on the `PATH`.
    pub program: String,
    pub args: Vec<String>,
    #[serde(default)]
    pub version: Option<String>,
    #[serde(with = "rfc3339")]
    pub installed_at: Time,
}

/// The document.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stored {
    /// See [`VERSION`].
    pub version: u32,
    /// By id.
    pub installed: Vec<Arc<Installed>>,
    /// Until when access tokens are valid, by integration.
    #[serde(default)]
    pub token_expiries: BTreeMap<String, Time>,
    /// Names of the tools, as they were listed last.
    #[serde(default)]
    pub tool_names: BTreeMap<String, Arc<Vec<String>>>,
}
