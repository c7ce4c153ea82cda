//! Learning from what agents have done: when a life is over its log is read, by rules and without a model,
//! for what failed and went well then (`memory` keeps it for those that come).
//!
//! **Invariant:** one log is read at a time; of what waits nothing is kept over a restart, for nothing is
//! promised of it.
//! **Invariant:** what may be a secret is not learned.

use super::brief::Facts;
use crate::agents::Job;
use crate::core::ids::AgentId;
use crate::core::{Context, Effect, Moment, State as All};
use crate::memory::{self, Learned};
use std::collections::VecDeque;
use std::sync::Arc;

/// The last records of a log that are read.
pub const RECORDS_READ: u64 = 5_000;
/// Taken from one log at most, the latest.
const MAX_LEARNED: usize = 5;
/// Lives that wait to be read; further ones are not learned from.
const MAX_WAITING: usize = 100;
/// A word so long without a path in it may be a key.
const KEY_CHARS: usize = 24;
/// Words beside which a secret stands.
const SECRET_WORDS: [&str; 9] =
    ["token", "secret", "passw", "credential", "authorization", "bearer", "apikey", "api_key", "api-key"];

/// Whose logs are to be read.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Learning {
    /// The first of them is being read.
    waiting: VecDeque<AgentId>,
}

fn learning(all: &mut All) -> &mut Learning {
    &mut Arc::make_mut(&mut all.context).learning
}

/// A life is over.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    let (Moment::Ended(id) | Moment::Rotated { new: id, .. }) = *moment else { return };
    let is_wanted = all.settings.config().learn_from_logs && !all.health.stopping;
    let waiting = &all.context.learning.waiting;
    // The first is being read, perhaps too early.
    let is_there = waiting.iter().skip(1).any(|other| *other == id);
    if is_wanted && !is_there && waiting.len() < MAX_WAITING {
        learning(all).waiting.push_back(id);
        if all.context.learning.waiting.len() == 1 {
            next(all, cx);
        }
    }
}

/// Reads the log of the first that still has a record.
fn next(all: &mut All, cx: &mut Context) {
    while let Some(id) = all.context.learning.waiting.front().copied() {
        if let Some(agent) = all.agents.get(id) {
            let facts = Box::new(Facts::to_read(all, agent));
            return cx.push(Effect::Job(Job::Learn { agent: id, lineage: agent.lineage_id, facts }));
        }
        learning(all).waiting.pop_front();
    }
}

/// A log was read, or could not be.
pub fn read(all: &mut All, cx: &mut Context, id: AgentId, learned: &[Learned]) {
    memory::mined(all, cx, id, learned);
    if all.context.learning.waiting.front() == Some(&id) {
        learning(all).waiting.pop_front();
        next(all, cx);
    }
}

/// What of it is kept: the latest, without secrets.
pub fn chosen(learned: impl DoubleEndedIterator<Item = Learned>) -> Vec<Learned> {
    let is_open = |one: &Learned| !may_be_secret(&one.trigger) && !may_be_secret(&one.fix);
    let mut chosen: Vec<Learned> = learned.rev().filter(is_open).take(MAX_LEARNED).collect();
    chosen.reverse();
    chosen
}

/// Whether a text may have a secret in it: rather once too often.
fn may_be_secret(text: &str) -> bool {
    let lower = text.to_lowercase();
    let has_login = |word: &str| {
        word.split_once("://")
            .is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|host| host.contains('@')))
    };
    let is_key = |word: &str| {
        let (digits, letters) = word.chars().fold((0, 0), |(digits, letters), c| {
            (digits + usize::from(c.is_ascii_digit()), letters + usize::from(c.is_ascii_alphabetic()))
        });
        word.len() >= KEY_CHARS && digits >= 4 && letters >= 4
    };
    let inside = |c: char| !(c.is_ascii_alphanumeric() || "+=".contains(c));
    SECRET_WORDS.iter().any(|word| lower.contains(word))
        || text.split_whitespace().any(has_login)
        || text.split(inside).any(is_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::Time;

    #[test]
    fn what_may_be_a_secret_is_not_learned() {
        for text in [
            "`curl -H 'Authorization: Basic eDp5'` failed: 401",
            "`git push https://me:pw@host.example/x` failed: no",
            "`deploy --key AKIA9201XY77Q3LLPA0Z1M2N` failed: no",
            "`export NPM_TOKEN=x` failed",
        ] {
            assert!(may_be_secret(text), "{text}");
        }
        for text in [
            "`cargo test -p pay` failed: assertion `left == right` failed",
            "`make -C build/x86_64-unknown-linux-gnu/release/deps check` failed: no rule",
            "a change of src/features/authentication_and_sessions.rs turned it green",
            "commit 3f786850e387 is not there",
        ] {
            assert!(!may_be_secret(text), "{text}");
        }
    }

    #[test]
    fn of_one_log_the_latest_five_are_taken() {
        let one = |n: u64| Learned { trigger: format!("t{n}"), fix: "f".into(), at: Time(n) };
        let all = (0..9).map(one).chain([Learned { trigger: "my password".into(), ..one(9) }]);
        let chosen = chosen(all.collect::<Vec<_>>().into_iter());
        assert_eq!(chosen.iter().map(|one| one.at.0).collect::<Vec<_>>(), [4, 5, 6, 7, 8]);
    }
}
