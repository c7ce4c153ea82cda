//! What people say: taking, permission, targets, commands.

use super::super::commands::normalise;
use super::super::inbox::{MAX_RECENT, MAX_WAITING};
use super::*;
use crate::approvals::{self, Action, NewApproval};

#[test]
fn a_command_is_known_by_its_slash_or_by_being_said_to_us_alone() {
    let told = |text: &str| normalise(text, "svc_bot", false);
    assert_eq!(told("/status"), Some("/status".into()));
    assert_eq!(told("  /Kill@SVC_bot  back-1 "), Some("/kill back-1".into()));
    assert_eq!(told("!query qc what is left?"), Some("/query qc what is left?".into()));
    for none in ["/status@other_bot", "hello", "//x", "/", "! no", "/1", "3", ""] {
        assert_eq!(told(none), None, "{none}");
    }
    let alone = |text: &str| normalise(text, "", true);
    assert_eq!(alone("agents"), Some("/agents".into()));
    assert_eq!(alone("2"), Some("/pick 2".into()));
    assert_eq!(alone("hello there"), Some("/help".into()), "who talks to us alone is told what we know");
    assert_eq!(alone("/instruct a  two\nlines"), Some("/instruct a  two\nlines".into()));
}

#[test]
fn decisions_12_every_command_is_audited_with_its_user() {
    let mut rig = Rig::connected("telegram");
    assert!(matches!(rig.says("4711", "update:1", "/spawn backend build it"), Receipt::Entry(_)));
    let entries = rig.bench.audited("gateway.command");
    assert_eq!(entries[0]["actor"], "telegram:4711");
    assert_eq!(entries[0]["command"], "/spawn backend build it");
    rig.bench.agent("helper");
    rig.done("/kill helper");
    assert_eq!(rig.bench.audited("agent.delete")[0]["actor"], "telegram:4711", "the effect too");
}

#[test]
fn what_comes_again_is_not_done_again() {
    let mut rig = Rig::connected("slack");
    assert!(matches!(rig.says("U1", "Ev1", "/status"), Receipt::Entry(_)));
    assert_eq!(rig.says("U1", "Ev1", "/status"), Receipt::Known);
    assert_eq!(rig.bench.state.gateways.inbox().len(), 1);
    for n in 0..MAX_RECENT {
        rig.says("U2", &format!("k{n}"), "/status");
    }
    assert_eq!(rig.gateway().recent.len(), MAX_RECENT, "the memory is bounded");
    assert_eq!(rig.bench.state.gateways.inbox().len(), MAX_WAITING, "and so is the inbox");
}

#[test]
fn a_command_is_begun_once_and_what_was_begun_is_told_after_a_crash() {
    let mut rig = Rig::connected("telegram");
    rig.says("4711", "update:1", "/kill x");
    rig.says("4711", "update:2", "/status");
    let numbers: Vec<u64> = rig.bench.state.gateways.inbox().iter().map(|entry| entry.number).collect();
    let begin = |rig: &mut Rig, n| rig.errand(CoreCommand::Gateways(Command::Inbox(Errand::Begin(n))));
    assert_eq!(begin(&mut rig, numbers[0]), Receipt::Begun);
    assert_eq!(begin(&mut rig, numbers[0]), Receipt::NotAgain);
    assert_eq!(begin(&mut rig, 999), Receipt::NotAgain);
    rig.bench.effects.clear();
    rig.bench.apply(Event::Timer(Timer::GatewaysBoot));
    let sent = rig.sent();
    assert!(words(&sent)[0].contains("/kill x") && words(&sent)[0].contains("not done again"), "{sent:?}");
    let left: Vec<&str> = rig.bench.state.gateways.inbox().iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(left, ["/status"], "what was not begun is done now");
    rig.bench.command(CoreCommand::Gateways(Command::Inbox(Errand::Done(numbers[1]))));
    assert!(rig.bench.state.gateways.inbox().is_empty());
}

/// What is taken is the platform's no more, and what is begun is not begun again: the disk has it first.
#[test]
fn a_command_is_taken_and_begun_only_when_the_disk_has_it() {
    let mut rig = Rig::connected("telegram");
    rig.says("4711", "update:1", "/kill x");
    let number = rig.bench.state.gateways.inbox()[0].number;
    rig.bench.disk = None;
    let heard =
        Heard { key: "update:2".into(), user: "4711".into(), text: "/status".into(), ..Heard::default() };
    for errand in [Errand::Begin(number), Errand::Take(rig.id, Box::new(heard))] {
        let said = format!("{errand:?}");
        let answer = rig.bench.response(CoreCommand::Gateways(Command::Inbox(errand)));
        assert!(answer.is_none(), "{said} does not wait for the disk: {answer:?}");
    }
}

#[test]
fn specification_an_empty_allow_list_is_open_and_another_is_not() {
    let mut rig = Rig::connected("telegram");
    assert!(matches!(rig.says("1", "a", "/status"), Receipt::Entry(_)));
    rig.patch(&json!({"allowedUsers": ["4711"]}));
    assert!(matches!(rig.says("1", "b", "/status"), Receipt::Stranger(_)));
    assert!(matches!(rig.says("4711", "c", "/status"), Receipt::Entry(_)));
    assert_eq!(rig.bench.audited("gateway.refused").len(), 1);
    assert_eq!(rig.bench.state.gateways.inbox().len(), 2);
}

#[test]
fn decisions_12_read_only_allows_just_status_agents_teams_schedules_help() {
    let mut rig = Rig::connected("telegram");
    rig.patch(&json!({"commandPermission": "read-only"}));
    let mut allowed = Vec::new();
    for command in &ALL {
        let text = format!("/{} x y", command.name);
        let refused = matches!(rig.plan(&text), Plan::Say(words) if words.words().contains("is read-only"));
        if !refused {
            allowed.push(command.name);
        }
    }
    assert_eq!(allowed, ["status", "agents", "teams", "schedules", "help"]);
    assert!(!rig.answer("/help").contains("/kill"), "what is not allowed is not offered");
}

#[test]
fn specification_all_commands_are_there() {
    let names: Vec<_> = ALL.iter().map(|command| command.name).collect();
    for name in [
        "status",
        "agents",
        "spawn",
        "kill",
        "approve",
        "reject",
        "rotate",
        "teams",
        "schedules",
        "help",
        "instruct",
        "query",
        "log",
        "plan",
        "brief",
        "tokens",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    let rig = Rig::connected("telegram");
    assert!(rig.answer("/nonsense").contains("/help"));
    assert_eq!(rig.answer("/start"), rig.answer("/help"));
    for name in ["spawn", "kill", "rotate", "instruct", "query", "log", "recall", "plan"] {
        assert!(rig.answer(&format!("/{name}")).starts_with("usage: "), "{name}");
    }
    assert!(matches!(rig.plan("/recall red sheds"), Plan::Recall(words) if words == "red sheds"));
    assert!(rig.answer("/kill nobody").contains("nobody is called nobody"));
}

/// Agents by name, role and team.
fn staffed(agents: &[(&str, &str, Option<&str>)]) -> Rig {
    let mut rig = Rig::connected("telegram");
    rig.bench.command(CoreCommand::Settings(crate::settings::Command::Patch(
        json!({"maxAgents": 50}).as_object().unwrap().clone(),
    )));
    for (name, role, team) in agents {
        let team_id = team.map(|team| team_of(&mut rig, team));
        let request = crate::agents::SpawnRequest {
            role: (*role).into(),
            name: Some((*name).into()),
            provider: Some("script".into()),
            team_id,
            ..crate::agents::SpawnRequest::default()
        };
        let result = rig
            .bench
            .with(|all, cx| crate::agents::spawn_agent(all, cx, &crate::agents::Maker::person(), request));
        result.expect("spawned");
    }
    rig
}

/// The name of the agent that a command with this target goes to; `Err` lists the choices.
fn meant(rig: &Rig, command: &str) -> Result<String, Vec<String>> {
    use crate::agents::Command::{Delete, Instruct, Query, Rotate};
    match rig.plan(command) {
        Plan::Do(command) => match *command {
            CoreCommand::Agents(
                Instruct { target, .. } | Query { target, .. } | Rotate(target) | Delete(target),
            ) => Ok(rig.bench.state.agents.find(&target).unwrap().name.clone()),
            other => panic!("{other:?} is for no agent"),
        },
        Plan::Log(name, ..) => Ok(name),
        Plan::Choose(_, choices) => Err(choices.into_iter().map(|(label, _)| label).collect()),
        other => panic!("{command} comes to {other:?}"),
    }
}

#[test]
fn specification_targets_are_agent_names_name_prefixes_and_roles() {
    let rig =
        staffed(&[("backend-1", "backend", None), ("backend-2", "backend", None), ("ui", "frontend", None)]);
    assert_eq!(meant(&rig, "/rotate backend-1"), Ok("backend-1".into()));
    assert_eq!(meant(&rig, "/rotate BACKEND-2"), Ok("backend-2".into()), "case does not matter");
    assert_eq!(meant(&rig, "/rotate u"), Ok("ui".into()), "a prefix");
    assert_eq!(meant(&rig, "/rotate frontend"), Ok("ui".into()), "a role");
    let id = rig.bench.state.agents.find("ui").unwrap().id;
    assert_eq!(meant(&rig, &format!("/kill {id}")), Ok("ui".into()), "an id");
}

#[test]
fn specification_ambiguous_matches_prompt_for_clarification() {
    let mut rig = staffed(&[("backend-1", "backend", None), ("backend-2", "backend", None)]);
    assert_eq!(meant(&rig, "/kill back").unwrap_err(), ["backend-1", "backend-2"]);
    let Plan::Choose(question, choices) = rig.plan("/instruct backend keep the API as it is") else {
        panic!("two fit")
    };
    assert!(question.words().contains("which one is backend?"));
    let (label, line) = &choices[1];
    assert!(line.ends_with("keep the API as it is"), "the choice is the whole command: {line}");
    let line = line.clone();
    assert_eq!(label, "backend-2");
    assert!(rig.done(&line).unwrap().starts_with("backend-2 gets it: now"));
    assert!(matches!(rig.plan("/pick 0000abcd 2"), Plan::Pick(Some(0xabcd), 2)));
    assert!(matches!(rig.plan("/pick 2"), Plan::Pick(None, 2)));
}

#[test]
fn specification_a_team_is_spoken_to_through_its_lead_by_role_priority() {
    let all: [(&str, &str, Option<&str>); 6] = [
        ("first", "backend", Some("Web shop")),
        ("boss", "pm", Some("Web shop")),
        ("old", "senior-backend", Some("Web shop")),
        ("both", "fullstack", Some("Web shop")),
        ("qc-1", "fullstack", Some("Web shop")),
        ("other", "qc", None),
    ];
    for (members, lead) in [(5, "qc-1"), (4, "both"), (3, "old"), (2, "boss"), (1, "first")] {
        let rig = staffed(&all[..members]);
        assert_eq!(meant(&rig, "/instruct \"web shop\" go on"), Ok(lead.into()));
        assert_eq!(meant(&rig, "/query web how far?"), Ok(lead.into()));
        assert_eq!(meant(&rig, "/log web"), Ok(lead.into()));
    }
    let rig = staffed(&all);
    assert!(rig.answer("/teams").contains("Web shop 5 alive of 5, led by qc-1"));
    assert_eq!(meant(&rig, "/kill web").unwrap_err().len(), 5, "who is to end must be said");
}

/// The id of the team of this name, made if need be.
fn team_of(rig: &mut Rig, name: &str) -> String {
    if let Ok(team) = rig.bench.state.teams.find(name) {
        return team.id.to_string();
    }
    rig.bench.with(|all, cx| crate::teams::create(all, cx, name, None)).expect("made").to_string()
}

#[test]
fn the_living_win_over_the_ended() {
    let mut rig = Rig::connected("telegram");
    let first = rig.bench.agent("worker-1");
    rig.bench.exits(first, 0);
    rig.bench.agent("worker-2");
    assert_eq!(meant(&rig, "/rotate worker"), Ok("worker-2".into()));
    assert_eq!(rig.answer("/kill worker-1"), "worker-1 has ended already");
}

#[test]
fn spawn_takes_a_role_options_and_a_task() {
    let mut rig = Rig::connected("telegram");
    let said = rig
        .done("/spawn backend name=api provider=script scope=src/**,tests/** Build it, x=1 and all")
        .unwrap();
    assert!(said.starts_with("api was started (backend, script), id "), "{said}");
    let agent = rig.bench.state.agents.find("api").unwrap();
    assert_eq!(agent.prompt.as_ref(), "Build it, x=1 and all");
    assert_eq!(agent.scope.as_slice(), ["src/**", "tests/**"]);
    assert!(rig.answer("/spawn b!d x").contains("role"), "the rules are those of REST");
    let refused = rig.done("/spawn backend name=api provider=script again").unwrap();
    assert!(refused.starts_with("Refused: ") && refused.contains("in use"), "{refused}");
}

#[test]
fn plan_starts_a_planner() {
    let rig = Rig::connected("telegram");
    let Plan::Do(command) = rig.plan("/plan a shop with three pages") else { panic!("it does something") };
    let CoreCommand::Agents(crate::agents::Command::Spawn(request)) = *command else {
        panic!("it starts one")
    };
    assert_eq!((request.role.as_str(), request.prompt.as_str()), ("planner", "a shop with three pages"));
}

pub(super) fn asks(rig: &mut Rig, agent: &str, n: u64) -> String {
    let id = rig.bench.state.agents.find(agent).unwrap().id;
    let action = Action::integration_exec("github", "create_issue", &json!({"n": n, "token": "hush"}));
    let new = NewApproval { agent: Some(id), action };
    // As one event, so that what it tells is overheard.
    rig.bench.with(|all, cx| {
        let (id, _) = approvals::request(all, cx, new).unwrap();
        overheard(all, cx);
        id.to_string()
    })
}

#[test]
fn approve_and_reject_work_by_id_by_its_beginning_and_alone() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    assert_eq!(rig.answer("/approve"), "no approval is pending");
    let first = asks(&mut rig, "worker", 1);
    assert_eq!(rig.done("/approve").unwrap(), "Approved: worker may call create_issue of github");
    assert_eq!(rig.bench.state.approvals.find(&first).unwrap().resolved_by.as_deref(), Some("telegram:4711"));
    let second = asks(&mut rig, "worker", 2);
    let third = asks(&mut rig, "worker", 3);
    assert!(matches!(rig.plan("/reject"), Plan::Choose(_, choices) if choices.len() == 2));
    let said = rig.done(&format!("/reject {} not now", &second[..9])).unwrap();
    assert!(said.starts_with("Rejected: worker may not"), "{said}");
    assert_eq!(rig.bench.state.approvals.find(&second).unwrap().reason.as_deref(), Some("not now"));
    assert!(rig.done(&format!("/approve {second}")).unwrap().contains("rejected already"));
    assert!(rig.done(&format!("/approve {third}")).unwrap().starts_with("Approved"));
}

#[test]
fn rotate_query_and_kill_are_answered_when_they_are_done() {
    let mut rig = Rig::connected("telegram");
    rig.bench.agent("worker");
    assert_eq!(rig.done("/kill worker"), None, "its process is being ended");
    rig.bench.agent("other");
    assert_eq!(rig.done("/rotate other"), None);
    let (id, name) = (crate::core::ids::AgentId(1), "other".to_owned());
    let answered = crate::agents::Outcome::Answered { id, name, answer: " three files ".into(), tokens: 1 };
    assert_eq!(super::super::answers::told(&answered.into()).words(), "other: three files");
}

#[test]
fn lists_are_bounded() {
    let names: Vec<String> = (0..45).map(|n| format!("a{n}")).collect();
    let list: Vec<_> = names.iter().map(|name| (name.as_str(), "dev", None)).collect();
    let rig = staffed(&list);
    let said = rig.answer("/agents");
    assert_eq!(said.lines().count(), 31);
    assert!(said.ends_with("… and 15 more"), "{said}");
    assert!(rig.answer("/status").contains("45 agents alive"));
    assert!(rig.answer("/brief").contains("a3"));
}
