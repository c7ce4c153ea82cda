//! `make simulate HOURS=10000`: the farm, on every core, for so many virtual hours. `SEED=7 STEPS=120` plays
//! that seed again, and tells what has happened.

#[path = "../support/dice.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod dice;
#[allow(dead_code, reason = "shared with the tests")]
mod farm;
#[path = "../support/world.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod world;

/// As the tests have it.
mod support {
    pub(crate) use super::{dice, world};
}

use farm::invariants::Broken;
use farm::machine::{Plant, Seen};
use farm::{Played, STEPS, play, shrink};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A failing trace is made short for so long.
const SHRINKING: Duration = Duration::from_secs(60);
const HOUR_MS: f64 = 3_600_000.0;

/// What all threads have found.
#[derive(Default)]
struct Found {
    millis: u64,
    runs: u64,
    seen: Seen,
    broken: Option<(u64, usize, Broken)>,
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.trim().parse().ok())
}

fn main() -> ExitCode {
    // A broken rule is told once, at the end, with what reproduces it.
    std::panic::set_hook(Box::new(|panic| {
        let is_rule = panic.payload().is::<Broken>();
        if let Some(place) = panic.location().filter(|_| !is_rule) {
            eprintln!("# stopped at {place}");
        }
    }));
    if let Some(seed) = variable("SEED") {
        let steps = variable("STEPS").map_or(STEPS, |steps| usize::try_from(steps).unwrap_or(STEPS));
        return again(seed, steps);
    }
    let hours = variable("HOURS").unwrap_or(100);
    let first = variable("FIRST").unwrap_or(0);
    search(first, hours)
}

/// Plays seeds until so many hours have passed, or a rule is broken.
fn search(first: u64, hours: u64) -> ExitCode {
    let found = Mutex::new(Found::default());
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let steps: Vec<usize> = (0..STEPS).collect();
                    let played = play(seed, &steps, Plant::Nothing, false);
                    let mut found = found.lock().unwrap();
                    found.millis += played.millis;
                    found.runs += 1;
                    found.seen.add(&played.seen);
                    if let Some(broken) = played.broken
                        && found.broken.is_none()
                    {
                        found.broken = Some((seed, steps_until(seed), broken));
                    }
                    let enough = found.millis / 3_600_000 >= hours;
                    if enough || found.broken.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    let passed = u32::try_from(found.millis / 1000).map_or(f64::MAX, f64::from) * 1000.0 / HOUR_MS;
    println!("{passed:.0} hours in {seconds:.0} s, {} seeds of {STEPS} steps, {threads} threads", found.runs);
    for (what, count) in &found.seen.0 {
        println!("  {count:>9} {what}");
    }
    match found.broken {
        None => ExitCode::SUCCESS,
        Some((seed, steps, broken)) => {
            println!("BROKEN {broken}");
            println!("make simulate SEED={seed} STEPS={steps}");
            ExitCode::FAILURE
        }
    }
}

/// The least number of first steps that break a rule.
fn steps_until(seed: u64) -> usize {
    let (mut well, mut bad) = (0, STEPS);
    while well + 1 < bad {
        let middle = usize::midpoint(well, bad);
        let steps: Vec<usize> = (0..middle).collect();
        let breaks = play(seed, &steps, Plant::Nothing, false).broken.is_some();
        if breaks { bad = middle } else { well = middle }
    }
    bad
}

/// Plays a seed again and tells what has happened, in as few steps as were found.
fn again(seed: u64, steps: usize) -> ExitCode {
    let all: Vec<usize> = (0..steps).collect();
    let Played { broken, .. } = play(seed, &all, Plant::Nothing, false);
    let Some(broken) = broken else {
        println!("seed {seed}: {steps} steps, no rule is broken");
        return ExitCode::SUCCESS;
    };
    let short = shrink(seed, steps, Plant::Nothing, broken.rule, SHRINKING);
    let played = play(seed, &short, Plant::Nothing, true);
    for line in &played.trace {
        println!("{line}");
    }
    println!("# {} of {steps} steps are enough: {short:?}", short.len());
    println!("BROKEN {}", played.broken.unwrap_or(broken));
    println!("make simulate SEED={seed} STEPS={steps}");
    ExitCode::FAILURE
}
