//! Starting agents: checks against the registry, and the order to start a process.

use super::queue::{self, Priority};
use super::reason::Reason;
use super::record::{Agent, Isolation, Phase, Status, Succession};
use super::worker::Far;
use super::{
    LogEntry, Maker, Outcome, RunOrder, choice, elsewhere, new_life, placement, rights, rotation, scope,
    touch,
};
use crate::accounts;
use crate::api::{Problem, Validator};
use crate::context::briefing;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Actor, Context, Document, Durability, Effect, Moment, State as All};
use crate::credentials::{self, SecretVariable};
use crate::providers::environment::Extra;
use crate::providers::{self, Effort, LaunchRequest, Permission, Purpose, Room, SessionStart};
use crate::settings::{Cage, Enforcement, OnLimit};
use crate::usage;
use crate::{market, memory};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// What `POST /api/agents` asks for, each field checked on its own. Teams, schedules and plans store it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct SpawnRequest {
    /// Required.
    pub role: String,
    /// Unique; `<role>-<n>` when absent.
    pub name: Option<String>,
    /// Globs it owns.
    pub scope: Vec<String>,
    /// Provider id; the configured default when absent.
    pub provider: Option<String>,
    /// Model; `None` routes.
    pub model: Option<String>,
    /// Relative; exists, and does not lead out of the project.
    pub working_dir: String,
    pub prompt: String,
    pub integrations: Vec<String>,
    pub skills: Vec<String>,
    /// What it may do unasked.
    pub permission: Permission,
    /// How hard it thinks.
    pub effort: Effort,
    pub team_id: Option<String>,
    /// `shared` or `worktree`.
    pub isolation: Isolation,
    /// The worktree that was made for it, relative to the project.
    #[serde(skip)]
    pub worktree: Option<String>,
    /// The session that it begins with a copy of.
    #[serde(skip)]
    pub copies: Option<super::sessions::Copied>,
    /// For `acp`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What a person adds to its environment.
    #[serde(skip_serializing_if = "Extra::is_empty")]
    pub env: Extra,
    /// What a person says that it does at its provider's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<OnLimit>,
    /// Whose login it uses: an account of its provider, `auto`; `None` is the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Who goes on first when agents wait for room on this machine.
    #[serde(skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
    /// The other machine that it is to work on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
}

/// What the threads of a run need to start it.
#[derive(Debug)]
pub struct StartOrder {
    pub lineage: LineageId,
    pub provider: &'static str,
    /// What the provider is asked to run.
    pub request: LaunchRequest,
    /// Variables beyond the provider's own.
    pub env: Vec<(String, String)>,
    /// Variables whose values are still sealed.
    pub secrets: Vec<SecretVariable>,
    /// Skills to be linked while it runs.
    pub skills: Vec<market::Attached>,
    /// For a person at its screen: since when what is said there is to be told.
    pub at_screen: Option<Time>,
    /// What its first message is to tell of the files, once they are looked at.
    pub map: Option<svc_map::Order>,
    /// Where it is to run, when that is not here; or why it cannot.
    pub far: Option<Result<Far, String>>,
}

/// Starts a new agent that somebody asks for.
///
/// Errors: as [`spawn_agent`].
pub fn spawn(all: &mut All, cx: &mut Context, request: SpawnRequest) -> Result<Outcome, Problem> {
    elsewhere::check_sender(cx, &request)?;
    let maker = Maker::of(all, &cx.actor)?;
    let (id, placed) = spawn_placed(all, cx, &maker, request)?;
    let Some(agent) = all.agents.get(id) else { return Err(Problem::not_found("the agent is gone")) };
    let (agent, overlaps) = (Arc::clone(agent), scope::overlaps_with(all, agent));
    Ok(Outcome::Spawned { agent, overlaps, schedule: None, placed })
}

/// Starts a new agent, for every feature that does: REST, teams, schedules, chat, toys.
///
/// Errors: 400 for an unknown or missing provider, an unknown team or a name in use, 403 `agent_may_not` for
/// more than its maker may give, 409 `capacity`, `no_runner_fits`.
pub fn spawn_agent(
    all: &mut All,
    cx: &mut Context,
    maker: &Maker,
    request: SpawnRequest,
) -> Result<AgentId, Problem> {
    spawn_placed(all, cx, maker, request).map(|(id, _)| id)
}

/// Also why it is on its runner, where that was chosen for it.
fn spawn_placed(
    all: &mut All,
    cx: &mut Context,
    maker: &Maker,
    mut request: SpawnRequest,
) -> Result<(AgentId, Option<String>), Problem> {
    elsewhere::check_maker(cx, maker, &request)?;
    let placed = placement::place(all, cx, &mut request)?;
    let provider = choice::provider(all, &request)?;
    // What an agent's child gets is what a person has settled, never more.
    if !request.env.is_empty() && !matches!(cx.actor, Actor::Operator | Actor::Daemon) {
        let text = format!("{} may not set the environment of an agent; a person has to", cx.actor);
        return Err(Problem::new(403, "agent_may_not", text));
    }
    if request.on_limit.is_some() && maker.lineage.is_some() {
        let text = format!("{} may not say what an agent does at a limit; a person has to", cx.actor);
        return Err(Problem::new(403, "agent_may_not", text));
    }
    queue::check_priority(maker, cx, request.priority)?;
    choice::settle_account(all, cx.now, maker, provider.info(), &mut request)?;
    let mut validator = Validator::default();
    if let Some(name) = &request.name {
        let taken = all.agents.iter().any(|agent| agent.name == *name);
        validator
            .check(!taken, "name", || format!("name {name:?} is in use by another agent, choose another"));
    }
    check_request(all, provider, &mut request, &mut validator);
    validator.finish()?;
    maker.meet(all, &mut request)?;
    check_share(all, maker.lineage.is_some())?;
    usage::check_budget(all, cx.now)?;
    queue::check(all, cx.now, provider.info().id, &request.role, request.priority)?;
    elsewhere::name_branch(cx, &mut request);
    let id = register(all, cx, provider, maker, request);
    placement::told(all, cx, id, placed.as_deref());
    Ok((id, placed))
}

/// What [`spawn_agent`] would refuse whenever it is asked: its team is made an id, and what it leaves open is
/// cut down to what its maker may give.
///
/// Errors: 400 with every fault, 403 `agent_may_not`.
pub fn check_pattern(all: &All, maker: &Maker, request: &mut SpawnRequest) -> Result<(), Problem> {
    let provider = choice::provider(all, request)?;
    choice::check_account(all, maker, provider.info(), request)?;
    let mut validator = Validator::default();
    check_request(all, provider, request, &mut validator);
    validator.finish()?;
    maker.meet(all, request)
}

fn check_request(
    all: &All,
    provider: &dyn providers::Provider,
    request: &mut SpawnRequest,
    validator: &mut Validator,
) {
    if let Some(team) = request.team_id.take() {
        request.team_id = all.teams.member_of(&team, validator);
    }
    if let Some(model) = request.model.as_deref().filter(|model| *model != "auto") {
        choice::check_model(provider.info(), model, validator);
    }
    let model = request.model.as_deref().filter(|model| *model != "auto");
    if let Err((field, fault)) = provider.check(model, &request.command) {
        validator.fail(field, format!("{field}: {fault}"));
    }
    elsewhere::check(all, provider.info(), request, validator);
    all.market.check_installed(&request.skills, validator);
    for integration in &request.integrations {
        validator.check(all.integrations.is_installed(integration), "integrations", || {
            format!("integrations names {integration:?}, which is not installed")
        });
    }
}

fn register(
    all: &mut All,
    cx: &mut Context,
    provider: &dyn providers::Provider,
    maker: &Maker,
    request: SpawnRequest,
) -> AgentId {
    let id = AgentId(cx.fresh_id(|id| all.agents.knows_id(id)));
    let lineage = LineageId(cx.fresh_id(|other| other == id.0 || all.agents.knows_id(other)));
    let request = SpawnRequest { provider: Some(provider.info().id.to_owned()), ..request };
    let mut agent = new_life::first(all, cx, (id, lineage), request);
    agent.started_by = maker.lineage;
    agent.fenced = maker.fences(provider.info());
    let told = json!({
        "agentId": id, "name": agent.name, "role": agent.role, "provider": agent.provider,
        "account": agent.account_name(), "startedBy": agent.started_by,
        "runner": agent.runner,
    });
    cx.audit("agent.spawn", &told);
    if let Some(on_limit) = agent.on_limit {
        cx.audit("limit.consent", &json!({"agentId": id, "name": agent.name, "onLimit": on_limit}));
    }
    usage::routing::decide(all, cx, &agent);
    let prompt = briefing::first_message(all, &agent);
    memory::told_in(all, lineage, &prompt);
    cx.push(Effect::Put(Document::Prompt(lineage), Durability::BeforeReply));
    let session = agent.session_start(provider);
    queue::start(all, cx, provider, agent, prompt, session);
    touch(all, cx, Durability::BeforeReply);
    cx.moment(Moment::Spawned(id));
    id
}

/// The provider of a record for its next life.
///
/// Errors: 409 `unknown_provider`: the record is of a version that knew others.
pub fn provider_of(agent: &Agent) -> Result<&'static dyn providers::Provider, Problem> {
    providers::by_id(&agent.provider).ok_or_else(|| {
        let text = format!(
            "agent {} was run by provider {:?}, which this version does not have; start a new agent with \
             another one, GET /api/providers lists them",
            agent.name, agent.provider
        );
        Problem::new(409, "unknown_provider", text)
    })
}

/// Registers a record and orders its process to be started, room or none ([`queue::start`] asks), with
/// `prompt` as the first message.
pub fn start(
    all: &mut All,
    cx: &mut Context,
    provider: &dyn providers::Provider,
    mut agent: Agent,
    prompt: String,
    session: SessionStart,
) {
    cx.push(Effect::Log(agent.lineage_id, agent.id, LogEntry::user(prompt.clone())));
    agent.opens_with(prompt.clone());
    order_start(all, cx, provider, agent, prompt, session);
}

/// Starts an agent whose order to start an earlier daemon did not carry out before it was killed.
pub fn start_again(all: &mut All, cx: &mut Context, id: AgentId) -> Result<(), Problem> {
    let Some(mut agent) = all.agents.get(id).map(|agent| Agent::clone(agent)) else { return Ok(()) };
    let Some(opening) = agent.opening.clone().filter(|_| !agent.status.is_live()) else { return Ok(()) };
    let provider = provider_of(&agent)?;
    let session = agent.session_start(provider);
    let reason = match &opening.succession {
        Some(Succession { old, reason, .. }) => Reason::Succeeding { old: *old, rotation: reason.clone() },
        None => Reason::Starting,
    };
    agent.set_status(cx.now, Status::Starting, reason);
    rotation::succession_restored(Arc::make_mut(&mut all.agents), &agent);
    order_start(all, cx, provider, agent, opening.prompt.clone(), session);
    touch(all, cx, Durability::BeforeReply);
    Ok(())
}

fn order_start(
    all: &mut All,
    cx: &mut Context,
    provider: &dyn providers::Provider,
    mut agent: Agent,
    prompt: String,
    session: SessionStart,
) {
    agent.phase = Phase::Working;
    agent.turn_open = true;
    agent.turn_presumed = false;
    let map = briefing::map_order(all, &agent, &prompt);
    let order = StartOrder { map, ..start_order(all, provider, &agent, prompt, session) };
    cx.push(Effect::Run(agent.id, RunOrder::Start(Box::new(order))));
    Arc::make_mut(&mut all.agents).insert(agent);
}

/// Registers a record and orders its program's own screen for a person, whose terminal is of this kind.
/// `is_open`: a turn of the session was left.
pub fn start_at_screen(
    all: &mut All,
    cx: &mut Context,
    provider: &dyn providers::Provider,
    mut agent: Agent,
    session: SessionStart,
    (term, is_open): (&str, bool),
) {
    agent.phase = Phase::Attached;
    agent.turn_open = is_open;
    agent.turn_presumed = false;
    let words = "a person goes on at the program's own screen".to_owned();
    cx.push(Effect::Log(agent.lineage_id, agent.id, LogEntry::life(words)));
    let mut order = start_order(all, provider, &agent, String::new(), session);
    order.env.push(("TERM".to_owned(), term.to_owned()));
    order.at_screen = Some(cx.now);
    cx.push(Effect::Run(agent.id, RunOrder::Start(Box::new(order))));
    Arc::make_mut(&mut all.agents).insert(agent);
}

fn start_order(
    all: &All,
    provider: &dyn providers::Provider,
    agent: &Agent,
    prompt: String,
    session: SessionStart,
) -> StartOrder {
    let request = launch_request(all, agent, Purpose::Work, prompt, session);
    let (request, far) = elsewhere::settle(all, agent, request);
    StartOrder {
        lineage: agent.lineage_id,
        provider: provider.info().id,
        request,
        env: environment(all, agent),
        secrets: elsewhere::secrets(all, agent),
        skills: all.market.attached(&agent.skills),
        at_screen: None,
        map: None,
        far,
    }
}

/// What its processes get from the vault.
pub fn secrets(all: &All, agent: &Agent) -> Vec<SecretVariable> {
    let key = agent.account.as_deref().map(accounts::key_name);
    credentials::variables(all, &agent.provider, key.as_deref(), agent.team_id.as_deref())
}

/// What a provider is asked to run for `agent`.
pub fn launch_request(
    all: &All,
    agent: &Agent,
    purpose: Purpose,
    prompt: String,
    session: SessionStart,
) -> LaunchRequest {
    let fence = fence(all, agent, purpose);
    let account = agent.account.as_deref();
    LaunchRequest {
        purpose,
        prompt,
        model: chosen_model(all, agent),
        effort: agent.effort,
        permission: agent.permission,
        working_dir: working_folder(all, agent),
        project_dir: all.project.dir.clone(),
        session,
        command: agent.command.to_vec(),
        has_integrations: !agent.integrations.is_empty(),
        // With every permission: a full one is let through, and what it writes outside of its scope is noted.
        hook_program: all.project.program.clone(),
        fence,
        room: room(all).map(|room| Room { hidden: accounts::others(all, account), ..room }),
        extra_env: choice::variables(all, agent),
    }
}

/// What agents are shown of the machine, where each gets a room of its own. `require` makes one where that is
/// known to fail, too: then nothing starts, and says why.
pub fn room(all: &All) -> Option<Room> {
    let isolation = &all.settings.config().isolation;
    let wanted = match isolation.cage {
        Cage::Off => false,
        Cage::Auto => all.project.can_cage,
        Cage::Require => true,
    };
    wanted.then(|| Room { home: isolation.home, grants: isolation.grants.clone(), hidden: Vec::new() })
}

/// Where alone an agent may write, if the kernel is to see to it: in its scope where enforcement is the
/// kernel's; in its project where its program has no fence of its own and is not to be let loose, or where it
/// was started from within such a fence.
pub fn fence(all: &All, agent: &Agent, purpose: Purpose) -> Option<Vec<String>> {
    if all.settings.config().enforcement == Enforcement::Kernel {
        return Some(agent.scope.to_vec());
    }
    // Its own program answers questions without its tools; what is inherited holds for whatever it runs.
    if !(rights::is_fenced(all, agent) && (agent.fenced || purpose == Purpose::Work)) {
        return None;
    }
    let mut globs = vec!["**".to_owned()];
    if agent.worktree.is_some() {
        // Its commits are kept with the project's.
        globs.push(all.project.dir.join(".git/**").to_string_lossy().into_owned());
    }
    Some(globs)
}

/// The model that was named, else the one that routing has chosen, else the provider's own choice.
fn chosen_model(all: &All, agent: &Agent) -> Option<String> {
    let named = agent.model.clone().filter(|model| model != "auto");
    named.or_else(|| usage::routing::model_for(all, agent.lineage_id).map(str::to_owned))
}

/// The absolute path of an agent's working directory.
pub fn working_folder(all: &All, agent: &Agent) -> std::path::PathBuf {
    let base =
        agent.worktree.as_ref().map_or_else(|| all.project.dir.clone(), |path| all.project.dir.join(path));
    // Joining nothing would add a slash, and programs tell their sessions apart by this path.
    if agent.working_dir.is_empty() { base } else { base.join(&agent.working_dir) }
}

/// Variables every process of `agent` gets.
pub fn environment(all: &All, agent: &Agent) -> Vec<(String, String)> {
    vec![
        ("SVC_AGENT_ID".into(), agent.id.to_string()),
        ("SVC_AGENT_NAME".into(), agent.name.clone()),
        ("SVC_AGENT_ROLE".into(), agent.role.clone()),
        ("SVC_DAEMON_URL".into(), all.project.url()),
        ("SVC_PROJECT_DIR".into(), all.project.dir.to_string_lossy().into_owned()),
    ]
}

/// 409 when no more agents may live.
pub(super) fn check_capacity(all: &All) -> Result<(), Problem> {
    let max = all.settings.config().max_agents;
    let live = all.agents.live().count();
    if live < max {
        return Ok(());
    }
    Err(Problem::new(
        409,
        "capacity",
        format!("{live} agents are alive and maxAgents is {max}; end one or raise maxAgents"),
    ))
}

/// One of so many places of `maxAgents` is kept for persons; none where there are fewer.
const KEPT_FOR_PERSONS: usize = 5;

/// As [`check_capacity`], and agents may not take the last places: a person always gets one.
pub fn check_share(all: &All, for_agent: bool) -> Result<(), Problem> {
    check_capacity(all)?;
    let max = all.settings.config().max_agents;
    let (live, kept) = (all.agents.live().count(), max / KEPT_FOR_PERSONS);
    if !for_agent || live < max - kept {
        return Ok(());
    }
    Err(Problem::new(
        409,
        "capacity",
        format!(
            "{live} agents are alive, maxAgents is {max}, and the last {kept} places are kept for persons; wait \
             until one has ended, or let a person start it"
        ),
    ))
}
