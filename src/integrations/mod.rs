//! The integrations bridge: agents on any provider call the tools of installed Model Context Protocol
//! servers through plain HTTP, with approval gates, a rate limit and an audit trail.
//!
//! The life of a server is in `life.rs`, the flow of a call in `exec.rs`, installing and removing in
//! `install.rs`; the threads that own the processes are in `worker*.rs`.
//!
//! **Invariant:** a server has at most one process, or one order to start one.
//! **Invariant:** every call waits in exactly one place (`calls`), with a deadline or a server that is
//! being started.
//! **Invariant:** nothing secret stands in this state: values are read from the vault when a server is
//! started.

pub mod api;
pub mod catalogue;
pub mod exec;
pub mod gates;
mod install;
pub mod instructions;
mod life;
pub mod mcp_file;
pub mod oauth;
pub mod protocol;
pub mod rate;
mod secrets;
mod store;
#[cfg(test)]
mod tests;
pub mod worker;
mod worker_install;
pub mod worker_mcp_file;
mod worker_oauth;
mod worker_pipes;

pub use exec::on_disk;
pub use install::{InstallOrder, Package, patience as install_patience};
pub use life::{CALL_TIMEOUT, MAX_CRASHES, Phase, START_TIMEOUT, call_timeout, idle, start_timeout};
pub use store::{Installed, Stored, VERSION as STORED_VERSION};

use crate::api::{Problem, Reply};
use crate::core::Notice;
use crate::core::time::{Jump, Time};
use crate::core::{Actor, CallId, Context, Document, Durability, Effect, State as All};
use crate::credentials::{Sealed, SecretVariable};
use catalogue::Definition;
use protocol::Ask;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use svc_base::sorted::Gather;

/// Calls that wait for servers, of all integrations together.
pub const MAX_CALLS: usize = 256;
/// Integrations that people added themselves.
pub const MAX_CUSTOM: usize = 100;

/// One process life of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, svc_base::recorded::Recorded)]
pub struct RunId(pub u64);

/// The integrations.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    installed: BTreeMap<String, Arc<Installed>>,
    /// Being installed: who waits for it.
    installing: BTreeMap<String, install::Installing>,
    /// Being removed: who waits for it.
    removing: BTreeMap<String, Vec<CallId>>,
    servers: BTreeMap<String, life::Server>,
    windows: BTreeMap<String, rate::Window>,
    calls: BTreeMap<CallId, PendingCall>,
    /// Consents that are waited for, oldest first.
    consents: Vec<oauth::Pending>,
    /// Until when access tokens are valid.
    expiries: BTreeMap<String, Time>,
    /// Names of the tools, as they were listed last.
    tool_names: BTreeMap<String, Arc<Vec<String>>>,
    /// Tools that their servers call destructive, folded, of each integration whose tools were listed since
    /// the daemon started.
    destructive: BTreeMap<String, Arc<BTreeSet<String>>>,
    last_run: u64,
}

/// A call that waits for a server.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
struct PendingCall {
    integration: String,
    /// Who wished it, for the audit log.
    actor: Actor,
    ask: Ask,
    /// What the audit log says of it; `None` for a tool list, which is not audited.
    entry: Option<Arc<Value>>,
    /// The approval that it has used up, for a gated tool.
    approval: Option<String>,
    /// The call that is to be made once the tools are listed.
    then: Option<Box<exec::Request>>,
}

/// A wish about integrations.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Install one of the catalogue, in this version or the pinned or newest one.
    Install(String, Option<String>),
    /// Add one of the operator's own.
    Add(Box<Definition>),
    /// Stop and forget one.
    Remove(String),
    Tools(String),
    Exec(Box<exec::Request>),
    SetCredential {
        id: String,
        key: String,
        /// Sealed for `integration/<id>/<key>`.
        sealed: Sealed,
        /// What the caller is shown of it.
        #[recorded(skip)]
        masked: String,
    },
    /// Forget a credential: the integration and the variable.
    RemoveCredential(String, String),
    /// Begin a consent flow.
    OAuthStart(Box<oauth::Start>),
    /// A browser comes back: the state, and the code or why there is none.
    OAuthCallback(String, #[recorded(secret)] Result<String, String>),
}

/// What a server's process needs.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub id: String,
    /// Relative to the project, absolute, or to be found on the `PATH`.
    pub program: String,
    pub args: Vec<String>,
    /// Its credentials, still sealed.
    pub secrets: Vec<SecretVariable>,
    /// How to renew its access token first.
    pub renewal: Option<oauth::Exchange>,
    /// Marks its processes, as an agent's id does; no agent has it.
    pub marker: crate::core::ids::AgentId,
}

/// An order to the threads of the servers.
#[derive(Debug)]
pub enum Order {
    /// Start a server and shake hands. Ends with exactly one [`Report::Exited`].
    Start(RunId, Box<ServerSpec>),
    /// Ask a server that is ready.
    Ask(RunId, CallId, Ask),
    /// Nobody waits for this call any more.
    Cancel(RunId, CallId),
    Stop(RunId),
    /// Have tokens for a code. Ends with exactly one [`Report::Exchanged`].
    Exchange(CallId, Box<oauth::Exchange>),
    /// Install a package. Ends with exactly one [`Report::Installed`].
    Install(Box<InstallOrder>),
    /// Remove a package when its server is gone. Ends with exactly one [`Report::Removed`].
    Remove(String),
}

/// A fact from the threads of the servers.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// The handshake is over: the protocol version spoken, and the server's name.
    Ready(RunId, String, String),
    /// A call is answered.
    Answered(RunId, CallId, #[recorded(secret)] Result<Value, String>),
    /// The server is gone, and every process it started; how, in words.
    Exited(RunId, String),
    /// The tokens for a code are there, or why not.
    Exchanged(CallId, String, Result<oauth::Tokens, String>),
    /// An access token was renewed when a server was started.
    Renewed(String, oauth::Tokens),
    /// A package is installed, or why not.
    Installed(String, Result<Package, String>),
    /// A package is gone, or why not.
    Removed(String, Result<(), String>),
}

impl State {
    /// The definition behind an id: the operator's own, else the catalogue's.
    pub fn definition(&self, id: &str) -> Option<&Definition> {
        let custom = self.installed.get(id).and_then(|installed| installed.definition.as_ref());
        custom.or_else(|| catalogue::find(id))
    }

    /// Whether agents can call it.
    pub fn is_installed(&self, id: &str) -> bool {
        self.installed.contains_key(id)
    }

    /// Ids of what is installed.
    pub fn installed_ids(&self) -> impl Iterator<Item = &str> {
        self.installed.keys().map(String::as_str)
    }

    /// The definition of an installed integration.
    ///
    /// Errors: 400 `not_installed`, as the specification has it for tools and exec.
    pub fn find(&self, id: &str) -> Result<&Definition, Problem> {
        match self.definition(id) {
            Some(definition) if self.is_installed(id) => Ok(definition),
            Some(_) => Err(not_installed(format!(
                "integration {id} is not installed; install it with POST /api/integrations/{id}/install"
            ))),
            None => Err(not_installed(format!(
                "integration {id:?} is not installed and not in the catalogue; GET /api/integrations lists it"
            ))),
        }
    }

    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        let installed = self.installed.values().cloned().collect();
        let (token_expiries, tool_names) = (self.expiries.clone(), self.tool_names.clone());
        Stored { version: STORED_VERSION, installed, token_expiries, tool_names }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        let installed = stored.installed.into_iter().map(|one| (one.id.clone(), one)).gather();
        let (expiries, tool_names) = (stored.token_expiries, stored.tool_names);
        Self { installed, expiries, tool_names, ..Self::default() }
    }

    /// The catalogue and what the operator added, each as [`record`] shows it.
    pub fn records(&self, all: &All) -> Vec<Value> {
        let custom = self.installed.values().filter_map(|installed| installed.definition.as_ref());
        catalogue::all().iter().chain(custom).map(|definition| record(all, definition)).collect()
    }
}

fn not_installed(error: String) -> Problem {
    Problem::bad_request("not_installed", error)
}

/// An integration as `GET /api/integrations` shows it.
pub fn record(all: &All, definition: &Definition) -> Value {
    let state = &all.integrations;
    let id = definition.id.as_str();
    let installed = state.installed.get(id);
    let mut body = json!(definition);
    let server = state.servers.get(id);
    let env: Vec<Value> = definition
        .env
        .iter()
        .map(|env| {
            json!({"key": env.key, "required": env.required, "set": secrets::is_set(all, id, &env.key)})
        })
        .collect();
    body["env"] = env.into();
    body["gatedTools"] = gates::gated_tools(definition).into();
    body["custom"] = installed.is_some_and(|installed| installed.definition.is_some()).into();
    body["installed"] = installed.is_some().into();
    body["installing"] = state.installing.contains_key(id).into();
    body["configured"] = secrets::is_configured(all, definition).into();
    body["running"] = server.is_some_and(life::Server::is_running).into();
    body["failed"] = server.is_some_and(life::Server::is_failed).into();
    body["status"] = status_word(state, id).into();
    body["lastError"] = server.and_then(|server| server.last_error.as_deref()).into();
    body["protocolVersion"] = server.and_then(|server| server.protocol.as_deref()).into();
    if let Some(installed) = installed {
        body["version"] = installed.version.as_deref().into();
        body["installedAt"] = installed.installed_at.to_string().into();
    }
    body
}

fn status_word(state: &State, id: &str) -> &'static str {
    if state.installing.contains_key(id) {
        return "installing";
    }
    if !state.is_installed(id) {
        return "available";
    }
    state.servers.get(id).map_or("stopped", life::Server::word)
}

/// Tells the WebSocket clients how an integration is.
fn tell_status(all: &All, cx: &mut Context, id: &str) {
    if let Some(definition) = all.integrations.definition(id) {
        cx.notice(Notice::IntegrationStatus { data: record(all, definition) });
    }
}

fn save(cx: &mut Context) {
    cx.push(Effect::Put(Document::Integrations, Durability::BeforeReply));
}

/// The wall clock has jumped: limits and consents wait as long as they say. A token may have expired
/// meanwhile, so it is only ever held for older than it is.
pub fn clock_set(all: &mut All, cx: &mut Context, jump: Jump) {
    let state = edit(all);
    for window in state.windows.values_mut() {
        window.clock_set(jump);
    }
    for consent in &mut state.consents {
        consent.until = consent.until.moved(jump);
    }
    if jump.is_back && !state.expiries.is_empty() {
        for until in state.expiries.values_mut() {
            *until = until.moved(jump);
        }
        save(cx);
    }
}

fn edit(all: &mut All) -> &mut State {
    Arc::make_mut(&mut all.integrations)
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    if let Err(problem) = all.health.running() {
        return cx.reply(call, problem);
    }
    // `None`: the answer comes with a later event.
    let result: Result<Option<Reply>, Problem> = match command {
        Command::Install(id, version) => install::install(all, cx, call, &id, version),
        Command::Add(definition) => install::add(all, cx, &definition).map(Some),
        Command::Remove(id) => install::remove(all, cx, call, &id).map(|()| None),
        Command::Tools(id) => exec::tools(all, cx, call, &id).map(|()| None),
        Command::Exec(request) => exec::exec(all, cx, call, *request),
        Command::SetCredential { id, key, sealed, masked } => {
            secrets::set(all, cx, (&id, &key), sealed, &masked).map(Some)
        }
        Command::RemoveCredential(id, key) => secrets::remove(all, cx, &id, &key).map(Some),
        Command::OAuthStart(start) => Ok(Some(oauth::start(all, cx, *start))),
        Command::OAuthCallback(state, code) => Ok(oauth::callback(all, cx, call, &state, code)),
    };
    if let Some(result) = result.transpose() {
        cx.answer(call, result);
    }
}

/// Takes a report.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    match report {
        Report::Ready(run, protocol, server) => life::ready(all, cx, run, protocol, &server),
        Report::Answered(run, call, result) => life::answered(all, cx, run, call, result),
        Report::Exited(run, how) => life::exited(all, cx, run, &how),
        Report::Exchanged(call, id, result) => oauth::exchanged(all, cx, call, &id, result),
        Report::Renewed(id, tokens) => {
            if let Err(problem) = oauth::keep(all, cx, &id, tokens) {
                cx.push(Effect::Warn(format!("the renewed token of {id} was not kept: {problem}")));
            }
        }
        Report::Installed(id, result) => install::installed(all, cx, &id, result),
        Report::Removed(id, result) => install::removed(all, cx, &id, &result),
    }
}
