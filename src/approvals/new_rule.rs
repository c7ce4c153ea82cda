//! Making a rule, and taking it back: what only a person does.

use super::floor::{self, Forbidden};
use super::record::{Approval, Status};
use super::rule::{Deed, Over, Rule, Say, Whose};
use super::rules::{MAX_LIFETIME, MAX_RULES, USUAL_LIFETIME, end, hand_over};
use super::{RuleId, save};
use crate::api::Problem;
use crate::core::{Context, State as All, Timer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use svc_base::scopes::within;

/// What a new rule is about.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum About {
    /// What this approval asks for: exactly that, or its command line in its folder.
    Approval {
        id: String,
        command: bool,
    },
    Write(String),
    Command {
        tool: String,
        command: String,
        folder: String,
    },
}

/// Whom a new rule is for.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum For {
    /// By id or name; without one who asks by the approval.
    Agent(Option<String>),
    /// Without one the role of who asks.
    Role(Option<String>),
    Project,
}

/// A rule that a person wants.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct NewRule {
    pub say: Say,
    pub about: About,
    pub whose: For,
    pub uses: Option<u64>,
    pub lifetime: Option<Duration>,
    pub note: Option<String>,
}

/// 201 with the rule, and with the approval that it was made from, decided as the rule says.
///
/// Errors: 403 `agent_may_not`, 404, 400 `no_rule_possible`, 409 `rule_forbidden`, 409 `too_many_rules`.
pub fn add(all: &mut All, cx: &mut Context, new: NewRule) -> Result<Value, Problem> {
    check_person(cx, "make a rule")?;
    let approval = match &new.about {
        About::Approval { id, .. } => Some(Arc::clone(all.approvals.find(id)?)),
        _ => None,
    };
    let deed = deed_of(all, &new.about, approval.as_deref())?;
    if new.say == Say::Allow
        && let Some(forbidden) = floor::forbids(&deed, approval.as_deref().map(|one| &one.action))
    {
        return Err(refused(forbidden));
    }
    let whose = whose_of(all, &new.whose, approval.as_deref())?;
    if all.approvals.rules.iter().filter(|rule| rule.is_in_force(cx.now)).count() >= MAX_RULES {
        let text = format!("{MAX_RULES} rules are in force and that is the limit; revoke one first");
        return Err(Problem::new(409, "too_many_rules", text));
    }
    let usual = (new.say == Say::Allow).then_some(USUAL_LIFETIME);
    let expires_at = new.lifetime.or(usual).map(|length| cx.now + length.min(MAX_LIFETIME));
    let id = RuleId(cx.fresh_id(|id| all.approvals.rules.iter().any(|rule| rule.id.0 == id)));
    let rule = Rule {
        id,
        say: new.say,
        deed,
        whose,
        made_at: cx.now,
        made_by: cx.actor.to_string(),
        expires_at,
        uses: new.uses.filter(|_| new.say == Say::Allow),
        used: 0,
        last_used_at: None,
        over: None,
        note: new.note,
    };
    cx.audit("rule.add", &json!({"ruleId": id, "rule": rule.shown()}));
    let mut shown = json!({"rule": rule.shown()});
    Arc::make_mut(&mut all.approvals).rules.push(Arc::new(rule));
    if let Some(at) = expires_at {
        Arc::make_mut(&mut all.timers).set(Timer::Rule(id), at);
    }
    save(cx);
    if let Some(approval) = approval.filter(|one| one.status == Status::Pending && one.rule.is_none()) {
        let decision = match new.say {
            Say::Allow => Some(super::Decision::Approve),
            Say::Never => Some(super::Decision::Reject),
            Say::Ask => None,
        };
        if let Some(decision) = decision {
            if let Some(approval) = Arc::make_mut(&mut all.approvals).edit(approval.id) {
                approval.with_rule = true;
            }
            super::decide(all, cx, &approval.id.to_string(), decision, None)?;
        }
        let decided = all.approvals.find(&approval.id.to_string())?;
        shown["approval"] = decided.shown();
    }
    Ok(shown)
}

/// Errors: 403 `agent_may_not`.
pub(super) fn check_person(cx: &Context, what: &str) -> Result<(), Problem> {
    let Some(agent) = cx.actor.agent() else { return Ok(()) };
    let text = format!("agent {agent} may not {what}; a person has to, outside of an agent");
    Err(Problem::new(403, "agent_may_not", text))
}

fn refused(forbidden: &Forbidden) -> Problem {
    let text = format!("no rule can allow this: {}; decide it each time", forbidden.reason);
    Problem::new(409, "rule_forbidden", text).with("floor", forbidden.word)
}

fn deed_of(all: &All, about: &About, approval: Option<&Approval>) -> Result<Deed, Problem> {
    let none = |text: &str| Problem::bad_request("no_rule_possible", text.to_owned());
    match (about, approval) {
        (About::Approval { command: false, .. }, Some(approval)) => Deed::exactly(&approval.action)
            .ok_or_else(|| none("only a person can answer this; there is no rule for it")),
        (About::Approval { .. }, Some(approval)) => Deed::command(&approval.action).ok_or_else(|| {
            none("it is no command line whose folder is known; make the rule of exactly this instead")
        }),
        (About::Approval { id, .. }, None) => {
            Err(all.approvals.find(id).err().unwrap_or_else(|| none("no approval")))
        }
        (About::Write(file), _) => {
            let file = within(&all.project.dir, "", file)
                .ok_or_else(|| none("the file is not in the project; name it relative to the project"))?;
            Ok(Deed::Write { file_path: file })
        }
        (About::Command { tool, command, folder }, _) => {
            let is_root = matches!(folder.as_str(), "" | "." | "./");
            let folder = if is_root { Some(String::new()) } else { within(&all.project.dir, "", folder) };
            let folder = folder
                .ok_or_else(|| none("the folder is not in the project; name it relative to the project"))?;
            Ok(Deed::Command { tool: tool.clone(), command: command.clone(), folder })
        }
    }
}

fn whose_of(all: &All, whose: &For, approval: Option<&Approval>) -> Result<Whose, Problem> {
    let asks = approval.and_then(|one| one.agent_id).map(|id| id.to_string());
    let agent = |named: &Option<String>| {
        let target = named.clone().or(asks.clone()).ok_or_else(|| {
            Problem::bad_request(
                "no_rule_possible",
                "no agent asks for it; name the agent, or for whom it is".to_owned(),
            )
        })?;
        all.agents.find(&target)
    };
    Ok(match whose {
        For::Agent(named) => {
            let agent = agent(named)?;
            Whose::Agent { lineage_id: agent.lineage_id, name: agent.name.clone() }
        }
        For::Role(Some(role)) => Whose::Role { role: role.clone() },
        For::Role(None) => {
            let agent = agent(&None)?;
            if agent.started_by.is_some() {
                let text = "it was started by another agent, and a rule for a role is for agents that people start; \
                            make it for this agent";
                return Err(Problem::bad_request("no_rule_possible", text.to_owned()));
            }
            Whose::Role { role: agent.role.clone() }
        }
        For::Project => Whose::Project,
    })
}

/// Takes a rule back. What it has allowed and nobody has begun goes to a person.
///
/// Errors: 403 `agent_may_not`, 404.
pub fn revoke(all: &mut All, cx: &mut Context, id: &str) -> Result<Value, Problem> {
    check_person(cx, "revoke a rule")?;
    let rule = Arc::clone(all.approvals.find_rule(id)?);
    if rule.over.is_none() {
        cx.audit("rule.revoke", &json!({"ruleId": rule.id, "used": rule.used}));
    }
    Arc::make_mut(&mut all.timers).clear(Timer::Rule(rule.id));
    // One that is used up may still be about to grant its last use.
    if let Some(rule) = Arc::make_mut(&mut all.approvals).edit_rule(rule.id)
        && rule.over.is_none_or(|(_, why)| why == Over::UsedUp)
    {
        rule.over = Some((cx.now, Over::Revoked));
    }
    end(all, cx.now, rule.id, Over::Revoked);
    let waits = |one: &&Arc<Approval>| one.rule == Some(rule.id) && one.is_open();
    let waiting: Vec<Arc<Approval>> = all.approvals.iter().filter(waits).cloned().collect();
    for approval in waiting {
        if approval.status == Status::Pending {
            hand_over(all, cx, &approval);
        } else {
            super::resolve(all, cx, approval.id, Status::Expired, Some("its rule was revoked".into()));
        }
    }
    save(cx);
    Ok(all.approvals.find_rule(id)?.shown())
}
