//! Webhooks of the built daemon, with receivers of every kind: what is posted is signed, comes at least once
//! whatever is killed, and goes nowhere else.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::real::doors;
use crate::support::receiver::{Answers, Receiver};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use svc::webhooks::sign;

fn svc(daemon: &Daemon, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).arg("--project").arg(&daemon.project).stdin(Stdio::null());
    let output = command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "svc {args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A webhook for these events; its secret.
fn add(daemon: &Daemon, name: &str, receiver: &Receiver, events: &[&str]) -> String {
    let body = json!({"name": name, "url": receiver.url("/hook"), "events": events});
    daemon.post("/api/webhooks", &body)["secret"].as_str().unwrap().to_owned()
}

fn webhook(daemon: &Daemon, name: &str) -> Value {
    let all = daemon.get("/api/webhooks");
    all["webhooks"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
}

/// A Python that has the specification's own library; says so when it is not installed.
///
/// Panics where `SVC_REAL_CLIS=require`.
pub fn oracle() -> Option<PathBuf> {
    Some(doors("standardwebhooks")?.join("bin/python"))
}

/// What the library says of messages: a line each, `ok` or the name of its refusal.
fn judged(python: &Path, secret: &str, messages: &[Value]) -> Vec<String> {
    const SCRIPT: &str = "
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
asked = json.load(sys.stdin)
for one in asked['messages']:
    try:
        Webhook(asked['secret']).verify(one['body'], one['headers'])
        print('ok')
    except WebhookVerificationError as error:
        print(error)
";
    let mut command = Command::new(python);
    let mut child =
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let asked = json!({"secret": secret, "messages": messages}).to_string();
    child.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn what_happens_is_posted_signed_and_the_secret_is_shown_once_and_sealed() {
    let receiver = Receiver::start(Answers::Always(204));
    let daemon = Daemon::start();
    let url = receiver.url("/hook?key=1");
    let added = svc(&daemon, &["webhook", "add", &url, "--events", "agent:*", "--name", "ci", "--json"]);
    let added: Value = serde_json::from_str(&added).unwrap();
    let secret = added["secret"].as_str().unwrap().to_owned();
    let id = daemon.spawn("quick");
    daemon.wait_state(&id, &["completed"]);
    let got = wait_for("the exit", || receiver.find("agent:exit"));
    assert_eq!((got.path.as_str(), got.header("content-type")), ("/hook?key=1", "application/json"));
    assert_eq!(got.json()["data"]["agentId"], json!(id));
    let key = sign::key_of(&secret).unwrap();
    let at: u64 = got.header(sign::TIMESTAMP).parse().unwrap();
    assert!(sign::is_signed(&key, got.header(sign::ID), at, &got.body, got.header(sign::SIGNATURE)));
    assert!(receiver.find("agent:start").is_some() && receiver.find("agent:turn").is_some());
    assert!(receiver.all().iter().all(|one| one.json()["type"] != "plan:done"));
    wait_for("the record", || (webhook(&daemon, "ci")["waiting"] == 0).then_some(()));
    for text in [
        daemon.get("/api/webhooks").to_string(),
        std::fs::read_to_string(daemon.project.join(".svc/state/webhooks.json")).unwrap(),
        std::fs::read_to_string(daemon.project.join(".svc/credentials.json")).unwrap(),
        std::fs::read_to_string(daemon.project.join(".svc/audit.jsonl")).unwrap(),
        daemon.log(),
    ] {
        assert!(!text.contains(&secret[6..]), "{text}");
    }
    let second: Value = serde_json::from_str(&svc(&daemon, &["webhook", "secret", "ci", "--json"])).unwrap();
    let second = second["secret"].as_str().unwrap().to_owned();
    svc(&daemon, &["webhook", "test", "ci"]);
    let test = wait_for("the test", || receiver.find("webhook:test"));
    assert_eq!(test.header(sign::SIGNATURE).split(' ').count(), 2, "signed with both for a while");
    let Some(python) = oracle() else { return };
    let whole = |one: &crate::support::receiver::Got, body: &str| {
        let names = [sign::ID, sign::TIMESTAMP, sign::SIGNATURE];
        let headers: BTreeMap<_, _> =
            names.into_iter().map(|name| (name, one.header(name).to_owned())).collect();
        json!({"headers": headers, "body": body})
    };
    let text = |one: &crate::support::receiver::Got| String::from_utf8(one.body.clone()).unwrap();
    let messages = [
        whole(&got, &text(&got)),
        whole(&got, &text(&got).replace("exit", "exiT")),
        whole(&test, &text(&test)),
    ];
    let [first, changed, both] = &judged(&python, &secret, &messages)[..] else { panic!("three verdicts") };
    assert_eq!((first.as_str(), both.as_str()), ("ok", "ok"));
    assert_ne!(changed, "ok");
    assert_eq!(judged(&python, &second, &messages[2..]), ["ok"]);
    assert_ne!(judged(&python, &second, &messages[..1]), ["ok"]);
}

#[test]
fn a_daemon_that_is_killed_between_a_delivery_and_its_record_sends_it_again_under_the_same_id() {
    let receiver = Receiver::start(Answers::Never);
    let mut daemon = Daemon::start();
    add(&daemon, "ci", &receiver, &["agent:exit"]);
    daemon.post("/api/webhooks/ci/test", &json!({}));
    let first = wait_for("the delivery", || receiver.find("webhook:test"));
    daemon.kill();
    receiver.answer(Answers::Always(200));
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    let again = wait_for("the delivery after the kill", || receiver.all().into_iter().nth(1));
    assert_eq!((again.header(sign::ID), &again.body), (first.header(sign::ID), &first.body));
    wait_for("the record", || (webhook(&daemon, "ci")["taken"] == 1).then_some(()));
    assert_eq!(webhook(&daemon, "ci")["waiting"], 0);
}

/// The daemon is killed as soon as it has told a WebSocket client, at moments that move.
#[test]
fn whatever_an_agent_came_to_is_delivered_however_often_the_daemon_is_killed() {
    let receiver = Receiver::start(Answers::Always(200));
    let mut daemon = Daemon::start();
    add(&daemon, "ci", &receiver, &["agent:exit", "approval:request"]);
    let mut agents = Vec::new();
    let mut questions = Vec::new();
    for round in 0..12 {
        agents.push(daemon.spawn("quick"));
        let asked = daemon.post("/api/questions", &json!({"question": format!("round {round}?")}));
        questions.push(asked["questionId"].as_str().unwrap_or_default().to_owned());
        let last = agents.last().unwrap();
        if round % 3 > 0 {
            daemon.wait_state(
                last,
                if round % 3 == 1 { &["running", "idle", "completed"] } else { &["completed"] },
            );
        }
        daemon.kill();
        daemon = Daemon::start_in(daemon.folder(), &[]);
    }
    for id in &agents {
        daemon.wait_state(id, &["completed", "interrupted", "crashed"]);
    }
    let is_told = |kind: &str, field: &str, id: &str| {
        receiver.all().iter().any(|one| {
            let body = one.json();
            body["type"] == kind && body["data"].pointer(field).is_some_and(|found| found == id)
        })
    };
    for id in &agents {
        wait_for(&format!("word of {id}"), || is_told("agent:exit", "/agentId", id).then_some(()));
    }
    assert!(questions.iter().all(|id| !id.is_empty()), "{questions:?}");
    for id in &questions {
        wait_for(&format!("word of {id}"), || is_told("approval:request", "/data/id", id).then_some(()));
    }
    wait_for("nothing to wait", || (webhook(&daemon, "ci")["waiting"] == 0).then_some(()));
}

#[test]
fn a_receiver_that_never_answers_delays_neither_others_nor_the_daemons_end() {
    let (dead, quick) = (Receiver::start(Answers::Never), Receiver::start(Answers::Always(200)));
    let daemon = Daemon::start();
    add(&daemon, "dead", &dead, &["agent:exit"]);
    add(&daemon, "quick", &quick, &["agent:exit"]);
    daemon.post("/api/webhooks/dead/test", &json!({}));
    wait_for("the one that never answers", || dead.find("webhook:test"));
    let began = Instant::now();
    for n in 1..=5 {
        daemon.post("/api/webhooks/quick/test", &json!({}));
        wait_for("the quick one", || (quick.all().len() == n).then_some(()));
    }
    let shown = daemon.get("/api/webhooks/dead/messages");
    assert_eq!(shown["waiting"][0]["underWay"], true, "{shown}");
    let began = (began.elapsed(), Instant::now());
    assert_eq!(daemon.stop(), Some(0));
    let timeout = svc_sys::http::client::TRY_TIMEOUT;
    assert!(began.0 < timeout && began.1.elapsed() < timeout, "{began:?}: nobody waited for it");
}

#[test]
fn a_redirect_is_followed_nowhere_and_counts_as_a_refusal() {
    let private = Receiver::start(Answers::Always(200));
    let receiver = Receiver::start(Answers::Redirect(private.url("/inside")));
    let daemon = Daemon::start();
    add(&daemon, "ci", &receiver, &["agent:exit"]);
    daemon.post("/api/webhooks/ci/test", &json!({}));
    let shown = wait_for("the refusal", || {
        let shown = webhook(&daemon, "ci");
        shown["lastError"].as_str().is_some().then_some(shown)
    });
    assert!(shown["lastError"].as_str().unwrap().contains("not followed"), "{shown}");
    assert_eq!((private.all().len(), &shown["waiting"]), (0, &json!(1)));
}

#[test]
fn what_a_receiver_refuses_is_tried_again_and_taken_with_a_new_time_in_its_signature() {
    let receiver = Receiver::start(Answers::Always(500));
    let daemon = Daemon::start();
    let secret = add(&daemon, "ci", &receiver, &["agent:exit"]);
    daemon.post("/api/webhooks/ci/test", &json!({}));
    wait_for("the refusal", || (webhook(&daemon, "ci")["refused"] == 1).then_some(()));
    let shown = svc(&daemon, &["webhook", "show", "ci"]);
    assert!(shown.contains("waits") && shown.contains("status 500"), "{shown}");
    receiver.answer(Answers::Always(202));
    wait_for("the second try", || (webhook(&daemon, "ci")["taken"] == 1).then_some(()));
    let [first, second] = &receiver.all()[..] else { panic!("two tries") };
    let time = |got: &crate::support::receiver::Got| got.header(sign::TIMESTAMP).parse::<u64>().unwrap();
    assert_eq!(first.header(sign::ID), second.header(sign::ID));
    assert!(time(second) >= time(first) + 4, "{} {}", time(first), time(second));
    let key = sign::key_of(&secret).unwrap();
    let (id, at) = (second.header(sign::ID), time(second));
    assert!(sign::is_signed(&key, id, at, &second.body, second.header(sign::SIGNATURE)));
    let listed = svc(&daemon, &["webhook"]);
    assert!(listed.contains("ci") && listed.contains("agent:exit"), "{listed}");
}

#[test]
fn an_agent_neither_sees_nor_makes_webhooks() {
    let folder = Folder::new("webhooks-agent");
    let program = env!("CARGO_BIN_EXE_svc");
    let step = |args: &str| {
        let command = format!("{program} webhook {args} >> all 2>&1; true");
        json!({"run": {"command": command}})
    };
    let steps = json!({"steps": [
        step("list"), step("add http://127.0.0.1:9/ --events '*'"), step("test ci"), step("remove ci"),
        {"answer": "done"},
    ]});
    folder.write(".svc/rehearsals/curious.json", &steps.to_string());
    folder.write(".svc/config.json", crate::support::daemon::OPEN);
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    let receiver = Receiver::start(Answers::Always(200));
    add(&daemon, "ci", &receiver, &["plan:done"]);
    let id = daemon.spawn("curious");
    daemon.wait_state(&id, &["completed"]);
    let said = std::fs::read_to_string(daemon.project.join("all")).unwrap();
    assert_eq!(said.matches("may not do this").count(), 4, "{said}");
    assert_eq!((receiver.all().len(), webhook(&daemon, "ci")["taken"].clone()), (0, json!(0)));
}
