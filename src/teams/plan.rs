//! The planner's recommendation: what it is asked for, how it is found, and how it is read.
//!
//! A planner writes `.svc/recommended-team.json` or ends with that JSON in its answer. The answer is heard;
//! the file is looked at by a worker each time a planner's turn ends.

use super::{State, put};
use crate::agents;
use crate::api::{FieldError, Fields, Problem, Validator};
use crate::core::Notice;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::{Time, rfc3339};
use crate::core::{Context, Effect, State as All};
use crate::providers::Activity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use svc_base::sorted;

/// Where a planner writes its recommendation, below the project.
pub const FILE: &str = ".svc/recommended-team.json";
/// A larger file is refused.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Agents of one recommendation.
pub const MAX_PLANNED: usize = 50;
/// The highest number of a phase.
pub const MAX_PHASE: u64 = 20;
/// The role whose recommendations are read.
pub const PLANNER: &str = "planner";

/// What every planner is told in its first message.
pub const INSTRUCTIONS: &str = "
You plan; others build. Look at the project, split the task into parts that can be done side by side by
separate agents, and write the team that you recommend to the file .svc/recommended-team.json in the
project's root:

{\"agents\": [{\"role\": \"backend\", \"phase\": 1, \"scope\": [\"src/api/**\"], \"prompt\": \"What to do\"}]}

Each agent has a role (letters, digits, - and _), a phase (1 works first; a later phase begins when the one
before is done), a scope (globs of the files it owns; scopes must not overlap) and a prompt that stands on
its own, for the agent does not see yours. Optional are name, provider, model and workingDir (a folder
inside the project), and beside agents a projectDir, the folder of all of them. Do not write the code
yourself.
";

/// A planned agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// When it works: 1 first.
    pub phase: u64,
    #[serde(flatten)]
    pub agent: agents::SpawnRequest,
}

/// A recommended team.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// Its agents, in the planner's order.
    pub agents: Vec<Planned>,
    /// The folder of all that name none, relative to the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_dir: Option<String>,
    /// `file` or `result`.
    pub source: String,
    pub planner: LineageId,
    pub planner_name: String,
    /// When it was read.
    #[serde(with = "rfc3339")]
    pub received_at: Time,
}

/// What is known of recommendations.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Planning {
    /// The last good one.
    pub(super) recommendation: Option<Arc<Recommendation>>,
    /// The digest of the file's text that was looked at last.
    pub(super) seen: Option<String>,
    /// What is wrong with the last one, if it was not good.
    pub(super) problem: Option<String>,
}

impl Planning {
    /// The last good recommendation.
    pub fn recommendation(&self) -> Option<&Arc<Recommendation>> {
        self.recommendation.as_ref()
    }

    /// What is wrong with the last one, if it was not good.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// An order to the worker: look at the file on behalf of this planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(pub AgentId);

/// What the worker found.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Found {
    /// Whose turn had ended.
    pub planner: AgentId,
    /// Text and digest of the file, or why it cannot be read; `None` when there is no file.
    pub file: Option<Result<(String, String), String>>,
}

/// Who says which agents there are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A planner, whose words are a model's: it has no say in permissions, or in what is run.
    Planner,
    /// The caller of the launch, with every field that `POST /api/agents` has.
    Caller,
}

/// The fields of an agent that a planner may set.
const PLANNED_FIELDS: [&str; 8] =
    ["role", "phase", "scope", "prompt", "name", "provider", "model", "workingDir"];

/// Reads a recommendation.
///
/// Errors: 400 with every fault, each named by its place.
pub fn parse(body: &Map<String, Value>, from: From) -> Result<(Vec<Planned>, Option<String>), Problem> {
    let mut errors = Vec::new();
    let mut planned = Vec::new();
    let list = body.get("agents").and_then(Value::as_array);
    let count = list.map_or(0, Vec::len);
    if !(1..=MAX_PLANNED).contains(&count) {
        let message = format!("agents must be a list of 1 to {MAX_PLANNED} agents");
        errors.push(FieldError { field: "agents".into(), message });
    }
    for (at, value) in list.into_iter().flatten().take(MAX_PLANNED).enumerate() {
        match planned_agent(value, from) {
            Ok(agent) => planned.push(agent),
            Err(problem) => errors.extend(problem.placed(&format!("agents[{at}]"))),
        }
    }
    let mut fields = Fields::new(body);
    let project_dir = fields.string("projectDir").map(ToOwned::to_owned).filter(|dir| !dir.is_empty());
    if let Some(dir) = &project_dir {
        check_folder("projectDir", dir, &mut fields.validator);
    }
    if let Err(problem) = fields.validator.finish() {
        errors.extend(problem.errors);
    }
    errors.extend(same_names(&planned));
    if errors.is_empty() { Ok((planned, project_dir)) } else { Err(Problem::validation(errors)) }
}

fn planned_agent(value: &Value, from: From) -> Result<Planned, Problem> {
    let mut object = value.as_object().cloned().unwrap_or_default();
    if from == From::Planner {
        object.retain(|field, _| PLANNED_FIELDS.contains(&field.as_str()));
    }
    let mut fields = Fields::new(&object);
    fields.validator.check(value.is_object(), "", || "an agent must be an object".to_owned());
    let phase = fields.integer("phase", 1, MAX_PHASE).unwrap_or(1);
    let isolated = fields.value("isolation").is_some_and(|value| value != "shared");
    let isolated = isolated && !agents::api::names_runner(&fields);
    fields.validator.check(!isolated, "isolation", || {
        "isolation must be shared: the agents of a plan see each other's work, but for those that name a runner"
            .to_owned()
    });
    if let Some(dir) = fields.string("workingDir") {
        check_folder("workingDir", dir, &mut fields.validator);
    }
    let agent = agents::api::spawn_fields(fields)?;
    Ok(Planned { phase, agent })
}

fn same_names(planned: &[Planned]) -> Vec<FieldError> {
    let mut names: Vec<&str> = planned.iter().filter_map(|planned| planned.agent.name.as_deref()).collect();
    sorted::up(&mut names);
    let twice = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    twice
        .map(|name| FieldError {
            field: "agents".into(),
            message: format!("agents: the name {name:?} is given to two agents"),
        })
        .collect()
}

/// The JSON object with `agents` inside of words: the whole text, a fenced block, or from a brace on.
pub fn within(text: &str) -> Option<Map<String, Value>> {
    let begins = text.match_indices('{').map(|(at, _)| at);
    for at in begins.take(MAX_TRIES) {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        if let Some(Ok(Value::Object(object))) = values.next()
            && object.get("agents").is_some_and(Value::is_array)
        {
            return Some(object);
        }
    }
    None
}

/// Braces of an answer at which a recommendation is looked for.
const MAX_TRIES: usize = 100;

/// A planner's turn or life is over: have the file looked at.
pub fn look_for_one(all: &All, cx: &mut Context, id: AgentId) {
    if all.agents.get(id).is_some_and(|agent| agent.role == PLANNER) {
        cx.push(Effect::Teams(Look(id)));
    }
}

/// Listens to planners: an answer may hold a recommendation.
pub fn heard(all: &mut All, cx: &mut Context, id: AgentId, activities: &[Activity]) {
    if all.agents.get(id).is_none_or(|agent| agent.role != PLANNER) {
        return;
    }
    for activity in activities {
        let Activity::TurnEnded(end) = activity else { continue };
        if let Some(object) = within(&end.text).filter(|_| !end.is_error) {
            take_in(all, cx, id, "result", &object);
        }
    }
}

/// The worker has looked at the file.
pub fn found(all: &mut All, cx: &mut Context, found: Found) {
    let Some(file) = found.file else { return };
    let (text, digest) = match file {
        Ok(file) => file,
        Err(error) => return refuse(all, cx, format!("{FILE}: {error}")),
    };
    // A file that was there before this planner's turn is an earlier planner's.
    if all.teams.planning.seen.as_deref() == Some(digest.as_str()) {
        return;
    }
    Arc::make_mut(&mut all.teams).planning.seen = Some(digest);
    match serde_json::from_slice::<Value>(text.as_bytes()) {
        Ok(Value::Object(object)) => take_in(all, cx, found.planner, "file", &object),
        Ok(_) => refuse(all, cx, format!("{FILE}: is not a JSON object")),
        Err(error) => refuse(all, cx, format!("{FILE}: is not valid JSON: {error}")),
    }
}

fn take_in(all: &mut All, cx: &mut Context, id: AgentId, source: &str, object: &Map<String, Value>) {
    let Ok(planner) = all.agents.find(&id.to_string()).cloned() else { return };
    let (planned, project_dir) = match parse(object, From::Planner) {
        Ok(parsed) => parsed,
        Err(problem) => return refuse(all, cx, format!("the recommendation of {}: {problem}", planner.name)),
    };
    let count = planned.len();
    let recommendation = Recommendation {
        agents: planned,
        project_dir,
        source: source.to_owned(),
        planner: planner.lineage_id,
        planner_name: planner.name.clone(),
        received_at: cx.now,
    };
    let planning = &mut Arc::make_mut(&mut all.teams).planning;
    planning.recommendation = Some(Arc::new(recommendation));
    planning.problem = None;
    let agent_name = planner.name.clone();
    cx.notice(Notice::TeamRecommended { agent_id: id, agent_name, agents: count });
    put(cx);
}

fn refuse(all: &mut All, cx: &mut Context, problem: String) {
    cx.push(Effect::Warn(problem.clone()));
    Arc::make_mut(&mut all.teams).planning.problem = Some(problem);
    put(cx);
}

/// `GET /api/recommended-team`.
pub fn shown(teams: &State) -> Value {
    let planning = teams.planning();
    let Some(recommendation) = planning.recommendation() else {
        return json!({"exists": false, "agents": [], "problem": planning.problem()});
    };
    let mut body = json!(**recommendation);
    body["exists"] = json!(true);
    body["problem"] = json!(planning.problem());
    let launched = teams.plans().iter().rev().find(|plan| plan.is_of(recommendation));
    body["launched"] = json!(launched.is_some());
    body["planId"] = json!(launched.map(|plan| plan.id));
    body
}

/// Checks the folders that a plan names: each must stay inside the project.
pub fn check_folder(field: &str, dir: &str, validator: &mut Validator) {
    let is_inside = !dir.starts_with('/') && !dir.contains('\0') && dir.split('/').all(|part| part != "..");
    validator.check(is_inside, field, || {
        format!("{field} {dir:?} must be a folder inside the project, relative, without ..")
    });
}
