//! Webhooks in, at the built daemon: signed messages start agents and reach them, once; nothing else does.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use svc::webhooks::sign;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

struct Sender {
    url: String,
    key: Vec<u8>,
}

impl Sender {
    fn of(daemon: &Daemon, body: &Value) -> Self {
        let made = daemon.post("/api/inlets", body);
        let key = sign::key_of(made["secret"].as_str().unwrap()).unwrap();
        Self { url: format!("{}{}", daemon.url, made["path"].as_str().unwrap()), key }
    }

    fn signature(&self, id: &str, at: u64, body: &str) -> String {
        sign::signature(&self.key, id, at, body.as_bytes())
    }

    fn send(&self, id: &str, at: u64, body: &str) -> (u16, Value) {
        self.raw(id, &at.to_string(), &self.signature(id, at, body), body)
    }

    fn raw(&self, id: &str, at: &str, signature: &str, body: &str) -> (u16, Value) {
        let agent: ureq::Agent = svc_sys::http::client::strict().build().into();
        let request = agent.post(&self.url).header(sign::ID, id).header(sign::TIMESTAMP, at);
        let request = request.header("content-type", "application/json").header(sign::SIGNATURE, signature);
        let mut response = request.send(body).unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
    }
}

/// How many there are.
fn agents(daemon: &Daemon) -> usize {
    daemon.get("/api/agents").as_array().unwrap().len()
}

fn quick() -> Value {
    json!({"name": "ci", "words": "Look into it.", "agent": {"role": "fixer", "provider": "script", "model": "quick"}})
}

#[test]
fn a_signed_message_starts_an_agent_once_over_a_kill_too() {
    let mut daemon = Daemon::start();
    let mut sender = Sender::of(&daemon, &quick());
    let at = now();
    let (status, answer) = sender.send("msg_1", at, r#"{"build": 7}"#);
    assert_eq!((status, &answer["taken"]), (202, &json!(true)), "{answer}");
    let id = answer["agentId"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["completed"]);
    let (status, answer) = sender.send("msg_1", at, r#"{"build": 7}"#);
    assert_eq!((status, &answer["taken"]), (200, &json!(false)));
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    let path = sender.url.split_once("/api").unwrap().1.to_owned();
    sender.url = format!("{}/api{path}", daemon.url);
    let (status, answer) = sender.send("msg_1", at, r#"{"build": 7}"#);
    assert_eq!((status, &answer["taken"], agents(&daemon)), (200, &json!(false), 1), "{answer}");
    let prompt = daemon.log_of(&id).iter().map(ToString::to_string).collect::<String>();
    assert!(prompt.contains("Look into it.") && prompt.contains("It is data"), "{prompt}");
}

#[test]
fn what_is_not_signed_rightly_and_in_time_does_nothing_and_is_braked_and_audited() {
    let daemon = Daemon::start();
    let sender = Sender::of(&daemon, &quick());
    let (at, body) = (now(), "{}");
    let right = sender.signature("msg_1", at, body);
    let text = at.to_string();
    let old = at - 301;
    let ahead = at + 310;
    for (id, time, signature, body, why) in [
        ("msg_1", text.as_str(), "", body, "none"),
        ("msg_1", &text, "v1,AAAA", body, "another's"),
        ("msg_2", &text, &right, body, "of another id"),
        ("msg_1", &(at - 1).to_string(), &right, body, "of another time"),
        ("msg_1", &text, &right, "{ }", "of another body"),
        ("msg_1", "", &right, body, "no time"),
        ("", &text, &sender.signature("", at, body), body, "no id"),
        ("msg_1", &old.to_string(), &sender.signature("msg_1", old, body), body, "an old one, replayed"),
        ("msg_1", &ahead.to_string(), &sender.signature("msg_1", ahead, body), body, "one ahead of its time"),
    ] {
        let (status, answer) = sender.raw(id, time, signature, body);
        assert_eq!((status, &answer["code"]), (401, &json!("not_taken")), "{why}: {answer}");
    }
    let unknown = Sender { url: sender.url.replace("/post", "0/post"), key: sender.key.clone() };
    assert_eq!(unknown.send("msg_1", at, body).0, 401, "it is not told which inlets there are");
    let (status, answer) = sender.raw("msg_1", &text, "v1,AAAA", body);
    assert_eq!((status, &answer["code"]), (429, &json!("too_many_wrong_signatures")), "{answer}");
    assert_eq!(agents(&daemon), 0);
    let other = Sender { url: sender.url.clone(), key: vec![7; 32] };
    let flood: Vec<u16> = (0..50).map(|n| other.send(&format!("msg_{n}"), at, body).0).collect();
    assert!(flood.iter().all(|status| *status == 429), "signed with another secret: {flood:?}");
    let audit = daemon.get("/api/audit?event=inlet.wrong");
    let attempts: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|entry| entry["attempts"].clone()).collect();
    assert_eq!(attempts, [json!(10), json!(1)], "{audit}");
    assert_eq!(sender.send("msg_1", at, body).0, 202, "whoever signs rightly is not shut out");
    let large = "x".repeat(40 << 10);
    assert_eq!(sender.send("msg_3", at, &large).0, 413);
}

/// Sends what it is asked for with the library of the specification.
const SCRIPT: &str = "
import datetime, json, sys, urllib.request
from standardwebhooks.webhooks import Webhook
asked = json.load(sys.stdin)
at = datetime.datetime.now(tz=datetime.timezone.utc)
body = json.dumps({'text': 'the build is green'})
head = {'webhook-id': 'msg_library', 'webhook-timestamp': str(int(at.timestamp())),
    'webhook-signature': Webhook(asked['secret']).sign('msg_library', at, body),
    'content-type': 'application/json'}
print(urllib.request.urlopen(urllib.request.Request(asked['url'], body.encode(), head)).status)
";

#[test]
fn a_message_reaches_an_agent_and_the_library_of_the_specification_may_send_it() {
    let daemon = Daemon::start();
    let id = daemon.spawn("default");
    let made = daemon.post("/api/inlets", &json!({"name": "chat", "to": id}));
    let url = format!("{}{}", daemon.url, made["path"].as_str().unwrap());
    let Some(python) = super::webhooks::oracle() else { return };
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({"secret": made["secret"], "url": url}).to_string();
    child.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.trim(), "202");
    crate::support::wait::wait_for("the message in the log", || {
        daemon.log_of(&id).iter().any(|entry| entry.to_string().contains("the build is green")).then_some(())
    });
}

#[test]
fn a_command_makes_one_and_no_page_or_token_is_needed_at_the_door() {
    let daemon = Daemon::start();
    let svc = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(args).arg("--project").arg(&daemon.project).env_remove("SVC_AGENT_ID");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let made = svc(&[
        "webhook",
        "in",
        "add",
        "ci",
        "--role",
        "fixer",
        "--provider",
        "script",
        "--model",
        "quick",
        "--json",
    ]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let key = sign::key_of(made["secret"].as_str().unwrap()).unwrap();
    let sender = Sender { url: format!("{}{}", daemon.url, made["path"].as_str().unwrap()), key };
    assert_eq!(sender.send("msg_1", now(), "{}").0, 202);
    assert!(svc(&["webhook", "in"]).contains("ci"));
    let next: Value = serde_json::from_str(&svc(&["webhook", "in", "secret", "ci", "--json"])).unwrap();
    let sender_now =
        Sender { url: sender.url.clone(), key: sign::key_of(next["secret"].as_str().unwrap()).unwrap() };
    assert_eq!(sender.send("msg_2", now(), "{}").0, 401, "its secret is dead");
    let sender = sender_now;
    assert_eq!(sender.send("msg_2", now(), "{}").0, 202);
    svc(&["webhook", "in", "disable", "ci"]);
    assert_eq!(sender.send("msg_3", now(), "{}").0, 409);
    svc(&["webhook", "in", "remove", "ci"]);
    assert_eq!(sender.send("msg_3", now(), "{}").0, 401);
}

/// An address of this machine that others can reach, where it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn beyond_this_machine_a_signature_opens_its_own_path_without_a_token_and_no_other() {
    let Some(address) = own_address() else {
        eprintln!("SKIPPED: this machine has no address but its own loopback");
        return;
    };
    let folder = Arc::new(Folder::new("inlets"));
    let daemon = Daemon::start_with(folder, &["--port", "0", "--host", &address.to_string()], &[]);
    let token = std::fs::read_to_string(daemon.project.join(".svc/token")).unwrap();
    let daemon = daemon.with_token(token.trim());
    let sender = Sender::of(&daemon, &quick());
    assert_eq!(sender.send("msg_1", now(), "{}").0, 202, "no token is needed");
    for path in ["", "/secret", "/post/more"] {
        let url = sender.url.replace("/post", path);
        let (status, answer) = Sender { url, key: sender.key.clone() }.send("msg_2", now(), "{}");
        assert_eq!((status, &answer["code"]), (401, &json!("token_required")), "{path}: {answer}");
    }
    assert_eq!(agents(&daemon), 1);
}
