//! Transcripts: text scripts of wishes and facts, with everything the core answers, tells and orders.
//! They run on the pure core, without a thread, socket or clock.
//!
//! ```text
//! > POST /api/agents {"role":"backend","provider":"script"}     a wish
//! * backend-1 started                                           a fact about a run
//! + 10m                                                         time passes
//! < 201 {...}   ~ {"type":...}   ! start backend-1              what comes of it
//! ```
//! `show a,b` limits the fields shown of agent records. `UPDATE_EXPECT=1` rewrites the files.

use crate::support::world::World;
use std::fs;
use std::path::PathBuf;

#[test]
fn transcripts_tell_what_the_core_does() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/transcripts");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are no transcripts");
    let mut wrong = Vec::new();
    for path in paths {
        let expected = fs::read_to_string(&path).unwrap();
        let actual = replay(&expected);
        if actual == expected {
            continue;
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, actual).unwrap();
        } else {
            wrong.push(format!("{}:\n{}", path.display(), first_difference(&expected, &actual)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Runs the inputs of a script and returns it with the outputs that came.
fn replay(script: &str) -> String {
    let mut world = World::new();
    let mut out = String::new();
    for line in script.lines() {
        if line.starts_with(['<', '~', '!']) {
            continue;
        }
        out.push_str(line);
        out.push('\n');
        let told = match line.split_once(' ') {
            Some((">", rest)) => world.wish(rest),
            Some(("*", rest)) => world.fact(rest),
            Some(("+", rest)) => world.pass(rest),
            Some(("show", rest)) => world.show(rest),
            _ => Vec::new(),
        };
        for line in told {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

fn first_difference(expected: &str, actual: &str) -> String {
    let pair = expected.lines().zip(actual.lines()).enumerate().find(|(_, (a, b))| a != b);
    match pair {
        Some((n, (a, b))) => format!("line {}\n  expected {a}\n  actual   {b}", n + 1),
        None => format!("{} lines expected, {} came", expected.lines().count(), actual.lines().count()),
    }
}
