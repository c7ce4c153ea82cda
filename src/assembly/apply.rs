//! The one function that changes the state: it gives each event to the rule that it is for.
//!
//! [`apply`] is total and pure: no I/O, no clock, no randomness, no channels.
//!
//! **Invariant:** every call gets exactly one reply, at once or through a later event.

use super::{clock, moments, unwritten};
use crate::agents;
use crate::agents::report::RunReport;
use crate::api::Reply;
use crate::context as briefing;
use crate::core::{CallId, Command, Context, Effect, Event, State, Timer};
use crate::oversight::{cleanup, pm, questions, timeline};
use crate::programs::registry;
use crate::{
    approvals, coordination, credentials, federation, gateways, integrations, isolation, journalist, market,
    memory, ownership, schedules, settings, teams, toys, workspace,
};
use std::sync::Arc;

/// Applies one event. What a call would change is in force when it is on disk: see [`Unwritten`].
pub fn apply(state: &mut State, cx: &mut Context, event: Event) {
    match event {
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
    match event {
        Event::Call(call, actor, command) => {
            cx.actor = actor;
            command_given(state, cx, call, command);
        }
        Event::Run(agent, report) => {
            if let RunReport::Output(batch) = &report
                && state.agents.get(agent).is_some()
            {
                moments::heard(state, cx, agent, &batch.activities);
            }
            agents::run_report(state, cx, agent, report);
        }
        Event::Job(report) => moments::job(state, cx, report),
        Event::Gateway(report) => gateways::report(state, cx, report),
        Event::Plan(found) => teams::plan::found(state, cx, found),
        Event::Detected(found) => {
            if registry::detected(state, found) {
                moments::started(state, cx);
            }
        }
        Event::Integration(report) => integrations::report(state, cx, report),
        Event::Workspace(report) => workspace::report(state, cx, report),
        Event::Journalist(report) => journalist::report(state, cx, report),
        Event::Ownership(looked) => ownership::commands::looked(state, cx, looked),
        Event::Context(report) => briefing::report(state, report),
        Event::Cleanup(report) => cleanup::report(state, cx, report),
        Event::Storage(error) => storage(state, cx, error),
        Event::OnDisk(call, outcome) => integrations::on_disk(state, cx, call, &outcome),
        Event::Timer(timer) => match timer {
            Timer::StateNotice => agents::send_state(state, cx),
            Timer::Silence(agent) => agents::silence(state, cx, agent),
            Timer::Query(call) => agents::query_timeout(state, cx, call),
            Timer::Velocity(agent) => agents::history::velocity_due(state, cx, agent),
            Timer::Snapshot => timeline::snapshot(state, cx),
            Timer::Locks => coordination::expire(state, cx),
            Timer::Approval(id) => approvals::expire(state, cx, id),
            Timer::GatewaysBoot => gateways::boot(state, cx),
            Timer::GatewayConnect(id) => gateways::connect_due(state, cx, id),
            Timer::GatewayDigest(id) => gateways::digest_due(state, cx, id),
            Timer::GatewayCards(id) => gateways::cards_due(state, cx, id),
            Timer::ScheduleDue(id) => schedules::due(state, cx, id),
            Timer::ScheduleStart(id) => schedules::start(state, cx, id),
            Timer::IntegrationStart(run) => integrations::start_timeout(state, cx, run),
            Timer::IntegrationCall(call) => integrations::call_timeout(state, cx, call),
            Timer::IntegrationIdle(run) => integrations::idle(state, cx, run),
            Timer::IntegrationInstall(call) => integrations::install_patience(state, cx, call),
            Timer::Journalist => journalist::due(state, cx),
            Timer::Cleanup => cleanup::due(state, cx),
            Timer::Question(call) => questions::timeout(state, cx, call),
            Timer::Writes => ownership::commands::due(state, cx),
        },
        Event::WrongToken { from, attempts } => {
            cx.audit("token.wrong", &serde_json::json!({"from": from, "attempts": attempts}));
        }
        Event::ClockSet(jump) => clock::set(state, cx, jump),
        Event::Panicked => Arc::make_mut(&mut state.health).panics += 1,
        Event::Terminate => begin_shutdown(state, cx),
    }
    while let Some(moment) = cx.next_moment() {
        moments::tell(state, cx, &moment);
    }
    gateways::overheard(state, cx);
}

fn command_given(state: &mut State, cx: &mut Context, call: CallId, command: Command) {
    match command {
        Command::Agents(command) => agents::command(state, cx, call, command),
        Command::Credentials(command) => credentials::command(state, cx, call, command),
        Command::Coordination(command) => coordination::command(state, cx, call, command),
        Command::Approvals(command) => approvals::command(state, cx, call, command),
        Command::Gateways(command) => gateways::command(state, cx, call, command),
        Command::Teams(command) => teams::command(state, cx, call, command),
        Command::Toys(command) => toys::command(state, cx, call, command),
        Command::Schedules(command) => schedules::command(state, cx, call, command),
        Command::Integrations(command) => integrations::command(state, cx, call, command),
        Command::Ownership(command) => ownership::command(state, cx, call, command),
        Command::Isolation(command) => isolation::command(state, cx, call, command),
        Command::Workspace(command) => {
            moments::asked_of_files(state, cx, &command);
            workspace::command(state, cx, call, command);
        }
        Command::Settings(command) => {
            if settings::command(state, cx, call, command) {
                journalist::settings_changed(state, cx.now);
            }
        }
        Command::Memory(command) => memory::command(state, cx, call, command),
        Command::Journalist(command) => journalist::command(state, cx, call, command),
        Command::Pm(command) => pm::command(state, cx, call, command),
        Command::Market(command) => market::command(state, cx, call, command),
        Command::Federation(command) => federation::command(state, cx, call, command),
        Command::Shutdown => {
            cx.audit("daemon.shutdown", &serde_json::json!({}));
            cx.reply(call, Reply::json(202, &serde_json::json!({"ok": true, "pid": state.project.pid})));
            begin_shutdown(state, cx);
        }
    }
}

fn begin_shutdown(state: &mut State, cx: &mut Context) {
    if state.health.stopping {
        return;
    }
    Arc::make_mut(&mut state.health).stopping = true;
    agents::stop_all(state, cx);
}

fn storage(state: &mut State, cx: &mut Context, error: Option<String>) {
    if state.health.storage_error.as_deref() == error.as_deref() {
        return;
    }
    if let Some(error) = &error {
        cx.push(Effect::Warn(format!("state cannot be written: {error}")));
    }
    Arc::make_mut(&mut state.health).storage_error = error.map(Into::into);
}
