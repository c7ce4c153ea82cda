use super::*;
use crate::assembly::documents::encode;
use crate::core::{Actor, Timers};
use crate::testing::Bench;
use serde_json::{Value, json};

fn exec(params: &Value) -> Action {
    Action::integration_exec("github", "create_issue", params)
}

fn ask_for(bench: &mut Bench, agent: Option<AgentId>, action: Action) -> (String, bool) {
    let outcome = bench.with(|all, cx| request(all, cx, NewApproval { agent, action }));
    let (id, is_new) = outcome.expect("there is room");
    (id.to_string(), is_new)
}

fn decide(bench: &mut Bench, id: &str, decision: &str) -> (u16, Value) {
    bench.ask("POST", "/api/approvals", &json!({"id": id, "decision": decision}))
}

#[test]
fn a_request_is_pending_shown_and_announced() {
    let mut bench = Bench::new();
    let agent = bench.agent("worker");
    let (id, is_new) = ask_for(&mut bench, Some(agent), exec(&json!({"title": "x"})));
    assert!(is_new && id.len() == 12 && id.starts_with("apr-"), "decisions 1: approvals apr-<8 hex>: {id}");
    let (status, body) = bench.ask("GET", "/api/approvals", &Value::Null);
    assert_eq!(status, 200);
    let record = &body["pending"][0];
    assert_eq!(record["id"], id);
    assert_eq!((&record["agentId"], &record["agentName"]), (&json!(agent), &json!("worker")));
    assert_eq!(record["action"]["type"], "integration_exec");
    assert_eq!(record["action"]["integrationId"], "github");
    assert_eq!(record["action"]["tool"], "create_issue");
    assert_eq!(record["action"]["paramsHash"].as_str().map(str::len), Some(64));
    assert!(record["action"]["description"].is_string());
    assert_eq!((&record["status"], &record["resolvedAt"]), (&json!("pending"), &Value::Null));
    assert!(record["requestedAt"].as_str().is_some_and(|at| at.ends_with('Z')));
    assert_eq!(bench.notices("approval:request")[0]["data"]["id"], id);
    assert_eq!(bench.audited("approval.request").len(), 1);
}

#[test]
fn decisions_4_an_identical_pending_request_is_folded() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a"), bench.agent("b"));
    let (first, _) = ask_for(&mut bench, Some(a), exec(&json!({"x": 1, "y": [2, 3]})));
    let (again, is_new) = ask_for(&mut bench, Some(a), exec(&json!({"y": [2, 3], "x": 1})));
    assert_eq!((&again, is_new), (&first, false), "the order of members does not matter");
    for (agent, params) in [(Some(a), json!({"x": 1, "y": [3, 2]})), (Some(b), json!({"x": 1, "y": [2, 3]}))]
    {
        let (other, is_new) = ask_for(&mut bench, agent, exec(&params));
        assert!(is_new && other != first);
    }
    assert_eq!(bench.notices("approval:request").len(), 3);
}

#[test]
fn decisions_4_an_approval_is_bound_and_works_once() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a"), bench.agent("b"));
    let params = json!({"title": "x"});
    let (id, _) = ask_for(&mut bench, Some(a), exec(&params));
    let claim = |bench: &mut Bench, id: &str, agent, action: &Action| {
        bench.with(|all, cx| claim(all, cx, id, agent, action))
    };
    assert_eq!(claim(&mut bench, &id, Some(a), &exec(&params)), Verdict::Pending);
    assert_eq!(decide(&mut bench, &id, "approve").0, 200);
    let other_tool = Action::integration_exec("github", "delete_file", &params);
    let other_kind = Action::integration_exec("gitlab", "create_issue", &params);
    assert_eq!(claim(&mut bench, &id, Some(a), &exec(&json!({"title": "y"}))), Verdict::Mismatch);
    assert_eq!(claim(&mut bench, &id, Some(a), &other_tool), Verdict::Mismatch);
    assert_eq!(claim(&mut bench, &id, Some(a), &other_kind), Verdict::Mismatch);
    assert_eq!(claim(&mut bench, &id, Some(b), &exec(&params)), Verdict::Mismatch);
    assert_eq!(claim(&mut bench, &id, None, &exec(&params)), Verdict::Mismatch);
    assert_eq!(claim(&mut bench, "apr-00000000", Some(a), &exec(&params)), Verdict::Unknown);
    assert_eq!(claim(&mut bench, "nonsense", Some(a), &exec(&params)), Verdict::Unknown);
    assert_eq!(claim(&mut bench, &id, Some(a), &exec(&params)), Verdict::Approved, "the one attempt");
    assert_eq!(claim(&mut bench, &id, Some(a), &exec(&params)), Verdict::Used, "and no second");
    let (again, is_new) = ask_for(&mut bench, Some(a), exec(&params));
    assert!(is_new && again != id, "a used approval folds nothing");
}

#[test]
fn decisions_4_deciding_twice_is_200_for_the_same_and_409_for_the_other() {
    let mut bench = Bench::new();
    let agent = bench.agent("a");
    let (id, _) = ask_for(&mut bench, Some(agent), exec(&json!({})));
    let (status, body) =
        bench.ask("POST", &format!("/api/approvals/{id}/reject"), &json!({"reason": "too risky"}));
    assert_eq!((status, &body["status"], &body["reason"]), (200, &json!("rejected"), &json!("too risky")));
    assert!(body["resolvedAt"].is_string());
    assert_eq!(decide(&mut bench, &id, "reject"), (200, body));
    assert_eq!(bench.notices("approval:resolved").len(), 1, "the same decision changes nothing");
    let (status, body) = decide(&mut bench, &id, "approve");
    assert_eq!((status, &body["code"]), (409, &json!("already_resolved")));
    let told = &bench.notices("approval:resolved")[0]["data"];
    assert_eq!((&told["id"], &told["status"]), (&json!(id), &json!("rejected")));
    assert!(told["resolvedAt"].is_string());
    let verdict = check(&bench.state, bench.now, &id, Some(agent), &exec(&json!({})));
    assert_eq!(verdict, Verdict::Rejected(Some("too risky".into())));
}

#[test]
fn decisions_4_unknown_ids_and_wrong_decisions_are_refused() {
    let mut bench = Bench::new();
    assert_eq!(decide(&mut bench, "apr-12345678", "approve").0, 404);
    assert_eq!(bench.ask("POST", "/api/approvals/x/approve", &Value::Null).0, 404);
    let (status, body) = bench.ask("POST", "/api/approvals", &json!({"decision": "maybe"}));
    assert_eq!(status, 400);
    assert_eq!(body["errors"].as_array().map(Vec::len), Some(2), "id and decision: {body}");
}

#[test]
fn decisions_4_an_agent_may_not_approve() {
    let mut bench = Bench::new();
    let agent = bench.agent("a");
    let (id, _) = ask_for(&mut bench, Some(agent), exec(&json!({})));
    bench.actor = Actor::Agent(agent);
    let (status, body) = decide(&mut bench, &id, "approve");
    assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")));
    bench.actor = Actor::Chat("telegram:1".into());
    assert_eq!(decide(&mut bench, &id, "approve").0, 200, "a person on a chat may");
    assert_eq!(bench.audited("approval.approve")[0]["actor"], "telegram:1");
}

/// Nor may it do by another way what an approval would be needed for.
#[test]
fn decisions_4_an_agent_gives_nobody_more_freedom_than_it_has() {
    let mut bench = Bench::new();
    let agent = bench.agent("a");
    bench.actor = Actor::Agent(agent);
    for body in [json!({"permission": "full"}), json!({"scope": ["**"]})] {
        let (status, reply) = bench.ask("PATCH", "/api/agents/a", &body);
        assert_eq!((status, &reply["code"]), (403, &json!("agent_may_not")), "{body}");
    }
    assert_eq!(bench.ask("PATCH", "/api/agents/a", &json!({"name": "b", "permission": "auto"})).0, 200);
    assert_eq!(bench.audited("agent.patch").len(), 1);
    let spawn = |permission| {
        let request = agents::SpawnRequest {
            role: "dev".into(),
            provider: Some("script".into()),
            permission,
            ..agents::SpawnRequest::default()
        };
        crate::core::Command::Agents(agents::Command::Spawn(Box::new(request)))
    };
    let (auto, full) = (crate::providers::Permission::Auto, crate::providers::Permission::Full);
    assert_eq!(bench.command(spawn(full)).expect("answered").status, 403);
    assert_eq!(bench.command(spawn(auto)).expect("answered").status, 201);
    bench.actor = Actor::Operator;
    assert_eq!(bench.ask("PATCH", "/api/agents/b", &json!({"permission": "full"})).0, 200);
    bench.actor = Actor::Agent(agent);
    assert_eq!(bench.command(spawn(full)).expect("answered").status, 201, "it has it itself now");
}

#[test]
fn decisions_4_an_approval_expires_after_24_hours() {
    let mut bench = Bench::new();
    let (id, _) = ask_for(&mut bench, None, exec(&json!({})));
    let (approved, _) = ask_for(&mut bench, None, exec(&json!({"n": 1})));
    bench.pass(Duration::from_hours(23));
    assert_eq!(check(&bench.state, bench.now, &id, None, &exec(&json!({}))), Verdict::Pending);
    decide(&mut bench, &approved, "approve");
    bench.pass(Duration::from_hours(1));
    assert_eq!(check(&bench.state, bench.now, &id, None, &exec(&json!({}))), Verdict::Expired);
    assert_eq!(bench.notices("approval:resolved")[1]["data"]["status"], "expired");
    assert_eq!(decide(&mut bench, &id, "approve").0, 409);
    let verdict = |bench: &Bench| check(&bench.state, bench.now, &approved, None, &exec(&json!({"n": 1})));
    assert_eq!(verdict(&bench), Verdict::Approved, "an agent has 24 hours from the decision");
    bench.pass(Duration::from_hours(24));
    assert_eq!(verdict(&bench), Verdict::Expired);
}

#[test]
fn decisions_2_an_agent_waits_while_an_approval_of_it_is_pending_and_goes_on_by_itself() {
    let mut bench = Bench::new();
    let agent = bench.agent("a");
    let state = |bench: &Bench, id: AgentId| bench.state.agents.get(id).expect("known").status;
    let (first, _) = ask_for(&mut bench, Some(agent), exec(&json!({"n": 1})));
    let (second, _) = ask_for(&mut bench, Some(agent), exec(&json!({"n": 2})));
    assert_eq!(state(&bench, agent), agents::Status::Waiting);
    decide(&mut bench, &first, "approve");
    assert_eq!(state(&bench, agent), agents::Status::Waiting, "the second is still pending");
    decide(&mut bench, &second, "reject");
    assert_eq!(state(&bench, agent), agents::Status::Running);
    let said: Vec<String> = bench
        .state
        .agents
        .get(agent)
        .expect("known")
        .queue
        .iter()
        .map(|message| message.text.to_string())
        .collect();
    assert!(said[0].contains(&format!("\"approvalId\":\"{first}\"")), "{said:?}");
    assert!(said[1].contains("was rejected"), "{said:?}");
}

/// Its program would otherwise be let go at the end of the turn in which it asked, and count as done.
#[test]
fn a_program_that_takes_input_is_kept_for_the_decision_and_then_told() {
    for decision in ["approve", "reject", "nobody decides"] {
        let mut bench = Bench::new();
        let agent = bench.agent("a");
        let (id, _) = ask_for(&mut bench, Some(agent), exec(&json!({})));
        bench.effects.clear();
        let turn_over = || vec![crate::providers::Activity::TurnEnded(crate::providers::TurnEnd::default())];
        bench.does(agent, turn_over());
        let ordered = |bench: &Bench, wanted: fn(&agents::RunOrder) -> bool| {
            bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, order) if wanted(order)))
        };
        let finish = |order: &agents::RunOrder| matches!(order, agents::RunOrder::Finish);
        assert!(!ordered(&bench, finish), "{decision}: it waits");
        if decision == "nobody decides" {
            bench.pass(LIFETIME);
        } else {
            decide(&mut bench, &id, decision);
        }
        assert!(ordered(&bench, |order| matches!(order, agents::RunOrder::Say { .. })), "{decision}: told");
        let message_id = bench.state.agents.get(agent).expect("known").queue[0].id;
        let said = agents::report::RunReport::Said { message_id, delivered: true };
        bench.apply(crate::core::Event::Run(agent, said));
        assert!(ordered(&bench, finish), "{decision}: nothing holds it any more");
    }
}

#[test]
fn an_agent_that_completed_meanwhile_goes_on_when_approved_only() {
    for (decision, goes_on) in [("approve", true), ("reject", false)] {
        let mut bench = Bench::new();
        let agent = bench.agent("a");
        let (id, _) = ask_for(&mut bench, Some(agent), exec(&json!({})));
        bench.exits(agent, 0);
        let record = bench.state.agents.find("a").expect("known");
        // The specification's word for exit code 0, and why that is not all.
        assert_eq!(record.status, agents::Status::Completed);
        let reason = format!("finished so far, and goes on after the decision: it waits for approval {id}");
        assert!(record.status_reason.to_string().starts_with(&reason), "{}", record.status_reason);
        decide(&mut bench, &id, decision);
        let record = bench.state.agents.find("a").expect("known");
        assert_eq!(record.status.is_live(), goes_on, "{decision}");
        assert!(!record.status_reason.to_string().contains("waits"), "{decision}: {}", record.status_reason);
        assert_eq!(record.queue.len(), 1);
        let is_told = record.queue[0].in_prompt;
        assert_eq!(is_told, goes_on, "a rejected one hears it in its next life, whenever that begins");
    }
}

#[test]
fn decisions_2_a_question_is_answered_with_words_or_yes_or_no() {
    for (decision, reason, words) in [
        ("approve", Some("SQLite"), "(which one?): SQLite"),
        ("approve", None, "(which one?): Yes."),
        ("reject", None, "(which one?): No, or no answer: decide it yourself"),
        ("reject", Some("not now"), "(which one?): not now"),
    ] {
        let mut bench = Bench::new();
        let agent = bench.agent("a");
        bench.actor = crate::core::Actor::Agent(agent);
        let (status, body) = bench.ask("POST", "/api/questions", &json!({"question": "which one?"}));
        assert_eq!((status, &body["status"]), (202, &json!("pending")), "{body}");
        let message = body["message"].as_str().expect("an agent reads it");
        let id = body["questionId"].as_str().expect("an id");
        assert!(message.starts_with(&format!("A person was asked ({id}). ")), "{message}");
        assert!(
            !message.contains("  ") && !message.contains('\n'),
            "it is one sentence after another: {message}"
        );
        let (_, again) = bench.ask("POST", "/api/questions", &json!({"question": " which one? "}));
        assert_eq!(again["questionId"], body["questionId"], "folded");
        assert_eq!(bench.state.agents.get(agent).expect("known").status, agents::Status::Waiting);
        bench.actor = crate::core::Actor::Operator;
        bench.exits(agent, 0);
        let id = body["questionId"].as_str().expect("an id").to_owned();
        let decided = json!({"id": id, "decision": decision, "reason": reason});
        assert_eq!(bench.ask("POST", "/api/approvals", &decided).0, 200);
        let record = bench.state.agents.find("a").expect("known");
        assert!(record.status.is_live(), "{decision}: it goes on with the answer");
        let heard = bench.effects.iter().any(|effect| format!("{effect:?}").contains(words));
        assert!(heard, "{decision} {reason:?}");
        let (_, shown) = bench.ask("GET", &format!("/api/approvals/{id}"), &Value::Null);
        assert_eq!(shown["usedAt"].is_string(), decision == "approve", "nothing is left to be used: {shown}");
    }
}

#[test]
fn decisions_4_an_agent_asks_in_its_own_name() {
    let mut bench = Bench::new();
    let (a, b) = (bench.agent("a"), bench.agent("b"));
    bench.actor = crate::core::Actor::Agent(a);
    let (status, body) =
        bench.ask("POST", "/api/questions", &json!({"question": "?", "agentId": b.to_string()}));
    assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")));
    let (_, body) = bench.ask("POST", "/api/questions", &json!({"question": "?", "agentId": "a"}));
    let (_, shown) = bench.ask(
        "GET",
        &format!("/api/approvals/{}", body["questionId"].as_str().expect("an id")),
        &Value::Null,
    );
    assert_eq!(shown["agentId"], json!(a));
}

#[test]
fn an_approval_follows_its_lineage_over_a_rotation_and_ends_with_the_record() {
    let mut bench = Bench::new();
    let old = bench.agent("a");
    let (id, _) = ask_for(&mut bench, Some(old), exec(&json!({})));
    let new = bench.rotates("a");
    let (_, body) = bench.ask("GET", &format!("/api/approvals/{id}"), &Value::Null);
    assert_eq!(body["agentId"], json!(new));
    assert_eq!(bench.state.agents.get(new).expect("known").status, agents::Status::Waiting);
    decide(&mut bench, &id, "approve");
    assert_eq!(check(&bench.state, bench.now, &id, Some(new), &exec(&json!({}))), Verdict::Approved);
    bench.exits(new, 1);
    assert_eq!(bench.ask("DELETE", "/api/agents/a", &Value::Null).0, 200);
    let (_, body) = bench.ask("GET", &format!("/api/approvals/{id}"), &Value::Null);
    assert_eq!(body["status"], "expired");
}

#[test]
fn an_approval_follows_its_lineage_into_a_life_that_is_resumed() {
    let mut bench = Bench::new();
    let old = bench.agent("a");
    let (id, _) = ask_for(&mut bench, Some(old), exec(&json!({})));
    bench.exits(old, 1);
    assert_eq!(bench.ask("POST", "/api/agents/a/resume", &Value::Null).0, 200);
    let new = bench.state.agents.find("a").expect("known").id;
    let (_, body) = bench.ask("GET", &format!("/api/approvals/{id}"), &Value::Null);
    assert_eq!((body["agentId"] == json!(new), body["agentId"] == json!(old)), (true, false));
}

/// The timer may come late; what it was to end is worth nothing all the same.
#[test]
fn an_approval_whose_time_is_over_lets_nothing_through_before_its_timer_comes() {
    let mut bench = Bench::new();
    let agent = bench.agent("a");
    let (id, _) = ask_for(&mut bench, Some(agent), exec(&json!({})));
    decide(&mut bench, &id, "approve");
    let verdict = |bench: &Bench, now| check(&bench.state, now, &id, Some(agent), &exec(&json!({})));
    let end = bench.state.approvals.find(&id).expect("known").expires_at;
    assert_eq!(verdict(&bench, bench.now), Verdict::Approved);
    assert_eq!(verdict(&bench, end), Verdict::Expired);
}

#[test]
fn an_agent_whose_rotation_fails_is_shown_to_wait_for_what_it_has_asked_meanwhile() {
    for (asks_before, decides) in [(false, false), (true, false), (false, true)] {
        let mut bench = Bench::new();
        let agent = bench.agent("a");
        let ask = |bench: &mut Bench| ask_for(bench, Some(agent), exec(&json!({}))).0;
        let before = asks_before.then(|| ask(&mut bench));
        bench.command(crate::core::Command::Agents(agents::Command::Rotate("a".into())));
        let id = before.unwrap_or_else(|| ask(&mut bench));
        if decides {
            decide(&mut bench, &id, "approve");
        }
        let failed = agents::JobReport::Brief(agent, Err("no log".into()));
        bench.apply(crate::core::Event::Job(failed));
        let expected = if decides { agents::Status::Running } else { agents::Status::Waiting };
        assert_eq!(bench.state.agents.get(agent).expect("known").status, expected, "{asks_before} {decides}");
    }
}

#[test]
fn after_a_start_who_has_lived_on_is_shown_to_wait_as_its_approvals_say() {
    let mut bench = Bench::new();
    let (asks, was_told) = (bench.agent("asks"), bench.agent("told"));
    let without = bench.state.agents.clone();
    ask_for(&mut bench, Some(asks), exec(&json!({})));
    let (id, _) = ask_for(&mut bench, Some(was_told), exec(&json!({})));
    let with = bench.state.agents.clone();
    decide(&mut bench, &id, "approve");
    let stored = |bench: &Bench| -> Stored {
        let bytes = encode(Document::Approvals, &bench.state).expect("a document").expect("JSON");
        serde_json::from_slice(&bytes).expect("as it was written")
    };
    let status = |bench: &Bench, id| bench.state.agents.get(id).expect("known").status;
    for records in [without, with] {
        // The records are of another moment than the approvals.
        bench.state.agents = records;
        let (stored, now) = (stored(&bench), bench.now);
        restore(&mut bench.state, stored, now);
        assert_eq!(status(&bench, asks), agents::Status::Waiting);
        assert_eq!(status(&bench, was_told), agents::Status::Running);
    }
}

#[test]
fn approvals_are_bounded_and_the_bound_is_named() {
    let mut bench = Bench::new();
    let agent = bench.agent("a");
    for n in 0..MAX_OPEN_PER_AGENT {
        ask_for(&mut bench, Some(agent), exec(&json!({ "n": n })));
    }
    let refuse = |bench: &mut Bench, agent| {
        let action = exec(&json!({"n": "more"}));
        bench.with(|all, cx| request(all, cx, NewApproval { agent, action })).unwrap_err()
    };
    let problem = refuse(&mut bench, Some(agent));
    assert_eq!((problem.status, problem.code), (409, "too_many_approvals"));
    assert!(problem.error.contains("50"), "{}", problem.error);
    let ids: Vec<String> = bench.state.approvals.pending().map(|approval| approval.id.to_string()).collect();
    for id in ids {
        decide(&mut bench, &id, "reject");
    }
    for n in 0..20 {
        let (id, _) = ask_for(&mut bench, None, exec(&json!({ "n": n })));
        decide(&mut bench, &id, "reject");
    }
    let (_, body) = bench.ask("GET", "/api/approvals", &Value::Null);
    assert_eq!(body["resolved"].as_array().map(Vec::len), Some(MAX_RESOLVED), "decisions 4: last 50");
    assert_eq!(bench.state.approvals.iter().count(), MAX_RESOLVED);
}

/// Agents that ask for everything leave room for others, and for what a person calls.
#[test]
fn agents_that_ask_much_leave_room_for_others_and_for_persons() {
    let mut bench = Bench::new();
    bench.ask("PATCH", "/api/config", &json!({"maxAgents": 100}));
    let fill = |bench: &mut Bench, agent: Option<AgentId>| {
        let mut count = 0;
        loop {
            let action = exec(&json!({ "n": bench.state.approvals.iter().count() }));
            match bench.with(|all, cx| request(all, cx, NewApproval { agent, action })) {
                Ok(_) => count += 1,
                Err(problem) => return (count, problem.error),
            }
        }
    };
    let greedy: Vec<usize> = ["a", "b", "c", "d"]
        .map(|name| {
            let agent = bench.agent(name);
            fill(&mut bench, Some(agent)).0
        })
        .to_vec();
    assert_eq!(greedy, [50, 50, 40, 5], "the third has come when it was not crowded yet");
    let modest = bench.agent("modest");
    let (count, why) = fill(&mut bench, Some(modest));
    assert_eq!(count, MAX_OPEN_IF_CROWDED);
    assert!(why.contains("5 approvals of this agent, and many of others, are open and 5 is"), "{why}");
    for n in 0..8 {
        let agent = bench.agent(&format!("e-{n}"));
        assert_eq!(fill(&mut bench, Some(agent)).0, MAX_OPEN_IF_CROWDED, "agent {n}");
    }
    let late = bench.agent("late");
    let (count, why) = fill(&mut bench, Some(late));
    assert_eq!(count, 0);
    assert!(why.contains("190 approvals of agents are open"), "{why}");
    assert_eq!(fill(&mut bench, None).0, MAX_OPEN - MAX_OPEN_OF_AGENTS, "what a person calls");
    assert!(bench.state.approvals.iter().count() <= MAX_OPEN);
}

#[test]
fn approvals_survive_a_restart_with_their_deadlines() {
    let mut bench = Bench::new();
    let (id, _) = ask_for(&mut bench, None, exec(&json!({})));
    let bytes = encode(Document::Approvals, &bench.state).expect("there").expect("encodes");
    let mut next = Bench::new();
    let stored: Stored = serde_json::from_slice(&bytes).expect("reads");
    let mut timers = Timers::default();
    next.state.approvals = Arc::new(State::restore(stored, &crate::agents::State::default(), &mut timers));
    next.state.timers = Arc::new(timers);
    assert_eq!(next.state.approvals.stored().approvals, bench.state.approvals.stored().approvals);
    next.pass(LIFETIME);
    assert_eq!(check(&next.state, next.now, &id, None, &exec(&json!({}))), Verdict::Expired);
    assert_eq!(next.state.approvals.find(&id).expect("known").status, Status::Expired, "and it is seen to");
}

#[test]
fn decisions_4_shown_parameters_are_redacted_and_bounded() {
    let action = exec(&json!({
        "title": "x".repeat(5000), "apiToken": "hunter2", "nested": {"password": ["hunter2"]},
        "list": vec![0; 500],
    }));
    let text = json!(action).to_string();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("[redacted]") && text.len() < 2000, "{} bytes", text.len());
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    assert!(json!(exec(&deep)).to_string().len() < 500);
    let wide = json!((0..50).map(|_| "y".repeat(500)).collect::<Vec<_>>());
    assert!(json!(exec(&wide)).to_string().len() < 10_000);
}

#[test]
fn decisions_4_a_scope_violation_names_file_and_owner() {
    let mut bench = Bench::new();
    let (owner, agent) = (bench.agent("owner"), bench.agent("a"));
    let action = Action::scope_violation("src/a.rs", Some((owner, "owner")), false);
    let (id, _) = ask_for(&mut bench, Some(agent), action);
    let (_, body) = bench.ask("GET", &format!("/api/approvals/{id}"), &Value::Null);
    let action = &body["action"];
    assert_eq!((&action["type"], &action["filePath"]), (&json!("scope_violation"), &json!("src/a.rs")));
    assert_eq!((&action["ownerId"], &action["ownerName"]), (&json!(owner), &json!("owner")));
    let again = Action::scope_violation("src/a.rs", None, false);
    assert_eq!(find_open(&bench.state, bench.now, Some(agent), &again).map(|id| id.to_string()), Some(id));
}

#[test]
fn a_decision_that_the_disk_refuses_is_not_in_force() {
    let mut bench = Bench::new();
    let agent = bench.agent("worker");
    let (id, _) = ask_for(&mut bench, Some(agent), exec(&json!({"title": "x"})));
    let action = exec(&json!({"title": "x"}));
    let is_pending = |bench: &mut Bench| {
        let (_, body) = bench.ask("GET", &format!("/api/approvals/{id}"), &Value::Null);
        let verdict = check(&bench.state, bench.now, &id, Some(agent), &action);
        (body["status"].clone(), verdict) == (json!("pending"), Verdict::Pending)
    };
    bench.disk = Some(Err("no space left".into()));
    for decision in ["approve", "reject"] {
        let (status, body) = decide(&mut bench, &id, decision);
        assert_eq!((status, &body["code"]), (503, &json!("storage_unavailable")), "{body}");
        assert!(is_pending(&mut bench), "{decision} is in force");
        assert!(bench.state.approvals.stored().approvals.iter().all(|one| one.status == Status::Pending));
    }
    assert!(bench.notices("approval:resolved").is_empty(), "nobody was told");
    let withdrawn = bench.audited("change.withdrawn");
    assert_eq!(withdrawn[0]["withdrawn"], json!(["approval.approve"]), "the log does not leave it at that");
    assert_eq!(withdrawn[1]["withdrawn"], json!(["approval.reject"]));
    // While the disk is slow it is written, but not in force.
    bench.disk = None;
    let command = Command::Decide { id: id.clone(), decision: Decision::Approve, reason: None };
    let wish =
        crate::core::Event::Call(CallId(7000), Actor::Operator, crate::core::Command::Approvals(command));
    assert!(bench.apply(wish).is_none() && is_pending(&mut bench));
    let on_its_way = encode(crate::core::Document::Approvals, &bench.state).unwrap().unwrap();
    let on_its_way: Value = serde_json::from_slice(&on_its_way).unwrap();
    assert_eq!(on_its_way["approvals"][0]["status"], "approved");
    let reply = bench.apply(crate::core::Event::OnDisk(CallId(7000), Ok(()))).unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(check(&bench.state, bench.now, &id, Some(agent), &action), Verdict::Approved);
}
