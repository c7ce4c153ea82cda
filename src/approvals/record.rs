//! The record of an approval, and how it is shown.

use super::Action;
use crate::core::ids::{AgentId, ApprovalId, LineageId, RuleId};
use crate::core::time::{Time, rfc3339};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where an approval is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A person has to decide.
    Pending,
    /// A person said yes.
    Approved,
    /// A person said no.
    Rejected,
    /// Nobody decided, or nobody used it, in time.
    Expired,
}

impl Status {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// The facts of one approval, as they are stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub id: ApprovalId,
    /// Who wants to act: the present life of the agent; `None` for somebody who is no agent.
    pub agent_id: Option<AgentId>,
    /// Its name, or `operator`.
    pub agent_name: String,
    /// What it is bound to: it stays valid over a rotation.
    pub lineage_id: Option<LineageId>,
    /// What it is for.
    pub action: Action,
    /// Where it is in its life.
    pub status: Status,
    /// When it was asked for.
    #[serde(with = "rfc3339")]
    pub requested_at: Time,
    /// When it is over if nothing happens.
    #[serde(with = "rfc3339")]
    pub expires_at: Time,
    /// When it was decided or expired, in milliseconds since 1970.
    pub resolved_at: Option<Time>,
    pub resolved_by: Option<String>,
    pub reason: Option<String>,
    /// When it let its one attempt through.
    pub used_at: Option<Time>,
    /// The rule that decides it, or has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleId>,
    /// A person has made a rule of it: what comes again is the rule's, with its count and its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_rule: bool,
}

impl Approval {
    /// Whether something can still come of it.
    pub fn is_open(&self) -> bool {
        match self.status {
            Status::Pending => true,
            Status::Approved => self.used_at.is_none(),
            Status::Rejected | Status::Expired => false,
        }
    }

    /// Sets its outcome.
    pub fn resolve(&mut self, now: Time, by: String, status: Status, reason: Option<String>) {
        self.status = status;
        self.resolved_at = Some(now);
        self.resolved_by = Some(by);
        self.reason = reason;
        self.expires_at = now + super::LIFETIME;
        if matches!(self.action, Action::Question { .. }) && status == Status::Approved {
            // Being told is all that there is to it.
            self.used_at = Some(now);
        }
    }

    /// Whether it allows this once, and nothing of the like behind it.
    pub fn is_for_once(&self) -> bool {
        self.rule.is_some() || self.with_rule
    }

    /// The agent's id, or `operator`.
    pub fn shown_agent(&self) -> String {
        self.agent_id.map_or_else(|| "operator".to_owned(), |id| id.to_string())
    }

    /// The record on the wire.
    pub fn shown(&self) -> Value {
        let mut body = json!({
            "id": self.id,
            "agentId": self.shown_agent(),
            "agentName": self.agent_name,
            "action": self.action,
            "status": self.status,
            "requestedAt": self.requested_at.to_string(),
            "expiresAt": self.expires_at.to_string(),
        });
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                body[name] = value.into();
            }
        };
        add("resolvedAt", self.resolved_at.map(|at| at.to_string()));
        add("resolvedBy", self.resolved_by.clone());
        add("reason", self.reason.clone());
        add("usedAt", self.used_at.map(|at| at.to_string()));
        add("rule", self.rule.map(|rule| rule.to_string()));
        body
    }

    /// What `approval:resolved` tells.
    pub fn resolution(&self) -> Value {
        let mut body = json!({
            "id": self.id,
            "status": self.status,
            "resolvedAt": self.resolved_at.map(|at| at.to_string()),
            "agentId": self.shown_agent(),
            "agentName": self.agent_name,
        });
        if let Some(reason) = &self.reason {
            body["reason"] = json!(reason);
        }
        body
    }

    /// What the agent is told after the decision.
    pub fn message_to_agent(&self) -> String {
        let what = self.action.description();
        let id = self.id;
        let why = self.reason.as_ref().map_or_else(String::new, |reason| format!(" Reason given: {reason}."));
        if let Action::Question { question, .. } = &self.action {
            return self.answer_to(question);
        }
        match self.status {
            Status::Approved => {
                let how = self.action.how_to_retry(id);
                format!("Approval {id} was granted: {what}.{why} {how}").trim_end().to_owned()
            }
            Status::Rejected if !self.action.blocks() => {
                format!(
                    "Approval {id} was rejected: {what}.{why} Undo that change, or report why it must stay."
                )
            }
            Status::Rejected => {
                format!("Approval {id} was rejected: {what}.{why} Do not try it again; find another way.")
            }
            _ => format!(
                "Approval {id} has expired without effect: {what}.{why} Ask again if it is still needed."
            ),
        }
    }
}

impl Approval {
    /// What came of a question: a person's words, or else yes or no.
    fn answer_to(&self, question: &str) -> String {
        let id = self.id;
        let plain = match self.status {
            Status::Approved => "Yes.",
            Status::Rejected => "No, or no answer: decide it yourself and say what you have decided.",
            _ => "Nobody has answered in time: decide it yourself and say what you have decided.",
        };
        let answer = self.reason.as_deref().filter(|_| self.status != Status::Expired).unwrap_or(plain);
        format!("Answer to your question {id} ({question}): {answer}")
    }
}

/// The version this code writes.
pub const VERSION: u32 = 1;
