//! What a new agent is to be told out of the memory.

use super::discoveries::{is_near, subject};
use super::{ChainEntry, Constraint, Discovery, State, relevance};
use std::collections::{BTreeSet, HashSet};
use svc_base::sorted;

/// A discovery of the agent's own role counts this much more.
const OWN_ROLE: f64 = 1.25;
/// Handoffs of other agents told to a new one.
const MAX_HANDOFFS: usize = 3;
/// Texts that later ones are compared with; no briefing has room for more.
const MAX_COMPARED: usize = 200;

/// Who is to be told, and about what.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub role: &'a str,
    /// Its task; may be empty.
    pub task: &'a str,
    pub scope: &'a [String],
}

/// What matters, most relevant first.
#[derive(Debug, Default)]
pub struct Selected<'a> {
    /// All rules: each binds every agent. Those that speak of the task come first, then the newest.
    pub constraints: Vec<&'a Constraint>,
    /// All discoveries, each once: those that share words with the task, then those of the agent's role,
    /// then the newest. One that says nearly the same as an earlier one of the list stands at its end.
    pub discoveries: Vec<&'a Discovery>,
    /// The [`MAX_HANDOFFS`] handoffs that matter most, ordered alike.
    pub handoffs: Vec<Handoff<'a>>,
    /// The files the role changes most.
    pub files: Vec<(&'a str, u32)>,
}

/// A handoff, and whose it was.
#[derive(Debug, Clone, Copy)]
pub struct Handoff<'a> {
    /// The role of the agent that was replaced.
    pub role: &'a str,
    pub entry: &'a ChainEntry,
}

impl State {
    /// Selects from the self.
    pub fn select(&self, wanted: &Wanted) -> Selected<'_> {
        let query = format!("{} {}", wanted.task, wanted.scope.join(" "));
        let constraints: Vec<&Constraint> = self.constraints().iter().collect();
        let texts: Vec<&str> = constraints.iter().map(|constraint| &*constraint.text).collect();
        let first: Vec<usize> = relevance::rank(&query, &texts).into_iter().map(|(at, _)| at).collect();
        let rest = (0..constraints.len()).rev().filter(|at| !first.contains(at));
        let constraints = first.iter().copied().chain(rest).map(|at| constraints[at]).collect();
        Selected {
            constraints,
            discoveries: discoveries(self, wanted.role, &query),
            handoffs: handoffs(self, wanted.role, &query),
            files: self.specializations().top_files(wanted.role),
        }
    }
}

fn discoveries<'a>(memory: &'a State, role: &str, query: &str) -> Vec<&'a Discovery> {
    let all: Vec<&Discovery> = memory.discoveries().collect();
    let texts: Vec<String> = all.iter().map(|found| format!("{} {}", found.trigger, found.fix)).collect();
    let order = ordered(query, &texts, |at| all[at].role == role, |at| all[at].mined);
    order.into_iter().map(|at| all[at]).collect()
}

fn handoffs<'a>(memory: &'a State, role: &str, query: &str) -> Vec<Handoff<'a>> {
    let of = |role: &'a str| memory.chain(role).map(move |entry| Handoff { role, entry });
    let mut all: Vec<Handoff> = memory.chain_roles().flat_map(of).collect();
    // RFC 3339 in one zone sorts by time.
    sorted::by(&mut all, |a, b| {
        a.entry.ts.cmp(&b.entry.ts).then(a.entry.rotation_n.cmp(&b.entry.rotation_n))
    });
    let texts: Vec<String> = all.iter().map(|handoff| handoff.entry.summary.clone()).collect();
    let order = ordered(query, &texts, |at| all[at].role == role, |_| false);
    order.into_iter().take(MAX_HANDOFFS).map(|at| all[at]).collect()
}

/// The order in which texts (oldest first) are told: by relevance to `query`, then those that `is_own`, then
/// the newest. Of texts that differ in case, blanks or final punctuation alone only the first is told; one
/// that nearly repeats an earlier one waits until the others are told, so that fifty voices on one subject
/// do not take the room of all others. What is only `seen`, and not told, is left out unless it is relevant.
fn ordered(
    query: &str,
    texts: &[String],
    is_own: impl Fn(usize) -> bool,
    is_seen: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut scores = vec![0.0_f64; texts.len()];
    for (at, score) in relevance::rank(query, &borrowed) {
        scores[at] = if is_own(at) { score * OWN_ROLE } else { score };
    }
    let is_told = |at: &usize| scores[*at] > 0.0 || !is_seen(*at);
    let mut order: Vec<usize> = (0..texts.len()).filter(is_told).collect();
    sorted::by(&mut order, |a, b| {
        scores[*b].total_cmp(&scores[*a]).then(is_own(*b).cmp(&is_own(*a))).then(b.cmp(a))
    });
    let mut known = HashSet::new();
    order.retain(|at| known.insert(folded(&texts[*at])));
    let mut first = Vec::new();
    let mut repeated = Vec::new();
    let mut kept: Vec<BTreeSet<String>> = Vec::new();
    for at in order {
        if kept.len() >= MAX_COMPARED {
            first.push(at);
            continue;
        }
        let words = subject(&texts[at]);
        if kept.iter().any(|other| is_near(other, &words)) {
            repeated.push(at);
        } else {
            kept.push(words);
            first.push(at);
        }
    }
    first.extend(repeated);
    first
}

/// A text without what makes no difference: case, blanks, final punctuation.
fn folded(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    line.trim_end_matches(|c: char| c.is_ascii_punctuation() || c.is_whitespace()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(query: &str, texts: &[&str], own: &[usize]) -> Vec<usize> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        ordered(query, &texts, |at| own.contains(&at), |_| false)
    }

    #[test]
    fn decisions_6_all_is_told_by_relevance_then_role_then_age() {
        let texts = ["old stranger", "own role", "login session lost", "new stranger"];
        assert_eq!(order("Repair the login session", &texts, &[1]), [2, 1, 3, 0]);
        assert_eq!(order("", &texts, &[1]), [1, 3, 2, 0], "without a prompt role and age decide");
    }

    #[test]
    fn what_differs_in_case_blanks_and_a_final_dot_is_told_once() {
        let texts =
            ["Cache is cold: warm it", "cache  is cold: warm it.", "cache is cold: warm it ", "other"];
        assert_eq!(order("cache", &texts, &[]), [2, 3]);
    }

    #[test]
    fn a_chorus_on_one_subject_does_not_take_the_room_of_others() {
        let mut texts: Vec<String> =
            (0..52).map(|n| format!("payment webhook {n} times out: answer 200 before the work")).collect();
        texts.push("payment totals are in cents".to_owned());
        let found = ordered("Handle the payment webhook", &texts, |_| false, |_| false);
        assert_eq!(found.len(), 53, "nothing is dropped where there is room");
        assert_eq!(found[1], 52, "{found:?}");
    }
}
