//! The built program against a daemon that speaks the documented shapes.

mod fake;
mod install;

use fake::{Ended, Fake, Folder, VERSION, agent, command, finish, svc};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

fn two() -> Vec<Value> {
    vec![agent("3fa90001", "backend-1", "running"), agent("3fb90002", "backend-2", "crashed")]
}

fn entry(n: u64, kind: &str, more: &Value) -> Value {
    let mut entry = json!({"n": n, "ts": "2026-01-01T00:00:00.000Z", "agentId": "3fa90001", "type": kind});
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

fn failed(ended: &Ended, code: i32, words: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{ended:?}");
    assert!(ended.stderr.starts_with("svc: ") && ended.stderr.contains(words), "{words:?} in {ended:?}");
}

#[test]
fn help_fits_one_screen_and_names_every_command() {
    let folder = Folder::new();
    let overview = svc(&folder.0, &["--help"]);
    let lines = overview.stdout.lines().count();
    assert!(overview.code == 0 && (15..24).contains(&lines), "{lines} lines, and the prompt takes one");
    let whole = svc(&folder.0, &["help", "--all"]);
    for text in [&overview.stdout, &whole.stdout] {
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("0 success, 1 the operation failed, 2 wrong usage"));
    }
    assert_eq!(svc(&folder.0, &["help"]).stdout, overview.stdout);
    assert_eq!(svc(&folder.0, &[]).stdout, overview.stdout);
    let list = svc(&folder.0, &["help", "--json"]).json();
    let commands = list["commands"].as_array().unwrap();
    assert!(commands.len() >= 20);
    let headlines = whole.stdout.split("\n\n").skip(1).filter_map(|part| part.lines().next());
    let groups: Vec<&str> = headlines.filter(|line| line.chars().all(char::is_alphabetic)).collect();
    assert!(groups.len() >= 6, "{groups:?}");
    for group in groups {
        assert!(overview.stdout.contains(&format!("\n  {group} ")), "{group}");
    }
    assert!(overview.stdout.contains("'svc help --all'"));
    for command in commands {
        let name = command["name"].as_str().unwrap();
        assert!(whole.stdout.contains(&format!("\n  {name}")), "{name}");
        let one = svc(&folder.0, &["help", name]);
        assert!(one.code == 0 && one.stdout.contains(command["usage"].as_str().unwrap()), "{one:?}");
        assert_eq!(svc(&folder.0, &[name, "--help"]).stdout, one.stdout);
    }
}

#[test]
fn version_and_completions_need_no_daemon() {
    let folder = Folder::new();
    for args in [&["version"][..], &["--version"], &["-V"]] {
        assert_eq!(svc(&folder.0, args).stdout, format!("svc {VERSION}\n"));
    }
    assert_eq!(svc(&folder.0, &["version", "--json"]).json(), json!({"version": VERSION}));
    for shell in ["bash", "zsh", "fish"] {
        let script = svc(&folder.0, &["completions", shell]);
        assert!(script.code == 0 && script.stdout.contains("instruct"), "{script:?}");
    }
    failed(&svc(&folder.0, &["completions", "tcsh"]), 2, "bash, zsh and fish");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let fake = Fake::new(two());
    for (args, words) in [
        (&["spwan"][..], "did you mean 'spawn'?"),
        (&["agents", "--nonsense"], "see 'svc help agents'"),
        (&["logs"], "usage: svc logs TARGET"),
        (&["logs", "backend-1", "--tail", "-1"], "--tail is a number"),
        (&["instruct", "backend-1", "x", "--now", "--idle"], "give one of"),
        (&["instruct", "backend-1", " "], "is empty"),
        (&["wait", "--timeout", "soon"], "--timeout is like"),
        (&["kill"], "either agents or --all"),
        (&["kill", "--all", "backend-1"], "either agents or --all"),
        (&["config", "put"], "svc config get"),
        (&["config", "set", "a..b", "1"], "a key is like"),
        (&["start", "--port", "70000"], "--port is a number"),
        (&["spawn", "x", "--permission", "all"], "auto, full"),
        (&["status", "--url", "localhost"], "must look like"),
    ] {
        failed(&fake.svc(args), 2, words);
    }
}

#[test]
fn without_a_daemon_the_way_to_one_is_told() {
    let folder = Folder::new();
    failed(&svc(&folder.0, &["agents"]), 1, "is in no project");
    folder.write(".svc/config.json", "{}");
    failed(&svc(&folder.0, &["agents"]), 1, "start one with 'svc start");
    folder.write(".svc/daemon.port", "none");
    failed(&svc(&folder.0, &["agents"]), 1, "holds no port");
    failed(&svc(&folder.0, &["--project", "nowhere", "agents"]), 1, "there is no folder");
}

#[test]
fn a_stale_port_file_is_told_as_such() {
    let folder = Folder::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    folder.write(".svc/daemon.port", &port.to_string());
    let ended = svc(&folder.0, &["agents"]);
    failed(&ended, 1, "is stale");
    assert!(ended.stderr.contains("svc start") && ended.stderr.contains("daemon.port"), "{ended:?}");
    let url = format!("http://127.0.0.1:{port}");
    failed(&svc(&folder.0, &["agents", "--url", &url]), 1, "which --url names");
}

#[test]
fn the_daemon_is_found_from_below_by_option_and_by_environment() {
    let fake = Fake::new(two());
    fake.folder.write("a/b/c.txt", "");
    let ids = "3fa90001\n3fb90002\n";
    assert_eq!(svc(&fake.folder.0.join("a/b"), &["agents", "-q"]).stdout, ids);
    let elsewhere = Folder::new();
    let project = fake.folder.0.to_str().unwrap();
    assert_eq!(svc(&elsewhere.0, &["--project", project, "agents", "-q"]).stdout, ids);
    assert_eq!(svc(&elsewhere.0, &["agents", "-q", "--url", &fake.url]).stdout, ids);
    let mut inside = command(&elsewhere.0, &["ls", "-q"]);
    inside.env("SVC_DAEMON_URL", &fake.url).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(finish(inside.spawn().unwrap()).stdout, ids);
}

#[test]
fn decisions_1_the_operator_token_is_sent_as_bearer() {
    let fake = Fake::new(two());
    fake.folder.write(".svc/token", "s3cret\n");
    let shown = || {
        fake.ok(&["agents"]);
        let headers = std::mem::take(&mut fake.state.lock().unwrap().headers);
        headers.into_iter().map(|line| line.to_lowercase()).find(|line| line.starts_with("authorization"))
    };
    assert_eq!(shown(), None, "whoever listens there now has not the project's lock");
    fake.folder.write(".svc/daemon.lock", "");
    let lock = std::fs::File::open(fake.folder.0.join(".svc/daemon.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(shown().as_deref(), Some("authorization: bearer s3cret"));
}

#[test]
fn agents_are_listed_as_table_ids_names_and_json() {
    let fake = Fake::new(two());
    let table = fake.ok(&["agents"]).stdout;
    let lines: Vec<&str> = table.lines().collect();
    let header = ["NAME", "ID", "STATUS", "PROVIDER", "MODEL", "TOKENS", "CTX", "AGE", "DOING"];
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), header);
    assert!(
        lines[1].contains("running") && lines[1].contains("12.4k  42%") && lines[1].ends_with("src/a.rs")
    );
    assert!(lines[2].ends_with("exit code 3") && !table.contains('\x1b'), "{table}");
    assert_eq!(fake.ok(&["ls", "--names"]).stdout, "backend-1\nbackend-2\n");
    assert_eq!(fake.ok(&["ls", "--live", "-q"]).stdout, "3fa90001\n");
    assert_eq!(fake.ok(&["agents", "--json"]).json(), Value::Array(two()));
    let ended = Fake::new(vec![agent("3fa90002", "backend-2", "crashed")]);
    let none = ended.ok(&["agents", "--live"]).stdout;
    assert_eq!(none, "none is live; 'svc agents' lists 1 that have ended\n");
    let mut narrow = command(&fake.folder.0, &["agents"]);
    narrow.env("COLUMNS", "60").stdout(Stdio::piped()).stderr(Stdio::piped());
    let narrow = finish(narrow.spawn().unwrap()).stdout;
    assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(!narrow.contains("PROVIDER") && narrow.contains("Write src/a.rs"), "{narrow}");
}

#[test]
fn targets_are_ids_names_and_beginnings_of_them() {
    let fake = Fake::new(two());
    for target in ["3fa90001", "3fa", "backend-1"] {
        let answer = fake.ok(&["rotate", target, "--json"]).json();
        assert_eq!(answer["old"], "3fa90001", "{target}");
    }
    let ambiguous = fake.svc(&["rotate", "back"]);
    failed(&ambiguous, 1, "backend-1 (3fa90001, running), backend-2 (3fb90002, crashed)");
    failed(&fake.svc(&["rotate", "front"]), 1, "there is no agent 'front'; there are backend-1");
    failed(&fake.svc(&["rotate", "deadbeef"]), 1, "there is no agent 'deadbeef'");
    failed(&Fake::new(vec![]).svc(&["rotate", "x"]), 1, "none exists yet");
}

#[test]
fn decisions_2_spawn_sends_every_field_under_its_name() {
    let fake = Fake::new(vec![]);
    let line = [
        "spawn",
        "backend",
        "build",
        "it",
        "--provider",
        "acp",
        "--model",
        "m",
        "--name",
        "n",
        "--scope",
        "a/**",
        "--scope",
        "b",
        "--dir",
        "web",
        "--permission",
        "full",
        "--effort",
        "high",
        "--team",
        "web",
        "--isolation",
        "worktree",
        "--schedule",
        "0 9 * * *",
        "--skill",
        "s",
        "--integration",
        "i",
        "--command",
        "qwen '--a b'",
    ];
    let told = fake.ok(&line).stdout;
    assert!(
        told.contains("started backend-1 (00a00000)") && told.contains("svc logs -f backend-1"),
        "{told}"
    );
    let expected = json!({
        "role": "backend", "prompt": "build it", "provider": "acp", "model": "m", "name": "n",
        "scope": ["a/**", "b"], "workingDir": "web", "permission": "full", "effort": "high",
        "teamId": "0000beef", "isolation": "worktree", "schedule": "0 9 * * *", "skills": ["s"],
        "integrations": ["i"], "command": ["qwen", "--a b"],
    });
    let mut sent = fake.sent("POST", "/api/agents");
    assert!(
        sent.as_object_mut().unwrap().remove("timezone").is_some(),
        "a schedule goes by this machine's zone"
    );
    assert_eq!(sent, expected);
    assert_eq!(fake.ok(&["spawn", "qa", "-q"]).stdout, "00a00001\n");
    assert_eq!(fake.sent("POST", "/api/agents"), json!({"role": "qa"}));
    assert_eq!(fake.ok(&["spawn", "qa", "--json"]).json()["name"], "qa-1");
    failed(&fake.svc(&["spawn", "full"]), 1, "svc: 10 agents live already");
    failed(&fake.svc(&["spawn", "x", "--team", "none"]), 1, "there is no team 'none'; there are web");
}

#[test]
fn a_prompt_comes_from_standard_input_with_a_dash() {
    let fake = Fake::new(vec![]);
    let mut call = command(&fake.folder.0, &["spawn", "backend", "-"]);
    let mut child = call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"--do this\nand that\n").unwrap();
    assert_eq!(finish(child).code, 0);
    assert_eq!(fake.sent("POST", "/api/agents")["prompt"], "--do this\nand that");
}

#[test]
fn spawn_can_wait_and_follow() {
    let fake = Fake::new(vec![]);
    fake.state.lock().unwrap().end_after = Some((3, "crashed"));
    let ended = fake.svc(&["spawn", "backend", "--wait"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("backend-1 crashed after 1m") && ended.stdout.contains("exit code 3"));
    let mut state = fake.state.lock().unwrap();
    state.end_after = Some((3, "completed"));
    state.log = vec![entry(1, "text", &json!({"text": "hello"}))];
    drop(state);
    let ended = fake.svc(&["spawn", "qa", "--follow"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.starts_with("hello\n") && ended.stdout.contains("qa-1 completed"), "{ended:?}");
}

#[test]
fn wait_ends_with_the_agents_and_tells_by_its_exit_code() {
    let fake = Fake::new(vec![agent("3fa90001", "backend-1", "running")]);
    fake.state.lock().unwrap().end_after = Some((4, "completed"));
    let ended = fake.ok(&["wait"]);
    assert!(ended.stdout.contains("backend-1 completed after 1m, 12.4k tokens"), "{ended:?}");
    let fake = Fake::new(two());
    let ended = fake.svc(&["wait", "backend-2", "--json"]);
    assert_eq!((ended.code, ended.json()[0]["state"].as_str()), (1, Some("crashed")));
    failed(&fake.svc(&["wait", "backend-1", "--timeout", "300ms"]), 1, "still running: backend-1");
    failed(&fake.svc(&["wait", "nobody"]), 1, "no agent 'nobody'");
    let gone =
        Fake::new(vec![agent("3fa90001", "one-1", "crashed"), agent("3fa90002", "two-1", "completed")]);
    let ended = gone.svc(&["wait"]);
    assert_eq!(ended.code, 1, "one had crashed before anybody waited: {ended:?}");
    assert!(ended.stdout.contains("one-1 crashed") && !ended.stdout.contains("two-1"), "{ended:?}");
    let ended = Fake::new(vec![agent("3fa90002", "two-1", "completed")]).svc(&["wait"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, "svc: no agent is running\n"));
    let ended = Fake::new(vec![]).svc(&["wait"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, "svc: no agent is running\n"));
}

#[test]
fn wait_returns_for_a_decision_where_it_is_told_to_and_names_it_when_the_time_is_up() {
    let fake =
        Fake::new(vec![agent("3fa90001", "backend-1", "waiting"), agent("3fa90002", "docs-1", "running")]);
    let action = json!({"type": "tool_permission", "description": "use Bash"});
    fake.state.lock().unwrap().approvals = vec![json!({"id": "apr-11110000", "agentId": "3fa90001",
        "agentName": "backend-1", "status": "pending", "requestedAt": "2026-01-01T00:00:00.000Z", "action": action})];
    let told = fake.ok(&["wait", "--asked"]).stdout;
    assert!(told.contains("apr-11110000") && told.contains("use Bash"), "{told}");
    assert_eq!(fake.ok(&["wait", "--asked", "-q"]).stdout, "apr-11110000\n");
    let asked = fake.ok(&["wait", "--asked", "--json", "backend-1"]).json();
    assert_eq!(asked["pending"][0]["id"], "apr-11110000");
    let waits = "still running: docs-1; see 'svc agents'";
    failed(&fake.svc(&["wait", "docs-1", "--asked", "--timeout", "300ms"]), 1, waits);
    failed(&fake.svc(&["wait", "--timeout", "300ms"]), 1, "1 of their wishes wait for your decision");
}

#[test]
fn kill_ends_one_several_or_all() {
    let fake = Fake::new(two());
    assert_eq!(fake.ok(&["kill", "backend-1"]).stdout, "killed backend-1 (3fa90001)\n");
    assert!(fake.ok(&["kill", "backend-2"]).stdout.starts_with("removed backend-2"));
    assert_eq!(fake.ok(&["kill", "--all", "-q"]).stdout, "3fa90001\n");
    assert_eq!(
        fake.ok(&["kill", "3fa", "--json"]).json(),
        json!({"ok": true, "id": "3fa90001", "status": "killed"})
    );
    assert_eq!(fake.ok(&["kill", "3fa", "3fb", "--json"]).json().as_array().map(Vec::len), Some(2));
    failed(&fake.svc(&["kill", "3fa", "nobody"]), 1, "no agent 'nobody'");
}

#[test]
fn agents_may_not_stop_their_daemon_nor_kill_all() {
    let fake = Fake::new(two());
    for args in [&["stop"][..], &["kill", "--all"]] {
        let mut call = command(&fake.folder.0, args);
        call.env("SVC_AGENT_ID", "3fa90001").stdout(Stdio::piped()).stderr(Stdio::piped());
        failed(&finish(call.spawn().unwrap()), 1, "agent 3fa90001 may not");
    }
    assert!(fake.state.lock().unwrap().requests.is_empty(), "nothing was asked of the daemon");
}

#[test]
fn logs_page_tail_and_print_json() {
    let fake = Fake::new(two());
    fake.state.lock().unwrap().log = vec![
        entry(1, "life", &json!({"text": "started"})),
        entry(
            2,
            "tool-started",
            &json!({"id": "1", "name": "Write", "input": {}, "path": "a.rs", "writes": true}),
        ),
        entry(3, "usage", &json!({"delta": {}})),
        entry(4, "text", &json!({"text": "done \u{1b}[2J"})),
        entry(5, "turn-ended", &json!({"text": "", "isError": true, "error": "no credit"})),
    ];
    let all = "- started\n* Write a.rs\ndone \\u{1b}[2J\n- turn failed: no credit\n";
    assert_eq!(fake.ok(&["logs", "backend-1", "--since", "0s"]).stdout.lines().count(), 4);
    assert_eq!(fake.ok(&["logs", "backend-1", "--tail", "1"]).stdout, "- turn failed: no credit\n");
    let stamped = fake.ok(&["logs", "backend-1", "--tail", "1", "-t"]).stdout;
    assert!(stamped.starts_with("2026-01-01T00:00:00.000Z - turn"), "{stamped}");
    let document = fake.ok(&["logs", "backend-1", "--since", "1h", "--json"]).json();
    assert_eq!((document["entries"].as_array().map(Vec::len), &document["next"]), (Some(5), &json!(5)));
    fake.state.lock().unwrap().end_after = Some((2, "completed"));
    assert_eq!(fake.ok(&["logs", "-f", "backend-1"]).stdout, all);
    let lines = fake.ok(&["logs", "-f", "backend-1", "--json"]).stdout;
    let numbers: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["n"].clone()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

#[test]
fn agents_are_instructed_queried_rotated_and_resumed() {
    let fake = Fake::new(two());
    let told = fake.ok(&["instruct", "backend-1", "use", "tabs"]).stdout;
    assert!(told.contains("with its next rotation") && told.contains("2 are queued"), "{told}");
    let path = "/api/agents/3fa90001/instruct";
    assert_eq!(fake.sent("POST", path), json!({"message": "use tabs", "deliver": "auto"}));
    fake.ok(&["instruct", "backend-1", "--rotation", "later"]);
    assert_eq!(fake.sent("POST", path), json!({"message": "later", "deliver": "rotation"}));
    fake.ok(&["instruct", "backend-1", "--now", "--", "-x"]);
    assert_eq!(fake.sent("POST", path), json!({"message": "-x", "deliver": "now"}));
    assert_eq!(fake.ok(&["query", "backend-1", "all", "good?"]).stdout, "All \\u{1b}[31mgood\n");
    assert_eq!(fake.sent("POST", "/api/agents/3fa90001/query"), json!({"question": "all good?"}));
    assert_eq!(fake.ok(&["rotate", "backend-1"]).stdout, "rotated backend-1: 3fa90001 is now 0000abcd\n");
    failed(&fake.svc(&["rotate", "backend-2"]), 1, "svc: it has ended; resume it");
    assert!(fake.ok(&["resume", "backend-2", "go", "on"]).stdout.starts_with("resumed backend-2 (3fb90002)"));
    assert_eq!(fake.sent("POST", "/api/agents/3fb90002/resume"), json!({"message": "go on"}));
    assert_eq!(fake.ok(&["resume", "backend-2", "-q"]).stdout, "3fb90002\n");
}

#[test]
fn status_providers_and_configuration_are_shown() {
    let fake = Fake::new(two());
    let status = fake.ok(&["status"]).stdout;
    assert!(
        status.contains("up 3m") && status.contains("1 live, 2 in all") && status.contains("24.8k"),
        "{status}"
    );
    assert_eq!(fake.ok(&["status", "-q"]).stdout, format!("{}\n", fake.url));
    assert_eq!(fake.ok(&["status", "--json"]).json()["version"], VERSION);
    let providers = fake.ok(&["providers"]).stdout;
    assert!(providers.contains("planner builder") && providers.contains("get codex"), "{providers}");
    assert_eq!(fake.ok(&["providers", "-q"]).stdout, "script\n");
    assert_eq!(fake.ok(&["providers", "--json"]).json().as_array().map(Vec::len), Some(2));
    let config = fake.ok(&["config", "get"]).stdout;
    assert_eq!(config, "defaultModel = \"auto\"\nport = 31415\nsafety.dailyBudgetUsd = null\n");
    assert_eq!(fake.ok(&["config", "get", "defaultModel"]).stdout, "auto\n");
    assert_eq!(fake.ok(&["config", "get", "safety"]).stdout, "safety.dailyBudgetUsd = null\n");
    failed(&fake.svc(&["config", "get", "nope"]), 1, "there are defaultModel, port");
    let set = fake.ok(&["config", "set", "safety.dailyBudgetUsd", "5.5"]).stdout;
    assert_eq!(set, "safety.dailyBudgetUsd = 5.5\n");
    assert_eq!(fake.sent("PATCH", "/api/config"), json!({"safety": {"dailyBudgetUsd": 5.5}}));
    failed(&fake.svc(&["config", "set", "nonsense", "text"]), 1, "there is no setting nonsense");
}

#[test]
fn stop_returns_when_the_process_is_gone_and_the_lock_is_free() {
    let fake = Fake::new(vec![]);
    fake.folder.write(".svc/daemon.lock", "");
    let path = fake.folder.0.join(".svc/daemon.lock");
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    // It takes its time to end, as a daemon with agents does.
    let mut daemon = Command::new("sh");
    let child = daemon.args(["-c", "read line; sleep 0.5"]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    fake.state.lock().unwrap().process = Some((child, lock));
    assert_eq!(fake.ok(&["stop"]).stdout, "stopped\n");
    assert!(std::fs::File::open(&path).unwrap().try_lock().is_ok());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_start_in_the_background_that_cannot_succeed_says_why() {
    let fake = Fake::new(vec![]);
    failed(&fake.svc(&["start", "--background", "--port", "1"]), 1, "pid 1 at http://127.0.0.1:");
    let already = fake.ok(&["start", "--background"]);
    assert_eq!(already.stdout, format!("already runs at {} (pid 1)\n", fake.url));
    assert_eq!(fake.ok(&["start", "--json"]).json()["already"], true);
    let folder = Folder::new();
    folder.write(".svc", "a file where the state folder should be");
    failed(&svc(&folder.0, &["start", "--background"]), 1, ".svc cannot be written");
    failed(&svc(&folder.0, &["start", "--project", "nowhere"]), 1, "nowhere cannot be opened");
}

#[test]
fn open_prints_the_address_even_where_no_browser_is() {
    let fake = Fake::new(vec![]);
    let mut call = command(&fake.folder.0, &["open"]);
    call.env("PATH", &fake.folder.0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(call.spawn().unwrap());
    assert_eq!((ended.code, ended.stdout), (0, format!("{}/\n", fake.url)));
    assert!(ended.stderr.contains("open the address"), "{}", ended.stderr);
}

#[test]
fn doctor_tells_what_is_wrong_and_how_to_mend_it() {
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::new(vec![]);
    let mode = |bits| {
        let state = fake.folder.0.join(".svc");
        std::fs::set_permissions(state, std::fs::Permissions::from_mode(bits)).unwrap();
    };
    mode(0o700);
    let ended = fake.ok(&["doctor"]);
    assert!(ended.stdout.contains("warn  provider codex: not installed\n      get codex"), "{ended:?}");
    assert!(ended.stdout.contains("port file: ") && ended.stdout.contains("is stale"), "{ended:?}");
    mode(0o755);
    let ended = fake.svc(&["doctor", "--json"]);
    assert_eq!((ended.code, &ended.json()["ok"]), (1, &json!(false)));
    let checks = ended.json()["checks"].clone();
    let state = checks.as_array().unwrap().iter().find(|check| check["name"] == "state folder").unwrap();
    assert_eq!(state["status"], "fail");
    assert!(state["remedy"].as_str().unwrap().starts_with("chmod 700"), "{state}");
}

#[test]
fn rehearse_streams_the_team_and_sums_up() {
    let fake = Fake::new(vec![]);
    let mut state = fake.state.lock().unwrap();
    state.log = vec![
        entry(1, "text", &json!({"text": "at work"})),
        entry(
            2,
            "tool-started",
            &json!({"id": "1", "name": "Write", "input": {}, "path": "a.rs", "writes": true}),
        ),
        entry(3, "tool-ended", &json!({"id": "1", "error": false, "output": ""})),
    ];
    state.end_after = Some((4, "completed"));
    drop(state);
    let project = fake.folder.0.to_str().unwrap();
    let ended = fake.ok(&["rehearse", "--project", project]);
    let lines =
        ["planner-1  | at work", "builder-1  | * Write a.rs", "reviewer-1 | at work", "a.rs", "svc agents"];
    for line in lines {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
    assert_eq!(fake.sent("POST", "/api/agents")["model"], "reviewer");
    let requests = &fake.state.lock().unwrap().requests;
    assert!(requests.iter().all(|(_, path, _)| path != "/api/shutdown"), "it did not start this daemon");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_command_quietly() {
    let many = (0..5000).map(|n| agent(&format!("{n:08x}"), &format!("a-{n}"), "running")).collect();
    let fake = Fake::new(many);
    for args in [&["agents"][..], &["agents", "--json"]] {
        let mut call = command(&fake.folder.0, args);
        let mut child = call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        drop(stdout);
        let ended = finish(child);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn approvals_are_listed_and_decided_by_the_beginning_of_their_id() {
    let fake = Fake::new(two());
    assert_eq!(fake.ok(&["approvals"]).stdout, "nothing waits for you\n");
    let approval = |id: &str, title: &str| {
        json!({"id": id, "agentId": "3fa90001", "agentName": "backend-1", "status": "pending",
            "requestedAt": "2026-01-01T00:00:00.000Z",
            "action": {"type": "integration_exec", "description": "call create_issue of github",
                "params": {"title": title}}})
    };
    fake.state.lock().unwrap().approvals =
        vec![approval("apr-11110000", "a\u{1b}[31mb"), approval("apr-11220000", "c")];
    let listed = fake.ok(&["approvals"]).stdout;
    assert!(listed.contains("apr-11110000") && listed.contains("call create_issue of github"), "{listed}");
    assert!(!listed.contains('\u{1b}'), "{listed}");
    assert_eq!(fake.ok(&["approvals", "-q"]).stdout, "apr-11110000\napr-11220000\n");
    assert_eq!(fake.ok(&["approvals", "--json"]).json()["pending"].as_array().unwrap().len(), 2);
    failed(&fake.svc(&["approve", "11"]), 1, "fits apr-11110000, apr-11220000");
    let told = fake.ok(&["approve", "apr-111"]).stdout;
    assert!(told.starts_with("approved apr-11110000: backend-1 may call create_issue"), "{told}");
    let told = fake.ok(&["reject", "1122", "--reason", "not now"]).stdout;
    assert!(told.starts_with("rejected apr-11220000: backend-1 may not call"), "{told}");
    assert_eq!(fake.sent("POST", "/api/approvals/apr-11220000/reject"), json!({"reason": "not now"}));
    failed(&fake.svc(&["approve", "apr-99999999"]), 1, "no approval has the id");
    failed(&fake.svc(&["approve"]), 2, "usage: svc approve ID");
}

#[test]
fn tokens_tell_use_cost_savings_and_the_budget() {
    let fake = Fake::new(two());
    let told = fake.ok(&["tokens"]).stdout;
    for words in [
        "backend-1  3fa90001  m-1     12.4k  $1.25",
        "total    12.4k tokens, $1.25",
        "cache    75% of cached input",
        "saved    about 900 tokens: 700 by rotation (-300 to 1.7k, 1 not checked yet), 200 by resuming, 0 by",
        "cut off  about 500 tokens of output, unpriced, of interrupted turns",
        "svc      84 tokens, <$0.01",
        "today    $1.25 of $1.00, about $0.25 of turns that were cut off",
        "budget   nothing new starts",
    ] {
        assert!(told.contains(words), "{words:?} in\n{told}");
    }
    let models = fake.ok(&["tokens", "--by-model"]).stdout;
    assert!(models.contains("m-1     12.0k     $1.25\nm-2       400  unpriced"), "{models}");
    let teams = fake.ok(&["tokens", "--by-team"]).stdout;
    assert!(teams.contains("web   0000beef       2   12.4k  6.2k  $1.25"), "{teams}");
    assert_eq!(fake.ok(&["tokens", "-q"]).stdout, "12400\n");
    assert_eq!(fake.ok(&["tokens", "--json"]).json()["totalUsed"], 12_400);
    assert_eq!(fake.ok(&["tokens", "--by-team", "--json"]).json()["teams"][0]["teamName"], "web");
}

#[test]
fn rotations_tell_why_and_what_they_saved() {
    let fake = Fake::new(two());
    let told = fake.ok(&["rotations"]).stdout;
    let words = "backend-1  context_threshold  3fa90001  3fa90009";
    assert!(told.contains(words) && told.contains(" 150k ") && told.contains("9.0k"), "{told}");
    assert_eq!(fake.ok(&["rotations", "-q"]).stdout, "3fa90009\n");
    assert_eq!(fake.ok(&["rotations", "--json"]).json()["totalRotations"], 1);
}
