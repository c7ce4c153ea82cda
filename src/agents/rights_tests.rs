//! What an agent may let others do, door by door.

use super::rights::{Maker, Rights, is_fenced};
use super::{Command, RunOrder, SpawnRequest};
use crate::api::Reply;
use crate::core::ids::{AgentId, UNKNOWN_AGENT};
use crate::core::{Actor, Command as Core, Effect, Event, Project};
use crate::programs::registry::Detection;
use crate::providers::Permission;
use crate::teams;
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn asks(name: &str) -> SpawnRequest {
    SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some("script".into()),
        ..SpawnRequest::default()
    }
}

fn scoped(name: &str, scope: &[&str]) -> SpawnRequest {
    SpawnRequest { scope: scope.iter().map(ToString::to_string).collect(), ..asks(name) }
}

fn told(reply: &Reply) -> (u16, Value) {
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap_or_default())
}

fn spawn(bench: &mut Bench, request: SpawnRequest) -> (u16, Value) {
    told(&bench.command(Core::Agents(Command::Spawn(Box::new(request)))).unwrap())
}

/// An integration that is there, without a server.
fn install(bench: &mut Bench, id: &str) {
    let body = json!({"id": id, "command": "hub-server", "env": []});
    assert_eq!(bench.ask("POST", "/api/integrations", &body).0, 201);
}

/// A bench at which an agent with this configuration acts from now on.
fn acting(request: SpawnRequest) -> (Bench, AgentId) {
    let mut bench = Bench::new();
    for id in &request.integrations {
        install(&mut bench, id);
    }
    let id = bench.agent_like(request);
    bench.actor = Actor::Agent(id);
    (bench, id)
}

fn assert_refused((status, body): (u16, Value), words: &str) {
    assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")), "{body}");
    assert!(body["error"].as_str().unwrap().contains(words), "{words}: {body}");
}

#[test]
fn an_agent_started_by_a_scoped_agent_gets_no_wider_scope() {
    let (mut bench, maker) = acting(scoped("maker", &["src/**"]));
    let (status, body) = spawn(&mut bench, asks("child"));
    assert_eq!(
        (status, &body["scope"]),
        (201, &json!(["src/**"])),
        "what it leaves open is its maker's: {body}"
    );
    let lineage = bench.state.agents.get(maker).unwrap().lineage_id;
    assert_eq!(body["startedBy"], json!(lineage));
    assert_eq!(spawn(&mut bench, scoped("narrow", &["src/api/*.rs"])).1["scope"], json!(["src/api/*.rs"]));
    for wide in [&["**"][..], &["docs/**"], &["src/api/**", "other/x.txt"], &["."]] {
        assert_refused(spawn(&mut bench, scoped("wide", wide)), "which is not in its own: src/**");
    }
    bench.actor = Actor::Operator;
    assert_eq!(spawn(&mut bench, asks("of-a-person")).1["scope"], json!([]), "a person's rights are the top");
}

#[test]
fn permission_integrations_isolation_and_command_do_not_grow_either() {
    let (mut bench, _) = acting(SpawnRequest { integrations: vec!["hub".into()], ..asks("maker") });
    bench.actor = Actor::Operator;
    install(&mut bench, "bank");
    let isolated =
        bench.agent_like(SpawnRequest { isolation: super::Isolation::Worktree, ..asks("isolated") });
    let maker = bench.state.agents.find("maker").unwrap().id;
    bench.actor = Actor::Agent(maker);
    let with = |id: &str| SpawnRequest { integrations: vec![id.into()], ..asks("child") };
    assert_refused(spawn(&mut bench, with("bank")), "integration \"bank\"");
    assert_eq!(spawn(&mut bench, with("hub")).0, 201);
    let full = SpawnRequest { permission: Permission::Full, ..asks("full") };
    assert_refused(spawn(&mut bench, full), "full permission");
    let acp = SpawnRequest { provider: Some("acp".into()), command: vec!["sh".into()], ..asks("acp") };
    assert_refused(spawn(&mut bench, acp), "choose the command");
    bench.actor = Actor::Agent(isolated);
    assert_refused(spawn(&mut bench, asks("shared")), "isolation worktree");
    let tree = SpawnRequest { isolation: super::Isolation::Worktree, ..asks("tree") };
    assert_eq!(spawn(&mut bench, tree).0, 201);
}

#[test]
fn who_is_fenced_into_its_folder_starts_nobody_outside_of_it() {
    let (mut bench, _) = acting(SpawnRequest { working_dir: "web".into(), ..asks("maker") });
    assert_eq!(spawn(&mut bench, asks("free")).0, 201, "without a fence a folder is no right");
    bench.actor = Actor::Operator;
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"enforcement": "kernel"})).0, 200);
    bench.actor = Actor::Agent(bench.state.agents.find("maker").unwrap().id);
    assert_refused(spawn(&mut bench, asks("root")), "its own folder \"web\"");
    assert_refused(spawn(&mut bench, scoped("elsewhere", &["web/**", "api/**"])), "its own folder");
    let inside = SpawnRequest { working_dir: "web/app".into(), ..asks("inside") };
    assert_eq!(spawn(&mut bench, inside).0, 201);
    assert_eq!(spawn(&mut bench, scoped("scoped", &["web/a/**"])).0, 201);
}

/// The fence of the last process that was ordered.
fn last_fence(bench: &Bench) -> Option<Vec<String>> {
    let order = bench.effects.iter().rev().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => Some(order.request.fence.clone()),
        _ => None,
    });
    order.expect("an order to start")
}

#[test]
fn who_is_fenced_into_the_project_starts_and_instructs_nobody_outside_of_the_fence() {
    let mut bench = Bench::new();
    let project = Project { can_fence: true, ..Project::clone(&bench.state.project) };
    bench.state.project = Arc::new(project);
    let found = ["qwen", "claude-code"].map(|id| Detection::installed(id, "1"));
    bench.apply(Event::Detected(found.into()));
    bench.actor = Actor::Operator;
    let by = |provider: &str, name: &str| SpawnRequest { provider: Some(provider.into()), ..asks(name) };
    let maker = bench.agent_like(by("qwen", "maker"));
    let asker = bench.agent_like(by("claude-code", "asker"));
    assert_eq!(last_fence(&bench), None, "it asks before it leaves the project");
    let project = Some(vec!["**".to_owned()]);

    bench.actor = Actor::Agent(maker);
    for provider in ["script", "claude-code"] {
        let (status, body) = spawn(&mut bench, by(provider, &format!("of-maker-{provider}")));
        assert_eq!((status, last_fence(&bench)), (201, project.clone()), "{provider}: {body}");
    }
    // Also what these start, and who is instructed by them.
    bench.actor = Actor::Agent(bench.state.agents.find("of-maker-claude-code").unwrap().id);
    assert_eq!(spawn(&mut bench, by("claude-code", "grandchild")).0, 201);
    assert_eq!(last_fence(&bench), project);
    for actor in [bench.actor.clone(), Actor::Agent(maker)] {
        bench.actor = actor;
        let say = bench.ask("POST", "/api/agents/asker/instruct", &json!({"message": "write elsewhere"}));
        assert_refused(say, "asker may do more than itself");
    }
    let wish = json!({"cron": "* * * * *", "agent": {"role": "dev", "provider": "claude-code"}});
    let (status, schedule) = bench.ask("POST", "/api/schedules", &wish);
    assert_eq!(status, 201, "{schedule}");
    bench.ask("POST", &format!("/api/schedules/{}/run", schedule["id"].as_str().unwrap()), &Value::Null);
    assert_eq!(last_fence(&bench), project, "by a schedule, too");

    bench.actor = Actor::Agent(asker);
    assert_eq!(spawn(&mut bench, by("claude-code", "asks-too")).0, 201);
    assert_eq!(last_fence(&bench), None);
    assert_eq!(spawn(&mut bench, by("script", "asks-nobody")).0, 201);
    assert_eq!(last_fence(&bench), project, "a script does unasked what its maker would have to ask for");

    bench.actor = Actor::Operator;
    assert_eq!(bench.ask("PATCH", "/api/agents/grandchild", &json!({"permission": "full"})).0, 200);
    assert!(
        !is_fenced(&bench.state, bench.state.agents.find("grandchild").unwrap()),
        "a person let it loose"
    );
}

#[test]
fn a_process_that_has_left_its_agent_starts_and_decides_nothing() {
    let (mut bench, _) = acting(asks("maker"));
    bench.actor = Actor::Agent(UNKNOWN_AGENT);
    assert_refused(spawn(&mut bench, asks("child")), "has left its agent");
    let wish = json!({"cron": "* * * * *", "agent": {"role": "dev", "provider": "script"}});
    assert_refused(bench.ask("POST", "/api/schedules", &wish), "has left its agent");
    assert_refused(bench.ask("DELETE", "/api/agents/maker", &Value::Null), "end");
    assert_refused(bench.ask("POST", "/api/agents/maker/query", &json!({"question": "what?"})), "question");
}

#[test]
fn a_schedule_of_an_agent_gives_what_its_maker_had_when_it_made_it() {
    let (mut bench, maker) = acting(scoped("maker", &["src/**"]));
    let wish = |agent: Value| json!({"name": "tidy", "cron": "* * * * *", "agent": agent});
    let full = json!({"role": "dev", "provider": "script", "permission": "full"});
    assert_refused(bench.ask("POST", "/api/schedules", &wish(full.clone())), "full permission");
    let plain = json!({"role": "dev", "provider": "script"});
    let (status, body) = bench.ask("POST", "/api/schedules", &wish(plain));
    assert_eq!((status, &body["agent"]["scope"]), (201, &json!(["src/**"])), "{body}");
    assert_refused(bench.ask("PATCH", "/api/schedules/tidy", &json!({"agent": full})), "full permission");
    // What its maker gets later is not what it had.
    bench.actor = Actor::Operator;
    assert_eq!(bench.ask("PATCH", "/api/agents/maker", &json!({"scope": ["**"]})).0, 200);
    assert_eq!(bench.audited("agent.patch").last().unwrap()["changes"]["scope"], json!(["**"]));
    bench.pass(Duration::from_secs(61));
    let lineage = bench.state.agents.get(maker).unwrap().lineage_id;
    let started = bench.state.agents.iter().find(|agent| agent.started_by == Some(lineage)).unwrap();
    assert_eq!(*started.scope, ["src/**"]);
    // Others leave it alone, and nobody but a person touches a person's.
    let other = bench.agent("other");
    let person = json!({"name": "mine", "cron": "0 0 1 1 *",
        "agent": {"role": "dev", "provider": "script", "permission": "full"}});
    assert_eq!(bench.ask("POST", "/api/schedules", &person).0, 201);
    bench.actor = Actor::Agent(other);
    for name in ["tidy", "mine"] {
        let path = format!("/api/schedules/{name}");
        assert_refused(bench.ask("PATCH", &path, &json!({"cron": "1 * * * *"})), "has not made");
        assert_refused(bench.ask("DELETE", &path, &Value::Null), "has not made");
        assert_refused(bench.ask("POST", &format!("{path}/disable"), &json!({})), "has not made");
    }
    assert_refused(bench.ask("POST", "/api/schedules/mine/run", &json!({})), "its agent may do more");
    bench.actor = Actor::Agent(maker);
    assert_eq!(bench.ask("POST", "/api/schedules/tidy/disable", &json!({})).0, 200, "its own");
}

#[test]
fn a_team_or_plan_that_an_agent_starts_gets_no_more_than_the_agent() {
    let (mut bench, maker) = acting(scoped("maker", &["src/**"]));
    bench.actor = Actor::Operator;
    bench.agent_like(SpawnRequest { permission: Permission::Full, ..asks("strong") });
    let saved = json!({"name": "crew", "agents": ["strong"]});
    assert_eq!(bench.ask("POST", "/api/teams", &saved).0, 201);
    let strong = bench.state.agents.find("strong").unwrap().id;
    bench.exits(strong, 0);
    bench.actor = Actor::Agent(maker);
    let load = teams::Command::Load { target: "crew".into(), prepared: BTreeMap::new() };
    let (_, body) = told(&bench.command(Core::Teams(load)).unwrap());
    assert_eq!(body["agents"], json!([]), "{body}");
    assert!(body["failed"][0]["error"].as_str().unwrap().contains("full permission"), "{body}");

    let launch = |bench: &mut Bench, scope: Value| {
        let one = |name: &str| json!({"role": "dev", "name": name, "provider": "script", "phase": 1, "prompt": "p", "scope": scope});
        let body = json!({"agents": [one("b1"), one("b2")]});
        let (agents, project_dir) =
            teams::plan::parse(body.as_object().unwrap(), teams::plan::From::Caller).unwrap();
        let launch = teams::phases::Launch { agents: Some(agents), project_dir, team_id: None };
        told(&bench.command(Core::Teams(teams::Command::Launch(Box::new(launch)))).unwrap())
    };
    assert_refused(launch(&mut bench, json!(["**"])), "not in its own");
    assert_eq!(launch(&mut bench, json!([])).0, 200);
    for name in ["b1", "b2"] {
        assert_eq!(*bench.state.agents.find(name).unwrap().scope, ["src/**"], "{name}");
        let id = bench.state.agents.find(name).unwrap().id;
        bench.exits(id, 0);
    }
    // The later phase is started by the daemon, and for the one who launched it.
    let check = bench.state.agents.iter().find(|agent| agent.role == "fullstack").unwrap();
    assert_eq!((check.scope.as_slice(), check.permission), (&["src/**".to_owned()][..], Permission::Auto));
}

#[test]
fn an_agent_decides_about_those_it_started_and_those_that_may_do_no_more() {
    let (mut bench, maker) = acting(scoped("maker", &["src/**"]));
    assert_eq!(spawn(&mut bench, scoped("child", &["src/api/**"])).0, 201);
    bench.actor = Actor::Agent(bench.state.agents.find("child").unwrap().id);
    assert_eq!(spawn(&mut bench, scoped("grandchild", &["src/api/x/**"])).0, 201);
    bench.actor = Actor::Operator;
    for (name, scope) in [("within", &["src/lib/**"][..]), ("beside", &["docs/**"]), ("open", &[])] {
        bench.agent_like(scoped(name, scope));
    }
    bench.agent_like(SpawnRequest { permission: Permission::Full, ..scoped("strong", &["src/x/**"]) });
    bench.actor = Actor::Agent(maker);
    let deeds = |bench: &mut Bench, name: &str| {
        let path = format!("/api/agents/{name}");
        [
            bench.ask("POST", &format!("{path}/instruct"), &json!({"message": "go on"})),
            bench.ask("PATCH", &path, &json!({"effort": "low"})),
            bench.ask("POST", &format!("{path}/rotate"), &json!({})),
            bench.ask("DELETE", &path, &Value::Null),
        ]
    };
    for name in ["beside", "open", "strong"] {
        for answer in deeds(&mut bench, name) {
            assert_refused(answer, "has not started it");
        }
        assert!(bench.state.agents.find(name).unwrap().status.is_live(), "{name}");
    }
    for name in ["grandchild", "within"] {
        let path = format!("/api/agents/{name}");
        assert_eq!(
            bench.ask("POST", &format!("{path}/instruct"), &json!({"message": "go on"})).0,
            200,
            "{name}"
        );
        assert_eq!(bench.ask("PATCH", &path, &json!({"effort": "low"})).0, 200, "{name}");
    }
    // The other way round: a child does not end its maker.
    bench.actor = Actor::Agent(bench.state.agents.find("child").unwrap().id);
    assert_refused(bench.ask("DELETE", "/api/agents/maker", &Value::Null), "has not started it");
    assert_eq!(bench.ask("PATCH", "/api/agents/child", &json!({"effort": "low"})).0, 200, "itself");
}

#[test]
fn a_rule_of_a_person_is_lifted_by_a_person() {
    let (mut bench, id) = acting(asks("maker"));
    let add = |bench: &mut Bench, text: &str| {
        let (status, body) = bench.ask("POST", "/api/memory/constraints", &json!({"text": text}));
        (status, body["hash"].as_str().unwrap_or_default().to_owned(), body)
    };
    let path = |hash: &str| format!("/api/memory/constraints/{hash}");
    let (_, own, _) = add(&mut bench, "agents write in small steps");
    bench.actor = Actor::Operator;
    let (_, persons, _) = add(&mut bench, "never touch the database");
    bench.actor = Actor::Agent(id);
    assert_refused(bench.ask("DELETE", &path(&persons), &Value::Null), "lift a rule");
    bench.actor = Actor::Agent(UNKNOWN_AGENT);
    for hash in [&own, &persons] {
        assert_refused(bench.ask("DELETE", &path(hash), &Value::Null), "lift a rule");
    }
    // Fifty of its own push out its own, and none of the person's.
    bench.actor = Actor::Agent(id);
    for n in 0..60 {
        assert_eq!(add(&mut bench, &format!("rule number {n}")).0, 201);
    }
    let kept = bench.state.memory.constraints().iter().any(|rule| rule.hash == persons);
    assert!(kept && bench.state.memory.constraints().len() == 50);
    bench.actor = Actor::Operator;
    for n in 100..150 {
        add(&mut bench, &format!("rule number {n}"));
    }
    bench.actor = Actor::Agent(id);
    let (status, _, body) = add(&mut bench, "one more");
    assert_refused((status, body), "one would be lost");
}

#[test]
fn names_that_stand_for_somebody_else_are_no_names_of_agents() {
    let mut bench = Bench::new();
    bench.agent("honest");
    for name in ["operator", "Operator", "oper-ator", "o.p.e.r.a.t.o.r", "DAEMON", "svc", "you", "telegram"] {
        let (status, body) = bench.ask("PATCH", "/api/agents/honest", &json!({"name": name}));
        assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("name")), "{name}: {body}");
    }
    assert_eq!(bench.ask("PATCH", "/api/agents/honest", &json!({"name": "operators-2"})).0, 200);
}

#[test]
fn what_a_file_of_an_earlier_version_does_not_tell_was_a_persons() {
    let maker: Maker = serde_json::from_value(json!({})).unwrap();
    assert_eq!(maker, Maker::person());
    let known: Maker = serde_json::from_value(json!(Maker {
        lineage: None,
        rights: Rights { scope: Some(vec!["a".into()]), ..Rights::default() },
    }))
    .unwrap();
    assert_eq!(known.rights.scope.as_deref(), Some(&["a".to_owned()][..]));
}

#[test]
fn agents_leave_the_last_places_to_persons() {
    let (mut bench, lead) = acting(asks("lead"));
    let started =
        (0..20).map(|n| spawn(&mut bench, asks(&format!("child-{n}")))).find(|(status, _)| *status != 201);
    let (status, body) = started.expect("a limit");
    assert_eq!((status, &body["code"]), (409, &json!("capacity")), "{body}");
    let words = "8 agents are alive, maxAgents is 10, and the last 2 places are kept for persons; wait";
    assert!(body["error"].as_str().unwrap().starts_with(words), "{body}");
    bench.actor = Actor::Operator;
    for name in ["ninth", "tenth"] {
        assert_eq!(spawn(&mut bench, asks(name)).0, 201, "{name}");
    }
    let (status, body) = spawn(&mut bench, asks("eleventh"));
    assert_eq!((status, &body["code"]), (409, &json!("capacity")), "{body}");
    // Where there is hardly room there is nothing to share.
    let (mut small, _) = acting(asks("lead"));
    small.actor = Actor::Operator;
    assert_eq!(small.ask("PATCH", "/api/config", &json!({"maxAgents": 2})).0, 200);
    small.actor = Actor::Agent(small.state.agents.find("lead").unwrap().id);
    assert_eq!(spawn(&mut small, asks("second")).0, 201);
    assert_eq!(spawn(&mut small, asks("third")).0, 409);
    assert!(bench.state.agents.get(lead).is_some());
}
