//! A sample of the farm of tests/simulate: the whole daemon with its disk, programs and people on a virtual
//! clock. `make simulate` plays it for as long as you like; a rule that is broken names its seed.

use crate::farm::invariants::Rule;
use crate::farm::machine::{Plant, Seen};
use crate::farm::{Played, play, shrink};
use std::time::Duration;
use svc::core::Document;

/// Seeds of a usual run; `SVC_SEEDS=2000` searches longer.
const SEEDS: u64 = 4;
/// Steps of each.
const STEPS: usize = 500;
/// Seeds within which a planted fault must be found.
const PLANTED_SEEDS: u64 = 12;

fn steps(count: usize) -> Vec<usize> {
    (0..count).collect()
}

#[test]
fn no_rule_is_broken_whatever_happens_to_the_machine() {
    let seeds = std::env::var("SVC_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let mut seen = Seen::default();
    for seed in 0..seeds {
        let played = play(seed, &steps(STEPS), Plant::Nothing, false);
        let broken = played.broken.map(|broken| broken.to_string()).unwrap_or_default();
        assert!(broken.is_empty(), "{broken}\nmake simulate SEED={seed} STEPS={STEPS}");
        seen.add(&played.seen);
    }
    // What never happens is not tested.
    for what in ["power cuts", "ends in good order", "jumps of the clock", "rounds the disk refused"] {
        assert!(seen.0.get(what).is_some_and(|count| *count > 4), "{what} are rare: {seen:?}");
    }
    for what in ["lives", "runs of schedules", "changes acknowledged", "decisions", "commands of chats"] {
        assert!(seen.0.get(what).is_some_and(|count| *count > 8), "{what} are rare: {seen:?}");
    }
}

/// The first seed that finds a planted fault, and how.
fn finds(plant: Plant, rules: &[Rule]) -> (u64, Played) {
    for seed in 0..PLANTED_SEEDS {
        let played = play(seed, &steps(STEPS), plant, true);
        let Some(broken) = &played.broken else { continue };
        assert!(rules.contains(&broken.rule), "{plant:?} was found as something else: {broken}");
        return (seed, played);
    }
    panic!("{PLANTED_SEEDS} seeds have not found {plant:?}")
}

#[test]
fn a_fault_of_order_is_found_played_again_and_made_short() {
    let (seed, found) = finds(Plant::LosesExits, &[Rule::NoGhost]);
    let again = play(seed, &steps(STEPS), Plant::LosesExits, true);
    assert_eq!(again.trace, found.trace, "the same seed is the same run");
    let rule = found.broken.unwrap().rule;
    let short = shrink(seed, STEPS, Plant::LosesExits, rule, Duration::from_secs(4));
    assert!(short.len() < 60, "{} steps are left", short.len());
    let played = play(seed, &short, Plant::LosesExits, true);
    assert_eq!(played.broken.unwrap().rule, rule);
    assert!(played.trace.iter().any(|line| line.starts_with("* ")), "{:?}", played.trace);
}

#[test]
fn faults_of_recovery_are_found() {
    for document in [Document::Schedules, Document::Locks, Document::Constraints] {
        finds(Plant::LosesDocument(document), &[Rule::Kept, Rule::MarkedFirst, Rule::OneRunAMinute]);
    }
}

#[test]
fn a_fault_of_rights_is_found() {
    finds(Plant::AgentsDecide, &[Rule::AgentsDecideNothing, Rule::PersonSaidYes]);
}

#[test]
fn deadlines_that_never_come_are_found() {
    finds(Plant::NoLockDeadlines, &[Rule::LocksEnd]);
}
