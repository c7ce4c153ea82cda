//! Which rule of which feature is applied, by the table of all features.

use super::{apply, clock, moments};
use crate::api::Route;
use crate::core::ids::AgentId;
use crate::core::{CallId, Command, Context, Event, Moment, State, Timer};
use crate::endpoint::Handler;
use crate::programs::registry;
use crate::providers::Activity;
use serde_json::json;
use std::sync::Arc;

/// Does with a function of a feature what it says, where there is one.
macro_rules! call {
    ($feature:ident _ ($($given:expr),*)) => {};
    ($feature:ident api ($routes:expr)) => { $routes.extend(crate::$feature::api::routes()) };
    ($feature:ident $rule:ident ($($given:expr),*)) => { crate::$feature::$rule($($given),*) };
}

macro_rules! rules {
    ($(
        #[doc = $doc:literal]
        $feature:ident $Name:ident:
            $(state($State:ident))? $(wish($Wish:ident))? $(report($Report:ident))? $(order($Order:ident))?
            => $moment:tt, $heard:tt, $routes:tt;
    )*) => {
        /// Gives a wish to its feature.
        fn wished(state: &mut State, cx: &mut Context, call: CallId, command: Command) {
            match command {
                $($(Command::$Name(wish) => {
                    let wish: crate::$feature::$Wish = wish;
                    crate::$feature::command(state, cx, call, wish);
                })?)*
                Command::Shutdown { keep } => apply::shutdown(state, cx, call, keep),
            }
        }

        /// Gives an event to the rule that it is for.
        pub fn given(state: &mut State, cx: &mut Context, event: Event) {
            match event {
                Event::Call(call, actor, command) => {
                    cx.actor = actor;
                    moments::asked_of_files(state, cx, &command);
                    wished(state, cx, call, command);
                }
                $($(Event::$Name(report) => {
                    let report: crate::$feature::$Report = report;
                    crate::$feature::report(state, cx, report);
                })?)*
                Event::Run(agent, report) => apply::run(state, cx, agent, report),
                Event::Job(report) => moments::job(state, cx, report),
                Event::Detected(found) => {
                    if registry::detected(state, found) {
                        moments::started(state, cx);
                    }
                }
                Event::Storage(error) => apply::storage(state, cx, error),
                Event::OnDisk(call, outcome) => crate::integrations::on_disk(state, cx, call, &outcome),
                Event::Timer(timer) => due(state, cx, timer),
                Event::WrongToken { from, attempts } => {
                    cx.audit("token.wrong", &json!({"from": from, "attempts": attempts}));
                }
                Event::ClockSet(jump) => clock::set(state, cx, jump),
                Event::Panicked => Arc::make_mut(&mut state.health).panics += 1,
                Event::Terminate => apply::begin_shutdown(state, cx),
            }
        }

        /// Tells every listener of a moment.
        pub fn tell(state: &mut State, cx: &mut Context, moment: &Moment) {
            $(call!($feature $moment (state, cx, moment));)*
        }

        /// Tells every listener what an agent did, in order, before its record takes it in.
        pub fn heard(state: &mut State, cx: &mut Context, agent: AgentId, activities: &[Activity]) {
            $(call!($feature $heard (state, cx, agent, activities));)*
        }

        /// The routes that features have in a file of their own.
        pub fn routes(routes: &mut Vec<Route<Handler>>) {
            $(call!($feature $routes (routes));)*
        }

        /// The name of an event, for the log.
        pub fn name_of(event: &Event) -> &'static str {
            match event {
                $($(Event::Call(_, _, Command::$Name(_)) => {
                    concat!(stringify!($feature), "::", stringify!($Wish))
                })?)*
                $($(Event::$Name(_) => concat!(stringify!($feature), "::", stringify!($Report)),)?)*
                Event::Call(_, _, Command::Shutdown { .. }) => "a shutdown command",
                Event::Run(..) => "a run report",
                Event::Job(_) => "a job report",
                Event::Detected(_) => "a detection report",
                Event::Storage(_) => "a storage report",
                Event::OnDisk(..) => "a report of a write",
                Event::Timer(_) => "a timer",
                Event::WrongToken { .. } => "a wrong token",
                Event::ClockSet(_) => "a jump of the clock",
                Event::Panicked => "a panic",
                Event::Terminate => "a signal",
            }
        }
    };
}
crate::features::features!(rules);

macro_rules! deadlines {
    ($($(#[$doc:meta])* $Name:ident $(($id:ident: $Of:ident))? => $($rule:ident)::+;)*) => {
        /// Applies the rule of a deadline that has come.
        fn due(state: &mut State, cx: &mut Context, timer: Timer) {
            match timer {
                $(Timer::$Name $(($id))? => crate::$($rule)::+(state, cx $(, $id)?),)*
            }
        }
    };
}
crate::features::timers!(deadlines);
