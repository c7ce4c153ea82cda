//! What holds for agents at limits, by what people have set, and what becomes of those who are held when that
//! changes.

use super::super::record::{Agent, Status, Stop};
use super::{Held, ended, next_try, renew, reserve};
use crate::core::ids::AgentId;
use crate::core::{Context, State as All};
use crate::providers::limit::Kind;
use crate::settings::OnLimit;

/// What holds for an agent, and who said so.
pub fn policy(all: &All, agent: &Agent) -> (OnLimit, &'static str) {
    let config = all.settings.config();
    if let Some(own) = agent.on_limit {
        return (own, "agent");
    }
    let team = agent.team_id.as_deref().and_then(|id| {
        let name = all.teams.find(id).ok().map(|team| team.name.as_str());
        [Some(id), name].into_iter().flatten().find_map(|key| config.limits.teams.get(key))
    });
    team.map_or((config.on_limit, "project"), |team| (*team, "team"))
}

/// A person has changed what holds for it: held agents follow.
pub fn policy_changed(all: &mut All, cx: &mut Context) {
    let ids: Vec<AgentId> = all.agents.limited.iter().copied().collect();
    for id in ids {
        let Some(agent) = all.agents.get(id).cloned().filter(|agent| agent.status == Status::Limited) else {
            continue;
        };
        match &agent.held {
            Some(held) if held.reserve.is_some() && !held.is_due => reserve::judge(all, cx, &agent, held),
            Some(held) => follow(all, cx, &agent, held),
            None => {}
        }
    }
}

/// What it is held by now; it goes on, waits or ends by that.
pub(super) fn follow(all: &mut All, cx: &mut Context, agent: &Agent, held: &Held) {
    let (on_limit, said_by) = policy(all, agent);
    if held.kind == Kind::Window && on_limit == OnLimit::Stop {
        ended(all, cx, agent.id, Stop::Limit, None);
        return;
    }
    let mut next = Held { on_limit, said_by: said_by.to_owned(), ..held.clone() };
    next.next_try = next_try(all, cx.now, agent, &next);
    let is_other = (on_limit, next.next_try.is_some()) != (held.on_limit, held.next_try.is_some());
    // A back-off goes on as it was; what waits for a moment of the wall follows the quiet hours.
    if is_other || (held.resets_at.is_some() && next.next_try != held.next_try) {
        renew(all, cx, agent.id, next);
    }
}

/// Whether it is held by other words than those that hold now: its record and the settings are written one
/// after the other, and a kill between them leaves the one without the other.
pub(super) fn is_other(all: &All, agent: &Agent, held: &Held) -> bool {
    held.reserve.is_none() && !held.is_due && policy(all, agent).0 != held.on_limit
}
