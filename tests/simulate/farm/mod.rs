//! The farm: the whole daemon, its disk, its programs and its people, simulated from a seed. A step is a
//! stimulus of its own: it depends on the seed and its number alone, so that steps can be left out.

mod accounts;
mod chat;
mod disk;
mod faults;
pub mod invariants;
mod keepers;
mod limits;
pub mod machine;
mod people;
mod programs;
mod promises;
mod room;
mod schedule_watch;
mod shrink;
mod starts;

pub use shrink::shrink;

use crate::support::dice::Dice;
use invariants::{Broken, Rule};
use machine::{Machine, Plant, Seen};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Steps of a run, unless told.
pub const STEPS: usize = 2_000;

/// Every so many steps the rules that take longer are looked at.
const LONG_LOOK: usize = 16;

/// What a run came to.
pub struct Played {
    /// Virtual milliseconds.
    pub millis: u64,
    /// What has happened.
    pub seen: Seen,
    /// The rule that was broken, if one was.
    pub broken: Option<Broken>,
    /// What has happened, in the words of the transcripts, where it was asked for.
    pub trace: Vec<String>,
}

/// Plays these steps of a seed.
pub fn play(seed: u64, steps: &[usize], plant: Plant, is_traced: bool) -> Played {
    let mut machine = None;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let machine = machine.insert(Machine::new(seed, plant, is_traced));
        for step in steps {
            take(machine, seed, *step);
        }
        machine.dice = dice(seed, usize::MAX);
        machine.settle();
    }));
    let broken = ended.err().map(|panic| match panic.downcast::<Broken>() {
        Ok(broken) => *broken,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let how = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Broken { rule: Rule::NoPanic, how: how.unwrap_or_default() }
        }
    });
    let (mut millis, mut seen, mut trace) = (0, Seen::default(), Vec::new());
    if let Some(machine) = machine {
        (millis, seen, trace) =
            (machine.passed, machine.seen.clone(), machine.trace.clone().unwrap_or_default());
        seen.0.insert("runs of schedules", machine.watch.runs);
        seen.0.insert("late runs of schedules", machine.watch.late);
    }
    Played { millis, seen, broken, trace }
}

/// The choices of one step.
fn dice(seed: u64, step: usize) -> Dice {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (step as u64).wrapping_mul(0xd134_2543_de82_ef95);
    let mut dice = Dice::seeded(mixed ^ (mixed >> 29));
    for _ in 0..4 {
        dice.throw();
    }
    dice
}

/// One stimulus, and what the disk does meanwhile.
fn take(machine: &mut Machine, seed: u64, step: usize) {
    machine.dice = dice(seed, step);
    machine.core.reseed(machine.dice.throw());
    match machine.dice.below(200) {
        0..=44 => machine.person_acts(),
        45..=109 => {
            for _ in 0..=machine.dice.below(3) {
                machine.agent_acts();
            }
        }
        110..=118 => machine.thread_reports(),
        119..=121 => machine.looks(true),
        122..=129 => machine.server_acts(),
        130..=137 => machine.platform_acts(),
        138..=147 => machine.chat_acts(),
        148..=183 => {
            let most = if machine.dice.below(6) == 0 { 2_400_000 } else { 120_000 };
            let millis = machine.dice.below(most);
            machine.pass(millis);
        }
        184..=193 => machine.write(),
        194..=196 => machine.clock_jumps(),
        197 => machine.power_cut(),
        198 => machine.is_killed(),
        _ if machine.dice.below(2) == 0 => machine.hands_over(),
        _ => machine.shut_down(),
    }
    if machine.dice.below(3) > 0 {
        machine.write();
    }
    if machine.dies_soon {
        if machine.dice.below(2) == 0 {
            machine.power_cut();
        } else {
            machine.is_killed();
        }
    }
    if step.is_multiple_of(LONG_LOOK) {
        invariants::check_all(machine);
    }
}
