//! Going on elsewhere: at a usage limit whose `onLimit` is `handover`, with the account or provider of
//! `limits.handoverTo`, in a fresh session that begins with a handoff brief. Of several the first counts that
//! stands behind the agent's own: nobody comes back to one that it has left.
//!
//! ```text
//! Limited ──its brief is asked for──▶ (on disk) ──▶ due ──▶ Starting, with the other account or provider
//! ```
//! **Invariant:** the brief is on disk before the next life is started, and stays until a turn of it has
//! ended well: whatever becomes of that life, the next fresh one begins with it.

use super::{BUSY_DELAY_MAX, DISK_DELAY, Held, begins, set_deadline};
use crate::accounts::{self, DEFAULT};
use crate::agents::record::{Agent, Status};
use crate::agents::rotation;
use crate::context::briefing;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::core::{Context, Effect, State as All};
use crate::providers::limit::Kind;
use crate::providers::{self, SessionStart};
use crate::settings::OnLimit;
use crate::usage::{self, quota};
use std::sync::Arc;

/// Why the life before has ended, as its brief says.
const WHY: &str = "its provider's usage limit";

/// Who takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    provider: String,
    /// `None` is the provider's default account.
    account: Option<String>,
}

impl Target {
    /// The account, or the provider, of a name; `None` where there is no such account (any more).
    fn of(all: &All, name: &str) -> Option<Self> {
        match all.accounts.get(name) {
            Some(account) => {
                Some(Self { provider: account.provider.clone(), account: Some(name.to_owned()) })
            }
            None => providers::by_id(name).map(|_| Self { provider: name.to_owned(), account: None }),
        }
    }

    /// As the setting names it.
    pub(super) fn name(&self) -> &str {
        self.account.as_deref().unwrap_or(&self.provider)
    }

    fn is_of(&self, agent: &Agent) -> bool {
        self.provider == agent.provider && self.account == agent.account
    }

    /// What is kept of its windows is kept from this agent, too; one that is used up helps nobody.
    fn can(&self, all: &All, now: Time) -> bool {
        let account = self.account.as_deref();
        let name = account.unwrap_or(DEFAULT);
        all.providers.is_installed(&self.provider)
            && accounts::check(all, &self.provider, account).is_ok()
            && accounts::is_ready(all, &self.provider, account) != Some(false)
            && quota::scarce(all, now, &self.provider, name).is_none()
            && quota::room(all, now, &self.provider, name) > 0
    }
}

/// The account or provider that takes over, where a person has said so and it can.
pub(super) fn hand_over_to(all: &All, now: Time, agent: &Agent, held: &Held) -> Option<Target> {
    let names = all.settings.config().limits.handover_to.as_deref()?;
    if held.kind != Kind::Window || held.on_limit != OnLimit::Handover {
        return None;
    }
    let targets: Vec<Target> = names.split(',').filter_map(|name| Target::of(all, name.trim())).collect();
    let behind = targets.iter().position(|target| target.is_of(agent)).map_or(0, |at| at + 1);
    targets.into_iter().skip(behind).find(|target| target.can(all, now))
}

/// `at`, or later where its account is disabled or has lost its key, and no other takes over: until a person
/// has seen to that, it is looked at now and then.
pub(super) fn when_usable(all: &All, agent: &Agent, held: &Held, at: Time) -> Time {
    let is_usable = accounts::check(all, &agent.provider, agent.account.as_deref()).is_ok();
    if is_usable || hand_over_to(all, at, agent, held).is_some() { at } else { at + BUSY_DELAY_MAX }
}

/// Asks for the brief with which it is to go on elsewhere; `false` where it goes on without one.
pub(super) fn asks_brief(all: &All, cx: &mut Context, agent: &Agent, held: &Held) -> bool {
    // What has never run has nothing to hand over but its task.
    let has_run = agent.turns > 0 || agent.session_id.is_some() || agent.tokens.total() > 0;
    let asks = has_run && hand_over_to(all, cx.now, agent, held).is_some();
    if asks {
        rotation::order_brief(all, cx, agent, WHY, None);
    }
    asks
}

/// The brief of a held agent is there, or cannot be made: it goes on elsewhere, if that still holds. After a
/// kill in between, the next daemon asks for it anew.
pub(in crate::agents) fn briefed(
    all: &mut All,
    cx: &mut Context,
    id: AgentId,
    brief: Result<String, String>,
) {
    let Some(agent) = all.agents.get(id).cloned().filter(|agent| agent.status == Status::Limited) else {
        return;
    };
    let Some(held) = agent.held.as_deref().filter(|held| !held.is_due) else { return };
    if all.health.stopping || hand_over_to(all, cx.now, &agent, held).is_none() {
        return;
    }
    if all.health.writable().is_err() {
        return set_deadline(all, id, Some(cx.now + DISK_DELAY));
    }
    match brief {
        Ok(brief) => rotation::keep_handoff(all, cx, agent.lineage_id, &brief),
        Err(error) => cx.push(Effect::Warn(format!("agent {id} is handed over without a brief: {error}"))),
    }
    begins(all, cx, &agent, held);
}

/// It belongs to the other account from here: nothing of its session holds there, and with another provider
/// nothing of its model or of what was routed for it.
pub(super) fn moves(all: &mut All, cx: &mut Context, agent: &mut Agent, other: Target) {
    let is_same_program = agent.provider == other.provider;
    (agent.provider, agent.account) = (other.provider, other.account);
    agent.leave_session();
    if is_same_program {
        return;
    }
    agent.model = None;
    agent.actual_model = None;
    agent.context_window = 0;
    usage::routing::decide_anew(all, cx, agent);
}

/// What the next life is told: to go on, and the words that were under way.
pub(super) fn issued_again(all: &All, agent: &Agent, session: &SessionStart) -> String {
    let told = |words: &Arc<str>| words.to_string();
    let kept = rotation::kept_handoff(all, agent).filter(|_| *session == SessionStart::Fresh);
    if let Some(brief) = kept {
        // What waits in its queue stands behind the brief already.
        let words: Vec<String> = agent.under_way.iter().map(told).collect();
        return briefing::spoken_to_after_rotation(all, agent, &brief, &words);
    }
    let issued = agent.queue.iter().filter(|message| message.in_prompt).map(|message| &message.text);
    let words: Vec<String> = agent.under_way.iter().chain(issued).map(told).collect();
    if *session == SessionStart::Fresh {
        return briefing::without_session(all, agent, &words);
    }
    // Held before it was begun, nothing was cut off.
    let is_whole = agent.tries == 0 && agent.held.as_ref().is_some_and(|held| held.reserve.is_some());
    let task = match (words.is_empty(), is_whole) {
        (true, true) => briefing::GO_ON.to_owned(),
        (true, false) => agent.prompt.to_string(),
        (false, _) => words.join("\n\n"),
    };
    if is_whole || providers::info_of(&agent.provider).scripted {
        return task;
    }
    format!("{}\n\n{task}", briefing::CUT_OFF)
}
