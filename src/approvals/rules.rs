//! Rules: what a person has decided once for what comes again.
//!
//! ```text
//! asked for ──a rule says never──▶ refused
//!     │
//!     ├──none fits, one says ask, or it is below the floor──▶ a person
//!     └──one allows──▶ its use is counted ──on disk──▶ granted, once
//! ```
//! Rules are compared by type and whole value, never by a part or a pattern of a text. What nothing fits is
//! asked.
//!
//! **Invariant:** no rule lets more happen than its count, whatever ends the daemon: a use is on disk before
//! what it allows is granted, and never given back.
//! **Invariant:** a rule is for the lineage, the role or the project that it was made for. One for a role is
//! not for agents that other agents have started: a role is a word that whoever starts an agent chooses.
//! **Invariant:** `never` wins over `ask`, and `ask` over `allow`; nothing on the floor (`floor`) is allowed.
//! **Invariant:** only a person makes or revokes one.

use super::action::Action;
use super::command_line::{self, CommandLine};
use super::floor;
use super::record::{Approval, Status};
use super::rule::{Deed, Over, Rule, Say, Whose};
use super::{ApprovalId, NewApproval, RuleId, save, settle};
use crate::agents::Agent;
use crate::api::Problem;
use crate::core::ids::{AgentId, LineageId, UNKNOWN_AGENT};
use crate::core::time::{Jump, Time};
use crate::core::{Context, Effect, Notice, State as All, Timer, Timers};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted;

/// Rules in force at most; a further one is refused.
pub const MAX_RULES: usize = 200;
/// Rules that are over, kept and shown; the oldest goes first.
pub const MAX_ENDED: usize = 50;
/// Uses that a rule may be given.
pub const MAX_USES: u64 = 10_000;
/// A rule that allows lives so long when nobody says how long.
pub const USUAL_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// No rule is given a longer time.
pub const MAX_LIFETIME: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// Characters of a note.
pub const MAX_NOTE_CHARS: usize = 500;

/// What the rules say of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// A person decides; named where a rule wants it so.
    Person(Option<RuleId>),
    Allow(RuleId),
    Never(RuleId),
}

/// What became of a wish for an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A person decides; whether it was asked just now.
    Person(ApprovalId, bool),
    /// A rule allows it: it is decided when the use is on disk.
    Soon(ApprovalId),
    /// A rule allows it, and the use is counted: the deed may be done as soon as that is on disk.
    Granted(ApprovalId),
    /// A rule says never.
    Never(RuleId),
}

impl super::State {
    /// All rules, newest first.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().rev()
    }

    fn rule(&self, id: RuleId) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| rule.id == id)
    }

    /// The rule of this id.
    ///
    /// Errors: 404.
    pub fn find_rule(&self, id: &str) -> Result<&Arc<Rule>, Problem> {
        id.parse().ok().and_then(|id| self.rule(id)).ok_or_else(|| {
            Problem::not_found(format!("no rule has the id {id:?}; GET /api/rules lists them"))
        })
    }

    pub(super) fn edit_rule(&mut self, id: RuleId) -> Option<&mut Rule> {
        self.rules.iter_mut().find(|rule| rule.id == id).map(Arc::make_mut)
    }

    /// Whether any rule could allow calls of this integration.
    pub fn may_allow_calls(&self, now: Time, integration: &str) -> bool {
        let is_its =
            |deed: &Deed| matches!(deed, Deed::Call { integration_id, .. } if integration_id == integration);
        self.rules.iter().any(|rule| rule.say == Say::Allow && rule.is_in_force(now) && is_its(&rule.deed))
    }
}

/// What the rules say of this action of this agent. Of who is no known agent they say nothing.
pub fn judge(all: &All, now: Time, agent: Option<AgentId>, action: &Action) -> Judged {
    let known = agent.filter(|id| *id != UNKNOWN_AGENT);
    let Some(agent) = known.and_then(|id| all.agents.find(&id.to_string()).ok()) else {
        return Judged::Person(None);
    };
    let fits = |rule: &&Arc<Rule>| rule.is_in_force(now) && rule.deed.fits(action) && rule.whose.fits(agent);
    let mut fitting: Vec<&Arc<Rule>> = all.approvals.rules.iter().filter(fits).collect();
    sorted::by_key(&mut fitting, |rule| (rule.whose.width(), rule.made_at, rule.id));
    let says = |say: Say| fitting.iter().find(|rule| rule.say == say);
    if let Some(rule) = says(Say::Never) {
        return Judged::Never(rule.id);
    }
    if let Some(rule) = says(Say::Ask) {
        return Judged::Person(Some(rule.id));
    }
    let may = |rule: &&&Arc<Rule>| {
        rule.say == Say::Allow
            && floor::forbids(&rule.deed, Some(action)).is_none()
            && is_where_it_says(all, agent, action, &rule.deed)
    };
    fitting.iter().find(may).map_or(Judged::Person(None), |rule| Judged::Allow(rule.id))
}

/// Whether a deed is where its rule means it: a command line in its folder, a write in the project itself.
fn is_where_it_says(all: &All, agent: &Agent, action: &Action, deed: &Deed) -> bool {
    match (deed, action) {
        (Deed::Command { .. }, Action::ToolPermission { command: Some(command), .. }) => {
            all.approvals.shells.is_at_home(agent.id, command)
        }
        (Deed::Command { .. }, _) => false,
        // All that it does is to stay in its own copy, for a person to merge.
        (Deed::Write { .. }, _) => agent.worktree.is_none(),
        // Exactly the same arguments are the same command line: it means another thing elsewhere, too.
        (Deed::Tool { .. }, Action::ToolPermission { params, .. }) => {
            params.get("command").is_none_or(|command| {
                let text = command.as_str().unwrap_or_default().to_owned();
                all.approvals.shells.is_at_home(agent.id, &CommandLine { text, folder: None })
            })
        }
        _ => true,
    }
}

/// As [`super::request`], in a call: what a rule allows is granted, and may be done when what the call has
/// changed is on disk.
///
/// Errors: those of [`super::request`].
pub fn ask_now(all: &mut All, cx: &mut Context, new: NewApproval) -> Result<Asked, Problem> {
    match judge(all, cx.now, new.agent, &new.action) {
        Judged::Allow(rule) if super::pending_like(all, &new).is_none() => {
            let mut approval = by_rule(all, cx, new, rule);
            let by = format!("rule {rule}");
            approval.resolve(cx.now, by, Status::Approved, None);
            approval.used_at = Some(cx.now);
            approval.expires_at = until(all, rule, approval.expires_at);
            let id = approval.id;
            cx.notice(Notice::ApprovalResolved { data: Box::new(approval.clone()) });
            Arc::make_mut(&mut all.approvals).list.push(Arc::new(approval));
            settle(all, cx);
            Ok(Asked::Granted(id))
        }
        Judged::Never(rule) => {
            count(all, cx, rule, None, new.agent);
            Ok(Asked::Never(rule))
        }
        judged => person(all, cx, new, judged),
    }
}

/// As [`super::request`], where nobody waits for an answer: what a rule allows is decided as soon as its use
/// is on disk.
///
/// Errors: those of [`super::request`].
pub fn ask_stored(all: &mut All, cx: &mut Context, new: NewApproval) -> Result<Asked, Problem> {
    match judge(all, cx.now, new.agent, &new.action) {
        Judged::Allow(rule) if super::pending_like(all, &new).is_none() => {
            super::check_room(all, super::lineage_of(all, new.agent))?;
            let approval = by_rule(all, cx, new, rule);
            let id = approval.id;
            if let (Action::ToolPermission { params, .. }, Some(agent)) =
                (&approval.action, approval.agent_id)
                && let Some(text) = params.get("command").and_then(Value::as_str)
                && command_line::may_move(text)
            {
                Arc::make_mut(&mut all.approvals).shells.lose(agent);
            }
            Arc::make_mut(&mut all.timers).set(Timer::Approval(id), approval.expires_at);
            Arc::make_mut(&mut all.approvals).list.push(Arc::new(approval));
            save(cx);
            cx.push(Effect::WhenStored(Timer::ApprovalByRule(id)));
            Ok(Asked::Soon(id))
        }
        Judged::Never(rule) if new.action.blocks() => {
            count(all, cx, rule, None, new.agent);
            Ok(Asked::Never(rule))
        }
        Judged::Never(rule) if new.action.is_sure() && super::pending_like(all, &new).is_none() => {
            // It is done: its agent is told to undo it, as by a person.
            let approval = super::fresh(all, cx, new);
            Arc::make_mut(&mut all.approvals).list.push(Arc::new(approval.clone()));
            reject(all, cx, &approval, rule);
            Ok(Asked::Soon(approval.id))
        }
        // Whose deed it was cannot be told for sure: a person has to look.
        judged => person(all, cx, new, judged),
    }
}

/// The record of a wish that a rule allows, whose use is counted.
fn by_rule(all: &mut All, cx: &mut Context, new: NewApproval, rule: RuleId) -> Approval {
    let approval = Approval { rule: Some(rule), ..super::fresh(all, cx, new) };
    count(all, cx, rule, Some(approval.id), approval.agent_id);
    approval
}

/// A rule says never to what is asked for.
fn reject(all: &mut All, cx: &mut Context, approval: &Approval, rule: RuleId) {
    count(all, cx, rule, Some(approval.id), approval.agent_id);
    let reason = Some(format!("a rule of a person ({rule}) says never"));
    super::resolve_by(all, cx, approval.id, Status::Rejected, reason, Some(rule));
}

fn person(all: &mut All, cx: &mut Context, new: NewApproval, judged: Judged) -> Result<Asked, Problem> {
    let agent = new.agent;
    let (id, is_new) = super::request(all, cx, new)?;
    if let (Judged::Person(Some(rule)), true) = (judged, is_new) {
        count(all, cx, rule, Some(id), agent);
    }
    Ok(Asked::Person(id, is_new))
}

/// The end of a rule, if that comes before `end`.
fn until(all: &All, rule: RuleId, end: Time) -> Time {
    let own = all.approvals.rule(rule).and_then(|rule| rule.expires_at);
    own.map_or(end, |own| own.min(end))
}

/// A rule has decided: that is counted, told and on its way to the disk.
fn count(all: &mut All, cx: &mut Context, id: RuleId, approval: Option<ApprovalId>, agent: Option<AgentId>) {
    let now = cx.now;
    let Some(rule) = Arc::make_mut(&mut all.approvals).edit_rule(id) else { return };
    rule.used += 1;
    rule.last_used_at = Some(now);
    let (used, uses) = (rule.used, rule.uses);
    let told = json!({
        "ruleId": id, "say": rule.say, "id": approval, "agentId": agent, "deed": rule.deed.words(),
        "used": used, "uses": uses,
    });
    cx.audit("rule.use", &told);
    if uses.is_some_and(|uses| used >= uses) {
        end(all, now, id, Over::UsedUp);
    }
    save(cx);
}

/// A rule is in force no more; of those that are over the last [`MAX_ENDED`] stay.
pub(super) fn end(all: &mut All, now: Time, id: RuleId, why: Over) {
    Arc::make_mut(&mut all.timers).clear(Timer::Rule(id));
    let approvals = Arc::make_mut(&mut all.approvals);
    if let Some(rule) = approvals.edit_rule(id).filter(|rule| rule.over.is_none()) {
        rule.over = Some((now, why));
    }
    let open: Vec<RuleId> =
        approvals.list.iter().filter(|one| one.is_open()).filter_map(|one| one.rule).collect();
    let mut over: Vec<(Time, RuleId)> = approvals
        .rules
        .iter()
        .filter(|rule| rule.id != id && !open.contains(&rule.id))
        .filter_map(|rule| rule.over.map(|(at, _)| (at, rule.id)))
        .collect();
    sorted::up(&mut over);
    let surplus = (over.len() + 1).saturating_sub(MAX_ENDED);
    for (_, old) in over.into_iter().take(surplus) {
        approvals.rules.retain(|rule| rule.id != old);
    }
}

/// The use of a rule is on disk: what it allows is granted. A rule that was taken back meanwhile leaves it to
/// a person.
pub fn grant(all: &mut All, cx: &mut Context, id: ApprovalId) {
    let Ok(approval) = all.approvals.find(&id.to_string()).cloned() else { return };
    let Some(rule) = approval.rule.filter(|_| approval.status == Status::Pending) else { return };
    let stands = all.approvals.rule(rule).is_some_and(|rule| rule.stands(cx.now));
    let judged = judge(all, cx.now, approval.agent_id, &approval.action);
    match judged {
        Judged::Never(never) => reject(all, cx, &approval, never),
        Judged::Person(Some(_)) => hand_over(all, cx, &approval),
        _ if stands => super::resolve_by(all, cx, id, Status::Approved, None, Some(rule)),
        _ => hand_over(all, cx, &approval),
    }
}

/// A person decides what a rule was to decide.
pub(super) fn hand_over(all: &mut All, cx: &mut Context, approval: &Approval) {
    let approvals = Arc::make_mut(&mut all.approvals);
    let Some(approval) = approvals.edit(approval.id) else { return };
    approval.rule = None;
    let approval = approval.clone();
    super::announce(all, cx, &approval);
    save(cx);
}

/// The deadline of a rule has come.
pub fn expire(all: &mut All, cx: &mut Context, id: RuleId) {
    let Some(rule) = all.approvals.rule(id).filter(|rule| rule.over.is_none()) else { return };
    if let Some(at) = rule.expires_at.filter(|at| cx.now < *at) {
        return Arc::make_mut(&mut all.timers).set(Timer::Rule(id), at);
    }
    cx.audit("rule.expire", &json!({"ruleId": id, "used": rule.used}));
    end(all, cx.now, id, Over::Expired);
    save(cx);
}

/// The agent of this lineage is removed: what was allowed to it is allowed to nobody.
pub fn forget(all: &mut All, cx: &mut Context, lineage: LineageId) {
    let is_its = |rule: &Rule| matches!(rule.whose, Whose::Agent { lineage_id, .. } if lineage_id == lineage);
    end_all(all, cx, is_its, Over::AgentRemoved);
}

/// An integration is removed: what was allowed of it is not allowed of what comes under its name later.
pub fn forget_integration(all: &mut All, cx: &mut Context, id: &str) {
    let is_its = |rule: &Rule| {
        let of_it = matches!(&rule.deed, Deed::Call { integration_id, .. } if integration_id == id);
        of_it && rule.say == Say::Allow
    };
    end_all(all, cx, is_its, Over::IntegrationRemoved);
}

fn end_all(all: &mut All, cx: &mut Context, is_its: impl Fn(&Rule) -> bool, why: Over) {
    let its = all.approvals.rules.iter().filter(|rule| rule.over.is_none() && is_its(rule));
    let ids: Vec<RuleId> = its.map(|rule| rule.id).collect();
    for id in &ids {
        cx.audit("rule.end", &json!({"ruleId": id, "reason": why}));
        end(all, cx.now, *id, why);
    }
    if !ids.is_empty() {
        save(cx);
    }
}

/// The wall clock has jumped: set back, it must not make a rule live longer.
pub fn clock_set(all: &mut All, cx: &mut Context, jump: Jump) {
    if !jump.is_back || all.approvals.rules.is_empty() {
        return;
    }
    set_back(all, cx.now, jump);
    save(cx);
}

fn set_back(all: &mut All, now: Time, jump: Jump) {
    for rule in &mut Arc::make_mut(&mut all.approvals).rules {
        let rule = Arc::make_mut(rule);
        rule.expires_at = rule.expires_at.map(|at| at.moved(jump));
        rule.made_at = rule.made_at.min(now);
        rule.last_used_at = rule.last_used_at.map(|at| at.min(now));
    }
}

/// After a start: where the clock was set back while no daemon ran, at least as far as the rules have seen it
/// go, they end as much earlier; and none lives longer than any may.
pub fn not_after(all: &mut All, now: Time) {
    let times = |rule: &Arc<Rule>| rule.last_used_at.into_iter().chain([rule.made_at]).max();
    let seen = all.approvals.rules.iter().filter_map(times).max().unwrap_or(now);
    if seen > now {
        set_back(all, now, Jump { is_back: true, by: seen.since(now) });
    }
    let latest = now + MAX_LIFETIME;
    for rule in &mut Arc::make_mut(&mut all.approvals).rules {
        if rule.expires_at.is_some_and(|at| at > latest) {
            Arc::make_mut(rule).expires_at = Some(latest);
        }
    }
    arm(&all.approvals.rules, Arc::make_mut(&mut all.timers));
}

/// Sets the deadlines of the rules in force.
pub(super) fn arm(rules: &[Arc<Rule>], timers: &mut Timers) {
    for rule in rules.iter().filter(|rule| rule.over.is_none()) {
        if let Some(at) = rule.expires_at {
            timers.set(Timer::Rule(rule.id), at);
        }
    }
}

/// What a person may make a rule of: whether of exactly this, and of its command; if not, why.
pub fn offered(action: &Action) -> Value {
    let Some(exactly) = Deed::exactly(action) else { return Value::Null };
    let told = |deed: &Deed| {
        let why = floor::forbids(deed, Some(action)).map(|forbidden| forbidden.reason);
        json!({"allow": why.is_none(), "why": why, "words": deed.words()})
    };
    json!({"exactly": told(&exactly), "command": Deed::command(action).map(|deed| told(&deed))})
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
