//! What is learned of logs: nothing but lessons of the sample sessions (`tests/recall/mined.txt`), and
//! nothing at all of the recordings of real programs, in which nobody learns anything.

use super::records;
use crate::recordings::replay::{Replay, names, provider_of};
use serde_json::json;
use std::collections::BTreeMap;
use svc::agents::report::LogEntry;
use svc::context::brief::{Facts, Reader};
use svc::providers::Activity;

const SAMPLE: &str = include_str!("../../recall/mined.txt");
/// Of a hundred things that are learned, so many may be none.
const NOISE_PERCENT: usize = 15;
/// Lessons of the sample that may be missed.
const MISSED_MAX: usize = 1;

/// `trigger -> fix` of all that a log teaches.
fn learned(log: &[LogEntry]) -> Vec<String> {
    let facts = Facts::default();
    let mut reader = Reader::new(&facts);
    for record in &records(log) {
        reader.take(record);
    }
    reader.learned().map(|one| format!("{} -> {}", one.trigger, one.fix)).collect()
}

/// A session of the sample as a log, and its lessons.
fn session(text: &str) -> (Vec<LogEntry>, Vec<&str>) {
    let (mut log, mut lessons, mut call) = (Vec::new(), Vec::new(), 0);
    let mut add = |activity: Activity| log.push(LogEntry::Activity(activity));
    for line in text.lines() {
        let Some(mark) = line.chars().next() else { continue };
        let rest = line[1..].trim();
        let lines = rest.replace(" | ", "\n");
        match mark {
            '$' => {
                call += 1;
                let (id, name, input) = (call.to_string(), "Bash".to_owned(), json!({"command": rest}));
                add(Activity::ToolStarted { id, name, input, path: None, writes: false });
            }
            '!' | '.' => add(Activity::ToolEnded { id: call.to_string(), error: mark == '!', output: lines }),
            '~' => {
                let (id, path) = (format!("w{call}"), Some(rest.to_owned()));
                let input = json!({"file_path": rest, "new_string": "x"});
                add(Activity::ToolStarted { id: id.clone(), name: "Edit".into(), input, path, writes: true });
                add(Activity::ToolEnded { id, error: false, output: "ok".into() });
            }
            '>' => add(Activity::Text { text: rest.to_owned() }),
            '=' => lessons.push(rest),
            other => panic!("{other} begins no line of the sample"),
        }
    }
    (log, lessons)
}

fn is_lesson(told: &str, lesson: &str) -> bool {
    let (trigger, fix) = lesson.split_once(" -> ").expect("a lesson has a fix");
    let (failed, helped) = told.split_once(" -> ").expect("so has what was learned");
    trigger.split("; ").all(|part| failed.contains(part)) && helped.contains(fix)
}

#[test]
fn of_the_sample_sessions_the_lessons_are_learned_and_no_noise() {
    let (mut wanted, mut found, mut told, mut noise, mut missed) = (0, 0, 0, Vec::new(), Vec::new());
    for text in SAMPLE.split("## ").skip(1) {
        let (name, text) = text.split_once('\n').expect("a name and a session");
        let (log, lessons) = session(text);
        let all = learned(&log);
        wanted += lessons.len();
        told += all.len();
        let is_found = |lesson: &&&str| all.iter().any(|one| is_lesson(one, lesson));
        found += lessons.iter().filter(is_found).count();
        missed.extend(
            lessons.iter().filter(|lesson| !is_found(lesson)).map(|lesson| format!("{lesson}: {all:?}")),
        );
        let is_noise = |one: &&String| !lessons.iter().any(|lesson| is_lesson(one, lesson));
        noise.extend(all.iter().filter(is_noise).map(|one| format!("{name}: {one}")));
    }
    println!(
        "lessons {found} of {wanted}; learned {told}, of it noise {}\n{}",
        noise.len(),
        noise.join("\n")
    );
    println!("missed: {missed:#?}");
    assert!(found + MISSED_MAX >= wanted, "{missed:#?}");
    assert!(noise.len() * 100 <= told * NOISE_PERCENT, "{noise:#?}");
}

/// All recordings of a program, one behind the other, as the log of one agent has them.
#[test]
fn of_what_real_programs_printed_nothing_is_learned() {
    let mut logs: BTreeMap<String, Vec<LogEntry>> = BTreeMap::new();
    for name in names() {
        let activities = Replay::of(&name).activities().cloned().map(LogEntry::Activity).collect::<Vec<_>>();
        let program = name.split('-').next().unwrap_or_default().to_owned();
        assert!(!provider_of(&name).is_empty());
        logs.entry(program).or_default().extend(activities);
    }
    let told: Vec<String> = logs
        .iter()
        .flat_map(|(program, log)| learned(log).into_iter().map(move |one| format!("{program}: {one}")))
        .collect();
    println!("{} programs, learned {}\n{}", logs.len(), told.len(), told.join("\n"));
    assert_eq!(told, [""; 0]);
}
