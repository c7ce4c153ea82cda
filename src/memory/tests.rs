//! The memory against its specification, line by line.

use super::specializations::MAX_GONE;
use super::{MAX_CONSTRAINTS, MAX_DISCOVERIES, constraint_hash};
use crate::assembly::documents::encode;
use crate::core::{Actor, Document, Durability, Effect};
use crate::testing::{Bench, parsed, write_ended, writes};
use serde_json::{Value, json};

const CONSTRAINTS: &str = "/api/memory/constraints";
const DISCOVERIES: &str = "/api/memory/discoveries";

fn writes_before_reply(bench: &Bench, document: Document) -> bool {
    bench
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Put(put, Durability::BeforeReply) if *put == document))
}

#[test]
fn decisions_6_a_constraint_is_added_once_durably_and_told() {
    let mut bench = Bench::in_project();
    let (status, body) = bench.ask("POST", CONSTRAINTS, &json!({"text": " Use tabs "}));
    let hash = constraint_hash("use TABS");
    assert_eq!((status, &body), (201, &json!({"added": true, "hash": hash, "category": "general"})));
    assert!(writes_before_reply(&bench, Document::Constraints), "durable before the reply");
    assert_eq!(bench.audited("memory.constraint.add").len(), 1);
    let told = bench.told();
    assert_eq!((&told[0]["type"], &told[0]["hash"]), (&json!("memory:constraint:added"), &json!(hash)));
    let (status, body) = bench.ask("POST", CONSTRAINTS, &json!({"text": "use tabs", "category": "style"}));
    assert_eq!((status, body), (200, json!({"added": false, "hash": hash, "reason": "duplicate"})));
    let listed = bench.get(CONSTRAINTS);
    assert_eq!(listed["constraints"][0]["text"], "Use tabs");
    assert_eq!(listed["constraints"][0]["category"], "general");
    assert_eq!(listed["constraints"][0]["hash"], json!(hash));
}

#[test]
fn decisions_1_hash_is_the_first_12_hex_of_sha_256_of_the_trimmed_lower_cased_text() {
    // printf 'use tabs' | sha256sum
    assert_eq!(constraint_hash("  Use TABS\n"), "274ce604304b");
}

#[test]
fn daemon_a_constraint_has_3_to_500_characters_and_a_category_of_its_alphabet() {
    let mut bench = Bench::in_project();
    let refused: Vec<Value> = [
        json!({}),
        json!({"text": "ab"}),
        json!({"text": "  ab  "}),
        json!({"text": "x".repeat(501)}),
        json!({"text": 5}),
        json!({"text": "fine", "category": "Not Fine"}),
        json!({"text": "fine", "category": ""}),
        json!({"text": "fine", "category": "x".repeat(41)}),
    ]
    .into();
    for body in refused {
        assert_eq!(bench.ask("POST", CONSTRAINTS, &body).0, 400, "{body}");
    }
    let (_, body) = bench.ask("POST", CONSTRAINTS, &json!({"text": "ab"}));
    assert_eq!(body["error"], "text must have 3 to 500 characters, it has 2");
    assert_eq!(bench.ask("POST", CONSTRAINTS, &json!({"text": "ä".repeat(500)})).0, 201);
    assert_eq!(bench.ask("POST", CONSTRAINTS, &json!({"text": "abc", "category": "a-1"})).0, 201);
}

#[test]
fn decisions_6_at_the_cap_of_50_the_oldest_is_evicted_and_told() {
    let mut bench = Bench::in_project();
    for n in 0..MAX_CONSTRAINTS {
        bench.post(CONSTRAINTS, &json!({"text": format!("rule {n}")}));
    }
    bench.effects.clear();
    let body = bench.post(CONSTRAINTS, &json!({"text": "one more"}));
    let oldest = constraint_hash("rule 0");
    assert_eq!(body["evicted"]["hash"], json!(oldest));
    assert_eq!(body["evicted"]["text"], "rule 0");
    assert_eq!(bench.audited("memory.constraint.evict").len(), 1);
    let told = bench.told();
    assert!(told.iter().any(|m| m["type"] == "memory:constraint:removed" && m["hash"] == json!(oldest)));
    let listed = bench.get(CONSTRAINTS);
    assert_eq!(listed["constraints"].as_array().unwrap().len(), MAX_CONSTRAINTS);
}

#[test]
fn decisions_6_delete_answers_removed_or_404() {
    let mut bench = Bench::in_project();
    let hash = bench.post(CONSTRAINTS, &json!({"text": "abc"}))["hash"].as_str().unwrap().to_owned();
    bench.effects.clear();
    let (status, body) = bench.ask("DELETE", &format!("{CONSTRAINTS}/{hash}"), &Value::Null);
    assert_eq!((status, &body["removed"]), (200, &json!(true)));
    assert!(writes_before_reply(&bench, Document::Constraints));
    assert_eq!(bench.told()[0]["type"], "memory:constraint:removed");
    assert_eq!(bench.ask("DELETE", &format!("{CONSTRAINTS}/{hash}"), &Value::Null).0, 404);
}

#[test]
fn decisions_6_a_discovery_is_added_once_and_only_when_it_is_a_success() {
    let mut bench = Bench::in_project();
    let found = json!({"agentId": "a1", "role": "backend", "trigger": "npm fails", "fix": "clear the cache"});
    let (status, body) = bench.ask("POST", DISCOVERIES, &found);
    assert_eq!((status, body), (201, json!({"added": true})));
    assert!(writes_before_reply(&bench, Document::Discoveries));
    let told = bench.told();
    assert_eq!(told, [json!({"type": "memory:discovery:added", "agentId": "a1", "role": "backend"})]);
    let again = json!({"role": "frontend", "trigger": " npm fails ", "fix": "clear the cache"});
    let (status, body) = bench.ask("POST", DISCOVERIES, &again);
    assert_eq!((status, body), (200, json!({"added": false, "reason": "duplicate"})));
    let failure = json!({"trigger": "x", "fix": "y", "outcome": "failure"});
    let (status, body) = bench.ask("POST", DISCOVERIES, &failure);
    assert_eq!((status, body), (200, json!({"added": false, "reason": "only successes are stored"})));
    bench.post(DISCOVERIES, &json!({"trigger": "x", "fix": "y"}));
    let listed = bench.get(DISCOVERIES);
    let last = &listed["discoveries"][0];
    assert_eq!(last["role"], "unknown");
    assert_eq!(last["outcome"], "success");
    assert_eq!(last["ts"], "2026-01-01T00:00:00.000Z");
    assert_eq!(bench.get("/api/memory/discoveries?role=backend")["discoveries"].as_array().unwrap().len(), 1);
}

#[test]
fn daemon_a_discovery_is_refused_when_trigger_or_fix_is_missing_or_too_long() {
    let mut bench = Bench::in_project();
    for body in [
        json!({}),
        json!({"trigger": "x"}),
        json!({"trigger": " ", "fix": "y"}),
        json!({"trigger": "x".repeat(301), "fix": "y"}),
        json!({"trigger": "x", "fix": "y".repeat(501)}),
        json!({"trigger": "x", "fix": "y", "outcome": true}),
        json!({"trigger": "x", "fix": "y", "role": "no role"}),
    ] {
        assert_eq!(bench.ask("POST", DISCOVERIES, &body).0, 400, "{body}");
    }
    assert_eq!(bench.ask("POST", DISCOVERIES, &json!({})).1["errors"].as_array().unwrap().len(), 2);
    bench.post(DISCOVERIES, &json!({"trigger": "x".repeat(300), "fix": "y".repeat(500)}));
}

#[test]
fn daemon_the_store_of_discoveries_is_capped_at_1000_and_lists_are_limited() {
    let mut bench = Bench::in_project();
    for n in 0..=MAX_DISCOVERIES {
        bench.post(DISCOVERIES, &json!({"trigger": format!("t{n}"), "fix": "f"}));
    }
    let listed = |bench: &mut Bench, query: &str| {
        bench.get(&format!("{DISCOVERIES}{query}"))["discoveries"].as_array().unwrap().clone()
    };
    assert_eq!(listed(&mut bench, "").len(), 100);
    let all = listed(&mut bench, "?limit=500");
    assert_eq!((all.len(), &all[0]["trigger"]), (500, &json!("t1000")));
    assert_eq!(bench.state.memory.discoveries().len(), MAX_DISCOVERIES);
    assert_eq!(&*bench.state.memory.discoveries().next().unwrap().trigger, "t1", "the oldest goes");
    for wrong in ["0", "501", "x", "-1"] {
        assert_eq!(bench.ask("GET", &format!("{DISCOVERIES}?limit={wrong}"), &Value::Null).0, 400);
    }
}

#[test]
fn decisions_4_an_agents_discovery_carries_its_own_id() {
    let mut bench = Bench::in_project();
    let one = bench.spawn(&json!({"role": "backend"}));
    let other = bench.spawn(&json!({"role": "frontend"}));
    bench.actor = Actor::Agent(one);
    let (status, body) =
        bench.ask("POST", DISCOVERIES, &json!({"agentId": other.to_string(), "trigger": "a", "fix": "b"}));
    assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")));
    bench.post(DISCOVERIES, &json!({"trigger": "a", "fix": "b"}));
    let found = bench.get(DISCOVERIES)["discoveries"][0].clone();
    assert_eq!((&found["agentId"], &found["role"]), (&json!(one.to_string()), &json!("backend")));
}

#[test]
fn daemon_the_last_ten_rotations_of_a_role_are_kept_newest_first() {
    let mut bench = Bench::in_project();
    assert_eq!(bench.get("/api/memory/handoff-chain"), json!({"roles": []}));
    let mut id = bench.spawn(&json!({"role": "backend", "prompt": "Build the login"}));
    for n in 1..=12 {
        id = bench.hands_over(&id.to_string(), &format!("brief {n}"));
    }
    assert!(writes_before_reply(&bench, Document::HandoffChains));
    assert_eq!(bench.get("/api/memory/handoff-chain"), json!({"roles": ["backend"]}));
    let chain = bench.get("/api/memory/handoff-chain/backend");
    let entries = chain["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &chain["role"]), (10, &json!("backend")));
    assert_eq!((&entries[0]["rotationN"], &entries[0]["body"]), (&json!(12), &json!("brief 12")));
    assert_eq!(entries[9]["rotationN"], 3);
    assert_eq!(entries[0]["reason"], "manual");
    assert_eq!(bench.get("/api/memory/handoff-chain/nobody")["entries"], json!([]));
}

#[test]
fn daemon_recent_is_markdown_unless_accept_asks_for_json() {
    let mut bench = Bench::in_project();
    let mut id = bench.spawn(&json!({"role": "backend"}));
    for n in 1..=4 {
        id = bench.hands_over(&id.to_string(), &format!("brief {n}"));
    }
    for accept in [None, Some("*/*"), Some("text/markdown;q=1, application/json")] {
        bench.headers = accept.map(|accept| ("accept".to_owned(), accept.to_owned())).into_iter().collect();
        let reply =
            bench.reply("GET", "/api/memory/handoff-chain/backend/recent?count=10", &Value::Null).unwrap();
        assert_eq!(reply.content_type, "text/markdown; charset=utf-8");
        assert!(parsed(&reply).1.as_str().unwrap().contains("brief 1"));
    }
    bench.headers = vec![("accept".into(), "application/json, */*".into())];
    let recent = bench.get("/api/memory/handoff-chain/backend/recent");
    assert_eq!((&recent["role"], &recent["count"]), (&json!("backend"), &json!(3)));
    let text = recent["markdown"].as_str().unwrap();
    assert!(text.contains("brief 4") && text.contains("brief 2") && !text.contains("brief 1"));
    assert!(text.find("brief 4") < text.find("brief 2"));
    assert_eq!(bench.get("/api/memory/handoff-chain/backend/recent?count=1")["count"], 1);
    for wrong in ["0", "11", "many"] {
        let target = format!("/api/memory/handoff-chain/backend/recent?count={wrong}");
        assert_eq!(bench.ask("GET", &target, &Value::Null).0, 400);
    }
}

#[test]
fn a_brief_joins_the_chain_only_when_the_successor_runs() {
    let mut bench = Bench::in_project();
    let id = bench.spawn(&json!({"role": "backend"}));
    assert!(bench.wish("POST", &format!("/api/agents/{id}/rotate"), &Value::Null).is_none());
    bench.apply(crate::core::Event::Job(crate::agents::JobReport::Brief(id, Err("no log".into()))));
    assert_eq!(bench.get("/api/memory/handoff-chain"), json!({"roles": []}));
}

#[test]
fn profiles_of_removed_agents_are_bounded_and_their_roles_keep_what_they_showed() {
    let mut bench = Bench::new();
    bench.agent("stays");
    let extra = 3;
    for n in 0..MAX_GONE + extra {
        let id = bench.agent(&format!("a{n}"));
        bench.exits(id, 0);
        bench.now = bench.now + std::time::Duration::from_millis(1);
        assert_eq!(bench.ask("DELETE", &format!("/api/agents/a{n}"), &Value::Null).0, 200);
    }
    let (_, shown) = bench.ask("GET", "/api/memory/specializations", &Value::Null);
    let profiles = shown["perAgent"].as_object().unwrap();
    let has = |name: &str| profiles.values().any(|profile| profile["agentName"] == name);
    assert_eq!(profiles.len(), MAX_GONE + 1);
    assert!(has("stays") && !has("a2") && has("a3"), "the oldest of those that are gone were forgotten");
    let sessions = |role: &Value| role["sessionCount"].as_u64().unwrap();
    let counted: u64 = shown["perProjectRole"].as_object().unwrap().values().map(sessions).sum();
    assert_eq!(counted, (MAX_GONE + extra + 1) as u64);
}

#[test]
fn daemon_specializations_count_sessions_files_and_scores() {
    let mut bench = Bench::in_project();
    let id = bench.spawn(&json!({"role": "backend"}));
    assert_eq!(bench.ask("GET", "/api/memory/specializations/nobody", &Value::Null).0, 404);
    bench.does(id, ["/project/src/a.rs", "src/a.rs", "src/b.rs"].into_iter().flat_map(writes).collect());
    bench.does(id, write_ended("src/refused.rs", true));
    let new = bench.hands_over(&id.to_string(), "brief");
    let mut cx = crate::core::Context::new(bench.now, 1);
    super::session_scored(&mut bench.state, &mut cx, new, 80.0, Some(0.8));
    super::session_scored(&mut bench.state, &mut cx, new, 61.0, None);
    let all = bench.get("/api/memory/specializations");
    let lineage = bench.state.agents.get(new).unwrap().lineage_id.to_string();
    let profile = &all["perAgent"][new.to_string()];
    assert_eq!(profile["role"], "backend");
    assert_eq!(profile["sessionCount"], 2);
    assert_eq!(profile["avgQualityScore"], 70.5);
    assert_eq!(profile["fileTouches"], json!({"src/a.rs": 2, "src/b.rs": 1}));
    assert_eq!(profile["preferredThreshold"], 0.8);
    let role = &all["perProjectRole"]["backend"];
    assert_eq!((&role["sessionCount"], &role["avgQualityScore"]), (&json!(2), &json!(70.5)));
    assert_eq!(role["topFileChurn"], json!({"src/a.rs": 2, "src/b.rs": 1}));
    for target in [new.to_string(), id.to_string(), "backend-1".into(), lineage] {
        assert_eq!(&bench.get(&format!("/api/memory/specializations/{target}")), profile, "{target}");
    }
}

fn reread<T: serde::de::DeserializeOwned>(bench: &Bench, document: Document) -> T {
    let bytes = encode(document, &bench.state).unwrap().unwrap();
    serde_json::from_slice::<super::store::Stored<T>>(&bytes).unwrap().content
}

#[test]
fn memory_survives_its_files() {
    let mut bench = Bench::in_project();
    bench.post(CONSTRAINTS, &json!({"text": "Use tabs"}));
    bench.post(DISCOVERIES, &json!({"trigger": "a", "fix": "b"}));
    let id = bench.spawn(&json!({"role": "backend"}));
    bench.does(id, writes("a.rs"));
    bench.hands_over(&id.to_string(), "brief");
    let before =
        [CONSTRAINTS, DISCOVERIES, "/api/memory/handoff-chain/backend", "/api/memory/specializations"]
            .map(|path| bench.get(path));
    let memory = super::State::restore(
        reread(&bench, Document::Constraints),
        reread(&bench, Document::Discoveries),
        reread(&bench, Document::HandoffChains),
        reread(&bench, Document::Specializations),
    );
    bench.state.memory = std::sync::Arc::new(memory);
    let after =
        [CONSTRAINTS, DISCOVERIES, "/api/memory/handoff-chain/backend", "/api/memory/specializations"]
            .map(|path| bench.get(path));
    assert_eq!(before, after);
}

/// What two agents found of one thing is one discovery; what they say otherwise of it stays, and is said.
#[test]
fn what_is_nearly_known_folds_and_what_is_said_otherwise_is_told() {
    let mut bench = Bench::in_project();
    let one = bench.spawn(&json!({"role": "backend"}));
    let other = bench.spawn(&json!({"role": "backend"}));
    let mut tell = |actor, trigger: &str, fix: &str| {
        bench.actor = actor;
        let answer = bench.ask("POST", DISCOVERIES, &json!({"trigger": trigger, "fix": fix})).1;
        (answer, bench.get(DISCOVERIES)["discoveries"].as_array().unwrap().clone())
    };
    let (trigger, fix) =
        ("migration tests deadlock on postgres startup", "run migrations serially with jobs 4");
    assert_eq!(tell(Actor::Agent(one), trigger, fix).0, json!({"added": true}));
    let near = "Run the migrations serially, with jobs 4.";
    let (answer, known) = tell(Actor::Agent(other), trigger, near);
    let told = json!({"added": false, "reason": "duplicate", "known": {"trigger": trigger, "fix": fix}});
    assert_eq!((answer, known.len(), &known[0]["again"]), (told, 1, &json!(1)));
    let (_, known) = tell(Actor::Agent(one), trigger, near);
    assert_eq!(known[0]["again"], 1, "one voice counts once");
    for (nth, otherwise) in
        ["run migrations serially with jobs 8", "do not run migrations serially with jobs 4"]
            .iter()
            .enumerate()
    {
        let (answer, known) = tell(Actor::Agent(other), trigger, otherwise);
        assert_eq!((&answer["added"], known.len()), (&json!(true), nth + 2), "{answer}");
        assert!(answer["otherwise"].is_string(), "{answer}");
        assert_eq!(known[1]["otherwise"], *otherwise, "the one before is told of it");
    }
    let line = bench.state.memory.discoveries().next().unwrap().line();
    assert_eq!(
        line,
        format!(
            "- backend ({one}, 2026-01-01, met 2 times): {trigger} -> {fix} (of the same was said: run \
            migrations serially with jobs 8)"
        )
    );
}

/// The one that was told to many and helped nobody goes, however new; the old one that helps stays.
#[test]
fn at_the_cap_the_least_useful_goes() {
    let mut bench = Bench::in_project();
    bench.post(DISCOVERIES, &json!({"trigger": "checkout totals drift", "fix": "round once"}));
    bench.post(DISCOVERIES, &json!({"trigger": "checkout basket empties", "fix": "clear cookies"}));
    let told = |bench: &Bench, at: usize| {
        let found = bench.state.memory.discoveries().nth(at).unwrap();
        (found.told, found.ended_well)
    };
    for (fix, exit) in [("round once", 0), ("clear cookies", 1)] {
        let id = bench.spawn(&json!({"role": "backend", "prompt": "Repair the checkout"}));
        let lineage = bench.state.agents.get(id).unwrap().lineage_id;
        let line = bench.state.memory.discoveries().find(|one| &*one.fix == fix).unwrap().line();
        crate::memory::told_in(&mut bench.state, lineage, &format!("Hello\n{line}\nbye"));
        bench.exits(id, exit);
    }
    assert_eq!((told(&bench, 0), told(&bench, 1)), ((1, 1), (1, 0)));
    for n in 2..=MAX_DISCOVERIES {
        bench.post(DISCOVERIES, &json!({"trigger": format!("t{n}"), "fix": "f"}));
    }
    let kept: Vec<String> = bench.state.memory.discoveries().map(|one| one.fix.to_string()).take(2).collect();
    assert_eq!(kept, ["round once", "f"]);
    assert_eq!(bench.state.memory.discoveries().len(), MAX_DISCOVERIES);
}

/// A log that is read twice tells nothing new, the same in another life does.
#[test]
fn what_a_log_shows_is_kept_once_and_told_where_it_matters() {
    let mut bench = Bench::in_project();
    let id = bench.spawn(&json!({"role": "backend"}));
    let learned = |at: u64| crate::memory::Learned {
        trigger: "`make ledger` failed: protoc is not installed".into(),
        fix: "`apt-get install protobuf-compiler` turned it green".into(),
        at: bench_time(at),
    };
    for at in [5, 5, 9] {
        bench.apply(crate::core::Event::Job(crate::agents::JobReport::Learned(id, vec![learned(at)])));
    }
    let known = bench.get(DISCOVERIES)["discoveries"].clone();
    assert_eq!((known.as_array().unwrap().len(), &known[0]["again"]), (1, &json!(1)), "{known:#}");
    assert_eq!((&known[0]["mined"], &known[0]["agentId"]), (&json!(true), &json!(id.to_string())));
    let told = |bench: &Bench, task| {
        let wanted = super::Wanted { role: "backend", task, scope: &[] };
        bench.state.memory.select(&wanted).discoveries.len()
    };
    let task = ["Make the ledger", "Paint the door", ""];
    assert_eq!(task.map(|task| told(&bench, task)), [1, 0, 0]);
    bench.post(
        DISCOVERIES,
        &json!({"trigger": "`make ledger` failed: protoc is not installed",
        "fix": "`apt-get install protobuf-compiler` turned it green"}),
    );
    assert_eq!(bench.get(DISCOVERIES)["discoveries"][0]["mined"], false, "a person says so too");
}

fn bench_time(seconds: u64) -> crate::core::time::Time {
    let hour = crate::core::time::Time::parse("2026-01-01T01:00:00Z").unwrap();
    hour + std::time::Duration::from_secs(seconds)
}
