//! What chat commands read from other features: the one seam to teams, schedules and the ledger.

use super::message::{Text, cut};
use crate::agents::Agent;
use crate::core::State as All;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A team, as chat commands see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// All teams.
pub fn teams(all: &All) -> Vec<Team> {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for id in all.agents.iter().filter_map(|agent| agent.team_id.clone()) {
        named.entry(id.clone()).or_insert(id);
    }
    named.into_iter().map(|(id, name)| Team { id, name }).collect()
}

/// The agents of a team, the living first, then by the time of their start.
pub fn members(all: &All, team: &Team) -> Vec<Arc<Agent>> {
    let mut members: Vec<Arc<Agent>> =
        all.agents.iter().filter(|agent| agent.team_id.as_deref() == Some(&team.id)).cloned().collect();
    members.sort_by_key(|agent| (!agent.status.is_live(), agent.spawned_at));
    members
}

/// Lines about the schedules.
pub fn schedules(_all: &All) -> Text {
    "no schedules".into()
}

/// Lines about what was used.
pub fn tokens(all: &All) -> Text {
    let mut agents: Vec<_> = all.agents.iter().collect();
    agents.sort_by_key(|agent| std::cmp::Reverse(agent.tokens.total()));
    let total: u64 =
        agents.iter().map(|agent| agent.tokens.total()).sum::<u64>() + all.agents.qa_tokens().total();
    let cost: f64 = agents.iter().map(|agent| agent.cost_usd).sum();
    let mut text = Text::new().bold("Tokens").plain(format!(" {total} · ${cost:.2}"));
    for agent in agents.iter().filter(|agent| agent.tokens.total() > 0).take(super::answers::MAX_ROWS) {
        let name = cut(&agent.name, super::answers::NAME_CHARS);
        text = text.line(Text::new().code(name).plain(format!(" {}", agent.tokens.total())));
    }
    text
}
