//! Phones told while their page is closed: messages that a push service takes, that public libraries verify
//! and decrypt, and that reach nothing they should not.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::phone::Phone;
use crate::support::push::{AUTH, Answers, Got, KEY, PRIVATE, PushService};
use crate::support::real::doors;
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::{base64, hex};

const ALL: [&str; 3] = ["look", "answer", "approve"];

/// A daemon whose person runs this push service.
fn daemon(service: &PushService) -> Daemon {
    let folder = Folder::new("push");
    folder.write(".svc/user/svc/config.json", &service.settings().to_string());
    Daemon::start_in(Arc::new(folder), &[])
}

/// A phone that wants to be told at this path.
fn subscribed(daemon: &Daemon, service: &PushService, path: &str) -> Phone {
    let phone = Phone::paired(daemon, &ALL);
    let got = phone.send("POST", "/api/phone/push", &service.subscription(path));
    assert_eq!((got.status, &got.body["push"]["host"]), (200, &json!("127.0.0.1")), "{}", got.body);
    phone
}

/// A question that waits; its id.
fn question(daemon: &Daemon, words: &str) -> String {
    daemon.post("/api/questions", &json!({"question": words}))["approvalId"].as_str().unwrap().to_owned()
}

/// What the daemon tells of a phone's subscription.
fn push_of(daemon: &Daemon, phone: &Phone) -> Value {
    let all = daemon.get("/api/phones");
    let is_it = |one: &&Value| one["id"] == phone.id;
    all["phones"].as_array().unwrap().iter().find(is_it).unwrap()["push"].clone()
}

/// The threads that tell phones.
fn threads(daemon: &Daemon) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "push").count()
}

/// What the libraries make of a message: its claims and its text, or what is wrong. `None` where they are not
/// installed.
fn opened(got: &Got) -> Option<Value> {
    const SCRIPT: &str = "
import base64, json, sys
import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02
def raw(text):
    return base64.urlsafe_b64decode(text + '=' * (-len(text) % 4))
asked = json.load(sys.stdin)
out = {'verified': bool(Vapid02.verify(asked['authorization']))}
token = asked['authorization'].split('t=')[1].split(',')[0]
out['claims'] = json.loads(raw(token.split('.')[1]))
key = ec.derive_private_key(int.from_bytes(raw(asked['private']), 'big'), ec.SECP256R1())
body, secret = bytes.fromhex(asked['body']), raw(asked['auth'])
text = http_ece.decrypt(body, private_key=key, auth_secret=secret, version='aes128gcm')
out['text'] = json.loads(text)
json.dump(out, sys.stdout)
";
    let python = doors("http-ece and py-vapid")?.join("bin/python");
    let mut command = Command::new(python);
    let mut child = command
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = json!({
        "authorization": got.header("authorization"), "private": PRIVATE, "auth": AUTH,
        "body": hex::encode(&got.body),
    });
    child.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn what_starts_to_wait_is_pushed_signed_encrypted_and_without_what_is_asked() {
    let service = PushService::start();
    let daemon = daemon(&service);
    assert!(!daemon.project.join(".svc/state/phone-push.json").exists(), "no key before it is needed");
    let phone = subscribed(&daemon, &service, "/push/secret-part");
    let key = phone.send("GET", "/api/phone/push", &Value::Null).body["key"].as_str().unwrap().to_owned();
    assert_eq!(base64::decode_for_url(&key).map(|key| key.len()), Some(65));
    let file = daemon.project.join(".svc/state/phone-push.json");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(threads(&daemon), 0, "nobody is told yet");
    let began = Instant::now();
    let id = question(&daemon, "Is the password hunter2?");
    let got = wait_for("the message", || service.all().into_iter().next());
    assert!(got.at - began < Duration::from_secs(2), "{:?}", got.at - began);
    let lines = ["content-encoding", "urgency", "topic"].map(|name| got.header(name));
    assert_eq!((got.path.as_str(), lines), ("/push/secret-part", ["aes128gcm", "high", "svc"]));
    let kept: u64 = got.header("ttl").parse().unwrap();
    assert!((86_300..=86_400).contains(&kept), "as long as it can be decided: {kept}");
    assert!(got.header("authorization").ends_with(&format!(",k={key}")));
    assert_eq!(got.body.len(), 86 + 512 + 16, "whatever it says");
    wait_for("the record", || (push_of(&daemon, &phone)["sent"] == 1).then_some(()));
    // Another of the kind that has a card.
    question(&daemon, "x");
    let second = wait_for("the second", || service.all().into_iter().nth(1));
    assert_eq!(second.body.len(), got.body.len());
    for text in [
        daemon.get("/api/phones").to_string(),
        std::fs::read_to_string(daemon.project.join(".svc/audit.jsonl")).unwrap(),
        daemon.log(),
    ] {
        assert!(!text.contains("secret-part") && !text.contains(AUTH), "{text}");
    }
    let Some(told) = opened(&got) else { return };
    let name = phone.send("GET", "/api/phone/self", &Value::Null).body["project"].clone();
    let expected = json!({"id": id, "title": "operator asks you", "project": name, "more": 0});
    assert_eq!((&told["verified"], &told["text"]), (&json!(true), &expected));
    let claims = &told["claims"];
    assert_eq!((&claims["aud"], &claims["sub"]), (&json!(service.origin()), &json!("mailto:me@example.org")));
    let left = claims["exp"].as_u64().unwrap() - svc_sys::clock::now().0 / 1_000;
    assert!((11 * 3_600..24 * 3_600).contains(&left), "{left}");
    assert_eq!(opened(&second).unwrap()["text"]["more"], 1);
}

#[test]
fn what_is_no_subscription_of_ones_own_is_refused() {
    let service = PushService::start();
    let daemon = daemon(&service);
    let (phone, other) = (subscribed(&daemon, &service, "/a"), Phone::paired(&daemon, &["look"]));
    let good = service.subscription("/b");
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let mut off = base64::decode_for_url(KEY).unwrap();
    off[64] ^= 1;
    let off = base64::encode_for_url(&off);
    for (field, value) in [
        ("endpoint", json!(format!("http://127.0.0.1:{}/b", service.port))),
        ("endpoint", json!("https://127.0.0.2/b")),
        ("endpoint", json!("https://localhost/b")),
        ("endpoint", json!("https://2130706433/b")),
        ("endpoint", json!("https://[::ffff:127.0.0.1]/b")),
        ("endpoint", json!("https://169.254.169.254/latest/meta-data")),
        ("endpoint", json!("https://10.0.0.1/b")),
        ("endpoint", json!("https://1.1.1.1:25/b")),
        ("endpoint", json!("https://127.0.0.1@1.1.1.1/b")),
        ("endpoint", json!(format!("https://127.0.0.1/{}", "b".repeat(1_000)))),
        ("endpoint", json!("https://no-such-host.invalid/b")),
        ("endpoint", json!(7)),
        ("p256dh", json!(off)),
        ("p256dh", json!(&KEY[1..])),
        ("p256dh", json!(format!("{KEY}="))),
        ("p256dh", json!("BA")),
        ("auth", json!(&AUTH[4..])),
        ("auth", json!("")),
        ("auth", Value::Null),
    ] {
        let got = other.send("POST", "/api/phone/push", &with(field, value.clone()));
        assert_eq!(got.code(), (400, "validation_failed"), "{field} {value}: {}", got.body);
        assert_eq!(got.body["errors"][0]["field"], field, "{}", got.body);
    }
    let stolen = json!({"endpoint": format!("{}/a", service.origin()), "p256dh": KEY, "auth": &AUTH.replace("BT", "CT")});
    assert_eq!(other.send("POST", "/api/phone/push", &stolen).code(), (409, "push_address_taken"));
    assert!(push_of(&daemon, &other).is_null() && push_of(&daemon, &phone)["host"] == "127.0.0.1");
    // A stranger, and a person at the machine: it is a phone's.
    let stranger = Phone::of(&daemon);
    for (method, body) in [("GET", &Value::Null), ("POST", &good), ("DELETE", &Value::Null)] {
        assert_eq!(stranger.send(method, "/api/phone/push", body).status, 401);
        assert_eq!(daemon.send(method, "/api/phone/push", body).0, 401);
    }
    // Said again it is the same; and no more of it.
    for _ in 0..3 {
        assert_eq!(phone.send("POST", "/api/phone/push", &service.subscription("/a")).status, 200);
    }
    question(&daemon, "One?");
    wait_for("the message", || (push_of(&daemon, &phone)["sent"] == 1).then_some(()));
    assert_eq!(service.all().len(), 1);
    let got = phone.send("DELETE", "/api/phone/push", &Value::Null);
    assert!(got.status == 200 && got.body["push"].is_null(), "{}", got.body);
    question(&daemon, "Two?");
    // The same browser, paired anew, takes its place with it.
    assert_eq!(other.send("POST", "/api/phone/push", &service.subscription("/a")).status, 200);
    question(&daemon, "Three?");
    wait_for("the message", || (push_of(&daemon, &other)["sent"] == 1).then_some(()));
    assert_eq!(service.all().len(), 2, "of the second question nobody was told");
}

#[test]
fn a_service_that_hangs_delays_nobody_else_and_a_revoked_phone_is_cut_off() {
    let (hangs, quick) = (PushService::start(), PushService::start());
    let folder = Folder::new("push");
    // Each has an authority of its own.
    let both = ["push.pem"].map(|name| {
        let of = |service: &PushService| {
            let path = service.settings()["push"]["certificate"].as_str().unwrap().to_owned();
            std::fs::read_to_string(path).unwrap()
        };
        folder.write(name, &format!("{}{}", of(&hangs), of(&quick)));
        folder.path().join(name)
    });
    let settings = json!({"push": {"own": ["127.0.0.1"], "certificate": both[0]}});
    folder.write(".svc/user/svc/config.json", &settings.to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    let slow = subscribed(&daemon, &hangs, "/slow");
    let other = subscribed(&daemon, &quick, "/quick");
    hangs.answer(Answers::Never);
    quick.answer(Answers::Endless(201));
    let began = Instant::now();
    question(&daemon, "One?");
    wait_for("the other's message", || (push_of(&daemon, &other)["sent"] == 1).then_some(()));
    assert!(began.elapsed() < Duration::from_secs(2), "an endless yes is a yes: {:?}", began.elapsed());
    wait_for("the slow one's message", || (hangs.all().len() == 1).then_some(()));
    assert_eq!((threads(&daemon), &push_of(&daemon, &slow)["sent"]), (2, &json!(0)));
    assert_eq!(daemon.send("DELETE", &format!("/api/phones/{}", slow.id), &Value::Null).0, 200);
    // Long before its request times out.
    wait_within(Duration::from_secs(5), "its thread to end", || (threads(&daemon) == 1).then_some(()));
    let stored = std::fs::read_to_string(daemon.project.join(".svc/state/phones.json")).unwrap();
    assert!(!stored.contains("/slow") && stored.contains("/quick"), "{stored}");
    question(&daemon, "Two?");
    wait_for("the other's message", || (push_of(&daemon, &other)["sent"] == 2).then_some(()));
    assert_eq!(hangs.all().len(), 1, "nothing more goes to a phone that is revoked");
    // An endless no is read as far as it says why.
    quick.answer(Answers::Endless(400));
    question(&daemon, "Three?");
    wait_for("the refusal", || {
        push_of(&daemon, &other)["lastError"]
            .as_str()
            .filter(|why| why.starts_with("status 400: xxx"))
            .map(drop)
    });
    daemon.send("DELETE", &format!("/api/phones/{}", other.id), &Value::Null);
    wait_for("all threads to end", || (threads(&daemon) == 0).then_some(()));
}

#[test]
fn a_service_is_heeded_that_says_later_or_never_again_and_not_followed_elsewhere() {
    let (service, elsewhere) = (PushService::start(), PushService::start());
    let daemon = daemon(&service);
    let phone = subscribed(&daemon, &service, "/a");
    service.answer(Answers::With(307, format!("Location: {}/stolen\r\n", elsewhere.origin())));
    question(&daemon, "One?");
    let why = wait_for("the refusal", || push_of(&daemon, &phone)["lastError"].as_str().map(str::to_owned));
    assert!(why.contains("not followed") && elsewhere.all().is_empty(), "{why}");
    let mut phones = Command::new(env!("CARGO_BIN_EXE_svc"));
    let output = phones.args(["phones", "--project"]).arg(&daemon.project).output().unwrap();
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(listed.contains("127.0.0.1: status 307"), "{listed}");
    assert_eq!(push_of(&daemon, &phone)["waiting"], 0, "it would say so again");
    service.answer(Answers::With(429, "Retry-After: 7\r\n".into()));
    let decided = question(&daemon, "Two?");
    wait_for("the first try", || (service.all().len() == 2).then_some(()));
    service.answer(Answers::With(201, String::new()));
    // What is decided meanwhile is not told; the next thing is, when the service wants to hear again.
    daemon.post(&format!("/api/approvals/{decided}/reject"), &json!({}));
    let third = question(&daemon, "Three?");
    let got = wait_for("the second try", || service.all().into_iter().nth(2));
    let waited = got.at - service.all()[1].at;
    assert!(waited >= Duration::from_secs(7), "{waited:?}");
    if let Some(told) = opened(&got) {
        assert_eq!(told["text"]["id"], json!(third));
    }
    wait_for("the record", || (push_of(&daemon, &phone)["waiting"] == 0).then_some(()));
    service.answer(Answers::With(410, String::new()));
    question(&daemon, "Four?");
    wait_for("it to be forgotten", || push_of(&daemon, &phone).is_null().then_some(()));
    wait_for("the line of that", || {
        let told = daemon.get("/api/audit?event=phone.push-gone");
        (told["entries"].as_array().unwrap().len() == 1).then_some(())
    });
    question(&daemon, "Five?");
    wait_for("its thread to end", || (threads(&daemon) == 0).then_some(()));
    assert_eq!(service.all().len(), 4);
}

#[test]
fn a_daemon_that_is_killed_before_it_knows_of_a_yes_tells_again_and_then_never() {
    let service = PushService::start();
    let mut daemon = daemon(&service);
    let phone = subscribed(&daemon, &service, "/a");
    let key = phone.send("GET", "/api/phone/push", &Value::Null).body["key"].clone();
    service.answer(Answers::Never);
    let id = question(&daemon, "One?");
    wait_for("the message", || (service.all().len() == 1).then_some(()));
    daemon.kill();
    service.answer(Answers::With(201, String::new()));
    let mut daemon = Daemon::start_in(daemon.folder(), &[]);
    let again = wait_for("the message after the kill", || service.all().into_iter().nth(1));
    if let Some(told) = opened(&again) {
        assert_eq!(told["text"]["id"], json!(id), "a phone shows it in the place of the first");
    }
    wait_for("the record", || (push_of(&daemon, &phone)["waiting"] == 0).then_some(()));
    assert_eq!(phone.send("GET", "/api/phone/push", &Value::Null).body["key"], key, "the key stays");
    wait_for("it to be on the disk", || {
        let text = std::fs::read_to_string(daemon.project.join(".svc/state/phones.json")).unwrap();
        let stored: Value = serde_json::from_str(&text).unwrap();
        (stored["phones"][0]["push"]["sent"] == 1).then_some(())
    });
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    daemon.post(&format!("/api/approvals/{id}/approve"), &json!({"reason": "so"}));
    question(&daemon, "Two?");
    wait_for("the next message", || (push_of(&daemon, &phone)["sent"] == 2).then_some(()));
    assert_eq!(service.all().len(), 3, "what was told is told no more");
}
