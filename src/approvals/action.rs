//! What an approval is for, how it is compared, and what of it is shown.

use super::ApprovalId;
use super::command_line::CommandLine;
use crate::core::ids::AgentId;
use crate::core::{untrusted_line, untrusted_prose};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use svc_base::hex;
use svc_base::sorted::{self, Gather};

/// Characters of one shown text inside the parameters.
const SHOWN_TEXT_CHARS: usize = 500;
/// Members of one shown list or object inside the parameters.
const SHOWN_MEMBERS: usize = 50;
/// Levels of the parameters shown.
const SHOWN_DEPTH: usize = 6;
/// Bytes of the shown parameters as JSON; above, they are shown as text cut to this.
const SHOWN_BYTES: usize = 8 << 10;
/// Names that the wish to resume agents shows.
const NAMES_SHOWN: usize = 10;
/// A member whose name holds one of these words is not shown.
const SECRET_WORDS: &[&str] = &[
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "authorization",
    "credential",
    "private_key",
];

/// How sure it is that an agent did what is said of it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Its own tool call says so.
    #[default]
    Sure,
    /// A command of it that names the file was under way when the file changed, and nobody else's.
    Likely,
    /// Commands were under way; whose it was cannot be told.
    Unknown,
}

/// What a call does to the world that nobody can take back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Danger {
    /// Its server calls it destructive, or its name does.
    Destroys,
    /// It moves money.
    Pays,
}

/// A gated action. On the wire `action` with its `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Action {
    /// Writing a file outside of the agent's own scope.
    ScopeViolation {
        /// For people.
        description: String,
        /// Relative to the project.
        file_path: String,
        /// Who owns the file, if an agent does.
        owner_id: Option<AgentId>,
        owner_name: Option<String>,
        /// It was seen after the deed: nobody waits, and the decision is about keeping it.
        #[serde(default)]
        written: bool,
        /// How sure it is that this agent wrote.
        #[serde(default)]
        certainty: Certainty,
    },
    /// Using a tool that the provider asks about while its turn is paused.
    ToolPermission {
        /// For people.
        description: String,
        /// The provider's name of the tool.
        tool: String,
        /// Its arguments, redacted and bounded, for people.
        params: Value,
        /// What is compared: SHA-256 of the exact arguments, in hex.
        params_hash: String,
        /// By which the provider's question is answered, within its run.
        question: String,
        /// Whether `params` are all of the arguments: nothing was cut or hidden.
        #[serde(default)]
        whole: bool,
        /// What is run, where the tool runs a command line and does nothing else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<CommandLine>,
    },
    /// Nothing but an answer is wanted; the reason of the decision is its words.
    Question {
        /// For people.
        description: String,
        question: String,
    },
    /// Going on with agents that ended with an earlier daemon; the daemon itself asks.
    ResumeAgents {
        /// For people.
        description: String,
        /// Their last lives.
        agents: Vec<AgentId>,
    },
    /// Calling a gated tool of an integration.
    IntegrationExec {
        /// For people.
        description: String,
        /// For example `github`.
        integration_id: String,
        /// For example `create_issue`.
        tool: String,
        /// The parameters, redacted and bounded, for people. Not what is compared.
        params: Value,
        /// What is compared: SHA-256 of the exact parameters, in hex.
        params_hash: String,
        /// Whether `params` are all of the parameters: nothing was cut or hidden.
        #[serde(default)]
        whole: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        danger: Option<Danger>,
    },
}

impl Action {
    /// Writing `file_path`, which belongs to `owner` if to anybody; `written` when it has happened already.
    pub fn scope_violation(file_path: &str, owner: Option<(AgentId, &str)>, written: bool) -> Self {
        let whose =
            owner.map_or_else(|| "outside of its scope".to_owned(), |(_, name)| format!("owned by {name}"));
        let verb = if written { "keep what it wrote to" } else { "write" };
        Self::ScopeViolation {
            description: untrusted_line(&format!("{verb} {file_path}, {whose}")),
            written,
            certainty: Certainty::Sure,
            file_path: file_path.to_owned(),
            owner_id: owner.map(|(id, _)| id),
            owner_name: owner.map(|(_, name)| name.to_owned()),
        }
    }

    /// The same, when it is not sure that the agent did it.
    #[must_use]
    pub fn with_certainty(mut self, sure: Certainty) -> Self {
        if let Self::ScopeViolation { certainty, description, .. } = &mut self {
            *certainty = sure;
            if sure != Certainty::Sure {
                description.push_str(" (likely: a command of it ran when the file changed)");
            }
        }
        self
    }

    /// Calling `tool` of an integration with exactly these parameters.
    pub fn integration_exec(integration_id: &str, tool: &str, params: &Value) -> Self {
        let shown = shown(params);
        Self::IntegrationExec {
            description: untrusted_line(&format!("call {tool} of {integration_id}")),
            integration_id: integration_id.to_owned(),
            tool: tool.to_owned(),
            whole: shown == *params,
            params: shown,
            params_hash: hash(params),
            danger: None,
        }
    }

    /// The same, of a call that cannot be taken back.
    #[must_use]
    pub fn with_danger(mut self, known: Option<Danger>) -> Self {
        if let Self::IntegrationExec { danger, .. } = &mut self {
            *danger = known;
        }
        self
    }

    /// Going on with these agents, each with its name.
    pub fn resume_agents(agents: &[(AgentId, &str)]) -> Self {
        let names: Vec<&str> = agents.iter().take(NAMES_SHOWN).map(|(_, name)| *name).collect();
        let beyond = agents.len() - names.len();
        let more = if beyond > 0 { format!(" and {beyond} more") } else { String::new() };
        let count = agents.len();
        let what = if count == 1 { "agent" } else { "agents" };
        let names = names.join(", ");
        Self::ResumeAgents {
            description: untrusted_line(&format!(
                "resume {count} {what} that ended with the last daemon: {names}{more}"
            )),
            agents: agents.iter().map(|(id, _)| *id).collect(),
        }
    }

    /// Asking a person something.
    pub fn question(words: &str) -> Self {
        Self::Question { description: untrusted_prose(&format!("know: {words}")), question: words.to_owned() }
    }

    /// Using a tool with exactly these arguments, asked by a provider under this name.
    pub fn tool_permission(tool: &str, params: &Value, question: &str) -> Self {
        let shown = shown(params);
        Self::ToolPermission {
            description: untrusted_line(&format!("use {tool}")),
            tool: tool.to_owned(),
            whole: shown == *params,
            params: shown,
            params_hash: hash(params),
            question: question.to_owned(),
            command: None,
        }
    }

    /// The same, where the tool runs a command line; `folder` is where its program works, if that is known.
    #[must_use]
    pub fn with_command(mut self, params: &Value, folder: Option<&str>) -> Self {
        if let Self::ToolPermission { command, .. } = &mut self {
            *command = CommandLine::of(params, folder);
        }
        self
    }

    /// For people.
    pub fn description(&self) -> &str {
        match self {
            Self::ScopeViolation { description, .. }
            | Self::IntegrationExec { description, .. }
            | Self::ToolPermission { description, .. }
            | Self::ResumeAgents { description, .. }
            | Self::Question { description, .. } => description,
        }
    }

    /// Whether the agent cannot go on with it before the decision.
    pub fn blocks(&self) -> bool {
        !matches!(self, Self::ScopeViolation { written: true, .. })
    }

    /// Whether it is known who did it, or wants to.
    pub fn is_sure(&self) -> bool {
        !matches!(self, Self::ScopeViolation { certainty, .. } if *certainty != Certainty::Sure)
    }

    /// Whether both are the very same deed. The owner of a file may have changed its name meanwhile.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::ScopeViolation { file_path, written, .. },
                Self::ScopeViolation { file_path: path, written: done, .. },
            ) => (file_path, written) == (path, done),
            (
                Self::ToolPermission { params_hash, question, .. },
                Self::ToolPermission { params_hash: hash, question: other, .. },
            ) => (params_hash, question) == (hash, other),
            (Self::Question { question, .. }, Self::Question { question: other, .. }) => question == other,
            (Self::ResumeAgents { agents, .. }, Self::ResumeAgents { agents: others, .. }) => {
                agents == others
            }
            (
                Self::IntegrationExec { integration_id, tool, params_hash, .. },
                Self::IntegrationExec { integration_id: id, tool: name, params_hash: hash, .. },
            ) => (integration_id, tool, params_hash) == (id, name, hash),
            _ => false,
        }
    }

    /// What an agent does with an approval for it; empty when there is nothing to do.
    pub fn how_to_retry(&self, id: ApprovalId) -> String {
        match self {
            Self::ScopeViolation { written: true, .. }
            | Self::ToolPermission { .. }
            | Self::ResumeAgents { .. }
            | Self::Question { .. } => String::new(),
            Self::ScopeViolation { file_path, .. } => {
                format!("Write {file_path} again now. It is valid for one attempt.")
            }
            Self::IntegrationExec { integration_id, .. } => format!(
                "Repeat the same POST /api/integrations/{integration_id}/exec with the same tool and params, \
                 and \"approvalId\":\"{id}\". It is valid for one attempt."
            ),
        }
    }
}

/// SHA-256, in hex, of JSON with sorted members and no spaces.
pub fn hash(value: &Value) -> String {
    let mut canonical = String::new();
    write_canonical(value, &mut canonical);
    hex::encode(&Sha256::digest(canonical.as_bytes()))
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            sorted::by_key(&mut members, |(name, _)| name.as_str());
            out.push('{');
            for (at, (name, member)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(name.as_str()));
                write_canonical(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

/// Parameters as people may see them: secrets by name left out, long and deep ones cut.
fn shown(params: &Value) -> Value {
    let redacted = redact(params, 0);
    let text = redacted.to_string();
    if text.len() <= SHOWN_BYTES {
        return redacted;
    }
    let mut end = SHOWN_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Value::String(format!("{}… ({} bytes)", &text[..end], text.len()))
}

/// At most so many characters of a text, with `…` behind them where more was.
pub(super) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn redact(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) if depth >= SHOWN_DEPTH => Value::String("…".into()),
        Value::Object(map) => {
            let member = |(name, value): (&String, &Value)| {
                let lower = name.to_ascii_lowercase();
                let is_secret = SECRET_WORDS.iter().any(|word| lower.contains(word));
                let value = if is_secret { "[redacted]".into() } else { redact(value, depth + 1) };
                (name.clone(), value)
            };
            let mut kept: Map<String, Value> = map.iter().take(SHOWN_MEMBERS).map(member).gather();
            if map.len() > SHOWN_MEMBERS {
                kept.insert("…".into(), format!("{} more", map.len() - SHOWN_MEMBERS).into());
            }
            Value::Object(kept)
        }
        Value::Array(items) => {
            let mut kept: Vec<Value> =
                items.iter().take(SHOWN_MEMBERS).map(|item| redact(item, depth + 1)).collect();
            if items.len() > SHOWN_MEMBERS {
                kept.push(format!("… {} more", items.len() - SHOWN_MEMBERS).into());
            }
            Value::Array(kept)
        }
        Value::String(text) => Value::String(cut(text, SHOWN_TEXT_CHARS)),
        plain => plain.clone(),
    }
}
