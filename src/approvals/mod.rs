//! Approvals: what an agent may do only after a person has said yes.
//!
//! A feature that meets a gated action calls [`request`]; a person decides; the agent is notified and tries
//! again; the feature then calls [`claim`], which uses the approval up. Nothing here knows what the action
//! does.
//!
//! **Invariant:** an approval lets exactly one attempt through, of exactly the action it was asked for, by
//! the lineage it was asked for.
//! **Invariant:** an identical request that is still pending is the same approval.
//! **Invariant:** an agent never decides.

mod action;
pub mod api;
mod command_line;
pub mod floor;
mod new_rule;
mod record;
mod rule;
pub mod rules;
mod store;
#[cfg(test)]
mod tests;

pub use action::{Action, Certainty, Danger, hash};
pub use command_line::MAX_COMMAND_CHARS;
pub use new_rule::{About, For, NewRule};
pub use record::{Approval, Status, VERSION as STORED_VERSION};
pub use rule::{Rule, Say};
pub use rules::{Asked, Judged, ask_now, ask_stored, judge};
pub use store::{Stored, clock_set, not_after, restore};
pub use svc_base::ids::{ApprovalId, RuleId};

use crate::agents;
use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::Response;
use crate::core::ids::{AgentId, LineageId, UNKNOWN_AGENT};
use crate::core::time::Time;
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All, Timer};
use crate::providers::Activity;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted;

/// An approval that nobody decides, and one that nobody uses, expires after this time.
pub const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Approvals that are pending, or approved and not yet used, at most.
pub const MAX_OPEN: usize = 200;
/// Of these, those of one agent at most, so that none can block the others.
pub const MAX_OPEN_PER_AGENT: usize = 50;
/// As many are open when several agents have asked much: what is left is for those who ask little.
pub const CROWDED: usize = 140;
/// Approvals of one agent at most that are asked for while it is crowded.
pub const MAX_OPEN_IF_CROWDED: usize = 5;
/// Of all, those of agents at most: the rest is for what persons call themselves.
pub const MAX_OPEN_OF_AGENTS: usize = 190;
/// Resolved approvals kept and shown.
pub const MAX_RESOLVED: usize = 50;
/// Of these, those at most that rules have decided: what persons have decided stays in sight.
pub const MAX_BY_RULE: usize = 20;

/// All approvals that matter, in the order of their requests.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    list: Vec<Arc<Approval>>,
    /// In the order in which they were made.
    rules: Vec<Arc<Rule>>,
    shells: command_line::Shells,
}

/// A wish about approvals.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    Decide {
        /// Its id, for example `apr-0123abcd`.
        id: String,
        decision: Decision,
        /// Why, for the agent.
        reason: Option<String>,
    },
    /// Ask a person something.
    Ask {
        /// For which agent, when no agent calls.
        agent: Option<String>,
        question: String,
    },
    AddRule(Box<NewRule>),
    RevokeRule {
        /// Its id, for example `rul-0123abcd`.
        id: String,
    },
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Decision {
    Approve,
    Reject,
}

impl Decision {
    fn status(self) -> Status {
        match self {
            Self::Approve => Status::Approved,
            Self::Reject => Status::Rejected,
        }
    }
}

/// A wish for an approval.
#[derive(Debug, Clone)]
pub struct NewApproval {
    /// Who wants to act; `None` for somebody who is no agent.
    pub agent: Option<AgentId>,
    /// What it wants to do.
    pub action: Action,
}

/// What an approval id is worth for an action at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody has decided yet.
    Pending,
    /// Go on. From [`claim`]: it is used up now.
    Approved,
    /// A person said no, perhaps why.
    Rejected(Option<String>),
    /// It was given for another action, or to another agent.
    Mismatch,
    /// It let its one attempt through already.
    Used,
    /// Its time is over.
    Expired,
    /// There is none of this id.
    Unknown,
}

impl State {
    /// Those of one agent or all, in the order of their requests.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Approval>> {
        self.list.iter()
    }

    /// Those that wait for a person, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Arc<Approval>> {
        self.undecided().filter(|approval| approval.rule.is_none())
    }

    /// The same, with those that a rule decides when its use is on disk.
    fn undecided(&self) -> impl Iterator<Item = &Arc<Approval>> {
        self.iter().filter(|approval| approval.status == Status::Pending)
    }

    /// The last [`MAX_RESOLVED`] that were decided or expired, newest first.
    pub fn resolved(&self) -> Vec<&Arc<Approval>> {
        let mut list: Vec<_> = self.iter().filter(|approval| approval.status != Status::Pending).collect();
        sorted::by_key(&mut list, |approval| std::cmp::Reverse((approval.resolved_at, approval.id)));
        list.truncate(MAX_RESOLVED);
        list
    }

    /// The approval of this id.
    ///
    /// Errors: 404.
    pub fn find(&self, id: &str) -> Result<&Arc<Approval>, Problem> {
        let wanted = id.parse::<ApprovalId>().ok();
        self.iter().find(|approval| Some(approval.id) == wanted).ok_or_else(|| {
            Problem::not_found(format!("no approval has the id {id:?}; GET /api/approvals lists them"))
        })
    }

    fn edit(&mut self, id: ApprovalId) -> Option<&mut Approval> {
        self.list.iter_mut().find(|approval| approval.id == id).map(Arc::make_mut)
    }
}

/// Asks a person. An identical request that is pending already gives the same id and `false`.
///
/// Errors: 403 `agent_may_not` for an agent nobody knows, 409 `too_many_approvals`.
pub fn request(all: &mut All, cx: &mut Context, new: NewApproval) -> Result<(ApprovalId, bool), Problem> {
    if new.agent == Some(UNKNOWN_AGENT) {
        let text = "a process that has left its agent may not ask for approvals; ask from within the agent";
        return Err(Problem::new(403, "agent_may_not", text));
    }
    if let Some(known) = pending_like(all, &new) {
        return Ok((known, false));
    }
    check_room(all, lineage_of(all, new.agent))?;
    let approval = fresh(all, cx, new);
    let id = approval.id;
    Arc::make_mut(&mut all.approvals).list.push(Arc::new(approval.clone()));
    Arc::make_mut(&mut all.timers).set(Timer::Approval(id), cx.now + LIFETIME);
    announce(all, cx, &approval);
    save(cx);
    Ok((id, true))
}

/// The identical wish that nobody has decided yet. A retrying agent would fill the list otherwise, and a
/// person would decide one thing many times.
fn pending_like(all: &All, new: &NewApproval) -> Option<ApprovalId> {
    let lineage = lineage_of(all, new.agent);
    let same =
        |approval: &&Arc<Approval>| approval.lineage_id == lineage && approval.action.is_same(&new.action);
    all.approvals.undecided().find(same).map(|approval| approval.id)
}

/// The record of a wish.
fn fresh(all: &All, cx: &mut Context, new: NewApproval) -> Approval {
    Approval {
        id: ApprovalId(cx.fresh_id(|id| all.approvals.iter().any(|approval| approval.id.0 == id))),
        agent_id: new.agent,
        agent_name: name_of(all, new.agent),
        lineage_id: lineage_of(all, new.agent),
        action: new.action,
        status: Status::Pending,
        requested_at: cx.now,
        expires_at: cx.now + LIFETIME,
        resolved_at: None,
        resolved_by: None,
        reason: None,
        used_at: None,
        rule: None,
        with_rule: false,
    }
}

/// Tells everybody that a person has to decide.
fn announce(all: &mut All, cx: &mut Context, approval: &Approval) {
    let wish = json!({"id": approval.id, "agentId": approval.shown_agent(), "action": approval.action});
    cx.audit("approval.request", &wish);
    cx.notice(Notice::ApprovalRequest { data: Box::new(approval.clone()) });
    if let Some(lineage) = approval.lineage_id {
        show_waiting(all, cx, lineage);
    }
}

/// What the approval `id` is worth for this action of this agent, without using it.
pub fn check(all: &All, now: Time, id: &str, agent: Option<AgentId>, action: &Action) -> Verdict {
    let Ok(approval) = all.approvals.find(id) else { return Verdict::Unknown };
    let is_its = agent != Some(UNKNOWN_AGENT) && approval.lineage_id == lineage_of(all, agent);
    // Before the status: whether it was granted is none of another agent's business.
    if !is_its || !approval.action.is_same(action) {
        return Verdict::Mismatch;
    }
    match approval.status {
        Status::Rejected => Verdict::Rejected(approval.reason.clone()),
        Status::Approved if approval.used_at.is_some() => Verdict::Used,
        Status::Expired => Verdict::Expired,
        // The timer may be late by a turn; the deadline is not.
        _ if now >= approval.expires_at => Verdict::Expired,
        Status::Approved => Verdict::Approved,
        Status::Pending => Verdict::Pending,
    }
}

/// As [`check`], and uses the approval up when it is [`Verdict::Approved`].
pub fn claim(all: &mut All, cx: &mut Context, id: &str, agent: Option<AgentId>, action: &Action) -> Verdict {
    let verdict = check(all, cx.now, id, agent, action);
    if verdict != Verdict::Approved {
        return verdict;
    }
    let Ok(id) = id.parse::<ApprovalId>() else { return Verdict::Unknown };
    if let Some(approval) = Arc::make_mut(&mut all.approvals).edit(id) {
        approval.used_at = Some(cx.now);
    }
    Arc::make_mut(&mut all.timers).clear(Timer::Approval(id));
    cx.audit("approval.use", &json!({"id": id}));
    settle(all, cx);
    verdict
}

/// Undoes a [`claim`] whose attempt was never made.
pub fn give_back(all: &mut All, cx: &mut Context, id: &str) {
    let Ok(id) = id.parse::<ApprovalId>() else { return };
    // A used approval may have been forgotten meanwhile; then there is nothing to give back.
    let Some(approval) = Arc::make_mut(&mut all.approvals).edit(id) else { return };
    if approval.used_at.take().is_some() {
        let expires_at = approval.expires_at;
        Arc::make_mut(&mut all.timers).set(Timer::Approval(id), expires_at);
        cx.audit("approval.give_back", &json!({"id": id}));
        save(cx);
    }
}

/// The open approval (pending, or approved and not used) of this agent for this very action, for callers that
/// carry no id, such as a hook that simply asks again.
pub fn find_open(all: &All, now: Time, agent: Option<AgentId>, action: &Action) -> Option<ApprovalId> {
    let lineage = lineage_of(all, agent);
    let fits = |approval: &&Arc<Approval>| {
        approval.lineage_id == lineage
            && approval.is_open()
            && now < approval.expires_at
            && approval.action.is_same(action)
    };
    all.approvals.iter().filter(fits).last().map(|approval| approval.id)
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Decide { id, decision, reason } => decide(all, cx, &id, decision, reason),
        Command::Ask { agent, question } => ask(all, cx, agent.as_deref(), &question).map(Response::from),
        Command::AddRule(new) => {
            new_rule::add(all, cx, *new).map(|made| Response::from(Reply::json(201, &made)))
        }
        Command::RevokeRule { id } => {
            new_rule::revoke(all, cx, &id).map(|rule| Response::from(Reply::ok(&rule)))
        }
    });
    cx.answer(call, result);
}

/// 202 with the id under which the answer comes.
///
/// Errors: 403 `agent_may_not` for another agent's question, 404, 409 `too_many_approvals`.
fn ask(all: &mut All, cx: &mut Context, named: Option<&str>, question: &str) -> Result<Reply, Problem> {
    let named = named.map(|target| all.agents.find(target).map(|agent| agent.id)).transpose()?;
    let agent = match (cx.actor.agent(), named) {
        (Some(caller), Some(named)) if lineage_of(all, Some(caller)) != lineage_of(all, Some(named)) => {
            let text =
                format!("agent {caller} may not ask as agent {named}; leave agentId out or name yourself");
            return Err(Problem::new(403, "agent_may_not", text));
        }
        (caller, named) => caller.or(named),
    };
    let (id, _) = request(all, cx, NewApproval { agent, action: Action::question(question) })?;
    let message = format!(
        "A person was asked ({id}). You will be told the answer: carry on with what does not depend on it, \
         or end your turn."
    );
    Ok(Reply::json(
        202,
        &json!({"questionId": id, "approvalId": id, "status": "pending", "message": message}),
    ))
}

/// A person's decision.
///
/// Errors: 403 `agent_may_not`, 404, 409 `already_resolved`.
fn decide(
    all: &mut All,
    cx: &mut Context,
    id: &str,
    decision: Decision,
    reason: Option<String>,
) -> Result<Response, Problem> {
    new_rule::check_person(cx, "decide an approval")?;
    let approval = Arc::clone(all.approvals.find(id)?);
    let status = decision.status();
    // A second click, or a retry after a lost answer, is no conflict.
    if approval.status == status {
        return Ok(Response::Decided(approval));
    }
    if approval.status != Status::Pending {
        return Err(resolved_already(&approval));
    }
    resolve(all, cx, approval.id, status, reason);
    let event = if status == Status::Approved { "approval.approve" } else { "approval.reject" };
    cx.audit(event, &json!({"id": id, "agentId": approval.shown_agent(), "action": approval.action}));
    Ok(Response::Decided(Arc::clone(all.approvals.find(id)?)))
}

fn resolved_already(approval: &Approval) -> Problem {
    let (id, word) = (approval.id, approval.status.word());
    let text = format!("approval {id} is {word} already; the agent has to ask again");
    Problem::new(409, "already_resolved", text).with("status", word)
}

/// The deadline of an approval has come.
pub fn expire(all: &mut All, cx: &mut Context, id: ApprovalId) {
    let Ok(approval) = all.approvals.find(&id.to_string()).cloned() else { return };
    if !approval.is_open() {
        return;
    }
    cx.audit("approval.expire", &json!({"id": id, "agentId": approval.shown_agent()}));
    resolve(all, cx, id, Status::Expired, None);
}

/// An agent has done something: where its shell is follows from it.
pub fn heard_one(all: &mut All, agent: AgentId, activity: &Activity) {
    if matches!(activity, Activity::ToolStarted { input, .. } if input.get("command").is_some()) {
        Arc::make_mut(&mut all.approvals).shells.heard(agent, activity);
    }
}

/// Something has happened to an agent: its approvals follow its lineage.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Rotated { old, new } => {
            end_questions(all, cx, old);
            follow(all, cx, new);
        }
        Moment::Resumed { new, .. } => follow(all, cx, new),
        Moment::Started(id) | Moment::TurnEnded(id) => {
            if let Some(lineage) = lineage_of(all, Some(id)) {
                show_waiting(all, cx, lineage);
            }
        }
        Moment::Ended(id) => {
            Arc::make_mut(&mut all.approvals).shells.forget(id);
            end_questions(all, cx, id);
            if let Some(lineage) = lineage_of(all, Some(id)) {
                show_waiting(all, cx, lineage);
            }
        }
        Moment::Removed(_, lineage) => {
            rules::forget(all, cx, lineage);
            let is_open = |one: &Approval| one.lineage_id == Some(lineage) && one.is_open();
            expire_all(all, cx, is_open, "its agent was removed");
        }
        _ => {}
    }
}

/// A run that is over waits for no answer any more.
fn end_questions(all: &mut All, cx: &mut Context, agent: AgentId) {
    let is_question = |approval: &Approval| {
        approval.agent_id == Some(agent)
            && approval.status == Status::Pending
            && matches!(approval.action, Action::ToolPermission { .. })
    };
    expire_all(all, cx, is_question, "its run ended before the decision");
}

fn expire_all(all: &mut All, cx: &mut Context, is_one: impl Fn(&Approval) -> bool, why: &str) {
    let ones = all.approvals.iter().filter(|approval| is_one(approval));
    let ids: Vec<ApprovalId> = ones.map(|approval| approval.id).collect();
    for id in ids {
        resolve(all, cx, id, Status::Expired, Some(why.into()));
    }
}

/// Sets the outcome, tells everybody, and tells the agent.
fn resolve(all: &mut All, cx: &mut Context, id: ApprovalId, status: Status, reason: Option<String>) {
    resolve_by(all, cx, id, status, reason, None);
}

/// As [`resolve`]; a rule decides it where one is named.
fn resolve_by(
    all: &mut All,
    cx: &mut Context,
    id: ApprovalId,
    status: Status,
    reason: Option<String>,
    rule: Option<RuleId>,
) {
    let now = cx.now;
    let actor = rule.map_or_else(|| cx.actor.to_string(), |rule| format!("rule {rule}"));
    let Some(approval) = Arc::make_mut(&mut all.approvals).edit(id) else { return };
    approval.resolve(now, actor, status, reason);
    approval.rule = rule;
    let approval = approval.clone();
    let timers = Arc::make_mut(&mut all.timers);
    timers.clear(Timer::Approval(id));
    // A granted approval is open until it is used, and still ends with its day.
    if approval.is_open() {
        timers.set(Timer::Approval(id), approval.expires_at);
    }
    cx.notice(Notice::ApprovalResolved { data: Box::new(approval.clone()) });
    settle(all, cx);
    cx.moment(Moment::Decided { approval: id, approved: status == Status::Approved });
    let Some(lineage) = approval.lineage_id else { return };
    show_waiting(all, cx, lineage);
    let Some(agent) = current(all, lineage) else { return };
    if matches!(approval.action, Action::ToolPermission { .. }) {
        // Its provider waits for the answer and gets it, not a message.
        if awaited(all, lineage).is_none() {
            agents::decided(all, cx, agent);
        }
        return;
    }
    if rule.is_some() && status == Status::Approved && !approval.action.blocks() {
        // It is done, and nobody minds: there is nothing to tell.
        return;
    }
    let is_answer = matches!(approval.action, Action::Question { .. }) && status == Status::Rejected;
    // A refusal waits until the agent runs anyway; an answer, or a yes that work waits for, wakes it.
    let may_resume = is_answer || (status == Status::Approved && approval.action.blocks());
    agents::tell(all, cx, agent, approval.message_to_agent(), may_resume);
}

/// Forgets what nobody needs, and has the rest written.
fn settle(all: &mut All, cx: &mut Context) {
    let mut closed: Vec<(Option<Time>, ApprovalId)> = all
        .approvals
        .iter()
        .filter(|approval| !approval.is_open())
        .map(|approval| (approval.resolved_at, approval.id))
        .collect();
    sorted::up(&mut closed);
    let is_by_rule = |id: ApprovalId| all.approvals.iter().any(|one| one.id == id && one.rule.is_some());
    let by_rule: Vec<ApprovalId> = closed.iter().map(|(_, id)| *id).filter(|id| is_by_rule(*id)).collect();
    let mut gone: Vec<ApprovalId> = by_rule[..by_rule.len().saturating_sub(MAX_BY_RULE)].to_vec();
    closed.retain(|(_, id)| !gone.contains(id));
    let surplus = closed.len().saturating_sub(MAX_RESOLVED);
    gone.extend(closed.into_iter().take(surplus).map(|(_, id)| id));
    if !gone.is_empty() {
        Arc::make_mut(&mut all.approvals).list.retain(|approval| !gone.contains(&approval.id));
    }
    save(cx);
}

fn save(cx: &mut Context) {
    cx.push(Effect::Put(Document::Approvals, Durability::BeforeReply));
}

/// What the work of a lineage waits for, if anything.
pub fn awaited(all: &All, lineage: LineageId) -> Option<&Arc<Approval>> {
    let blocks = |approval: &&Arc<Approval>| approval.lineage_id == Some(lineage) && approval.action.blocks();
    all.approvals.pending().find(blocks)
}

/// An agent is shown as waiting exactly while an approval of it is pending.
fn show_waiting(all: &mut All, cx: &mut Context, lineage: LineageId) {
    let Some(agent) = current(all, lineage) else { return };
    let awaited = awaited_by(all, lineage);
    agents::set_waiting(all, cx, agent, awaited);
}

fn awaited_by(all: &All, lineage: LineageId) -> Option<agents::Awaited> {
    let in_process = |approval: &Arc<Approval>| {
        approval.lineage_id == Some(lineage) && matches!(approval.action, Action::ToolPermission { .. })
    };
    awaited(all, lineage).map(|approval| agents::Awaited {
        approval: approval.id.to_string(),
        action: approval.action.description().to_owned(),
        in_process: all.approvals.pending().any(in_process),
    })
}

/// The open approvals of a lineage name its present life.
fn follow(all: &mut All, cx: &mut Context, new: AgentId) {
    let Some(lineage) = lineage_of(all, Some(new)) else { return };
    let is_its = |approval: &Arc<Approval>| approval.lineage_id == Some(lineage) && approval.is_open();
    if !all.approvals.iter().any(is_its) {
        return;
    }
    for approval in Arc::make_mut(&mut all.approvals).list.iter_mut().filter(|approval| is_its(approval)) {
        Arc::make_mut(approval).agent_id = Some(new);
    }
    save(cx);
}

/// Whether one more may be open.
///
/// Errors: 409 `too_many_approvals`, with the limit that is reached.
fn check_room(all: &All, lineage: Option<LineageId>) -> Result<(), Problem> {
    let open: Vec<_> = all.approvals.iter().filter(|approval| approval.is_open()).collect();
    let own = open.iter().filter(|approval| approval.lineage_id == lineage).count();
    let of_agents = open.iter().filter(|approval| approval.lineage_id.is_some()).count();
    let of_agent = [
        (own, MAX_OPEN_PER_AGENT, "of this agent "),
        (
            if of_agents < CROWDED { 0 } else { own },
            MAX_OPEN_IF_CROWDED,
            "of this agent, and many of others, ",
        ),
        (of_agents, MAX_OPEN_OF_AGENTS, "of agents "),
    ];
    let of_all = (open.len(), MAX_OPEN, "");
    let limits = of_agent.into_iter().filter(|_| lineage.is_some()).chain([of_all]);
    let Some((count, limit, whose)) = limits.into_iter().find(|(count, limit, _)| count >= limit) else {
        return Ok(());
    };
    let text =
        format!("{count} approvals {whose}are open and {limit} is the limit; a person has to decide some");
    Err(Problem::new(409, "too_many_approvals", text))
}

fn lineage_of(all: &All, agent: Option<AgentId>) -> Option<LineageId> {
    all.agents.find(&agent?.to_string()).ok().map(|agent| agent.lineage_id)
}

fn current(all: &All, lineage: LineageId) -> Option<AgentId> {
    all.agents.by_lineage(lineage).map(|agent| agent.id)
}

fn name_of(all: &All, agent: Option<AgentId>) -> String {
    let found = agent.and_then(|id| all.agents.find(&id.to_string()).ok());
    found.map_or_else(|| "operator".to_owned(), |agent| agent.name.clone())
}
