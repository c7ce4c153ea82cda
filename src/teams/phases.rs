//! The phases of a planned team.
//!
//! ```text
//! launch ──▶ Working(1) ──all of it completed──▶ Working(2) ── … ──▶ Working(N) ──all completed──▶ Done
//!               │   ▲                               │   ▲
//!      one failed   resumed and completed  one failed   resumed and completed
//!               ▼   │                               ▼   │
//!             Blocked(1)                          Blocked(2)
//! ```
//! A person may try a blocked phase again or pass it over (`steer.rs`).
//! A member that crashes is restarted once; that it crashes again, is stopped or cannot be started blocks
//! its phase. Members are known by lineage, so that rotations and resumes change nothing. A member that a
//! restart of the daemon interrupted keeps its phase waiting until somebody resumes it. Members for whom
//! there is no room are started when there is.

use super::plan::{Planned, Recommendation};
use super::qc::NAME_PREFIX;
use super::{State, put};
use crate::agents::{self, Agent, Maker, SpawnRequest, Status};
use crate::api::{Problem, Reply, Validator};
use crate::approvals;
use crate::core::Notice;
use crate::core::ids::{AgentId, LineageId, PlanId};
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, Effect, State as All};
use crate::providers;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use svc_base::names;
use svc_base::sorted::{self, Gather};

/// Plans kept; the oldest that is over goes first.
pub const MAX_PLANS: usize = 20;
/// How often a crashed member is started again.
pub const MAX_RESTARTS: u32 = 1;
/// Changed files named in a prompt.
pub const MAX_FILES_NAMED: usize = 500;

/// Where a plan is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Phase {
    /// This phase works, the first is 1.
    Working { phase: usize },
    /// This phase cannot be completed as it is.
    Blocked {
        phase: usize,
        /// Who failed, and how.
        reason: String,
    },
    /// All phases are completed.
    Done,
}

/// How a member fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Not started yet.
    Pending,
    /// Its lineage was started.
    Working,
    /// It has done its part.
    Completed,
    /// It cannot be started, was stopped, or crashed too often.
    Failed(String),
    /// A person has passed it over.
    Skipped,
}

/// One agent of a plan.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its phase, from 1.
    pub phase: usize,
    pub request: SpawnRequest,
    /// Whether it was added for quality control.
    pub qc: bool,
    /// Who it is, once started.
    pub lineage: Option<LineageId>,
    pub outcome: Outcome,
    /// How often it was started again.
    pub restarts: u32,
}

/// A planned team at work.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub id: PlanId,
    /// The team its agents join.
    pub team_id: Option<String>,
    /// Whose recommendation it follows, and when that was read.
    pub recommended: Option<(LineageId, Time)>,
    /// When it was launched.
    #[serde(with = "rfc3339")]
    pub created_at: Time,
    pub phase: Phase,
    /// Its agents, by phase.
    pub members: Vec<Member>,
    /// Who launched it, with the rights of then.
    #[serde(default)]
    pub maker: Maker,
}

/// What `POST /api/recommended-team/launch` asks for.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Launch {
    /// Instead of the recommended agents.
    pub agents: Option<Vec<Planned>>,
    /// The folder of all that name none, when `agents` is given.
    pub project_dir: Option<String>,
    /// The team they join; the planner's own when absent.
    pub team_id: Option<String>,
}

impl Plan {
    /// Whether it follows this recommendation.
    pub fn is_of(&self, recommendation: &Recommendation) -> bool {
        self.recommended == Some((recommendation.planner, recommendation.received_at))
    }

    fn phases(&self) -> usize {
        self.members.iter().map(|member| member.phase).max().unwrap_or(0)
    }
}

/// Moves the plans of a deleted team.
pub fn change_team(plan: &mut Arc<Plan>, from: &str, to: &str) {
    if plan.team_id.as_deref() == Some(from) {
        let plan = Arc::make_mut(plan);
        plan.team_id = Some(to.to_owned());
        for member in &mut plan.members {
            member.request.team_id = Some(to.to_owned());
        }
    }
}

/// `POST /api/recommended-team/launch`: registers the team, then starts its first phase: 200.
///
/// Errors: 404 without a recommendation, 400 for an unknown team, 403 `agent_may_not`, 409
/// `already_launched`, 409 `too_many_plans`.
pub fn launch(all: &mut All, cx: &mut Context, wish: Launch) -> Result<Reply, Problem> {
    let Launch { agents, project_dir, team_id } = wish;
    let maker = Maker::of(all, &cx.actor)?;
    let recommendation = all.teams.planning.recommendation.clone();
    let followed = recommendation.as_ref().filter(|_| agents.is_none());
    let (planned, project_dir) = match (agents, followed) {
        (Some(agents), _) => (agents, project_dir),
        (None, Some(recommendation)) => (recommendation.agents.clone(), recommendation.project_dir.clone()),
        (None, None) => {
            return Err(Problem::not_found(
                "no planner has recommended a team yet; start one with svc plan, or give agents",
            ));
        }
    };
    if let Some(recommendation) = followed {
        not_under_way(&all.teams, recommendation)?;
    }
    let planner = recommendation.as_ref().and_then(|r| all.agents.by_lineage(r.planner).cloned());
    let mut validator = Validator::default();
    let team_id = match &team_id {
        Some(team) => all.teams.member_of(team, &mut validator),
        None => planner.as_ref().and_then(|planner| planner.team_id.clone()),
    };
    validator.finish()?;
    make_room(all)?;
    let id = PlanId(cx.fresh_id(|id| all.teams.plans.iter().any(|plan| plan.id.0 == id)));
    let mut plan = Plan {
        id,
        team_id,
        recommended: followed.map(|r| (r.planner, r.received_at)),
        created_at: cx.now,
        phase: Phase::Working { phase: 1 },
        members: members(planned, project_dir.as_deref()),
        maker,
    };
    for member in &mut plan.members {
        agents::check_sender(cx, &member.request)?;
        plan.maker.meet(all, &mut member.request)?;
        fit(member, plan.team_id.as_deref(), planner.as_deref(), &plan.maker);
        plan.maker.meet(all, &mut member.request)?;
    }
    add_qc(&mut plan);
    cx.audit("plan.launch", &json!({"planId": id, "agents": plan.members.len(), "phases": plan.phases()}));
    // Registered before the first spawn: whatever happens to an agent finds its plan.
    Arc::make_mut(&mut all.teams).plans.push(Arc::new(plan));
    settle(all, cx);
    put(cx);
    Ok(launched(all, id))
}

pub(super) fn not_under_way(teams: &State, recommendation: &Recommendation) -> Result<(), Problem> {
    let works = |plan: &&Arc<Plan>| matches!(plan.phase, Phase::Working { .. });
    match teams.plans.iter().find(|plan| plan.is_of(recommendation) && works(plan)) {
        Some(plan) => {
            let text =
                format!("this team was launched already, as plan {}; GET /api/plans shows it", plan.id);
            Err(Problem::new(409, "already_launched", text).with("planId", plan.id.to_string()))
        }
        None => Ok(()),
    }
}

fn make_room(all: &mut All) -> Result<(), Problem> {
    if all.teams.plans.len() < MAX_PLANS {
        return Ok(());
    }
    let over = all.teams.plans.iter().position(|plan| !matches!(plan.phase, Phase::Working { .. }));
    let Some(oldest) = over else {
        let text = format!("{MAX_PLANS} planned teams are at work already; wait until one is done");
        return Err(Problem::new(409, "too_many_plans", text));
    };
    Arc::make_mut(&mut all.teams).plans.remove(oldest);
    Ok(())
}

/// The planned agents as members, their phases numbered without gaps from 1.
fn members(planned: Vec<Planned>, project_dir: Option<&str>) -> Vec<Member> {
    let phases: Vec<u64> =
        planned.iter().map(|planned| planned.phase).gather::<BTreeSet<_>>().into_iter().collect();
    let mut members: Vec<Member> = planned
        .into_iter()
        .map(|Planned { phase, agent: mut request }| {
            if let Some(dir) = project_dir.filter(|_| request.working_dir.is_empty()) {
                dir.clone_into(&mut request.working_dir);
            }
            let phase = phases.iter().position(|known| *known == phase).map_or(1, |at| at + 1);
            Member { phase, request, qc: false, lineage: None, outcome: Outcome::Pending, restarts: 0 }
        })
        .collect();
    sorted::by_key(&mut members, |member| member.phase);
    members
}

/// Gives a member its team, and the provider and permission of its planner where it has none of its own and
/// the launcher may give them.
fn fit(member: &mut Member, team_id: Option<&str>, planner: Option<&Agent>, maker: &Maker) {
    let request = &mut member.request;
    request.team_id = team_id.map(ToOwned::to_owned);
    let Some(planner) = planner else { return };
    if request.provider.is_none() {
        request.provider = Some(planner.provider.clone());
    }
    let may_give = maker.rights.permission == providers::Permission::Full;
    if may_give && request.permission == providers::Permission::default() {
        request.permission = planner.permission;
    }
}

/// Adds quality control when nothing comes after the builders.
fn add_qc(plan: &mut Plan) {
    let Some(first) = plan.members.first().filter(|_| plan.phases() == 1) else { return };
    let first = &first.request;
    let request = SpawnRequest {
        role: "fullstack".into(),
        provider: first.provider.clone(),
        working_dir: shared_folder(&plan.members),
        prompt: QC_TASK.into(),
        permission: first.permission,
        team_id: plan.team_id.clone(),
        ..SpawnRequest::default()
    };
    let outcome = Outcome::Pending;
    plan.members.push(Member { phase: 2, request, qc: true, lineage: None, outcome, restarts: 0 });
}

const QC_TASK: &str = "You are quality control: the builders of this team have finished, and nobody has \
    looked at their work as a whole. Read what they changed, build the project, run its tests, and repair \
    what does not fit together. Change nothing else. End with a short list of what you checked and what \
    you repaired.";

/// The working directory that all share, or else the project's root.
fn shared_folder(members: &[Member]) -> String {
    let first = &members[0].request.working_dir;
    let same = members.iter().all(|member| member.request.working_dir == *first);
    if same { first.clone() } else { String::new() }
}

/// What the caller of a launch learns.
fn launched(all: &All, id: PlanId) -> Reply {
    let plan = all.teams.plans.iter().find(|plan| plan.id == id);
    let members: Vec<&Member> = plan.iter().flat_map(|plan| &plan.members).collect();
    let agents: Vec<Value> =
        members.iter().filter_map(|member| record(all, member)).map(|agent| json!(agent.rest())).collect();
    let failed: Vec<Value> = members
        .iter()
        .filter_map(|member| {
            let error = match &member.outcome {
                Outcome::Failed(error) => error.clone(),
                Outcome::Pending if member.phase == 1 => {
                    "there is no room for it (maxAgents); it is started when there is".to_owned()
                }
                _ => return None,
            };
            Some(json!({"role": member.request.role, "name": member.request.name, "error": error}))
        })
        .collect();
    let pending = members.iter().filter(|member| member.phase > 1).count();
    Reply::ok(&json!({
        "launched": agents.len(), "phase2Pending": pending, "agents": agents, "failed": failed,
        "planId": id, "teamId": plan.and_then(|plan| plan.team_id.clone()),
    }))
}

/// The record of a member, as far as it has one.
pub(super) fn record<'a>(all: &'a All, member: &Member) -> Option<&'a Arc<Agent>> {
    let lineage = member.lineage?;
    all.agents.by_lineage(lineage)
}

/// Moves every plan as far as it goes. Called after whatever happens to an agent.
pub fn settle(all: &mut All, cx: &mut Context) {
    if all.health.stopping {
        return;
    }
    let open: Vec<PlanId> =
        all.teams.plans.iter().filter(|plan| plan.phase != Phase::Done).map(|plan| plan.id).collect();
    for id in open {
        // A step that completes a phase begins the next; there are as many as there are phases.
        while step(all, cx, id) {}
    }
}

/// Looks at the phase that is on; whether the next one has begun.
fn step(all: &mut All, cx: &mut Context, id: PlanId) -> bool {
    let Some(at) = all.teams.plans.iter().position(|plan| plan.id == id) else { return false };
    let mut plan = (*all.teams.plans[at]).clone();
    let before = plan.phase.clone();
    let (Phase::Working { phase } | Phase::Blocked { phase, .. }) = before else { return false };
    let known: Vec<(Outcome, u32)> = plan.members.iter().map(standing).collect();
    for index in 0..plan.members.len() {
        if plan.members[index].phase == phase {
            look_at(all, cx, &mut plan, index);
        }
    }
    let current = || plan.members.iter().filter(|member| member.phase == phase);
    let faults: Vec<String> = current().filter_map(fault).collect();
    let completed = current().all(|member| matches!(member.outcome, Outcome::Completed | Outcome::Skipped));
    plan.phase = match (faults.is_empty(), completed) {
        (false, _) => Phase::Blocked { phase, reason: faults.join("; ") },
        (true, true) if phase >= plan.phases() => Phase::Done,
        (true, true) => Phase::Working { phase: phase + 1 },
        (true, false) => Phase::Working { phase },
    };
    let moved = plan.phase != before;
    if moved || plan.members.iter().map(standing).ne(known) {
        put(cx);
    }
    if moved {
        tell(cx, &plan);
    }
    let begun = moved && matches!(plan.phase, Phase::Working { phase: now } if now > phase);
    // Spawning may not have touched the plans: they are only changed here.
    Arc::make_mut(&mut all.teams).plans[at] = Arc::new(plan);
    begun
}

/// What must be on disk when it changes.
fn standing(member: &Member) -> (Outcome, u32) {
    (member.outcome.clone(), member.restarts)
}

fn fault(member: &Member) -> Option<String> {
    let Outcome::Failed(error) = &member.outcome else { return None };
    Some(format!("{}: {error}", member.request.name.as_deref().unwrap_or(&member.request.role)))
}

fn tell(cx: &mut Context, plan: &Plan) {
    match &plan.phase {
        Phase::Blocked { phase, reason } => {
            cx.notice(Notice::PhaseFailed {
                plan_id: plan.id,
                team_id: plan.team_id.clone(),
                phase: *phase,
                reason: reason.clone(),
            });
            cx.audit("plan.blocked", &json!({"planId": plan.id, "phase": phase, "reason": reason}));
            cx.push(Effect::Warn(format!("plan {}: phase {phase} is blocked: {reason}", plan.id)));
        }
        Phase::Done => {
            cx.notice(Notice::PlanDone { plan_id: plan.id, team_id: plan.team_id.clone() });
            cx.audit("plan.done", &json!({"planId": plan.id}));
        }
        Phase::Working { .. } => {}
    }
}

/// Takes one member on: starts it, restarts it, or notes how it ended.
fn look_at(all: &mut All, cx: &mut Context, plan: &mut Plan, index: usize) {
    if plan.members[index].outcome == Outcome::Skipped {
        return;
    }
    // What could not be started is tried again whenever something has changed: a name, a budget, a provider.
    if plan.members[index].lineage.is_none() {
        return start(all, cx, plan, index);
    }
    let member = &mut plan.members[index];
    if member.outcome == Outcome::Completed {
        return;
    }
    let Some(agent) = record(all, member).cloned() else {
        member.outcome = Outcome::Failed("its record was removed".into());
        return;
    };
    let crashed = agent.status == Status::Crashed || agents::died_by_foreign_signal(&agent);
    member.outcome = match agent.status {
        // It ended while its brief is made: the successor goes on, or that it fails is told.
        _ if agents::is_rotating(all, agent.id) => Outcome::Working,
        // Its provider ends with the turn; it goes on when a person has decided.
        Status::Completed if approvals::awaited(all, agent.lineage_id).is_some() => Outcome::Working,
        Status::Completed => Outcome::Completed,
        status if status.is_live() || status == Status::Interrupted => Outcome::Working,
        _ if crashed && member.restarts < MAX_RESTARTS => {
            member.restarts += 1;
            restart(all, cx, &agent)
        }
        _ if crashed => Outcome::Failed(format!("it crashed again: {}", agent.status_reason)),
        _ => Outcome::Failed(format!("it ended: {}", agent.status_reason)),
    };
}

fn restart(all: &mut All, cx: &mut Context, agent: &Agent) -> Outcome {
    let words = format!(
        "Your program ended before your task was done ({}). Look at what you have already changed, then carry on \
         and finish the task.",
        agent.status_reason
    );
    match agents::resume(all, cx, &agent.id.to_string(), Some(words)) {
        Ok(_) => Outcome::Working,
        Err(problem) => Outcome::Failed(format!("it crashed and cannot be restarted: {}", problem.error)),
    }
}

fn start(all: &mut All, cx: &mut Context, plan: &mut Plan, index: usize) {
    let mut request = plan.members[index].request.clone();
    let provider = request.provider.as_deref().unwrap_or(&all.settings.config().default_provider);
    // After a start of the daemon: which providers there are is not known yet.
    let unknown = !all.providers.is_known() && !all.providers.is_installed(provider);
    if unknown || agents::check_share(all, plan.maker.lineage.is_some()).is_err() {
        return;
    }
    let phase = plan.members[index].phase;
    if plan.members[index].qc {
        request.name = Some(qc_name(all));
    }
    if phase > 1 {
        request.prompt.push_str(&changes(all, plan, phase));
    }
    let maker = plan.maker.clone();
    let outcome = agents::check_pattern(all, &maker, &mut request).and_then(|()| {
        if let Some(name) = &request.name {
            agents::give_up_name(all, name);
        }
        agents::spawn_agent(all, cx, &maker, request)
    });
    let member = &mut plan.members[index];
    match outcome {
        Ok(id) => started(all, cx, member, id),
        Err(problem) => {
            member.outcome = Outcome::Failed(format!("it could not be started: {}", problem.error));
        }
    }
}

fn started(all: &All, cx: &mut Context, member: &mut Member, id: AgentId) {
    let Some(agent) = all.agents.get(id) else { return };
    member.lineage = Some(agent.lineage_id);
    member.request.name = Some(agent.name.clone());
    member.outcome = Outcome::Working;
    if member.phase > 1 {
        let (name, role) = (agent.name.clone(), agent.role.clone());
        cx.notice(Notice::PhaseSpawned { agent_id: id, name, role, phase: member.phase });
    }
}

fn qc_name(all: &All) -> String {
    names::numbered(|name| all.agents.has_name(name), |n| format!("{NAME_PREFIX}{n}"))
}

/// What the phases before have really changed, for the prompt of a later phase.
fn changes(all: &All, plan: &Plan, phase: usize) -> String {
    let mut lines = Vec::new();
    for member in plan.members.iter().filter(|member| member.phase < phase) {
        let Some(agent) = record(all, member) else { continue };
        for (path, touched) in agent.files.iter().filter(|(_, touched)| touched.writes > 0) {
            let path = from_root(all, agent, path);
            lines.push(format!("- {path} ({}, writes: {}{})", agent.name, touched.writes, apart(agent)));
        }
    }
    sorted::up(&mut lines);
    lines.dedup();
    let mut text = String::from("\n\n# Files changed by the phases before\n\n");
    if lines.is_empty() {
        text.push_str("No agent has reported a change; look at the state of the project itself.\n");
    }
    for line in lines.iter().take(MAX_FILES_NAMED) {
        let _ = writeln!(text, "{line}");
    }
    if lines.len() > MAX_FILES_NAMED {
        let _ = writeln!(text, "- and {} more", lines.len() - MAX_FILES_NAMED);
    }
    text
}

/// Of one that works on another machine: its work is here once somebody has brought it.
fn apart(agent: &Agent) -> String {
    let Some(runner) = &agent.runner else { return String::new() };
    let branch = agents::branch_of(agent);
    format!("; on {runner}, and here only if somebody has fetched and merged its branch {branch}")
}

/// A path as an agent named it, from the project's root.
fn from_root(all: &All, agent: &Agent, path: &str) -> String {
    let root = all.project.dir.to_string_lossy();
    if let Some(inside) = path.strip_prefix(root.as_ref()).and_then(|rest| rest.strip_prefix('/')) {
        return inside.to_owned();
    }
    if path.starts_with('/') || agent.working_dir.is_empty() || agent.working_dir == "." {
        return path.to_owned();
    }
    format!("{}/{path}", agent.working_dir.trim_end_matches('/'))
}

/// Characters of a member's task that a plan shows.
const SHOWN_TASK_CHARS: usize = 400;

/// A plan as REST shows it.
pub fn shown(all: &All, plan: &Plan) -> Value {
    let members: Vec<Value> = plan
        .members
        .iter()
        .map(|member| {
            let agent = record(all, member);
            let (outcome, error) = match &member.outcome {
                Outcome::Pending => ("pending", None),
                Outcome::Working => ("working", None),
                Outcome::Completed => ("completed", None),
                Outcome::Failed(error) => ("failed", Some(error)),
                Outcome::Skipped => ("skipped", None),
            };
            json!({
                "phase": member.phase, "role": member.request.role, "name": member.request.name, "qc": member.qc,
                "outcome": outcome, "error": error, "restarts": member.restarts, "lineageId": member.lineage,
                "agentId": agent.map(|agent| agent.id), "state": agent.map(|agent| agent.status),
                "task": member.request.prompt.chars().take(SHOWN_TASK_CHARS).collect::<String>(),
                "scope": member.request.scope, "provider": member.request.provider, "model": member.request.model,
                "runner": agent.map_or(&member.request.runner, |agent| &agent.runner),
            })
        })
        .collect();
    let mut body = json!({
        "id": plan.id, "teamId": plan.team_id, "createdAt": plan.created_at.to_string(),
        "phases": plan.phases(), "agents": members,
    });
    if let (Value::Object(body), Value::Object(phase)) = (&mut body, json!(plan.phase)) {
        body.extend(phase);
    }
    body
}
