//! The stream parsers against what the real programs printed (`tests/data/recordings`): the activities are
//! compared with golden files, the token counts with the programs' own totals.

mod accounting;
mod bounds;
mod cases;
mod context;
mod ledger;
mod models;
mod mutations;
pub mod replay;
mod saved;
mod signals;
mod turns;
use replay::{Replay, names, read};
use std::fmt::Write as _;
use std::path::Path;

/// The activities and the writes, one a line.
fn golden(replay: &Replay) -> String {
    let mut all = String::new();
    for step in &replay.steps {
        let line = match step {
            svc::providers::Step::Event(activity) => {
                serde_json::to_string(activity).expect("an activity is JSON")
            }
            // The version of svc changes, its protocol does not.
            svc::providers::Step::Write(text) => {
                format!("> {}", text.trim_end()).replace(env!("CARGO_PKG_VERSION"), "VERSION")
            }
            svc::providers::Step::CloseInput => "> (end of input)".to_owned(),
            svc::providers::Step::Said(text) => format!("> {text}"),
        };
        writeln!(all, "{line}").expect("a string takes everything");
    }
    all
}

#[test]
fn every_recording_gives_its_golden_activities() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for name in names() {
        let path = format!("{}/{name}.events.txt", replay::FOLDER);
        let got = golden(&Replay::of(&name));
        if update {
            std::fs::write(&path, &got).expect("the golden file is written");
        } else if !Path::new(&path).exists() || read(&path) != got {
            wrong.push(format!("{name}:\n{got}"));
        }
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 rewrites these:\n{}", wrong.join("\n"));
}

/// The log of a run is read back from these lines.
#[test]
fn every_activity_survives_its_own_json() {
    for name in names() {
        for activity in Replay::of(&name).activities() {
            let json = serde_json::to_string(activity).expect("an activity is JSON");
            let back: svc::providers::Activity = serde_json::from_str(&json).expect("it reads back");
            assert_eq!(&back, activity, "{name}");
        }
    }
}
