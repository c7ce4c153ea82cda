//! What a wish for an agent comes to, and what is said of how its run has ended.

use super::report::{Keeper, RunReport};
use super::{Command, Isolation, RunOrder, SpawnRequest};
use crate::core::{Actor, Effect, Event, Project};
use crate::programs::registry::Detection;
use crate::providers::environment::Extra;
use crate::providers::{Activity, LaunchRequest, Permission, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::sync::Arc;

/// A bench with these providers installed, on a system that can fence.
fn bench(installed: &[&'static str], can_fence: bool) -> Bench {
    let mut bench = Bench::new();
    let found = installed.iter().map(|id| Detection::installed(id, "1")).collect();
    bench.apply(Event::Detected(found));
    let project = Project { dir: "/project".into(), can_fence, ..Project::default() };
    bench.state.project = Arc::new(project);
    bench
}

fn request(provider: &str) -> SpawnRequest {
    SpawnRequest { role: "dev".into(), provider: Some(provider.into()), ..SpawnRequest::default() }
}

fn spawn(bench: &mut Bench, actor: Actor, request: SpawnRequest) -> (u16, Value) {
    let wish = crate::core::Command::Agents(Command::Spawn(Box::new(request)));
    bench.actor = actor;
    let reply = bench.command(wish).expect("an answer");
    bench.actor = Actor::Operator;
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

/// What the process was ordered with.
fn launched(bench: &mut Bench, request: SpawnRequest) -> LaunchRequest {
    bench.effects.clear();
    let (status, body) = spawn(bench, Actor::Operator, request);
    assert_eq!(status, 201, "{body}");
    let order = bench.effects.iter().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => Some(order.request.clone()),
        _ => None,
    });
    order.expect("an order to start")
}

#[test]
fn decisions_2_a_program_without_a_fence_of_its_own_is_fenced_into_its_project() {
    let fenced = ["gemini", "qwen", "copilot", "cline"];
    for id in fenced {
        let mut bench = bench(&fenced, true);
        assert_eq!(launched(&mut bench, request(id)).fence, Some(vec!["**".to_owned()]), "{id}");
        let scope = vec!["src/**".to_owned()];
        let scoped = SpawnRequest { scope: scope.clone(), ..request(id) };
        assert_eq!(launched(&mut bench, scoped.clone()).fence, Some(vec!["**".to_owned()]), "advisory");
        let full = SpawnRequest { permission: Permission::Full, ..request(id) };
        assert_eq!(launched(&mut bench, full).fence, None, "it was let loose");
        let tree = SpawnRequest {
            isolation: Isolation::Worktree,
            worktree: Some(".svc/worktrees/a".into()),
            ..request(id)
        };
        let globs = vec!["**".to_owned(), "/project/.git/**".to_owned()];
        assert_eq!(launched(&mut bench, tree).fence, Some(globs), "its commits go to the project's git");
        bench.ask("PATCH", "/api/config", &json!({"enforcement": "kernel"}));
        assert_eq!(launched(&mut bench, scoped).fence, Some(scope), "kernel: its scope");
    }
    let mut bench = bench(&["codex", "gemini"], false);
    assert_eq!(launched(&mut bench, request("gemini")).fence, None, "no kernel that could");
    assert_eq!(launched(&mut bench, request("codex")).fence, None, "it has its own");
}

#[test]
fn the_environment_is_what_persons_have_settled_the_closest_wish_last() {
    let mut bench = bench(&["codex", "gemini"], false);
    let config = json!({"env": {"pass": ["A"], "set": {"X": "1", "Y": "1"},
        "providers": {"codex": {"pass": ["B_*"], "set": {"X": "2"}}}}});
    assert_eq!(bench.ask("PATCH", "/api/config", &config).0, 200);
    let own = Extra { pass: vec!["C".into()], set: [("Y".to_owned(), None)].into(), ..Extra::default() };
    let launch = launched(&mut bench, SpawnRequest { env: own, ..request("codex") });
    assert_eq!(launch.extra_env.pass, ["A", "B_*", "C"]);
    assert_eq!(json!(launch.extra_env.set), json!({"X": "2", "Y": null}));
    let launch = launched(&mut bench, request("gemini"));
    assert_eq!(json!(launch.extra_env), json!({"pass": ["A"], "set": {"X": "1", "Y": "1"}}));
    let (_, body) = bench.ask("GET", "/api/agents/dev-1", &Value::Null);
    assert_eq!(body["env"], json!({"pass": ["C"], "set": {"Y": null}}));
}

#[test]
fn only_a_person_adds_to_the_environment_of_an_agent() {
    let mut bench = bench(&[], false);
    let env = Extra { pass: vec!["SSH_AUTH_SOCK".into()], ..Extra::default() };
    let wish = SpawnRequest { env, ..request("script") };
    let maker = bench.agent("maker");
    for actor in [Actor::Agent(maker), Actor::Chat("telegram:1".into())] {
        let (status, body) = spawn(&mut bench, actor, wish.clone());
        assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")), "{body}");
    }
    let maker = bench.agent("maker");
    assert_eq!(spawn(&mut bench, Actor::Agent(maker), request("script")).0, 201, "nothing is added");
    assert_eq!(spawn(&mut bench, Actor::Operator, wish).0, 201);
}

#[test]
fn settings_of_the_environment_are_checked() {
    let mut bench = bench(&[], false);
    for (wrong, field) in [
        (json!({"pass": ["SVC_OPERATOR_TOKEN"]}), "env.pass"),
        (json!({"pass": "HOME"}), "env"),
        (json!({"set": {"OPENAI_API_KEY": "x"}}), "env.set"),
        (json!({"set": {"A": 1}}), "env"),
        (json!({"providers": {"nobody": {}}}), "env.providers.nobody"),
        (json!({"providers": {"codex": {"pass": ["*"]}}}), "env.providers.codex.pass"),
        (json!({"more": 1}), "env.more"),
        (json!(7), "env"),
    ] {
        let (status, body) = bench.ask("PATCH", "/api/config", &json!({"env": wrong}));
        assert_eq!((status, &body["errors"][0]["field"]), (400, &json!(field)), "{wrong}: {body}");
    }
}

#[test]
fn an_acp_agent_without_a_command_is_refused_before_it_starts() {
    let mut bench = bench(&[], false);
    let (status, body) = spawn(&mut bench, Actor::Operator, request("acp"));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("command")), "{body}");
    let auto = SpawnRequest { model: Some("auto".into()), ..request("acp") };
    assert_eq!(spawn(&mut bench, Actor::Operator, auto).0, 400);
    let unknown = SpawnRequest { model: Some("nobody/m".into()), ..request("acp") };
    let (status, body) = spawn(&mut bench, Actor::Operator, unknown);
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("model")), "{body}");
    let own = SpawnRequest { command: vec!["my-agent".into()], ..request("acp") };
    assert_eq!(spawn(&mut bench, Actor::Operator, own).0, 201);
    let preset = SpawnRequest { model: Some("gemini".into()), ..request("acp") };
    assert_eq!(spawn(&mut bench, Actor::Operator, preset).0, 201);
}

#[test]
fn a_program_of_an_unknown_version_is_installed() {
    let mut bench = bench(&[], false);
    let (status, body) = spawn(&mut bench, Actor::Operator, request("codex"));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("provider")), "{body}");
    let mut found = Detection::installed("codex", "");
    found.presence = crate::programs::registry::Presence::Present;
    bench.apply(Event::Detected(vec![found]));
    assert_eq!(spawn(&mut bench, Actor::Operator, request("codex")).0, 201);
    let mut gone = Detection::installed("codex", "");
    gone.presence = crate::programs::registry::Presence::Absent;
    bench.apply(Event::Detected(vec![gone]));
    assert_eq!(spawn(&mut bench, Actor::Operator, request("codex")).0, 400, "removed meanwhile");
}

#[test]
fn why_a_program_crashed_stands_in_its_reason() {
    let long = format!("error: {}", "x".repeat(400));
    for (said, told) in [
        (
            "error: unexpected argument '--x' found\n\nUsage: codex\n",
            ": error: unexpected argument '--x' found",
        ),
        ("Reading\nNot inside a trusted directory.\n\n", ": Not inside a trusted directory."),
        ("  at a\n\u{1b}[31mTypeError: x is null\u{1b}[0m\nNode.js v22\n", ": [31mTypeError: x is null[0m"),
        (" \n", ""),
        (
            "timestamp=1 level=ERROR message=\"x\" cause=\"Error: y\"\nSession not found\n",
            ": Session not found",
        ),
        (long.as_str(), &format!(": {}…", &long[..300])),
    ] {
        let mut bench = bench(&[], false);
        let id = bench.agent("a");
        let exited = RunReport::Exited {
            code: Some(1),
            signal: None,
            stderr_tail: said.into(),
            leaked: 0,
            keeper: Keeper::Told,
            signalled: false,
        };
        bench.apply(Event::Run(id, exited));
        let (_, body) = bench.ask("GET", "/api/agents/a", &Value::Null);
        assert_eq!(body["statusReason"], format!("it exited with code 1{told}"), "{said:?}");
    }
}

#[test]
fn a_crash_for_want_of_a_login_says_what_to_do() {
    for (provider, error, remedy) in [
        (
            "claude-code",
            "Invalid API key · Please run /login",
            "; log in: claude auth login, or store a key: ",
        ),
        ("codex", "unexpected status 401 Unauthorized: no", "; log in: codex login, or store a key: "),
        ("codex", "the answer was cut short", ""),
        ("script", "401 Unauthorized", ""),
    ] {
        let mut bench = bench(&["claude-code", "codex"], false);
        assert_eq!(spawn(&mut bench, Actor::Operator, request(provider)).0, 201);
        let id = bench.state.agents.find("dev-1").unwrap().id;
        bench.apply(Event::Run(id, RunReport::Started { pid: 1, start_ticks: 1 }));
        let end = TurnEnd { is_error: true, error: error.into(), ..TurnEnd::default() };
        bench.does(id, vec![Activity::TurnEnded(end)]);
        bench.exits(id, 1);
        let (_, body) = bench.ask("GET", "/api/agents/dev-1", &Value::Null);
        let reason = body["statusReason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("its last turn failed: {error}{remedy}")), "{reason}");
        assert_eq!(reason.ends_with(error), remedy.is_empty(), "{reason}");
    }
}

#[test]
fn a_signal_tells_of_the_work_only_where_the_daemon_did_not_send_it() {
    let told = |signalled: bool, activities: Vec<Activity>| {
        let mut bench = bench(&[], false);
        let id = bench.agent("a");
        bench.does(id, activities);
        let stderr_tail = String::new();
        let exited = RunReport::Exited {
            code: None,
            signal: Some(15),
            signalled,
            stderr_tail,
            leaked: 0,
            keeper: Keeper::Told,
        };
        bench.apply(Event::Run(id, exited));
        let (_, body) = bench.ask("GET", "/api/agents/a", &Value::Null);
        format!("{}: {}", body["state"].as_str().unwrap(), body["statusReason"].as_str().unwrap())
    };
    let good = || TurnEnd { text: "done".into(), ..TurnEnd::default() };
    let bad = || TurnEnd { is_error: true, error: "cut short".into(), ..TurnEnd::default() };
    let foreign = "killed: signal 15 ended it; the daemon did not send it";
    for end in [good(), bad()] {
        assert_eq!(told(false, vec![Activity::TurnStarted, Activity::TurnEnded(end)]), foreign);
    }
    assert_eq!(told(false, vec![Activity::TurnStarted]), foreign);
    // It was told to finish, and did not heed that.
    assert_eq!(told(true, vec![Activity::TurnStarted, Activity::TurnEnded(good())]), "completed: finished");
    let failed = told(true, vec![Activity::TurnStarted, Activity::TurnEnded(bad())]);
    assert_eq!(failed, "crashed: its last turn failed: cut short");
}

#[test]
fn what_an_agent_does_names_the_tool_and_what_it_works_on() {
    let mut bench = bench(&[], false);
    let id = bench.agent("a");
    let long = "x".repeat(400);
    for (path, input, told) in [
        (None, json!({"command": "ls api\nls web", "timeout": 5}), "Bash ls api".to_owned()),
        (None, json!({"pattern": "TODO"}), "Bash TODO".into()),
        (Some("src/a.rs"), json!({"command": "view"}), "Bash src/a.rs".into()),
        (None, json!({"command": " "}), "Bash".into()),
        (None, json!({"command": ["ls"]}), "Bash".into()),
        (None, json!("ls"), "Bash".into()),
        (None, json!({"command": long}), format!("Bash {}…", &long[..295])),
    ] {
        let (path, name) = (path.map(str::to_owned), "Bash".to_owned());
        bench.does(id, vec![Activity::ToolStarted { id: "t".into(), name, input, path, writes: false }]);
        let (_, body) = bench.ask("GET", "/api/agents/a", &Value::Null);
        assert_eq!(body["currentActivity"], told);
    }
}

#[test]
fn a_record_of_a_provider_that_this_version_does_not_have_is_refused_a_life() {
    let mut bench = Bench::new();
    let id = bench.agent("old");
    bench.exits(id, 0);
    bench.with(|all, _| {
        Arc::make_mut(&mut all.agents).edit(id).unwrap().provider = "gone".into();
    });
    bench.effects.clear();
    let (status, problem) = bench.ask("POST", &format!("/api/agents/{id}/resume"), &json!({}));
    assert_eq!((status, &problem["code"]), (409, &json!("unknown_provider")), "{problem}");
    assert!(problem["error"].as_str().unwrap().contains("\"gone\""), "{problem}");
    let started = bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, RunOrder::Start(_))));
    assert!(!started, "above all not the rehearsal");
}

#[test]
fn closed_words_of_records_and_wishes_are_as_they_were_and_old_files_load() {
    use crate::schedules::Outcome::{Failed, Missed, Skipped, Started};
    assert_eq!(json!([Isolation::Shared, Isolation::Worktree]), json!(["shared", "worktree"]));
    for (stored, wanted) in [(json!({}), Isolation::Shared), (json!({"isolation": ""}), Isolation::Shared)] {
        let wish: SpawnRequest = serde_json::from_value(stored).unwrap();
        assert_eq!(wish.isolation, wanted);
    }
    assert_eq!(json!([Started, Skipped, Missed, Failed]), json!(["started", "skipped", "missed", "failed"]));
}

#[test]
fn a_checkpoint_counts_what_no_batch_tells_of() {
    let mut bench = bench(&["script"], true);
    let id = bench.agent("dev");
    bench.effects.clear();
    bench.apply(Event::Run(id, RunReport::Checkpoint { n: 3, deed: 7 }));
    // Else no checkpoint would be as old as the state on disk, once the earlier ones are gone.
    assert_eq!(bench.state.agents.get(id).unwrap().heard, 7);
    let at = |is_it: fn(&Effect) -> bool| bench.effects.iter().position(is_it).expect("an effect");
    let put = at(|effect| matches!(effect, Effect::Put(crate::core::Document::Agents, _)));
    let settled = at(|effect| matches!(effect, Effect::Settled(_, 3)));
    assert!(put < settled, "it is told when this is on disk");
}

/// What is to begin a turn, and does not arrive, leaves nobody waiting for the end of that turn.
#[test]
fn who_cannot_be_told_between_turns_is_let_go() {
    let ends = || Activity::TurnEnded(TurnEnd { text: "ok".into(), ..TurnEnd::default() });
    let finishes =
        |bench: &Bench| bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, RunOrder::Finish)));
    let mut bench = bench(&["script"], true);
    let id = bench.agent("queued");
    let wish = json!({"message": "go on", "deliver": "idle"});
    assert_eq!(bench.ask("POST", "/api/agents/queued/instruct", &wish).0, 200);
    bench.does(id, vec![ends()]);
    let message_id = bench.state.agents.get(id).unwrap().queue[0].id;
    bench.apply(Event::Run(id, RunReport::Said { message_id, delivered: false }));
    assert!(finishes(&bench), "what waits is said to its next life");
}
