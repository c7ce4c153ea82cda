//! Finding words in the logs of live and ended agents, over HTTP and with `svc search`.

use crate::support::daemon::Daemon;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::process::{Command, Output};

fn svc(daemon: &Daemon, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).arg("--project").arg(&daemon.project).env_remove("SVC_AGENT_ID").output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn plays(daemon: &Daemon, name: &str, steps: &Value) -> String {
    let folder = daemon.project.join(".svc/rehearsals");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.json")), json!({"steps": steps}).to_string()).unwrap();
    daemon.spawn(name)
}

#[test]
fn words_are_found_with_their_place_in_the_logs_of_live_and_ended_agents() {
    let daemon = Daemon::start();
    let ended = plays(
        &daemon,
        "ended",
        &json!([
            {"say": "The ferry is called Nordstern"},
            {"write": {"path": "docs/ferry.md", "text": "The ferry sails at eight.\n"}},
        ]),
    );
    daemon.wait_state(&ended, &["completed"]);
    let live = plays(
        &daemon,
        "live",
        &json!([{"say": "No ferry on Sundays; ferries are slow"}, {"ask": "Is it so?"}]),
    );
    let hits = |query: &str| daemon.get(&format!("/api/search?{query}"))["hits"].as_array().unwrap().clone();
    wait_for("what the live one says", || (!hits("q=sundays").is_empty()).then_some(()));
    let all = hits("q=FERRY");
    let texts: Vec<&str> = all.iter().map(|hit| hit["text"].as_str().unwrap()).collect();
    assert!(texts[0].starts_with("No ferry on Sundays"), "the newest first: {texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("The ferry sails at eight.")),
        "what was written: {texts:?}"
    );
    let first = &all[0];
    assert_eq!((&first["agentId"], &first["type"]), (&json!(live), &json!("text")));
    let n = first["n"].as_u64().unwrap();
    let entries = daemon.get(&format!("/api/agents/{live}/log?since={}", n - 1));
    assert_eq!(entries["entries"][0]["text"], "No ferry on Sundays; ferries are slow", "it stands there");
    assert!(
        hits("q=ferry&in=tool")
            .iter()
            .all(|hit| hit["type"] == "tool-started" || hit["type"] == "tool-ended")
    );
    assert!(!hits("q=ferry&in=tool").is_empty());
    assert_eq!(hits(&format!("q=nordstern+ferry&agent={ended}")).len(), 1);
    assert!(hits(&format!("q=nordstern&agent={live}")).is_empty());
    assert!(hits("q=%22ferry+the%22").is_empty() && hits("q=ferr").is_empty());
    assert!(hits("q=ferry&since=2999-01-01T00:00:00Z").is_empty());
    assert_eq!(daemon.get("/api/search?q=ferry&limit=1")["more"], true);

    let text = said(&svc(&daemon, &["search", "nordstern"]));
    assert!(text.contains("The ferry is called Nordstern") && text.lines().count() == 1, "{text}");
    let text = said(&svc(&daemon, &["search", "ferry", "--in", "text", "--since", "1h", "--limit", "1"]));
    assert!(text.contains("No ferry on Sundays") && text.contains("there are more"), "{text}");
    assert!(said(&svc(&daemon, &["search", "zeppelin"])).starts_with("no entry has all of these words"));
    for wrong in ["q=", "q=%2D%3E", "q=a&in=files", "q=a&since=soon", "q=a&limit=0", "q=a&limit=51"] {
        let (status, problem) = daemon.send("GET", &format!("/api/search?{wrong}"), &Value::Null);
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
    assert_eq!(daemon.send("GET", "/api/search?q=a&agent=nobody", &Value::Null).0, 404);
    assert_eq!(svc(&daemon, &["search", "a", "--since", "soon"]).status.code(), Some(2));
}
