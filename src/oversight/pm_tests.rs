//! Reviews against decisions 9.

use crate::agents::{Job, JobReport};
use crate::core::{Actor, Document, Durability, Effect, Event};
use crate::providers::Tokens;
use crate::testing::{Bench, parsed, writes};
use serde_json::{Value, json};
use std::time::Duration;

const REVIEW: &str = "/api/pm/review";

fn checks(review: &Value) -> Vec<&str> {
    review["findings"].as_array().unwrap().iter().map(|found| found["check"].as_str().unwrap()).collect()
}

#[test]
fn decisions_9_a_review_has_its_fields_and_stands_in_the_history() {
    let mut bench = Bench::in_project();
    let id = bench.spawn(&json!({"role": "backend", "scope": ["src/**"]}));
    bench.does(id, writes("src/a.rs"));
    bench.effects.clear();
    let review = bench.post(REVIEW, &json!({"agentId": "backend-1"}));
    assert!(review["id"].as_str().unwrap().starts_with("pmr-"));
    assert_eq!((&review["agentId"], &review["approved"]), (&json!(id.to_string()), &json!(true)));
    assert_eq!((&review["reason"], &review["findings"]), (&json!("all checks pass"), &json!([])));
    assert_eq!(
        (&review["reviewedAt"], &review["durationMs"]),
        (&json!("2026-01-01T00:00:00.000Z"), &json!(0))
    );
    let durable =
        |effect: &Effect| matches!(effect, Effect::Put(Document::PmReviews, Durability::BeforeReply));
    assert!(bench.effects.iter().any(durable));
    assert_eq!(bench.audited("pm.review").len(), 1);
    bench.post(REVIEW, &json!({"agentId": "backend-1", "file": "/etc/passwd"}));
    let history = bench.get("/api/pm/history");
    assert_eq!(history["history"].as_array().unwrap().len(), 2);
    assert_eq!(history["history"][1], review, "newest first");
    assert_eq!(history["stats"], json!({"total": 2, "approved": 1, "rejected": 1, "avgDurationMs": 0}));
    assert_eq!(bench.ask("POST", REVIEW, &json!({"agentId": "nobody"})).0, 404);
    assert_eq!(bench.ask("POST", REVIEW, &json!({})).0, 400);
    assert_eq!(bench.ask("POST", REVIEW, &json!({"agentId": "backend-1", "file": 5})).0, 400);
}

#[test]
fn decisions_9_the_checks_are_scope_protected_paths_constraints_and_size() {
    let mut bench = Bench::in_project();
    let id = bench.spawn(&json!({"role": "backend", "scope": ["src/**", "*.md"]}));
    bench.spawn(&json!({"role": "frontend", "scope": ["web/**"]}));
    bench.post(
        "/api/memory/constraints",
        &json!({"text": "Never edit src/legacy/ or the billing migrations"}),
    );
    let mut ask = |body: Value| {
        let mut body = body;
        body["agentId"] = json!(id.to_string());
        bench.post(REVIEW, &body)
    };
    for (file, wanted) in [
        ("src/a.rs", vec![]),
        ("README.md", vec![]),
        ("docs/x.md", vec!["scope"]),
        ("web/app.js", vec!["scope", "scope"]),
        ("src/.env", vec!["protected"]),
        (".git/config", vec!["scope", "protected"]),
        ("../x", vec!["scope", "protected"]),
        ("src/legacy/old.rs", vec!["constraints"]),
    ] {
        let review = ask(json!({"file": file}));
        assert_eq!(checks(&review), wanted, "{file}: {review}");
        assert_eq!(review["approved"], json!(wanted.is_empty()), "{file}");
    }
    let review = ask(json!({"action": "edit", "description": "rewrite the billing migrations"}));
    assert_eq!(checks(&review), ["constraints"]);
    let review = ask(json!({"action": "edit", "description": "tidy the login form"}));
    assert_eq!(review["approved"], true);
    for n in 0..=super::pm_checks::MAX_FILES {
        bench.does(id, writes(&format!("src/{n}.rs")));
    }
    let review = bench.post(REVIEW, &json!({"agentId": id.to_string()}));
    assert_eq!((checks(&review), &review["approved"]), (vec!["size"], &json!(false)));
}

/// Reviews with a model that answers so; `None` never answers.
fn with_model(answer: Option<Result<&str, &str>>) -> Value {
    let mut bench = Bench::in_project();
    bench.ask("PATCH", "/api/config", &json!({"defaultProvider": "script"}));
    bench.spawn(&json!({"role": "backend"}));
    bench.effects.clear();
    assert!(bench.wish("POST", REVIEW, &json!({"agentId": "backend-1", "file": "a.rs"})).is_none());
    let asked = bench.effects.iter().find_map(|effect| match effect {
        Effect::Job(Job::Query { call, .. }) => Some(*call),
        _ => None,
    });
    let call = asked.expect("a question");
    let reply = if let Some(answer) = answer {
        let answer = answer.map(|words| (words.to_owned(), Tokens { input: 3, ..Tokens::default() }));
        let reply = bench.apply(Event::Job(JobReport::Query(call, answer.map_err(str::to_owned))));
        bench.apply(Event::Job(JobReport::Query(call, Err("told twice".into()))));
        reply
    } else {
        bench.pass(Duration::from_secs(60));
        bench.late.take()
    };
    assert_eq!(bench.get("/api/pm/history")["stats"]["total"], 1);
    let booked = bench.get("/api/tokens/summary");
    let (tokens, sessions) = if matches!(answer, Some(Ok(_))) { (3, json!(1)) } else { (0, Value::Null) };
    assert_eq!((&booked["totalUsed"], &booked["internalOverhead"]["tokens"]), (&json!(0), &json!(tokens)));
    assert_eq!(booked["internalOverhead"]["components"]["__pm__"]["sessions"], sessions, "booked once");
    parsed(&reply.expect("an answer")).1
}

#[test]
fn decisions_9_a_models_view_joins_and_a_failing_model_never_turns_into_an_approval() {
    let fine = with_model(Some(Ok("APPROVE: it is small.")));
    assert_eq!((&fine["approved"], checks(&fine)), (&json!(true), vec!["model"]));
    let refused = with_model(Some(Ok("**Reject** - it breaks the build.")));
    assert_eq!(refused["approved"], false);
    assert!(refused["reason"].as_str().unwrap().contains("breaks the build"));
    for failing in [Some(Err("overloaded")), Some(Ok("I cannot say")), Some(Ok("")), None] {
        let review = with_model(failing);
        assert_eq!(review["approved"], false, "{failing:?}");
        assert_eq!(checks(&review), ["model"]);
    }
    assert_eq!(with_model(None)["durationMs"], 60_000);
}

#[test]
fn an_agent_may_have_itself_reviewed_and_nobody_else() {
    let mut bench = Bench::in_project();
    let one = bench.spawn(&json!({"role": "backend"}));
    bench.spawn(&json!({"role": "frontend"}));
    bench.actor = Actor::Agent(one);
    assert_eq!(bench.ask("POST", REVIEW, &json!({"agentId": "frontend-1"})).0, 403);
    assert_eq!(bench.post(REVIEW, &json!({}))["agentName"], "backend-1");
}
