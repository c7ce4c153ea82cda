//! One event and what becomes of it: for the state thread, and for whoever plays a recording.

use super::apply::apply;
use crate::api::Problem;
use crate::core::time::Time;
use crate::core::{Context, Effect, Event, State};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What came of an event.
pub struct Step {
    /// Its orders.
    pub effects: Vec<Effect>,
    /// Whether its handling panicked, and the state before it was kept.
    pub panicked: bool,
}

/// Applies one event that came at `now` with these random bits. A panic costs that event alone: the old state
/// stays. `exit_sent` is whether [`Effect::Exit`] was given, in this daemon's life.
pub fn step(state: &mut State, exit_sent: &mut bool, now: Time, seed: u64, event: Event) -> Step {
    let context = |exit_sent: bool| {
        let mut cx = Context::new(now, seed);
        cx.exit_sent = exit_sent;
        cx
    };
    let (call, is_written) = match &event {
        Event::Call(call, ..) => (Some(*call), false),
        Event::OnDisk(call, _) => (Some(*call), true),
        _ => (None, false),
    };
    let mut next = state.clone();
    let mut cx = context(*exit_sent);
    if catch_unwind(AssertUnwindSafe(|| apply(&mut next, &mut cx, event))).is_ok() {
        *state = next;
        *exit_sent = cx.exit_sent;
        return Step { effects: cx.take(), panicked: false };
    }
    let mut cx = context(*exit_sent);
    apply(state, &mut cx, Event::Panicked);
    let bug = "this request met a bug in svc; the daemon goes on";
    match call {
        // What is on disk of it is taken back.
        Some(call) if is_written => apply(state, &mut cx, Event::OnDisk(call, Err(bug.into()))),
        Some(call) => cx.reply(call, Problem::new(500, "internal", bug)),
        None => {}
    }
    Step { effects: cx.take(), panicked: true }
}
