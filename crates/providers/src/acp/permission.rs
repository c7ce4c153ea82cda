//! What an agent may do when it asks.

use crate::{Permission, Purpose, saved, wire};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Who asks, and within which bounds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    pub(super) purpose: Purpose,
    pub(super) permission: Permission,
    /// Absolute.
    #[serde(with = "saved::path")]
    pub(super) working_dir: PathBuf,
}

/// What an agent asks for.
#[derive(Debug)]
pub(super) struct Question<'a> {
    /// The protocol's kind of tool, for example `edit`; empty where the agent tells none.
    pub(super) kind: &'a str,
    /// The files it names.
    pub(super) paths: &'a [String],
    /// Whether it names further ones, which nobody has looked at.
    pub(super) has_more_paths: bool,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Allow,
    Reject,
    /// Somebody has to say.
    AskAPerson,
}

impl Bounds {
    /// What is decided at once. Nothing in the protocol forbids that a request waits for a person.
    pub(super) fn decide(&self, question: &Question) -> Decision {
        let reads = matches!(question.kind, "read" | "search" | "think");
        let edits_inside = question.kind == "edit"
            && !question.paths.is_empty()
            && !question.has_more_paths
            && question.paths.iter().all(|path| wire::is_inside(&self.working_dir, path));
        let allowed = match (self.purpose, self.permission) {
            (Purpose::Query, _) => reads,
            (Purpose::Work, Permission::Auto) => reads || edits_inside,
            (Purpose::Work, Permission::Full) => true,
        };
        match (allowed, self.purpose) {
            (true, _) => Decision::Allow,
            (false, Purpose::Work) => Decision::AskAPerson,
            // Nobody waits for a person to answer a question.
            (false, Purpose::Query) => Decision::Reject,
        }
    }
}

/// The ids of the offered options that say yes and no to this one request. "Always" is never chosen: the next
/// request is decided anew.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    allow: Option<String>,
    reject: Option<String>,
}

impl Options {
    /// Those among the options of a request.
    pub(super) fn of(options: &[Value]) -> Self {
        let once = |kind: &str| {
            let option = options.iter().find(|option| wire::text(*option, "kind") == kind)?;
            Some(wire::name(option, "optionId").to_owned()).filter(|id| !id.is_empty())
        };
        Self { allow: once("allow_once"), reject: once("reject_once") }
    }

    /// The result of `session/request_permission`: the option that says so, or `cancelled` where none does.
    pub(super) fn outcome(&self, allow: bool) -> Value {
        match if allow { &self.allow } else { &self.reject } {
            Some(id) => json!({"outcome": {"outcome": "selected", "optionId": id}}),
            None => json!({"outcome": {"outcome": "cancelled"}}),
        }
    }
}
