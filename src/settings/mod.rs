//! The configuration: the type and range of every key stand here and nowhere else; which keys there are, with
//! their defaults, stands in `svc_base::settings`, which the command line reads, too.
//!
//! A key is looked up in the project's `.svc/config.json`, then in the user's configuration file, then
//! among the defaults. `PATCH /api/config` writes the project's file.
//!
//! **Invariant:** the effective configuration always satisfies the ranges; a file that does not is refused
//! at start with the key named.

pub mod api;
mod governor;
mod limits;
mod notify;
mod over_all;
mod push;
mod telemetry;
#[cfg(test)]
mod tests;

pub use governor::{Admit, Governor};
pub use limits::{Budget, Limits, MidTurn, OnLimit, QuietHours};
pub use notify::Notify;
pub use over_all::budget_over_all;
pub use push::Push;
pub use svc_base::settings::{self as keys, defaults};
pub use telemetry::Telemetry;

use crate::accounts;
use crate::api::{FieldError, Problem, Reply};
use crate::core::{CallId, Context, Document, Durability, Effect, Moment};
use crate::providers::environment::Extra;
use crate::providers::price::Price;
use crate::providers::{Home, Room, windows};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The effective configuration. In JSON as in `GET /api/config`.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// The port to listen on; 0 takes any.
    pub port: u16,
    /// The address to listen on.
    pub host: String,
    /// The port of the door to all projects of this user; 0 is none.
    pub door: u16,
    /// Live agents at most.
    pub max_agents: usize,
    /// Context fullness at which an agent is rotated, to begin with.
    pub rotation_threshold: f64,
    /// Whether agents are rotated without being asked.
    pub auto_rotation: bool,
    /// Whether a session that is planned to end is asked for its last word.
    pub ask_before_rotation: bool,
    /// Whether the logs of lives that are over are read for what others may learn.
    pub learn_from_logs: bool,
    /// Live agents at which quality control is announced.
    pub qc_threshold: usize,
    /// Seconds between two cycles of the journalist.
    pub journalist_interval: u64,
    pub journalist: Journalist,
    /// Provider of an agent that names none.
    pub default_provider: String,
    /// Model of an agent of the default provider that names none; `auto` names none either.
    pub default_model: String,
    /// Which model an agent runs that names none: `off` and `suggest` leave that to its program, `on` picks
    /// the cheapest that fits its task.
    pub routing: Routing,
    /// What a person knows of models: before every table. A `null` takes an entry back.
    pub models: BTreeMap<String, Option<OwnModel>>,
    pub safety: Safety,
    /// What a spent daily budget stops.
    pub budget: Budget,
    /// What an agent does at its provider's usage limit.
    pub on_limit: OnLimit,
    /// The bounds of that.
    pub limits: Limits,
    /// What agents may take of the machine.
    pub governor: Governor,
    /// What tells a person's desktop that something waits.
    pub notify: Notify,
    /// Where spans of what agents do go.
    pub push: Push,
    pub telemetry: Telemetry,
    pub skills: Skills,
    /// Whether the kernel sees to it that agents write in their scopes only.
    pub enforcement: Enforcement,
    /// What agents see of the machine.
    pub isolation: Isolation,
    /// Whether agents that ended with an earlier daemon go on.
    pub resume_on_start: ResumeOnStart,
    /// The processes that keep agents.
    pub keeper: Keeper,
    /// The servers of the integrations.
    pub integrations: Integrations,
    /// The flight recorder.
    pub record: Record,
    /// What is kept of the folders of agents.
    pub snapshots: Snapshots,
    /// What agents get of the daemon's environment.
    pub env: Env,
}

/// See [`Config::env`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(default)]
pub struct Env {
    /// Names of variables that are let through to every agent.
    pub pass: Vec<String>,
    /// Variables that every agent gets; `null` keeps one away.
    pub set: BTreeMap<String, Option<String>>,
    /// The same for the agents of one provider.
    pub providers: BTreeMap<String, Extra>,
}

impl Env {
    /// What the agents of `provider` get.
    pub fn of(&self, provider: &str) -> Extra {
        let all = Extra { pass: self.pass.clone(), set: self.set.clone(), ..Extra::default() };
        self.providers.get(provider).map_or_else(|| all.clone(), |closer| all.clone().then(closer))
    }
}

/// See [`Config::routing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    Off,
    /// What would be picked is told.
    Suggest,
    On,
}

/// See [`Config::models`].
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct OwnModel {
    /// Tokens.
    pub context_window: Option<u64>,
    /// US dollars per million tokens.
    pub price: Option<Price>,
}

impl Config {
    /// What a person has set for a model, under whichever spelling.
    pub fn model(&self, name: &str) -> Option<&OwnModel> {
        let same = |key: &str| key == name || windows::plain_name(key) == windows::plain_name(name);
        self.models.iter().find(|(key, _)| same(key)).and_then(|(_, own)| own.as_ref())
    }
}

/// See [`Config::journalist`].
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
pub struct Journalist {
    pub mode: JournalistMode,
}

/// See [`Journalist::mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum JournalistMode {
    /// From what agents did, alone.
    Deterministic,
    /// With the cheapest model's summary above it.
    Model,
}

/// See [`Config::enforcement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// Scopes are told, and trespasses noted.
    Advisory,
    /// Landlock refuses them.
    Kernel,
}

/// See [`Config::isolation`].
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
pub struct Isolation {
    /// Whether each agent gets a room of its own.
    pub cage: Cage,
    /// What the room shows of the home folder.
    pub home: Home,
    /// What it shows beside.
    pub grants: Vec<String>,
}

/// See [`Isolation::cage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Cage {
    /// Where this system can make one.
    Auto,
    /// Always: where it cannot be made, no agent starts.
    Require,
    /// Never.
    Off,
}

/// See [`Config::safety`].
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Safety {
    /// Tokens one process life may use.
    pub token_ceiling_per_agent: u64,
    /// Multiplies the ceiling by role; a role not named has 1.
    pub role_multipliers: BTreeMap<String, f64>,
    /// Dollars a day; `None` is no limit.
    pub daily_budget_usd: Option<f64>,
    /// The same for all projects of this user, as it was when the daemon started.
    pub daily_budget_all_usd: Option<f64>,
}

/// See [`Config::resume_on_start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum ResumeOnStart {
    Never,
    /// When a person says yes, once for all of them.
    Ask,
    Auto,
}

/// See [`Config::keeper`].
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Keeper {
    /// Minutes that an agent works on without a daemon; 0 ends it at once.
    pub orphan_minutes: u64,
    /// How far agents stand back behind other programs that want the processor, as for `nice`.
    pub nice: u32,
}

impl Keeper {
    /// How long an agent works on without a daemon.
    pub fn orphan(&self) -> Duration {
        Duration::from_secs(60 * self.orphan_minutes)
    }
}

/// See [`Config::integrations`].
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Integrations {
    /// Seconds without a call after which a server is stopped.
    pub idle_stop_seconds: u64,
}

/// See [`Config::record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub enabled: bool,
    /// MiB on disk at most.
    pub max_megabytes: u64,
}

/// See [`Config::snapshots`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    pub enabled: bool,
    /// Turns of each agent.
    pub turns: u64,
    /// MiB on disk.
    pub max_megabytes: u64,
}

/// See [`Config::skills`].
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Skills {
    /// Where the marketplace answers.
    pub base_url: String,
}

/// Settings of earlier releases, below `safety`. They have no effect any more, and are no fault either.
const REMOVED: [&str; 2] = ["velocityWindowSeconds", "velocityTokenThreshold"];

/// Settings without [`REMOVED`] ones.
fn without_removed(mut settings: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(safety)) = settings.get_mut("safety") {
        safety.retain(|key, _| !REMOVED.contains(&key.as_str()));
    }
    settings
}

/// The settings of the user, of the project, and what they amount to.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct State {
    user: Map<String, Value>,
    project: Map<String, Value>,
    config: Arc<Config>,
}

impl Default for State {
    fn default() -> Self {
        match Self::new(Map::new(), Map::new()) {
            Ok(state) => state,
            Err(problem) => unreachable!("the defaults satisfy their own rules: {problem}"),
        }
    }
}

impl State {
    /// Settings from the user's and the project's file.
    ///
    /// Errors: every key that is unknown, of a wrong type or out of range.
    pub fn new(user: Map<String, Value>, project: Map<String, Value>) -> Result<Self, Problem> {
        let (user, project) = (without_removed(user), without_removed(project));
        let mut merged = defaults();
        merge(&mut merged, &user);
        merge(&mut merged, &project);
        over_all::check(&project)?;
        let config = check(&merged)?;
        Ok(Self { user, project, config: Arc::new(config) })
    }

    /// The effective configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The effective configuration as JSON.
    pub fn shown(&self) -> Map<String, Value> {
        let mut merged = defaults();
        merge(&mut merged, &self.user);
        merge(&mut merged, &self.project);
        merged
    }

    /// What the project's file holds.
    pub fn stored(&self) -> Map<String, Value> {
        self.project.clone()
    }
}

/// A wish about the configuration.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Merge these settings into the project's, all or nothing.
    Patch(Map<String, Value>),
}

/// Handles a command.
pub fn command(state: &mut crate::core::State, cx: &mut Context, call: CallId, command: Command) {
    let Command::Patch(changes) = command;
    let mut project = state.settings.project.clone();
    merge(&mut project, &changes);
    let target = changes.get("limits").and_then(|limits| limits.get("handoverTo")).and_then(Value::as_str);
    let checked = target.map_or(Ok(()), |names| accounts::check_targets(state, names));
    match checked.and_then(|()| State::new(state.settings.user.clone(), project)) {
        Ok(next) => {
            cx.push(Effect::Put(Document::Config, Durability::BeforeReply));
            cx.audit("config.patch", &json!({"changes": changes}));
            cx.reply(call, Reply::ok(&next.shown()));
            state.settings = Arc::new(next);
            cx.moment(Moment::SettingsChanged);
        }
        Err(problem) => cx.reply(call, problem),
    }
}

/// Merges objects deeply; any other value replaces.
fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

fn check(merged: &Map<String, Value>) -> Result<Config, Problem> {
    let mut errors = Vec::new();
    for (key, value) in merged {
        check_key("", key, value, &mut errors);
    }
    if !errors.is_empty() {
        return Err(Problem::validation(errors));
    }
    serde_json::from_value(Value::Object(merged.clone())).map_err(|error| {
        Problem::bad_request("validation_failed", format!("the configuration is wrong: {error}"))
    })
}

/// Settings that hold further ones.
const GROUPS: [&str; 14] = [
    "journalist",
    "isolation",
    "safety",
    "budget",
    "limits",
    "governor",
    "notify",
    "push",
    "telemetry",
    "skills",
    "integrations",
    "keeper",
    "record",
    "snapshots",
];

fn check_key(prefix: &str, key: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let path = format!("{prefix}{key}");
    let whole = |low: u64, high: u64| {
        let fits = value.as_u64().is_some_and(|n| (low..=high).contains(&n));
        (!fits).then(|| format!("must be a whole number from {low} to {high}"))
    };
    let number = |low: f64, high: f64| {
        let fits = value.as_f64().is_some_and(|n| (low..=high).contains(&n));
        (!fits).then(|| format!("must be a number from {low} to {high}"))
    };
    let word = |choices: &[&str]| {
        let fits = value.as_str().is_some_and(|text| choices.contains(&text));
        (!fits).then(|| format!("must be one of {}", choices.join(", ")))
    };
    let broken = match path.as_str() {
        "port" | "door" => whole(0, 65_535),
        "host" => host(value),
        "maxAgents" | "qcThreshold" => whole(1, 1000),
        "rotationThreshold" => number(0.05, 1.0),
        "autoRotation" | "askBeforeRotation" | "learnFromLogs" | "record.enabled" | "snapshots.enabled" => {
            (!value.is_boolean()).then(|| "must be true or false".into())
        }
        "journalistInterval" => whole(5, 86_400),
        "journalist.mode" => word(&["deterministic", "model"]),
        "defaultProvider" => provider(value),
        "defaultModel" => match value.as_str() {
            Some(text) if !text.is_empty() && text.len() <= 200 => None,
            _ => Some("must be a model id of 1 to 200 characters, or auto".into()),
        },
        "routing" => word(&["off", "suggest", "on"]),
        "models" => models(value),
        "safety.tokenCeilingPerAgent" => whole(1_000, 1_000_000_000_000),
        "safety.roleMultipliers" => multipliers(value),
        "safety.dailyBudgetUsd" | "safety.dailyBudgetAllUsd" if value.is_null() => None,
        "safety.dailyBudgetUsd" | "safety.dailyBudgetAllUsd" => budget(value),
        machine if governor::KEYS.contains(&machine) => governor::check(machine, value),
        limit if limits::KEYS.contains(&limit) => limits::check(limit, value),
        "notify.command" => notify::check(value),
        part if push::KEYS.contains(&part) => push::check(part, value),
        "telemetry.endpoint" => telemetry::check(value),
        "telemetry.content" => (!value.is_boolean()).then(|| "must be true or false".into()),
        "skills.baseUrl" => match value.as_str() {
            Some(text) if text.starts_with("http://") || text.starts_with("https://") => None,
            _ => Some("must be an http:// or https:// URL".into()),
        },
        "integrations.idleStopSeconds" => whole(1, 86_400),
        "resumeOnStart" => word(&["never", "ask", "auto"]),
        "keeper.orphanMinutes" => whole(0, 10_080),
        "keeper.nice" => whole(0, 19),
        "record.maxMegabytes" => whole(8, 10_240),
        "snapshots.turns" => whole(1, 10_000),
        "snapshots.maxMegabytes" => whole(16, 1 << 20),
        "env" => {
            environment(value, errors);
            None
        }
        "enforcement" => word(&["advisory", "kernel"]),
        "isolation.cage" => word(&["auto", "require", "off"]),
        "isolation.home" => word(&["overlay", "read", "hide"]),
        "isolation.grants" => grants(value),
        group if GROUPS.contains(&group) => members(&path, value, errors),
        _ => {
            let meant = keys::meant(&path).map(|key| format!(", did you mean {key}?")).unwrap_or_default();
            let message = format!("{path} is not a setting{meant}; GET /api/config lists them");
            errors.push(FieldError { message, field: path });
            return;
        }
    };
    if let Some(rule) = broken {
        errors.push(FieldError { message: format!("{path} {rule}, it is {value}"), field: path });
    }
}

/// Checks the settings of a group.
fn members(path: &str, value: &Value, errors: &mut Vec<FieldError>) -> Option<String> {
    let Value::Object(map) = value else { return Some("must be an object".into()) };
    for (inner, value) in map {
        check_key(&format!("{path}."), inner, value, errors);
    }
    None
}

/// What is wrong with the id of a provider.
fn provider(value: &Value) -> Option<String> {
    let ids: Vec<_> = crate::providers::all().iter().map(|provider| provider.info().id).collect();
    let fits = value.as_str().is_some_and(|text| ids.contains(&text));
    (!fits).then(|| format!("must be one of {}", ids.join(", ")))
}

/// What is wrong with the address to listen on.
fn host(value: &Value) -> Option<String> {
    match value.as_str().and_then(|text| text.parse::<std::net::IpAddr>().ok()) {
        None => Some("must be an IP address of this machine".to_owned()),
        Some(address) => {
            address.is_unspecified().then(|| "must name one interface, not all of them".to_owned())
        }
    }
}

/// Checks `env`: its lists, and those of its providers.
fn environment(value: &Value, errors: &mut Vec<FieldError>) {
    let mut fail = |field: String, fault: String| {
        errors.push(FieldError { message: format!("{field} {fault}"), field });
    };
    let Some(members) = value.as_object() else {
        return fail("env".into(), format!("must be an object, it is {value}"));
    };
    for unknown in members.keys().filter(|key| !matches!(key.as_str(), "pass" | "set" | "providers")) {
        fail(format!("env.{unknown}"), "is not a setting; there are env.pass, env.set, env.providers".into());
    }
    let mut places = vec![("env".to_owned(), value)];
    for (id, closer) in members.get("providers").and_then(Value::as_object).into_iter().flatten() {
        let place = format!("env.providers.{id}");
        if crate::providers::by_id(id).is_none() {
            fail(place.clone(), "is no provider; GET /api/providers lists them".into());
        }
        places.push((place, closer));
    }
    for (place, value) in places {
        match serde_json::from_value::<Extra>(value.clone()) {
            Ok(extra) => {
                for (part, fault) in extra.faults() {
                    fail(format!("{place}.{part}"), fault);
                }
            }
            Err(error) => {
                fail(place, format!("must hold a list \"pass\" and a map \"set\" of texts: {error}"));
            }
        }
    }
}

/// Grants a person may give.
const MAX_GRANTS: usize = 64;

fn grants(value: &Value) -> Option<String> {
    let Some(list) = value.as_array().filter(|list| list.len() <= MAX_GRANTS) else {
        return Some(format!("must be a list of at most {MAX_GRANTS}"));
    };
    list.iter().find_map(|grant| {
        let fault = grant.as_str().map_or(Err("must be text"), Room::check_grant).err()?;
        Some(format!("{fault}, and {grant} is not"))
    })
}

/// A budget of 0 would refuse even what costs nothing, and some mean "none" by it: it is asked what is meant.
fn budget(value: &Value) -> Option<String> {
    let fits = value.as_f64().is_some_and(|usd| usd > 0.0 && usd <= 1_000_000.0);
    (!fits).then(|| "must be a number above 0 and up to 1000000, or null for no budget".into())
}

/// Models a person may describe.
const MAX_OWN_MODELS: usize = 200;

fn models(value: &Value) -> Option<String> {
    let price = |price: &Value| {
        let names = ["input", "output", "cacheRead", "cacheCreation"];
        let fits = |n: &Value| n.as_f64().is_some_and(|n| (0.0..=10_000.0).contains(&n));
        price.as_object().is_some_and(|map| {
            map.len() == names.len() && names.iter().all(|name| map.get(*name).is_some_and(fits))
        })
    };
    let model = |model: &Value| {
        model.is_null()
            || model.as_object().is_some_and(|map| {
                map.iter().all(|(key, value)| match key.as_str() {
                    "contextWindow" => value.as_u64().is_some_and(|n| (1_000..=100_000_000).contains(&n)),
                    "price" => price(value),
                    _ => false,
                })
            })
    };
    let fits = value.as_object().is_some_and(|map| map.len() <= MAX_OWN_MODELS && map.values().all(model));
    (!fits).then(|| {
        format!(
            "must map at most {MAX_OWN_MODELS} models to {{\"contextWindow\": tokens, \"price\": {{\"input\", \
             \"output\", \"cacheRead\", \"cacheCreation\": dollars per million tokens}}}}, or null"
        )
    })
}

fn multipliers(value: &Value) -> Option<String> {
    let fits = value
        .as_object()
        .is_some_and(|map| map.values().all(|v| v.as_f64().is_some_and(|n| n > 0.0 && n <= 1000.0)));
    (!fits).then(|| "must map roles to numbers above 0 and up to 1000".into())
}
