//! What the fuzzer begins with, and some thousand mutations of it by dice, given to its targets: no coverage
//! leads these, but each build has them. `make fuzz` is the real thing.

#[path = "../fuzz/targets.rs"]
mod targets;

use crate::support::dice::Dice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Mutations for each target; state files cost a folder each.
const MUTATIONS: usize = 1_500;
/// A target that is slow has fewer.
const TIME: Duration = Duration::from_secs(4);

/// One seed with something changed, doubled, cut, or put together with another.
fn mutated(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = dice.pick(seeds).unwrap_or_default();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        match dice.roll(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, u8::try_from(dice.roll(256)).unwrap()),
            2 if !bytes.is_empty() => bytes[at] ^= 1 << dice.roll(8),
            3 => {
                let end = (at + dice.roll(40)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let other = dice.pick(seeds).unwrap_or_default();
                bytes.truncate(at);
                bytes.extend(&other[dice.roll(other.len())..]);
            }
            5 => drop(bytes.drain(at..(at + dice.roll(20)).min(bytes.len()))),
            _ => {
                let end = at + bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(at..end, *b"18446744073709551615");
            }
        }
    }
    bytes
}

#[test]
fn no_target_of_the_fuzzer_breaks_on_its_seeds_and_mutations_of_them() {
    let mut broken = Vec::new();
    for target in targets::targets() {
        let seeds = target.seeds();
        assert!(seeds.iter().any(|seed| seed.len() > 3), "{} has no seeds", target.name);
        let mut dice = Dice::seeded(16);
        let began = Instant::now();
        let mutations =
            (0..MUTATIONS).map_while(|_| (began.elapsed() < TIME).then(|| mutated(&seeds, &mut dice)));
        for input in seeds.iter().cloned().chain(mutations) {
            if catch_unwind(AssertUnwindSafe(|| target.run(&input))).is_err() {
                broken.push(format!("{}: {:?}", target.name, String::from_utf8_lossy(&input)));
                break;
            }
        }
    }
    targets::clean();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What others had better not have to say twice: each was found by a person or by the fuzzer.
#[test]
fn what_was_found_once_is_not_found_again() {
    let found: [(&str, &[u8]); 3] = [
        (
            "chat-telegram",
            br#"{"update_id":9223372036854775807,"message":{"date":18446744073709551615,"from":{"id":1},
            "chat":{"id":1,"type":"private"},"text":"/help"}}"#,
        ),
        ("globs", b"./.\tdocs/x\tdocs/[a-z]*"),
        ("globs", b"docs\tdocs/x\tdocs/x"),
    ];
    let targets = targets::targets();
    for (name, input) in found {
        let target = targets.iter().find(|target| target.name == name).expect("a target of that name");
        let line: Vec<u8> = input.iter().copied().filter(|byte| *byte != b'\n').collect();
        target.run(&line);
    }
    targets::clean();
}
