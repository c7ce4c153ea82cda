//! What a person does with a plan that stands still, a phase tried again or passed over, and with a
//! recommended team before it is launched.
//!
//! **Invariant:** nobody is passed over while its process lives.

use super::phases::{self, Member, Outcome, Phase, Plan};
use super::plan::{self, Planned};
use super::put;
use crate::agents;
use crate::api::{Problem, Reply};
use crate::core::{Context, State as All};
use serde_json::json;
use std::sync::Arc;

/// What becomes of the phase that is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Deed {
    /// Those that have failed begin again.
    Retry,
    /// Those that have not completed it are passed over, and the next phase begins.
    Skip,
}

impl Deed {
    fn word(self) -> &'static str {
        match self {
            Self::Retry => "plan.retry",
            Self::Skip => "plan.skip",
        }
    }
}

/// `POST /api/plans/:id/retry` and `/skip`: 200 with the plan. `phase` is the one that the caller has seen to
/// be on, so that a plan that went on meanwhile loses nothing.
///
/// Errors: 404, 409 `phase_not_on`, `nothing_failed`, `agent_running`.
pub fn steer(all: &mut All, cx: &mut Context, id: &str, phase: usize, deed: Deed) -> Result<Reply, Problem> {
    let at = all.teams.plans.iter().position(|plan| plan.id.to_string() == id);
    let at = at
        .ok_or_else(|| Problem::not_found(format!("no plan has the id {id:?}; GET /api/plans lists them")))?;
    let mut plan = (*all.teams.plans[at]).clone();
    is_on(&plan, phase)?;
    let named = match deed {
        Deed::Retry => retry(all, cx, &mut plan, phase)?,
        Deed::Skip => skip(all, &mut plan, phase)?,
    };
    plan.phase = Phase::Working { phase };
    let id = plan.id;
    Arc::make_mut(&mut all.teams).plans[at] = Arc::new(plan);
    cx.audit(deed.word(), &json!({"planId": id, "phase": phase, "agents": named}));
    put(cx);
    phases::settle(all, cx);
    let plan = all.teams.plans.iter().find(|plan| plan.id == id);
    Ok(Reply::ok(&plan.map(|plan| phases::shown(all, plan))))
}

fn is_on(plan: &Plan, wanted: usize) -> Result<(), Problem> {
    let text = match plan.phase {
        Phase::Working { phase } | Phase::Blocked { phase, .. } if phase == wanted => return Ok(()),
        Phase::Working { phase } | Phase::Blocked { phase, .. } => {
            format!("phase {wanted} is not the one that is on, it is phase {phase}; look at the plan again")
        }
        Phase::Done => "all phases of this plan are over".to_owned(),
    };
    Err(Problem::new(409, "phase_not_on", text))
}

/// Those of a phase that have failed go on in their sessions, or are started where there is nobody to go on.
fn retry(all: &mut All, cx: &mut Context, plan: &mut Plan, phase: usize) -> Result<Vec<String>, Problem> {
    let mut named = Vec::new();
    for member in plan.members.iter_mut().filter(|member| member.phase == phase) {
        let Outcome::Failed(error) = &member.outcome else { continue };
        named.push(name(member));
        let words = format!(
            "Your task was not done ({error}), and you are to try again. Look at what you have already changed, \
             then finish the task."
        );
        let known = phases::record(all, member).map(|agent| agent.id.to_string());
        let resumed = known.map(|id| agents::resume(all, cx, &id, Some(words)));
        member.outcome = match resumed {
            None => {
                member.lineage = None;
                Outcome::Pending
            }
            Some(Ok(_)) => Outcome::Working,
            Some(Err(problem)) => Outcome::Failed(format!("it cannot be tried again: {}", problem.error)),
        };
    }
    if named.is_empty() {
        let text = format!("nobody of phase {phase} has failed; GET /api/plans tells how each fares");
        return Err(Problem::new(409, "nothing_failed", text));
    }
    Ok(named)
}

fn skip(all: &All, plan: &mut Plan, phase: usize) -> Result<Vec<String>, Problem> {
    let is_left = |member: &&mut Member| member.phase == phase && member.outcome != Outcome::Completed;
    let left: Vec<&mut Member> = plan.members.iter_mut().filter(is_left).collect();
    let works = |member: &Member| phases::record(all, member).is_some_and(|agent| agent.status.is_live());
    let working: Vec<String> =
        left.iter().filter(|member| works(member)).map(|member| name(member)).collect();
    if !working.is_empty() {
        let names = working.join(", ");
        let text = format!("{names} still at work in phase {phase}; wait, or end them (svc kill NAME) first");
        return Err(Problem::new(409, "agent_running", text));
    }
    let mut named = Vec::new();
    for member in left {
        named.push(name(member));
        member.outcome = Outcome::Skipped;
    }
    Ok(named)
}

fn name(member: &Member) -> String {
    member.request.name.clone().unwrap_or_else(|| member.request.role.clone())
}

/// `PATCH /api/recommended-team`: other agents instead of the recommended ones: 200 with the recommendation.
///
/// Errors: 404 without a recommendation, 409 `already_launched`.
pub fn revise(
    all: &mut All,
    cx: &mut Context,
    agents: Vec<Planned>,
    project_dir: Option<String>,
) -> Result<Reply, Problem> {
    let Some(known) = all.teams.planning.recommendation.clone() else {
        return Err(Problem::not_found("no planner has recommended a team yet; start one with svc plan"));
    };
    phases::not_under_way(&all.teams, &known)?;
    cx.audit("plan.revise", &json!({"planner": known.planner_name, "agents": agents.len()}));
    let project_dir = project_dir.or_else(|| known.project_dir.clone());
    let revised = plan::Recommendation { agents, project_dir, ..(*known).clone() };
    Arc::make_mut(&mut all.teams).planning.recommendation = Some(Arc::new(revised));
    put(cx);
    Ok(Reply::ok(&plan::shown(&all.teams)))
}
