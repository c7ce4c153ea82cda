//! Two daemons on one machine: they are paired by a code, and only then may one look at the other's agents.

use crate::support::daemon::Daemon;
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use svc::credentials::{Sealed, Vault};
use svc::federation::envelope::Envelope;
use svc::federation::pairing;
use svc::federation::worker::KEY_NAME;
use svc_base::hex;

/// The key of a daemon, as only its own machine knows it: its vault opens it.
fn key_of(daemon: &Daemon) -> SigningKey {
    daemon.get("/api/federation/identity");
    let folder = daemon.project.join(".svc");
    let text = fs::read_to_string(folder.join("federation.key")).unwrap();
    let sealed: Sealed = serde_json::from_value(json!(text.trim())).unwrap();
    let secret = Vault::open_in(&folder, None).unwrap().open(KEY_NAME, &sealed).unwrap();
    SigningKey::from_bytes(&hex::bytes_32(secret.expose()).unwrap())
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn question(from: &Daemon, to: &Daemon, nonce: u128, ts: u64) -> Envelope {
    let key = key_of(from);
    let envelope = Envelope {
        from: pairing::peer_id(&key.verifying_key().to_bytes()),
        to: pairing::peer_id(&key_of(to).verifying_key().to_bytes()),
        kind: "agents.list".into(),
        nonce: format!("{nonce:032x}"),
        re: String::new(),
        ts,
        body: "{}".into(),
        signature: String::new(),
    };
    envelope.signed(&key)
}

fn send(to: &Daemon, envelope: &Envelope) -> (u16, String) {
    let (status, body) = to.send("POST", "/api/federation/envelope", &json!(envelope));
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

/// Both sides' pairing of `a`, who begins, with `b`.
fn begin(a: &Daemon, b: &Daemon) -> (Value, Value) {
    let own = a.post("/api/federation/peers", &json!({"url": b.url}));
    let theirs = b.get("/api/federation/peers")["pairings"][0].clone();
    (own, theirs)
}

fn pair(a: &Daemon, b: &Daemon) {
    let (own, theirs) = begin(a, b);
    for (daemon, pairing) in [(a, &own), (b, &theirs)] {
        let path = format!("/api/federation/pair/{}/confirm", pairing["id"].as_str().unwrap());
        daemon.post(&path, &json!({"code": own["code"]}));
    }
}

#[test]
fn decisions_13_two_daemons_pair_by_a_code_shown_on_both_sides_and_one_sees_the_others_agents() {
    let (a, b) = (Daemon::start(), Daemon::start());
    let file = a.project.join(".svc/federation.key");
    assert!(!file.exists(), "who has no peers has no key");
    let (identity_a, identity_b) = (a.get("/api/federation/identity"), b.get("/api/federation/identity"));
    assert_ne!(identity_a["id"], identity_b["id"]);
    assert_eq!(identity_a["publicKey"].as_str().unwrap().len(), 64);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let seed = hex::encode(&key_of(&a).to_bytes());
    assert!(!fs::read_to_string(&file).unwrap().contains(&seed), "the vault keeps the key sealed");

    let (own, theirs) = begin(&a, &b);
    assert_eq!(own["code"], theirs["code"]);
    assert_eq!(own["code"].as_str().unwrap().len(), 6);
    assert_eq!((&own["direction"], &theirs["direction"]), (&json!("outgoing"), &json!("incoming")));
    assert_eq!((&own["peerId"], &theirs["peerId"]), (&identity_b["id"], &identity_a["id"]));
    assert_eq!((&own["url"], &theirs["url"]), (&json!(b.url), &json!(a.url)));
    let id_a = identity_a["id"].as_str().unwrap();
    let id_b = identity_b["id"].as_str().unwrap();
    let view = format!("/api/federation/peers/{id_b}/agents");
    assert_eq!(a.send("GET", &view, &Value::Null).0, 404, "nobody has confirmed");

    let confirm = format!("/api/federation/pair/{}/confirm", own["id"].as_str().unwrap());
    assert_eq!(a.post(&confirm, &json!({"code": own["code"]}))["id"], id_b);
    let (status, problem) = a.send("GET", &view, &Value::Null);
    assert_eq!((status, &problem["code"]), (502, &json!("peer_refused")), "the other side has not confirmed");
    assert!(problem["error"].as_str().unwrap().contains("403"), "{problem}");
    assert_eq!(b.post(&confirm, &json!({}))["id"], id_a);

    b.post(
        "/api/agents",
        &json!({
            "role": "dev", "name": "far", "provider": "script", "model": "hang", "prompt": "a secret task",
        }),
    );
    let seen = a.get(&view);
    assert_eq!((&seen["agents"][0]["name"], &seen["peer"]["id"]), (&json!("far"), &json!(id_b)));
    assert!(!seen.to_string().contains("secret") && seen["agents"][0]["prompt"].is_null());
    assert_eq!(b.get(&format!("/api/federation/peers/{id_a}/agents"))["agents"], json!([]), "both ways");

    let folder = a.folder();
    assert_eq!(a.stop(), Some(0));
    let a = Daemon::start_in(folder, &[]);
    assert_eq!(a.get("/api/federation/identity")["publicKey"], identity_a["publicKey"], "the key is durable");
    assert_eq!(a.get(&view)["agents"][0]["name"], "far", "peers are durable");
    assert_eq!(b.send("DELETE", &format!("/api/federation/peers/{id_a}"), &Value::Null).0, 200);
    assert_eq!(a.send("GET", &view, &Value::Null).0, 502, "who was removed sees nothing any more");
    drop(b);
    let (status, problem) = a.send("GET", &view, &Value::Null);
    assert_eq!((status, &problem["code"]), (502, &json!("peer_unreachable")));
    let audit = a.get("/api/audit?event=federation").to_string();
    assert!(audit.contains("federation.pair") && audit.contains("federation.confirm"), "{audit}");
}

#[test]
fn decisions_13_replayed_tampered_and_late_envelopes_are_refused() {
    let (a, b) = (Daemon::start(), Daemon::start());
    assert_eq!(send(&b, &question(&a, &b, 1, now_ms())), (403, "not_a_peer".into()));
    pair(&a, &b);
    let good = question(&a, &b, 2, now_ms());
    let (status, answer) = b.send("POST", "/api/federation/envelope", &json!(good));
    assert_eq!((status, &answer["re"], &answer["kind"]), (200, &json!(good.nonce), &json!("answer")));
    assert_eq!(send(&b, &good), (409, "replayed".into()));
    let tampered = Envelope { body: "{\"all\":true}".into(), ..question(&a, &b, 3, now_ms()) };
    assert_eq!(send(&b, &tampered), (401, "bad_signature".into()));
    let moved = Envelope { ts: now_ms() + 1, ..question(&a, &b, 4, now_ms()) };
    assert_eq!(send(&b, &moved), (401, "bad_signature".into()), "a fresh time cannot be put on it");
    let stranger = question(&a, &b, 5, now_ms()).signed(&SigningKey::from_bytes(&[5; 32]));
    assert_eq!(send(&b, &stranger), (401, "bad_signature".into()));
    assert_eq!(
        send(&a, &question(&a, &b, 6, now_ms())),
        (403, "not_a_peer".into()),
        "sent back to its maker"
    );

    let six_minutes = u64::try_from(Duration::from_secs(360).as_millis()).unwrap();
    for ts in [now_ms() - six_minutes, now_ms() + six_minutes] {
        assert_eq!(send(&b, &question(&a, &b, u128::from(ts), ts)), (401, "outside_window".into()));
    }
    let kept = question(&a, &b, 7, now_ms());
    assert_eq!(send(&b, &kept).0, 200);
    let folder = b.folder();
    assert_eq!(b.stop(), Some(0));
    let b = Daemon::start_in(folder, &[]);
    assert_eq!(send(&b, &kept), (401, "outside_window".into()), "a restart does not forget what was taken");
    assert_eq!(send(&b, &question(&a, &b, 8, now_ms())).0, 200);
    for bad in [json!({}), json!({"from": 1}), json!([])] {
        assert_eq!(b.send("POST", "/api/federation/envelope", &bad).0, 400, "{bad}");
    }
}

#[test]
fn decisions_13_a_code_that_differs_and_a_daemons_own_address_are_refused() {
    let (a, b) = (Daemon::start(), Daemon::start());
    let (own, theirs) = begin(&a, &b);
    let confirm = format!("/api/federation/pair/{}/confirm", theirs["id"].as_str().unwrap());
    let wrong = if own["code"] == "000000" { "000001" } else { "000000" };
    let (status, problem) = b.send("POST", &confirm, &json!({"code": wrong}));
    assert_eq!((status, &problem["code"]), (409, &json!("code_mismatch")));
    assert_eq!(b.send("POST", &confirm, &json!({})).0, 404, "the pairing is dropped");
    assert_eq!(
        a.send("DELETE", &format!("/api/federation/pair/{}", own["id"].as_str().unwrap()), &Value::Null).0,
        200
    );
    assert_eq!(a.get("/api/federation/peers"), json!({"peers": [], "pairings": []}));

    let (status, problem) = a.send("POST", "/api/federation/peers", &json!({"url": a.url}));
    assert!(status == 502 && problem["error"].as_str().unwrap().contains("itself"), "{problem}");
    for bad in [
        json!({}),
        json!({"url": "ftp://x"}),
        json!({"url": "http://a/b"}),
        json!({"url": "http://u@h"}),
        json!({"url": 1}),
    ] {
        assert_eq!(a.send("POST", "/api/federation/peers", &bad).0, 400, "{bad}");
    }
    assert_eq!(a.send("POST", "/api/federation/peers", &json!({"url": "http://127.0.0.1:9"})).0, 502);
}

/// `svc peers` against one daemon: what it prints.
fn svc(daemon: &Daemon, words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["peers", "--project"])
        .arg(&daemon.project)
        .args(words)
        .env_remove("SVC_AGENT_ID")
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn two_people_pair_their_daemons_on_the_command_line() {
    let (a, b) = (Daemon::start(), Daemon::start());
    assert!(svc(&a, &[]).starts_with("no peers"));
    let told = svc(&a, &["add", &b.url]);
    let code = &told["code ".len().."code 123 456".len()];
    assert!(svc(&b, &[]).contains(code), "the other side shows {code}");
    let id = a.get("/api/federation/peers")["pairings"][0]["id"].as_str().unwrap().to_owned();
    assert!(svc(&a, &["confirm", &id]).contains("is a peer"));
    let peer = svc(&b, &["-q", "confirm", &id, &code.replace(' ', "")]);
    a.post("/api/agents", &json!({"role": "dev", "name": "near", "provider": "script", "model": "hang"}));
    assert!(svc(&b, &["agents", peer.trim()]).contains("near"));
    svc(&b, &["remove", peer.trim()]);
    assert!(svc(&b, &[]).starts_with("no peers"));
}

#[test]
fn a_key_that_the_vault_cannot_open_stops_the_federation_and_nothing_else() {
    let a = Daemon::start();
    a.get("/api/federation/identity");
    let folder = a.folder();
    let file = a.project.join(".svc/federation.key");
    assert_eq!(a.stop(), Some(0));
    fs::write(&file, "00".repeat(60)).unwrap();
    let a = Daemon::start_in(folder, &[]);
    let (status, problem) = a.send("GET", "/api/federation/identity", &Value::Null);
    assert_eq!((status, &problem["code"]), (503, &json!("federation_key_unreadable")), "{problem}");
    assert_eq!(a.send("POST", "/api/federation/peers", &json!({"url": "http://127.0.0.1:9"})).0, 503);
    assert_eq!(a.get("/api/health")["status"], "ok");
    fs::remove_file(&file).unwrap();
    assert_eq!(a.send("GET", "/api/federation/identity", &Value::Null).0, 200, "a new one is made");
}
