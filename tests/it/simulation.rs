//! A sample of the farm of tests/simulate: the whole daemon with its disk, programs and people on a virtual
//! clock. `make simulate` plays it for as long as you like; a rule that is broken names its seed.

use crate::farm::invariants::Rule;
use crate::farm::machine::{Plant, Seen};
use crate::farm::{Played, play, shrink};
use std::time::Duration;
use svc::core::Document;

/// Seeds of a usual run; `SVC_SEEDS=2000` searches longer.
const SEEDS: u64 = 8;
/// Steps of each.
const STEPS: usize = 500;
/// Seeds within which a planted fault must be found.
const PLANTED_SEEDS: u64 = 12;
/// The same for what takes an order, a kill and another order in one moment.
const RARE_SEEDS: u64 = 150;

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
    for what in ["ends in good order", "ends that leave the agents at work"] {
        assert!(seen.0.contains_key(what), "{what} are missing: {seen:?}");
    }
    let often =
        ["power cuts", "kills of the daemon", "runs gone on with", "checkpoints", "jumps of the clock"];
    for what in often.into_iter().chain(["rounds the disk refused", "messages to programs"]) {
        assert!(seen.0.get(what).is_some_and(|count| *count > 4), "{what} are rare: {seen:?}");
    }
    let common = ["lives", "runs of schedules", "changes acknowledged", "decisions", "commands of chats"];
    let limits = ["agents held at limits", "agents that went on behind a limit"];
    let room = ["agents that waited for room", "agents let in from the line"];
    let accounts = ["starts with an account", "accounts that were chosen for somebody"];
    let rare = ["starts made again by the next daemon"];
    for what in common.into_iter().chain(limits).chain(room).chain(accounts).chain(rare) {
        assert!(seen.0.get(what).is_some_and(|count| *count > 8), "{what} are rare: {seen:?}");
    }
}

/// The first seed that finds a planted fault, and how.
fn finds(plant: Plant, rules: &[Rule]) -> (u64, Played) {
    let seeds = if plant == Plant::SaysAgain { RARE_SEEDS } else { PLANTED_SEEDS };
    for seed in 0..seeds {
        let played = play(seed, &steps(STEPS), plant, true);
        let Some(broken) = &played.broken else { continue };
        assert!(rules.contains(&broken.rule), "{plant:?} was found as something else: {broken}");
        eprintln!("{plant:?}: seed {seed}");
        return (seed, played);
    }
    panic!("{seeds} seeds have not found {plant:?}")
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
fn an_order_that_is_given_again_after_a_kill_is_found() {
    finds(Plant::SaysAgain, &[Rule::OrderOnce]);
}

#[test]
fn who_waits_for_room_and_is_let_in_wrongly_is_found() {
    finds(Plant::InventsRoom, &[Rule::RoomFirst]);
    // Where the others have gone on meanwhile, who jumps the queue passes nobody, and only has no room.
    let is_found = |seed| match play(seed, &steps(STEPS), Plant::JumpsQueue, true).broken {
        Some(broken) if broken.rule == Rule::RoomFirst => false,
        broken => broken.is_some_and(|broken| broken.rule == Rule::QueueInTurn || panic!("{broken}")),
    };
    assert!((0..PLANTED_SEEDS).any(is_found), "nobody was seen to jump the queue");
    finds(Plant::StartsEarly, &[Rule::QueuedOnce]);
}

#[test]
fn a_login_that_was_not_named_is_found() {
    finds(Plant::SwapsAccounts, &[Rule::OwnAccount]);
    finds(Plant::TakesAnyAccount, &[Rule::RoomiestAccount]);
}

#[test]
fn a_start_that_is_made_twice_or_never_is_found() {
    finds(Plant::ForgetsBegun, &[Rule::StartsOnce]);
    finds(Plant::ForgetsOrders, &[Rule::StartsOnce]);
}

#[test]
fn a_fault_of_rights_is_found() {
    finds(Plant::AgentsDecide, &[Rule::AgentsDecideNothing, Rule::PersonSaidYes]);
}

#[test]
fn deadlines_that_never_come_are_found() {
    finds(Plant::NoLockDeadlines, &[Rule::LocksEnd]);
}
