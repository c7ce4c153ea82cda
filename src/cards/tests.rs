use super::{diff, in_words, parameters, proposed};
use crate::approvals::{self, Action, NewApproval};
use crate::testing::Bench;
use serde_json::{Value, json};

#[test]
fn parameters_are_told_in_words() {
    let rows = parameters(&json!({
        "filePath": "a.txt", "new_string": "x", "force": true, "labels": ["bug", "ui"],
        "to": [{"name": "Ada", "id": 1}], "when": null,
    }));
    let told: Vec<(&str, &str)> = rows.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    for row in [
        ("file path", "a.txt"),
        ("new string", "x"),
        ("force", "yes"),
        ("labels", "bug, ui"),
        ("to 1 name", "Ada"),
        ("to 1 id", "1"),
        ("when", "nothing"),
    ] {
        assert!(told.contains(&row), "{row:?} of {told:?}");
    }
    assert_eq!(in_words("HTTPCode"), "HTTPCode");
    let many = json!((0..200).map(|n| (format!("p{n}"), json!(n))).collect::<serde_json::Map<_, _>>());
    assert_eq!(parameters(&many).len(), super::MAX_PARAMETERS);
}

#[test]
fn a_diff_has_what_differs_with_the_lines_around() {
    let old = "a\nb\nc\nd\ne\nf\ng\nh\n";
    let new = "a\nb\nc\nd\nE\nf\ng\nh\n";
    let patch = diff("x.txt", old, new).expect("they differ");
    let expected = "diff --git a/x.txt b/x.txt\n--- a/x.txt\n+++ b/x.txt\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n";
    assert_eq!(patch, expected);
    let made = diff("x.txt", "", "one\ntwo\n").expect("it is new");
    assert!(made.contains("@@ -0,0 +1,2 @@\n+one\n+two\n"), "{made}");
    assert_eq!(diff("x.txt", old, old), None);
    let long = "line\n".repeat(super::MAX_CHANGE_LINES + 5);
    assert!(diff("x.txt", "", &long).is_some_and(|patch| patch.ends_with("\\ 5 more lines\n")));
}

#[test]
fn what_a_call_would_write_is_read_from_its_arguments() {
    let now = Some("one\ntwo\none\n");
    let of = |input: Value| proposed(&input, now).map(|(_, after)| after);
    assert_eq!(of(json!({"content": "new\n"})).as_deref(), Some("new\n"));
    assert_eq!(of(json!({"old_string": "one", "new_string": "1"})).as_deref(), Some("1\ntwo\none\n"));
    let all = json!({"old_string": "one", "new_string": "1", "replace_all": true});
    assert_eq!(of(all).as_deref(), Some("1\ntwo\n1\n"));
    let edits = json!({"edits": [
        {"old_string": "one", "new_string": "1"}, {"old_string": "two", "new_string": "2"},
    ]});
    assert_eq!(of(edits).as_deref(), Some("1\n2\none\n"));
    let gone = proposed(&json!({"old_string": "gone", "new_string": "x"}), now);
    assert_eq!(gone, Some(("gone".into(), "x".into())), "the pieces, where the file is another one");
    assert_eq!(of(json!({"command": "ls"})), None);
}

#[test]
fn a_card_tells_owner_scope_task_and_what_was_decided_before() {
    let mut bench = Bench::in_project();
    bench.spawn(&json!({"role": "dev", "name": "owner", "scope": ["web/**"], "prompt": "own it"}));
    let a = bench.spawn(&json!({"role": "dev", "name": "a", "scope": ["api/**"], "prompt": "mend it"}));
    let ask = |bench: &mut Bench, path: &str| {
        let action = Action::scope_violation(path, None, false);
        let new = NewApproval { agent: Some(a), action };
        bench.with(|all, cx| approvals::request(all, cx, new)).expect("there is room").0
    };
    let first = ask(&mut bench, "web/x.js");
    let body = json!({"id": first.to_string(), "decision": "reject", "reason": "use api/"});
    bench.post("/api/approvals", &body);
    ask(&mut bench, "web/y.js");
    let again = ask(&mut bench, "web/x.js");
    let approval = bench.state.approvals.find(&again.to_string()).expect("asked").clone();
    let card = super::told(&bench.state, &approval);
    assert_eq!(card["kind"], "it wants to write a file outside of its scope");
    assert_eq!((&card["owner"]["name"], &card["owner"]["scope"]), (&json!("owner"), &json!(["web/**"])));
    assert_eq!((&card["scope"], &card["task"]), (&json!(["api/**"]), &json!("mend it")));
    let before = card["before"].as_array().cloned().unwrap_or_default();
    assert_eq!(before.len(), 1, "{before:?}");
    assert_eq!((&before[0]["status"], &before[0]["reason"]), (&json!("rejected"), &json!("use api/")));
    assert_eq!(card["mayRule"]["exactly"]["allow"], true);
}
