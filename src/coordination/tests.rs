use super::*;
use crate::agents::Status;
use crate::assembly::documents::encode;
use crate::core::{Actor, Timers};
use crate::testing::Bench;
use serde_json::{Value, json};

fn declare(bench: &mut Bench, agent: &str, operation: &str, resources: &[&str]) -> (u16, Value) {
    let body = json!({"agentId": agent, "operation": operation, "resources": resources});
    bench.ask("POST", "/api/coordination/declare", &body)
}

fn complete(bench: &mut Bench, body: &Value) -> Value {
    let (status, body) = bench.ask("POST", "/api/coordination/complete", body);
    assert_eq!(status, 200, "{body}");
    body
}

fn operations(bench: &mut Bench) -> Value {
    bench.ask("GET", "/api/coordination", &Value::Null).1["operations"].take()
}

#[test]
fn spec_coordination_declare_hold_conflict_complete() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a").to_string(), bench.agent("b").to_string());
    let (status, body) = declare(&mut bench, &a, "npm install", &["package.json", "lock"]);
    assert_eq!((status, &body["declared"]), (200, &json!(true)));
    assert_eq!(
        (&body["operation"], &body["resources"]),
        (&json!("npm install"), &json!(["package.json", "lock"]))
    );
    let told = &bench.notices("coordination:declared")[0];
    assert_eq!((&told["agentId"], &told["operation"]), (&json!(a), &json!("npm install")));
    let held = operations(&mut bench);
    let record = &held[&a];
    assert_eq!(
        (&record["name"], &record["resources"]),
        (&json!("npm install"), &json!(["package.json", "lock"]))
    );
    let (from, until) = (record["acquiredAt"].as_u64().unwrap(), record["expiresAt"].as_u64().unwrap());
    assert_eq!((from, until - from), (bench.now.0, 600_000), "limits: default 600000 ms");
    assert!(record["all"].is_null());
    let (status, body) = declare(&mut bench, &b, "yarn", &["free", "lock", "package.json"]);
    assert_eq!(status, 423);
    assert_eq!(
        (&body["conflict"], &body["owner"], &body["operation"], &body["resource"], &body["expiresAt"]),
        (&json!(true), &json!(a), &json!("npm install"), &json!("lock"), &json!(until)),
        "decisions 5: the first conflicting resource in request order"
    );
    assert_eq!(operations(&mut bench).as_object().map(serde_json::Map::len), Some(1), "423 takes nothing");
    assert_eq!(complete(&mut bench, &json!({"agentId": a})), json!({"completed": true, "released": 2}));
    assert_eq!(complete(&mut bench, &json!({"agentId": a})), json!({"completed": false, "released": 0}));
    let told = bench.notices("coordination:completed");
    assert_eq!((told.len(), &told[0]["agentId"], &told[0]["reason"]), (1, &json!(a), &json!("completed")));
    assert_eq!(declare(&mut bench, &b, "yarn", &["lock"]).0, 200);
    assert_eq!(bench.audited("coordination.declare").len(), 2);
    assert_eq!(bench.audited("coordination.release").len(), 1);
}

#[test]
fn decisions_5_every_field_has_its_bounds_and_all_faults_come_at_once() {
    let mut bench = Bench::new();
    let (status, body) = bench.ask("POST", "/api/coordination/declare", &json!({"ttlMs": 5.5}));
    assert_eq!((status, body["errors"].as_array().map(Vec::len)), (400, Some(4)), "{body}");
    let cases = [
        json!({"agentId": ""}),
        json!({"agentId": 5}),
        json!({"operation": ""}),
        json!({"operation": "x".repeat(101)}),
        json!({"resources": []}),
        json!({"resources": [""]}),
        json!({"resources": ["x".repeat(501)]}),
        json!({"resources": vec!["x"; 101]}),
        json!({"resources": ["x", 1]}),
        json!({"resources": "x"}),
        json!({"ttlMs": 999}),
        json!({"ttlMs": 86_400_001}),
        json!({"ttlMs": "1000"}),
    ];
    for case in cases {
        let mut body = json!({"agentId": "x", "operation": "o", "resources": ["r"]});
        for (name, value) in case.as_object().unwrap() {
            body[name] = value.clone();
        }
        let (status, reply) = bench.ask("POST", "/api/coordination/declare", &body);
        assert_eq!((status, reply["errors"].as_array().map(Vec::len)), (400, Some(1)), "{case}: {reply}");
    }
    assert_eq!(bench.ask("POST", "/api/coordination/complete", &json!({})).0, 400);
    for ttl in [1_000, 86_400_000] {
        let body = json!({"agentId": "x", "operation": "o", "resources": ["r"], "ttlMs": ttl});
        assert_eq!(bench.ask("POST", "/api/coordination/declare", &body).0, 200);
    }
}

#[test]
fn decisions_5_an_agent_holds_several_operations_and_renews_what_it_has() {
    let mut bench = Bench::new();
    assert_eq!(declare(&mut bench, "x", "one", &["a", "b", "a"]).1["resources"], json!(["a", "b"]));
    let from = bench.now.0;
    bench.pass(Duration::from_secs(60));
    assert_eq!(declare(&mut bench, "x", "two", &["b", "c"]).0, 200, "its own resource is no conflict");
    let record = operations(&mut bench)["x"].take();
    assert_eq!(record["name"], "two");
    assert_eq!(record["all"].as_array().map(Vec::len), Some(2));
    assert_eq!((&record["all"][0]["resources"], &record["resources"]), (&json!(["a"]), &json!(["b", "c"])));
    assert_eq!(declare(&mut bench, "x", "one", &["a"]).0, 200);
    let one = operations(&mut bench)["x"].take();
    assert_eq!((&one["name"], one["acquiredAt"].as_u64()), (&json!("one"), Some(from)));
    assert_eq!(one["expiresAt"].as_u64(), Some(bench.now.0 + 600_000), "renewed");
    let done = complete(&mut bench, &json!({"agentId": "x", "operation": "two"}));
    assert_eq!(done, json!({"completed": true, "released": 2}));
    let done = complete(&mut bench, &json!({"agentId": "x", "operation": "two"}));
    assert_eq!(done, json!({"completed": false, "released": 0}));
    assert_eq!(operations(&mut bench)["x"]["resources"], json!(["a"]));
}

#[test]
fn spec_a_lock_ends_when_its_time_is_over() {
    let mut bench = Bench::new();
    let body = json!({"agentId": "x", "operation": "o", "resources": ["r"], "ttlMs": 5_000});
    assert_eq!(bench.ask("POST", "/api/coordination/declare", &body).0, 200);
    declare(&mut bench, "x", "long", &["s"]);
    bench.pass(Duration::from_millis(4_999));
    assert_eq!(declare(&mut bench, "y", "o", &["r"]).0, 423);
    bench.pass(Duration::from_millis(1));
    let told = bench.notices("coordination:completed");
    assert_eq!((told.len(), &told[0]["agentId"], &told[0]["reason"]), (1, &json!("x"), &json!("expired")));
    assert_eq!(told[0]["operations"], json!(["o"]));
    assert_eq!(bench.audited("coordination.release")[0]["actor"], "daemon");
    assert_eq!(declare(&mut bench, "y", "o", &["r"]).0, 200);
    assert_eq!(declare(&mut bench, "y", "o", &["s"]).0, 423, "the longer one stays");
}

#[test]
fn decisions_5_an_agents_end_frees_what_it_held_but_a_rotation_does_not() {
    let mut bench = Bench::new();
    let old = bench.agent("a").to_string();
    assert_eq!(declare(&mut bench, &old, "o", &["r"]).0, 200);
    let new = bench.rotates("a");
    assert!(bench.notices("coordination:completed").is_empty());
    assert_eq!(operations(&mut bench)[new.to_string()]["resources"], json!(["r"]), "the successor has it");
    assert_eq!(declare(&mut bench, &old, "o", &["r"]).0, 200, "its earlier id means it");
    assert_eq!(declare(&mut bench, "a", "o", &["r"]).0, 200, "and its name");
    bench.exits(new, 0);
    let told = bench.notices("coordination:completed");
    assert_eq!((told.len(), &told[0]["agentId"], &told[0]["reason"]), (1, &json!(new), &json!("exited")));
    assert_eq!(operations(&mut bench), json!({}));
    let (status, body) = declare(&mut bench, "a", "o", &["r"]);
    assert_eq!((status, &body["code"]), (409, &json!("agent_ended")));
}

/// Who was interrupted may be resumed and keeps its locks; whose record is removed may not.
#[test]
fn a_record_that_is_removed_holds_nothing() {
    let mut bench = Bench::new();
    bench.agent("a");
    assert_eq!(declare(&mut bench, "a", "o", &["r"]).0, 200);
    let agents = encode(Document::Agents, &bench.state).expect("there").expect("encodes");
    let nobody = std::collections::HashSet::default();
    let stored = serde_json::from_slice(&agents).expect("reads");
    let agents = crate::agents::State::restore(stored, |_| "".into(), &nobody, bench.now);
    bench.state.agents = Arc::new(agents);
    assert_eq!(bench.state.agents.find("a").expect("known").status, Status::Interrupted);
    assert_eq!(operations(&mut bench).as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(bench.ask("DELETE", "/api/agents/a", &Value::Null).0, 200);
    assert_eq!(operations(&mut bench), json!({}));
}

#[test]
fn decisions_4_an_agent_speaks_for_itself_alone() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a"), bench.agent("b"));
    assert_eq!(declare(&mut bench, "b", "o", &["r"]).0, 200);
    bench.actor = Actor::Agent(a);
    for other in [b.to_string(), "b".into(), "nobody".into()] {
        let (status, body) = declare(&mut bench, &other, "o", &["s"]);
        assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")), "{other}");
        let (status, _) = bench.ask("POST", "/api/coordination/complete", &json!({"agentId": other}));
        assert_eq!(status, 403);
    }
    assert_eq!(declare(&mut bench, "a", "o", &["s"]).0, 200);
    let body = json!({"operation": "p", "resources": ["t"]});
    assert_eq!(bench.ask("POST", "/api/coordination/declare", &body).0, 200, "its id is filled in");
    assert_eq!(complete(&mut bench, &json!({})), json!({"completed": true, "released": 2}));
    bench.actor = Actor::Agent(crate::core::ids::AgentId(0));
    assert_eq!(declare(&mut bench, "a", "o", &["s"]).0, 403, "an agent nobody knows acts for nobody");
    assert_eq!(bench.ask("POST", "/api/coordination/declare", &body).0, 403);
}

#[test]
fn decisions_5_locks_survive_a_restart() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a"), bench.agent("b"));
    declare(&mut bench, "a", "o", &["r"]);
    declare(&mut bench, "b", "o", &["s"]);
    declare(&mut bench, "tool", "o", &["t"]);
    let bytes = encode(Document::Locks, &bench.state).expect("there").expect("encodes");
    bench.exits(b, 0);
    let agents_file = encode(Document::Agents, &bench.state).expect("there").expect("encodes");
    let mut next = Bench::new();
    let stored = serde_json::from_slice(&agents_file).expect("reads");
    next.state.agents = Arc::new(crate::agents::State::restore(
        stored,
        |_| "".into(),
        &std::collections::HashSet::default(),
        bench.now,
    ));
    let mut timers = Timers::default();
    let stored = serde_json::from_slice(&bytes).expect("reads");
    next.state.coordination = Arc::new(State::restore(stored, &next.state.agents, &mut timers));
    next.state.timers = Arc::new(timers);
    let held = operations(&mut next);
    assert_eq!(held[a.to_string()]["resources"], json!(["r"]), "it may be resumed");
    assert_eq!(held["tool"]["resources"], json!(["t"]));
    assert_eq!(held.as_object().map(serde_json::Map::len), Some(2), "an ended agent holds nothing");
    next.pass(Duration::from_mins(10));
    assert_eq!(operations(&mut next), json!({}));
    assert_eq!(next.notices("coordination:completed").len(), 2);
}

#[test]
fn locks_are_bounded() {
    let mut bench = Bench::new();
    for n in 0..MAX_OPERATIONS {
        assert_eq!(declare(&mut bench, "x", &format!("op {n}"), &[&format!("r {n}")]).0, 200);
    }
    let (status, body) = declare(&mut bench, "x", "one more", &["r"]);
    assert_eq!((status, &body["code"]), (409, &json!("too_many_locks")));
    assert_eq!(declare(&mut bench, "x", "op 5", &["r"]).0, 200);
    let many: Vec<String> = (0..100).map(|n| format!("m {n}")).collect();
    let mut refused = 0;
    for owner in 0..60 {
        let own: Vec<String> = many.iter().map(|resource| format!("{owner} {resource}")).collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        refused += u32::from(declare(&mut bench, &format!("o{owner}"), "o", &own).0 == 409);
    }
    assert_eq!(refused, 12, "4900 of 5000 fit beside the 101 held before");
}

/// Property: whatever the order of declarations, completions, deadlines, exits, rotations and restarts, no
/// resource is ever held twice, and an ended agent holds nothing.
#[test]
fn decisions_5_no_interleaving_gives_a_resource_to_two() {
    for seed in 1..=150_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = move |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let mut bench = Bench::new();
        let names = ["a", "b", "c"];
        for name in names {
            bench.agent(name);
        }
        for _ in 0..120 {
            let who = names[usize::try_from(below(3)).unwrap()];
            let live = bench.state.agents.find(who).unwrap().status == Status::Running;
            match below(13) {
                12 => restart(&mut bench),
                0..=5 => {
                    let resources = [format!("r{}", below(6)), format!("r{}", below(6))];
                    let body = json!({"agentId": who, "operation": format!("o{}", below(3)),
                        "resources": resources, "ttlMs": 1000 + below(5000)});
                    let (status, reply) = bench.ask("POST", "/api/coordination/declare", &body);
                    assert!([200, 423, 409].contains(&status), "{reply}");
                }
                6 => drop(complete(&mut bench, &json!({"agentId": who}))),
                7 => drop(complete(&mut bench, &json!({"agentId": who, "operation": "o1"}))),
                8 | 9 => bench.pass(Duration::from_millis(below(3000))),
                10 if live && below(2) == 0 => drop(bench.rotates(who)),
                10 | 11 if live => {
                    let id = bench.state.agents.find(who).unwrap().id;
                    bench.exits(id, i32::try_from(below(2)).unwrap());
                }
                _ => {
                    bench.ask("POST", &format!("/api/agents/{who}/resume"), &json!({}));
                    let id = bench.state.agents.find(who).unwrap().id;
                    let report = crate::agents::report::RunReport::Started { pid: 1, start_ticks: 1 };
                    bench.apply(crate::core::Event::Run(id, report));
                }
            }
            check(&bench, seed);
        }
    }
}

/// The daemon is killed and starts again with what it has written.
fn restart(bench: &mut Bench) {
    let old = bench.state.agents.stored();
    let stored = serde_json::from_value(serde_json::to_value(&old).unwrap()).unwrap();
    let agents = crate::agents::State::restore(
        stored,
        |_| "p".into(),
        &std::collections::HashSet::default(),
        bench.now,
    );
    let locks = serde_json::to_value(bench.state.coordination.stored()).unwrap();
    let mut state = crate::core::State { agents: Arc::new(agents), ..crate::core::State::default() };
    let timers = Arc::make_mut(&mut state.timers);
    let locks = serde_json::from_value(locks).unwrap();
    state.coordination = Arc::new(State::restore(locks, &state.agents, timers));
    bench.state = state;
}

fn check(bench: &Bench, seed: u64) {
    let mut seen = BTreeSet::new();
    for (owner, operation) in bench.state.coordination.iter() {
        for resource in &operation.resources {
            assert!(seen.insert(resource.clone()), "seed {seed}: {resource} is held twice");
        }
        let Owner::Agent(lineage) = owner else { continue };
        let agent = bench.state.agents.iter().find(|agent| agent.lineage_id == *lineage);
        assert!(
            agent.is_some_and(|agent| agent.status.is_live() || agent.status == Status::Interrupted),
            "seed {seed}: an ended agent holds a lock"
        );
        assert!(operation.expires_at > bench.now, "seed {seed}: a lock outlived its deadline");
    }
}

/// A planted bug: the checker finds a resource that is held twice.
#[test]
fn the_checker_can_fail() {
    let mut bench = Bench::new();
    declare(&mut bench, "x", "o", &["r"]);
    let operation = bench.state.coordination.iter().next().unwrap().1.clone();
    let state = Arc::make_mut(&mut bench.state.coordination);
    state.held.insert(Owner::Named("y".into()), vec![operation]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&bench, 0))).is_err());
}
