//! The life of a server.
//!
//! ```text
//!            first call           handshake            10 min idle
//!  Stopped ------------> Starting ---------> Running -------------> Stopping --> Stopped
//!     ^                     | exit, 30 s        | exit                 | calls meanwhile: Starting
//!     +---- crash 1, 2 -----+-------------------+
//!                           +---- crash 3 ------+---> Failed, until the daemon is started again
//! ```
//!
//! Any end that was not ordered is a crash, exit code 0 too. Only a successful call of a tool resets the
//! count.

use super::exec::{self, fail_call};
use super::{Order, RunId, State, edit, oauth, secrets, tell_status};
use crate::core::ids::AgentId;
use crate::core::{CallId, Context, Effect, State as All, Timer, Timers};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted::Gather;

/// A server has this long to shake hands.
pub const START_TIMEOUT: Duration = Duration::from_secs(30);
/// A server has this long to answer a call.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Crashes in a row after which a server is not started again.
pub const MAX_CRASHES: u32 = 3;
/// Characters kept of why a server ended.
const ERROR_CHARS: usize = 600;

/// A server as the core knows it.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Server {
    pub phase: Phase,
    /// Crashes since the last successful call.
    pub crashes: u32,
    /// Why it ended last, if it was not ordered.
    pub last_error: Option<Arc<str>>,
    /// The protocol version spoken last.
    pub protocol: Option<Arc<str>>,
}

/// Where a server stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Phase {
    #[default]
    Stopped,
    /// Its process is started and shakes hands; the calls wait.
    Starting(RunId, Vec<CallId>),
    Running(RunId, BTreeSet<CallId>),
    /// It was told to end; calls wait for it to be started anew.
    Stopping(RunId, Vec<CallId>),
    /// Not to be started again.
    Failed,
}

impl Server {
    /// Whether it answers calls.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(..))
    }

    /// Whether it is given up.
    pub fn is_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// The phase in one word.
    pub fn word(&self) -> &'static str {
        match self.phase {
            Phase::Stopped => "stopped",
            Phase::Starting(..) => "starting",
            Phase::Running(..) => "running",
            Phase::Stopping(..) => "stopping",
            Phase::Failed => "failed",
        }
    }

    fn run(&self) -> Option<RunId> {
        match self.phase {
            Phase::Starting(run, _) | Phase::Running(run, _) | Phase::Stopping(run, _) => Some(run),
            Phase::Stopped | Phase::Failed => None,
        }
    }
}

impl State {
    /// The integration whose server has this run.
    fn of_run(&self, run: RunId) -> Option<String> {
        self.servers.iter().find(|(_, server)| server.run() == Some(run)).map(|(id, _)| id.clone())
    }
}

fn timers(all: &mut All) -> &mut Timers {
    Arc::make_mut(&mut all.timers)
}

/// Why no call can reach the server at all, if so.
pub fn refusal(all: &All, id: &str) -> Option<String> {
    let server = all.integrations.servers.get(id).filter(|server| server.is_failed())?;
    let last = server.last_error.as_deref().unwrap_or("unknown");
    Some(format!(
        "its server crashed {MAX_CRASHES} times in a row and stays stopped until the daemon is started again; the \
         last time: {last}"
    ))
}

/// Hands a call that is registered already to its server, which is started if need be.
pub fn enter(all: &mut All, cx: &mut Context, id: &str, call: CallId) {
    let is_token_over = oauth::renewal(all, id, cx.now).is_some();
    let server = edit(all).servers.entry(id.to_owned()).or_default();
    match &mut server.phase {
        // It is started anew, with a renewed token.
        Phase::Running(run, in_flight) if is_token_over && in_flight.is_empty() => {
            let run = *run;
            server.phase = Phase::Stopping(run, vec![call]);
            cx.push(Effect::Integrations(Order::Stop(run)));
        }
        Phase::Starting(_, waiting) | Phase::Stopping(_, waiting) => waiting.push(call),
        Phase::Running(run, in_flight) => {
            let run = *run;
            in_flight.insert(call);
            send(all, cx, run, call);
        }
        Phase::Stopped => start(all, cx, id, vec![call]),
        Phase::Failed => {
            let why = refusal(all, id).unwrap_or_default();
            fail_call(all, cx, call, "server_failed", &why);
        }
    }
}

/// Starts the server of an installed integration.
fn start(all: &mut All, cx: &mut Context, id: &str, waiting: Vec<CallId>) {
    let Some(installed) = all.integrations.installed.get(id).cloned() else {
        for call in waiting {
            fail_call(all, cx, call, "not_installed", "it was removed");
        }
        return;
    };
    let definition = all.integrations.definition(id);
    let secrets = definition.map(|definition| secrets::environment(all, definition)).unwrap_or_default();
    let renewal = oauth::renewal(all, id, cx.now);
    let marker = AgentId(cx.fresh_id(|id| all.agents.get(AgentId(id)).is_some()));
    let spec = super::ServerSpec {
        id: id.to_owned(),
        program: installed.program.clone(),
        args: installed.args.clone(),
        secrets,
        renewal,
        marker,
    };
    let state = edit(all);
    state.last_run += 1;
    let run = RunId(state.last_run);
    state.servers.entry(id.to_owned()).or_default().phase = Phase::Starting(run, waiting);
    timers(all).set(Timer::IntegrationStart(run), cx.now + START_TIMEOUT);
    cx.push(Effect::Integrations(Order::Start(run, Box::new(spec))));
    tell_status(all, cx, id);
}

/// Sends a call to a server that is ready.
fn send(all: &mut All, cx: &mut Context, run: RunId, call: CallId) {
    let Some(pending) = all.integrations.calls.get(&call) else { return };
    cx.push(Effect::Integrations(Order::Ask(run, call, pending.ask.clone())));
    let deadline = cx.now + CALL_TIMEOUT;
    let timers = timers(all);
    timers.clear(Timer::IntegrationIdle(run));
    timers.set(Timer::IntegrationCall(call), deadline);
}

/// The handshake is over.
pub fn ready(all: &mut All, cx: &mut Context, run: RunId, protocol: String, server_name: &str) {
    let Some(id) = all.integrations.of_run(run) else { return };
    timers(all).clear(Timer::IntegrationStart(run));
    let Some(server) = edit(all).servers.get_mut(&id) else { return };
    let Phase::Starting(_, waiting) = &mut server.phase else { return };
    let waiting = std::mem::take(waiting);
    server.protocol = Some(protocol.into());
    server.phase = Phase::Running(run, waiting.iter().copied().gather());
    cx.audit(
        "integration.start",
        &serde_json::json!({"integrationId": id, "server": server_name, "protocolVersion": server.protocol}),
    );
    for call in waiting {
        send(all, cx, run, call);
    }
    rest(all, cx, run);
    tell_status(all, cx, &id);
}

/// A call is answered.
pub fn answered(all: &mut All, cx: &mut Context, run: RunId, call: CallId, result: Result<Value, String>) {
    let is_success = result.is_ok();
    let Some(pending) = edit(all).calls.remove(&call) else { return };
    timers(all).clear(Timer::IntegrationCall(call));
    let is_tool_call = pending.entry.is_some();
    if let Some(server) = edit(all).servers.get_mut(&pending.integration) {
        if let Phase::Running(_, in_flight) = &mut server.phase {
            in_flight.remove(&call);
        }
        if is_success && is_tool_call {
            server.crashes = 0;
        }
    }
    exec::finish(all, cx, call, &pending, result);
    rest(all, cx, run);
}

/// Sets the idle deadline of a server that has nothing to do.
fn rest(all: &mut All, cx: &Context, run: RunId) {
    let is_idle = all.integrations.servers.values().any(|server| match &server.phase {
        Phase::Running(own, in_flight) => *own == run && in_flight.is_empty(),
        _ => false,
    });
    if is_idle {
        let after = Duration::from_secs(all.settings.config().integrations.idle_stop_seconds);
        timers(all).set(Timer::IntegrationIdle(run), cx.now + after);
    }
}

/// The idle deadline has come.
pub fn idle(all: &mut All, cx: &mut Context, run: RunId) {
    let Some(id) = all.integrations.of_run(run) else { return };
    let Some(server) = edit(all).servers.get_mut(&id) else { return };
    if !matches!(&server.phase, Phase::Running(_, in_flight) if in_flight.is_empty()) {
        return;
    }
    server.phase = Phase::Stopping(run, Vec::new());
    cx.push(Effect::Integrations(Order::Stop(run)));
    tell_status(all, cx, &id);
}

/// Ends the server because its integration is removed or its credentials changed. Calls in flight fail.
pub fn stop(all: &mut All, cx: &mut Context, id: &str, why: &str) {
    let Some(server) = edit(all).servers.get_mut(id) else { return };
    let (run, calls) = match std::mem::take(&mut server.phase) {
        Phase::Running(run, calls) => (run, calls.into_iter().collect()),
        Phase::Starting(run, calls) | Phase::Stopping(run, calls) => (run, calls),
        other => {
            server.phase = other;
            return;
        }
    };
    server.phase = Phase::Stopping(run, Vec::new());
    let timers = timers(all);
    timers.clear(Timer::IntegrationStart(run));
    timers.clear(Timer::IntegrationIdle(run));
    cx.push(Effect::Integrations(Order::Stop(run)));
    for call in calls {
        fail_call(all, cx, call, "server_stopped", why);
    }
    tell_status(all, cx, id);
}

/// A server has not shaken hands in time: it is ended, and that counts as a crash.
pub fn start_timeout(all: &mut All, cx: &mut Context, run: RunId) {
    let Some(id) = all.integrations.of_run(run) else { return };
    let Some(server) = edit(all).servers.get_mut(&id) else { return };
    let Phase::Starting(_, waiting) = &mut server.phase else { return };
    let waiting = std::mem::take(waiting);
    let why = format!("its server did not answer initialize within {} s", START_TIMEOUT.as_secs());
    server.crashes += 1;
    server.last_error = Some(why.as_str().into());
    server.phase = Phase::Stopping(run, Vec::new());
    cx.push(Effect::Integrations(Order::Stop(run)));
    for call in waiting {
        fail_call(all, cx, call, "server_timeout", &why);
    }
    tell_status(all, cx, &id);
}

/// A server has not answered in time: the caller is told, a late answer reaches nobody.
pub fn call_timeout(all: &mut All, cx: &mut Context, call: CallId) {
    let Some(pending) = all.integrations.calls.get(&call) else { return };
    let id = pending.integration.clone();
    let why = format!("its server did not answer within {} s", CALL_TIMEOUT.as_secs());
    fail_call(all, cx, call, "server_timeout", &why);
    let Some(server) = edit(all).servers.get_mut(&id) else { return };
    let Phase::Running(run, in_flight) = &mut server.phase else { return };
    let run = *run;
    in_flight.remove(&call);
    cx.push(Effect::Integrations(Order::Cancel(run, call)));
    rest(all, cx, run);
}

/// A server is gone.
pub fn exited(all: &mut All, cx: &mut Context, run: RunId, how: &str) {
    let Some(id) = all.integrations.of_run(run) else { return };
    let timers = timers(all);
    timers.clear(Timer::IntegrationStart(run));
    timers.clear(Timer::IntegrationIdle(run));
    let how: String = how.chars().take(ERROR_CHARS).collect();
    let Some(server) = edit(all).servers.get_mut(&id) else { return };
    let (is_crash, failing, waiting) = match std::mem::take(&mut server.phase) {
        Phase::Starting(_, calls) => (true, calls, Vec::new()),
        Phase::Running(_, calls) => (true, calls.into_iter().collect(), Vec::new()),
        Phase::Stopping(_, waiting) => (false, Vec::new(), waiting),
        Phase::Stopped | Phase::Failed => (false, Vec::new(), Vec::new()),
    };
    if is_crash {
        server.crashes += 1;
        server.last_error = Some(how.as_str().into());
    }
    let is_failed = server.crashes >= MAX_CRASHES;
    server.phase = if is_failed { Phase::Failed } else { Phase::Stopped };
    if is_failed && is_crash {
        cx.push(Effect::Warn(format!("integration {id} has failed: {MAX_CRASHES} crashes in a row, {how}")));
    }
    for call in failing {
        fail_call(all, cx, call, "server_crashed", &format!("its server ended: {how}"));
    }
    for call in waiting {
        enter(all, cx, &id, call);
    }
    tell_status(all, cx, &id);
}
