//! Finding words in the logs of live and ended agents, over HTTP and with `svc search`.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

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

/// Sessions as Claude Code, Codex and Gemini CLI keep them: one of each in this project, one elsewhere.
fn sessions_of_a_person(home: &Folder, project: &Path) {
    let lines = |lines: &[Value]| {
        lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect::<String>()
    };
    let folder = project.to_str().unwrap();
    let plain = |path: &str| path.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let claude = |cwd: &str, id: &str| {
        let line = |kind: &str, at: &str, content: Value| {
            json!({"type": kind, "sessionId": id, "cwd": cwd, "timestamp": at, "isSidechain": false,
                "message": {"id": format!("m{at}"), "role": kind, "model": "m", "content": content}})
        };
        let call = json!([{"type": "tool_use", "id": "t", "name": "Write",
            "input": {"file_path": "quay.md", "content": "The ferry sails at eight."}}]);
        let text = lines(&[
            line("user", "2026-11-23T19:30:01Z", json!("When does the ferry sail?")),
            line("assistant", "2026-11-23T19:30:02Z", call),
        ]);
        home.write(&format!(".claude/projects/{}/{id}.jsonl", plain(cwd)), &text);
    };
    claude(folder, "0199f3c2-0000-4000-8000-000000000001");
    claude("/elsewhere", "0199f3c2-0000-4000-8000-000000000002");
    let event = |at: &str, payload: Value| json!({"timestamp": at, "type": "event_msg", "payload": payload});
    let said = json!({"type": "UserMessage", "content": [{"type": "text", "text": "Paint the ferry"}]});
    let ran = json!({"type": "CommandExecution", "id": "c", "command": ["bash", "-lc", "paint"], "status": "completed",
        "aggregated_output": "the ferry is wet"});
    let codex = lines(&[
        json!({"type": "session_meta", "payload": {"id": "01a2", "cwd": folder, "source": "cli"}}),
        event("2026-11-23T20:00:00Z", json!({"type": "task_started"})),
        event("2026-11-23T20:00:01Z", json!({"type": "item_completed", "item": said})),
        event("2026-11-23T20:00:02Z", json!({"type": "item_completed", "item": ran})),
    ]);
    home.write(".codex/sessions/2026/11/23/rollout-2026-11-23T20-00-00-01a2.jsonl", &codex);
    let gemini = lines(&[
        json!({"sessionId": "4c88885a", "startTime": "2026-11-23T18:00:00Z", "kind": "main"}),
        json!({"id": "u1", "timestamp": "2026-11-23T18:00:01Z", "type": "user", "content": [{"text": "Name the ferry"}]}),
        json!({"id": "m1", "timestamp": "2026-11-23T18:00:02Z", "type": "gemini", "content": "Ferry Nordstern it is."}),
    ]);
    home.write(".gemini/tmp/shop/chats/session-4c88885a.jsonl", &gemini);
    home.write(".gemini/tmp/shop/.project_root", folder);
}

#[test]
fn words_are_found_in_sessions_that_a_person_had_without_the_daemon() {
    let (home, project) = (Folder::new("search-home"), Arc::new(Folder::new("search")));
    sessions_of_a_person(&home, project.path());
    let daemon = Daemon::start_in(project, &[("HOME", home.path().to_str().unwrap())]);
    let answer = |query: &str| daemon.get(&format!("/api/sessions/search?{query}"));
    let texts = |query: &str| -> Vec<String> {
        let hits = answer(query)["hits"].as_array().unwrap().clone();
        hits.iter()
            .map(|hit| format!("{} {}", hit["provider"].as_str().unwrap(), hit["text"].as_str().unwrap()))
            .collect()
    };
    let wanted = [
        "codex the ferry is wet",
        "codex Paint the ferry",
        "claude-code Write The ferry sails at eight. quay.md",
        "claude-code When does the ferry sail?",
        "gemini Ferry Nordstern it is.",
        "gemini Name the ferry",
    ];
    assert_eq!(texts("q=ferry"), wanted, "of this project, newest first: {:#}", answer("q=ferry"));
    assert_eq!(texts("q=ferry&limit=2"), wanted[..2]);
    assert_eq!(
        (&answer("q=ferry&limit=2")["more"], &answer("q=ferry&limit=6")["more"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(texts("q=FERRY&in=tool"), [wanted[0], wanted[2]]);
    assert_eq!(texts("q=ferry&since=2026-11-23T19:30:02Z"), wanted[..3]);
    assert_eq!(texts("q=ferry&provider=gemini"), wanted[4..]);
    assert_eq!(texts("q=%22ferry+sails%22"), [wanted[2]]);
    assert!(texts("q=ferries").is_empty() && texts("q=zeppelin").is_empty());
    for wrong in ["q=", "q=ferry&provider=nobody", "q=ferry&in=files", "q=ferry&limit=0"] {
        let (status, problem) = daemon.send("GET", &format!("/api/sessions/search?{wrong}"), &Value::Null);
        assert_eq!(status, 400, "{wrong}: {problem}");
    }

    let found = svc(&daemon, &["search", "--outside", "nordstern"]);
    let lines = "2026-11-23T18:00 gemini 4c88885a  Ferry Nordstern it is.\ngo on there: svc adopt 4c88885a\n";
    assert_eq!(said(&found), lines, "{found:?}");
    let json = said(&svc(&daemon, &["search", "--outside", "nordstern", "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["hits"][0]["sessionId"], &json["notes"]), (&json!("4c88885a"), &json!([])));
    assert!(
        said(&svc(&daemon, &["search", "--outside", "zeppelin"]))
            .starts_with("no entry of a session of yours")
    );
    for wrong in [&["search", "a", "--outside", "--agent", "b"][..], &["search", "a", "--provider", "codex"]]
    {
        assert_eq!(svc(&daemon, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// What the record of a session in this folder begins with, as Codex writes it.
fn codex_record(folder: &Path, id: usize) -> String {
    let meta = json!({"type": "session_meta", "payload": {"id": format!("{id:08}"), "cwd": folder, "source": "cli"}});
    let said = json!({"type": "UserMessage", "content": [{"type": "text", "text": format!("ferry {id}")}]});
    let payload = json!({"type": "item_completed", "item": said});
    let line = json!({"timestamp": "2026-11-23T20:00:01Z", "type": "event_msg", "payload": payload});
    format!("{meta}\n{line}\n")
}

#[test]
fn a_search_outside_says_what_it_did_not_look_at_and_passes_over_what_is_no_record() {
    const OPENED: usize = 1_000;
    let (home, project) = (Folder::new("search-many"), Arc::new(Folder::new("search-bounds")));
    let at = |id: usize| format!(".codex/sessions/2026/11/23/rollout-2026-11-23T20-00-00-{id:08}.jsonl");
    for id in 0..OPENED {
        home.write(&at(id), &codex_record(project.path(), id));
    }
    let daemon = Daemon::start_in(Arc::clone(&project), &[("HOME", home.path().to_str().unwrap())]);
    let answer = |query: &str| daemon.get(&format!("/api/sessions/search?{query}"));
    let all = answer("q=ferry&limit=50");
    assert_eq!((all["hits"].as_array().unwrap().len(), &all["more"]), (50, &json!(true)));
    assert_eq!((&all["notes"], &answer("q=zeppelin")["notes"]), (&json!([]), &json!([])));
    home.write(&at(OPENED), &codex_record(project.path(), OPENED));
    assert_eq!(answer("q=zeppelin")["notes"], json!(["older sessions of Codex were not looked at"]));
    let shown = said(&svc(&daemon, &["search", "--outside", "zeppelin"]));
    assert!(shown.ends_with("(older sessions of Codex were not looked at)\n"), "{shown}");

    // A link may lead anywhere, and what is no JSON may be anything.
    let (linked, broken) = (at(OPENED + 1), at(OPENED + 2));
    let elsewhere = Folder::new("search-elsewhere");
    elsewhere.write("record.jsonl", &codex_record(project.path(), 7).replace("ferry", "lighthouse"));
    std::os::unix::fs::symlink(elsewhere.path().join("record.jsonl"), home.path().join(linked)).unwrap();
    home.write(&broken, "lighthouse\n{\"lighthouse\": \n");
    assert_eq!(answer("q=lighthouse")["hits"], json!([]));
}
