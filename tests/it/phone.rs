//! Phones on the wire: paired by a code over real TLS, held to their list of routes, refused as soon as
//! anything about them is wrong.

use crate::callers::{spawn_running, told};
use crate::support::daemon::Daemon;
use crate::support::phone::{Phone, invite};
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use svc::api::Method;
use svc::assembly::{phone_service, routes};

const ALL: [&str; 3] = ["look", "answer", "approve"];

fn svc(daemon: &Daemon, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(args).arg("--project").arg(&daemon.project).stdin(Stdio::null());
    let output = command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn audit(daemon: &Daemon, event: &str) -> Vec<Value> {
    let answer = daemon.get(&format!("/api/audit?event={event}"));
    answer["entries"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

/// A question that waits; its id.
fn question(daemon: &Daemon, words: &str) -> String {
    daemon.post("/api/questions", &json!({"question": words}))["approvalId"].as_str().unwrap().to_owned()
}

/// An approval that waits: an agent has written what is another's.
fn approval(daemon: &Daemon) -> String {
    let owner = json!({
        "role": "dev", "name": "owner", "provider": "script", "model": "hang", "prompt": "x", "scope": ["src/**"],
    });
    std::fs::create_dir_all(daemon.project.join(".svc/rehearsals")).unwrap();
    let rehearsal = daemon.project.join(".svc/rehearsals/hang.json");
    std::fs::write(rehearsal, r#"{"steps": [{"hang": true}]}"#).unwrap();
    daemon.post("/api/agents", &owner);
    let other = json!({"role": "dev", "name": "other", "provider": "script", "model": "hang", "prompt": "x",
        "scope": ["docs/**"]});
    let id = daemon.post("/api/agents", &other)["id"].as_str().unwrap().to_owned();
    let answer = daemon.post("/api/hooks/write", &json!({"agentId": id, "tool": "Edit", "path": "src/a.rs"}));
    answer["approvalId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn nothing_listens_for_phones_until_a_person_asks_and_after_the_last_one_is_gone() {
    let daemon = Daemon::start();
    assert_eq!(daemon.get("/api/phones"), json!({"phones": [], "listener": null, "codeOpen": false}));
    for wrong in ["0.0.0.0", "0.0.0.0:31450", "::", "[::]:1", "224.0.0.1", "example.org", "127.0.0.1:x"] {
        let (status, answer) = daemon.send("POST", "/api/phones/codes", &json!({"address": wrong}));
        assert_eq!((status, &answer["code"]), (400, &json!("validation_failed")), "{wrong}: {answer}");
    }
    // An address for examples, which no machine has.
    let (status, answer) = daemon.send("POST", "/api/phones/codes", &json!({"address": "192.0.2.7"}));
    assert_eq!((status, &answer["code"]), (409, &json!("address_not_ours")), "{answer}");
    assert!(daemon.get("/api/phones")["listener"].is_null());
    let (is_good, said) =
        svc(&daemon, &["pair", "--address", "127.0.0.1", "--name", "mine", "--may", "look"]);
    assert!(is_good && said.contains("https://127.0.0.1:") && said.contains("█"), "{said}");
    let fingerprint = daemon.get("/api/phones")["listener"]["fingerprint"].as_str().unwrap().to_owned();
    assert!(said.contains(&fingerprint), "{said}");
    let code = said.lines().find_map(|line| line.strip_prefix("code ")).unwrap().replace(' ', "");
    let mut phone = Phone::of(&daemon);
    let got = phone.pair(&code);
    assert_eq!((got.status, &got.body["name"], &got.body["rights"]), (201, &json!("mine"), &json!(["look"])));
    let (_, listed) = svc(&daemon, &["phones"]);
    assert!(listed.contains("mine") && listed.contains(&fingerprint), "{listed}");
    assert_eq!(phone.send("GET", "/api/phone/self", &Value::Null).status, 200);
    let (is_good, said) = svc(&daemon, &["phones", "revoke", "mine"]);
    assert!(is_good, "{said}");
    wait_for("nobody to listen", || TcpStream::connect(phone.address).is_err().then_some(()));
    assert!(daemon.get("/api/phones")["listener"].is_null());
    let events: Vec<Value> = audit(&daemon, "phone").iter().map(|one| one["event"].clone()).collect();
    assert_eq!(events, [json!("phone.revoke"), json!("phone.pair"), json!("phone.invite")]);
}

#[test]
fn a_paired_phone_sees_what_waits_and_decides_it_under_its_name() {
    let daemon = Daemon::start();
    let (asked, other) = (question(&daemon, "Which port?"), question(&daemon, "Which one?"));
    let phone = Phone::paired(&daemon, &ALL);
    let page = phone.ask("GET", "/phone", &[], "");
    let policy = page.header("content-security-policy");
    assert!(page.status == 200 && policy.starts_with("default-src 'none'"), "{} {policy}", page.status);
    let front = phone.ask("GET", "/", &[], "");
    assert_eq!((front.status, front.header("location")), (303, "/phone"));
    let mut socket = phone.socket(&phone.key, "&types=output").unwrap();
    let waiting = phone.send("GET", "/api/approvals", &Value::Null);
    assert_eq!(waiting.body["pending"].as_array().unwrap().len(), 2);
    assert_eq!(phone.send("GET", &format!("/api/approvals/{asked}/card"), &Value::Null).status, 200);
    let began = Instant::now();
    let path = format!("/api/approvals/{asked}/approve");
    let got = phone.send("POST", &path, &json!({"reason": "31415"}));
    assert_eq!((got.status, &got.body["resolvedBy"]), (200, &json!("phone:phone")), "{}", got.body);
    let message = loop {
        let tungstenite::Message::Text(text) = socket.read().unwrap() else { continue };
        let message = serde_json::from_str::<Value>(&text).unwrap();
        // The state is what every client hears first.
        if message["type"] != "state" {
            break message;
        }
    };
    assert_eq!((&message["type"], &message["data"]["id"]), (&json!("approval:resolved"), &json!(asked)));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let path = format!("/api/approvals/{other}/reject");
    assert_eq!(phone.send("POST", &path, &json!({})).status, 200);
    let actors: BTreeSet<String> =
        audit(&daemon, "approval").iter().map(|one| one["actor"].as_str().unwrap().to_owned()).collect();
    assert!(actors.contains("phone:phone"), "{actors:?}");
    assert!(daemon.get("/api/phones")["phones"][0]["lastSeen"].is_string());
    // Nothing that proves it is kept.
    let files = ["state/phones.json", "audit.jsonl", "daemon.log", "config.json"];
    for file in files.map(|file| daemon.project.join(".svc").join(file)) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(!text.contains(&phone.key) && !text.contains(&phone.cookie), "{}", file.display());
    }
}

#[test]
fn a_phone_decides_only_what_it_was_given_the_right_to() {
    let daemon = Daemon::start();
    let asked = question(&daemon, "Which port?");
    let gate = approval(&daemon);
    let decide = |phone: &Phone, id: &str| {
        let got = phone.send("POST", &format!("/api/approvals/{id}/reject"), &json!({}));
        (got.status, got.body["code"].as_str().unwrap_or_default().to_owned())
    };
    let no = || (403, "phone_may_not".to_owned());
    let looks = Phone::paired(&daemon, &["look"]);
    assert_eq!(looks.send("GET", "/api/approvals", &Value::Null).status, 200);
    assert_eq!((decide(&looks, &asked), decide(&looks, &gate)), (no(), no()));
    let answers = Phone::paired(&daemon, &["answer"]);
    assert_eq!(decide(&answers, &gate), no());
    assert_eq!(decide(&answers, &asked).0, 200);
    let asked = question(&daemon, "And now?");
    let approves = Phone::paired(&daemon, &["approve"]);
    assert_eq!(decide(&approves, &asked), no());
    assert_eq!(decide(&approves, &gate).0, 200);
    let names: Vec<Value> = daemon.get("/api/phones")["phones"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names.iter().filter(|name| name.as_str().unwrap().starts_with("phone")).count(), 3);
}

/// Every route that there is, with what stands on the lists left out.
#[test]
fn a_phone_gets_403_on_every_route_that_is_not_on_its_list_and_a_stranger_401() {
    let daemon = Daemon::start();
    let phone = Phone::paired(&daemon, &ALL);
    let mut stranger = phone.clone();
    (stranger.cookie, stranger.key) = (String::new(), String::new());
    let lists = [&phone_service::OF_ALL[..], &phone_service::LOOKS[..], &phone_service::DECIDES[..]].concat();
    let (table, mut refused) = (routes::table(), 0);
    assert!(
        lists.iter().all(|(method, path)| table
            .routes()
            .iter()
            .any(|one| one.method == *method && one.path == *path))
    );
    for route in table.routes() {
        let path = route.path.split('/').map(|part| if part.starts_with(':') { "00000001" } else { part });
        let path = path.collect::<Vec<_>>().join("/");
        let is_listed = lists.contains(&(route.method.clone(), route.path));
        // The console's front leads to the page for phones.
        if is_listed || path == "/" {
            continue;
        }
        let method = route.method.to_string();
        let got = phone.send(&method, &path, &Value::Null);
        assert_eq!(got.code(), (403, "phone_may_not"), "{method} {path}: {}", got.body);
        let got = stranger.ask(&method, &path, &[], "");
        assert_eq!(got.code(), (401, "phone_not_paired"), "{method} {path}: {}", got.body);
        refused += 1;
    }
    assert!(refused > 150, "{refused}");
    for (method, path) in phone_service::LOOKS.iter().chain(&phone_service::DECIDES) {
        let got = stranger.ask(&method.to_string(), &path.replace(":id", "apr-00000001"), &[], "");
        assert_eq!(got.code(), (401, "phone_not_paired"), "{method} {path}: {}", got.body);
    }
    for method in [Method::Options, Method::Put, Method::Delete] {
        let got = phone.send(&method.to_string(), "/api/approvals", &Value::Null);
        assert_eq!(got.code(), (403, "phone_may_not"), "{method}: {}", got.body);
    }
    for path in ["/p/other/api/agents", "/api/nothing", "/ws", "/api/ws", "//api/config", "/api/%63onfig"] {
        let got = phone.send("GET", path, &Value::Null);
        assert_eq!(got.code(), (403, "phone_may_not"), "{path}: {}", got.body);
    }
    // Proofs of others are none here.
    let token = std::fs::read_to_string(daemon.project.join(".svc/token")).unwrap();
    let bearer = format!("Authorization: Bearer {}", token.trim());
    assert_eq!(stranger.ask("GET", "/api/config", &[&bearer], "").code(), (401, "phone_not_paired"));
    // And a phone is nobody elsewhere.
    let proof = phone.proof();
    let proof: Vec<&str> = proof.iter().map(String::as_str).chain(["Origin: https://127.0.0.1:1"]).collect();
    let (status, answer) =
        crate::callers::raw(&daemon, "DELETE", &format!("/api/phones/{}", phone.id), &proof, "");
    assert_eq!((status, &answer["code"]), (403, &json!("prove_yourself")), "{answer}");
    assert_eq!(daemon.get("/api/phones")["phones"].as_array().unwrap().len(), 1);
}

#[test]
fn a_stolen_cookie_another_origin_or_another_name_opens_nothing() {
    let daemon = Daemon::start();
    let phone = Phone::paired(&daemon, &ALL);
    let [cookie, key] = &phone.proof()[..] else { panic!("two halves") };
    let host = format!("Host: {}", phone.address);
    let own = format!("Origin: https://{}", phone.address);
    let ask = |headers: &[&str]| {
        let got = phone.ask("GET", "/api/approvals", headers, "");
        (got.status, got.body["code"].as_str().unwrap_or_default().to_owned())
    };
    let is = |status, code: &str| (status, code.to_owned());
    assert_eq!(ask(&[cookie, key, &own]).0, 200);
    assert_eq!(ask(&[cookie]), is(401, "phone_not_paired"), "the cookie, which browsers send to every port");
    assert_eq!(ask(&[key]), is(401, "phone_not_paired"), "the key, which a page has");
    assert_eq!(ask(&[cookie, cookie, key]), is(401, "phone_not_paired"), "a planted one beside it");
    for origin in ["https://127.0.0.1:1", "http://localhost:3000", "https://evil.example", "null"] {
        let origin = format!("Origin: {origin}");
        assert_eq!(ask(&[cookie, key, &origin]), is(403, "origin_not_allowed"), "{origin}");
    }
    assert_eq!(ask(&[cookie, key, &own, &own]), is(403, "origin_not_allowed"));
    for site in ["same-site", "cross-site"] {
        let site = format!("Sec-Fetch-Site: {site}");
        assert_eq!(ask(&[cookie, key, &site]), is(403, "cross_site"), "{site}");
    }
    // A name that was made to lead here.
    for name in ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1"] {
        let name = format!("Host: {name}");
        assert_eq!(ask(&[cookie, key, &name]), is(403, "host_not_allowed"), "{name}");
    }
    assert_eq!(ask(&[cookie, key, &host, &host]), is(400, "host_doubled"));
    assert!(phone.socket("", "").is_err() && phone.socket(&phone.cookie, "").is_err());
    let mut thief = phone.clone();
    thief.cookie = phone.key.clone();
    assert!(thief.socket(&phone.key, "").is_err());
    // Guesses are braked, and told.
    for _ in 0..12 {
        ask(&["Cookie: __Host-svc-phone=a", "Svc-Phone: b"]);
    }
    assert_eq!(ask(&["Cookie: __Host-svc-phone=a", "Svc-Phone: b"]), is(429, "too_many_wrong_tokens"));
    assert_eq!(ask(&[cookie, key]).0, 200, "the right one is taken all the same");
    assert!(!audit(&daemon, "token.wrong").is_empty());
}

#[test]
fn a_code_is_good_once_and_a_million_are_not_tried_over_many_connections() {
    let daemon = Daemon::start();
    let code = invite(&daemon, &ALL);
    let mut phone = Phone::of(&daemon);
    assert_eq!(phone.pair(&code).status, 201);
    assert_eq!(phone.pair(&code).code(), (403, "code_not_good"), "replayed");
    let code = invite(&daemon, &ALL);
    let wrong = format!("{:06}", (code.parse::<u32>().unwrap() + 1) % 1_000_000);
    let began = Instant::now();
    // From many connections at once, until it is void.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let mut phone = phone.clone();
            let (daemon, wrong) = (&daemon, &wrong);
            scope.spawn(move || {
                wait_for("the code to be void", || {
                    let got = phone.pair(wrong);
                    assert!(matches!(got.code(), (403, "code_not_good") | (429, "too_soon")), "{}", got.body);
                    (daemon.get("/api/phones")["codeOpen"] == false).then_some(())
                });
            });
        }
    });
    assert!(
        began.elapsed() >= Duration::from_secs(4),
        "each wrong try costs a moment: {:?}",
        began.elapsed()
    );
    assert_eq!(phone.pair(&code).code(), (403, "code_not_good"), "it is void");
    let tries =
        wait_for("the record", || Some(audit(&daemon, "phone.wrong-code")).filter(|all| all.len() == 5));
    assert!(tries.iter().all(|one| one.to_string().contains("127.0.0.1")), "{tries:?}");
    assert!(!daemon.log().contains(&code), "a code is in no file");
    assert_eq!(daemon.get("/api/phones")["phones"].as_array().unwrap().len(), 1);
}

#[test]
fn a_revoked_phone_is_out_at_once_with_its_open_websocket() {
    let daemon = Daemon::start();
    let (gone, stays) = (Phone::paired(&daemon, &ALL), Phone::paired(&daemon, &ALL));
    let asked = question(&daemon, "Which port?");
    let mut socket = gone.socket(&gone.key, "").unwrap();
    let mut line = gone.connect().unwrap();
    assert_eq!(daemon.send("DELETE", &format!("/api/phones/{}", gone.id), &Value::Null).0, 200);
    let ended = loop {
        match socket.read() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(
        !matches!(&ended, tungstenite::Error::Io(error) if error.kind() == ErrorKind::WouldBlock),
        "{ended}"
    );
    let mut byte = [0];
    assert!(!matches!(line.read(&mut byte), Ok(1)), "a connection that waits has ended, too");
    let path = format!("/api/approvals/{asked}/approve");
    assert_eq!(gone.send("POST", &path, &json!({"reason": "x"})).code(), (401, "phone_not_paired"));
    assert!(gone.socket(&gone.key, "").is_err());
    assert_eq!(stays.send("POST", &path, &json!({"reason": "x"})).status, 200, "the other one stays");
}

#[test]
fn phones_and_their_certificate_outlive_a_kill_of_the_daemon() {
    let mut daemon = Daemon::start();
    let phone = Phone::paired(&daemon, &ALL);
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    // The same address, and what it trusts is what it was given.
    assert_eq!(phone.send("GET", "/api/phone/self", &Value::Null).status, 200);
    assert_eq!(daemon.send("DELETE", "/api/phones/phone", &Value::Null).0, 200);
    let mut daemon = daemon;
    daemon.kill();
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    assert!(daemon.get("/api/phones")["listener"].is_null());
    assert!(phone.connect().is_err());
}

#[test]
fn an_agents_process_gets_nothing_at_the_phones_door_whatever_it_shows() {
    let daemon = Daemon::start_open();
    let phone = Phone::paired(&daemon, &ALL);
    let script = daemon.project.join("thief.py");
    let [cookie, key] = &phone.proof()[..] else { panic!("two halves") };
    let text = format!(
        "import http.client, ssl, json, sys\n\
         context = ssl._create_unverified_context()\n\
         line = http.client.HTTPSConnection('{}', {}, context=context)\n\
         line.putrequest('GET', sys.argv[2])\n\
         for one in ({cookie:?}, {key:?}):\n    line.putheader(*one.split(': ', 1))\n\
         line.endheaders()\n\
         got = line.getresponse()\n\
         open(sys.argv[1] + '.new', 'w').write(str(got.status) + ' ' + json.loads(got.read())['code'])\n\
         import os; os.rename(sys.argv[1] + '.new', sys.argv[1])\n",
        phone.address.ip(),
        phone.address.port()
    );
    std::fs::write(&script, text).unwrap();
    for (n, path) in ["/api/approvals", "/phone"].iter().enumerate() {
        let result = format!("thief-{n}");
        let command =
            format!("python3 {} {} {path}", script.display(), daemon.project.join(&result).display());
        spawn_running(&daemon, &result, &command);
        assert_eq!(told(&daemon, &result), "403 phone_may_not", "{path}");
    }
    assert_eq!(phone.send("GET", "/api/approvals", &Value::Null).status, 200);
}

fn threads(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().count()
}

#[test]
fn whoever_speaks_no_tls_or_nothing_at_all_holds_no_more_than_a_place() {
    let daemon = Daemon::start();
    let phone = Phone::paired(&daemon, &ALL);
    // In the open.
    let mut plain = TcpStream::connect(phone.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("GET /phone HTTP/1.1\r\nHost: {}\r\n\r\n", phone.address);
    plain.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/"), "{answer:?}");
    // Hundreds that say nothing, or the first byte of a handshake.
    let before = threads(&daemon);
    let began = Instant::now();
    let silent: Vec<TcpStream> = (0..300)
        .map(|n| {
            let mut stream = TcpStream::connect(phone.address).unwrap();
            if n % 2 == 0 {
                // It may have had to go already.
                let _ = stream.write_all(&[22]);
            }
            stream
        })
        .collect();
    let most = threads(&daemon);
    let limit = phone_service::limits().connections;
    let most_there_may_be = before + limit + svc_sys::tls::MAX_PUMPS + 16;
    assert!(most <= most_there_may_be, "{before} threads, then {most}");
    assert_eq!(
        phone.send("GET", "/api/approvals", &Value::Null).status,
        200,
        "a phone is served all the while"
    );
    let mut last = silent.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut byte = [0];
    let ended = last.read(&mut byte);
    assert!(
        !matches!(ended, Ok(1)) && began.elapsed() < Duration::from_secs(25),
        "{ended:?} {:?}",
        began.elapsed()
    );
    drop(silent);
    wait_for("their threads to end", || (threads(&daemon) <= before + 8).then_some(()));
}
