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

/// What the wishes and reports of a feature are about, for people.
macro_rules! about {
    ($kind:ident approvals) => {
        "approvals and questions"
    };
    ($kind:ident ownership) => {
        "who owns which files"
    };
    ($kind:ident coordination) => {
        "locks"
    };
    ($kind:ident gateways) => {
        "chats"
    };
    ($kind:ident pm) => {
        "the project manager"
    };
    ($kind:ident credentials) => {
        "the vault"
    };
    ($kind:ident toys) => {
        "public APIs"
    };
    ($kind:ident adoption) => {
        "sessions of yours"
    };
    ($kind:ident isolation) => {
        "worktrees"
    };
    ($kind:ident settings) => {
        "the configuration"
    };
    ($kind:ident workspace) => {
        "the project's files"
    };
    ($kind:ident context) => {
        "what briefings say"
    };
    ($kind:ident market) => {
        "skills"
    };
    ($kind:ident fleet) => {
        "other projects"
    };
    ($kind:ident governor) => {
        "room on the machine"
    };
    ($kind:ident cleanup) => {
        "the daily cleanup"
    };
    ($kind:ident federation) => {
        "other daemons"
    };
    ($kind:ident $feature:ident) => {
        stringify!($feature)
    };
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

        /// What an event is, in people's words: for the log and for replays.
        pub fn name_of(event: &Event) -> &'static str {
            match event {
                $($(Event::Call(_, _, Command::$Name(_)) => {
                    concat!("a wish about ", about!($Wish $feature))
                })?)*
                $($(Event::$Name(_) => concat!("a report about ", about!($Report $feature)),)?)*
                Event::Call(_, _, Command::Shutdown { .. }) => "a wish that the daemon ends",
                Event::Run(..) => "a report about an agent's program",
                Event::Job(_) => "a report about a job for an agent",
                Event::Detected(_) => "a report about installed programs",
                Event::Storage(_) => "a report about the disk",
                Event::OnDisk(..) => "a report about what was written",
                Event::Timer(timer) => words_of(timer),
                Event::WrongToken { .. } => "a wrong token",
                Event::ClockSet(_) => "a jump of the clock",
                Event::Panicked => "a rule that has failed",
                Event::Terminate => "a signal to end",
            }
        }
    };
}
crate::features::features!(rules);

macro_rules! deadlines {
    ($(#[doc = $doc:literal] $Name:ident $(($id:ident: $Of:ident))? => $($rule:ident)::+;)*) => {
        /// Applies the rule of a deadline that has come.
        fn due(state: &mut State, cx: &mut Context, timer: Timer) {
            match timer {
                $(Timer::$Name $(($id))? => crate::$($rule)::+(state, cx $(, $id)?),)*
            }
        }

        /// What a deadline is for, in people's words.
        pub fn words_of(timer: &Timer) -> &'static str {
            match timer {
                $(Timer::$Name $(($id))? => {
                    $(let _ = $id;)?
                    concat!("a deadline:", $doc)
                })*
            }
        }
    };
}
crate::features::timers!(deadlines);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Actor;

    #[test]
    fn events_are_told_in_peoples_words() {
        let wish = Command::Memory(crate::memory::Command::RemoveConstraint(String::new()));
        let told = [
            Event::Call(CallId(1), Actor::Operator, wish),
            Event::Ownership(None),
            Event::Timer(Timer::Silence(AgentId(1))),
        ];
        let told: Vec<&str> = told.iter().map(name_of).collect();
        let words = [
            "a wish about memory",
            "a report about who owns which files",
            "a deadline: An agent inside a turn has said nothing for too long.",
        ];
        assert_eq!(told, words);
    }
}
