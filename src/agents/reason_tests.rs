//! Codes, words, and the state file.

use super::*;
use serde_json::json;

/// A reason with this code; the fields of all reasons are there.
fn of_code(code: &str) -> Reason {
    let words = json!({
        "code": code, "old": "00000001", "rotation": "full", "text": "words", "seconds": 120,
        "denied": if code == "turn-ended-with-refusals" { json!(["Bash"]) } else { json!(2) },
        "error": "oops", "approval": "apr-00000001", "action": "run it", "limit": "cost", "name": "a-1",
        "remedy": "log in", "exit": 3, "cause": null, "signal": 9, "pid": null, "used": 5, "ceiling": 4, "before": null,
        "runner": "box", "why": "gone", "to": "on box", "refused": null,
    });
    serde_json::from_value(words).unwrap_or_else(|error| panic!("{code}: {error}"))
}

#[test]
fn each_reason_has_one_code_that_stands_in_the_list_and_in_the_state_file() {
    // The refusal names all variants there are.
    let refusal = serde_json::from_value::<Reason>(json!({"code": "x"})).unwrap_err().to_string();
    let known: Vec<String> = Reason::CODES.iter().map(|code| format!("`{code}`")).collect();
    assert_eq!(refusal, format!("unknown variant `x`, expected one of {}", known.join(", ")));
    for &code in Reason::CODES {
        let reason = of_code(code);
        assert_eq!(reason.code(), code);
        assert_eq!(serde_json::to_value(&reason).unwrap()["code"], code);
        assert!(!reason.to_string().is_empty(), "{code}");
    }
}

#[test]
fn a_reason_and_its_remarks_come_back_from_the_state_file() {
    for &code in Reason::CODES {
        let mut reason: StatusReason = of_code(code).into();
        reason.remark(Remark::SessionGone);
        reason.remark(Remark::Undelivered { count: 2, name: "a-1".into() });
        let file = serde_json::to_value(&reason).unwrap();
        assert!(file["statusReason"].as_str().unwrap().ends_with(
            "; its session is gone, the next resume starts a new one; 2 instructions were not delivered, \
             svc resume a-1 delivers them"
        ));
        let read: StatusReason = serde_json::from_value(file).unwrap();
        assert_eq!((read.why(), read.to_string()), (reason.why(), reason.to_string()));
    }
}

#[test]
fn a_state_file_without_codes_loads_and_rules_know_what_they_ask_for() {
    let read = |words: &str| {
        let reason: StatusReason = serde_json::from_value(json!({"statusReason": words})).unwrap();
        assert_eq!(reason.to_string(), words);
        reason.code()
    };
    assert_eq!(read("replaced by its successor"), "replaced");
    assert_eq!(read("working"), "working");
    assert_eq!(read("signal 9 ended it; the daemon did not send it"), "foreign-signal");
    let awaits = "finished so far, and goes on after the decision: it waits for approval apr-1: x: y";
    assert_eq!(read(awaits), "finished-awaits-decision");
    assert_eq!(read("it exited with code 3: oops"), "other");
    assert_eq!(read("signal strength is low"), "other");
}

#[test]
fn a_cause_that_this_version_does_not_know_leaves_the_words() {
    let file = json!({"statusReason": "it dreams", "statusCause": {"code": "dreams"}});
    let read: StatusReason = serde_json::from_value(file).unwrap();
    assert_eq!((read.code(), read.to_string().as_str()), ("other", "it dreams"));
}
