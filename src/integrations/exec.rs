//! The flow of a call, in the order of the specification: validate, rate limit, approval gate, run, audit.

use super::{MAX_CALLS, PendingCall, edit, gates, life};
use crate::agents::rights;
use crate::api::{Problem, Reply};
use crate::approvals::{self, Action, ApprovalId, Asked, Danger, Judged, NewApproval, RuleId, Verdict};
use crate::core::ids::AgentId;
use crate::core::{Actor, CallId, Context, Document, Durability, Effect, State as All, Timer};
use crate::integrations::protocol::Ask;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted::Gather;

/// Characters of the parameters in an audit entry.
pub const AUDIT_PARAMS_CHARS: usize = 200;

/// `POST /api/integrations/:id/exec`, its fields checked.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Request {
    pub id: String,
    /// The tool's exact name.
    pub tool: String,
    /// An object.
    pub params: Arc<Value>,
    /// From an earlier 202.
    pub approval_id: Option<String>,
    /// The agent it says it calls for.
    pub agent: Option<String>,
}

/// Lists the tools of an integration; its server is started if need be.
///
/// Errors: 400 `not_installed`, 400 `server_failed`, 503 `busy`.
pub fn tools(all: &mut All, cx: &mut Context, call: CallId, id: &str) -> Result<(), Problem> {
    all.integrations.find(id)?;
    let actor = cx.actor.clone();
    let pending = listing(id, actor, None);
    run(all, cx, call, pending)
}

fn listing(id: &str, actor: Actor, then: Option<Box<Request>>) -> PendingCall {
    PendingCall { integration: id.to_owned(), actor, ask: Ask::Tools, entry: None, approval: None, then }
}

/// Calls a tool. `None`: the answer comes with a later event.
///
/// Errors: those of the specification's table, in its order.
pub fn exec(
    all: &mut All,
    cx: &mut Context,
    call: CallId,
    request: Request,
) -> Result<Option<Reply>, Problem> {
    // An id that is not installed is refused before anything is counted or audited.
    let by_name = gates::is_gated(all.integrations.find(&request.id)?, &request.tool);
    let agent = acting_agent(all, cx, request.agent.as_deref())?;
    check_attached(all, cx, &request.id)?;
    let entry = audit_entry(&request, agent.as_deref());
    // Before the gate: a flood of gated calls would otherwise be a flood of approvals.
    if let Err(wait) = edit(all).windows.entry(request.id.clone()).or_default().admit(cx.now) {
        cx.audit("integration.exec.rate_limited", &entry);
        return Err(rate_limited(&request.id, wait));
    }
    // A rule may let it through without a person: what its server calls destructive it may not.
    let is_listed = all.integrations.destructive.contains_key(&request.id);
    if !is_listed && (!by_name || could_be_allowed(all, cx, &request)) {
        // What its server says of its tools is to be known before one is called.
        let pending = listing(&request.id, cx.actor.clone(), Some(Box::new(request.clone())));
        return run(all, cx, call, pending).map(|()| None).inspect_err(|problem| {
            cx.audit("integration.exec.failed", &with_error(&entry, &problem.error));
        });
    }
    proceed(all, cx, call, request)
}

/// Whether a rule could let this call through.
fn could_be_allowed(all: &All, cx: &Context, request: &Request) -> bool {
    request.approval_id.is_none() && all.approvals.may_allow_calls(cx.now, &request.id)
}

/// The rest of the flow, from the approval gate on.
fn proceed(
    all: &mut All,
    cx: &mut Context,
    call: CallId,
    request: Request,
) -> Result<Option<Reply>, Problem> {
    // Asked again, for time may have passed over the listing of the tools.
    let agent = acting_agent(all, cx, request.agent.as_deref())?;
    let entry = audit_entry(&request, agent.as_deref());
    let mut approval = None;
    if is_gated(all, &request.id, &request.tool) {
        let action = Action::integration_exec(&request.id, &request.tool, &request.params)
            .with_danger(danger(all, cx, &request.id, &request.tool));
        let gate = Gate { agent: agent_id(all, agent.as_deref()), action, entry: &entry };
        match pass(all, cx, &request, &gate)? {
            Passed::Waits(reply) => return Ok(Some(*reply)),
            Passed::By(id) => approval = Some(id),
        }
    }
    let ask = Ask::Tool { name: request.tool, params: request.params };
    let (actor, entry) = (cx.actor.clone(), Some(Arc::new(entry)));
    let pending = PendingCall { integration: request.id, actor, ask, entry, approval, then: None };
    run(all, cx, call, pending).map(|()| None)
}

/// Whether a call can be taken back. Where a rule could allow it and its server has not told what it calls
/// destructive, it cannot.
fn danger(all: &All, cx: &Context, id: &str, tool: &str) -> Option<Danger> {
    let state = &all.integrations;
    let kind = state.definition(id).map(|definition| definition.kind);
    if kind.is_none_or(gates::pays) {
        return Some(Danger::Pays);
    }
    let is_told = |tools: &Arc<BTreeSet<String>>| tools.contains(&gates::folded(tool));
    let is_untold = || all.approvals.may_allow_calls(cx.now, id);
    let destroys =
        gates::says_that_it_destroys(tool) || state.destructive.get(id).map_or_else(is_untold, is_told);
    destroys.then_some(Danger::Destroys)
}

/// Whether a call needs an approval: by its name, or because its server calls it destructive.
fn is_gated(all: &All, id: &str, tool: &str) -> bool {
    let state = &all.integrations;
    let by_name = state.definition(id).is_some_and(|definition| gates::is_gated(definition, tool));
    by_name || state.destructive.get(id).is_some_and(|tools| tools.contains(&gates::folded(tool)))
}

/// An agent calls only what is attached to it: the integration's credentials were given to nobody else.
///
/// Errors: 403 `not_attached`.
fn check_attached(all: &All, cx: &Context, id: &str) -> Result<(), Problem> {
    let Some(caller) = cx.actor.agent() else { return Ok(()) };
    let Some(agent) = rights::known(all, caller) else {
        return Err(rights::refusal(caller, "call tools of integrations"));
    };
    if agent.integrations.iter().any(|attached| attached == id) {
        return Ok(());
    }
    let text = format!(
        "integration {id} is not attached to agent {}; a person attaches it when the agent is started \
         (integrations, svc spawn --integration {id})",
        agent.name
    );
    Err(Problem::new(403, "not_attached", text).with("integrationId", id))
}

/// The agent behind a call, as the kernel tells or else as the call says.
///
/// Errors: 403 `agent_may_not` when an agent names another.
fn acting_agent(all: &All, cx: &Context, named: Option<&str>) -> Result<Option<String>, Problem> {
    let Some(caller) = cx.actor.agent() else { return Ok(named.map(ToOwned::to_owned)) };
    let lineage = |target: &str| all.agents.find(target).map(|agent| agent.lineage_id).ok();
    let own = caller.to_string();
    match named {
        Some(named) if named != own && (lineage(named).is_none() || lineage(named) != lineage(&own)) => {
            let text =
                format!("agent {own} may not call tools as {named:?}; leave agent out or name yourself");
            Err(Problem::new(403, "agent_may_not", text))
        }
        _ => Ok(Some(own)),
    }
}

/// The record behind a name or id, if it is an agent's.
fn agent_id(all: &All, agent: Option<&str>) -> Option<AgentId> {
    all.agents.find(agent?).ok().map(|agent| agent.id)
}

fn audit_entry(request: &Request, agent: Option<&str>) -> Value {
    let mut params = request.params.to_string();
    if let Some((end, _)) = params.char_indices().nth(AUDIT_PARAMS_CHARS) {
        params.truncate(end);
    }
    let mut entry = json!({"integrationId": request.id, "tool": request.tool, "params": params});
    if let Some(agent) = agent {
        entry["agentId"] = agent.into();
    }
    entry
}

fn rate_limited(id: &str, wait: Duration) -> Problem {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    Problem::new(429, "rate_limited", format!("Rate limit exceeded (30/min) for {id}"))
        .with_header("Retry-After", seconds.to_string())
}

/// What the approval gate needs to know.
struct Gate<'a> {
    agent: Option<AgentId>,
    action: Action,
    entry: &'a Value,
}

/// What came of the gate.
enum Passed {
    /// A person has to decide.
    Waits(Box<Reply>),
    /// The call may go through, and has used up this approval.
    By(String),
}

/// The approval gate.
///
/// Errors: 403 for a rejected, foreign, used or expired approval, or where a rule says never; 404 for an
/// unknown one.
fn pass(all: &mut All, cx: &mut Context, request: &Request, gate: &Gate) -> Result<Passed, Problem> {
    let Some(id) = request.approval_id.as_deref() else { return pass_by_rule(all, cx, request, gate) };
    check_reachable(all, cx, request, gate)?;
    if let Judged::Never(rule) = approvals::judge(all, cx.now, gate.agent, &gate.action) {
        return Err(never(rule));
    }
    claim(all, cx, id, gate)
}

/// Errors: 400 `server_failed`.
fn check_reachable(all: &All, cx: &mut Context, request: &Request, gate: &Gate) -> Result<(), Problem> {
    let Some(why) = life::refusal(all, &request.id) else { return Ok(()) };
    // The approval stays good for a time when the server can be reached.
    cx.audit("integration.exec.failed", &with_error(gate.entry, &why));
    Err(server_problem("server_failed", &request.id, &why))
}

fn never(rule: RuleId) -> Problem {
    let text = format!("a rule of a person says never ({rule}); do not try it again, find another way");
    Problem::new(403, "approval_rejected", text).with("rule", rule.to_string())
}

/// A call that brings no approval: what a rule allows goes through, for the rest a person is asked.
fn pass_by_rule(all: &mut All, cx: &mut Context, request: &Request, gate: &Gate) -> Result<Passed, Problem> {
    let judged = approvals::judge(all, cx.now, gate.agent, &gate.action);
    if matches!(judged, Judged::Allow(_)) {
        check_reachable(all, cx, request, gate)?;
    }
    // One that the disk did not take the use of is still good, as long as no rule says never.
    let is_by_rule = |id: &ApprovalId| {
        let found = all.approvals.find(&id.to_string()).ok();
        found.is_some_and(|one| one.rule.is_some() && one.status == approvals::Status::Approved)
    };
    let left = approvals::find_open(all, cx.now, gate.agent, &gate.action).filter(is_by_rule);
    if let Some(id) = left.filter(|_| !matches!(judged, Judged::Never(_))) {
        return claim(all, cx, &id.to_string(), gate);
    }
    let new = NewApproval { agent: gate.agent, action: gate.action.clone() };
    match approvals::ask_now(all, cx, new)? {
        Asked::Granted(id) => Ok(Passed::By(id.to_string())),
        Asked::Never(rule) => Err(never(rule)),
        Asked::Person(id, _) | Asked::Soon(id) => {
            Ok(Passed::Waits(Box::new(blocked(cx, gate.entry, &id.to_string()))))
        }
    }
}

/// What to do when an approval is worth nothing for a call.
const ANEW: &str = "call without approvalId to ask anew";

/// Uses up an approval that a call brings.
fn claim(all: &mut All, cx: &mut Context, id: &str, gate: &Gate) -> Result<Passed, Problem> {
    let (code, what) = match approvals::claim(all, cx, id, gate.agent, &gate.action) {
        Verdict::Approved => return Ok(Passed::By(id.to_owned())),
        Verdict::Pending => return Ok(Passed::Waits(Box::new(blocked(cx, gate.entry, id)))),
        Verdict::Unknown => {
            let text = format!("no approval has the id {id:?}; GET /api/approvals lists them");
            return Err(Problem::not_found(text).with("approvalId", id));
        }
        Verdict::Rejected(None) => ("approval_rejected", "was rejected".to_owned()),
        Verdict::Rejected(Some(reason)) => ("approval_rejected", format!("was rejected: {reason}")),
        Verdict::Mismatch => {
            ("approval_mismatch", format!("was given for another call; repeat that one exactly, or {ANEW}"))
        }
        Verdict::Used => ("approval_used", format!("let its one call through already; {ANEW}")),
        Verdict::Expired => ("approval_expired", format!("has expired; {ANEW}")),
    };
    Err(Problem::new(403, code, format!("approval {id} {what}")).with("approvalId", id))
}

fn blocked(cx: &mut Context, entry: &Value, approval_id: &str) -> Reply {
    let mut entry = entry.clone();
    entry["approvalId"] = approval_id.into();
    cx.audit("integration.exec.blocked", &entry);
    let tool = entry["tool"].as_str().unwrap_or_default();
    let message = format!(
        "{tool} needs a person's approval. It was asked for; once {approval_id} is approved, repeat the same call \
         with \"approvalId\":\"{approval_id}\""
    );
    Reply::json(
        202,
        &json!({
            "requiresApproval": true, "approvalId": approval_id, "status": "pending", "message": message,
        }),
    )
}

/// Hands a call to its server.
///
/// Errors: 400 `server_failed`, 503 `busy`.
fn run(all: &mut All, cx: &mut Context, call: CallId, pending: PendingCall) -> Result<(), Problem> {
    let id = pending.integration.clone();
    let refusal = life::refusal(all, &id).map(|why| server_problem("server_failed", &id, &why));
    let refusal = refusal.or_else(|| {
        (all.integrations.calls.len() >= MAX_CALLS).then(|| {
            let text = format!("{MAX_CALLS} calls wait for integrations already; try again later");
            Problem::new(503, "busy", text).with_header("Retry-After", "5")
        })
    });
    if let Some(problem) = refusal {
        if let Some(entry) = &pending.entry {
            cx.audit("integration.exec.failed", &with_error(entry, &problem.error));
        }
        return Err(problem);
    }
    let is_gated = pending.approval.is_some();
    // Kept before it runs: answers, time-outs and the disk all find the call by its id.
    edit(all).calls.insert(call, pending);
    if is_gated {
        // Were the use of the approval lost in a crash, a retry would run the call a second time.
        cx.push(Effect::AwaitDisk(call));
    } else {
        life::enter(all, cx, &id, call);
    }
    Ok(())
}

/// The use of a call's approval is on disk, and the call may run; or it is not, and the approval stays good.
pub fn on_disk(all: &mut All, cx: &mut Context, call: CallId, outcome: &Result<(), String>) {
    let Some(pending) = all.integrations.calls.get(&call).cloned() else { return };
    let Err(why) = outcome else { return life::enter(all, cx, &pending.integration, call) };
    edit(all).calls.remove(&call);
    // This event comes from the disk; what follows is done in the caller's name.
    cx.actor.clone_from(&pending.actor);
    if let Some(id) = &pending.approval {
        approvals::give_back(all, cx, id);
    }
    audit_failure(cx, &pending, why);
    cx.reply(call, Problem::new(503, "storage_unavailable", why.clone()).with_header("Retry-After", "5"));
}

/// Answers a call with what its server said.
pub(super) fn finish(
    all: &mut All,
    cx: &mut Context,
    call: CallId,
    pending: &PendingCall,
    result: Result<Value, String>,
) {
    let id = &pending.integration;
    cx.actor.clone_from(&pending.actor);
    match (result, &pending.entry) {
        (Ok(tools), None) => {
            remember(all, cx, id, &tools);
            if let Some(request) = &pending.then {
                if let Some(result) = proceed(all, cx, call, (**request).clone()).transpose() {
                    cx.answer(call, result);
                }
                return;
            }
            cx.reply(call, Reply::ok(&json!({"tools": marked(all, id, tools)})));
        }
        (Ok(result), Some(entry)) => {
            cx.audit("integration.exec", entry);
            cx.reply(call, Reply::ok(&json!({"result": result})));
        }
        (Err(error), _) => {
            audit_failure(cx, pending, &error);
            cx.reply(call, server_problem("server_error", id, &error));
        }
    }
}

/// Answers a call that its server will not answer; nothing happens when it was answered already.
pub(super) fn fail_call(all: &mut All, cx: &mut Context, call: CallId, code: &'static str, why: &str) {
    let Some(pending) = edit(all).calls.remove(&call) else { return };
    Arc::make_mut(&mut all.timers).clear(Timer::IntegrationCall(call));
    // Put back below: the event at hand may end calls of many callers.
    let actor = std::mem::replace(&mut cx.actor, pending.actor.clone());
    audit_failure(cx, &pending, why);
    cx.reply(call, server_problem(code, &pending.integration, why));
    cx.actor = actor;
}

/// A call that was not made, or failed, is audited; a list of tools that nobody wanted to call one of is not.
fn audit_failure(cx: &mut Context, pending: &PendingCall, why: &str) {
    let agent = pending.actor.agent().map(|agent| agent.to_string());
    let wanted = |request: &Request| audit_entry(request, agent.as_deref().or(request.agent.as_deref()));
    let entry = pending.entry.as_deref().cloned().or_else(|| pending.then.as_deref().map(wanted));
    if let Some(entry) = entry {
        cx.audit("integration.exec.failed", &with_error(&entry, why));
    }
}

/// Keeps what servers call destructive, and the names of the tools for the briefings of agents.
fn remember(all: &mut All, cx: &mut Context, id: &str, tools: &Value) {
    let listed = || tools.as_array().into_iter().flatten();
    let folded = |tool: &Value| tool["name"].as_str().map(gates::folded);
    let destructive = listed().filter(|tool| gates::is_destructive(tool)).filter_map(folded).gather();
    edit(all).destructive.insert(id.to_owned(), Arc::new(destructive));
    let name = |tool: &Value| tool["name"].as_str().map(ToOwned::to_owned);
    let names: Vec<String> = listed().filter_map(name).collect();
    if all.integrations.tool_names.get(id).is_some_and(|known| **known == names) {
        return;
    }
    edit(all).tool_names.insert(id.to_owned(), Arc::new(names));
    cx.push(Effect::Put(Document::Integrations, Durability::Soon));
}

/// Tells of each tool whether it is gated.
fn marked(all: &All, id: &str, mut tools: Value) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        let gated = tool["name"].as_str().is_some_and(|name| is_gated(all, id, name));
        tool["gated"] = gated.into();
    }
    tools
}

fn with_error(entry: &Value, error: &str) -> Value {
    let mut entry = entry.clone();
    entry["error"] = error.into();
    entry
}

fn server_problem(code: &'static str, id: &str, why: &str) -> Problem {
    Problem::bad_request(code, format!("integration {id}: {why}")).with("integrationId", id)
}
