//! `/api/teams`, `/api/recommended-team`, `/api/plans`.

use super::plan::{self, check_folder};
use super::steer::Deed;
use super::{Command, phases, shown, worker_api};
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc_base::sorted::Gather;

/// Agents named in one call.
const MAX_CHOSEN: usize = 1_000;
/// Bytes of a launch's body: prompts may be long.
const LAUNCH_BODY_BYTES: usize = 4 << 20;

/// The routes of teams and plans.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = team_routes();
    routes.extend(plan_routes());
    routes
}

fn team_routes() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::{Read, Work, Write};
    vec![
        Route::new(Method::Get, "/api/teams", "Saved teams", Read(list)),
        Route::new(
            Method::Post,
            "/api/teams",
            "Save the current configuration as a team",
            Write(Anyone, save),
        )
        .body(|| schema_of(team))
        .replies(&[(201, "the new team"), (200, "a team of that name was there: it is saved again")]),
        Route::new(Method::Get, "/api/teams/:name", "One team", Read(get))
            .replies(&[(200, "the record"), (404, "no such team")]),
        Route::new(Method::Patch, "/api/teams/:name", "Rename a team", Write(Anyone, rename))
            .body(|| schema_of(name_field)),
        Route::new(
            Method::Delete,
            "/api/teams/:name",
            "Delete a team; its agents go to the default team",
            Write(Anyone, |ask| Ok(Command::Delete(target(ask)).into())),
        )
        .replies(&[(200, "ok, movedTo"), (404, "no such team"), (409, "it is the default team")]),
        Route::new(
            Method::Post,
            "/api/teams/:name/load",
            "Start a team's saved agents that are not alive",
            Work(Anyone, worker_api::load),
        )
        .replies(&[(200, "team, agents, failed"), (404, "no such team")]),
    ]
}

fn plan_routes() -> Vec<Route<Handler>> {
    use Access::OperatorOnly;
    use Handler::{Read, Work, Write};
    vec![
        Route::new(
            Method::Get,
            "/api/recommended-team",
            "What the last planner recommends",
            Read(recommended),
        ),
        Route::new(
            Method::Post,
            "/api/recommended-team/launch",
            "Start the recommended team, phase by phase",
            Work(Access::Anyone, worker_api::launch),
        )
        .body(launch_schema)
        .body_limit(LAUNCH_BODY_BYTES)
        .replies(&[
            (200, "launched, phase2Pending, agents, failed"),
            (404, "nothing was recommended yet"),
            (409, "it was launched already"),
        ]),
        Route::new(
            Method::Patch,
            "/api/recommended-team",
            "Recommend other agents, before the launch",
            Write(OperatorOnly, revise),
        )
        .body(revision_schema)
        .body_limit(LAUNCH_BODY_BYTES)
        .replies(&[
            (200, "the recommendation"),
            (404, "nothing was recommended yet"),
            (409, "it was launched already"),
        ]),
        Route::new(Method::Get, "/api/plans", "Launched teams and their phases", Read(plans)),
        Route::new(
            Method::Post,
            "/api/plans/:id/retry",
            "Try again with those of the phase that have failed",
            Write(OperatorOnly, |ask| steer(ask, Deed::Retry)),
        )
        .body(|| schema_of(phase))
        .replies(&[(200, "the plan"), (404, "no such plan"), (409, "phase_not_on, nothing_failed")]),
        Route::new(
            Method::Post,
            "/api/plans/:id/skip",
            "Pass over what is left of the phase; the next one begins",
            Write(OperatorOnly, |ask| steer(ask, Deed::Skip)),
        )
        .body(|| schema_of(phase))
        .replies(&[(200, "the plan"), (404, "no such plan"), (409, "phase_not_on, agent_running")]),
    ]
}

/// The `:name` of the path: an id or an exact name.
pub(super) fn target(ask: &Ask) -> String {
    ask.params.get("name").to_owned()
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let teams: Vec<Value> = ask.state.teams.iter().map(|team| shown(ask.state, team.id)).collect();
    Ok(Reply::ok(&json!({"teams": teams, "defaultTeamId": super::DEFAULT_TEAM})))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    let id = ask.state.teams.find(&target(ask))?.id;
    Ok(Reply::ok(&shown(ask.state, id)))
}

fn recommended(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&plan::shown(&ask.state.teams)))
}

fn plans(ask: &Ask) -> Result<Reply, Problem> {
    let plans: Vec<Value> =
        ask.state.teams.plans().iter().rev().map(|plan| phases::shown(ask.state, plan)).collect();
    Ok(Reply::ok(&json!({"plans": plans})))
}

fn save(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(ask.request.read(team)?.into())
}

fn team(fields: &mut Fields) -> Command {
    let name = fields.title("name");
    let working_dir = fields.string("workingDir").map(ToOwned::to_owned);
    if let Some(dir) = &working_dir {
        check_folder("workingDir", dir, &mut fields.validator);
    }
    let agents = fields.strings("agents").map(|list| list.into_iter().map(ToOwned::to_owned).collect());
    let count = agents.as_ref().map_or(0, Vec::<String>::len);
    fields.tell("agents", || json!({"maxItems": MAX_CHOSEN}));
    fields.validator.check(count <= MAX_CHOSEN, "agents", || {
        format!("agents must be at most {MAX_CHOSEN} ids or names, there are {count}")
    });
    Command::Save { name, working_dir, agents, runners: runners(fields) }
}

/// Reads which machine each agent of a name is to be started on.
fn runners(fields: &mut Fields) -> BTreeMap<String, String> {
    fields.tell(
        "runners",
        || json!({"type": "object", "maxProperties": MAX_CHOSEN, "additionalProperties": {"type": "string"}}),
    );
    let Some(value) = fields.value("runners") else { return BTreeMap::new() };
    let entry = |(name, word): (&String, &Value)| Some((name.clone(), word.as_str()?.to_owned()));
    let read = value.as_object().and_then(|object| object.iter().map(entry).collect::<Option<Vec<_>>>());
    let fits = read.as_ref().is_some_and(|all| all.len() <= MAX_CHOSEN);
    fields.validator.check(fits, "runners", || {
        format!("runners must be an object: the names of at most {MAX_CHOSEN} agents, and a runner, label:L or here of each")
    });
    read.unwrap_or_default().into_iter().gather()
}

fn rename(ask: &Ask) -> Result<crate::core::Command, Problem> {
    Ok(Command::Rename { target: target(ask), name: ask.request.read(name_field)? }.into())
}

fn name_field(fields: &mut Fields) -> String {
    fields.title("name")
}

fn launch_schema() -> Value {
    let mut schema = revision_schema();
    schema["properties"]["teamId"] = json!({"type": "string"});
    schema
}

fn revision_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "agents": {"type": "array", "items": {"type": "object"}, "maxItems": plan::MAX_PLANNED},
            "projectDir": {"type": "string"},
        },
    })
}

fn revise(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let (agents, project_dir) = plan::parse(&ask.request.object()?, plan::From::Caller)?;
    Ok(Command::Revise { agents, project_dir }.into())
}

fn phase(fields: &mut Fields) -> u64 {
    fields.tell_required("phase");
    let phase = fields.integer("phase", 1, plan::MAX_PHASE);
    fields.validator.check(phase.is_some(), "phase", || {
        format!("phase is required: the one that is on, from 1 to {}", plan::MAX_PHASE)
    });
    phase.unwrap_or(1)
}

fn steer(ask: &Ask, deed: Deed) -> Result<crate::core::Command, Problem> {
    let phase = usize::try_from(ask.request.read(phase)?).unwrap_or(usize::MAX);
    Ok(Command::Steer { plan: ask.target(), phase, deed }.into())
}

/// Reads `POST /api/recommended-team/launch`. The folders are still to be looked at.
pub fn parse_launch(ask: &Ask) -> Result<phases::Launch, Problem> {
    let body = ask.request.object()?;
    let mut fields = Fields::new(&body);
    let team_id = fields.string("teamId").map(ToOwned::to_owned).filter(|team| !team.is_empty());
    fields.validator.finish()?;
    if !body.contains_key("agents") {
        return Ok(phases::Launch { team_id, ..phases::Launch::default() });
    }
    let (agents, project_dir) = plan::parse(&body, plan::From::Caller)?;
    Ok(phases::Launch { agents: Some(agents), project_dir, team_id })
}
