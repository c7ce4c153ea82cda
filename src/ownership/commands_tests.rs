//! Writes of commands: who is told of, and how sure.

use super::commands::{Change, Looked, Order};
use super::tests::{bench, hear, id, pending, spawn, writes};
use crate::agents;
use crate::core::time::Time;
use crate::core::{Effect, Event};
use crate::providers::{Activity, Permission, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::time::Duration;

fn started(call: &str, command: &str) -> Activity {
    let input = json!({"command": command});
    Activity::ToolStarted { id: call.into(), name: "Bash".into(), input, path: None, writes: false }
}

fn ended(call: &str) -> Activity {
    Activity::ToolEnded { id: call.into(), error: false, output: String::new() }
}

fn pass(bench: &mut Bench, milliseconds: u64) {
    bench.pass(Duration::from_millis(milliseconds));
}

/// The looks ordered since the last call.
fn looks(bench: &mut Bench) -> Vec<Order> {
    let mut found = Vec::new();
    bench.effects.retain(|effect| match effect {
        Effect::Ownership(order) => {
            found.push(order.clone());
            false
        }
        _ => true,
    });
    found
}

fn changed(path: &str, at: Time) -> Change {
    Change { path: path.into(), from: at, to: at, gone: false }
}

/// The thread answers a look: these files have changed. Then it rests until it is judged.
fn sees(bench: &mut Bench, changes: Vec<Change>) {
    let now = bench.now;
    let looked = Looked { began: now, ended: now, changes, more: 0, is_cut: false, files: Vec::new() };
    bench.apply(Event::Ownership(Some(looked)));
    pass(bench, 1_100);
}

/// `name` runs a command of one second during which `file` changes.
fn runs(bench: &mut Bench, name: &str, command: &str, file: &str) {
    hear(bench, name, vec![started("c1", command)]);
    pass(bench, 500);
    let at = bench.now;
    pass(bench, 500);
    hear(bench, name, vec![ended("c1")]);
    pass(bench, 400);
    assert!(!looks(bench).is_empty(), "owners' files are looked at");
    sees(bench, vec![changed(file, at)]);
}

fn conflicts(bench: &mut Bench) -> Vec<Value> {
    bench.ask("GET", "/api/conflicts", &Value::Null).1["conflicts"].as_array().unwrap().clone()
}

#[test]
fn decisions_10_a_command_that_writes_into_anothers_scope_is_a_conflict_and_a_question() {
    let mut bench = bench();
    runs(&mut bench, "web", "echo hi > ../api/shell.txt", "api/shell.txt");
    let told = bench.notices("conflict:detected");
    let data = &told[0]["data"];
    assert_eq!((&data["agentName"], &data["ownerName"]), (&json!("web"), &json!("api")));
    assert_eq!((&data["filePath"], &data["certainty"]), (&json!("api/shell.txt"), &json!("likely")));
    let asked = pending(&mut bench);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["action"]["certainty"], "likely");
    assert!(asked[0]["action"]["description"].as_str().unwrap().contains("likely"), "{asked:?}");
    assert_eq!(asked[0]["agentName"], "web");
    // Seen once more by the next look, it is the same change.
    runs(&mut bench, "web", "cat ../api/shell.txt", "api/other.txt");
    assert_eq!(bench.notices("conflict:detected").len(), 2);
}

#[test]
fn decisions_10_a_change_while_no_command_runs_is_nobodys() {
    let mut bench = bench();
    hear(&mut bench, "web", vec![started("c1", "sed -i s/a/b/ api/a.rs"), ended("c1")]);
    pass(&mut bench, 10_000);
    looks(&mut bench);
    let at = bench.now;
    hear(&mut bench, "web", vec![Activity::Text { text: "thinking".into() }]);
    sees(&mut bench, vec![changed("api/a.rs", at)]);
    assert!(conflicts(&mut bench).is_empty() && pending(&mut bench).is_empty());
}

#[test]
fn decisions_10_who_wrote_is_unknown_where_no_command_names_the_file_or_several_may_have() {
    let mut bench = bench();
    runs(&mut bench, "web", "npm run build", "api/gen.rs");
    spawn(&mut bench, "ops", "ops/**", Permission::Auto);
    hear(&mut bench, "ops", vec![started("o1", "make -C api")]);
    runs(&mut bench, "web", "touch api/x.rs", "api/x.rs");
    let told = bench.notices("conflict:detected");
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(
        (&told[0]["data"]["agentName"], &told[0]["data"]["certainty"]),
        (&json!("web"), &json!("unknown"))
    );
    assert_eq!(told[1]["data"]["agentName"], "web or ops");
    assert_eq!(told[1]["data"]["agentId"], json!(null));
    assert!(pending(&mut bench).is_empty(), "nobody is accused");
    assert_eq!(conflicts(&mut bench)[0]["certainty"], "unknown");
}

#[test]
fn decisions_10_owners_tools_and_the_daemon_itself_are_no_trespass() {
    let mut bench = bench();
    for (name, file) in [("api", "api/a.rs"), ("web", "web/a.css"), ("web", "SVC_PROJECT_MAP.md")] {
        hear(&mut bench, "free", vec![started("f1", "sleep 100")]);
        runs(&mut bench, name, &format!("touch {file}"), file);
        hear(&mut bench, "free", vec![ended("f1")]);
    }
    assert!(conflicts(&mut bench).is_empty());
    // A write tool tells it by itself: once.
    hear(&mut bench, "web", vec![started("c2", "cat api/b.rs")]);
    writes(&mut bench, "web", "api/b.rs", false);
    let at = bench.now;
    hear(&mut bench, "web", vec![ended("c2")]);
    pass(&mut bench, 400);
    sees(&mut bench, vec![changed("api/b.rs", at)]);
    let told = bench.notices("conflict:detected");
    assert_eq!((told.len(), &told[0]["data"]["certainty"]), (1, &json!("sure")));
}

#[test]
fn a_call_that_is_told_when_it_is_over_counts_from_the_agents_last_sign_of_life() {
    let mut bench = bench();
    pass(&mut bench, 5_000);
    let at = bench.now;
    pass(&mut bench, 500);
    hear(&mut bench, "web", vec![started("c1", "rm api/old.rs"), ended("c1")]);
    pass(&mut bench, 10);
    looks(&mut bench);
    let until = bench.now;
    let gone = Change { path: "api/old.rs".into(), from: at, to: until, gone: true };
    sees(&mut bench, vec![gone]);
    assert_eq!(bench.notices("conflict:detected")[0]["data"]["certainty"], "likely");
}

#[test]
fn looks_are_ordered_only_where_there_is_something_to_own_and_rest_between() {
    let mut bench = bench();
    hear(&mut bench, "web", vec![started("c1", "sleep 60")]);
    pass(&mut bench, 10);
    let first = looks(&mut bench);
    assert_eq!((first.len(), &first[0].roots), (1, &vec!["api".to_owned()]));
    for _ in 0..10 {
        pass(&mut bench, 1_000);
        hear(&mut bench, "web", vec![started("c2", "true"), ended("c2")]);
    }
    assert!(looks(&mut bench).is_empty(), "one look at a time");
    sees(&mut bench, Vec::new());
    assert_eq!(looks(&mut bench).len(), 1);
    let api = id(&bench, "api");
    bench.exits(api, 0);
    sees(&mut bench, Vec::new());
    looks(&mut bench);
    pass(&mut bench, 60_000);
    assert!(looks(&mut bench).is_empty(), "nobody else owns anything");
}

#[test]
fn a_burst_of_files_is_told_in_part_and_counted() {
    let mut bench = bench();
    hear(&mut bench, "web", vec![started("c1", "git checkout api")]);
    pass(&mut bench, 100);
    let at = bench.now;
    let files = (0..200).map(|n| changed(&format!("api/{n}.rs"), at)).collect();
    looks(&mut bench);
    sees(&mut bench, files);
    let told = bench.notices("conflict:detected").len();
    assert!((1..=20).contains(&told), "{told}");
    assert_eq!(bench.audited("ownership.more")[0]["files"], 180);
}

#[test]
fn a_rejected_write_that_stays_in_place_is_told() {
    let mut bench = bench();
    writes(&mut bench, "web", "api/i.js", false);
    let asked = pending(&mut bench)[0]["id"].as_str().unwrap().to_owned();
    let written = bench.now;
    pass(&mut bench, 1_000);
    bench.ask("POST", &format!("/api/approvals/{asked}/reject"), &json!({}));
    looks(&mut bench);
    let end = Activity::TurnEnded(TurnEnd::default());
    hear(&mut bench, "web", vec![end.clone()]);
    pass(&mut bench, 400);
    let order = looks(&mut bench).pop().expect("a look");
    assert_eq!(order.files, ["api/i.js"]);
    let answer = |bench: &mut Bench, at: Option<Time>| {
        let (now, files) = (bench.now, vec![("api/i.js".to_owned(), at)]);
        let looked = Looked { began: now, ended: now, changes: Vec::new(), more: 0, is_cut: false, files };
        bench.apply(Event::Ownership(Some(looked)));
    };
    answer(&mut bench, Some(written));
    assert_eq!(bench.notices("conflict:unresolved")[0]["data"]["filePath"], "api/i.js");
    assert_eq!(conflicts(&mut bench)[0]["afterRejection"], "in place");
    hear(&mut bench, "web", vec![end]);
    pass(&mut bench, 400);
    answer(&mut bench, None);
    assert_eq!(conflicts(&mut bench)[0]["afterRejection"], "changed");
    assert_eq!(bench.notices("conflict:unresolved").len(), 1);
    let said = |effect: &Effect| matches!(effect, Effect::Run(_, agents::RunOrder::Say { text, .. }) if text.contains("Undo that change"));
    assert!(bench.effects.iter().any(said), "and its agent was told to undo it");
}
