//! Credentials of integrations and their consent flow, against the built daemon and an authorisation server
//! of our own.

use crate::support::daemon::Daemon;
use crate::support::mcp::{SERVER, add, exec, record, text};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use svc::api::parse_query;
use svc_base::base64;

const PLANTED: &str = "planted-token-0123456789";

/// Every file below a folder whose bytes hold `needle`.
fn files_with(folder: &Path, needle: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, needle, found);
        } else if entry.file_type().unwrap().is_file()
            && fs::read(&path).unwrap().windows(needle.len()).any(|part| part == needle.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn decisions_11_a_credential_reaches_its_server_and_nothing_else() {
    let daemon = Daemon::start();
    add(&daemon, "hub", &[]);
    add(&daemon, "other", &[]);
    let path = "/api/integrations/hub/credentials";
    let (status, body) = daemon.send("POST", path, &json!({"key": "NONSENSE", "value": PLANTED}));
    assert_eq!(status, 400);
    assert!(!body.to_string().contains(PLANTED) && body.to_string().contains("TEST_TOKEN"), "{body}");
    let body = json!({"key": "TEST_TOKEN", "value": PLANTED});
    assert_eq!(daemon.send("POST", "/api/integrations/nonsense/credentials", &body).0, 404);
    let (status, answer) = daemon.send("POST", path, &body);
    assert_eq!((status, &answer["ok"], &answer["masked"]), (200, &json!(true), &json!("plan...6789")));
    assert_eq!(record(&daemon, "hub")["env"][0]["set"], true);
    let environment = |id: &str| text(&daemon, id, "environment", &json!({}));
    assert!(environment("hub").contains(PLANTED));
    assert!(!environment("other").contains(PLANTED), "another integration does not get it");
    // The server prints it to standard error and into error messages.
    let (_, refused) = exec(&daemon, "hub", "refuse", &json!({}));
    let (_, crashed) = exec(&daemon, "hub", "crash", &json!({}));
    for body in [refused, crashed, record(&daemon, "hub"), daemon.get("/api/credentials")] {
        assert!(!body.to_string().contains(PLANTED), "{body}");
    }
    let mut found = Vec::new();
    files_with(&daemon.project.join(".svc"), PLANTED, &mut found);
    assert_eq!(found, Vec::<String>::new(), "it stands in plain text on disk");
    let (status, _) = daemon.send("DELETE", &format!("{path}/TEST_TOKEN"), &Value::Null);
    assert_eq!(status, 200);
    assert_eq!(daemon.send("DELETE", &format!("{path}/TEST_TOKEN"), &Value::Null).0, 404);
    assert!(!environment("hub").contains(PLANTED), "its server was started anew without it");
}

#[test]
fn decisions_11_required_credentials_make_an_integration_configured() {
    let daemon = Daemon::start();
    let body = json!({"id": "hub", "command": "python3", "args": [SERVER], "env": ["TEST_TOKEN"]});
    assert_eq!(daemon.send("POST", "/api/integrations", &body).1["configured"], false);
    let credential = json!({"key": "TEST_TOKEN", "value": PLANTED});
    assert_eq!(daemon.send("POST", "/api/integrations/hub/credentials", &credential).0, 200);
    assert_eq!(record(&daemon, "hub")["configured"], true);
    daemon.send("DELETE", "/api/integrations/hub", &Value::Null);
    assert_eq!(daemon.get("/api/credentials"), json!([]), "removed with the integration");
}

/// An authorisation server that knows PKCE; each access token is `access-N`, the refresh token `refresh-N`.
struct Authority {
    url: String,
    /// The challenge of the last consent; set by the test, which plays the browser.
    challenge: Arc<Mutex<String>>,
    requests: Arc<Mutex<Vec<HashMap<String, String>>>>,
}

impl Authority {
    fn start(expires_in: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (challenge, requests) = (Arc::new(Mutex::new(String::new())), Arc::default());
        let this = Self { url, challenge: Arc::clone(&challenge), requests: Arc::clone(&requests) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let form = read_form(&stream);
                let count = requests.lock().unwrap().len() + 1;
                let refused = refusal(&form, &challenge.lock().unwrap());
                requests.lock().unwrap().push(form);
                let (status, body) = match refused {
                    Some("moved") => (307, Value::Null),
                    Some(error) => (400, json!({"error": error})),
                    None => (
                        200,
                        json!({
                            "access_token": format!("access-{count}-abcdefgh"), "token_type": "Bearer",
                            "refresh_token": format!("refresh-{count}-abcdefgh"), "expires_in": expires_in,
                        }),
                    ),
                };
                answer(stream, status, &body);
            }
        });
        this
    }

    fn definition(&self) -> Value {
        json!({
            "id": "hub", "command": "python3", "args": [SERVER],
            "oauth": {
                "authorizeUrl": format!("{}/authorize", self.url), "tokenUrl": format!("{}/token", self.url),
                "scopes": ["read", "write"], "clientIdKey": "CLIENT_ID", "clientSecretKey": "CLIENT_SECRET",
                "refreshTokenKey": "REFRESH_TOKEN", "accessTokenKey": "ACCESS_TOKEN",
            },
        })
    }
}

fn read_form(stream: &TcpStream) -> HashMap<String, String> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    parse_query(std::str::from_utf8(&body).unwrap()).unwrap().into_iter().collect()
}

fn answer(mut stream: TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    // Where it would be, were it elsewhere: at this very server, which hears who follows.
    let head = "Content-Type: application/json\r\nLocation: /elsewhere\r\nConnection: close";
    let text = format!("HTTP/1.1 {status} Said\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).unwrap();
}

/// Why the request is refused, as RFC 6749 and RFC 7636 have it.
fn refusal(form: &HashMap<String, String>, challenge: &str) -> Option<&'static str> {
    let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    if (field("client_id"), field("client_secret")) != ("the-client", "the-client-secret") {
        return Some("invalid_client");
    }
    if field("code") == "moved" {
        return Some("moved");
    }
    let verified = base64::encode_for_url(&Sha256::digest(field("code_verifier").as_bytes())) == challenge;
    let fits = match field("grant_type") {
        "authorization_code" => field("code") == "the-code" && verified,
        "refresh_token" => field("refresh_token").starts_with("refresh-"),
        _ => false,
    };
    (!fits).then_some("invalid_grant")
}

/// The query of an address.
fn query(url: &str) -> HashMap<String, String> {
    parse_query(url.split_once('?').unwrap().1).unwrap().into_iter().collect()
}

/// Asks for a consent as the operator; the query of the address the browser is sent to.
fn consent(daemon: &Daemon, authority: &Authority) -> HashMap<String, String> {
    let answer = daemon.post("/api/integrations/hub/oauth/start", &json!({}));
    let asked = query(answer["url"].as_str().unwrap());
    authority.challenge.lock().unwrap().clone_from(&asked["code_challenge"]);
    asked
}

fn come_back(daemon: &Daemon, state: &str, code: &str) -> (u16, String) {
    let path = format!("/api/integrations/oauth/callback?state={state}&code={code}");
    let (status, page) = daemon.send("GET", &path, &Value::Null);
    (status, page.as_str().unwrap_or_default().to_owned())
}

fn connected(daemon: &Daemon, authority: &Authority) {
    assert_eq!(daemon.send("POST", "/api/integrations", &authority.definition()).0, 201);
    let (status, body) = daemon.send("POST", "/api/integrations/hub/oauth/start", &json!({}));
    assert_eq!((status, &body["code"]), (400, &json!("not_configured")), "{body}");
    for (key, value) in [("CLIENT_ID", "the-client"), ("CLIENT_SECRET", "the-client-secret")] {
        daemon.post("/api/integrations/hub/credentials", &json!({"key": key, "value": value}));
    }
}

#[test]
fn decisions_11_oauth_has_a_random_state_that_works_once_and_pkce() {
    let authority = Authority::start(3600);
    let daemon = Daemon::start();
    connected(&daemon, &authority);
    let asked = consent(&daemon, &authority);
    assert_eq!((asked["client_id"].as_str(), asked["scope"].as_str()), ("the-client", "read write"));
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["redirect_uri"], format!("{}/api/integrations/oauth/callback", daemon.url));
    assert_eq!((asked["state"].len(), asked["code_challenge"].len()), (43, 43), "256 bits");
    assert_ne!(consent(&daemon, &authority)["state"], asked["state"]);
    assert_eq!(come_back(&daemon, "nonsense", "the-code").0, 400);
    assert!(authority.requests.lock().unwrap().is_empty(), "no code goes out for an unknown state");
    // A wrong code uses its state up as well.
    let asked = consent(&daemon, &authority);
    let (status, page) = come_back(&daemon, &asked["state"], "wrong");
    assert_eq!(status, 502);
    assert!(page.contains("invalid_grant") && !page.contains("the-client-secret"), "{page}");
    assert_eq!(come_back(&daemon, &asked["state"], "the-code").0, 400);
    // Nor do code and secret go where the server sends them.
    let asked = consent(&daemon, &authority);
    let (status, page) = come_back(&daemon, &asked["state"], "moved");
    assert_eq!((status, authority.requests.lock().unwrap().len()), (502, 2), "{page}");
    assert!(page.contains("answered 307"), "{page}");
    let asked = consent(&daemon, &authority);
    let (status, page) = come_back(&daemon, &asked["state"], "the-code");
    assert_eq!(status, 200, "{page}");
    let sent = authority.requests.lock().unwrap().last().unwrap().clone();
    assert_eq!(sent["redirect_uri"], asked["redirect_uri"]);
    let environment: Value = serde_json::from_str(&text(&daemon, "hub", "environment", &json!({}))).unwrap();
    assert_eq!(environment["ACCESS_TOKEN"], "access-3-abcdefgh");
    assert_eq!(environment["REFRESH_TOKEN"], "refresh-3-abcdefgh");
    let mut found = Vec::new();
    files_with(&daemon.project.join(".svc"), "-3-abcdefgh", &mut found);
    assert_eq!(found, Vec::<String>::new(), "tokens stand in plain text on disk");
    let path = format!("/api/integrations/oauth/callback?state={}&error=access_denied", asked["state"]);
    assert_eq!(daemon.send("GET", &path, &Value::Null).0, 400);
    assert_eq!(daemon.send("POST", "/api/integrations/github/oauth/start", &json!({})).0, 400);
}

#[test]
fn spec_oauth_tokens_are_refreshed_automatically() {
    // Valid for less than the minute before which a token is renewed: each start needs a new one.
    let authority = Authority::start(30);
    let daemon = Daemon::start();
    connected(&daemon, &authority);
    let asked = consent(&daemon, &authority);
    assert_eq!(come_back(&daemon, &asked["state"], "the-code").0, 200);
    let token = || {
        let environment: Value =
            serde_json::from_str(&text(&daemon, "hub", "environment", &json!({}))).unwrap();
        environment["ACCESS_TOKEN"].as_str().unwrap().to_owned()
    };
    // Its tools are listed before its first call, which needs a token of its own.
    assert_eq!(token(), "access-3-abcdefgh", "renewed when the server was started, and for the call");
    assert_eq!(token(), "access-4-abcdefgh", "and again for the running server whose token is over");
    let sent = authority.requests.lock().unwrap().clone();
    assert_eq!(sent[1]["refresh_token"], "refresh-1-abcdefgh");
    assert_eq!(sent[2]["refresh_token"], "refresh-2-abcdefgh", "the newest refresh token is used");
}
