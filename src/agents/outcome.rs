//! What became of a wish about agents, for whoever asked: a rule, a chat, or HTTP.

use super::moving::Session;
use super::record::{Agent, Deliver, Status};
use crate::api::Reply;
use crate::core::ids::{AgentId, ScheduleId};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a wish has come to. Refusals are no outcomes.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// An agent is being started.
    Spawned {
        agent: Arc<Agent>,
        /// Living agents whose scopes may name the same files, with the globs that meet.
        overlaps: Vec<Value>,
        /// The schedule that starts more like it.
        schedule: Option<ScheduleId>,
        /// Why it is on its runner, where that was chosen for it.
        placed: Option<String>,
    },
    /// Its process is gone.
    Ended {
        id: AgentId,
        name: String,
        status: Status,
        /// Processes that could not be ended, of all agents so far.
        leaked: u64,
    },
    /// The record of an ended agent is gone.
    Removed {
        id: AgentId,
        name: String,
        /// How it had ended.
        status: Status,
    },
    /// A message waits, or is on its way.
    Queued {
        id: AgentId,
        name: String,
        /// When it is to be delivered.
        deliver: Deliver,
        /// Messages that wait now.
        queued: usize,
    },
    /// An ended agent goes on.
    Resumed {
        /// The life that had ended.
        old: AgentId,
        /// The record of the new one.
        agent: Arc<Agent>,
        /// It was told something that could not wait for a living agent.
        instructed: bool,
    },
    Rotated {
        /// The life before.
        old: AgentId,
        reason: String,
        agent: Arc<Agent>,
    },
    /// It goes on elsewhere, or will.
    Moves {
        agent: Arc<Agent>,
        /// The runner; `None` is this machine.
        to: Option<String>,
        /// What became of its session; `None` while its turn is waited for.
        session: Option<Session>,
    },
    /// A person wishes to be at its screen, is there, or leaves.
    Attached {
        /// The life that was asked for, or the one that has begun.
        id: AgentId,
        name: String,
        /// With which the person comes to the screen, once it is there.
        token: Option<String>,
    },
    /// A question was answered.
    Answered {
        id: AgentId,
        name: String,
        answer: String,
        /// What it has cost.
        tokens: u64,
    },
}

impl Outcome {
    /// As HTTP tells it: 201 with the record and `overlaps` for a start, 200 for everything else.
    pub fn http(&self) -> Reply {
        match self {
            Self::Spawned { agent, overlaps, schedule, placed } => {
                let mut body = json!(agent.rest());
                body["overlaps"] = json!(overlaps);
                if let Some(schedule) = schedule {
                    body["scheduleId"] = json!(schedule);
                }
                if let Some(placed) = placed {
                    body["placed"] = json!(placed);
                }
                Reply::json(201, &body).with_header("Location", format!("/api/agents/{}", agent.id))
            }
            // The specification names the status of a deleted agent: it was asked to stop, so it is killed.
            Self::Ended { id, status, leaked, .. } => {
                Reply::ok(&json!({"ok": true, "id": id, "status": status, "leaked": leaked}))
            }
            Self::Removed { id, status, .. } => {
                Reply::ok(&json!({"ok": true, "id": id, "status": status, "removed": true}))
            }
            Self::Queued { id, deliver, queued, .. } => Reply::ok(&json!({
                "id": id, "status": "queued", "deliverOn": deliver.word(), "queued": queued,
            })),
            Self::Resumed { old, agent, instructed } => {
                let mut body = json!({"ok": true, "id": agent.id, "resumed": old, "agent": agent.rest()});
                if *instructed {
                    body["status"] = json!("resumed");
                    body["deliverOn"] = json!(Deliver::Now.word());
                    body["queued"] = json!(0);
                }
                Reply::ok(&body)
            }
            Self::Rotated { old, reason, agent } => Reply::ok(&json!({
                "old": old, "new": agent.id, "handoffBrief": true, "reason": reason, "agent": agent.rest(),
            })),
            Self::Moves { agent, to, session } => {
                let why = match session {
                    Some(Session::Stays(why)) => Some(why),
                    _ => None,
                };
                Reply::ok(&json!({
                    "ok": true, "id": agent.id, "name": agent.name, "runner": to, "waits": session.is_none(),
                    "session": session.as_ref().map(Session::word), "why": why, "agent": agent.rest(),
                }))
            }
            Self::Attached { id, name, token } => {
                Reply::ok(&json!({"ok": true, "agentId": id, "agentName": name, "token": token}))
            }
            Self::Answered { id, name, answer, tokens } => Reply::ok(&json!({
                "answer": answer, "agentId": id, "agentName": name, "tokens": tokens,
            })),
        }
    }
}
