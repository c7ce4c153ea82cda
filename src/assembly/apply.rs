//! The one function that changes the state: it gives each event to the rule that it is for.
//!
//! [`apply`] is total and pure: no I/O, no clock, no randomness, no channels.
//!
//! **Invariant:** every call gets exactly one reply, at once or through a later event.

use super::{rules, unwritten};
use crate::agents::report::RunReport;
use crate::api::{Problem, Reply};
use crate::core::ids::AgentId;
use crate::core::{Actor, CallId, Context, Effect, Event, State};
use crate::{agents, alerts, gateways, phones, webhooks};
use serde_json::json;
use std::sync::Arc;

/// Applies one event. What a call would change is in force when it is on disk: see [`Unwritten`].
pub fn apply(state: &mut State, cx: &mut Context, event: Event) {
    match event {
        Event::Call(call, Actor::Phone(name), command) => match phones::may_wish(state, &name, &command) {
            Ok(()) => unwritten::call(state, cx, call, Actor::Phone(name), command),
            Err(problem) => cx.reply(call, problem),
        },
        Event::Call(call, actor, command) => unwritten::call(state, cx, call, actor, command),
        Event::OnDisk(call, outcome) if unwritten::on_disk(state, cx, call, &outcome) => {}
        event => happen(state, cx, event),
    }
    let is_over = agents::all_quiet(&state.agents) && state.unwritten.is_empty();
    if state.health.stopping && !cx.exit_sent && is_over {
        cx.exit_sent = true;
        cx.push(Effect::Exit);
    }
}

/// Lets an event happen, whatever the disk says.
pub fn happen(state: &mut State, cx: &mut Context, event: Event) {
    rules::given(state, cx, event);
    while let Some(moment) = cx.next_moment() {
        rules::tell(state, cx, &moment);
    }
    gateways::overheard(state, cx);
    alerts::overheard(state, cx);
    webhooks::overheard(state, cx);
    phones::overheard(state, cx);
}

/// The threads of a run report.
pub fn run(state: &mut State, cx: &mut Context, agent: AgentId, report: RunReport) {
    if let RunReport::Output(batch) = &report
        && state.agents.get(agent).is_some()
    {
        rules::heard(state, cx, agent, &batch.activities);
    }
    agents::run_report(state, cx, agent, report);
}

/// Somebody wishes the end of the daemon.
pub fn shutdown(state: &mut State, cx: &mut Context, call: CallId, keep: bool) {
    if keep && state.settings.config().keeper.orphan().is_zero() {
        let text = "keeper.orphanMinutes is 0: agents end with their daemon; give them some minutes, or stop \
                    without keep";
        return cx.reply(call, Problem::new(409, "agents_end_with_daemon", text));
    }
    cx.audit("daemon.shutdown", &json!({"keep": keep}));
    cx.reply(call, Reply::json(202, &json!({"ok": true, "pid": state.project.pid})));
    if keep && !state.health.stopping {
        Arc::make_mut(&mut state.health).stopping = true;
        agents::leave_all(state, cx);
    } else {
        begin_shutdown(state, cx);
    }
}

/// Ends all agents, and then the daemon.
pub fn begin_shutdown(state: &mut State, cx: &mut Context) {
    if state.health.stopping {
        return;
    }
    Arc::make_mut(&mut state.health).stopping = true;
    agents::stop_all(state, cx);
}

/// Writing state fails, or works again.
pub fn storage(state: &mut State, cx: &mut Context, error: Option<String>) {
    if state.health.storage_error.as_deref() == error.as_deref() {
        return;
    }
    if let Some(error) = &error {
        cx.push(Effect::Warn(format!("state cannot be written: {error}")));
    }
    Arc::make_mut(&mut state.health).storage_error = error.map(Into::into);
}
