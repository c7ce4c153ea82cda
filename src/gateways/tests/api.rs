//! The endpoints.

use super::*;
use serde_json::Value;

#[test]
fn decisions_12_create_answers_201_with_the_record() {
    let mut bench = Bench::new();
    for kind in Kind::WORDS {
        let (status, record) = bench.ask("POST", "/api/gateways", &json!({"type": kind}));
        assert_eq!(status, 201);
        let id = record["id"].as_str().unwrap();
        assert!(id.starts_with(&format!("{kind}-")) && id.len() == kind.len() + 7, "{id}");
        assert_eq!(record["type"], *kind);
        assert_eq!((&record["connected"], &record["enabled"]), (&json!(false), &json!(true)));
        assert_eq!(record["notifications"], json!({"preset": "critical"}));
        assert_eq!(record["commandPermission"], "full");
        for text in ["displayName", "chatId", "botUsername"] {
            assert!(record[text].is_string(), "{text}");
        }
    }
    assert_eq!(bench.audited("gateway.create").len(), 3);
    let (status, list) = bench.ask("GET", "/api/gateways", &Value::Null);
    assert_eq!((status, list.as_array().map(Vec::len)), (200, Some(3)));
    let told = bench.notices("gateway:status");
    assert_eq!(told.last().unwrap()["data"], list, "the event carries the list");
}

#[test]
fn every_wrong_field_is_named() {
    let mut bench = Bench::new();
    let body = json!({
        "type": "irc", "enabled": 1, "chatId": "a b", "allowedUsers": "x", "notifications": "all",
        "commandPermission": "some", "apiBase": "ftp://x", "displayName": "",
    });
    let (status, problem) = bench.ask("POST", "/api/gateways", &body);
    assert_eq!((status, &problem["code"]), (400, &json!("validation_failed")));
    let named: Vec<_> = problem["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    for field in body.as_object().unwrap().keys() {
        assert!(named.contains(&json!(field)), "{field} in {named:?}");
    }
    assert_eq!(bench.ask("POST", "/api/gateways", &json!({})).0, 400, "the type is required");
}

#[test]
fn decisions_12_update_answers_200_with_the_record() {
    let mut rig = Rig::new("telegram");
    let record = rig.patch(&json!({
        "enabled": false, "chatId": -1_001_234, "allowedUsers": ["7", 4711, "7"],
        "notifications": {"preset": "all"}, "commandPermission": "read-only",
        "apiBase": "http://127.0.0.1:8081/", "displayName": "Ops",
    }));
    assert_eq!(record["chatId"], "-1001234");
    assert_eq!(record["allowedUsers"], json!(["4711", "7"]), "by itself the record lists them");
    assert_eq!(record["notifications"]["preset"], "all");
    assert_eq!((&record["enabled"], &record["commandPermission"]), (&json!(false), &json!("read-only")));
    assert_eq!(record["apiBase"], "http://127.0.0.1:8081");
    let (_, list) = rig.bench.ask("GET", "/api/gateways", &Value::Null);
    assert_eq!(list[0]["allowedUsers"], 2, "in the list it is a number");
    let record = rig.patch(&json!({"chatId": null, "apiBase": null, "allowedUsers": []}));
    assert_eq!((&record["chatId"], &record["apiBase"]), (&json!(""), &Value::Null));
    assert_eq!(rig.bench.audited("gateway.update").len(), 2);
}

#[test]
fn decisions_12_unknown_ids_are_404() {
    let mut bench = Bench::new();
    for (method, path) in [
        ("GET", "/api/gateways/slack-000000"),
        ("PATCH", "/api/gateways/slack-000000"),
        ("DELETE", "/api/gateways/nonsense"),
        ("POST", "/api/gateways/slack-000000/connect"),
        ("POST", "/api/gateways/slack-000000/disconnect"),
        ("DELETE", "/api/gateways/slack-000000/credentials/bot_token"),
    ] {
        assert_eq!(bench.ask(method, path, &json!({})).0, 404, "{method} {path}");
    }
}

#[test]
fn an_address_in_the_open_is_taken_for_this_machine_only() {
    let mut bench = Bench::new();
    for (base, fits) in [
        ("https://example.org/api", true),
        ("http://127.0.0.1:9", true),
        ("http://localhost", true),
        ("http://[::1]:5/x", true),
        ("http://example.org", false),
        ("http://127.0.0.1.example.org", false),
        ("http://localhost:x", false),
        ("http://user@127.0.0.1", false),
        ("https://a b", false),
        ("https://x/?token=1", false),
        ("https:///x", false),
    ] {
        let (status, _) = bench.ask("POST", "/api/gateways", &json!({"type": "slack", "apiBase": base}));
        assert_eq!(status == 201, fits, "{base}");
    }
}

#[test]
fn connect_needs_credentials_and_leave() {
    let mut bench = Bench::new();
    let (_, record) = bench.ask("POST", "/api/gateways", &json!({"type": "slack"}));
    let path = format!("/api/gateways/{}/connect", record["id"].as_str().unwrap());
    let (status, problem) = bench.ask("POST", &path, &json!({}));
    assert_eq!((status, &problem["code"]), (409, &json!("missing_credentials")));
    assert!(problem["error"].as_str().unwrap().contains("bot_token and no app_token"), "{problem}");
    let mut rig = Rig::new("telegram");
    rig.patch(&json!({"enabled": false}));
    assert_eq!(rig.connect().unwrap().status, 409);
}

#[test]
fn decisions_12_connect_and_disconnect_answer_200_with_the_record() {
    let mut rig = Rig::new("telegram");
    assert!(rig.connect().is_none(), "the platform has not answered");
    let (id, run) = (rig.id, rig.gateway().run);
    let stale = Report::Connected { gateway: id, run: run + 7, bot: "x".into() };
    assert!(rig.report(stale).is_none(), "another thread set is not believed");
    let reply = rig.report(Report::Connected { gateway: id, run, bot: "svc_bot".into() }).unwrap();
    let record: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    assert_eq!(
        (reply.status, &record["connected"], &record["botUsername"]),
        (200, &json!(true), &json!("svc_bot"))
    );
    let told = rig.bench.notices("gateway:status");
    assert_eq!(told.last().unwrap()["data"][0]["connected"], true);
    let (status, record) = rig.bench.ask("POST", &format!("/api/gateways/{id}/disconnect"), &json!({}));
    assert_eq!((status, &record["connected"]), (200, &json!(false)));
    assert!(matches!(rig.bench.effects.iter().rev().find_map(|e| match e {
        Effect::Gateways(order) => Some(order),
        _ => None,
    }), Some(Order::Stop(stopped)) if *stopped == id));
    assert_eq!(rig.bench.audited("gateway.connect").len() + rig.bench.audited("gateway.disconnect").len(), 2);
}

#[test]
fn a_refused_connection_is_told_in_the_record() {
    let mut rig = Rig::new("discord");
    assert!(rig.connect().is_none());
    let (gateway, run) = (rig.id, rig.gateway().run);
    let error = "Discord says 401: Unauthorized".to_owned();
    let reply = rig.report(Report::Trouble { gateway, run, error: error.clone(), fatal: true }).unwrap();
    let record: Value = serde_json::from_slice(reply.body.bytes()).unwrap();
    assert_eq!(
        (reply.status, &record["connected"], &record["lastError"]),
        (200, &json!(false), &json!(error))
    );
}

#[test]
fn a_platform_that_takes_its_time_is_answered_for() {
    let mut rig = Rig::new("telegram");
    assert!(rig.connect().is_none());
    let id = rig.id;
    let reply = rig.bench.apply(Event::Timer(Timer::GatewayConnect(id))).unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(rig.bench.apply(Event::Timer(Timer::GatewayConnect(id))), None, "one answer to one call");
}

#[test]
fn decisions_12_delete_answers_200_and_takes_the_tokens_along() {
    let mut rig = Rig::connected("slack");
    let path = format!("/api/gateways/{}", rig.id);
    assert_eq!(rig.bench.state.credentials.iter().count(), 2);
    assert_eq!(rig.bench.ask("DELETE", &path, &Value::Null).0, 200);
    assert_eq!(rig.bench.state.credentials.iter().count(), 0);
    assert_eq!(rig.bench.ask("GET", &path, &Value::Null).0, 404);
    assert_eq!(rig.bench.audited("gateway.delete").len(), 1);
}

#[test]
fn agents_may_look_and_nothing_else() {
    use crate::assembly::routes::table;
    use crate::endpoint::{Access, Handler};
    let table = table();
    let ours = table.routes().iter().filter(|route| route.path.starts_with("/api/gateways"));
    let mut changing = 0;
    for route in ours {
        match route.handler {
            Handler::Read(_) | Handler::Shared(_) => assert_eq!(route.method, crate::api::Method::Get),
            Handler::Write(access, _) | Handler::Work(access, _) => {
                changing += 1;
                assert_eq!(access, Access::OperatorOnly, "{} {}", route.method, route.path);
            }
        }
    }
    assert_eq!(changing, 8);
}

#[test]
fn what_is_stored_comes_back_and_connects_again() {
    let mut rig = Rig::connected("telegram");
    rig.says("4711", "update:1", "/status");
    let text = serde_json::to_string(&rig.bench.state.gateways.stored()).unwrap();
    assert!(!text.contains("connected"), "{text}");
    let stored: Stored = serde_json::from_str(&text).unwrap();
    let mut timers = crate::core::Timers::default();
    let restored = State::restore(stored, rig.bench.now, &mut timers);
    rig.bench.state.gateways = Arc::new(restored);
    assert!(timers.is_set(Timer::GatewaysBoot));
    assert!(!rig.gateway().connected);
    rig.bench.effects.clear();
    rig.bench.apply(Event::Timer(Timer::GatewaysBoot));
    let orders: Vec<&Order> = rig
        .bench
        .effects
        .iter()
        .filter_map(|effect| if let Effect::Gateways(order) = effect { Some(order) } else { None })
        .collect();
    assert!(matches!(orders[0], Order::Start(start) if start.credentials.len() == 1), "{orders:?}");
    assert!(matches!(orders[1], Order::Run(entry) if entry.text == "/status"), "what was taken is done");
}
