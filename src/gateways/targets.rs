//! Whom a command means: an agent's id or name, a team's name, the beginning of either, or a role.

use super::sources::{self, Team};
use crate::agents::Agent;
use crate::core::State as All;
use std::sync::Arc;
use svc_base::sorted;

/// What a team's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Its lead: it is to be spoken to.
    Lead,
    /// One of its members, to be chosen.
    Member,
}

/// One of several that a target may mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// For people.
    pub label: String,
    pub id: String,
}

/// What a target means.
#[derive(Debug, Clone)]
pub enum Found {
    One(Arc<Agent>),
    /// One of these; a person has to say which.
    Many(Vec<Candidate>),
    Nobody(String),
}

/// A hit: the agent, and the team that led to it.
type Hit = (Arc<Agent>, Option<String>);

/// Finds whom `target` means. What is exact wins over what only begins so; the living win over the ended.
pub fn resolve(all: &All, target: &str, want: Want) -> Found {
    let wanted = target.trim().to_lowercase();
    if wanted.is_empty() {
        return Found::Nobody("name an agent, a team or a role".into());
    }
    let teams = sources::teams(all);
    let mut exact: Vec<Hit> =
        all.agents.find(target.trim()).ok().cloned().map(|a| (a, None)).into_iter().collect();
    if exact.is_empty() {
        exact = agents(all, |agent| agent.name.to_lowercase() == wanted);
    }
    for team in teams.iter().filter(|team| team.name.to_lowercase() == wanted || team.id == wanted) {
        exact.extend(of_team(all, team, want));
    }
    if !exact.is_empty() {
        return choose(exact, target);
    }
    let begins = |name: &str| name.to_lowercase().starts_with(&wanted);
    let mut near = agents(all, |agent| begins(&agent.name) || agent.role.to_lowercase() == wanted);
    for team in teams.iter().filter(|team| begins(&team.name)) {
        near.extend(of_team(all, team, want));
    }
    if near.is_empty() && teams.iter().any(|team| begins(&team.name)) {
        return Found::Nobody(format!("team {target} has no agents"));
    }
    choose(near, target)
}

fn agents(all: &All, fits: impl Fn(&Agent) -> bool) -> Vec<Hit> {
    all.agents.iter().filter(|agent| fits(agent)).cloned().map(|agent| (agent, None)).collect()
}

fn of_team(all: &All, team: &Team, want: Want) -> Vec<Hit> {
    let members = sources::members(all, team);
    let named = |agent: Arc<Agent>| (agent, Some(team.name.clone()));
    match want {
        Want::Member => members.into_iter().map(named).collect(),
        Want::Lead => lead(&members).map(named).into_iter().collect(),
    }
}

/// Who speaks for a team: QC, fullstack, senior, PM, in this order; else who was started first. The living
/// win.
pub fn lead(members: &[Arc<Agent>]) -> Option<Arc<Agent>> {
    members.iter().min_by_key(|agent| (!agent.status.is_live(), rank(agent), agent.spawned_at)).cloned()
}

fn rank(agent: &Agent) -> usize {
    let role = agent.role.to_lowercase();
    let words: Vec<&str> = role.split(['-', '_']).collect();
    let name = agent.name.to_lowercase();
    if words.contains(&"qc") || name == "qc" || name.starts_with("qc-") {
        0
    } else if words.contains(&"fullstack") {
        1
    } else if words.contains(&"senior") {
        2
    } else if words.contains(&"pm") || role == "project-manager" {
        3
    } else {
        4
    }
}

fn choose(mut hits: Vec<Hit>, target: &str) -> Found {
    if hits.len() > 1 && hits.iter().any(|(agent, _)| agent.status.is_live()) {
        hits.retain(|(agent, _)| agent.status.is_live());
    }
    let mut distinct: Vec<Hit> = Vec::new();
    for hit in hits {
        if distinct.iter().all(|(agent, _)| agent.id != hit.0.id) {
            distinct.push(hit);
        }
    }
    sorted::by(&mut distinct, |(a, _), (b, _)| a.name.cmp(&b.name));
    match distinct.len() {
        0 => Found::Nobody(format!("nobody is called {target}; /agents lists who is there")),
        1 => Found::One(distinct.remove(0).0),
        _ => Found::Many(distinct.into_iter().map(candidate).collect()),
    }
}

fn candidate((agent, team): Hit) -> Candidate {
    let label = match team {
        Some(team) => format!("{} ({team})", agent.name),
        None => agent.name.clone(),
    };
    Candidate { label, id: agent.id.to_string() }
}
