//! What proves a person or an agent to the daemon: the person's token, the console's session, an agent's own
//! token; and what does not. The daemons here run as an ordinary user where root runs the tests. Root is then
//! somebody whom such a daemon cannot see, as a tunnel or another user's program is.

use super::callers::{ATTACKS, CHANGE, TOKEN, exchange, own_address, raw, spawn_running, told};
use crate::support::daemon::{Daemon, OPEN, as_user, is_root, new_user};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

const ROOMS: &str = "{}";

/// Whether this system can make rooms, without which the token is not out of the agents' reach.
fn has_rooms() -> bool {
    let tried = Command::new(env!("CARGO_BIN_EXE_svc")).args(["__cage", "--try"]).output().unwrap();
    if !tried.status.success() {
        eprintln!("SKIPPED, NO ROOMS HERE: {}", String::from_utf8_lossy(&tried.stderr));
    }
    tried.status.success()
}

/// Whether there is somebody whom the daemon cannot see.
fn has_unseen() -> bool {
    if !is_root() {
        eprintln!("SKIPPED: only root can call as another user than the daemon's");
    }
    is_root() && has_rooms()
}

fn daemon_of_user(settings: &str) -> Daemon {
    daemon_of(new_user(), settings)
}

fn daemon_of(user: u32, settings: &str) -> Daemon {
    let folder = Folder::new("proof");
    folder.write(".svc/config.json", settings);
    folder.write("attacks.py", &fs::read_to_string(ATTACKS).unwrap());
    let daemon = Daemon::start_as(user, Arc::new(folder), &[]);
    let token = token(&daemon);
    daemon.with_token(&token)
}

fn token(daemon: &Daemon) -> String {
    fs::read_to_string(daemon.project.join(".svc/token")).unwrap().trim().to_owned()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// What a change that only a person may make is answered, as `STATUS CODE`.
fn change(daemon: &Daemon, headers: &[&str]) -> String {
    let (status, body) = raw(daemon, "PATCH", "/api/config", headers, CHANGE);
    format!("{status} {}", body["code"].as_str().unwrap_or("-"))
}

const NOBODY: &str = "403 prove_yourself";
const AGENT: &str = "403 agent_may_not";

fn assert_unchanged(daemon: &Daemon) {
    assert_eq!(daemon.get("/api/config")["maxAgents"], 10);
    assert_eq!(daemon.get("/api/audit?event=config.patch")["entries"], json!([]));
}

/// The daemon's user.
fn owner(daemon: &Daemon) -> u32 {
    fs::metadata(daemon.project.join(".svc/token")).unwrap().uid()
}

/// Runs `svc` as the daemon's user in the project.
fn svc(daemon: &Daemon, words: &[&str]) -> Output {
    command(daemon, words).output().unwrap()
}

fn command(daemon: &Daemon, words: &[&str]) -> Command {
    let mut command = as_user(owner(daemon), daemon.project.join("bin/svc"));
    command.args(words).current_dir(&daemon.project).stdin(Stdio::null());
    for name in ["SVC_AGENT_ID", "SVC_DAEMON_URL", "SVC_OPERATOR_TOKEN"] {
        command.env_remove(name);
    }
    command.env("HOME", &daemon.project);
    command
}

#[test]
fn who_is_not_seen_is_a_person_by_the_token_and_by_nothing_that_resembles_it() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    let token = token(&daemon);
    let (status, body) = raw(&daemon, "PATCH", "/api/config", &[], CHANGE);
    assert_eq!((status, &body["code"], &body["tokenHelps"]), (403, &json!("prove_yourself"), &json!(true)));
    let words = body["error"].as_str().unwrap();
    assert!(words.contains("$(cat .svc/token)") && words.contains("svc proves it by itself"), "{words}");
    let twice = [bearer(&token), bearer(&token)];
    let page = "Origin: http://localhost:3000";
    for (why, headers) in [
        ("capitals", vec![bearer(&token.to_uppercase())]),
        ("a small b", vec![format!("Authorization: bearer {token}")]),
        ("no kind", vec![format!("Authorization: {token}")]),
        ("one more", vec![bearer(&format!("{token}0"))]),
        ("one less", vec![bearer(&token[1..])]),
        ("none", vec![bearer("")]),
        ("two", twice.to_vec()),
        ("another header", vec![format!("X-Authorization: Bearer {token}")]),
        ("a cookie", vec![format!("Cookie: token={token}")]),
        ("the console's header", vec![format!("Svc-Console: {token}")]),
        ("a page without it", vec![page.to_owned()]),
    ] {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        assert_eq!(change(&daemon, &headers), NOBODY, "{why}");
    }
    for path in [format!("/api/config?token={token}"), format!("/api/config?authorization=Bearer%20{token}")]
    {
        let (status, body) = raw(&daemon, "PATCH", &path, &[], CHANGE);
        assert_eq!((status, &body["code"]), (403, &json!("prove_yourself")), "in the query");
    }
    assert_unchanged(&daemon);
    assert_eq!(change(&daemon, &[&bearer(&token)]), "200 -");
    let audit = daemon.get("/api/audit?event=config.patch");
    assert_eq!(audit["entries"][0]["actor"], "operator");
}

#[test]
fn wrong_tokens_are_braked_and_shut_nobody_out() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    for n in 0..10 {
        assert_eq!(change(&daemon, &[&bearer("guess")]), NOBODY, "guess {n}");
    }
    assert_eq!(change(&daemon, &[&bearer("guess")]), "429 too_many_wrong_tokens");
    assert_unchanged(&daemon);
    assert_eq!(change(&daemon, &[&bearer(&token(&daemon))]), "200 -");
    assert!(!daemon.log().contains("guess"), "what was guessed is not written down");
}

#[test]
fn the_token_is_its_owners_alone_and_another_one_at_each_start() {
    let daemon = Daemon::start();
    let file = daemon.project.join(".svc/token");
    let first = token(&daemon);
    assert!(first.len() >= 32, "{first}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let id = spawn_running(&daemon, "teller", "printf %s \"$SVC_AGENT_TOKEN\" > own.tmp; mv own.tmp own");
    let own = told(&daemon, "own");
    assert!(own.contains(&id), "an agent has a token of its own: {own}");
    let document = daemon.get("/api/openapi.json");
    let paths = document["paths"].as_object().unwrap().iter();
    let gets = paths.filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path);
    let mut asked = 0;
    for path in gets.map(|path| path.replace("{id}", &id)) {
        let shown = daemon.send("GET", &path, &Value::Null).1.to_string();
        assert!(!shown.contains(&first) && !shown.contains(&own), "{path} shows a token");
        asked += 1;
    }
    assert!(asked > 40, "{asked}");
    assert!(!daemon.log().contains(&first) && !daemon.log().contains(&own));
    assert!(!daemon.log().contains("#code="), "nor a link");
    let folder = daemon.folder();
    assert_eq!(daemon.stop(), Some(0));
    let next = Daemon::start_in(folder, &[]);
    assert_ne!(token(&next), first, "what somebody noted of it is worth nothing");
    assert_eq!(change(&next, &[&bearer(&first)]), NOBODY, "one that is shown and wrong makes less");
}

#[test]
fn an_agent_stays_one_with_the_persons_token() {
    let daemon = daemon_of_user(ROOMS);
    let attack = |name: &str, header: &str| {
        let command = format!("python3 attacks.py headers {name} {} '{header}'", daemon.url);
        with_person(&daemon, name, &command);
        told(&daemon, name)
    };
    let code = daemon.post("/api/console/codes", &json!({}))["code"].clone();
    let body = json!({"code": code}).to_string();
    let line = format!(
        "curl -s -o answer -w '%{{http_code}}' -H 'Content-Type: application/json' -d '{body}' \
         {}/api/console/session > code.tmp; mv code.tmp code",
        daemon.url
    );
    with_person(&daemon, "code-thief", &line);
    assert_eq!(told(&daemon, "code"), "403", "nor does it get a session");
    assert_eq!(attack("bearer", &bearer(&token(&daemon))), AGENT);
    if has_unseen() {
        let (_, body) = raw(&daemon, "PATCH", "/api/config", &[&bearer(&token(&daemon))], CHANGE);
        assert_eq!(
            (&body["code"], &body["seenHelps"]),
            (&json!("prove_yourself"), &json!(true)),
            "it is known now"
        );
    }
    if has_rooms() {
        let files = "cat .svc/token .svc/state/agent-tokens.key > read.tmp 2> /dev/null; mv read.tmp read";
        with_person(&daemon, "reader", files);
        assert_eq!(told(&daemon, "read"), "", "its room does not show them");
    }
    assert_unchanged(&daemon);
}

/// Starts an agent that runs a command line, as a person who shows the token.
fn with_person(daemon: &Daemon, name: &str, command: &str) -> String {
    let steps = json!({"steps": [{"run": {"command": command, "timeoutMs": 60_000}}, {"hang": true}]});
    let folder = daemon.project.join(".svc/rehearsals");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}.json")), steps.to_string()).unwrap();
    let body = json!({"role": "dev", "name": name, "provider": "script", "model": name, "prompt": "go"});
    // One whom the daemon sees, for a token alone does not do where agents could have read it.
    let data = body.to_string();
    let mut curl = as_user(owner(daemon), "curl");
    curl.args(["-s", "-H", "Content-Type: application/json", "-H", &bearer(&token(daemon)), "-d", &data]);
    let answer = curl.arg(format!("{}/api/agents", daemon.url)).output().unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    answer["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn the_token_that_agents_without_a_room_can_read_proves_nobody_who_hides() {
    let daemon = daemon_of_user(OPEN);
    let file = daemon.project.join(".svc/token").display().to_string();
    for kind in ["stolen", "stolen-in-flight"] {
        with_person(&daemon, kind, &format!("python3 attacks.py {kind} {kind} {} {file}", daemon.url));
        let answer = told(&daemon, kind);
        // Root's own daemon looks at everybody, and finds whose process it is.
        assert!(answer == NOBODY || answer == AGENT, "{kind}: {answer}");
    }
    assert_unchanged(&daemon);
    if is_root() {
        let (status, body) = raw(&daemon, "PATCH", "/api/config", &[&bearer(&token(&daemon))], CHANGE);
        assert_eq!((status, &body["code"]), (403, &json!("prove_yourself")));
        assert_eq!((&body["tokenHelps"], &body["seenHelps"]), (&json!(false), &json!(true)));
        let found = r#"{"role":"dev","trigger":"the first build","fix":"warm the cache"}"#;
        let (status, _) = raw(&daemon, "POST", "/api/memory/discoveries", &[&bearer(&token(&daemon))], found);
        assert_eq!(status, 403, "who means to act as a person is not taken for somebody less");
    }
    // What runs inside an agent says so by itself, also where nobody sees it.
    let line = format!(
        "{}/bin/svc spawn dev --name inner --provider script --model hang x",
        daemon.project.display()
    );
    let maker = with_person(&daemon, "maker", &line);
    let inner = wait_for("the inner agent", || {
        let (status, inner) = daemon.send("GET", "/api/agents/inner", &Value::Null);
        (status == 200).then_some(inner)
    });
    assert_eq!(inner["startedBy"], daemon.get(&format!("/api/agents/{maker}"))["lineageId"], "{inner}");
    // The person's own svc lets itself be seen.
    let said = svc(&daemon, &["config", "set", "maxAgents", "13"]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(daemon.get("/api/audit?event=config.patch")["entries"][0]["actor"], "operator");
}

#[test]
fn the_agent_of_another_project_gains_nothing_by_this_ones_token() {
    let user = new_user();
    let (daemon, other) = (daemon_of(user, ROOMS), daemon_of(user, OPEN));
    let file = daemon.project.join(".svc/token").display().to_string();
    let line =
        |name: &str, header: &str| format!("python3 attacks.py headers {name} {} \"{header}\"", daemon.url);
    let seen = format!("Authorization: Bearer $(cat {file})");
    with_person(&other, "neighbour", &line("neighbour", &seen));
    assert_eq!(told(&other, "neighbour"), AGENT, "its agents have no room, and can read it");
    // Nor by its own: it is an agent of no name here.
    with_person(&other, "stranger", &line("stranger", "Authorization: Bearer $SVC_AGENT_TOKEN"));
    assert_eq!(told(&other, "stranger"), AGENT);
    assert_unchanged(&daemon);
}

/// A room shows the other projects of its user; what it finds there it can show while it hides.
#[test]
fn an_agent_in_its_room_gains_nothing_by_another_projects_token() {
    if !has_rooms() {
        return;
    }
    let user = new_user();
    let (daemon, other) = (daemon_of(user, ROOMS), daemon_of(user, ROOMS));
    let token = token(&daemon);
    for kind in ["stolen", "stolen-in-flight"] {
        let line = format!("echo {token} > read; python3 attacks.py {kind} {kind} {} read", daemon.url);
        with_person(&other, kind, &line);
        let answer = told(&other, kind);
        // Root's own daemon looks at everybody, and finds whose process it is.
        assert!(answer == NOBODY || answer == AGENT, "{kind}: {answer}");
    }
    assert_unchanged(&daemon);
    let sleeper = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); \
                   open('asleep', 'w').close(); time.sleep(60)";
    with_person(&other, "sleeper", &format!("python3 -c \"{sleeper}\""));
    wait_for("the agent to hide", || other.project.join("asleep").exists().then_some(()));
    if is_root() {
        assert_eq!(change(&daemon, &[&bearer(&token)]), NOBODY, "it could be that agent");
    }
    // Nor by the key of the other's agents, which it can read there, too: seen, it is an agent of no name.
    let boxed = with_person(&daemon, "boxed", "printf %s \"$SVC_AGENT_TOKEN\" > own.tmp; mv own.tmp own");
    let own = bearer(&told(&daemon, "own"));
    let spawn = r#"{"role":"dev","provider":"script","model":"hang","prompt":"x"}"#;
    let json = "-H 'Content-Type: application/json'";
    let line =
        format!("curl -s -H '{own}' {json} -d '{spawn}' {}/api/agents > f.tmp; mv f.tmp forged", daemon.url);
    with_person(&other, "forger", &line);
    let answer: Value = serde_json::from_str(&told(&other, "forged")).unwrap();
    assert_eq!(answer["code"], "agent_may_not", "{answer}");
    if is_root() {
        assert_eq!(change(&daemon, &[&own]), NOBODY, "unseen, it could be any of them");
    }
    assert_eq!(daemon.get("/api/agents").as_array().unwrap().len(), 1, "only {boxed}");
    let said = svc(&daemon, &["config", "set", "maxAgents", "13"]);
    assert!(said.status.success(), "a person's own svc is seen: {said:?}");
}

#[test]
fn an_agent_that_is_not_seen_is_known_by_its_own_token_as_long_as_it_lives() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    let id = with_person(&daemon, "boxed", "printf %s \"$SVC_AGENT_TOKEN\" > own.tmp; mv own.tmp own");
    let own = bearer(&told(&daemon, "own"));
    let (status, body) = raw(&daemon, "PATCH", "/api/config", &[&own], CHANGE);
    assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")), "{body}");
    assert!(body["error"].as_str().unwrap().contains(&id), "by name: {body}");
    let approve = raw(&daemon, "POST", "/api/approvals/apr-00000001/approve", &[&own], "{}");
    assert_eq!((approve.0, &approve.1["code"]), (403, &json!("agent_may_not")), "it approves nothing");
    let child = r#"{"role":"dev","name":"child","provider":"script","model":"hang","prompt":"x"}"#;
    let (status, child) = raw(&daemon, "POST", "/api/agents", &[&own], child);
    assert_eq!(status, 201, "what an agent may do it may: {child}");
    let lineage = daemon.get(&format!("/api/agents/{id}"))["lineageId"].clone();
    assert_eq!(child["startedBy"], lineage, "{child}");
    // Another's name on the same code is nobody's.
    let forged = own.replace(&id, child["id"].as_str().unwrap());
    assert_eq!(change(&daemon, &[&forged]), NOBODY);
    assert_eq!(change(&daemon_of_user(ROOMS), &[&own]), NOBODY, "another daemon knows no such agent");
    assert_eq!(daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null).0, 200);
    daemon.wait_state(&id, &["killed"]);
    assert_eq!(change(&daemon, &[&own]), NOBODY, "it has ended with the agent");
    assert_unchanged(&daemon);
}

#[test]
fn the_door_of_a_daemon_that_listens_beyond_this_machine_opens_to_its_living_agents_too() {
    let Some(address) = own_address() else { return };
    let daemon = daemon_of(new_user(), &json!({"host": address}).to_string());
    let id = with_person(&daemon, "boxed", "printf %s \"$SVC_AGENT_TOKEN\" > own.tmp; mv own.tmp own");
    let own = bearer(&told(&daemon, "own"));
    let get = |header: &str| raw(&daemon, "GET", "/api/status", &[header], "").0;
    assert_eq!(get("Accept: */*"), 401);
    assert_eq!(get(&own), 200);
    assert_eq!(get(&own.replace(&id, "00000001")), 401, "another's name");
    assert_ne!(change(&daemon, &[&own]), "200 -");
    let kept = token(&daemon);
    assert_eq!(daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null).0, 200);
    daemon.wait_state(&id, &["killed"]);
    assert_eq!(get(&own), 401, "it has ended");
    let (user, folder) = (owner(&daemon), daemon.folder());
    assert_eq!(daemon.stop(), Some(0));
    let next = Daemon::start_as(user, folder, &[]);
    assert_eq!(token(&next), kept, "other machines have been told it");
}

/// Begins a session with a code; what proves it: the cookie and the key.
fn session(daemon: &Daemon, code: &Value, more: &[&str]) -> Result<(String, String), String> {
    let host = daemon.url.trim_start_matches("http://");
    let body = json!({"code": code}).to_string();
    let (head, body) = exchange(daemon, host, "POST", "/api/console/session", more, &body);
    let Some(key) = body["key"].as_str() else {
        return Err(body["code"].as_str().unwrap_or_default().to_owned());
    };
    let cookie = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).unwrap();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    Ok((format!("Cookie: {cookie}"), format!("Svc-Console: {key}")))
}

fn code(daemon: &Daemon, only_seen: bool) -> Value {
    daemon.post("/api/console/codes", &json!({"onlySeen": only_seen}))["code"].clone()
}

#[test]
fn the_link_of_svc_open_makes_one_browser_count_as_a_person() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    let said = svc(&daemon, &["open", "--json"]);
    let link: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let (address, given) = link["url"].as_str().unwrap().split_once("/#code=").unwrap();
    assert_eq!(address, daemon.url);
    let given = json!(given);
    assert_eq!(session(&daemon, &json!("0".repeat(64)), &[]), Err("code_not_good".into()), "a guess");
    let page = ["Origin: http://localhost:3000"];
    assert_eq!(session(&daemon, &given, &page), Err("prove_yourself".into()), "a page of another port");
    let (cookie, key) = session(&daemon, &given, &[]).unwrap();
    assert_eq!(session(&daemon, &given, &[]), Err("code_not_good".into()), "used twice");
    let watched = code(&daemon, true);
    assert_eq!(
        session(&daemon, &watched, &[]),
        Err("code_not_good".into()),
        "what the browser is started with is for who is seen: others can read a program's arguments"
    );
    let own_page = [format!("Origin: {}", daemon.url), "Sec-Fetch-Site: same-origin".into()];
    let both = [&*cookie, &*key, &*own_page[0], &*own_page[1]];
    let other_key = session(&daemon, &code(&daemon, false), &[]).unwrap().1;
    let fixed = ["Cookie: svc-console-1=chosen", &*key];
    for (why, headers) in [
        ("the cookie alone, as every port of the machine gets it", vec![&*cookie]),
        ("the key alone", vec![&*key]),
        ("another session's key", vec![&*cookie, &*other_key]),
        ("a page of another port", vec![&*cookie, &*key, page[0]]),
        ("a frame in another page", vec![&*cookie, &*key, "Sec-Fetch-Site: same-site"]),
        ("a cookie that somebody has chosen", fixed.to_vec()),
        ("two cookies of the name", vec![&*cookie, &*cookie, &*key]),
    ] {
        assert_eq!(change(&daemon, &headers), NOBODY, "{why}");
    }
    let host = daemon.url.replace("http://127.0.0.1", "localhost");
    let (_, body) = exchange(&daemon, &host, "PATCH", "/api/config", &[&cookie, &key], CHANGE);
    assert_eq!(body["code"], "prove_yourself", "called by another name");
    assert_unchanged(&daemon);
    assert_eq!(change(&daemon, &both), "200 -");
    assert_eq!(svc(&daemon, &["open", "--forget"]).stdout, b"ended 2 sessions of the console\n");
    assert_eq!(change(&daemon, &both), NOBODY);
}

#[test]
fn a_session_ends_with_its_daemon_and_opens_no_socket_to_other_pages() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    let (cookie, key) = session(&daemon, &code(&daemon, false), &[]).unwrap();
    let shake = |origin: &str| {
        let upgrade = ["Upgrade: websocket", "Sec-WebSocket-Version: 13"];
        let random = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        raw(&daemon, "GET", "/ws", &[&cookie, origin, upgrade[0], upgrade[1], random], "").0
    };
    for origin in ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(shake(origin), 403, "{origin}");
    }
    let port: u16 = daemon.url.rsplit_once(':').unwrap().1.parse().unwrap();
    let (user, folder) = (owner(&daemon), daemon.folder());
    assert_eq!(daemon.stop(), Some(0));
    folder.write(".svc/config.json", &json!({"port": port}).to_string());
    let next = Daemon::start_as(user, folder, &[]);
    assert_eq!(change(&next, &[&cookie, &key]), NOBODY);
}

#[test]
fn svc_shows_the_token_to_its_own_daemon_alone() {
    let daemon = daemon_of_user(ROOMS);
    let said = svc(&daemon, &["config", "set", "maxAgents", "13"]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(daemon.get("/api/config")["maxAgents"], 13);
    let others = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", others.local_addr().unwrap());
    let mut asking = command(&daemon, &["status", "--url", &url]).stderr(Stdio::null()).spawn().unwrap();
    let (mut stream, _) = others.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1);
        head.push(byte[0]);
    }
    drop(stream);
    drop(others);
    asking.wait().unwrap();
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("get ") && !head.contains("authorization"), "{head}");
}

/// Whether other programs of its user are kept out of a process: its files are root's then.
fn is_hidden(user: u32, pid: u32) -> bool {
    let of_root = fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid() == 0;
    let read = as_user(user, "cat").arg(format!("/proc/{pid}/environ")).output().unwrap();
    of_root && !read.status.success() && read.stdout.is_empty()
}

fn started(mut command: Command) -> Child {
    command.env("A_SECRET_TOKEN", TOKEN).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Whether the program has begun to run and has taken what is secret out of its first environment.
fn holds_no_secret(pid: u32) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let text = String::from_utf8_lossy(&environ);
    text.contains("A_SECRET_TOKEN") && !text.contains(TOKEN)
}

#[test]
fn the_daemon_and_the_command_line_keep_their_memory_and_hold_no_secret_in_the_environment() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    assert!(is_hidden(owner(&daemon), daemon.pid()), "the daemon");
    let id = with_person(&daemon, "sleeper", "true");
    for words in [&["hook"][..], &["wait", &id]] {
        let mut child = started(command(&daemon, words));
        wait_for("it to hide", || {
            (is_hidden(owner(&daemon), child.id()) && holds_no_secret(child.id())).then_some(())
        });
        let _ = child.kill();
        child.wait().unwrap();
    }
}

#[test]
fn each_way_to_be_seen_or_not_is_what_the_table_says() {
    if !has_unseen() {
        return;
    }
    let daemon = daemon_of_user(ROOMS);
    let user = owner(&daemon);
    let curl = |user: u32, more: &[&str]| {
        let mut curl = as_user(user, "curl");
        curl.args(["-s", "-X", "PATCH", "-H", "Content-Type: application/json", "-d", CHANGE]);
        curl.args(more).arg(format!("{}/api/config", daemon.url));
        let answer = curl.output().unwrap();
        serde_json::from_slice::<Value>(&answer.stdout).unwrap()["code"].as_str().unwrap_or("-").to_owned()
    };
    assert_eq!(curl(user + 1, &[]), "prove_yourself", "another user");
    assert_eq!(curl(user, &["--interface", "127.0.0.2"]), "prove_yourself", "from another address");
    assert_eq!(curl(user, &[]), "-", "plain curl of the daemon's user");
    assert_eq!(curl(user, &["-H", &bearer("wrong")]), "prove_yourself", "one that shows a wrong token");
    assert_eq!(curl(user + 1, &["-H", &bearer(&token(&daemon))]), "-", "another user who was given it");
    let hidden = as_user(user, "python3")
        .arg(daemon.project.join("attacks.py"))
        .args(["hidden-plain", "hidden", &daemon.url])
        .current_dir(&daemon.project)
        .status();
    hidden.unwrap();
    assert_eq!(told(&daemon, "hidden"), NOBODY, "a program that hides its memory");
}
