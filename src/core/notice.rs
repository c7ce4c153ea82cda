//! What WebSocket clients are told, beside output and the registry itself. Closed: whoever listens in the
//! daemon, such as the chats, matches on it. It becomes text once, on its way out.

use super::ids::{AgentId, PlanId, ScheduleId, TeamId};
use crate::agents::{Deliver, Status, StatusReason};
use crate::approvals::{Approval, ApprovalId, Certainty};
use crate::federation::PeerId;
use crate::providers::Tier;
use crate::workspace::import::Import;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::sync::Arc;

/// The messages, each with its `type` on the wire.
macro_rules! notices {
    ($($(#[$doc:meta])* $kind:literal => $Name:ident $fields:tt,)*) => {
        /// A message to all WebSocket clients. The fields are those on the wire, [`Notice::kind`] is its
        /// `type`.
        #[derive(Debug, Clone, Serialize)]
        #[serde(untagged, rename_all_fields = "camelCase")]
        #[allow(missing_docs, reason = "the fields are those on the wire, each named for what it is")]
        pub enum Notice {
            $($(#[$doc])* $Name $fields,)*
        }

        impl Notice {
            /// All that there are.
            pub const KINDS: &[&str] = &[$($kind),*];

            /// The `type` on the wire.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$Name { .. } => $kind,)*
                }
            }
        }
    };
}

notices! {
    /// A life has ended.
    "agent:exit" => AgentExit {
        agent_id: AgentId,
        agent_name: String,
        code: Option<i32>,
        signal: Option<i32>,
        status: Status,
        /// `statusReason` and `statusCode`.
        #[serde(flatten, serialize_with = "StatusReason::shown")]
        reason: StatusReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// No output inside an open turn.
    "agent:stalled" => AgentStalled { agent_id: AgentId, agent_name: String, reason: String },
    /// An agent's provider answers nothing for now: it is held, and goes on later.
    "agent:limited" => AgentLimited { agent_id: AgentId, agent_name: String, reason: String, limit: Value },
    /// The work of an agent was taken into the project.
    "agent:merged" => AgentMerged {
        agent_id: AgentId,
        agent_name: String,
        branch: String,
        into: String,
        commit: String,
        /// Some of them; `fileCount` counts all.
        files: Vec<String>,
        file_count: usize,
    },
    /// An agent has ended, and messages wait for its next life.
    "instruction:undelivered" => InstructionUndelivered {
        agent_id: AgentId,
        agent_name: String,
        count: usize,
        reason: String,
        instructions: Vec<Undelivered>,
    },
    /// A successor is prepared.
    "rotation:start" => RotationStart { agent_id: AgentId, agent_name: String, reason: String },
    /// The successor runs; `tokensSaved` were in the context of the old one.
    "rotation:complete" => RotationComplete {
        agent_id: AgentId,
        agent_name: String,
        old_agent_id: AgentId,
        tokens_saved: u64,
        reason: String,
    },
    /// Of the daily budget so many percent are spent; `usd` counts what has no price at the dearest known
    /// one.
    "budget:warning" => BudgetWarning { percent: u8, usd: f64, budget_usd: f64, text: String },
    /// No successor came.
    "rotation:failed" => RotationFailed { agent_id: AgentId, error: String },
    /// A person is to decide.
    "approval:request" => ApprovalRequest {
        #[serde(serialize_with = "as_record")]
        data: Box<Approval>,
    },
    /// It was decided, or nobody did in time.
    "approval:resolved" => ApprovalResolved {
        #[serde(serialize_with = "as_resolution")]
        data: Box<Approval>,
    },
    /// An agent has written, or is about to write, to what another one owns.
    "conflict:detected" => ConflictDetected { data: ConflictSeen },
    /// A rejected write still stands in its file.
    "conflict:unresolved" => ConflictUnresolved { data: Unresolved },
    /// Somebody holds resources. The id is that of an agent, or a name.
    "coordination:declared" => CoordinationDeclared { agent_id: String, operation: String, resources: Vec<String> },
    /// Somebody holds them no more.
    "coordination:completed" => CoordinationCompleted {
        agent_id: String,
        reason: &'static str,
        operations: Vec<String>,
        resources: Vec<String>,
    },
    /// All gateways, as `GET /api/gateways` lists them.
    "gateway:status" => GatewayStatus { data: Vec<Value> },
    /// One integration, as `GET /api/integrations` lists it.
    "integration:status" => IntegrationStatus { data: Value },
    /// A pairing shows its code.
    "federation:pairing" => FederationPairing { data: Value },
    /// Another daemon is a peer now.
    "federation:paired" => FederationPaired { peer_id: PeerId, name: String },
    /// The journalist has written.
    "journalist:cycle" => JournalistCycle { data: crate::journalist::Cycle },
    /// A rule for all agents.
    "memory:constraint:added" => ConstraintAdded { hash: String, category: String },
    /// A rule holds no more: `removed` or `evicted`.
    "memory:constraint:removed" => ConstraintRemoved { hash: String, reason: &'static str },
    /// An agent has found out something.
    "memory:discovery:added" => DiscoveryAdded { agent_id: Option<String>, role: String },
    /// The weight of an agent's work.
    "classifier:update" => ClassifierUpdate { agent_id: AgentId, tier: Tier, event_count: u64 },
    /// How far the import of a repository is.
    "repos:import" => RepoImport(Box<Import>),
    /// A schedule has started an agent.
    "schedule:execute" => ScheduleExecute { schedule_id: ScheduleId, agent_id: AgentId, name: String },
    /// A skill was installed or brought up to date.
    "skill:installed" => SkillInstalled { skill_id: String, updated: bool },
    /// A skill was removed.
    "skill:removed" => SkillRemoved { skill_id: String },
    /// A team was saved.
    "team:created" => TeamCreated { team: Named },
    /// A team was changed.
    "team:updated" => TeamUpdated { team: Named },
    /// A team is gone; its members are in another one.
    "team:deleted" => TeamDeleted { team_id: TeamId, name: String, moved_to: TeamId },
    /// A planner recommends a team of so many.
    "team:recommended" => TeamRecommended { agent_id: AgentId, agent_name: String, agents: usize },
    /// So many agents are at work that somebody should look after quality.
    "qc:activated" => QcActivated { agent_count: usize },
    /// A member of a phase after the first was started.
    "phase2:spawned" => PhaseSpawned { agent_id: AgentId, name: String, role: String, phase: usize },
    /// A phase is blocked.
    "phase2:failed" => PhaseFailed { plan_id: PlanId, team_id: Option<String>, phase: usize, reason: String },
    /// All phases of a plan are done.
    "plan:done" => PlanDone { plan_id: PlanId, team_id: Option<String> },
}

/// A message that was not delivered.
#[derive(Debug, Clone, Serialize)]
pub struct Undelivered {
    /// Its id.
    pub id: u64,
    /// When it was to be delivered.
    pub deliver: Deliver,
    /// Its first words.
    pub message: String,
}

/// Who wrote to whose file.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConflictSeen {
    /// Who wrote, or may have.
    pub agent_name: String,
    /// The file, relative to the project.
    pub file_path: String,
    /// Whose it is.
    pub owner_name: Option<String>,
    /// Who wrote, where it is known.
    pub agent_id: Option<AgentId>,
    /// Whose it is.
    pub owner_id: Option<AgentId>,
    /// `before` or `after` the write.
    pub seen: &'static str,
    /// How sure it is.
    pub certainty: Certainty,
    /// All who may have written, where it is not known who did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspects: Option<Vec<AgentId>>,
}

/// What a person has rejected and still is there.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unresolved {
    /// Who wrote.
    pub agent_name: Option<String>,
    /// The file, relative to the project.
    pub file_path: String,
    /// What was rejected.
    pub approval_id: ApprovalId,
}

/// A team by id and name.
#[derive(Debug, Clone, Serialize)]
pub struct Named {
    /// Its id.
    pub id: TeamId,
    /// Its name.
    pub name: String,
}

impl Notice {
    /// Its fields, without `type`.
    pub fn body(&self) -> Value {
        // Nothing in it can fail to be JSON; if it did, clients would still hear of the event.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The message without its closing brace, to which the hub appends `seq` and `ts`:
    /// `{"type":KIND,..` and the fields in the order of their names.
    pub fn frame(&self) -> Arc<[u8]> {
        let mut bytes = format!("{{\"type\":{}", Value::from(self.kind())).into_bytes();
        if let Value::Object(map) = self.body() {
            for (name, value) in map {
                bytes.extend_from_slice(format!(",{}:{value}", Value::from(name)).as_bytes());
            }
        }
        bytes.into()
    }

    /// The whole message as a client gets it, but for what the hub appends.
    pub fn message(&self) -> Value {
        let mut body = self.body();
        body["type"] = self.kind().into();
        body
    }
}

fn as_record<S: Serializer>(approval: &Approval, serializer: S) -> Result<S::Ok, S::Error> {
    approval.shown().serialize(serializer)
}

fn as_resolution<S: Serializer>(approval: &Approval, serializer: S) -> Result<S::Ok, S::Error> {
    approval.resolution().serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Reason;

    #[test]
    fn a_message_begins_with_its_type_and_is_left_open_for_its_number() {
        let notice = Notice::AgentExit {
            agent_id: AgentId(1),
            agent_name: "a \"b\"".into(),
            code: None,
            signal: Some(9),
            status: Status::Killed,
            reason: Reason::ForeignSignal { signal: 9 }.into(),
            error: None,
        };
        let text = String::from_utf8(notice.frame().to_vec()).unwrap();
        assert_eq!(
            text,
            r#"{"type":"agent:exit","agentId":"00000001","agentName":"a \"b\"","code":null,"signal":9,"#
                .to_owned()
                + r#""status":"killed","statusCode":"foreign-signal","#
                + r#""statusReason":"signal 9 ended it; the daemon did not send it""#
        );
        let whole: Value = serde_json::from_str(&(text + "}")).unwrap();
        assert_eq!(whole, notice.message());
    }

    #[test]
    fn what_is_not_known_of_a_conflict_is_null_or_absent_as_it_was_ever() {
        let conflict = ConflictSeen {
            agent_name: "a or b".into(),
            file_path: "x.rs".into(),
            owner_name: None,
            agent_id: None,
            owner_id: None,
            seen: "after",
            certainty: Certainty::Unknown,
            suspects: Some(vec![AgentId(1)]),
        };
        let told = |data| String::from_utf8(Notice::ConflictDetected { data }.frame().to_vec()).unwrap();
        let known = ConflictSeen { suspects: None, agent_id: Some(AgentId(2)), ..conflict.clone() };
        assert_eq!(
            told(conflict),
            r#"{"type":"conflict:detected","data":{"agentId":null,"agentName":"a or b","certainty":"unknown","#
                .to_owned()
                + r#""filePath":"x.rs","ownerId":null,"ownerName":null,"seen":"after","suspects":["00000001"]}"#
        );
        assert!(told(known).ends_with(r#""ownerName":null,"seen":"after"}"#));
    }
}
