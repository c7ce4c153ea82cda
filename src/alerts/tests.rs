//! What a desktop is told, how often, and how its program is started.

use super::*;
use crate::testing::Bench;
use serde_json::{Map, Value, json};
use std::path::Path;

fn settings(user: &Value, project: &Value) -> Result<crate::settings::State, crate::api::Problem> {
    let map = |value: &Value| value.as_object().cloned().unwrap_or_else(Map::new);
    crate::settings::State::new(map(user), map(project))
}

fn bench(command: &[&str]) -> Bench {
    let mut bench = Bench::new();
    let state =
        settings(&json!({"notify": {"command": command}}), &json!({})).expect("a person's own settings");
    bench.state.settings = Arc::new(state);
    bench
}

/// What is ordered when these notices go out as one event.
fn orders(bench: &mut Bench, notices: Vec<Notice>) -> Vec<Order> {
    bench.with(|all, cx| {
        for notice in notices {
            cx.notice(notice);
        }
        overheard(all, cx);
        let order =
            |effect: &Effect| if let Effect::Alerts(order) = effect { Some(order.clone()) } else { None };
        cx.effects().iter().filter_map(order).collect()
    })
}

fn silent(bench: &mut Bench, name: &str, reason: &str) -> Notice {
    let agent_id = bench.agent(name);
    Notice::AgentStalled { agent_id, agent_name: name.into(), reason: reason.into() }
}

#[test]
fn what_waits_is_told_as_visible_lines_with_its_place() {
    let mut bench = bench(&["notify-send", "{title}"]);
    let reason = format!("no output\nfor long \u{202e}{}", "x".repeat(900));
    let notice = silent(&mut bench, "backend-1", &reason);
    let told = orders(&mut bench, vec![notice]);
    let [order] = &told[..] else { panic!("{told:?}") };
    assert_eq!((order.kind, order.title.as_str()), ("silent", "backend-1 is silent"));
    assert_eq!(order.text.chars().count(), MAX_TEXT_CHARS);
    assert!(!order.text.contains(['\n', '\u{202e}']) && order.text.ends_with('…'), "{}", order.text);
    assert!(order.url.contains("/#/agent/"), "{}", order.url);
    let agent_id = bench.agent("backend-2");
    let fine = Notice::RotationFailed { agent_id, error: "no successor came".into() };
    assert!(orders(&mut bench, vec![fine]).is_empty(), "what goes on by itself waits for nobody");
}

#[test]
fn without_a_command_nothing_is_told() {
    let mut bench = Bench::new();
    let notice = silent(&mut bench, "backend-1", "x");
    assert!(orders(&mut bench, vec![notice]).is_empty());
}

#[test]
fn more_than_a_few_in_a_minute_are_held_back_and_counted() {
    let mut bench = bench(&["tell"]);
    let notice = silent(&mut bench, "backend-1", "x");
    let told = orders(&mut bench, vec![notice.clone(); MAX_IN_WINDOW + 3]);
    assert_eq!(told.len(), MAX_IN_WINDOW);
    assert!(orders(&mut bench, vec![notice.clone()]).is_empty());
    bench.pass(WINDOW);
    let told = orders(&mut bench, vec![notice.clone(), notice]);
    assert_eq!(told.len(), 2);
    assert!(told[0].text.ends_with("(and 4 more before)") && told[1].text == "x", "{told:?}");
}

#[test]
fn a_project_and_the_api_cannot_name_the_command() {
    let command = json!({"notify": {"command": ["sh", "-c", "true"]}});
    let refused = settings(&json!({}), &command).expect_err("a project's file");
    assert!(refused.errors[0].message.contains("your own"), "{refused}");
    assert!(settings(&command, &json!({})).is_ok());
    let mut bench = Bench::new();
    let (status, answer) = bench.ask("PATCH", "/api/config", &command);
    assert_eq!((status, &answer["errors"][0]["field"]), (400, &json!("notify.command")), "{answer}");
    assert!(bench.state.settings.config().notify.command.is_empty());
}

#[test]
fn words_fill_arguments_whole_and_are_no_options() {
    let order = Order {
        command: ["tell", "-t", "{title}", "{text}", "at={url} {kind}{", "{text"].map(str::to_owned).to_vec(),
        kind: "silent",
        title: "--help; $(reboot) {text}".into(),
        text: "it's \"so\"".into(),
        url: "http://127.0.0.1:1/#/".into(),
    };
    let spec = worker::spec(&order, Path::new("/")).expect("a program");
    let args: Vec<&str> = spec.args.iter().filter_map(|arg| arg.to_str()).collect();
    let expected =
        ["-t", " --help; $(reboot) {text}", "it's \"so\"", "at=http://127.0.0.1:1/#/ silent{", "{text"];
    assert_eq!(args, expected);
    let value = |name: &str| spec.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    assert_eq!(value("SVC_NOTIFY_TITLE"), Some(order.title.clone().into()));
    assert_eq!(value("SVC_NOTIFY_TEXT"), Some(order.text.clone().into()));
    assert_eq!(value("SVC_TOKEN"), None);
}
