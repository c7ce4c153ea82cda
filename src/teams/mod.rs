//! Teams: saved configurations of agents and the agents that belong together; the planner's recommendation,
//! and the phases in which a planned team works.
//!
//! **Invariant:** there always is a default team; it takes the agents of a team that is deleted.
//! **Invariant:** names of teams are unique without regard to case.
//! **Invariant:** a planned team is registered, by lineage, before its first process is ordered; each
//! member is started at most once, and restarted at most once, but for a person's word (`steer.rs`).

pub mod api;
pub mod phases;
pub mod plan;
mod qc;
pub mod steer;
#[cfg(test)]
mod steer_tests;
mod store;
#[cfg(test)]
mod tests;
pub mod worker;
pub mod worker_api;

pub use plan::{Found as Report, Look as Order, found as report, heard};
pub use store::{STORED_VERSION, Stored, restore};

use crate::agents::rights::{may_act, refusal};
use crate::agents::{self, Agent, Maker, SpawnRequest};
use crate::api::{Problem, Reply, Validator};
use crate::core::ids::{AgentId, LineageId, TeamId};
use crate::core::notice::{Named, Notice};
use crate::core::time::{Time, rfc3339};
use crate::core::{Actor, CallId, Context, Document, Durability, Effect, Moment, State as All};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::names;
use svc_base::sorted::Gather;

/// The id of the default team, in every project.
pub const DEFAULT_TEAM: TeamId = TeamId(1);
/// The team id under which agents without a team are shown.
pub const UNASSIGNED: &str = "__unassigned__";
/// Teams at most.
pub const MAX_TEAMS: usize = 200;

/// A team.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// Never changes.
    pub id: TeamId,
    /// Unique without regard to case.
    pub name: String,
    /// Where its agents work by default, relative to the project.
    #[serde(default)]
    pub working_dir: String,
    /// The saved configurations, each with a name.
    pub agents: Vec<SpawnRequest>,
    /// The toy it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toy_id: Option<String>,
    /// The agent that made it, over all its lives; `None` for a person. What a person made no agent changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<LineageId>,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub created_at: Time,
    /// When it was saved or renamed last.
    #[serde(with = "rfc3339")]
    pub updated_at: Time,
}

/// The teams, the recommendation, the plans.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct State {
    teams: BTreeMap<TeamId, Arc<Team>>,
    planning: plan::Planning,
    plans: Vec<Arc<phases::Plan>>,
    /// Live agents that are not quality control, when last counted.
    builders: usize,
}

impl Default for State {
    fn default() -> Self {
        let team = Team {
            id: DEFAULT_TEAM,
            name: "default".into(),
            working_dir: String::new(),
            agents: Vec::new(),
            toy_id: None,
            made_by: None,
            created_at: Time(0),
            updated_at: Time(0),
        };
        let teams: BTreeMap<_, _> = [(DEFAULT_TEAM, Arc::new(team))].into_iter().gather();
        Self { teams, planning: plan::Planning::default(), plans: Vec::new(), builders: 0 }
    }
}

impl Team {
    /// Whether it is the team that every project has.
    pub fn is_default(&self) -> bool {
        self.id == DEFAULT_TEAM
    }
}

impl State {
    /// All teams, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Team>> {
        self.teams.values()
    }

    /// The team with this id.
    pub fn get(&self, id: TeamId) -> Option<&Arc<Team>> {
        self.teams.get(&id)
    }

    /// Finds a team by id or exact name.
    ///
    /// Errors: 404.
    pub fn find(&self, target: &str) -> Result<&Arc<Team>, Problem> {
        self.lookup(target).ok_or_else(|| {
            Problem::not_found(format!("no team has the id or name {target:?}; GET /api/teams lists them"))
        })
    }

    /// The id of the team that an agent is to belong to, by id or name; `None` for [`UNASSIGNED`].
    pub fn member_of(&self, target: &str, validator: &mut Validator) -> Option<String> {
        if target == UNASSIGNED {
            return None;
        }
        let found = self.lookup(target).map(|team| team.id.to_string());
        validator.check(found.is_some(), "teamId", || {
            format!("teamId {target:?} is the id or name of no team; GET /api/teams lists them")
        });
        found
    }

    /// What an agent of this role is told beside its task.
    pub fn instructions(&self, role: &str) -> &'static str {
        if role == plan::PLANNER { plan::INSTRUCTIONS } else { "" }
    }

    fn lookup(&self, target: &str) -> Option<&Arc<Team>> {
        let by_id = target.parse::<TeamId>().ok().and_then(|id| self.teams.get(&id));
        by_id.or_else(|| self.iter().find(|team| team.name == target))
    }

    /// The team of this name, in whatever case.
    fn named(&self, name: &str) -> Option<&Arc<Team>> {
        let wanted = name.to_lowercase();
        self.iter().find(|team| team.name.to_lowercase() == wanted)
    }

    /// What the last planner recommended.
    pub fn planning(&self) -> &plan::Planning {
        &self.planning
    }

    /// Planned teams, oldest first.
    pub fn plans(&self) -> &[Arc<phases::Plan>] {
        &self.plans
    }
}

/// A wish about teams.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Save the current configuration under a name.
    Save {
        name: String,
        /// Where its agents work by default.
        working_dir: Option<String>,
        /// Ids or names of the agents to be saved; all that live when absent.
        agents: Option<Vec<String>>,
        /// On which machine those of these names are started: a runner, a label, or this one.
        runners: BTreeMap<String, String>,
    },
    /// Start what a team has saved.
    Load {
        /// Id or name.
        target: String,
        /// What looking at the folders of its configurations came to, by the configuration's name.
        prepared: BTreeMap<String, Result<Option<String>, String>>,
    },
    /// Give it another name.
    Rename {
        /// Id or name.
        target: String,
        name: String,
    },
    /// Remove it; its agents go to the default team.
    Delete(String),
    /// Start a recommended team.
    Launch(Box<phases::Launch>),
    /// Try a phase again, or pass it over.
    Steer {
        /// The plan's id.
        plan: String,
        phase: usize,
        deed: steer::Deed,
    },
    /// Recommend other agents.
    Revise { agents: Vec<plan::Planned>, project_dir: Option<String> },
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Save { name, working_dir, agents, runners } => {
            save(all, cx, &name, working_dir, agents.as_deref(), &runners)
        }
        Command::Load { target, prepared } => load(all, cx, &target, &prepared),
        Command::Rename { target, name } => rename(all, cx, &target, &name),
        Command::Delete(target) => delete(all, cx, &target),
        Command::Launch(launch) => phases::launch(all, cx, *launch),
        Command::Steer { plan, phase, deed } => steer::steer(all, cx, &plan, phase, deed),
        Command::Revise { agents, project_dir } => steer::revise(all, cx, agents, project_dir),
    });
    cx.answer(call, result);
}

/// Something has happened to an agent: phases may move on.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::TurnEnded(id) => plan::look_for_one(all, cx, id),
        Moment::Ended(id) => {
            plan::look_for_one(all, cx, id);
            qc::count(all, cx);
            phases::settle(all, cx);
        }
        Moment::Spawned(_) | Moment::Removed(..) | Moment::Resumed { .. } => {
            qc::count(all, cx);
            phases::settle(all, cx);
        }
        Moment::Started(_) | Moment::Rotated { .. } | Moment::Decided { .. } => phases::settle(all, cx),
        Moment::CaughtUp(_)
        | Moment::PutAway(_)
        | Moment::Measured
        | Moment::OthersTold
        | Moment::ModelAnswered(..)
        | Moment::AccountRemoved { .. }
        | Moment::TeamDeleted { .. }
        | Moment::SettingsChanged => {}
    }
}

/// Makes a team without configurations.
///
/// Errors: 400 for a name in use, 409 `too_many_teams`.
pub fn create(all: &mut All, cx: &mut Context, name: &str, toy: Option<&str>) -> Result<TeamId, Problem> {
    free_name(all, name, None)?;
    insert(all, cx, name.to_owned(), toy)
}

/// Makes a team without configurations, whose agents work in a folder of the project. A name in use gets a
/// number.
///
/// Errors: 409 `too_many_teams`.
pub fn create_in(all: &mut All, cx: &mut Context, name: &str, folder: &str) -> Result<TeamId, Problem> {
    let name = fresh_name(all, name);
    let id = insert(all, cx, name, None)?;
    if let Some(team) = Arc::make_mut(&mut all.teams).teams.get_mut(&id) {
        folder.clone_into(&mut Arc::make_mut(team).working_dir);
    }
    Ok(id)
}

fn insert(all: &mut All, cx: &mut Context, name: String, toy: Option<&str>) -> Result<TeamId, Problem> {
    if all.teams.teams.len() >= MAX_TEAMS {
        let text = format!("there are {MAX_TEAMS} teams already; delete one first");
        return Err(Problem::new(409, "too_many_teams", text));
    }
    let id = TeamId(cx.fresh_id(|id| all.teams.teams.contains_key(&TeamId(id))));
    let team = Team {
        id,
        name,
        working_dir: String::new(),
        agents: Vec::new(),
        toy_id: toy.map(ToOwned::to_owned),
        made_by: Maker::of(all, &cx.actor)?.lineage,
        created_at: cx.now,
        updated_at: cx.now,
    };
    cx.notice(Notice::TeamCreated { team: named(&team) });
    cx.audit("team.create", &json!({"teamId": id, "name": team.name}));
    Arc::make_mut(&mut all.teams).teams.insert(id, Arc::new(team));
    put(cx);
    Ok(id)
}

/// A name for a new team that nobody has: `wanted`, or `wanted` with a number.
pub fn fresh_name(all: &All, wanted: &str) -> String {
    names::unused(wanted, ' ', |name| all.teams.named(name).is_some())
}

fn free_name(all: &All, name: &str, own: Option<TeamId>) -> Result<(), Problem> {
    if all.teams.named(name).is_none_or(|team| Some(team.id) == own) {
        return Ok(());
    }
    let message =
        format!("name {name:?} is in use by another team (names are compared without case), choose another");
    Err(Problem::invalid("name", message))
}

/// The configuration of an agent, to start another like it.
pub fn configuration(agent: &Agent) -> SpawnRequest {
    SpawnRequest {
        role: agent.role.clone(),
        name: Some(agent.name.clone()),
        scope: agent.scope.to_vec(),
        provider: Some(agent.provider.clone()),
        model: agent.model.clone(),
        working_dir: agent.working_dir.clone(),
        prompt: agent.prompt.to_string(),
        integrations: agent.integrations.to_vec(),
        skills: agent.skills.to_vec(),
        permission: agent.permission,
        effort: agent.effort,
        isolation: agent.isolation,
        command: agent.command.to_vec(),
        runner: agent.runner.clone(),
        ..SpawnRequest::default()
    }
}

/// Notes on which machine each of these names is to be started.
///
/// Errors: 400 for a name that is not saved, or a machine that cannot be; 403 `agent_may_not`.
fn place(
    all: &All,
    cx: &Context,
    configurations: &mut [SpawnRequest],
    runners: &BTreeMap<String, String>,
) -> Result<(), Problem> {
    let mut validator = Validator::default();
    for (name, word) in runners {
        let own = configurations.iter_mut().find(|saved| saved.name.as_ref() == Some(name));
        validator.check(own.is_some(), "runners", || {
            format!("runners names {name:?}, which is no agent that is saved")
        });
        let Some(own) = own else { continue };
        own.runner = Some(word.clone()).filter(|word| word != agents::HERE);
        if own.runner.is_some() {
            own.isolation = agents::Isolation::Worktree;
            agents::check_sender(cx, own)?;
            agents::check_pattern(all, &Maker::of(all, &cx.actor)?, &mut own.clone())?;
        }
    }
    validator.finish()
}

/// Saves the living agents, or the named ones, as a team. Agents without a team join it.
fn save(
    all: &mut All,
    cx: &mut Context,
    name: &str,
    working_dir: Option<String>,
    chosen: Option<&[String]>,
    runners: &BTreeMap<String, String>,
) -> Result<Reply, Problem> {
    let saved: Vec<Arc<Agent>> = match chosen {
        None => all.agents.live().cloned().collect(),
        Some(targets) => {
            let found = targets.iter().map(|target| all.agents.find(target).cloned());
            found.collect::<Result<_, _>>()?
        }
    };
    for agent in &saved {
        // What joins a team is told to it, and gets its key.
        may_act(all, &cx.actor, agent, "save")?;
    }
    if let Some(team) = all.teams.named(name) {
        check_change(all, &cx.actor, team, "save into")?;
    }
    let mut configurations: Vec<SpawnRequest> = saved.iter().map(|agent| configuration(agent)).collect();
    place(all, cx, &mut configurations, runners)?;
    let known = all.teams.named(name).map(|team| team.id);
    let id = match known {
        Some(id) => id,
        None => insert(all, cx, name.to_owned(), None)?,
    };
    let team = Arc::make_mut(&mut all.teams).teams.get_mut(&id).map(Arc::make_mut);
    let Some(team) = team else { return Err(Problem::not_found("the team is gone")) };
    // Saving while nobody works would wipe what was saved before; a list that is empty on purpose does.
    if !saved.is_empty() || chosen.is_some() {
        team.agents = configurations;
    }
    if let Some(dir) = working_dir {
        team.working_dir = dir;
    }
    team.updated_at = cx.now;
    let free: Vec<AgentId> = saved.iter().filter(|a| a.team_id.is_none()).map(|a| a.id).collect();
    if known.is_some() {
        cx.notice(Notice::TeamUpdated { team: named(team) });
        cx.audit("team.save", &json!({"teamId": id, "name": team.name}));
    }
    put(cx);
    agents::join_team(all, cx, &free, &id.to_string());
    let status = if known.is_some() { 200 } else { 201 };
    let reply = Reply::json(status, &shown(all, id));
    Ok(if known.is_some() { reply } else { reply.with_header("Location", format!("/api/teams/{id}")) })
}

/// Starts the configurations of which no agent of that name is alive.
fn load(
    all: &mut All,
    cx: &mut Context,
    target: &str,
    prepared: &BTreeMap<String, Result<Option<String>, String>>,
) -> Result<Reply, Problem> {
    let team = Arc::clone(all.teams.find(target)?);
    cx.audit("team.load", &json!({"teamId": team.id, "name": team.name}));
    let (mut started, mut failed) = (Vec::new(), Vec::new());
    for saved in &team.agents {
        let name = saved.name.clone().unwrap_or_default();
        if all.agents.live().any(|agent| agent.name == name) {
            continue;
        }
        let outcome = match prepared.get(&name) {
            Some(Err(fault)) => Err(fault.clone()),
            Some(Ok(worktree)) => start(all, cx, &team, saved, worktree.clone()),
            None => start(all, cx, &team, saved, None),
        };
        match outcome {
            Ok(id) => started.push(id),
            Err(error) => failed.push(json!({"role": saved.role, "name": name, "error": error})),
        }
    }
    let records: Vec<Value> =
        started.iter().filter_map(|id| all.agents.get(*id)).map(|agent| json!(agent.rest())).collect();
    Ok(Reply::ok(&json!({"team": shown(all, team.id), "agents": records, "failed": failed})))
}

fn start(
    all: &mut All,
    cx: &mut Context,
    team: &Team,
    saved: &SpawnRequest,
    worktree: Option<String>,
) -> Result<AgentId, String> {
    let mut request = SpawnRequest { team_id: Some(team.id.to_string()), worktree, ..saved.clone() };
    if request.working_dir.is_empty() {
        request.working_dir.clone_from(&team.working_dir);
    }
    let may = Maker::of(all, &cx.actor).and_then(|maker| {
        agents::check_sender(cx, &request)?;
        agents::check_pattern(all, &maker, &mut request)?;
        agents::check_share(all, maker.lineage.is_some()).map(|()| maker)
    });
    let maker = may.map_err(|problem| problem.error)?;
    // An ended agent keeps its record; the team's next one takes its name.
    if let Some(name) = &request.name {
        agents::give_up_name(all, name);
    }
    agents::spawn_agent(all, cx, &maker, request).map_err(|problem| problem.error)
}

/// Whether somebody may change a team: a person, the agent that made it, or one that this has started.
///
/// Errors: 403 `agent_may_not`.
fn check_change(all: &All, actor: &Actor, team: &Team, deed: &str) -> Result<(), Problem> {
    let maker = Maker { lineage: team.made_by, ..Maker::default() };
    match actor.agent() {
        Some(caller) if !maker.is_or_serves(all, actor) => {
            Err(refusal(caller, &format!("{deed} team {:?}, which it has not made", team.name)))
        }
        _ => Ok(()),
    }
}

fn rename(all: &mut All, cx: &mut Context, target: &str, name: &str) -> Result<Reply, Problem> {
    let team = all.teams.find(target)?;
    check_change(all, &cx.actor, team, "rename")?;
    let id = team.id;
    free_name(all, name, Some(id))?;
    if let Some(team) = Arc::make_mut(&mut all.teams).teams.get_mut(&id) {
        let team = Arc::make_mut(team);
        name.clone_into(&mut team.name);
        team.updated_at = cx.now;
        cx.notice(Notice::TeamUpdated { team: named(team) });
    }
    cx.audit("team.rename", &json!({"teamId": id, "name": name}));
    put(cx);
    Ok(Reply::ok(&shown(all, id)))
}

fn delete(all: &mut All, cx: &mut Context, target: &str) -> Result<Reply, Problem> {
    let team = Arc::clone(all.teams.find(target)?);
    check_change(all, &cx.actor, &team, "delete")?;
    if team.id == DEFAULT_TEAM {
        let text = format!("team {:?} is the default team, which cannot be deleted", team.name);
        return Err(Problem::new(409, "default_team", text));
    }
    let (from, to) = (team.id.to_string(), DEFAULT_TEAM.to_string());
    let teams = Arc::make_mut(&mut all.teams);
    teams.teams.remove(&team.id);
    for plan in &mut teams.plans {
        phases::change_team(plan, &from, &to);
    }
    agents::change_team(all, cx, &from, &to);
    cx.moment(Moment::TeamDeleted { from: team.id, to: DEFAULT_TEAM });
    let name = team.name.clone();
    cx.notice(Notice::TeamDeleted { team_id: team.id, name, moved_to: DEFAULT_TEAM });
    cx.audit("team.delete", &json!({"teamId": team.id, "name": team.name}));
    put(cx);
    Ok(Reply::ok(&json!({"ok": true, "id": team.id, "movedTo": DEFAULT_TEAM})))
}

/// The record as REST shows it.
pub fn shown(all: &All, id: TeamId) -> Value {
    let Some(team) = all.teams.get(id) else { return Value::Null };
    let own = id.to_string();
    let members: Vec<AgentId> = all
        .agents
        .live()
        .filter(|agent| agent.team_id.as_deref() == Some(own.as_str()))
        .map(|agent| agent.id)
        .collect();
    let mut record = json!(**team);
    record["isDefault"] = json!(id == DEFAULT_TEAM);
    record["members"] = json!(members);
    record
}

/// A team as clients are told of it.
fn named(team: &Team) -> Named {
    Named { id: team.id, name: team.name.clone() }
}

/// Has the teams written; whoever waits is answered when they are.
fn put(cx: &mut Context) {
    cx.push(Effect::Put(Document::Teams, Durability::BeforeReply));
}
