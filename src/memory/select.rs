//! What a new agent is to be told out of the memory.

use super::{ChainEntry, Constraint, Discovery, State, relevance};
use std::sync::Arc;

/// A discovery of the agent's own role counts this much more.
const OWN_ROLE: f64 = 1.25;
/// Handoffs of other agents told to a new one.
const MAX_HANDOFFS: usize = 3;

/// Who is to be told, and about what.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its role.
    pub role: &'a str,
    /// Its task; may be empty.
    pub task: &'a str,
    /// Its files.
    pub scope: &'a [String],
}

/// What matters, most relevant first.
#[derive(Debug, Default)]
pub struct Selected<'a> {
    /// All rules: each binds every agent. Those that speak of the task come first, then the newest.
    pub constraints: Vec<&'a Constraint>,
    /// Discoveries that share words with the task.
    pub discoveries: Vec<&'a Discovery>,
    /// Handoffs of the role whose task shares words with this one.
    pub handoffs: Vec<&'a Arc<ChainEntry>>,
    /// The files the role changes most.
    pub files: Vec<(&'a str, u32)>,
}

/// Selects from the memory.
pub fn select<'a>(memory: &'a State, wanted: &Wanted) -> Selected<'a> {
    let query = format!("{} {}", wanted.task, wanted.scope.join(" "));
    let constraints: Vec<&Constraint> = memory.constraints().iter().collect();
    let texts: Vec<&str> = constraints.iter().map(|constraint| &*constraint.text).collect();
    let first: Vec<usize> = relevance::rank(&query, &texts).into_iter().map(|(at, _)| at).collect();
    let rest = (0..constraints.len()).rev().filter(|at| !first.contains(at));
    let constraints = first.iter().copied().chain(rest).map(|at| constraints[at]).collect();
    let handoffs: Vec<&Arc<ChainEntry>> = memory.chain(wanted.role).collect();
    let texts: Vec<&str> = handoffs.iter().map(|entry| entry.summary.as_str()).collect();
    let ranked = relevance::rank(&query, &texts).into_iter().take(MAX_HANDOFFS);
    Selected {
        constraints,
        discoveries: discoveries(memory, wanted.role, &query),
        handoffs: ranked.map(|(at, _)| handoffs[at]).collect(),
        files: memory.specializations().top_files(wanted.role),
    }
}

fn discoveries<'a>(memory: &'a State, role: &str, query: &str) -> Vec<&'a Discovery> {
    let all: Vec<&Discovery> = memory.discoveries().collect();
    let texts: Vec<String> = all.iter().map(|found| format!("{} {}", found.trigger, found.fix)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut ranked = relevance::rank(query, &texts);
    for (at, score) in &mut ranked {
        if all[*at].role == role {
            *score *= OWN_ROLE;
        }
    }
    // Stable: among equals the newer one stays first.
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.into_iter().map(|(at, _)| all[at]).collect()
}
