use crate::agents::report::{Batch, Credit, Packed, RunReport};
use crate::agents::{self, SpawnRequest};
use crate::core::ids::AgentId;
use crate::core::{Actor, Command, Effect, Event};
use crate::providers::{Activity, Permission};
use crate::testing::Bench;
use serde_json::{Value, json};

/// Two agents: `web` owns `web/**`, `api` owns `api/**`; and `free`, without a scope.
pub(super) fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.state.project =
        std::sync::Arc::new(crate::core::Project { dir: "/p".into(), ..crate::core::Project::default() });
    for (name, scope) in [("web", "web/**"), ("api", "api/**"), ("free", "")] {
        spawn(&mut bench, name, scope, Permission::Auto);
    }
    bench.effects.clear();
    bench
}

pub(super) fn spawn(bench: &mut Bench, name: &str, scope: &str, permission: Permission) -> AgentId {
    let request = SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some("script".into()),
        scope: if scope.is_empty() { Vec::new() } else { vec![scope.into()] },
        permission,
        ..SpawnRequest::default()
    };
    bench.command(Command::Agents(agents::Command::Spawn(Box::new(request))));
    let id = id(bench, name);
    bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
    id
}

pub(super) fn id(bench: &Bench, name: &str) -> AgentId {
    bench.state.agents.find(name).unwrap().id
}

pub(super) fn hear(bench: &mut Bench, name: &str, activities: Vec<Activity>) {
    let id = id(bench, name);
    let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
    bench.apply(Event::Run(id, RunReport::Output(batch)));
}

/// A tool call of `name` that writes `path` and ends.
pub(super) fn writes(bench: &mut Bench, name: &str, path: &str, error: bool) {
    let started = Activity::ToolStarted {
        id: "t1".into(),
        name: "Write".into(),
        input: json!({}),
        path: Some(path.into()),
        writes: true,
    };
    hear(bench, name, vec![started, Activity::ToolEnded { id: "t1".into(), error, output: String::new() }]);
}

fn may_write(bench: &mut Bench, agent: &str, path: &str) -> Value {
    let body = json!({"agentId": agent, "tool": "Write", "path": path});
    let (status, answer) = bench.ask("POST", "/api/hooks/write", &body);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn state_of(bench: &Bench, name: &str) -> String {
    format!("{:?}", bench.state.agents.find(name).unwrap().status)
}

pub(super) fn pending(bench: &mut Bench) -> Vec<Value> {
    bench.ask("GET", "/api/approvals", &Value::Null).1["pending"].as_array().unwrap().clone()
}

#[test]
fn decisions_10_a_write_into_anothers_scope_is_a_conflict_and_a_question() {
    let mut bench = bench();
    writes(&mut bench, "web", "/p/api/main.rs", false);
    let told = bench.notices("conflict:detected");
    assert_eq!(told.len(), 1);
    let data = &told[0]["data"];
    assert_eq!((&data["agentName"], &data["filePath"]), (&json!("web"), &json!("api/main.rs")));
    assert_eq!(data["ownerName"], "api");
    let asked = pending(&mut bench);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["action"]["type"], "scope_violation");
    assert_eq!(asked[0]["action"]["filePath"], "api/main.rs");
    assert_eq!(asked[0]["action"]["ownerName"], "api");
    assert_eq!(state_of(&bench, "web"), "Running", "it is written: nobody waits");
    writes(&mut bench, "web", "/p/api/main.rs", false);
    assert_eq!(pending(&mut bench).len(), 1, "the same file is asked about once");
    let (_, list) = bench.ask("GET", "/api/conflicts", &Value::Null);
    assert_eq!(list["conflicts"][0]["seen"], "after");
    let id = asked[0]["id"].as_str().unwrap().to_owned();
    bench.ask("POST", &format!("/api/approvals/{id}/approve"), &json!({}));
    writes(&mut bench, "web", "api/main.rs", false);
    assert_eq!(pending(&mut bench).len(), 0, "a person has let it write this file");
}

#[test]
fn decisions_10_who_trespasses_and_who_does_not() {
    let mut bench = bench();
    for (name, path, asks) in [
        ("web", "web/index.html", false),
        ("web", "docs/x.md", true),
        ("web", "/etc/hosts", true),
        ("free", "docs/x.md", false),
        ("free", "/tmp/x", false),
        ("free", "web/a.css", true),
        ("api", "web/../api/x.rs", false),
    ] {
        let before = pending(&mut bench).len();
        writes(&mut bench, name, path, false);
        assert_eq!(pending(&mut bench).len() > before, asks, "{name} writes {path}");
    }
    let before = pending(&mut bench).len();
    writes(&mut bench, "web", "api/refused.rs", true);
    assert_eq!(pending(&mut bench).len(), before, "a tool that failed has written nothing");
}

#[test]
fn daemon_permission_full_is_not_blocked_and_a_person_is_asked_afterwards() {
    let mut bench = bench();
    spawn(&mut bench, "bold", "bold/**", Permission::Full);
    writes(&mut bench, "bold", "web/x", false);
    assert_eq!(bench.notices("conflict:detected").len(), 1);
    assert_eq!(pending(&mut bench).len(), 1, "a scope violation is always put to a person");
    assert_eq!(state_of(&bench, "bold"), "Running");
    assert_eq!(may_write(&mut bench, "bold", "web/y")["decision"], "allow");
    assert_eq!(pending(&mut bench).len(), 1, "not before it has written");
    let (_, list) = bench.ask("GET", "/api/conflicts", &Value::Null);
    assert_eq!(list["conflicts"].as_array().unwrap().len(), 2);
    assert_eq!(bench.audited("ownership.trespass").len(), 2);
}

#[test]
fn decisions_10_a_hook_asks_before_and_the_approval_lets_one_write_through() {
    let mut bench = bench();
    assert_eq!(may_write(&mut bench, "web", "/p/web/a.css")["decision"], "allow");
    let denied = may_write(&mut bench, "web", "/p/api/a.rs");
    assert_eq!(denied["decision"], "deny");
    let id = denied["approvalId"].as_str().unwrap().to_owned();
    assert!(denied["reason"].as_str().unwrap().contains(&id), "{denied}");
    assert_eq!(state_of(&bench, "web"), "Waiting");
    assert_eq!(may_write(&mut bench, "web", "/p/api/a.rs")["approvalId"], json!(id), "folded");
    assert_eq!(bench.notices("conflict:detected").len(), 1);
    bench.ask("POST", "/api/approvals", &json!({"id": id, "decision": "approve"}));
    assert_eq!(state_of(&bench, "web"), "Running");
    let told = bench.effects.iter().any(|effect| {
        matches!(effect, Effect::Run(_, agents::RunOrder::Say { text, .. }) if text.contains("Write api/a.rs again"))
    });
    assert!(told, "the agent is told by itself");
    assert_eq!(may_write(&mut bench, "web", "/p/api/a.rs")["decision"], "allow");
    writes(&mut bench, "web", "/p/api/a.rs", false);
    assert!(pending(&mut bench).is_empty(), "the approved write is not asked about afterwards");
    assert_eq!(may_write(&mut bench, "web", "/p/api/b.rs")["decision"], "deny", "for that file alone");
}

#[test]
fn decisions_4_an_agent_asks_only_for_itself() {
    let mut bench = bench();
    bench.actor = Actor::Agent(id(&bench, "web"));
    let (status, _) = bench.ask("POST", "/api/hooks/write", &json!({"path": "web/a"}));
    assert_eq!(status, 200, "its own id is filled in");
    let (status, problem) = bench.ask("POST", "/api/hooks/write", &json!({"agentId": "api", "path": "x"}));
    assert_eq!((status, &problem["code"]), (403, &json!("agent_may_not")));
    bench.actor = Actor::Operator;
    let (status, problem) = bench.ask("POST", "/api/hooks/write", &json!({"tool": 5}));
    assert_eq!((status, problem["errors"].as_array().unwrap().len()), (400, 3), "{problem}");
}

#[test]
fn issue_4_a_providers_question_goes_through_the_same_door() {
    let mut bench = bench();
    let asked = || Activity::PermissionAsked {
        question: "q7".into(),
        name: "Bash".into(),
        input: json!({"command": "make", "api_key": "hidden"}),
    };
    hear(&mut bench, "web", vec![asked()]);
    let approval = pending(&mut bench).pop().unwrap();
    assert_eq!(approval["action"]["type"], "tool_permission");
    assert_eq!(approval["action"]["tool"], "Bash");
    assert!(!approval.to_string().contains("hidden"), "{approval}");
    assert_eq!(state_of(&bench, "web"), "Waiting");
    let id = approval["id"].as_str().unwrap().to_owned();
    bench.ask("POST", &format!("/api/approvals/{id}/approve"), &json!({}));
    let answers = |bench: &Bench| -> Vec<(bool, String)> {
        let decision = |effect: &Effect| match effect {
            Effect::Run(_, agents::RunOrder::Decide { question, ruling }) if question == "q7" => {
                Some((ruling.allow, ruling.reason.clone()))
            }
            _ => None,
        };
        bench.effects.iter().filter_map(decision).collect()
    };
    let yes = || (true, String::new());
    assert_eq!(answers(&bench), [yes()]);
    assert_eq!(state_of(&bench, "web"), "Running");
    // The daemon that heard it may have died before the program did.
    let web = self::id(&bench, "web");
    bench.effects.clear();
    bench.apply(Event::Run(web, RunReport::CaughtUp));
    assert_eq!(answers(&bench), [yes()], "it is told again");
    hear(&mut bench, "web", vec![asked()]);
    let again = pending(&mut bench).pop().unwrap()["id"].as_str().unwrap().to_owned();
    assert_ne!(again, id, "an approval is used once");
    bench.ask("POST", &format!("/api/approvals/{again}/reject"), &json!({"reason": "use make test"}));
    assert_eq!(answers(&bench), [yes(), (false, "use make test".into())], "the reason goes with the no");
    hear(&mut bench, "web", vec![asked()]);
    let web = self::id(&bench, "web");
    bench.exits(web, 0);
    assert!(pending(&mut bench).is_empty(), "nobody waits for the answer any more");
}

/// It would stay for ever, and keep a place that others need.
#[test]
fn an_agent_whose_turn_ended_before_its_question_was_answered_is_let_go_with_the_answer() {
    let mut bench = bench();
    let asked = Activity::PermissionAsked { question: "q7".into(), name: "Bash".into(), input: json!({}) };
    hear(&mut bench, "web", vec![asked, Activity::TurnEnded(crate::providers::TurnEnd::default())]);
    let finishes = |bench: &Bench| {
        let is_it = |effect: &&Effect| matches!(effect, Effect::Run(_, agents::RunOrder::Finish));
        bench.effects.iter().filter(is_it).count()
    };
    assert_eq!((state_of(&bench, "web").as_str(), finishes(&bench)), ("Waiting", 0));
    let id = pending(&mut bench).pop().unwrap()["id"].as_str().unwrap().to_owned();
    bench.ask("POST", &format!("/api/approvals/{id}/approve"), &json!({}));
    assert_eq!(finishes(&bench), 1, "it has nothing to do");
}

#[test]
fn an_agent_whose_turn_ended_before_its_question_was_answered_is_told_with_the_answer_what_waits() {
    let mut bench = bench();
    let asked = Activity::PermissionAsked { question: "q7".into(), name: "Bash".into(), input: json!({}) };
    hear(&mut bench, "web", vec![asked, Activity::TurnEnded(crate::providers::TurnEnd::default())]);
    let message = json!({"message": "and this", "deliver": "rotation"});
    assert_eq!(bench.ask("POST", "/api/agents/web/instruct", &message).0, 200);
    let id = pending(&mut bench).pop().unwrap()["id"].as_str().unwrap().to_owned();
    bench.effects.clear();
    bench.ask("POST", &format!("/api/approvals/{id}/approve"), &json!({}));
    let said = |effect: &Effect| matches!(effect, Effect::Run(_, agents::RunOrder::Say { text, .. }) if text.contains("and this"));
    let ends = |effect: &Effect| matches!(effect, Effect::Run(_, agents::RunOrder::Finish));
    assert!(bench.effects.iter().any(said), "it takes that without another life");
    assert!(!bench.effects.iter().any(ends));
}

#[test]
fn decisions_2_overlaps_are_told_to_the_owners() {
    let mut bench = bench();
    spawn(&mut bench, "css", "web/css/**", Permission::Auto);
    let told = |name: &str| {
        let agent = bench.state.agents.find(name).unwrap();
        agent.queue.iter().filter(|message| message.text.contains("css")).count()
    };
    assert_eq!((told("web"), told("api"), told("css")), (1, 0, 0));
}
