use super::api::wish;
use super::kind::{command_line, fault};
use super::*;
use crate::api::Fields;
use crate::assembly::documents::encode;
use crate::testing::Bench;

fn refused(body: &Value) -> String {
    let mut fields = Fields::new(body.as_object().unwrap());
    wish(&mut fields);
    let told = fields.validator.finish().err().map(|problem| json!(problem.errors).to_string());
    told.unwrap_or_default()
}

#[test]
fn a_wish_names_a_word_a_kind_and_a_destination_that_is_no_option() {
    let ssh =
        |name: &str, destination: &str| json!({"name": name, "kind": "ssh", "destination": destination});
    let labelled = |labels: Value| json!({"name": "a", "kind": "ssh", "destination": "b", "labels": labels});
    for (body, words) in [
        (ssh("box", "me@box.example.org"), ""),
        (ssh("box", "box"), ""),
        (ssh("box", "ssh://me@[::1]:2222"), ""),
        (labelled(json!(["big", "gpu-2"])), ""),
        (json!({}), "destination"),
        (json!({"name": "a", "kind": "telnet", "destination": "b"}), "kind"),
        (ssh("-a", "b"), "begin with a letter or digit"),
        (ssh("a/b", "b"), "1 to 40"),
        (ssh("a", "-oProxyCommand=x"), "may begin with -"),
        (ssh("a", "me@-oProxyCommand"), "may begin with -"),
        (ssh("a", "-l@b"), "may begin with -"),
        (ssh("a", "me@b c"), "USER@HOST"),
        (ssh("a", "me@b\n"), "USER@HOST"),
        (ssh("a", "$(x)@b"), "USER@HOST"),
        (ssh("a", "me@"), "USER@HOST"),
        (ssh("a", &"b".repeat(256)), "at most 255"),
        (labelled(json!(["--x"])), "begin with a letter or digit"),
        (labelled(json!(vec!["a"; 11])), "at most 10"),
    ] {
        let told = refused(&body);
        assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{body}: {told}");
    }
}

#[test]
fn the_client_is_told_to_ask_nobody_and_to_lend_nothing_and_where_its_options_end() {
    let (program, args) = command_line(Kind::Ssh, "me@box", "echo hi");
    assert_eq!(program, "ssh");
    for option in [
        "-oBatchMode=yes",
        "-oStrictHostKeyChecking=yes",
        "-oForwardAgent=no",
        "-oClearAllForwardings=yes",
        "-oServerAliveInterval=5",
        "-oServerAliveCountMax=3",
    ] {
        assert!(args.iter().any(|arg| arg == option), "{option}: {args:?}");
    }
    assert_eq!(args[args.len() - 3..], ["--", "me@box", "echo hi"]);
    assert!(fault(Kind::Ssh, "me@box").is_none());
}

fn facts() -> Facts {
    Facts {
        version: "1".into(),
        program: "ab".repeat(32),
        kernel: "6.12".into(),
        arch: "x86_64".into(),
        home: "/there".into(),
        processors: 2,
        memory: 2000,
        available: 1000,
        no_room: None,
        git: Some("git version 2.39".into()),
    }
}

#[test]
fn runners_are_added_checked_listed_and_removed_and_outlive_a_restart() {
    let mut bench = Bench::new();
    let body = json!({"name": "box", "kind": "ssh", "destination": "me@box", "labels": ["big"]});
    let (status, told) = bench.ask("POST", "/api/runners", &body);
    assert_eq!(
        (status, &told["addedBy"], &told["checked"]),
        (201, &json!("operator"), &Value::Null),
        "{told}"
    );
    let (status, told) = bench.ask("POST", "/api/runners", &body);
    assert_eq!((status, &told["code"]), (409, &json!("runner_exists")), "{told}");
    assert_eq!(bench.audited("runner.add").len(), 1);
    let came = |found| {
        crate::core::Command::Runners(Command::Checked {
            name: "box".into(),
            took_ms: 7,
            copied: true,
            found,
        })
    };
    assert_eq!(bench.command(came(Ok(Box::new(facts())))).unwrap().status, 200);
    assert_eq!(bench.audited("runner.copy").len(), 1, "what is put on another machine stands in the log");
    let listed = bench.get("/api/runners")["runners"][0].clone();
    assert_eq!((&listed["labels"], &listed["checked"]["facts"]["memory"]), (&json!(["big"]), &json!(2000)));
    let stored: Stored =
        serde_json::from_slice(&encode(Document::Runners, &bench.state).unwrap().unwrap()).unwrap();
    assert_eq!(State::restore(stored).known, bench.state.runners.known);
    bench.command(came(Err("it is down".into())));
    let listed = bench.get("/api/runners")["runners"][0].clone();
    assert_eq!(
        (&listed["checked"]["error"], &listed["checked"]["facts"]),
        (&json!("it is down"), &Value::Null)
    );
    assert_eq!(bench.ask("DELETE", "/api/runners/box", &Value::Null).0, 200);
    assert_eq!(bench.ask("DELETE", "/api/runners/box", &Value::Null).0, 404);
    assert_eq!(bench.command(came(Ok(Box::new(facts())))).unwrap().status, 404, "it was removed meanwhile");
}

#[test]
fn limits_runners_are_bounded() {
    let mut bench = Bench::new();
    let body = |n: usize| json!({"name": format!("r{n}"), "kind": "ssh", "destination": "b"});
    for n in 0..MAX_RUNNERS {
        assert_eq!(bench.ask("POST", "/api/runners", &body(n)).0, 201);
    }
    let (status, told) = bench.ask("POST", "/api/runners", &body(MAX_RUNNERS));
    assert_eq!((status, &told["code"]), (409, &json!("too_many_runners")));
}
