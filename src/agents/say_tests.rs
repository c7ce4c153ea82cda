//! What becomes of messages with which a life begins: it may never come to run.

use super::limit_tests;
use super::report::RunReport;
use super::say::MAX_QUEUED;
use super::{RunOrder, State, Status, limit};
use crate::core::ids::AgentId;
use crate::core::{Effect, Event};
use crate::providers::{Activity, TurnEnd};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

fn waiting(bench: &Bench) -> Vec<String> {
    let agent = bench.state.agents.find("dev").unwrap();
    agent.queue.iter().map(|message| message.text.to_string()).collect()
}

fn instruct(bench: &mut Bench, message: &str) {
    let wish = json!({"message": message, "deliver": "rotation"});
    assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &wish).0, 200);
}

/// The daemon starts over what was written; of the agents' runs these are there.
fn restart(bench: &mut Bench, kept: &[AgentId]) {
    let stored = serde_json::to_vec(&bench.state.agents.stored()).unwrap();
    let stored = serde_json::from_slice(&stored).unwrap();
    let kept: HashSet<AgentId> = kept.iter().copied().collect();
    bench.state.agents = Arc::new(State::restore(stored, |_| "TASK".into(), &kept, bench.now));
    bench.state.timers = Arc::default();
}

/// An agent that has crashed while a message waited, and was spoken to again; its next life is ordered.
fn resumed() -> (Bench, AgentId) {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    instruct(&mut bench, "first");
    bench.exits(id, 1);
    bench.effects.clear();
    instruct(&mut bench, "second");
    let starts = |effect: &Effect| match effect {
        Effect::Run(id, RunOrder::Start(order)) => Some((*id, order.request.prompt.clone())),
        _ => None,
    };
    let (id, prompt) = bench.effects.iter().find_map(starts).expect("an order to start");
    assert!(prompt.contains("first") && prompt.contains("second"), "{prompt}");
    (bench, id)
}

#[test]
fn the_power_goes_before_a_resumed_life_runs_and_no_message_is_lost() {
    let (mut bench, _) = resumed();
    restart(&mut bench, &[]);
    assert_eq!(waiting(&bench), ["first", "second"]);
    bench.effects.clear();
    assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &Value::Null).0, 200);
    let again = |effect: &Effect| {
        matches!(effect, Effect::Run(_, RunOrder::Start(order))
        if order.request.prompt.contains("first") && order.request.prompt.contains("second"))
    };
    assert!(bench.effects.iter().any(again));
}

/// The next daemon carries the order out; what was said behind it is not in its prompt.
#[test]
fn a_start_that_no_keeper_has_begun_is_made_again_with_its_messages_and_takes_no_others() {
    let (mut bench, id) = resumed();
    instruct(&mut bench, "third");
    restart(&mut bench, &[]);
    Arc::make_mut(&mut bench.state.agents).tell_unbegun(|_| false);
    bench.effects.clear();
    bench.with(|all, cx| {
        let unbegun = Arc::make_mut(&mut all.agents).take_unbegun();
        assert_eq!(unbegun, [id]);
        super::start_again(all, cx, id).unwrap();
    });
    let told = |effect: &Effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => Some(order.request.prompt.clone()),
        _ => None,
    };
    let prompt = bench.effects.iter().find_map(told).expect("an order to start");
    assert!(prompt.contains("first") && prompt.contains("second") && !prompt.contains("third"), "{prompt}");
    bench.apply(Event::Run(id, RunReport::Started { pid: 2, start_ticks: 2 }));
    assert_eq!(waiting(&bench), ["third"]);
}

#[test]
fn a_life_that_cannot_be_started_leaves_its_messages_to_the_next() {
    let (mut bench, id) = resumed();
    bench.apply(Event::Run(id, RunReport::StartFailed { error: "no such program".into() }));
    assert_eq!(waiting(&bench), ["first", "second"]);
    assert!(bench.state.agents.get(id).unwrap().queue.iter().all(|message| !message.in_prompt));
}

#[test]
fn a_life_that_runs_has_its_messages_and_is_told_none_of_them_again() {
    for kept in [false, true] {
        let (mut bench, id) = resumed();
        if kept {
            // The daemon was killed behind its order, and the program runs all the same.
            restart(&mut bench, &[id]);
        }
        bench.apply(Event::Run(id, RunReport::Started { pid: 2, start_ticks: 2 }));
        assert_eq!(waiting(&bench), Vec::<String>::new());
        instruct(&mut bench, "third");
        assert_eq!(waiting(&bench), ["third"], "what is said from now on waits");
    }
}

#[test]
fn limits_an_ended_agent_has_no_more_messages_than_a_live_one() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    for n in 0..MAX_QUEUED {
        instruct(&mut bench, &format!("m{n}"));
    }
    bench.exits(id, 1);
    let (status, body) = bench.ask("POST", "/api/agents/dev/instruct", &json!({"message": "more"}));
    assert_eq!((status, &body["code"]), (409, &json!("queue_full")), "{body}");
    assert!(body["error"].as_str().unwrap().contains("svc resume dev"), "{body}");
    assert_eq!(bench.ask("POST", "/api/agents/dev/resume", &Value::Null).0, 200);
}

/// Of what an agent works on the newest words are kept; of what waits for it all are.
#[test]
fn all_messages_that_waited_behind_a_limit_are_issued_once_also_when_the_power_goes() {
    let mut bench = limit_tests::bench(&json!({"onLimit": "wait"}));
    let id = limit_tests::spawn(&mut bench, "claude-code", "TASK");
    bench.does(id, limit_tests::at_limit(Some(bench.now + Duration::from_secs(60))));
    bench.exits(id, 0);
    for n in 0..2 * limit::MAX_UNDER_WAY {
        instruct(&mut bench, &format!("word-{n};"));
    }
    limit_tests::starts(&mut bench);
    for cut in [true, false] {
        bench.pass(Duration::from_secs(120));
        let starts = limit_tests::starts(&mut bench);
        let [(id, order)] = &starts[..] else { panic!("{} starts", starts.len()) };
        for n in 0..2 * limit::MAX_UNDER_WAY {
            let count = order.request.prompt.matches(&format!("word-{n};")).count();
            assert_eq!(count, 1, "word {n}, cut: {cut}");
        }
        if cut {
            restart(&mut bench, &[]);
            bench.with(|all, _| limit::started(all));
        } else {
            instruct(&mut bench, "late");
            bench.apply(Event::Run(*id, RunReport::Started { pid: 2, start_ticks: 2 }));
            assert_eq!(waiting(&bench), ["late"]);
        }
    }
}

/// What its program prints meanwhile begins no turn.
#[test]
fn an_agent_whose_program_does_not_take_what_was_to_begin_a_turn_is_let_go() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    instruct(&mut bench, "more");
    bench.does(id, vec![Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() })]);
    let is_let_go = |effect: &Effect| matches!(effect, Effect::Run(_, RunOrder::Finish));
    assert!(!bench.effects.iter().any(is_let_go), "it is told more");
    bench.does(id, vec![Activity::Trouble { text: "its input is closed".into() }]);
    let message_id = bench.state.agents.get(id).unwrap().queue[0].id;
    bench.apply(Event::Run(id, RunReport::Said { message_id, delivered: false }));
    assert!(bench.effects.iter().any(is_let_go), "it was waited for without an end");
}

/// The first was on its way when the turn ended; the second came then, for the next time it is idle.
#[test]
fn what_comes_while_the_last_message_is_on_its_way_is_said_before_the_program_is_let_go() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    let say = |message: &str, deliver: &str| json!({"message": message, "deliver": deliver});
    assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &say("first", "now")).0, 200);
    bench.does(id, vec![Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() })]);
    assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &say("second", "idle")).0, 200);
    bench.effects.clear();
    for (message_id, is_last) in [(1, false), (2, true)] {
        assert_eq!(bench.state.agents.get(id).unwrap().queue[0].id, message_id);
        bench.apply(Event::Run(id, RunReport::Said { message_id, delivered: true }));
        let is_let_go = |effect: &Effect| matches!(effect, Effect::Run(_, RunOrder::Finish));
        assert!(!bench.effects.iter().any(is_let_go), "the turn that {message_id} begins is to come");
        let says = |effect: &Effect| matches!(effect, Effect::Run(_, RunOrder::Say { message_id: 2, .. }));
        assert_eq!(bench.effects.iter().any(says), !is_last, "behind {message_id}");
        bench.effects.clear();
    }
    bench.does(id, vec![Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() })]);
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, RunOrder::Finish))));
}

#[test]
fn what_a_program_did_not_take_waits_for_the_next_life() {
    let say = json!({"message": "and this", "deliver": "now"});
    // It is told that the message was not taken, or its program is gone before it told anything.
    for is_told in [true, false] {
        let mut bench = Bench::new();
        let id = bench.agent("dev");
        assert_eq!(bench.ask("POST", "/api/agents/dev/instruct", &say).0, 200);
        let message_id = bench.state.agents.get(id).unwrap().queue[0].id;
        if is_told {
            bench.apply(Event::Run(id, RunReport::Said { message_id, delivered: false }));
        }
        bench.exits(id, 1);
        assert_eq!(waiting(&bench), ["and this"], "told: {is_told}");
        assert!(!bench.state.agents.get(id).unwrap().queue[0].sent, "it is on its way to nobody");
    }
}

/// A keeper has it, or had it and is gone: it is not begun a second time.
#[test]
fn a_start_that_was_carried_out_is_not_made_again() {
    let (mut bench, id) = resumed();
    restart(&mut bench, &[]);
    let agents = Arc::make_mut(&mut bench.state.agents);
    agents.tell_unbegun(|_| true);
    assert_eq!(agents.take_unbegun(), []);
    assert_eq!(bench.state.agents.get(id).unwrap().status, Status::Interrupted);
    assert_eq!(waiting(&bench), ["first", "second"]);
}

/// The last daemon died before it could tell it to end.
#[test]
fn who_has_lived_on_without_anything_to_do_is_let_go_when_all_is_caught_up_with() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    bench.does(id, vec![Activity::TurnEnded(TurnEnd { text: "done".into(), ..TurnEnd::default() })]);
    restart(&mut bench, &[id]);
    bench.effects.clear();
    bench.apply(Event::Run(id, RunReport::CaughtUp));
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::Run(_, RunOrder::Finish))));
}
