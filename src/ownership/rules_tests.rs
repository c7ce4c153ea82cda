//! What rules about files let through, before and after.

use crate::core::{CallId, Event};
use crate::testing::{Bench, parsed, writes};
use serde_json::{Value, json};

fn rule(bench: &mut Bench, id: &Value) -> Value {
    let rules = bench.get("/api/rules")["rules"].clone();
    rules.as_array().and_then(|rules| rules.iter().find(|one| one["id"] == *id)).cloned().unwrap_or_default()
}

fn pending(bench: &mut Bench) -> usize {
    bench.get("/api/approvals")["pending"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_rule_about_a_file_lets_the_hook_through_as_often_as_it_says() {
    let mut bench = Bench::in_project();
    bench.spawn(&json!({"role": "dev", "name": "a", "scope": ["api/**"], "prompt": "x"}));
    bench.post("/api/rules", &json!({"say": "allow", "file": "web/x.js", "agent": "a", "uses": 2}));
    let hook = |bench: &mut Bench, path: &str| {
        let body = json!({"agentId": "a", "tool": "Write", "path": path});
        bench.post("/api/hooks/write", &body)["decision"].clone()
    };
    let said: Vec<Value> = (0..3).map(|_| hook(&mut bench, "web/x.js")).collect();
    assert_eq!(said, ["allow", "allow", "deny"]);
    assert_eq!(hook(&mut bench, "web/./x.js"), "deny", "the same file, and nothing left");
    let body = json!({"say": "never", "file": "web/y.js", "agent": "a"});
    let never = bench.post("/api/rules", &body)["rule"]["id"].clone();
    assert_eq!(hook(&mut bench, "web/y.js"), "deny");
    assert_eq!(
        (pending(&mut bench), &rule(&mut bench, &never)["used"]),
        (1, &json!(1)),
        "no person is asked"
    );
}

#[test]
fn never_and_ask_hold_in_an_agents_own_files_and_for_one_with_all_rights() {
    let mut bench = Bench::in_project();
    bench.spawn(&json!({"role": "dev", "name": "own", "scope": ["api/**"], "prompt": "x"}));
    bench.spawn(
        &json!({"role": "dev", "name": "full", "scope": ["web/**"], "permission": "full", "prompt": "x"}),
    );
    for (say, file) in [("never", "api/key.rs"), ("ask", "api/ask.rs")] {
        bench.post("/api/rules", &json!({"say": say, "file": file, "for": "project"}));
    }
    for agent in ["own", "full"] {
        let said = |bench: &mut Bench, path: &str| {
            bench.post("/api/hooks/write", &json!({"agentId": agent, "tool": "Write", "path": path}))
        };
        let never = said(&mut bench, "api/key.rs");
        assert_eq!(
            (&never["decision"], never["rule"].is_string()),
            (&json!("deny"), true),
            "{agent}: {never}"
        );
        let asked = said(&mut bench, "/project/api/ask.rs");
        assert_eq!((&asked["decision"], asked["approvalId"].is_string()), (&json!("deny"), true), "{agent}");
        let id = asked["approvalId"].clone();
        bench.post("/api/approvals", &json!({"id": id, "decision": "approve"}));
        assert_eq!(said(&mut bench, "api/ask.rs")["decision"], "allow", "{agent}: a person has said yes");
        assert_eq!(said(&mut bench, "api/other.rs")["decision"], "allow", "{agent}: as before");
    }
    let own = bench.state.agents.find("own").expect("known").id;
    bench.does(own, writes("api/key.rs"));
    let told = bench.notices("approval:resolved").last().cloned().unwrap_or_default();
    assert_eq!(told["data"]["status"], "rejected", "seen afterwards it is to be undone");
}

#[test]
fn a_write_that_is_seen_afterwards_is_another_use() {
    let mut bench = Bench::in_project();
    let a = bench.spawn(&json!({"role": "dev", "name": "a", "scope": ["api/**"], "prompt": "x"}));
    let made =
        bench.post("/api/rules", &json!({"say": "allow", "file": "web/x.js", "agent": "a", "uses": 2}));
    for used in 1..=3_u64 {
        bench.does(a, writes("web/x.js"));
        let shown = rule(&mut bench, &made["rule"]["id"]);
        assert_eq!((&shown["used"], pending(&mut bench)), (&json!(used.min(2)), usize::from(used == 3)));
    }
    assert_eq!(bench.get("/api/conflicts")["conflicts"].as_array().map(Vec::len), Some(1), "the third");
    bench.post("/api/rules", &json!({"say": "never", "file": "web/y.js", "agent": "a"}));
    bench.does(a, writes("web/y.js"));
    let rejected = bench.notices("approval:resolved").last().cloned().unwrap_or_default();
    assert_eq!(rejected["data"]["status"], "rejected", "its agent is told to undo it");
}

#[test]
fn a_use_that_the_disk_did_not_take_is_not_in_force() {
    let mut bench = Bench::in_project();
    bench.spawn(&json!({"role": "dev", "name": "a", "scope": ["api/**"], "prompt": "x"}));
    let made =
        bench.post("/api/rules", &json!({"say": "allow", "file": "web/x.js", "agent": "a", "uses": 1}));
    let body = json!({"agentId": "a", "tool": "Write", "path": "web/x.js"});
    bench.disk = Some(Err("no space left".into()));
    assert_eq!(bench.ask("POST", "/api/hooks/write", &body).0, 503);
    assert_eq!(rule(&mut bench, &made["rule"]["id"])["used"], 0);
    // Two at the same time, while the disk is slow: one of them is it.
    bench.disk = None;
    assert!(bench.wish("POST", "/api/hooks/write", &body).is_none());
    assert!(bench.wish("POST", "/api/hooks/write", &body).is_none());
    let calls: Vec<CallId> = bench.state.unwritten.iter().map(|change| change.call).collect();
    let decisions: Vec<Value> = calls
        .into_iter()
        .map(|call| parsed(&bench.apply(Event::OnDisk(call, Ok(()))).expect("an answer")).1)
        .map(|answer| answer["decision"].clone())
        .collect();
    assert_eq!(decisions, ["allow", "deny"]);
    assert_eq!(rule(&mut bench, &made["rule"]["id"])["used"], 1);
}

/// A yes that comes with a rule is no freedom beyond the rule: its count would be worth nothing.
#[test]
fn what_a_rule_was_made_of_is_allowed_once_and_the_rest_by_the_rule() {
    let mut bench = Bench::in_project();
    let a = bench.spawn(&json!({"role": "dev", "name": "a", "scope": ["api/**"], "prompt": "x"}));
    bench.does(a, writes("web/x.js"));
    let id = bench.get("/api/approvals")["pending"][0]["id"].clone();
    let made =
        bench.post("/api/rules", &json!({"say": "allow", "approval": id, "uses": 1}))["rule"]["id"].clone();
    bench.does(a, writes("web/x.js"));
    assert_eq!((&rule(&mut bench, &made)["used"], pending(&mut bench)), (&json!(1), 0));
    bench.does(a, writes("web/x.js"));
    assert_eq!(pending(&mut bench), 1, "it is used up");
    // The same where the hook asks before.
    let hook = |bench: &mut Bench| {
        let body = json!({"agentId": "a", "tool": "Write", "path": "web/y.js"});
        bench.post("/api/hooks/write", &body)
    };
    let id = hook(&mut bench)["approvalId"].clone();
    bench.post("/api/rules", &json!({"say": "allow", "approval": id, "uses": 1}));
    assert_eq!(hook(&mut bench)["decision"], "allow", "by the person");
    bench.does(a, writes("web/y.js"));
    assert_eq!(hook(&mut bench)["decision"], "allow", "by the rule");
    bench.does(a, writes("web/y.js"));
    assert_eq!(pending(&mut bench), 1, "both were seen coming");
    bench.does(a, writes("web/y.js"));
    assert_eq!(pending(&mut bench), 2, "the third was not");
}
