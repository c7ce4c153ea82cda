//! What rules let through, and what they must not.

use super::super::{About, Command, For, NewRule, command, decide as decided, restore};
use super::*;
use crate::agents::SpawnRequest;
use crate::approvals::Stored;
use crate::assembly::documents::encode;
use crate::core::{Actor, CallId, Document, Event};
use crate::providers::Activity;
use crate::testing::Bench;

const HOUR: Duration = Duration::from_secs(3600);

fn call(n: u64) -> Action {
    Action::integration_exec("hub", "create_issue", &json!({ "n": n }))
}

fn bash(text: &str, question: &str, folder: Option<&str>) -> Action {
    let params = json!({"command": text, "description": "as ever"});
    Action::tool_permission("Bash", &params, question).with_command(&params, folder)
}

fn ask(bench: &mut Bench, agent: AgentId, action: Action) -> Asked {
    bench.with(|all, cx| ask_now(all, cx, NewApproval { agent: Some(agent), action })).expect("there is room")
}

fn is_granted(bench: &mut Bench, agent: AgentId, action: Action) -> bool {
    matches!(ask(bench, agent, action), Asked::Granted(_))
}

/// A person makes a rule of what an agent asks for.
fn rule_of(bench: &mut Bench, agent: AgentId, action: Action, more: &Value) -> Value {
    let Asked::Person(id, _) = ask(bench, agent, action) else { panic!("a rule decides it already") };
    let mut body = json!({"say": "allow", "approval": id.to_string()});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    bench.post("/api/rules", &body)["rule"].clone()
}

fn rule(bench: &mut Bench, id: &Value) -> Value {
    let rules = bench.get("/api/rules")["rules"].clone();
    rules.as_array().and_then(|rules| rules.iter().find(|one| one["id"] == *id)).cloned().unwrap_or_default()
}

#[test]
fn a_rule_made_of_an_approval_decides_that_one_and_then_exactly_the_like() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a"), bench.agent("b"));
    let made = rule_of(&mut bench, a, call(1), &json!({}));
    assert_eq!((&made["say"], &made["used"], &made["uses"]), (&json!("allow"), &json!(0), &Value::Null));
    assert_eq!(bench.get("/api/approvals")["pending"], json!([]), "what was waited for is decided");
    assert!(is_granted(&mut bench, a, call(1)));
    assert!(!is_granted(&mut bench, a, call(2)), "other parameters");
    assert!(!is_granted(&mut bench, b, call(1)), "another agent");
    let other_tool = Action::integration_exec("hub", "create_page", &json!({"n": 1}));
    let other_server = Action::integration_exec("bub", "create_issue", &json!({"n": 1}));
    for other in [other_tool, other_server] {
        assert!(!is_granted(&mut bench, a, other));
    }
    let used = bench.audited("rule.use");
    assert_eq!((used.len(), &used[0]["ruleId"], &used[0]["agentId"]), (1, &made["id"], &json!(a)));
    let shown = rule(&mut bench, &made["id"]);
    assert_eq!((&shown["used"], shown["lastUsedAt"].is_string()), (&json!(1), true));
    let resolved = bench.get("/api/approvals")["resolved"].clone();
    let by_rule = resolved.as_array().and_then(|all| all.iter().find(|one| one["rule"] == made["id"]));
    let by_rule = by_rule.expect("its use is shown");
    assert_eq!((&by_rule["status"], by_rule["usedAt"].is_string()), (&json!("approved"), true));
    assert_eq!(by_rule["resolvedBy"], json!(format!("rule {}", made["id"].as_str().unwrap_or_default())));
}

#[test]
fn a_rule_follows_its_lineage_and_ends_with_it() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    let made = rule_of(&mut bench, a, call(1), &json!({}));
    let next = bench.rotates("a");
    assert!(is_granted(&mut bench, next, call(1)));
    bench.exits(next, 0);
    assert_eq!(bench.ask("DELETE", "/api/agents/a", &Value::Null).0, 200);
    assert_eq!(rule(&mut bench, &made["id"])["over"], "agent_removed");
    let namesake = bench.agent("a");
    assert!(!is_granted(&mut bench, namesake, call(1)), "a name is no lineage");
}

#[test]
fn a_rule_for_a_role_is_for_agents_that_people_have_started() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    rule_of(&mut bench, a, call(1), &json!({"for": "role"}));
    let b = bench.agent("b");
    assert!(is_granted(&mut bench, b, call(1)), "the same role");
    let other = bench.agent_like(SpawnRequest {
        role: "writer".into(),
        name: Some("w".into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    });
    assert!(!is_granted(&mut bench, other, call(1)), "another role");
    // An agent chooses the role of those that it starts.
    bench.actor = Actor::Agent(other);
    let child = bench.spawn(&json!({"role": "dev", "name": "child", "prompt": "x"}));
    bench.actor = Actor::Operator;
    assert!(!is_granted(&mut bench, child, call(1)), "it would have widened the rule to itself");
    let Asked::Person(id, _) = ask(&mut bench, child, call(2)) else { panic!("asked") };
    let body = json!({"say": "allow", "approval": id.to_string(), "for": "role"});
    assert_eq!(bench.ask("POST", "/api/rules", &body).0, 400, "nor is one made of what it asks");
    rule_of(&mut bench, a, call(3), &json!({"for": "project"}));
    assert!(is_granted(&mut bench, child, call(3)), "everybody is everybody");
}

/// Another server under the same name is another one.
#[test]
fn a_rule_about_an_integration_ends_with_it() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    let hub = json!({"id": "hub", "command": "hub-server", "env": []});
    bench.post("/api/integrations", &hub);
    let made = rule_of(&mut bench, a, call(1), &json!({}));
    let Asked::Person(other, _) = ask(&mut bench, a, call(2)) else { panic!("asked") };
    let never = bench.post("/api/rules", &json!({"say": "never", "approval": other.to_string()}));
    assert!(is_granted(&mut bench, a, call(1)));
    bench.wish("DELETE", "/api/integrations/hub", &Value::Null);
    assert_eq!(rule(&mut bench, &made["id"])["over"], "integration_removed");
    assert!(!is_granted(&mut bench, a, call(1)));
    assert_eq!(rule(&mut bench, &never["rule"]["id"])["over"], Value::Null, "what is forbidden stays so");
}

/// It would get work out of its own copy without the merge that a person decides.
#[test]
fn no_rule_lets_an_agent_with_a_worktree_write_into_the_project() {
    let mut bench = Bench::in_project();
    let shares = bench.agent("shares");
    let isolated = bench.agent_like(SpawnRequest {
        role: "dev".into(),
        name: Some("isolated".into()),
        provider: Some("script".into()),
        isolation: crate::agents::Isolation::Worktree,
        worktree: Some(".svc/worktrees/isolated".into()),
        ..SpawnRequest::default()
    });
    bench.post("/api/rules", &json!({"say": "allow", "file": "web/x.js", "for": "project"}));
    let action = Action::scope_violation("web/x.js", None, false);
    let judged = |agent| judge(&bench.state, bench.now, Some(agent), &action);
    assert!(matches!(judged(shares), Judged::Allow(_)));
    assert_eq!(judged(isolated), Judged::Person(None));
}

#[test]
fn who_is_no_known_agent_is_asked_whatever_the_rules_say() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    rule_of(&mut bench, a, call(1), &json!({"for": "project"}));
    for agent in [None, Some(UNKNOWN_AGENT), Some(AgentId(77))] {
        assert_eq!(judge(&bench.state, bench.now, agent, &call(1)), Judged::Person(None), "{agent:?}");
    }
}

#[test]
fn never_wins_over_ask_and_ask_over_allow() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    rule_of(&mut bench, a, call(1), &json!({}));
    let of = |say: &str| json!({"say": say, "approval": null, "for": "project"});
    let Asked::Person(like, _) = ask(&mut bench, a, call(2)) else { panic!("asked") };
    let Asked::Granted(granted) = ask(&mut bench, a, call(1)) else { panic!("allowed") };
    let mut body = of("ask");
    body["approval"] = json!(granted.to_string());
    let asks = bench.post("/api/rules", &body)["rule"]["id"].clone();
    assert!(!is_granted(&mut bench, a, call(1)), "a wider ask stops a narrower allow");
    assert_eq!(rule(&mut bench, &asks)["used"], 1);
    body["say"] = json!("never");
    let never = bench.post("/api/rules", &body)["rule"]["id"].clone();
    assert!(matches!(ask(&mut bench, a, call(1)), Asked::Never(id) if json!(id) == never));
    // One that waits is rejected by the rule that is made of it.
    let body = json!({"say": "never", "approval": like.to_string()});
    assert_eq!(bench.post("/api/rules", &body)["approval"]["status"], "rejected");
    assert!(matches!(ask(&mut bench, a, call(2)), Asked::Never(_)));
}

#[test]
fn a_rule_is_used_up_expires_and_is_revoked() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    let two = rule_of(&mut bench, a, call(1), &json!({"uses": 2}));
    let granted = (0..5).filter(|_| is_granted(&mut bench, a, call(1))).count();
    assert_eq!((granted, &rule(&mut bench, &two["id"])["over"]), (2, &json!("used_up")));
    let hour = rule_of(&mut bench, a, call(2), &json!({"minutes": 60}));
    bench.pass(Duration::from_secs(3599));
    assert!(is_granted(&mut bench, a, call(2)));
    bench.now = bench.now + Duration::from_secs(1);
    assert!(!is_granted(&mut bench, a, call(2)), "its time is over before its timer comes");
    bench.pass(HOUR);
    assert_eq!(rule(&mut bench, &hour["id"])["over"], "expired");
    let usual = rule_of(&mut bench, a, call(3), &json!({}));
    let path = format!("/api/rules/{}", usual["id"].as_str().unwrap_or_default());
    assert_eq!(bench.ask("DELETE", &path, &Value::Null).1["over"], "revoked");
    assert!(!is_granted(&mut bench, a, call(3)));
    assert_eq!(bench.ask("DELETE", &path, &Value::Null).0, 200, "again is no fault");
    assert_eq!(bench.ask("DELETE", "/api/rules/rul-00000000", &Value::Null).0, 404);
}

#[test]
fn no_jump_of_the_clock_makes_a_rule_live_longer() {
    let mut bench = Bench::new();
    let a = bench.agent("a");
    let jump = |bench: &mut Bench, is_back: bool, by: Duration| {
        let jump = Jump { is_back, by };
        bench.now = bench.now.moved(jump);
        bench.apply(Event::ClockSet(jump));
    };
    rule_of(&mut bench, a, call(1), &json!({"minutes": 60}));
    bench.pass(HOUR / 2);
    jump(&mut bench, true, 24 * HOUR);
    assert!(is_granted(&mut bench, a, call(1)));
    bench.pass(HOUR / 2);
    assert!(!is_granted(&mut bench, a, call(1)), "its hour has passed");
    rule_of(&mut bench, a, call(2), &json!({"minutes": 60}));
    jump(&mut bench, false, 2 * HOUR);
    assert!(!is_granted(&mut bench, a, call(2)), "by the wall its hour is over");
    // Set back while no daemon runs: as far as it was seen to go, the rule ends as much earlier.
    rule_of(&mut bench, a, call(3), &json!({"minutes": 120}));
    bench.pass(HOUR);
    assert!(is_granted(&mut bench, a, call(3)), "an hour is left");
    let stored = stored(&bench);
    bench.now = Time(bench.now.0 - 1000 * 3_600_000);
    let now = bench.now;
    restore(&mut bench.state, stored, now);
    super::not_after(&mut bench.state, now);
    bench.pass(HOUR);
    assert!(!is_granted(&mut bench, a, call(3)));
}

fn stored(bench: &Bench) -> Stored {
    let bytes = encode(Document::Approvals, &bench.state).expect("a document").expect("JSON");
    serde_json::from_slice(&bytes).expect("as it was written")
}

fn asks_to_run(bench: &mut Bench, agent: AgentId, text: &str, question: &str) {
    let input = json!({"command": text, "description": "as ever"});
    let started = Activity::ToolStarted {
        id: format!("t-{question}"),
        name: "Bash".into(),
        input: input.clone(),
        path: None,
        writes: false,
    };
    let asked = Activity::PermissionAsked { question: question.into(), name: "Bash".into(), input };
    bench.does(agent, vec![started, asked]);
}

/// What the program was told about a question: `None` while it waits.
fn answers(bench: &Bench, asked: &str) -> Vec<bool> {
    let answer = |effect: &Effect| match effect {
        Effect::Run(_, crate::agents::RunOrder::Decide { question, ruling }) if question == asked => {
            Some(ruling.allow)
        }
        _ => None,
    };
    bench.effects.iter().filter_map(answer).collect()
}

fn pending(bench: &mut Bench) -> usize {
    bench.get("/api/approvals")["pending"].as_array().map_or(0, Vec::len)
}

/// A rule of the command line that this agent asks to run now.
fn allows_command(bench: &mut Bench, agent: AgentId, text: &str, more: &Value) -> Value {
    asks_to_run(bench, agent, text, "first");
    let id = bench.get("/api/approvals")["pending"][0]["id"].clone();
    let mut body = json!({"say": "allow", "approval": id, "match": "command"});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    bench.post("/api/rules", &body)["rule"].clone()
}

#[test]
fn this_command_in_this_folder_is_answered_without_a_person_and_no_other_is() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    allows_command(&mut bench, a, "make test", &json!({}));
    assert_eq!(answers(&bench, "first"), [true], "what was waited for is answered");
    let hears = |bench: &mut Bench, text: &str, question: &str| {
        asks_to_run(bench, a, text, question);
        answers(bench, question)
    };
    assert_eq!(hears(&mut bench, "make test", "q1"), [true]);
    assert_eq!(bench.notices("approval:request").len(), 1, "nobody was asked a second time");
    for (n, other) in ["make test ", "make  test", "make test; ls", "MAKE test", "make"].iter().enumerate() {
        assert_eq!(hears(&mut bench, other, &format!("o{n}")), [false; 0], "{other:?}");
    }
    assert_eq!(pending(&mut bench), 5);
    let b = bench.agent("b");
    asks_to_run(&mut bench, b, "make test", "q2");
    assert_eq!(answers(&bench, "q2"), [false; 0], "another agent");
}

#[test]
fn a_shell_that_may_be_elsewhere_is_asked_about() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    allows_command(&mut bench, a, "make test", &json!({}));
    let input = json!({"command": "cd sub && ls"});
    let moves =
        Activity::ToolStarted { id: "m".into(), name: "Bash".into(), input, path: None, writes: false };
    bench.does(a, vec![moves]);
    asks_to_run(&mut bench, a, "make test", "q1");
    assert_eq!(answers(&bench, "q1"), [false; 0], "it may be in sub");
    // Nor after a start, when nobody knows what was run before.
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    allows_command(&mut bench, a, "make test", &json!({}));
    let (stored, now) = (stored(&bench), bench.now);
    restore(&mut bench.state, stored, now);
    asks_to_run(&mut bench, a, "make test", "q2");
    assert_eq!(answers(&bench, "q2"), [false; 0]);
}

#[test]
fn a_rule_for_one_folder_is_for_no_other() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    let new = NewRule {
        say: Say::Allow,
        about: About::Command { tool: "Bash".into(), command: "make".into(), folder: "web".into() },
        whose: For::Agent(Some("a".into())),
        uses: None,
        lifetime: None,
        note: None,
    };
    bench.command(crate::core::Command::Approvals(Command::AddRule(Box::new(new))));
    let judged = |bench: &Bench, folder| judge(&bench.state, bench.now, Some(a), &bash("make", "q", folder));
    assert!(matches!(judged(&bench, Some("web")), Judged::Allow(_)));
    for folder in [Some(""), Some("api"), Some("web/sub"), None] {
        assert_eq!(judged(&bench, folder), Judged::Person(None), "{folder:?}");
    }
}

/// The use is on disk, or it is not; in no case is more granted than the count says.
#[test]
fn a_daemon_that_is_killed_between_a_use_and_its_grant_grants_it_once() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    let made = allows_command(&mut bench, a, "make test", &json!({"uses": 1}));
    let before = stored(&bench);
    bench.disk_hangs = true;
    asks_to_run(&mut bench, a, "make test", "q1");
    assert_eq!(answers(&bench, "q1"), [false; 0], "not before it is on disk");
    assert_eq!(pending(&mut bench), 0, "and no person is asked meanwhile");
    let after = stored(&bench);
    bench.disk_hangs = false;
    let now = bench.now;
    // Killed when the disk has it.
    restore(&mut bench.state, after, now);
    bench.pass(Duration::from_millis(1));
    assert_eq!(answers(&bench, "q1"), [true]);
    let again = stored(&bench);
    restore(&mut bench.state, again, now);
    bench.pass(Duration::from_millis(1));
    assert_eq!(answers(&bench, "q1"), [true], "once");
    assert_eq!(rule(&mut bench, &made["id"])["used"], 1);
    asks_to_run(&mut bench, a, "make test", "q2");
    assert_eq!(answers(&bench, "q2"), [false; 0], "it is used up");
    // Killed when the disk does not have it: nothing was granted, and the use is there.
    restore(&mut bench.state, before, now);
    assert_eq!(rule(&mut bench, &made["id"])["used"], 0);
}

#[test]
fn what_was_revoked_while_a_call_waits_goes_to_a_person() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    let made = allows_command(&mut bench, a, "make test", &json!({"uses": 1}));
    bench.disk_hangs = true;
    asks_to_run(&mut bench, a, "make test", "q1");
    bench.disk_hangs = false;
    let path = format!("/api/rules/{}", made["id"].as_str().unwrap_or_default());
    assert_eq!(bench.ask("DELETE", &path, &Value::Null).1["over"], "revoked");
    let id = bench.get("/api/approvals")["pending"][0]["id"].clone();
    let approval: ApprovalId = id.as_str().and_then(|id| id.parse().ok()).expect("it waits for a person now");
    bench.apply(Event::Timer(Timer::ApprovalByRule(approval)));
    assert_eq!(answers(&bench, "q1"), [false; 0], "the word that it is on disk comes too late");
    assert_eq!(bench.notices("approval:request").len(), 2, "and the person is told");
    bench.post("/api/approvals", &json!({"id": id, "decision": "approve"}));
    assert_eq!(answers(&bench, "q1"), [true]);
}

#[test]
fn what_was_forbidden_while_a_call_waits_is_refused() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    allows_command(&mut bench, a, "make test", &json!({}));
    bench.disk_hangs = true;
    asks_to_run(&mut bench, a, "make test", "q1");
    bench.disk_hangs = false;
    let body = json!({"say": "never", "command": "make test", "tool": "Bash", "for": "project"});
    bench.post("/api/rules", &body);
    let waits = bench.state.approvals.undecided().next().expect("on its way").id;
    bench.apply(Event::Timer(Timer::ApprovalByRule(waits)));
    assert_eq!(answers(&bench, "q1"), [false]);
    asks_to_run(&mut bench, a, "make test", "q2");
    assert_eq!(answers(&bench, "q2"), [false], "and the next one at once");
}

#[test]
fn no_rule_is_made_of_what_is_below_the_floor_or_of_a_question() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    let refused = |bench: &mut Bench, action: Action, say: &str| {
        let Asked::Person(id, _) = ask(bench, a, action) else { panic!("asked") };
        let body = json!({"say": say, "approval": id.to_string()});
        let (status, answer) = bench.ask("POST", "/api/rules", &body);
        (status, answer["floor"].clone(), answer["code"].clone())
    };
    let config = Action::scope_violation(".svc/config.json", None, false);
    let forbidden = |word: &str| (409, json!(word), json!("rule_forbidden"));
    assert_eq!(refused(&mut bench, config.clone(), "allow"), forbidden("daemon"));
    assert_eq!(refused(&mut bench, config, "never").0, 201, "forbidding is free");
    assert_eq!(refused(&mut bench, bash("git push", "q", Some("")), "allow"), forbidden("repository"));
    let long = Action::integration_exec("hub", "create_issue", &json!({"body": "x".repeat(9_000)}));
    assert_eq!(refused(&mut bench, long, "allow"), forbidden("unseen"));
    let question = refused(&mut bench, Action::question("which one?"), "allow");
    assert_eq!((question.0, question.2), (400, json!("no_rule_possible")));
    for body in [
        json!({"say": "allow", "file": "/etc/passwd", "for": "project"}),
        json!({"say": "allow", "file": "../x", "for": "project"}),
        json!({"say": "allow", "file": "a", "command": "b", "tool": "Bash"}),
        json!({"say": "allow"}),
        json!({"say": "always", "file": "a"}),
        json!({"say": "allow", "file": "a", "for": "project", "uses": 0}),
        json!({"say": "never", "file": "a", "for": "project", "uses": 3}),
        json!({"say": "allow", "file": "a", "for": "project", "minutes": 60 * 24 * 91}),
        json!({"say": "allow", "file": "a", "for": "role", "agent": "a"}),
        json!({"say": "allow", "command": "make", "for": "project"}),
    ] {
        assert_eq!(bench.ask("POST", "/api/rules", &body).0, 400, "{body}");
    }
    // A stored rule of an earlier version that allows what is below the floor today allows nothing.
    let made = json!({"say": "allow", "file": "a.txt", "for": "project"});
    bench.post("/api/rules", &made);
    let rule = Arc::make_mut(Arc::make_mut(&mut bench.state.approvals).rules.last_mut().expect("made"));
    rule.deed = Deed::Write { file_path: ".git/config".into() };
    let action = Action::scope_violation(".git/config", None, false);
    assert_eq!(judge(&bench.state, bench.now, Some(a), &action), Judged::Person(None));
}

#[test]
fn an_agent_makes_and_revokes_no_rule() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    let made = bench.post("/api/rules", &json!({"say": "never", "file": "x", "for": "project"}));
    bench.actor = Actor::Agent(a);
    let (status, body) =
        bench.ask("POST", "/api/rules", &json!({"say": "allow", "file": "y", "for": "project"}));
    assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")));
    let path = format!("/api/rules/{}", made["rule"]["id"].as_str().unwrap_or_default());
    assert_eq!(bench.ask("DELETE", &path, &Value::Null).0, 403);
    assert_eq!(bench.get("/api/rules")["rules"].as_array().map(Vec::len), Some(1));
}

/// What a person forbids is forbidden where an agent may write otherwise, and to one that is not blocked.
#[test]
fn rules_are_bounded_and_what_rules_decide_leaves_room_for_what_persons_have() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    for n in 0..MAX_RULES {
        bench.post("/api/rules", &json!({"say": "never", "file": format!("f{n}"), "for": "project"}));
    }
    let one_more = json!({"say": "allow", "file": "more", "for": "project"});
    let (status, body) = bench.ask("POST", "/api/rules", &one_more);
    assert_eq!((status, &body["code"]), (409, &json!("too_many_rules")));
    let ids: Vec<Value> = bench.get("/api/rules")["rules"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one["id"].clone())
        .collect();
    for id in ids {
        bench.ask("DELETE", &format!("/api/rules/{}", id.as_str().unwrap_or_default()), &Value::Null);
    }
    assert_eq!(bench.get("/api/rules")["rules"].as_array().map(Vec::len), Some(MAX_ENDED));
    for n in 0..5 {
        let Asked::Person(id, _) = ask(&mut bench, a, call(100 + n)) else { panic!("asked") };
        bench
            .with(|all, cx| decided(all, cx, &id.to_string(), crate::approvals::Decision::Reject, None))
            .expect("is");
    }
    rule_of(&mut bench, a, call(1), &json!({"uses": MAX_USES}));
    for _ in 0..100 {
        assert!(is_granted(&mut bench, a, call(1)));
    }
    let resolved = bench.get("/api/approvals")["resolved"].clone();
    let resolved = resolved.as_array().cloned().unwrap_or_default();
    let by_rule = resolved.iter().filter(|one| one["rule"].is_string()).count();
    assert_eq!((by_rule, resolved.len()), (super::super::MAX_BY_RULE, super::super::MAX_BY_RULE + 6));
}

/// Many orders of asking, killing, waiting and revoking: no rule lets more through than it says.
#[test]
fn in_no_order_of_events_does_a_rule_grant_more_than_its_count() {
    for seed in 0..60_u64 {
        let mut bench = Bench::in_project();
        let a = bench.agent("a");
        let made = allows_command(&mut bench, a, "make test", &json!({"uses": 3}));
        let id: RuleId = made["id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
        let mut dice = Context::new(bench.now, seed);
        let mut disk = stored(&bench);
        let mut questions = 0;
        for _ in 0..30 {
            match dice.random() % 6 {
                0 | 1 => {
                    bench.disk_hangs = dice.random().is_multiple_of(2);
                    questions += 1;
                    // The daemon that was restarted does not know where the shell is: a new process does.
                    Arc::make_mut(&mut bench.state.approvals).shells.forget(a);
                    asks_to_run(&mut bench, a, "make test", &format!("q{questions}"));
                    if !bench.disk_hangs {
                        disk = stored(&bench);
                    }
                }
                2 => disk = stored(&bench),
                3 => {
                    // What was answered is on the disk before: that is what is asked of the store.
                    let waits: Vec<ApprovalId> = bench
                        .state
                        .approvals
                        .undecided()
                        .filter(|one| one.rule.is_some())
                        .map(|one| one.id)
                        .collect();
                    disk = stored(&bench);
                    for id in waits {
                        bench.apply(Event::Timer(Timer::ApprovalByRule(id)));
                    }
                }
                4 => {
                    let (copy, now) = (serde_json::to_value(&disk).expect("JSON"), bench.now);
                    restore(&mut bench.state, serde_json::from_value(copy).expect("the same"), now);
                    bench.pass(Duration::from_millis(5));
                }
                _ => bench.pass(Duration::from_secs(60)),
            }
            let used = bench.state.approvals.rule(id).map_or(3, |rule| rule.used);
            assert!(used <= 3, "seed {seed}: {used} uses");
        }
        let granted = (1..=questions).filter(|n| answers(&bench, &format!("q{n}")).contains(&true)).count();
        assert!(granted <= 3, "seed {seed}: {granted} were granted");
    }
}

#[test]
fn rules_survive_a_restart() {
    let mut bench = Bench::in_project();
    let a = bench.agent("a");
    let made = rule_of(&mut bench, a, call(1), &json!({"uses": 5, "minutes": 60, "note": "for tonight"}));
    is_granted(&mut bench, a, call(1));
    let shown = rule(&mut bench, &made["id"]);
    let (stored, now) = (stored(&bench), bench.now);
    bench.state.timers = Arc::default();
    restore(&mut bench.state, stored, now);
    assert_eq!(rule(&mut bench, &made["id"]), shown);
    assert!(is_granted(&mut bench, a, call(1)));
    bench.pass(HOUR);
    assert_eq!(rule(&mut bench, &made["id"])["over"], "expired");
}

#[test]
fn the_command_door_refuses_what_the_disk_cannot_keep() {
    let mut bench = Bench::in_project();
    bench.apply(Event::Storage(Some("no space left".into())));
    let new = Command::RevokeRule { id: "rul-00000001".into() };
    bench.with(|all, cx| command(all, cx, CallId(1), new));
    let refused = bench.effects.iter().any(|effect| format!("{effect:?}").contains("storage_unavailable"));
    assert!(refused, "{:?}", bench.effects);
}
