//! What an agent may do when it asks.

use crate::{Permission, Purpose, wire};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Who asks, and within which bounds.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) purpose: Purpose,
    pub(super) permission: Permission,
    /// Absolute.
    pub(super) working_dir: PathBuf,
}

/// What an agent asks for.
#[derive(Debug)]
pub(super) struct Question<'a> {
    /// The protocol's kind of tool, for example `edit`; empty where the agent tells none.
    pub(super) kind: &'a str,
    /// Every file it names.
    pub(super) paths: &'a [String],
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

/// The result of `session/request_permission`: the offered option that says so, or `cancelled` when none
/// does. "Always" is never chosen: the next request is decided anew.
pub(super) fn outcome(allow: bool, options: &[Value]) -> Value {
    let kind = if allow { "allow_once" } else { "reject_once" };
    match options.iter().find(|option| wire::text(*option, "kind") == kind) {
        Some(option) => {
            json!({"outcome": {"outcome": "selected", "optionId": wire::text(option, "optionId")}})
        }
        None => json!({"outcome": {"outcome": "cancelled"}}),
    }
}
