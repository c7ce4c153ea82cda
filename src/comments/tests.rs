//! Comments gather, travel as one message, and are done or gone.

use super::*;
use crate::agents::RunOrder;
use crate::core::Command as Core;
use crate::testing::{Bench, parsed};
use serde_json::Value;

fn add(bench: &mut Bench, agent: AgentId, line: u64, text: &str) -> (u16, Value) {
    let new = New {
        agent,
        path: "src/a.rs".into(),
        line,
        last_line: line + 1,
        side: Side::New,
        quote: "let a = 1;\nlet b = 2;".into(),
        text: text.into(),
    };
    let reply = bench.command(Core::Comments(Command::Add(Box::new(new)))).unwrap();
    parsed(&reply)
}

fn sent_at(bench: &Bench) -> Vec<bool> {
    bench.state.comments.all.iter().map(|comment| comment.sent_at.is_some()).collect()
}

/// What the program of an agent was told.
fn said(bench: &Bench) -> Vec<String> {
    let words = |effect: &Effect| match effect {
        Effect::Run(_, RunOrder::Say { text, .. }) => Some(text.clone()),
        _ => None,
    };
    bench.effects.iter().filter_map(words).collect()
}

#[test]
fn open_comments_travel_as_one_message_with_their_lines_and_once() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    assert_eq!(add(&mut bench, id, 3, "one word").0, 201);
    let (_, second) = add(&mut bench, id, 10, "why two?");
    let (status, body) =
        bench.ask("POST", "/api/agents/dev/comments/send", &json!({"message": "before we merge:"}));
    assert_eq!((status, &body["sent"], &body["left"]), (200, &json!([1, 2]), &json!(0)), "{body}");
    let told = said(&bench);
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0],
        "before we merge:\n\nComments on your work. See to each of them, or say why not.\n\n1. src/a.rs:3-4\n\
         > let a = 1;\n> let b = 2;\none word\n\n2. src/a.rs:10-11\n> let a = 1;\n> let b = 2;\nwhy two?\n"
    );
    assert_eq!(sent_at(&bench), [true, true]);
    assert_eq!(bench.ask("POST", "/api/agents/dev/comments/send", &Value::Null).0, 409, "nothing is open");
    let place = format!("/api/agents/dev/comments/{}", second["id"]);
    assert!(bench.ask("PATCH", &place, &json!({"done": true})).1["doneAt"].is_string());
    assert_eq!(bench.ask("PATCH", &place, &json!({"done": false})).1["doneAt"], Value::Null);
    assert_eq!(bench.ask("DELETE", &place, &Value::Null).0, 200);
    assert_eq!(bench.ask("DELETE", &place, &Value::Null).0, 404);
    assert_eq!(add(&mut bench, id, 1, "x").1["id"], json!(3), "no number is given twice");
}

#[test]
fn a_comment_on_removed_lines_says_so() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    let (path, quote, text) = ("src/a.rs".into(), "let a = 1;\nlet c = 3;".into(), "why?".into());
    let new = New { agent: id, path, line: 3, last_line: 5, side: Side::Old, quote, text };
    let reply = bench.command(Core::Comments(Command::Add(Box::new(new)))).unwrap();
    assert_eq!(parsed(&reply).1["side"], json!("old"));
    bench.ask("POST", "/api/agents/dev/comments/send", &Value::Null);
    let wanted = "1. src/a.rs:3-5 before your changes, removed:\n> let a = 1;\n> let c = 3;\nwhy?\n";
    assert!(said(&bench)[0].ends_with(wanted), "{:?}", said(&bench));
    let mut stored = json!(bench.state.comments.stored());
    let again = State::restore(serde_json::from_value(stored.clone()).unwrap());
    assert_eq!(again.all[0].side, Side::Old);
    stored["comments"][0].as_object_mut().unwrap().remove("side");
    let older = State::restore(serde_json::from_value(stored).unwrap());
    assert_eq!(older.all[0].side, Side::New, "one that an earlier version wrote");
}

#[test]
fn an_agent_that_has_ended_goes_on_with_its_comments() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    bench.exits(id, 0);
    assert_eq!(add(&mut bench, id, 3, "and the tests").0, 201);
    let (status, body) = bench.ask("POST", "/api/agents/dev/comments/send", &Value::Null);
    assert_eq!(status, 200, "{body}");
    assert_ne!(body["agentId"], json!(id), "its next life was told");
    let starts = |effect: &Effect| {
        matches!(effect, Effect::Run(_, RunOrder::Start(order))
        if order.request.prompt.contains("and the tests"))
    };
    assert!(bench.effects.iter().any(starts));
}

#[test]
fn a_message_that_cannot_be_given_leaves_the_comments_open() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    add(&mut bench, id, 3, "x");
    for _ in 0..100 {
        bench.ask("POST", "/api/agents/dev/instruct", &json!({"message": "m", "deliver": "rotation"}));
    }
    let (status, body) = bench.ask("POST", "/api/agents/dev/comments/send", &Value::Null);
    assert_eq!((status, &body["code"]), (409, &json!("queue_full")), "{body}");
    assert_eq!(sent_at(&bench), [false]);
}

#[test]
fn limits_comments_of_an_agent_and_the_length_of_a_message() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    let long = "w".repeat(MAX_TEXT_CHARS);
    for _ in 0..MAX_OF_AGENT {
        assert_eq!(add(&mut bench, id, 1, &long).0, 201);
    }
    let (status, body) = add(&mut bench, id, 1, "more");
    assert_eq!((status, &body["code"]), (409, &json!("too_many_comments")));
    let (_, body) = bench.ask("POST", "/api/agents/dev/comments/send", &Value::Null);
    let count = body["sent"].as_array().unwrap().len();
    assert!(body["message"].as_str().unwrap().chars().count() <= MAX_MESSAGE_CHARS);
    assert_eq!(body["left"], json!(MAX_OF_AGENT - count));
    assert!((2..20).contains(&count), "{count}");
    bench.ask("PATCH", "/api/agents/dev/comments/2", &json!({"done": true}));
    assert_eq!(add(&mut bench, id, 1, "more").0, 201, "one that is done makes room");
    assert!(bench.state.comments.all.iter().all(|comment| comment.id != 2));
}

#[test]
fn comments_go_with_the_record_and_outlive_a_start() {
    let mut bench = Bench::new();
    let (one, other) = (bench.agent("one"), bench.agent("other"));
    add(&mut bench, one, 1, "x");
    add(&mut bench, other, 1, "y");
    let stored = serde_json::to_vec(&bench.state.comments.stored()).unwrap();
    let again = State::restore(serde_json::from_slice(&stored).unwrap());
    assert_eq!((&again.all, again.given), (&bench.state.comments.all, 2));
    bench.exits(one, 0);
    assert_eq!(bench.ask("DELETE", "/api/agents/one", &Value::Null).0, 200);
    assert_eq!(bench.state.comments.all.iter().map(|comment| comment.id).collect::<Vec<_>>(), [2]);
}

#[test]
fn lines_are_found_where_they_have_moved_to_and_not_in_parts() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    add(&mut bench, id, 1, "x");
    let comment = &bench.state.comments.all[0];
    assert_eq!(comment.stands_in("// new\nlet a = 1;\nlet b = 2;\n"), Some(2));
    let twice = format!("{0}\n//\n//\n{0}\n", comment.quote);
    assert_eq!(comment.stands_in(&twice), Some(1));
    assert_eq!(
        Comment { line: 4, ..Comment::clone(comment) }.stands_in(&twice),
        Some(5),
        "the nearest of both"
    );
    for text in ["", "let a = 1;\n", "let a = 1;\n\nlet b = 2;", "let a = 1;\nlet b = 22;\n"] {
        assert_eq!(comment.stands_in(text), None, "{text:?}");
    }
}
