//! What a person keeps of the providers' windows, `limits.reserve`: where a provider tells that no more than
//! that is left of one, nothing of its agents begins by itself. What was to begin is held as at a limit.
//!
//! **Invariant:** while a told figure is not above the reserve, only what a person asked for begins: a spawn,
//! a resume, a rotation of the person's. Where no figure is told, the reserve has no effect.

use super::{Held, MARGIN, above_cap, arrange, hand_over_to, next_try, policy, renew, unquiet};
use crate::agents::record::{Agent, Phase, Status};
use crate::api::Problem;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Actor, Context, State as All};
use crate::providers::limit::{Kind, Source};
use crate::usage::quota::{self, Scarce};
use std::sync::Arc;

/// Who has said that a held agent goes on now.
pub(super) const PERSON: &str = "person";

/// The window of its provider of which no more is left than a person keeps.
pub(super) fn scarce(all: &All, now: Time, agent: &Agent) -> Option<Scarce> {
    quota::scarce(all, now, &agent.provider, agent.account_name())
}

/// Whether no turn of it begins by itself now.
pub(in crate::agents) fn is_kept(all: &All, now: Time, id: AgentId) -> bool {
    all.agents.get(id).is_some_and(|agent| scarce(all, now, agent).is_some())
}

/// Whether a person has asked for what is about to begin.
pub(in crate::agents) fn is_asked(cx: &Context, agent: &Agent) -> bool {
    matches!(cx.actor, Actor::Operator | Actor::Chat(_) | Actor::Phone(_))
        || agent.held.as_ref().is_some_and(|held| held.said_by == PERSON)
}

/// Why a life of it is not begun now.
pub(in crate::agents) fn keeps(all: &All, cx: &Context, agent: &Agent) -> Option<Scarce> {
    scarce(all, cx.now, agent).filter(|_| !is_asked(cx, agent))
}

/// An agent asks for what would be done in what is kept, and done at once: 409 `reserve`.
pub(in crate::agents) fn refusal(all: &All, cx: &Context, agent: &Agent) -> Option<Problem> {
    cx.actor.agent()?;
    let Scarce { window, keeps, .. } = scarce(all, cx.now, agent)?;
    let text = format!(
        "{keeps} % of the window {window} of {} are kept for a person (limits.reserve), and no more are left; \
         wait until it opens, see svc quota, or let a person ask for it",
        agent.provider
    );
    Some(Problem::new(409, "reserve", text))
}

/// Holds a life that was to begin. What it was to be told waits in its record, as that of one that has come
/// to a limit.
pub(in crate::agents) fn hold(all: &mut All, cx: &mut Context, mut agent: Agent, scarce: Scarce) {
    let held = held(all, cx.now, &agent, scarce);
    (agent.queued, agent.opening) = (None, None);
    agent.phase = Phase::Ended;
    agent.turn_open = false;
    agent.set_status(cx.now, Status::Limited, held.reason(&agent.name));
    agent.held = Some(Box::new(held));
    let id = agent.id;
    Arc::make_mut(&mut all.agents).insert(agent);
    arrange(all, cx, id);
}

fn held(all: &All, now: Time, agent: &Agent, scarce: Scarce) -> Held {
    let (on_limit, said_by) = policy(all, agent);
    let Scarce { window, left, keeps, opens } = scarce;
    let of = if window.is_empty() { String::new() } else { format!(" of {window}") };
    let mut held = Held {
        kind: Kind::Window,
        provider: agent.provider.clone(),
        account: agent.account_name().to_owned(),
        error: format!("{left} %{of} are left, and {keeps} % are kept (limits.reserve)"),
        window,
        resets_at: opens,
        source: Source::Event,
        on_limit,
        said_by: said_by.to_owned(),
        next_try: None,
        is_due: false,
        reserve: Some(keeps),
    };
    held.next_try = next_try(all, now, agent, &held);
    held
}

/// When one that is held for the reserve goes on: when its window opens. `onLimit` says nothing of that, for
/// the reserve does.
pub(super) fn goes_on(all: &All, agent: &Agent, held: &Held) -> Option<Time> {
    let opens = held.resets_at.filter(|_| !above_cap(all, agent))?;
    Some(unquiet(all, opens + MARGIN))
}

/// Its time has come, and it is held again: another window has no more left than is kept, or still the same.
pub(super) fn holds_again(all: &mut All, cx: &mut Context, agent: &Agent, held_now: &Held) -> bool {
    if held_now.said_by == PERSON || hand_over_to(all, cx.now, agent, held_now).is_some() {
        return false;
    }
    let Some(scarce) = scarce(all, cx.now, agent) else { return false };
    let held = held(all, cx.now, agent, scarce);
    renew(all, cx, agent.id, held);
    arrange(all, cx, agent.id);
    true
}

/// The figures, or what a person wants kept, have changed: until when it is held.
pub(super) fn judge(all: &mut All, cx: &mut Context, agent: &Agent, known: &Held) {
    let next = match scarce(all, cx.now, agent) {
        Some(scarce) => held(all, cx.now, agent, scarce),
        // There is more again.
        None => Held { next_try: Some(unquiet(all, cx.now)), resets_at: None, ..known.clone() },
    };
    let parts = |held: &Held| (held.resets_at, held.reserve, held.on_limit, held.next_try.is_some());
    if parts(&next) != parts(known) {
        renew(all, cx, agent.id, next);
    }
}

#[cfg(test)]
mod tests;
