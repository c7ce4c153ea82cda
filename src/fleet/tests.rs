//! What is made of what other projects tell.

use super::*;
use crate::core::Event;
use crate::core::time::Time;
use crate::testing::Bench;
use crate::usage;
use serde_json::{Value, json};

const DAY_MS: u64 = 86_400_000;
const MIB: u64 = 1 << 20;

fn day(bench: &Bench) -> u64 {
    bench.now.0 / DAY_MS
}

fn project(name: &str, is_running: bool, spent: Spent, needs: Needs) -> Project {
    let told = Told { version: VERSION, spent, needs, windows: Vec::new() };
    Project { name: name.into(), is_running, told: Some(told) }
}

fn spent(day: u64, usd: f64) -> Spent {
    Spent { day, usd, warned: 0 }
}

fn heard(bench: &mut Bench, budget: Budget, projects: Vec<Project>, trouble: Option<&str>) {
    let others = Others { budget, projects, trouble: trouble.map(Into::into) };
    bench.apply(Event::Fleet(Report::Heard(Arc::new(others))));
}

fn spawned(bench: &mut Bench, name: &str) -> (u16, Value) {
    bench.ask("POST", "/api/agents", &json!({"role": "dev", "name": name, "provider": "script"}))
}

fn refusal(bench: &mut Bench) -> String {
    let (status, body) = spawned(bench, "refused");
    assert_eq!((status, &body["code"]), (409, &json!("budget")), "{body}");
    body["error"].as_str().unwrap().to_owned()
}

#[test]
fn what_all_projects_have_spent_counts_whether_their_daemons_run_or_not() {
    let mut bench = Bench::new();
    let today = day(&bench);
    let projects = |shop: f64, blog: f64, before: f64| {
        vec![
            project("shop", true, spent(today, shop), Needs::default()),
            project("blog", false, spent(today, blog), Needs::default()),
            project("old", false, spent(today - 1, before), Needs::default()),
        ]
    };
    heard(&mut bench, Budget::None, projects(900.0, 900.0, 900.0), None);
    assert_eq!(spawned(&mut bench, "a").0, 201, "there is no budget");
    heard(&mut bench, Budget::Usd(10.0), projects(5.0, 4.99, 900.0), None);
    assert_eq!(spawned(&mut bench, "b").0, 201, "what was spent yesterday counts no more");
    heard(&mut bench, Budget::Usd(10.0), projects(5.0, 5.0, 0.0), None);
    let text = refusal(&mut bench);
    assert!(text.contains("$10.00") && text.contains("safety.dailyBudgetAllUsd"), "{text}");
    // Another day, with the same files.
    bench.now = Time(bench.now.0 + DAY_MS);
    assert_eq!(spawned(&mut bench, "c").0, 201);
    // A clock that is ahead: it was spent.
    heard(
        &mut bench,
        Budget::Usd(10.0),
        vec![project("shop", true, spent(today + 9, 10.0), Needs::default())],
        None,
    );
    refusal(&mut bench);
}

#[test]
fn what_is_not_known_lets_nothing_start_where_there_is_a_budget() {
    let mut bench = Bench::new();
    heard(&mut bench, Budget::None, Vec::new(), Some("shop.told is damaged"));
    assert_eq!(spawned(&mut bench, "a").0, 201);
    heard(&mut bench, Budget::Usd(10.0), Vec::new(), Some("shop.told is damaged"));
    assert!(refusal(&mut bench).contains("shop.told is damaged"));
    heard(&mut bench, Budget::Unknown("config.json: no JSON".into()), Vec::new(), None);
    assert!(refusal(&mut bench).contains("config.json: no JSON"));
    heard(&mut bench, Budget::Usd(10.0), Vec::new(), None);
    assert_eq!(spawned(&mut bench, "b").0, 201);
}

#[test]
fn what_is_under_way_elsewhere_counts_as_long_as_its_daemon_runs() {
    let mut bench = Bench::new();
    let price = json!({"input": 5.0, "output": 25.0, "cacheRead": 0.5, "cacheCreation": 6.25});
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"models": {"dear": {"price": price}}})).0, 200);
    bench.agent_like(crate::agents::SpawnRequest {
        role: "dev".into(),
        name: Some("dev".into()),
        provider: Some("script".into()),
        model: Some("dear".into()),
        ..crate::agents::SpawnRequest::default()
    });
    let (today, now) = (day(&bench), bench.now);
    let needs = Needs { under_way_usd: 3.0, turn_usd: 1.0, ..Needs::default() };
    let one = |is_running| vec![project("shop", is_running, spent(today, 8.5), needs)];
    heard(&mut bench, Budget::Usd(10.0), one(true), None);
    let why = usage::budget::outrun(&bench.state, now).unwrap();
    assert!(why.contains("all projects"), "{why}");
    heard(&mut bench, Budget::Usd(10.0), one(false), None);
    assert_eq!(usage::budget::outrun(&bench.state, now), None, "nobody knows what became of it");
    heard(&mut bench, Budget::Usd(11.0), one(true), None);
    assert_eq!(usage::budget::outrun(&bench.state, now), None, "one turn beyond is let end");
}

#[test]
fn memory_that_others_may_still_come_to_use_is_not_given_twice() {
    use crate::governor::{self, GUESS_SCRIPTED};
    let mut bench = Bench::new();
    let machine = |free: u64| {
        let machine = svc_base::machine::Machine {
            memory_total: 512 * MIB,
            memory_free: free,
            cpus: 2,
            ..svc_base::machine::Machine::default()
        };
        Arc::new(machine)
    };
    let needs = |promised| Needs { running: 1, promised, ..Needs::default() };
    let one = |is_running, promised| vec![project("shop", is_running, Spent::default(), needs(promised))];
    let free = 64 * MIB + GUESS_SCRIPTED;
    let look = |bench: &mut Bench, alone: bool| {
        let report = if alone {
            governor::Report::LookedAlone(machine(free), None)
        } else {
            governor::Report::Looked(machine(free), None)
        };
        bench.apply(Event::Governor(report));
    };
    let state = |bench: &mut Bench, name: &str| {
        bench.ask("GET", &format!("/api/agents/{name}"), &Value::Null).1["statusCode"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    // 32 MB are for the person: there is room for one, and 8 MB more.
    heard(&mut bench, Budget::None, one(true, 40 * MIB), None);
    look(&mut bench, false);
    assert_eq!(spawned(&mut bench, "a").0, 201);
    assert_eq!(state(&mut bench, "a"), "queued");
    look(&mut bench, true);
    assert_eq!(state(&mut bench, "a"), "queued", "the memory is promised to an agent of another project");
    // So little is left that two might take it at once: only who lets in alone does so.
    heard(&mut bench, Budget::None, one(true, 0), None);
    look(&mut bench, false);
    assert_eq!(state(&mut bench, "a"), "queued");
    look(&mut bench, true);
    assert_ne!(state(&mut bench, "a"), "queued");
    // What a killed daemon claimed holds up nobody.
    let mut bench = Bench::new();
    heard(&mut bench, Budget::None, one(false, 400 * MIB), None);
    look(&mut bench, false);
    assert_eq!(spawned(&mut bench, "a").0, 201);
    assert_ne!(state(&mut bench, "a"), "queued");
}

#[test]
fn people_are_told_once_of_a_budget_over_all() {
    use crate::core::{Effect, Notice};
    use crate::providers::{Activity, Usage};
    let told = |others: Spent, costs: &[f64]| {
        let mut bench = Bench::new();
        let id = bench.agent("dev");
        heard(&mut bench, Budget::Usd(10.0), vec![project("shop", true, others, Needs::default())], None);
        for usd in costs {
            bench.does(id, vec![Activity::Usage(Usage { cost_usd: Some(*usd), ..Usage::default() })]);
        }
        let percent = |effect: &Effect| match effect {
            Effect::Notice(notice) => match **notice {
                Notice::BudgetWarning { percent, .. } => Some(percent),
                _ => None,
            },
            _ => None,
        };
        bench.effects.iter().filter_map(percent).collect::<Vec<_>>()
    };
    let today = day(&Bench::new());
    assert_eq!(told(spent(today, 7.0), &[0.5, 0.6, 0.7]), [80]);
    assert_eq!(told(spent(today, 7.0), &[1.5, 3.5]), [80, 100]);
    assert_eq!(told(spent(today, 0.0), &[1.5]), [0; 0]);
    let by_others = Spent { warned: 100, ..spent(today, 12.0) };
    assert_eq!(told(by_others, &[1.0]), [0; 0], "people were told by the other project");
}

#[test]
fn what_a_provider_told_in_another_project_is_heeded_here_until_something_newer_is_known() {
    use crate::providers::limit::Limit;
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    let provider = bench.state.agents.get(id).unwrap().provider.clone();
    let resets = bench.now.0 + 3_600_000;
    let window = |used: f64, heard_at: u64| Window {
        provider: provider.clone(),
        login: "default".into(),
        name: "five_hour".into(),
        used_percent: Some(used),
        resets_at: Some(resets),
        closed: used >= 100.0,
        heard_at,
    };
    let tells = |bench: &mut Bench, window: Window| {
        let told = Told { version: VERSION, windows: vec![window], ..Told::default() };
        let one = Project { name: "shop".into(), is_running: false, told: Some(told) };
        heard(bench, Budget::None, vec![one], None);
    };
    let room = |bench: &Bench| usage::quota::room(&bench.state, bench.now, &provider, "default");
    assert_eq!(room(&bench), 1000);
    let at = bench.now.0;
    tells(&mut bench, window(100.0, at));
    assert_eq!(room(&bench), 0, "it is closed until its reset");
    bench.pass(std::time::Duration::from_secs(60));
    let told = crate::providers::Activity::Limit(Limit::window("five_hour", Some(40.0), Some(resets)));
    bench.does(id, vec![told]);
    assert_eq!(room(&bench), 600);
    tells(&mut bench, window(100.0, at));
    assert_eq!(room(&bench), 600, "that is older than what was told here");
    bench.pass(std::time::Duration::from_secs(60));
    let future = bench.now.0 + 10 * DAY_MS;
    tells(&mut bench, window(70.0, future));
    let shown = bench.ask("GET", "/api/quota", &Value::Null).1;
    assert_eq!(shown["windows"][0]["heardAt"], json!(bench.now.to_string()), "nobody hears from the future");
    assert_eq!(room(&bench), 300);
}

/// What it hears next may be what it has read at its start: nothing has changed meanwhile.
#[test]
fn what_a_provider_told_elsewhere_before_a_daemon_has_started_is_heeded_as_well() {
    let mut bench = Bench::new();
    let window = Window {
        provider: "claude-code".into(),
        login: "default".into(),
        name: "five_hour".into(),
        used_percent: Some(100.0),
        resets_at: Some(bench.now.0 + 3_600_000),
        closed: true,
        heard_at: bench.now.0,
    };
    let told = Told { version: VERSION, windows: vec![window], ..Told::default() };
    let shop = Project { name: "shop".into(), is_running: false, told: Some(told) };
    let others = Others { projects: vec![shop], ..Others::default() };
    bench.state.fleet = Arc::new(State::new(others, bench.now));
    bench.state.providers = Arc::default();
    bench.apply(Event::Detected(vec![]));
    bench.apply(Event::Fleet(Report::Same));
    assert_eq!(usage::quota::room(&bench.state, bench.now, "claude-code", "default"), 0);
}

#[test]
fn a_schedule_starts_nothing_by_what_others_told_long_ago() {
    let mut bench = Bench::new();
    let hour = std::time::Duration::from_secs(3_600);
    let (now, today) = (bench.now, day(&bench));
    bench.state.fleet = Arc::new(State::new(Others { budget: Budget::Usd(10.0), ..Others::default() }, now));
    let agent = json!({"role": "cleaner", "provider": "script", "prompt": "tidy up"});
    for (name, hour) in [("one", 1), ("two", 2)] {
        let wish = json!({"name": name, "cron": format!("0 {hour} * * *"), "agent": agent});
        assert_eq!(bench.ask("POST", "/api/schedules", &wish).0, 201);
    }
    bench.effects.clear();
    bench.pass(hour);
    assert_eq!(bench.state.agents.iter().count(), 0, "it is asked first");
    let asks = |effect: &crate::core::Effect| {
        matches!(effect, crate::core::Effect::Governor(crate::governor::Order::Look))
    };
    assert!(bench.effects.iter().any(asks));
    bench.apply(Event::Fleet(Report::Same));
    bench.pass(crate::governor::ASKED);
    assert_eq!(bench.state.agents.iter().count(), 1);
    // What is heard then is what counts.
    bench.pass(std::time::Duration::from_millis(3_599_800));
    let shop = project("shop", false, spent(today, 12.0), Needs::default());
    heard(&mut bench, Budget::Usd(10.0), vec![shop], None);
    bench.pass(crate::governor::ASKED);
    assert_eq!(bench.state.agents.iter().count(), 1);
    let history = bench.ask("GET", "/api/schedules/two", &Value::Null).1["history"].to_string();
    assert!(history.contains("safety.dailyBudgetAllUsd"), "{history}");
}
