//! Who counts as a person: what an agent's process, or a page that an agent serves, tries to be taken for
//! one; what a person who is not seen can do about it; and who is not shut out. The agents have no room of
//! their own here, so that they can try; what a room adds stands in `room.rs`.

use crate::support::daemon::{Daemon, OPEN};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const ATTACKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/attacks.py");
const STARTS_OTHERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/starts_others.py");
/// Programs that call and start others meanwhile: some in a hundred were not seen before that was mended.
const MEANWHILE: &str = "200";
pub const TOKEN: &str = "a-token-that-no-agent-gets";

/// Starts an agent that runs this command line and then hangs.
pub fn spawn_running(daemon: &Daemon, name: &str, command: &str) -> String {
    let steps = json!({"steps": [{"run": {"command": command, "timeoutMs": 60_000}}, {"hang": true}]});
    let folder = daemon.project.join(".svc/rehearsals");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{name}.json")), steps.to_string()).unwrap();
    let body = json!({"role": "dev", "name": name, "provider": "script", "model": name, "prompt": "go"});
    // A person starts it, also where that has to be proved: a wrong token proves less than none.
    let token = fs::read_to_string(daemon.project.join(".svc/token")).unwrap_or_else(|_| TOKEN.into());
    let proof = format!("Authorization: Bearer {}", token.trim());
    let (status, answer) = raw(daemon, "POST", "/api/agents", &[&proof], &body.to_string());
    assert_eq!(status, 201, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// The line of an attack's command, on this daemon.
fn line(daemon: &Daemon, kind: &str, result: &str, more: &str) -> String {
    let (result, script) = (daemon.project.join(result), daemon.project.join("attacks.py"));
    // A room does not show a checkout that stands below the temporary folder.
    fs::copy(ATTACKS, &script).unwrap();
    format!("python3 {} {kind} {} {} {more}", script.display(), result.display(), daemon.url)
}

/// What an attack was answered: `STATUS CODE`.
pub fn told(daemon: &Daemon, result: &str) -> String {
    let path = daemon.project.join(result);
    wait_for(&format!("{result} to have been tried"), || fs::read_to_string(&path).ok()).trim().to_owned()
}

/// Lets an agent of the daemon attack it; the answer.
fn attacked(daemon: &Daemon, kind: &str, more: &str) -> String {
    spawn_running(daemon, kind, &line(daemon, kind, kind, more));
    told(daemon, kind)
}

/// Whether a process has this path among its arguments.
fn is_running(path: &std::path::Path) -> bool {
    let lines = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
    let wanted = path.to_str().unwrap();
    lines.filter_map(|line| fs::read(line).ok()).any(|line| String::from_utf8_lossy(&line).contains(wanted))
}

fn assert_unchanged(daemon: &Daemon, how: &str) {
    assert_eq!(daemon.get("/api/config")["maxAgents"], 10, "{how}");
    assert_eq!(daemon.get("/api/audit?event=config.patch")["entries"], json!([]), "{how}");
}

/// Another address of this machine than the loopback one.
pub fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // A datagram socket that is connected sends nothing; the address is one for documentation.
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip().to_string())
}

#[test]
fn decisions_4_an_agent_that_calls_from_another_address_of_the_machine_is_still_one() {
    let daemon = Daemon::start_open();
    let address = own_address().unwrap_or_else(|| "127.0.0.2".into());
    assert_eq!(attacked(&daemon, "address", &address), "403 agent_may_not", "from {address}");
    assert_unchanged(&daemon, &address);
}

#[test]
fn decisions_4_descriptors_of_a_threads_own_hide_nobody() {
    let daemon = Daemon::start_open();
    assert_eq!(attacked(&daemon, "thread", ""), "403 agent_may_not");
    assert_eq!(attacked(&daemon, "leader", ""), "403 agent_may_not", "the first thread has ended");
    assert_unchanged(&daemon, "threads");
}

#[test]
fn decisions_4_a_connection_that_nobody_holds_is_nobodys() {
    let daemon = Daemon::start_open();
    // A process that may not be looked at could be the one that holds it.
    let mut hidden = Command::new("python3");
    let result = daemon.project.join("hidden");
    hidden.args([ATTACKS, "hidden", result.to_str().unwrap(), &daemon.url]).stdin(Stdio::piped());
    let mut hidden = hidden.spawn().unwrap();
    assert_eq!(told(&daemon, "hidden"), "hidden");
    let in_flight = attacked(&daemon, "in-flight", "");
    assert!(in_flight.starts_with("403 "), "{in_flight}");
    let in_ring = attacked(&daemon, "in-ring", "");
    assert!(in_ring.starts_with("403 ") || in_ring == "0 no_ring", "{in_ring}");
    assert_unchanged(&daemon, "held by nobody");
    drop(hidden.stdin.take());
    assert!(hidden.wait().unwrap().success());
}

#[test]
fn decisions_4_a_daemon_without_descriptors_takes_nobody_for_a_person() {
    let daemon = Daemon::start_open();
    let answer = attacked(&daemon, "starve", &daemon.pid().to_string());
    assert!(answer.starts_with("403 "), "{answer}");
    assert_unchanged(&daemon, "starved");
    // It recovers, and a person is one again.
    assert_eq!(daemon.send("PATCH", "/api/config", &json!({"maxAgents": 12})).0, 200);
}

/// What a program has just started holds all that is the program's until it is a program of its own: it may
/// become a daemon, or end, while the daemon looks who calls.
#[test]
fn decisions_4_a_person_whose_program_starts_others_meanwhile_stays_one() {
    let daemon = Daemon::start_open();
    let program = daemon.project.join("svc");
    fs::copy("/bin/true", &program).unwrap();
    let port = daemon.url.rsplit(':').next().unwrap();
    let mut calls = Command::new("python3");
    let out = calls.arg(STARTS_OTHERS).arg(port).arg(&program).arg(MEANWHILE).output().unwrap();
    assert!(out.status.success() && out.stdout.is_empty(), "{out:?}");
}

#[test]
fn decisions_4_an_orphan_of_an_earlier_daemon_is_no_person() {
    let folder = Arc::new(Folder::new("orphan"));
    folder.write(".svc/config.json", OPEN);
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let port_file = daemon.project.join(".svc/daemon.port");
    let more = format!("{} {}", daemon.pid(), port_file.display());
    let hidden = format!("setsid env -i PATH=$PATH {} & true", line(&daemon, "orphan", "orphan", &more));
    spawn_running(&daemon, "orphan", &hidden);
    daemon.exit_code();
    let next = Daemon::start_in(folder, &[]);
    // Where it still carries the mark of its agent, the next daemon ends it before it can ask.
    let path = next.project.join("orphan");
    let answer = wait_for("the orphan to have asked or to have been ended", || {
        let has_ended = !is_running(&path);
        let told = fs::read_to_string(&path).ok();
        told.or_else(|| has_ended.then(|| "ended".into()))
    });
    assert!(["403 agent_may_not", "ended"].contains(&answer.trim()), "{answer}");
    assert_unchanged(&next, "an orphan without a marker");
}

#[test]
fn decisions_4_the_agent_of_another_daemon_is_no_person() {
    let (daemon, other) = (Daemon::start_open(), Daemon::start_open());
    spawn_running(&other, "plain", &line(&daemon, "plain", "plain", ""));
    assert_eq!(told(&daemon, "plain"), "403 agent_may_not");
    let bare = format!("setsid env -i PATH=$PATH {}", line(&daemon, "plain", "bare", ""));
    spawn_running(&other, "bare", &bare);
    assert_eq!(told(&daemon, "bare"), "403 agent_may_not", "without a marker, in a session of its own");
    assert_unchanged(&daemon, "another daemon's agent");
}

/// One request as bytes, to the daemon by this name; head and body of the answer.
pub fn exchange(
    daemon: &Daemon,
    host: &str,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> (String, Value) {
    let mut stream = TcpStream::connect(daemon.url.trim_start_matches("http://")).unwrap();
    let headers = [headers, &[""]].concat().join("\r\n");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(body).unwrap_or_default())
}

/// One request as bytes; status and body.
pub fn raw(daemon: &Daemon, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, Value) {
    let host = daemon.url.trim_start_matches("http://");
    let (head, body) = exchange(daemon, host, method, path, headers, body);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

pub const CHANGE: &str = r#"{"maxAgents":77}"#;

#[test]
fn a_page_of_another_local_port_may_do_what_an_agent_may_and_no_more() {
    let daemon = Daemon::start_open();
    let page = ["Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"];
    for headers in [&page[..], &page[..1], &page[1..]] {
        let (status, body) = raw(&daemon, "PATCH", "/api/config", headers, CHANGE);
        assert_eq!((status, &body["code"]), (403, &json!("prove_yourself")), "{headers:?}: {body}");
        assert!(body["error"].as_str().unwrap().contains("console"), "it names the remedy: {body}");
        assert_eq!(raw(&daemon, "GET", "/api/credentials", headers, "").0, 403, "{headers:?}");
        assert_eq!(raw(&daemon, "GET", "/api/agents", headers, "").0, 200, "{headers:?}");
    }
    assert_unchanged(&daemon, "a foreign page");
    let agent = r#"{"role":"dev","provider":"script","model":"hang","prompt":"x"}"#;
    let (status, body) = raw(&daemon, "POST", "/api/agents", &page, agent);
    assert_eq!(
        (status, &body["code"]),
        (403, &json!("prove_yourself")),
        "what nobody starts has no rights: {body}"
    );
    let found = r#"{"role":"dev","trigger":"the first build","fix":"warm the cache"}"#;
    let (status, body) = raw(&daemon, "POST", "/api/memory/discoveries", &page, found);
    assert!(status < 300, "{status} {body}");
    let preflight = raw(&daemon, "OPTIONS", "/api/config", &["Origin: http://localhost:3000"], "");
    assert_eq!(preflight.0, 204);
    let own = [&*format!("Origin: {}", daemon.url), "Sec-Fetch-Site: same-origin"];
    assert_eq!(raw(&daemon, "PATCH", "/api/config", &own, CHANGE).0, 200, "the console");
}

#[test]
fn the_operators_token_is_asked_for_where_it_is_set_and_makes_no_agent_a_person() {
    let folder = Arc::new(Folder::new("operator"));
    let daemon = Daemon::start_in(folder, &[("SVC_OPERATOR_TOKEN", TOKEN)]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let patch = |headers: &[&str], n: u32| {
        raw(&daemon, "PATCH", "/api/config", headers, &json!({"maxAgents": n}).to_string())
    };
    let (status, body) = patch(&[], 11);
    assert_eq!((status, &body["code"]), (403, &json!("prove_yourself")), "{body}");
    assert_eq!(body["tokenHelps"], true);
    assert!(body["error"].as_str().unwrap().contains("SVC_OPERATOR_TOKEN"), "{body}");
    assert_eq!(patch(&[&bearer(TOKEN)], 12).0, 200);
    assert_eq!(daemon.get("/api/config")["maxAgents"], 12);
    // An agent that has come by it stays an agent.
    let headers = format!("\"{}\"", bearer(TOKEN));
    assert_eq!(attacked(&daemon, "headers", &headers), "403 agent_may_not");
    // svc shows it by itself, and cannot be read by others meanwhile.
    let svc = |token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(["config", "set", "maxAgents", "13"]).current_dir(&daemon.project);
        command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").env("SVC_OPERATOR_TOKEN", token);
        command.output().unwrap()
    };
    let said = svc(TOKEN);
    assert!(said.status.success(), "{said:?}");
    assert!(String::from_utf8_lossy(&svc("").stderr).contains("SVC_OPERATOR_TOKEN"));
    for n in 0..10 {
        let (status, body) = patch(&[&bearer("guess")], 14);
        assert_eq!((status, &body["code"]), (403, &json!("prove_yourself")), "guess {n}: {body}");
    }
    let (status, body) = patch(&[&bearer("guess")], 14);
    assert_eq!((status, &body["code"]), (429, &json!("too_many_wrong_tokens")), "{body}");
    assert_eq!(raw(&daemon, "GET", "/api/config", &[&bearer("guess")], "").1["maxAgents"], 13);
    assert_eq!(patch(&[&bearer(TOKEN)], 14).0, 200, "who guesses shuts nobody out");
    let entries = wait_for("the audit log", || {
        let entries = daemon.get("/api/audit?event=token.wrong")["entries"].clone();
        (entries.as_array().unwrap().len() == 2).then_some(entries)
    });
    let attempts: Vec<_> =
        entries.as_array().unwrap().iter().map(|entry| entry["attempts"].clone()).collect();
    assert_eq!(attempts, [10, 1], "newest first: {entries}");
    assert!(!entries.to_string().contains("guess"), "what was guessed is not written down");
}

#[test]
fn beyond_this_machine_an_empty_token_opens_nothing_and_guesses_are_braked() {
    let Some(address) = own_address() else { return };
    let folder = Arc::new(Folder::new("door"));
    folder.write(".svc/token", "\n");
    folder.write(".svc/config.json", &json!({"host": address}).to_string());
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert!(daemon.url.contains(&address), "{}", daemon.url);
    let token = fs::read_to_string(folder.path().join(".svc/token")).unwrap().trim().to_owned();
    assert!(token.len() >= 32, "a token was made: {token:?}");
    let get = |header: &str| raw(&daemon, "GET", "/api/status", &[header], "");
    assert_eq!(get("Authorization: Basic c3ZjOg==").0, 401, "user svc without a password");
    assert_eq!(get(&format!("Authorization: Bearer {token}")).0, 200);
    for _ in 0..9 {
        assert_eq!(get("Authorization: Bearer guess").0, 401);
    }
    let (status, body) = get("Authorization: Bearer guess");
    assert_eq!((status, &body["code"]), (429, &json!("too_many_wrong_tokens")), "{body}");
}

#[test]
fn secrets_that_the_daemon_was_started_with_are_not_to_be_read_from_it() {
    let env = [("SVC_OPERATOR_TOKEN", TOKEN), ("ANTHROPIC_API_KEY", "sk-of-the-person"), ("PLAIN", "seen")];
    let daemon = Daemon::start_in(Arc::new(Folder::new("environ")), &env);
    // Only the owner of everything may look at all.
    match fs::read(format!("/proc/{}/environ", daemon.pid())) {
        Ok(environ) => {
            let text = String::from_utf8_lossy(&environ);
            assert!(!text.contains(TOKEN) && !text.contains("sk-of-the-person"), "{text}");
            assert!(text.contains("PLAIN=seen"), "what is no secret stays: {text}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    let patch = raw(&daemon, "PATCH", "/api/config", &[&format!("Authorization: Bearer {TOKEN}")], CHANGE);
    assert_eq!(patch.0, 200, "the daemon itself still knows it");
    let got = "printf %s \"$ANTHROPIC_API_KEY$SVC_OPERATOR_TOKEN\" > got.tmp; mv got.tmp got";
    spawn_running(&daemon, "looker", got);
    assert_eq!(told(&daemon, "got"), "", "an agent is given neither");
}

#[test]
fn bodies_that_drip_shut_nobody_out() {
    let daemon = Daemon::start_open();
    let address: SocketAddr = daemon.url.trim_start_matches("http://").parse().unwrap();
    let head = format!("POST /api/agents HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1000\r\n\r\n{{");
    let drip = || {
        let mut stream = TcpStream::connect(address).unwrap();
        // One that is evicted at once may not take all of it.
        let _ = stream.write_all(head.as_bytes());
        stream
    };
    let dripping: Vec<TcpStream> = (0..600).map(|_| drip()).collect();
    for _ in 0..20 {
        let (status, body) = raw(&daemon, "GET", "/api/health", &[], "");
        assert_eq!(status, 200, "{body}");
        let _one_more = drip();
    }
    drop(dripping);
    let begun = Instant::now();
    let mut slow = drip();
    slow.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(20), "it keeps to a least rate: {:?}", begun.elapsed());
}
