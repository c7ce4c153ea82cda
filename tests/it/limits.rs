//! The built daemon at the limits of providers: with the real agent programs, whose endpoint answers 429
//! until its window opens; and with the built-in agent over many a kill -9.
//!
//! `tests/real/setup` installs the programs; without them these tests say that they were skipped.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::chat_endpoint::{Answer, Endpoint};
use crate::support::daemon::Daemon;
use crate::support::dice::Dice;
use crate::support::folder::Folder;
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A turn takes some seconds on an idle machine, and the window opens in between.
const LIMIT: Duration = Duration::from_secs(150);
/// From the first request that is refused until the window opens: a program that starts slowly meets it, too.
const CLOSED_SECONDS: u64 = 20;
/// What the endpoint tells of the two turns.
const PLAIN_TOKENS: u64 = 1200 + 34;
const SECOND_TOKENS: u64 = 2100 + 21;
/// It answers so only when the first answer is in the conversation.
const SECOND_ANSWER: &str = "This is the answer to the second message.";

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// What stands before the endpoint: while its window is closed, it refuses.
struct Gate {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    endpoint: String,
    cli: Cli,
    /// When the window opens, in milliseconds since 1970; 0 for one that is open, `None` for one that nobody
    /// has found closed yet.
    opens_ms: Mutex<Option<u64>>,
    /// When requests for an answer were refused.
    refused: Mutex<Vec<u64>>,
}

impl Gate {
    fn start(endpoint: &str, cli: Cli) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let endpoint = endpoint.trim_start_matches("http://").to_owned();
        let shared = Arc::new(Shared {
            endpoint,
            cli,
            opens_ms: Mutex::new(Some(0)),
            refused: Mutex::new(Vec::new()),
        });
        let given = Arc::clone(&shared);
        // The threads end with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&given);
                thread::spawn(move || drop(shared.serve(&client)));
            }
        });
        Self { url, shared }
    }

    fn close(&self) {
        *self.shared.opens_ms.lock().unwrap() = None;
    }

    fn refused(&self) -> Vec<u64> {
        self.shared.refused.lock().unwrap().clone()
    }
}

impl Shared {
    /// One request of a connection: no answer keeps it alive.
    fn serve(&self, mut client: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(client.try_clone()?);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let low = line.to_lowercase();
            if let Some(value) = low.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
            if !low.starts_with("connection:") {
                head.push_str(&line);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let is_asked = head.starts_with("POST");
        let opens_ms = if is_asked {
            *self.opens_ms.lock().unwrap().get_or_insert_with(|| now_ms() + CLOSED_SECONDS * 1000)
        } else {
            0
        };
        if now_ms() < opens_ms {
            self.refused.lock().unwrap().push(now_ms());
            client.write_all(refusal(self.cli, opens_ms).as_bytes())?;
            return client.shutdown(Shutdown::Both);
        }
        let mut server = TcpStream::connect(&self.endpoint)?;
        server.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
        server.write_all(&body)?;
        io::copy(&mut server, &mut client)?;
        client.shutdown(Shutdown::Both)
    }
}

/// A usage limit, in the form in which the vendor of each program tells it.
fn refusal(cli: Cli, opens_ms: u64) -> String {
    let opens = opens_ms.div_ceil(1000);
    let left = opens.saturating_sub(now_ms() / 1000) + 1;
    let (headers, body) = match cli {
        Cli::Claude => (
            format!(
                "x-should-retry: false\r\nanthropic-ratelimit-unified-status: rejected\r\n\
                 anthropic-ratelimit-unified-reset: {opens}\r\n\
                 anthropic-ratelimit-unified-representative-claim: five_hour\r\n"
            ),
            json!({"type": "error", "error": {"type": "rate_limit_error", "message": "usage limit reached"}}),
        ),
        Cli::Codex => (
            String::new(),
            json!({"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached",
                "plan_type": "plus", "resets_at": opens}}),
        ),
        Cli::Gemini | Cli::GeminiAcp => (
            String::new(),
            json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
                "message": format!("You exceeded your current quota. Your quota will reset after {left}s."),
                "details": [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
                    {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}]}}),
        ),
        Cli::OpenCode => (
            format!("retry-after: {left}\r\n"),
            json!({"error": {"type": "insufficient_quota", "message": "You exceeded your current quota"}}),
        ),
    };
    let body = body.to_string();
    format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The second of two turns comes to a limit: it goes on by itself when the window opens, with the whole
/// conversation, and every token is counted once.
fn goes_on_by_itself(cli: Cli) {
    if !cli.is_here() {
        return;
    }
    let project = Arc::new(Folder::new("limits"));
    let aimock = Aimock::start(project.path());
    let gate = Gate::start(&aimock.url, cli);
    let home = Home::new(&gate.url);
    let mut variables = home.variables(cli, &gate.url);
    // Its own patience would outlast this test.
    variables.push(("CLAUDE_CODE_MAX_RETRIES", "1".into()));
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let daemon = Daemon::start_in(project, &variables);
    wait_within(LIMIT, "the provider to be detected", || {
        let providers = daemon.get("/api/providers");
        let mine = providers.as_array()?.iter().find(|one| one["id"] == cli.provider())?;
        (mine["installed"] == true).then_some(())
    });
    let settings = json!({"onLimit": "wait", "limits": {"retrySeconds": 2}});
    assert_eq!(daemon.send("PATCH", "/api/config", &settings).0, 200);
    let body = json!({"role": "builder", "name": "it", "provider": cli.provider(), "model": cli.model(),
        "permission": "auto", "prompt": "Please do REAL-PLAIN now."});
    daemon.post("/api/agents", &body);
    let state = |word: &str| {
        let record = daemon.get("/api/agents/it");
        (record["state"] == word).then_some(record)
    };
    wait_within(LIMIT, "the first turn", || state("completed"));

    gate.close();
    daemon.post("/api/agents/it/resume", &json!({"message": "Please do REAL-SECOND now."}));
    let mut seen: Vec<String> = Vec::new();
    let mut held = Value::Null;
    let done = wait_within(LIMIT, "the second turn", || {
        let record = daemon.get("/api/agents/it");
        let word = record["state"].as_str().unwrap_or_default().to_owned();
        if record["limit"].is_object() {
            held = record["limit"].clone();
        }
        if seen.last() != Some(&word) {
            seen.push(word);
        }
        let is_over = matches!(record["state"].as_str(), Some("completed" | "crashed" | "killed"));
        is_over.then_some(record)
    });
    let log = daemon.get("/api/agents/it/log?tail=1000");
    let told = format!("{seen:?} {held:#}\n{done:#}\n{log:#}");
    assert_eq!(done["state"], "completed", "{told}");
    assert_eq!(done["tokensUsed"], PLAIN_TOKENS + SECOND_TOKENS, "{told}");
    let entries = log["entries"].as_array().unwrap();
    let said = |kind: &str, words: &str| {
        entries.iter().filter(|entry| entry["type"] == kind && entry.to_string().contains(words)).count()
    };
    assert_eq!(said("text", SECOND_ANSWER), 1, "{told}");
    let refused = gate.refused();
    assert!(refused.first().is_some_and(|first| now_ms() >= first + CLOSED_SECONDS * 1000), "{told}");
    assert!(seen.iter().all(|word| word != "crashed"), "{told}");
    if held.is_object() {
        // Said once by the person, and issued again once for each time that it was held.
        let holds = said("life", "limited: ");
        assert_eq!(said("user", "REAL-SECOND"), 1 + holds, "{told}");
        let after = gate.refused().len();
        assert!(after >= holds, "{told}");
    }
    eprintln!("{}: {seen:?}, {} refused, held as {held}", cli.provider(), gate.refused().len());
}

#[test]
fn claude_goes_on_by_itself_when_its_window_opens() {
    goes_on_by_itself(Cli::Claude);
}

#[test]
fn codex_goes_on_by_itself_when_its_window_opens() {
    goes_on_by_itself(Cli::Codex);
}

#[test]
fn gemini_goes_on_by_itself_when_its_window_opens() {
    goes_on_by_itself(Cli::Gemini);
}

#[test]
fn opencode_goes_on_by_itself_when_its_window_opens() {
    goes_on_by_itself(Cli::OpenCode);
}

/// The daemon is killed again and again, while the agent is held and about when it goes on: the endpoint gets
/// what was cut off once, and the agent is done in the end.
#[test]
fn a_held_agent_goes_on_once_however_often_its_daemon_is_killed() {
    let refused = "{\"error\":{\"message\":\"You've hit your usage limit\"}}";
    let busy = Answer::status(429, refused).header("Retry-After: 0");
    // One run asks five times before it gives up.
    let mut answers = vec![busy; 5];
    answers
        .extend([Answer::text("the roof is built").usage(100, 0, 5), Answer::text("again").usage(1, 0, 1)]);
    let endpoint = Endpoint::start(answers);
    let folder = Arc::new(Folder::new("limits"));
    let env = [("SVC_OLLAMA_URL", endpoint.url.as_str())];
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &env);
    let settings = json!({"onLimit": "wait", "limits": {"retrySeconds": 3}});
    assert_eq!(daemon.send("PATCH", "/api/config", &settings).0, 200);
    let body =
        json!({"role": "dev", "name": "it", "provider": "ollama", "model": "tiny", "prompt": "build it"});
    daemon.post("/api/agents", &body);
    wait_for("the limit", || (daemon.get("/api/agents/it")["state"] == "limited").then_some(()));
    assert_eq!(endpoint.requests().len(), 5);
    let mut dice = Dice::seeded(17);
    for _ in 0..8 {
        let fate = Instant::now() + Duration::from_millis(dice.below(900));
        wait_for("the moment", || (Instant::now() >= fate).then_some(()));
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &env);
    }
    let record = wait_for("the end", || {
        let record = daemon.get("/api/agents/it");
        (record["status"] != "active").then_some(record)
    });
    assert_eq!(record["state"], "completed", "{record:#}\n{}", daemon.log());
    assert_eq!((endpoint.requests().len(), &record["tokensUsed"]), (6, &json!(105)), "{record:#}");
    let reached = daemon.get("/api/audit?event=limit.reached");
    assert_eq!(reached["entries"].as_array().map(Vec::len), Some(1), "{reached:#}");
}
