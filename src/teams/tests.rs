//! Each test names the line of the specification that it holds.

use super::phases::{Launch, Outcome, Phase};
use super::*;
use crate::agents::report::{Batch, Credit, Keeper, Packed, RunReport};
use crate::core::{Command as Core, Event};
use crate::providers::{Activity, TurnEnd};
use crate::testing::Bench;

pub(super) fn launch(bench: &mut Bench, launch: Launch) -> (u16, Value) {
    let reply = bench.command(Core::Teams(Command::Launch(Box::new(launch)))).unwrap();
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

fn load(bench: &mut Bench, target: &str) -> (u16, Value) {
    let command = Command::Load { target: target.into(), prepared: BTreeMap::new() };
    let reply = bench.command(Core::Teams(command)).unwrap();
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

pub(super) fn does(bench: &mut Bench, name: &str, activities: Vec<Activity>) {
    let id = bench.state.agents.find(name).unwrap().id;
    let batch = Batch { activities, frames: Packed::default(), upto: 0, credit: Credit::free() };
    bench.apply(Event::Run(id, RunReport::Output(batch)));
}

fn writes(bench: &mut Bench, name: &str, path: &str) {
    let tool = |writes| Activity::ToolStarted {
        id: if writes { "t".into() } else { "r".into() },
        name: "write".into(),
        input: Value::Null,
        path: Some(if writes { path.to_owned() } else { format!("{path}.read") }),
        writes,
    };
    let ended = |id: &str| Activity::ToolEnded { id: id.into(), error: false, output: String::new() };
    does(bench, name, vec![tool(true), ended("t"), tool(false), ended("r")]);
}

pub(super) fn ends(bench: &mut Bench, name: &str, code: i32) {
    let id = bench.state.agents.find(name).unwrap().id;
    bench.exits(id, code);
}

pub(super) fn planned(agents: &Value) -> Launch {
    let body = json!({"agents": agents});
    let (agents, project_dir) = plan::parse(body.as_object().unwrap(), plan::From::Caller).unwrap();
    Launch { agents: Some(agents), project_dir, team_id: None }
}

pub(super) fn builder(name: &str) -> Value {
    json!({"role": "backend", "name": name, "provider": "script", "phase": 1, "prompt": format!("build {name}")})
}

pub(super) fn state_of(bench: &Bench, name: &str) -> Status {
    bench.state.agents.find(name).unwrap().status
}

use crate::agents::Status;

#[test]
fn decisions_7_there_is_a_default_team_that_cannot_be_deleted() {
    let mut bench = Bench::new();
    let (status, body) = bench.ask("GET", "/api/teams", &Value::Null);
    assert_eq!(status, 200);
    let team = &body["teams"][0];
    assert_eq!((&body["defaultTeamId"], &team["isDefault"]), (&team["id"], &json!(true)));
    let (status, body) = bench.ask("DELETE", "/api/teams/default", &Value::Null);
    assert_eq!((status, body["code"].as_str()), (409, Some("default_team")));
    let first: Vec<&str> = ["id", "name", "isDefault", "workingDir", "agents", "members"].into();
    let (_, team) = bench.ask("GET", "/api/teams/default", &Value::Null);
    assert!(first.iter().chain(&["createdAt", "updatedAt"]).all(|field| !team[field].is_null()), "{team}");
}

#[test]
fn an_agent_changes_only_teams_that_it_has_made_and_puts_only_its_own_into_them() {
    let mut bench = Bench::new();
    let (own, other) = (bench.agent("own"), bench.agent("other"));
    assert_eq!(bench.ask("POST", "/api/teams", &json!({"name": "Persons", "agents": []})).0, 201);
    let refused = |(status, body): (u16, Value), words: &str| {
        assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")), "{body}");
        assert!(body["error"].as_str().unwrap().contains(words), "{body}");
    };
    bench.actor = crate::core::Actor::Agent(own);
    let join = json!({"name": "persons", "agents": ["own"]});
    refused(bench.ask("POST", "/api/teams", &join), "save into team \"Persons\", which it has not made");
    assert_eq!(bench.state.agents.get(own).unwrap().team_id, None);
    refused(bench.ask("PATCH", "/api/teams/Persons", &json!({"name": "Mine"})), "rename team");
    refused(bench.ask("DELETE", "/api/teams/Persons", &Value::Null), "delete team");
    assert_eq!(bench.ask("POST", "/api/teams", &json!({"name": "Mine", "agents": ["own"]})).0, 201);
    assert_eq!(bench.ask("PATCH", "/api/teams/Mine", &json!({"name": "Ours"})).0, 200);
    bench.actor = crate::core::Actor::Agent(other);
    refused(bench.ask("DELETE", "/api/teams/Ours", &Value::Null), "delete team");
    bench.actor = crate::core::Actor::Agent(own);
    assert_eq!(bench.ask("DELETE", "/api/teams/Ours", &Value::Null).0, 200);
}

#[test]
fn teams_post_saves_the_current_configuration_201_then_200() {
    let mut bench = Bench::new();
    bench.agent("a-1");
    let (status, team) = bench.ask("POST", "/api/teams", &json!({"name": "Crew"}));
    assert_eq!((status, &team["name"], &team["agents"][0]["name"]), (201, &json!("Crew"), &json!("a-1")));
    assert_eq!(team["members"].as_array().unwrap().len(), 1, "an agent without a team joins");
    assert_eq!(bench.notices("team:created")[0]["team"], json!({"id": team["id"], "name": "Crew"}));
    let stored = bench
        .effects
        .iter()
        .any(|effect| matches!(effect, crate::core::Effect::Put(Document::Teams, Durability::BeforeReply)));
    assert!(stored, "answered only when it is on disk");
    bench.agent("a-2");
    let (status, again) = bench.ask("POST", "/api/teams", &json!({"name": "crew"}));
    assert_eq!((status, &again["id"], again["agents"].as_array().unwrap().len()), (200, &team["id"], 2));
    assert_eq!(bench.notices("team:updated").len(), 1);
}

#[test]
fn decisions_7_names_have_1_to_100_characters_and_are_unique_without_case() {
    let mut bench = Bench::new();
    for bad in ["", "  ", &"x".repeat(101), "a\nb"] {
        let (status, body) = bench.ask("POST", "/api/teams", &json!({"name": bad}));
        assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("name")), "{bad:?}");
    }
    bench.ask("POST", "/api/teams", &json!({"name": "ÄRGER"}));
    bench.ask("POST", "/api/teams", &json!({"name": "other"}));
    let (status, body) = bench.ask("PATCH", "/api/teams/other", &json!({"name": "ärger"}));
    assert_eq!(status, 400, "{body}");
    let (status, body) = bench.ask("PATCH", "/api/teams/other", &json!({"name": "Other"}));
    assert_eq!((status, &body["name"]), (200, &json!("Other")));
    assert_eq!(bench.ask("PATCH", "/api/teams/nobody", &json!({"name": "x"})).0, 404);
}

#[test]
fn decisions_7_load_spawns_only_configurations_without_a_living_agent_of_that_name() {
    let mut bench = Bench::new();
    bench.agent("a-1");
    let second = bench.agent("a-2");
    bench.ask("POST", "/api/teams", &json!({"name": "crew"}));
    bench.exits(second, 0);
    let (status, body) = load(&mut bench, "crew");
    let names: Vec<&str> =
        body["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect();
    assert_eq!((status, names, &body["failed"]), (200, vec!["a-2"], &json!([])));
    assert_eq!(body["agents"][0]["teamId"], body["team"]["id"]);
    assert_eq!(bench.state.agents.get(second).unwrap().name, "a-2.1", "the ended one keeps its record");
    assert_eq!(load(&mut bench, "nobody").0, 404);
    let (_, body) = bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1}));
    assert_eq!(body["maxAgents"], 1);
    ends(&mut bench, "a-2", 0);
    let (status, body) = load(&mut bench, "crew");
    assert_eq!((status, &body["failed"][0]["role"]), (200, &json!("dev")));
    assert!(body["failed"][0]["error"].as_str().unwrap().contains("maxAgents"));
}

#[test]
fn decisions_7_delete_moves_the_agents_to_the_default_team() {
    let mut bench = Bench::new();
    let agent = bench.agent("a-1");
    bench.ask("POST", "/api/teams", &json!({"name": "crew"}));
    let (status, body) = bench.ask("DELETE", "/api/teams/crew", &Value::Null);
    assert_eq!((status, &body["ok"], &body["movedTo"]), (200, &json!(true), &json!(DEFAULT_TEAM)));
    assert_eq!(bench.state.agents.get(agent).unwrap().team_id.as_deref(), Some("00000001"));
    let told = &bench.notices("team:deleted")[0];
    assert_eq!((told["movedTo"].clone(), told["teamId"].is_string()), (json!(DEFAULT_TEAM), true));
    assert_eq!(bench.ask("DELETE", "/api/teams/crew", &Value::Null).0, 404);
}

#[test]
fn team_id_is_checked_at_spawn_and_in_patch() {
    let mut bench = Bench::new();
    bench.agent("a-1");
    let (_, team) = bench.ask("POST", "/api/teams", &json!({"name": "crew", "agents": []}));
    let (status, body) = bench.ask("PATCH", "/api/agents/a-1", &json!({"teamId": "nobody"}));
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("teamId")));
    let (status, body) = bench.ask("PATCH", "/api/agents/a-1", &json!({"teamId": "crew"}));
    assert_eq!((status, &body["teamId"]), (200, &team["id"]));
    let (_, body) = bench.ask("PATCH", "/api/agents/a-1", &json!({"teamId": "__unassigned__"}));
    assert_eq!(body["teamId"], UNASSIGNED);
    let request =
        SpawnRequest { role: "x".into(), team_id: Some("nobody".into()), ..SpawnRequest::default() };
    let command =
        crate::agents::Command::Spawn(Box::new(SpawnRequest { provider: Some("script".into()), ..request }));
    assert_eq!(bench.command(Core::Agents(command)).unwrap().status, 400);
}

#[test]
fn teams_survive_a_restart() {
    let mut bench = Bench::new();
    bench.agent("a-1");
    bench.ask("POST", "/api/teams", &json!({"name": "crew"}));
    let (_, result) = launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    let bytes = serde_json::to_vec(&bench.state.teams.stored()).unwrap();
    let back = State::restore(serde_json::from_slice(&bytes).unwrap(), bench.now);
    assert_eq!(back.find("crew").unwrap().agents[0].name.as_deref(), Some("a-1"));
    assert_eq!(json!(back.plans()[0].id), result["planId"]);
    assert!(back.get(DEFAULT_TEAM).is_some());
}

#[test]
fn a_planner_recommends_by_its_file_or_its_result() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("GET", "/api/recommended-team", &Value::Null).1["exists"], false);
    assert_eq!(launch(&mut bench, Launch::default()).0, 404);
    bench.agent("dev-1");
    let spawn =
        SpawnRequest { role: "planner".into(), provider: Some("script".into()), ..SpawnRequest::default() };
    bench.command(Core::Agents(crate::agents::Command::Spawn(Box::new(spawn))));
    let text = "Here it is:\n```json\n{\"agents\":[{\"role\":\"api\",\"prompt\":\"go\",\"permission\":\"full\"}]}\n```";
    let end = |text: &str| Activity::TurnEnded(TurnEnd { text: text.into(), ..TurnEnd::default() });
    does(&mut bench, "dev-1", vec![end(text)]);
    assert_eq!(bench.ask("GET", "/api/recommended-team", &Value::Null).1["exists"], false, "no planner");
    does(&mut bench, "planner-1", vec![end(text)]);
    let (_, body) = bench.ask("GET", "/api/recommended-team", &Value::Null);
    assert_eq!(
        (&body["exists"], &body["agents"][0]["role"], &body["source"]),
        (&json!(true), &json!("api"), &json!("result"))
    );
    assert_eq!(body["agents"][0]["permission"], "auto", "a model's words give no permission");
    let looks = bench.effects.iter().filter(|e| matches!(e, crate::core::Effect::Teams(_))).count();
    assert_eq!(looks, 1, "the file is looked at when a planner's turn ends");
    let planner = bench.state.agents.find("planner-1").unwrap().id;
    let file = |text: &str| Event::Teams(plan::Found { planner, file: Some(Ok((text.into(), text.into()))) });
    bench.apply(file("{\"agents\":[{\"role\":\"web\",\"phase\":2,\"prompt\":\"x\"},{\"role\":\"db\"}],\"projectDir\":\"app\"}"));
    let (_, body) = bench.ask("GET", "/api/recommended-team", &Value::Null);
    assert_eq!(
        (&body["source"], &body["projectDir"], &body["agents"][0]["phase"]),
        (&json!("file"), &json!("app"), &json!(2))
    );
    bench.apply(file("{\"agents\":[{\"role\":\"we b\",\"phase\":0}]}"));
    let (_, body) = bench.ask("GET", "/api/recommended-team", &Value::Null);
    let problem = body["problem"].as_str().unwrap();
    assert!(problem.contains("agents[0]") && problem.contains("phase"), "{problem}");
    assert_eq!(body["agents"][0]["role"], "web", "the last good one stays");
    let (status, result) = launch(&mut bench, Launch::default());
    assert_eq!((status, &result["launched"], &result["phase2Pending"]), (200, &json!(1), &json!(1)));
    assert_eq!(result["agents"][0]["role"], "db");
    assert_eq!(
        (&result["agents"][0]["workingDir"], &result["agents"][0]["provider"]),
        (&json!("app"), &json!("script"))
    );
    assert_eq!(launch(&mut bench, Launch::default()).0, 409, "launched once");
}

#[test]
fn decisions_7_qc_is_added_for_two_builders_and_gets_the_files_really_changed() {
    let mut bench = Bench::new();
    let (status, body) = launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    assert_eq!((status, &body["launched"], &body["phase2Pending"]), (200, &json!(2), &json!(1)));
    writes(&mut bench, "b-1", "src/one.rs");
    writes(&mut bench, "b-2", "src/two.rs");
    ends(&mut bench, "b-1", 0);
    assert!(bench.state.agents.find("qc-1").is_err(), "not before all of the phase are completed");
    let old = bench.rotates("b-2");
    ends(&mut bench, "b-2", 0);
    assert!(bench.state.agents.get(old).is_some());
    let qc = Arc::clone(bench.state.agents.find("qc-1").unwrap());
    assert_eq!(qc.role, "fullstack");
    assert!(
        qc.prompt.contains("- src/one.rs (b-1, writes: 1)\n- src/two.rs (b-2, writes: 1)"),
        "{}",
        qc.prompt
    );
    assert!(!qc.prompt.contains(".read"), "files that were only read are not named");
    let told = &bench.notices("phase2:spawned")[0];
    assert_eq!(
        (&told["agentId"], &told["name"], &told["role"]),
        (&json!(qc.id), &json!("qc-1"), &json!("fullstack"))
    );
    bench.exits(qc.id, 0);
    assert_eq!(bench.state.teams.plans()[0].phase, Phase::Done);
}

/// Its program ends with the turn, so its record says `completed` while a person is still to decide.
#[test]
fn a_builder_that_waits_for_a_person_has_not_completed_its_phase() {
    for decision in ["approve", "reject"] {
        let mut bench = Bench::new();
        launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
        let asker = bench.state.agents.find("b-1").unwrap().id;
        bench.actor = crate::core::Actor::Agent(asker);
        let (_, asked) = bench.ask("POST", "/api/questions", &json!({"question": "?"}));
        bench.actor = crate::core::Actor::Operator;
        ends(&mut bench, "b-1", 0);
        ends(&mut bench, "b-2", 0);
        assert!(bench.state.agents.find("qc-1").is_err(), "b-1 goes on after the decision");
        bench.ask("POST", "/api/approvals", &json!({"id": asked["questionId"], "decision": decision}));
        assert!(bench.state.agents.find("qc-1").is_err(), "it works with the answer");
        ends(&mut bench, "b-1", 0);
        assert!(bench.state.agents.find("qc-1").is_ok());
    }
}

#[test]
fn daemon_a_team_of_one_builder_gets_quality_control_too() {
    let mut bench = Bench::new();
    assert_eq!(launch(&mut bench, planned(&json!([builder("b-1")]))).1["phase2Pending"], 1);
    ends(&mut bench, "b-1", 0);
    assert_eq!(bench.notices("phase2:spawned")[0]["name"], "qc-1");
}

#[test]
fn decisions_7_no_qc_where_the_planner_has_a_later_phase() {
    let mut bench = Bench::new();
    let later = json!({"role": "tester", "provider": "script", "phase": 7, "name": "t-1"});
    let (_, body) = launch(&mut bench, planned(&json!([builder("b-2"), builder("b-3"), later])));
    assert_eq!(body["phase2Pending"], 1);
    ends(&mut bench, "b-2", 0);
    ends(&mut bench, "b-3", 0);
    assert!(bench.state.agents.find("t-1").is_ok(), "phases are numbered without gaps");
    assert_eq!(bench.notices("phase2:spawned").len(), 1);
}

#[test]
fn decisions_7_a_crashed_builder_is_restarted_once_then_the_phase_is_blocked() {
    let mut bench = Bench::new();
    launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    let lineage = bench.state.agents.find("b-1").unwrap().lineage_id;
    bench.effects.clear();
    ends(&mut bench, "b-1", 3);
    let is_kept = |effect: &Effect| matches!(effect, Effect::Put(Document::Teams, Durability::BeforeReply));
    assert!(bench.effects.iter().any(is_kept), "that it was restarted is not forgotten");
    assert_eq!(state_of(&bench, "b-1"), Status::Starting, "restarted");
    assert_eq!(bench.state.agents.find("b-1").unwrap().lineage_id, lineage);
    ends(&mut bench, "b-2", 0);
    ends(&mut bench, "b-1", 3);
    assert_eq!(state_of(&bench, "b-1"), Status::Crashed);
    let told = bench.notices("phase2:failed");
    assert_eq!((told.len(), &told[0]["phase"]), (1, &json!(1)));
    assert!(told[0]["reason"].as_str().unwrap().contains("b-1: it crashed again"), "{told:?}");
    assert!(bench.state.agents.find("qc-1").is_err());
    let (_, body) = bench.ask("GET", "/api/plans", &Value::Null);
    assert_eq!(body["plans"][0]["status"], "blocked");
    let members = body["plans"][0]["agents"].as_array().unwrap();
    let pending = members.iter().find(|one| one["outcome"] == "pending").unwrap();
    assert!(pending["task"].as_str().is_some_and(|task| !task.is_empty()), "what it is for: {pending}");
    assert!(pending["scope"].is_array() && pending["role"].is_string(), "{pending}");
    // A person resumes it, and it completes: the plan goes on.
    bench.command(Core::Agents(crate::agents::Command::Resume {
        target: "b-1".into(),
        message: None,
        runner: None,
    }));
    assert_eq!(bench.state.teams.plans()[0].phase, Phase::Working { phase: 1 });
    ends(&mut bench, "b-1", 0);
    assert!(bench.state.agents.find("qc-1").is_ok());
}

/// The successor of a rotation goes on with the task, whatever became of its predecessor meanwhile.
#[test]
fn a_builder_that_ends_while_it_is_rotated_is_neither_done_nor_restarted() {
    for code in [0, 3] {
        let mut bench = Bench::new();
        launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
        let id = bench.state.agents.find("b-1").unwrap().id;
        assert!(bench.wish("POST", "/api/agents/b-1/rotate", &Value::Null).is_none());
        ends(&mut bench, "b-1", code);
        // That makes the plan be looked at.
        ends(&mut bench, "b-2", 0);
        assert_eq!(bench.state.agents.find("b-1").unwrap().id, id, "not restarted");
        assert!(bench.state.agents.find("qc-1").is_err(), "not done");
        bench.apply(Event::Job(crate::agents::JobReport::Brief(id, Ok("brief".into()))));
        assert_eq!(state_of(&bench, "b-1"), Status::Starting);
        ends(&mut bench, "b-1", 0);
        assert!(bench.state.agents.find("qc-1").is_ok());
    }
}

#[test]
fn a_stopped_builder_blocks_and_a_foreign_signal_restarts() {
    let mut bench = Bench::new();
    launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    let id = bench.state.agents.find("b-1").unwrap().id;
    let died = RunReport::Exited {
        code: None,
        signal: Some(9),
        stderr_tail: String::new(),
        leaked: 0,
        keeper: Keeper::Told,
        signalled: false,
    };
    bench.apply(Event::Run(id, died.clone()));
    assert_eq!(state_of(&bench, "b-1"), Status::Starting);
    let id = bench.state.agents.find("b-2").unwrap().id;
    bench.command(Core::Agents(crate::agents::Command::Delete("b-2".into())));
    bench.apply(Event::Run(id, died));
    assert!(bench.notices("phase2:failed")[0]["reason"].as_str().unwrap().contains("stopped on request"));
}

#[test]
fn members_without_room_are_started_when_there_is() {
    let mut bench = Bench::new();
    bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1}));
    let (_, body) = launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    assert_eq!(body["launched"], 1);
    assert!(body["failed"][0]["error"].as_str().unwrap().contains("maxAgents"));
    ends(&mut bench, "b-1", 0);
    assert_eq!(state_of(&bench, "b-2"), Status::Starting);
    let bad = json!({"role": "x", "name": "bad", "provider": "nonsense"});
    let (_, body) = launch(&mut bench, planned(&json!([bad])));
    assert_eq!(body["launched"], 0);
}

#[test]
fn an_agent_that_cannot_be_started_is_told_in_failed() {
    let mut bench = Bench::new();
    bench.apply(Event::Detected(vec![]));
    let bad = json!({"role": "x", "name": "bad", "provider": "script", "model": "m", "teamId": "nobody"});
    let mut wish = planned(&json!([bad, builder("b-1")]));
    wish.agents.as_mut().unwrap()[0].agent.skills = vec!["nothing".into()];
    let (_, body) = launch(&mut bench, wish);
    assert_eq!((&body["launched"], &body["failed"][0]["role"]), (&json!(1), &json!("x")));
    assert!(matches!(bench.state.teams.plans()[0].members[0].outcome, Outcome::Failed(_)));
}

#[test]
fn a_daemon_that_restarts_between_phases_goes_on() {
    let mut bench = Bench::new();
    launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    writes(&mut bench, "b-1", "/project/lib.rs");
    ends(&mut bench, "b-1", 0);
    let stored = serde_json::to_vec(&bench.state.teams.stored()).unwrap();
    let agents = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let mut next = Bench::new();
    next.now = bench.now;
    next.state.teams = Arc::new(State::restore(serde_json::from_slice(&stored).unwrap(), bench.now));
    let restored = agents::State::restore(
        serde_json::from_slice(&agents).unwrap(),
        |_| "p".into(),
        &std::collections::HashSet::default(),
        bench.now,
    );
    next.state.agents = Arc::new(restored);
    next.apply(Event::Detected(vec![]));
    assert_eq!(state_of(&next, "b-2"), Status::Interrupted, "it waits for its resume");
    assert!(next.notices("phase2:failed").is_empty());
    next.command(Core::Agents(crate::agents::Command::Resume {
        target: "b-2".into(),
        message: None,
        runner: None,
    }));
    ends(&mut next, "b-2", 0);
    let qc = next.state.agents.find("qc-1").unwrap();
    assert!(qc.prompt.contains("lib.rs (b-1, writes: 1)"), "{}", qc.prompt);
}

#[test]
fn qc_activated_each_time_live_agents_rise_to_the_threshold() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c", "qc-9"] {
        bench.agent(name);
    }
    assert!(bench.notices("qc:activated").is_empty(), "quality control itself does not count");
    bench.agent("d");
    bench.agent("e");
    assert_eq!(bench.notices("qc:activated").len(), 1);
    assert_eq!(bench.notices("qc:activated")[0]["agentCount"], 4);
    ends(&mut bench, "d", 0);
    ends(&mut bench, "e", 0);
    bench.rotates("a");
    assert_eq!(bench.notices("qc:activated").len(), 1, "a rotation changes no number");
    bench.agent("f");
    assert_eq!(bench.notices("qc:activated").len(), 2);
}

#[test]
fn deleting_a_team_takes_its_plan_along() {
    let mut bench = Bench::new();
    bench.ask("POST", "/api/teams", &json!({"name": "crew"}));
    let mut wish = planned(&json!([builder("b-1"), builder("b-2")]));
    wish.team_id = Some("crew".into());
    launch(&mut bench, wish);
    bench.ask("DELETE", "/api/teams/crew", &Value::Null);
    ends(&mut bench, "b-1", 0);
    ends(&mut bench, "b-2", 0);
    let qc = bench.state.agents.find("qc-1").unwrap();
    assert_eq!(qc.team_id.as_deref(), Some("00000001"));
}

#[test]
fn a_recommendation_is_found_in_words_and_every_fault_is_named() {
    for text in [
        "{\"agents\":[]}",
        "Use {braces} like this: {\"x\": 1} and then\n```json\n{\"agents\": []}\n```\nthat is all",
    ] {
        assert!(plan::within(text).is_some(), "{text}");
    }
    for text in ["", "no JSON", "{\"agents\": 5}", "{\"agents\": [", "[{\"role\":\"x\"}]"] {
        assert!(plan::within(text).is_none(), "{text}");
    }
    assert!(plan::within(&"{".repeat(100_000)).is_none(), "bounded");
    let faults = |body: Value| {
        let problem = plan::parse(body.as_object().unwrap(), plan::From::Planner).unwrap_err();
        problem.errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    assert_eq!(faults(json!({})), ["agents"]);
    assert_eq!(faults(json!({"agents": []})), ["agents"]);
    assert_eq!(faults(json!({"agents": vec![json!({"role": "x"}); 51]})), ["agents"]);
    let many = json!({"agents": [5, {"role": "a b", "phase": 21}, {"role": "x", "workingDir": "../up"}],
        "projectDir": "/etc"});
    let expected = [
        "agents[0]",
        "agents[0].role",
        "agents[1].phase",
        "agents[1].role",
        "agents[2].workingDir",
        "projectDir",
    ];
    assert_eq!(faults(many), expected);
    let twice = json!({"agents": [{"role": "x", "name": "n"}, {"role": "y", "name": "n"}]});
    assert_eq!(faults(twice), ["agents"]);
}

#[test]
fn a_member_that_could_not_be_started_is_tried_again() {
    let mut bench = Bench::new();
    bench.agent("b-1");
    let (_, body) = launch(&mut bench, planned(&json!([builder("b-1"), builder("b-2")])));
    assert!(body["failed"][0]["error"].as_str().unwrap().contains("in use"), "{body}");
    assert_eq!(bench.notices("phase2:failed").len(), 1);
    ends(&mut bench, "b-1", 0);
    assert_eq!(state_of(&bench, "b-1"), Status::Starting, "its name is free now");
    assert_eq!(bench.state.teams.plans()[0].phase, Phase::Working { phase: 1 });
}

fn far_bench() -> Bench {
    let mut bench = Bench::with_programs();
    bench.runner("box", &["big"], Some(Ok(crate::testing::facts(48_000))));
    bench
}

#[test]
fn a_team_remembers_on_which_machine_each_works_and_a_person_says_another() {
    let mut bench = far_bench();
    for name in ["a-1", "a-2"] {
        bench.agent(name);
    }
    let save = |runners: Value| json!({"name": "crew", "runners": runners});
    let (status, told) = bench.ask("POST", "/api/teams", &save(json!({"a-9": "box"})));
    assert!(status == 400 && told.to_string().contains("no agent that is saved"), "{told}");
    let (status, told) = bench.ask("POST", "/api/teams", &save(json!({"a-1": "label:small"})));
    assert!(status == 400 && told.to_string().contains("no runner has that label"), "{told}");
    assert_eq!(bench.ask("POST", "/api/teams", &save(json!({"a-1": 7}))).0, 400);
    let (status, told) = bench.ask("POST", "/api/teams", &save(json!({"a-1": "label:big", "a-2": "here"})));
    let saved = told["agents"].as_array().unwrap().iter();
    let saved: BTreeMap<_, _> = saved.map(|one| (one["name"].clone().to_string(), &one["runner"])).gather();
    assert_eq!((status, saved["\"a-1\""]), (201, &json!("label:big")), "{told}");
    assert_eq!(saved["\"a-2\""], &Value::Null, "{told}");
    for name in ["a-1", "a-2"] {
        ends(&mut bench, name, 0);
    }
    // An agent loads what works here; what works elsewhere a person does.
    let caller = bench.agent("caller");
    bench.actor = Actor::Agent(caller);
    let (_, told) = load(&mut bench, "crew");
    assert!(told["failed"][0]["error"].as_str().unwrap().contains("a person has to"), "{told}");
    bench.actor = Actor::Operator;
    let (_, told) = load(&mut bench, "crew");
    assert_eq!(told["agents"][0]["runner"], "box", "{told}");
    // Saved again, it is the machine that it is on.
    let (_, told) = bench.ask("POST", "/api/teams", &json!({"name": "crew", "agents": ["a-1"]}));
    assert_eq!(told["agents"][0]["runner"], "box", "{told}");
}

#[test]
fn a_member_of_a_plan_works_where_a_person_has_said_whoever_moves_the_plan() {
    let mut bench = far_bench();
    let far = |name: &str, phase: u64| {
        let mut one = builder(name);
        (one["runner"], one["phase"]) = (json!("label:big"), json!(phase));
        one
    };
    let maker = bench.agent("maker");
    bench.actor = Actor::Agent(maker);
    assert_eq!(launch(&mut bench, planned(&json!([far("b-1", 1)]))).0, 403);
    bench.actor = Actor::Operator;
    let (status, told) = launch(&mut bench, planned(&json!([far("b-1", 1), far("b-2", 2)])));
    assert_eq!((status, &told["agents"][0]["runner"]), (200, &json!("box")), "{told}");
    writes(&mut bench, "b-1", "src/a.rs");
    // What moves the plan is an event that an agent has caused.
    bench.actor = Actor::Agent(maker);
    ends(&mut bench, "b-1", 0);
    let second = bench.state.agents.find("b-2").unwrap();
    assert_eq!(second.runner.as_deref(), Some("box"));
    assert!(second.prompt.contains("fetched and merged its branch svc/backend-"), "{}", second.prompt);
    bench.actor = Actor::Operator;
    let members = bench.get("/api/plans")["plans"][0]["agents"].clone();
    assert_eq!((&members[0]["runner"], &members[1]["runner"]), (&json!("box"), &json!("box")), "{members}");
    // A planner's words are a model's.
    let body = json!({"agents": [far("b-3", 1)]});
    let (heard, _) = plan::parse(body.as_object().unwrap(), plan::From::Planner).unwrap();
    assert_eq!(heard[0].agent.runner, None);
}
