//! What a tier is suggested by, measured: twice forty tasks (`tests/data/routing` says when each was
//! written), after the outcomes of a project's earlier work and without any.

use super::outcomes::{self, Came, MAX_OUTCOMES, Outcome, judge};
use super::tests::{feed, get};
use super::tiers::said;
use crate::core::Event;
use crate::core::ids::AgentId;
use crate::core::time::Time;
use crate::programs::registry::Detection;
use crate::providers::{Activity, Tier, TurnEnd};
use crate::testing::Bench;
use crate::usage::classifier::rank;
use serde_json::{Value, json};

const LIVED: &str = include_str!("../../tests/data/routing/lived.txt");
const HELD_OUT: &str = include_str!("../../tests/data/routing/held-out.txt");
const SEEN: &str = include_str!("../../tests/data/routing/seen.txt");

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split('|').map(str::trim).collect())
}

fn tier(word: &str) -> Tier {
    match word {
        "light" => Tier::Light,
        "medium" => Tier::Medium,
        "heavy" => Tier::Heavy,
        other => panic!("{other} is no tier"),
    }
}

fn folders(place: &str) -> Vec<String> {
    [place].iter().filter(|place| !matches!(**place, "" | ".")).map(|place| (*place).to_owned()).collect()
}

fn lived() -> Vec<Outcome> {
    let one = |row: Vec<&str>| {
        let [ran, came, place, task] = row[..] else { panic!("{row:?} has four columns") };
        let came = match came {
            "well" => Came::Well,
            "red" => Came::Red,
            "corrected" => Came::Corrected,
            "replaced" => Came::Replaced,
            other => panic!("{other} is no outcome"),
        };
        let (task, places) = (task.to_owned(), folders(place));
        Outcome { lineage: None, at: Time(0), task, places, tier: tier(ran), came }
    };
    rows(LIVED).map(one).collect()
}

/// Of the held-out tasks: how many got what they need, how many a weaker tier, and each that did not.
fn measured(tasks: &str, known: &[Outcome]) -> (usize, usize, Vec<String>) {
    let (mut right, mut weaker, mut wrong) = (0, 0, Vec::new());
    for row in rows(tasks) {
        let [needs, place, task] = row[..] else { panic!("{row:?} has three columns") };
        let verdict = judge(known.iter(), task, &folders(place));
        let (given, needed) = (rank(verdict.tier), rank(tier(needs)));
        right += usize::from(given == needed);
        weaker += usize::from(given < needed);
        if given != needed {
            wrong.push(format!("{needs} -> {:?}: {task} ({})", verdict.tier, verdict.reason));
        }
    }
    (right, weaker, wrong)
}

/// The two figures by which routing may choose: where they do not hold it only suggests. What it is worth as
/// a suggestion has a floor.
#[test]
fn routing_chooses_only_if_28_of_forty_tasks_get_the_tier_they_need_and_at_most_two_a_weaker_one() {
    let mut holds = true;
    for (name, tasks) in [("held out", HELD_OUT), ("seen", SEEN)] {
        assert_eq!(rows(tasks).count(), 40);
        for (when, known) in [("after earlier work", lived()), ("in a new project", Vec::new())] {
            let (right, weaker, wrong) = measured(tasks, &known);
            println!("{name}, {when}: right {right} of 40, weaker {weaker} of 40\n{}\n", wrong.join("\n"));
            assert!(right >= 28 && weaker <= 6, "{name}, {when}: {right} right, {weaker} weaker");
            holds &= right >= 28 && weaker <= 2;
        }
    }
    assert_eq!(holds, super::routing::CHOOSES, "what is chosen is to be right often enough, else only told");
}

/// What was held out stands not among what the rules were made with.
#[test]
fn no_held_out_task_is_one_of_those_that_were_lived() {
    for row in rows(HELD_OUT).chain(rows(SEEN)) {
        assert!(lived().iter().all(|one| one.task != row[2]), "{row:?}");
    }
}

fn outcome(tier: Tier, came: Came, task: &str) -> Outcome {
    Outcome { lineage: None, at: Time(0), task: task.into(), places: Vec::new(), tier, came }
}

#[test]
fn similar_tasks_move_the_rule_and_the_reason_names_them() {
    let task = "Add a filter by status to the orders table";
    let plain = judge([].iter(), task, &[]);
    assert_eq!(plain.tier, Tier::Medium);
    assert_eq!(plain.reason, "the task says \"add\", \"table\": medium");
    // Failed with a medium model: heavier.
    let failed = [outcome(Tier::Medium, Came::Corrected, "Add a filter by date to the orders table")];
    let verdict = judge(failed.iter(), task, &[]);
    assert_eq!(verdict.tier, Tier::Heavy);
    assert!(verdict.reason.ends_with("orders table\" was corrected with a medium model"), "{verdict:?}");
    // Once well with a light model is no proof, twice is; a failure takes it back.
    let mut well = vec![outcome(Tier::Light, Came::Well, "Add a filter by country to the orders table")];
    assert_eq!(judge(well.iter(), task, &[]).tier, Tier::Medium);
    well.push(outcome(Tier::Light, Came::Well, "Add a filter by customer to the orders table"));
    let verdict = judge(well.iter(), task, &[]);
    assert_eq!(verdict.tier, Tier::Light);
    assert!(verdict.reason.contains("and 1 more like it ended well with a light model"), "{verdict:?}");
    well.push(outcome(Tier::Light, Came::Red, "Add a filter by status to the invoices table"));
    assert_eq!(judge(well.iter(), task, &[]).tier, Tier::Medium);
    // What looks easier proves nothing of what looks harder.
    let easier =
        ["status", "country"].map(|by| outcome(Tier::Medium, Came::Well, &format!("Filter orders by {by}")));
    assert_eq!(judge(easier.iter(), "Filter orders by status without a race", &[]).tier, Tier::Heavy);
    // What is about something else says nothing.
    let other = [outcome(Tier::Medium, Came::Red, "Send a mail when an order is shipped")];
    assert_eq!(judge(other.iter(), task, &[]), plain);
}

#[test]
fn words_are_known_in_their_forms_and_large_tasks_are_never_light() {
    for (task, wanted) in [
        ("Refactoring of the parser", Tier::Heavy),
        ("It deadlocks when two users save", Tier::Heavy),
        ("Die Ursache der Abstürze finden", Tier::Heavy),
        ("Fix two typos", Tier::Light),
        ("Fix a typo in the text on races", Tier::Medium),
        ("Raise the timeout of the job", Tier::Light),
        ("Show information on typography", Tier::Medium),
        ("Move all customers from one system into another", Tier::Heavy),
        ("Look around", Tier::Medium),
        ("", Tier::Medium),
    ] {
        assert_eq!(said(task, 0).tier, wanted, "{task}");
    }
    assert_eq!(said("Fix two typos", 3).tier, Tier::Medium, "in so many folders");
    assert_eq!(said(&format!("Fix two typos. {}", "And so on. ".repeat(40)), 0).tier, Tier::Medium);
    assert_eq!(said("Fix two typos", 0).reason(), "the task says \"typos\": light");
}

fn spawn(bench: &mut Bench, model: &str, prompt: &str) -> AgentId {
    let body = json!({"role": "backend", "provider": "claude-code", "model": model, "prompt": prompt});
    let (status, body) = bench.ask("POST", "/api/agents", &body);
    assert_eq!(status, 201, "{body}");
    let id = body["id"].as_str().unwrap().parse().unwrap();
    bench.apply(Event::Run(id, crate::agents::report::RunReport::Started { pid: 1, start_ticks: 1 }));
    id
}

fn run(bench: &mut Bench, id: AgentId, command: &str, error: bool) {
    let (call, output) = ("c".to_owned(), String::new());
    let started = Activity::ToolStarted {
        id: call.clone(),
        name: "Bash".into(),
        input: json!({"command": command}),
        path: None,
        writes: false,
    };
    let ended = Activity::ToolEnded { id: call, error, output };
    feed(bench, id, vec![started, ended, Activity::TurnEnded(TurnEnd::default())]);
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.apply(Event::Detected([Detection::installed("claude-code", "1")].into()));
    bench
}

fn came(bench: &Bench) -> Vec<(Tier, Came)> {
    bench.state.outcomes.known().iter().map(|one| (one.tier, one.came)).collect()
}

#[test]
fn what_came_of_an_agent_is_kept_with_its_tier() {
    let mut bench = bench();
    let well = spawn(&mut bench, "claude-haiku-5-5", "Fix a typo");
    run(&mut bench, well, "cargo test", true);
    run(&mut bench, well, "cargo test", false);
    bench.exits(well, 0);
    let red = spawn(&mut bench, "claude-sonnet-5-5", "Add a page");
    run(&mut bench, red, "npm test", true);
    run(&mut bench, red, "ls", false);
    bench.exits(red, 0);
    assert_eq!(came(&bench), [(Tier::Light, Came::Well), (Tier::Medium, Came::Red)]);
    // A person says that it is wrong: what was well is not any more, and goes on with a stronger model.
    let path = format!("/api/agents/{well}");
    bench.ask("PATCH", &path, &json!({"model": "claude-opus-5-5"}));
    let message = json!({"message": "No, that is wrong: revert that"});
    let (status, body) = bench.ask("POST", &format!("{path}/instruct"), &message);
    assert_eq!(status, 200, "{body}");
    assert_eq!(came(&bench)[1], (Tier::Light, Came::Corrected));
    let next = body["id"].as_str().or(body["agentId"].as_str()).unwrap_or_default().parse().unwrap();
    bench.apply(Event::Run(next, crate::agents::report::RunReport::Started { pid: 2, start_ticks: 2 }));
    run(&mut bench, next, "cargo test", false);
    bench.exits(next, 0);
    let all = came(&bench);
    assert!(all.contains(&(Tier::Light, Came::Corrected)), "what was wrong stays wrong: {all:?}");
    assert!(all.contains(&(Tier::Heavy, Came::Well)), "{all:?}");
    let counts = &get(&mut bench, "/api/routing")["outcomes"];
    assert_eq!(counts["light"], json!({"well": 0, "notWell": 1}));
    // A failure of its program says nothing of the model.
    let crashed = spawn(&mut bench, "claude-haiku-5-5", "Fix another typo");
    bench.exits(crashed, 1);
    assert_eq!(came(&bench).len(), all.len());
}

#[test]
fn a_task_can_be_asked_about() {
    let mut bench = bench();
    let task = "/api/routing/suggestion?provider=claude-code&task=";
    let body = get(&mut bench, &format!("{task}Fix%20a%20typo"));
    assert_eq!(
        (&body["suggestedTier"], &body["suggestedModel"]["id"]),
        (&json!("light"), &json!("claude-haiku-5-5"))
    );
    assert!(body["reason"].as_str().unwrap().contains("the task says \"typo\": light"), "{body}");
    assert_eq!(get(&mut bench, &format!("{task}Fix%20a%20typo&role=security"))["suggestedTier"], "medium");
    assert_eq!(bench.ask("GET", task, &Value::Null).0, 400, "without a task");
    assert_eq!(bench.ask("GET", "/api/routing/suggestion?provider=nobody&task=x", &Value::Null).0, 400);
}

#[test]
fn outcomes_are_bounded_last_over_a_restart_and_the_oldest_goes() {
    let mut bench = bench();
    let one = |n: usize| Outcome { task: format!("Fix typo {n}"), ..outcome(Tier::Light, Came::Well, "") };
    let many: Vec<Outcome> = (0..MAX_OUTCOMES + 2).map(one).collect();
    let stored = json!({"version": outcomes::STORED_VERSION, "outcomes": many});
    bench.state.outcomes = outcomes::State::restore(serde_json::from_value(stored).unwrap()).into();
    let last = spawn(&mut bench, "claude-haiku-5-5", "Fix the last typo");
    bench.exits(last, 0);
    let known = bench.state.outcomes.known();
    assert_eq!((known.len(), known[0].task.as_str()), (MAX_OUTCOMES, "Fix typo 3"));
    assert_eq!(known[MAX_OUTCOMES - 1].task, "Fix the last typo");
    let stored = serde_json::to_vec(&bench.state.outcomes.stored()).unwrap();
    let restored = outcomes::State::restore(serde_json::from_slice(&stored).unwrap());
    assert_eq!(restored.known(), known);
}
