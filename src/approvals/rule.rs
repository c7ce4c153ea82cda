//! A rule: what it says, what it is about, whom it is for, and how it is shown.

use super::action::{Action, cut};
use super::command_line::CommandLine;
use crate::agents::Agent;
use crate::core::ids::{LineageId, RuleId};
use crate::core::time::Time;
use crate::core::untrusted_line;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Say {
    Allow,
    /// A person is asked, whatever other rules allow.
    Ask,
    Never,
}

impl Say {
    /// The words of all.
    pub const WORDS: &[&str] = &["allow", "ask", "never"];
}

/// What a rule is about; compared as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Deed {
    /// Writing this one file outside of the agent's scope, and keeping what was written.
    Write {
        /// Relative to the project.
        file_path: String,
    },
    /// Running exactly this command line where the agent's program works, when that is this folder.
    Command {
        /// The provider's name of the tool.
        tool: String,
        /// Whole.
        command: String,
        /// Relative to the project; empty is the project itself.
        folder: String,
    },
    /// Using a tool with exactly these arguments.
    Tool {
        /// The provider's name of the tool.
        tool: String,
        /// SHA-256 of the exact arguments, in hex.
        params_hash: String,
        /// The arguments, for people.
        shown: String,
    },
    /// Calling a tool of an integration with exactly these parameters.
    Call {
        integration_id: String,
        tool: String,
        /// SHA-256 of the exact parameters, in hex.
        params_hash: String,
        /// The parameters, for people.
        shown: String,
    },
}

/// Characters of parameters that a rule shows.
const SHOWN_CHARS: usize = 2_000;

impl Deed {
    /// Exactly this; `None` for what only a person answers.
    pub fn exactly(action: &Action) -> Option<Self> {
        match action {
            Action::ScopeViolation { file_path, .. } => Some(Self::Write { file_path: file_path.clone() }),
            Action::ToolPermission { tool, params, params_hash, .. } => Some(Self::Tool {
                tool: tool.clone(),
                params_hash: params_hash.clone(),
                shown: cut(&params.to_string(), SHOWN_CHARS),
            }),
            Action::IntegrationExec { integration_id, tool, params, params_hash, .. } => Some(Self::Call {
                integration_id: integration_id.clone(),
                tool: tool.clone(),
                params_hash: params_hash.clone(),
                shown: cut(&params.to_string(), SHOWN_CHARS),
            }),
            Action::Question { .. } | Action::ResumeAgents { .. } => None,
        }
    }

    /// The command line that is asked for, in the folder where it would run, if both are known.
    pub fn command(action: &Action) -> Option<Self> {
        let Action::ToolPermission {
            tool, command: Some(CommandLine { text, folder: Some(folder) }), ..
        } = action
        else {
            return None;
        };
        Some(Self::Command { tool: tool.clone(), command: text.clone(), folder: folder.clone() })
    }

    /// Whether this is what is asked for.
    pub(super) fn fits(&self, action: &Action) -> bool {
        match self {
            Self::Write { file_path } => {
                matches!(action, Action::ScopeViolation { file_path: path, .. } if path == file_path)
            }
            Self::Command { .. } => Self::command(action).is_some_and(|deed| deed == *self),
            Self::Tool { tool, params_hash, .. } => matches!(
                action,
                Action::ToolPermission { tool: name, params_hash: hash, .. }
                    if (name, hash) == (tool, params_hash)
            ),
            Self::Call { integration_id, tool, params_hash, .. } => matches!(
                action,
                Action::IntegrationExec { integration_id: id, tool: name, params_hash: hash, .. }
                    if (id, name, hash) == (integration_id, tool, params_hash)
            ),
        }
    }

    /// For people, behind "may".
    pub fn words(&self) -> String {
        untrusted_line(&match self {
            Self::Write { file_path } => format!("write {file_path}"),
            Self::Command { command, folder, .. } if folder.is_empty() => format!("run {command}"),
            Self::Command { command, folder, .. } => format!("run {command} in {folder}"),
            Self::Tool { tool, shown, .. } => format!("use {tool} with {shown}"),
            Self::Call { integration_id, tool, shown, .. } => {
                format!("call {tool} of {integration_id} with {shown}")
            }
        })
    }
}

/// Whose deeds a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Whose {
    /// One agent, over its rotations and resumes.
    Agent { lineage_id: LineageId, name: String },
    /// Agents of this role that a person has started.
    Role { role: String },
    /// Every agent.
    Project,
}

impl Whose {
    pub(super) fn fits(&self, agent: &Agent) -> bool {
        match self {
            Self::Agent { lineage_id, .. } => agent.lineage_id == *lineage_id,
            Self::Role { role } => agent.role == *role && agent.started_by.is_none(),
            Self::Project => true,
        }
    }

    /// The narrower one decides first.
    pub(super) fn width(&self) -> u8 {
        match self {
            Self::Agent { .. } => 0,
            Self::Role { .. } => 1,
            Self::Project => 2,
        }
    }

    fn words(&self) -> String {
        untrusted_line(&match self {
            Self::Agent { name, .. } => name.clone(),
            Self::Role { role } => format!("agents of role {role}"),
            Self::Project => "all agents".to_owned(),
        })
    }
}

/// Why a rule is not in force any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    Revoked,
    Expired,
    UsedUp,
    /// The agent that it was for was removed.
    AgentRemoved,
    /// What comes under the integration's id later is another one.
    IntegrationRemoved,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub id: RuleId,
    pub say: Say,
    pub deed: Deed,
    pub whose: Whose,
    pub made_at: Time,
    pub made_by: String,
    /// By the wall clock, but never longer after it was made than it was given.
    pub expires_at: Option<Time>,
    /// How often it may allow; `None` until it expires.
    pub uses: Option<u64>,
    /// How often it has decided.
    pub used: u64,
    pub last_used_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<(Time, Over)>,
    /// A person's own words on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Rule {
    /// Whether it decides now.
    pub(super) fn is_in_force(&self, now: Time) -> bool {
        self.over.is_none() && self.expires_at.is_none_or(|at| now < at)
    }

    /// Whether a use of it that was counted still holds: having been used up by it is no reason against it.
    pub(super) fn stands(&self, now: Time) -> bool {
        matches!(self.over, None | Some((_, Over::UsedUp))) && self.expires_at.is_none_or(|at| now < at)
    }

    /// The record on the wire.
    pub fn shown(&self) -> Value {
        let time = |at: Option<Time>| at.map(|at| at.to_string());
        json!({
            "id": self.id,
            "say": self.say,
            "deed": self.deed,
            "whose": self.whose,
            "description": self.words(),
            "madeAt": self.made_at.to_string(),
            "madeBy": self.made_by,
            "expiresAt": time(self.expires_at),
            "uses": self.uses,
            "used": self.used,
            "lastUsedAt": time(self.last_used_at),
            "over": self.over.map(|(_, why)| why),
            "overAt": time(self.over.map(|(at, _)| at)),
            "note": self.note,
        })
    }

    pub(super) fn words(&self) -> String {
        let (who, what) = (self.whose.words(), self.deed.words());
        match self.say {
            Say::Allow => format!("{who} may {what}"),
            Say::Ask => format!("ask me each time before {who} may {what}"),
            Say::Never => format!("{who} may never {what}"),
        }
    }
}
