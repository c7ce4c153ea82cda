//! The built daemon with the real agent programs, which talk to a scripted model endpoint on this machine.
//!
//! `tests/real/setup` installs what is needed. Without it these tests say that they were skipped, and fail
//! where `SVC_REAL_CLIS=require`. The prompts' words choose the endpoint's answers: see `tests/data/aimock/`.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::processes::with_variable;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tungstenite::Message;
use tungstenite::stream::MaybeTlsStream;

/// A turn of the slowest program takes 4 s on an idle machine.
const LIMIT: Duration = Duration::from_secs(90);
/// The specification's bound for an answer of the daemon while an agent is in trouble.
const RESPONSIVE: Duration = Duration::from_secs(1);

/// The endpoint's figures: input and output of one turn of each kind.
const PLAIN_TOKENS: u64 = 1200 + 34;
const TOOL_TURN_TOKENS: u64 = 1500 + 40 + 1600 + 25;
const SECOND_TOKENS: u64 = 2100 + 21;
const SECOND_ALONE_TOKENS: u64 = 2000 + 20;

const PLAIN_ANSWER: &str = "This is the plain answer.";
const SECOND_ANSWER: &str = "This is the answer to the second message.";
const SECOND_ALONE_ANSWER: &str = "This is the answer to the second message, asked without a first one.";

/// Makes one test of each scenario for a program.
macro_rules! scenarios {
    ($module:ident, $cli:expr, [$($scenario:ident),+ $(,)?]) => {
        mod $module {
            $(
                #[test]
                fn $scenario() {
                    if let Some(stage) = super::Stage::with_endpoint($cli) {
                        super::$scenario(&stage);
                    }
                }
            )+
        }
    };
}

scenarios!(
    codex,
    super::Cli::Codex,
    [
        a_tool_call_writes_a_file,
        a_full_context_is_handed_over_at_the_end_of_the_turn,
        output_arrives_while_the_agent_works,
        a_message_for_now_begins_a_successor,
        an_ended_agent_goes_on_and_counts_what_its_program_counts,
        rotation_ends_the_old_agent_and_hands_over,
        a_kill_leaves_no_process,
        a_signal_from_outside_is_told,
        an_agent_that_ends_leaves_no_process,
        a_question_does_not_disturb_the_agent,
        a_refused_request_crashes_the_agent_and_says_why,
        a_busy_endpoint_is_tried_again,
    ]
);
scenarios!(
    gemini,
    super::Cli::Gemini,
    [
        a_tool_call_writes_a_file,
        a_full_context_is_handed_over_at_the_end_of_the_turn,
        output_arrives_while_the_agent_works,
        a_message_for_now_begins_a_successor,
        an_ended_agent_goes_on_and_counts_what_its_program_counts,
        rotation_ends_the_old_agent_and_hands_over,
        a_kill_leaves_no_process,
        an_agent_that_ends_leaves_no_process,
        a_question_does_not_disturb_the_agent,
        a_refused_request_crashes_the_agent_and_says_why,
        a_busy_endpoint_is_tried_again,
    ]
);
// Gemini 0.61 tells of no earlier session in this mode, so continuing one is not among the scenarios.
scenarios!(
    gemini_by_acp,
    super::Cli::GeminiAcp,
    [
        a_tool_call_writes_a_file,
        output_arrives_while_the_agent_works,
        rotation_ends_the_old_agent_and_hands_over,
        a_kill_leaves_no_process,
        a_question_does_not_disturb_the_agent,
    ]
);
// It does not end while a command of its own runs in the background, so that scenario has no sense here.
scenarios!(
    claude,
    super::Cli::Claude,
    [
        a_tool_call_writes_a_file,
        a_full_context_is_handed_over_in_the_middle_of_a_turn,
        output_arrives_while_the_agent_works,
        an_ended_agent_goes_on_and_counts_what_its_program_counts,
        rotation_ends_the_old_agent_and_hands_over,
        a_kill_leaves_no_process,
        a_message_reaches_the_agent_in_the_middle_of_a_turn,
        a_question_does_not_disturb_the_agent,
        a_refused_request_crashes_the_agent_and_says_why,
        a_busy_endpoint_is_tried_again,
    ]
);
scenarios!(
    opencode,
    super::Cli::OpenCode,
    [
        a_tool_call_writes_a_file,
        a_full_context_is_handed_over_at_the_end_of_the_turn,
        a_message_for_now_begins_a_successor,
        an_ended_agent_goes_on_and_counts_what_its_program_counts,
        rotation_ends_the_old_agent_and_hands_over,
        a_kill_leaves_no_process,
        a_signal_from_outside_is_told,
        an_agent_that_ends_leaves_no_process,
        a_question_does_not_disturb_the_agent,
        a_refused_request_crashes_the_agent_and_says_why,
        a_busy_endpoint_is_tried_again,
    ]
);

#[test]
fn codex_at_a_dead_endpoint_says_so_and_disturbs_nobody() {
    a_dead_endpoint_disturbs_nobody(Cli::Codex, &["connect", "network"]);
}

#[test]
fn claude_at_a_dead_endpoint_says_so_and_disturbs_nobody() {
    a_dead_endpoint_disturbs_nobody(Cli::Claude, &["retr"]);
}

/// It says so only in its log.
#[test]
fn opencode_at_a_dead_endpoint_says_so_and_disturbs_nobody() {
    a_dead_endpoint_disturbs_nobody(Cli::OpenCode, &["the call of its model failed"]);
}

/// It says so only on its standard error.
#[test]
fn gemini_at_a_dead_endpoint_says_so_and_disturbs_nobody() {
    a_dead_endpoint_disturbs_nobody(Cli::Gemini, &["fetch failed"]);
}

/// A daemon and a program that is set up to talk to an endpoint. Fields are dropped in this order.
pub struct Stage {
    pub cli: Cli,
    pub daemon: Daemon,
    pub aimock: Option<Aimock>,
    _home: Home,
    /// What a person who runs the program has in the environment, and the daemon.
    pub variables: Vec<(&'static str, String)>,
}

impl Stage {
    /// With the scripted endpoint; `None` when the program is absent.
    pub fn with_endpoint(cli: Cli) -> Option<Self> {
        if !cli.is_here() {
            return None;
        }
        let project = Arc::new(Folder::new("real"));
        let aimock = Aimock::start(project.path());
        let url = aimock.url.clone();
        Some(Self::new(cli, project, Some(aimock), &url))
    }

    /// With an endpoint that refuses every connection.
    fn without_endpoint(cli: Cli) -> Option<Self> {
        if !cli.is_here() {
            return None;
        }
        // A port that was free a moment ago: nobody listens there.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Some(Self::new(cli, Arc::new(Folder::new("real")), None, &format!("http://{address}")))
    }

    fn new(cli: Cli, project: Arc<Folder>, aimock: Option<Aimock>, url: &str) -> Self {
        let home = Home::new(url);
        let variables = home.variables(cli, url);
        let given: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let daemon = Daemon::start_in(project, &given);
        let stage = Self { cli, daemon, aimock, _home: home, variables };
        wait_within(LIMIT, "the provider to be detected", || {
            let providers = stage.daemon.get("/api/providers");
            let mine = providers.as_array()?.iter().find(|p| p["id"] == cli.provider())?;
            (mine["installed"] == true).then_some(())
        });
        stage
    }

    /// The `HOME` of its agents.
    pub fn home(&self) -> PathBuf {
        self.variables.iter().find(|(name, _)| *name == "HOME").unwrap().1.clone().into()
    }

    /// Starts an agent with this word of the script; its id.
    pub fn spawn(&self, word: &str, permission: &str) -> String {
        let mut body = json!({
            "role": "builder",
            "provider": self.cli.provider(),
            "permission": permission,
            "prompt": format!("Please do {word} now."),
        });
        if let Some(model) = self.cli.model() {
            body["model"] = json!(model);
        }
        self.daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned()
    }

    /// Starts an agent whose shell command runs for minutes, and waits until it runs.
    fn spawn_long(&self) -> String {
        let id = self.spawn("REAL-LONG", "full");
        self.wait_for_mark("long.started", &id);
        id
    }

    /// Waits until the agent's shell command has written the agent's id into this file.
    fn wait_for_mark(&self, file: &str, id: &str) {
        let path = self.daemon.project.join(file);
        wait_within(LIMIT, &format!("{id} in {file}"), || {
            let is_marked = fs::read_to_string(&path).unwrap_or_default().lines().any(|line| line == id);
            let state = &self.record(id)["state"];
            assert!(is_marked || state == "starting" || state == "running", "{}", self.told(id));
            is_marked.then_some(())
        });
    }

    /// Waits until the agent is one of `words`; its record.
    fn wait_state(&self, id: &str, words: &[&str]) -> Value {
        wait_within(LIMIT, &format!("{id} to be one of {words:?}"), || {
            let record = self.record(id);
            words.contains(&record["state"].as_str().unwrap_or_default()).then_some(record)
        })
    }

    /// Waits for the agent's end, which must be a good one; its record.
    pub fn completed(&self, id: &str) -> Value {
        let record = self.wait_state(id, &["completed", "crashed", "killed", "interrupted"]);
        assert_eq!(record["state"], "completed", "{}", self.told(id));
        record
    }

    fn record(&self, id: &str) -> Value {
        self.daemon.get(&format!("/api/agents/{id}"))
    }

    fn log(&self, id: &str) -> Vec<Value> {
        let log = self.daemon.get(&format!("/api/agents/{id}/log?tail=1000"));
        log["entries"].as_array().unwrap().clone()
    }

    /// Whether the agent's log has an entry of this type that holds these words.
    fn logged(&self, id: &str, kind: &str, words: &str) -> bool {
        self.log(id).iter().any(|entry| entry["type"] == kind && entry.to_string().contains(words))
    }

    /// Ends the agent; nothing of it may be left when the reply arrives.
    fn kill(&self, id: &str) {
        let (status, body) = self.daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
        assert_eq!((status, &body["status"]), (200, &json!("killed")), "{body}");
        assert_eq!(alive(id), Vec::<u32>::new(), "processes of {id} outlive the reply");
        assert_eq!(self.record(id)["status"], "killed");
        // A process of another session that is on its way to its end may be seen once more.
        wait_within(LIMIT, "no process to be left", || {
            (self.daemon.get("/api/health")["leaked"] == 0).then_some(())
        });
    }

    /// Record and log, for the message of a failed test.
    fn told(&self, id: &str) -> String {
        let (_, record) = self.daemon.send("GET", &format!("/api/agents/{id}"), &Value::Null);
        let (_, log) = self.daemon.send("GET", &format!("/api/agents/{id}/log"), &Value::Null);
        format!("{record:#}\n{log:#}")
    }
}

/// Processes that carry this agent's mark.
fn alive(id: &str) -> Vec<u32> {
    with_variable(&format!("SVC_AGENT_ID={id}"))
}

fn a_tool_call_writes_a_file(stage: &Stage) {
    let id = stage.spawn("REAL-WRITE", "auto");
    let record = stage.completed(&id);
    let written = fs::read_to_string(stage.daemon.project.join("written.txt"));
    assert_eq!(written.ok().as_deref(), Some("one\ntwo\nthree\n"), "{}", stage.told(&id));
    assert_eq!(record["tokensUsed"], TOOL_TURN_TOKENS, "what the provider itself reports");
    assert!(record["sessionId"].is_string(), "{record:#}");
    assert_eq!(record["exit"]["code"], 0);

    let files = stage.daemon.get(&format!("/api/agents/{id}/files"));
    let touched = |file: &Value| {
        file["path"].as_str().is_some_and(|path| path.ends_with("written.txt")) && file["writes"] != json!(0)
    };
    assert!(files["files"].as_array().unwrap().iter().any(touched), "{files:#}\n{}", stage.told(&id));
    let log = stage.log(&id);
    let place = |kind: &str, words: &str| {
        log.iter().position(|entry| entry["type"] == kind && entry.to_string().contains(words))
    };
    let places = [
        place("tool-started", "written.txt"),
        place("tool-ended", ""),
        place("text", "I wrote written.txt."),
    ];
    assert!(places.is_sorted() && places[0].is_some(), "{places:?} {}", stage.told(&id));
}

/// Waits for a rotation because of a full context of about so many tokens, and for its successor's good end.
fn handed_over(stage: &Stage, id: &str, tokens: u64) {
    let entry = wait_within(LIMIT, &format!("a rotation\n{}", stage.told(id)), || {
        let history = stage.daemon.get("/api/rotation")["history"].clone();
        history.as_array()?.iter().find(|entry| entry["reason"] == "context_threshold").cloned()
    });
    assert_eq!(entry["old"], json!(id), "{entry:#}");
    let held = entry["tokensSaved"].as_u64().unwrap();
    assert!(held.abs_diff(tokens) * 50 <= tokens, "{held} is not {tokens} within 2 percent");
    let new = entry["new"].as_str().unwrap();
    stage.completed(new);
    // Of the sessions of these a copy can be asked.
    if matches!(stage.cli, Cli::Codex | Cli::OpenCode | Cli::Claude) {
        assert_eq!(entry["lastWord"]["outcome"], "answered", "{entry:#}\n{}", stage.daemon.log());
        let said = stage.logged(new, "user", "- Decision: tabs, for the linter wants them.");
        assert!(said, "{}", stage.told(new));
    }
}

/// Its program takes one prompt a run: what was said meanwhile goes to the successor.
fn a_full_context_is_handed_over_at_the_end_of_the_turn(stage: &Stage) {
    let (word, tokens) = match stage.cli {
        Cli::Codex => ("REAL-FULL-200K", 200_000),
        Cli::OpenCode => ("REAL-FULL-100K", 100_000),
        _ => ("REAL-FULL-900K", 900_000),
    };
    let id = stage.spawn(word, "full");
    let body = json!({"message": "Then do REAL-SECOND.", "deliver": "idle"});
    stage.daemon.post(&format!("/api/agents/{id}/instruct"), &body);
    handed_over(stage, &id, tokens);
    assert!(stage.logged(&id, "user", "REAL-SECOND"), "{}", stage.told(&id));
}

/// Nobody waits for it and its turn is not over: between two tool calls it is asked to leave the turn.
fn a_full_context_is_handed_over_in_the_middle_of_a_turn(stage: &Stage) {
    let id = stage.spawn("REAL-FULL-880K", "full");
    handed_over(stage, &id, 880_000);
    let log = stage.log(&id);
    let ended_well = log.iter().position(|entry| entry["type"] == "turn-ended" && entry["isError"] != true);
    let successor = log.iter().rposition(|entry| entry["type"] == "user");
    assert!(ended_well > successor, "only the successor ended its turn: {}", stage.told(&id));
}

/// The clients see the tool call while its command still runs.
fn output_arrives_while_the_agent_works(stage: &Stage) {
    let mut socket = stage.daemon.connect("");
    if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
    }
    let id = stage.spawn("REAL-LONG", "full");
    let asked = Instant::now();
    let seen = loop {
        // The daemon's pings end a read now and then, so that this is looked at.
        assert!(asked.elapsed() < LIMIT, "no tool call among the messages; {}", stage.told(&id));
        let Message::Text(text) = socket.read().unwrap() else { continue };
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_ne!(message["type"], "agent:exit", "{}", stage.told(&id));
        if message["type"] == "agent:output" && message["data"]["subtype"] == "tool" {
            break message;
        }
    };
    assert_eq!(seen["agentId"], json!(id));
    assert_eq!(seen["data"]["data"]["status"], "started");
    assert!(seen.to_string().contains("long.started"), "{seen:#}");
    assert!(stage.logged(&id, "tool-started", "long.started"), "the log has it too: {}", stage.told(&id));
    stage.wait_for_mark("long.started", &id);
    stage.kill(&id);
}

/// Two turns, a resume, and a rotation in the middle of a third turn.
fn an_ended_agent_goes_on_and_counts_what_its_program_counts(stage: &Stage) {
    let first = stage.spawn("REAL-PLAIN", "full");
    let before = stage.completed(&first);
    assert_eq!(before["tokensUsed"], PLAIN_TOKENS);
    assert!(stage.logged(&first, "text", PLAIN_ANSWER), "{}", stage.told(&first));

    let message = json!({"message": "Please do REAL-SECOND now."});
    let resumed = stage.daemon.post(&format!("/api/agents/{first}/resume"), &message);
    let second = resumed["agent"]["id"].as_str().unwrap().to_owned();
    let after = stage.completed(&second);
    assert_eq!(after["sessionId"], before["sessionId"]);
    assert_eq!(after["lineageId"], before["lineageId"]);
    // The endpoint answers otherwise when the request has no earlier answer in it.
    assert!(stage.logged(&second, "text", SECOND_ANSWER), "{}", stage.told(&second));
    assert_eq!(after["tokensUsed"], PLAIN_TOKENS + SECOND_TOKENS, "no turn is counted twice");

    let long = json!({"message": "Please do REAL-LONG now."});
    let told = stage.daemon.post(&format!("/api/agents/{second}/instruct"), &long);
    let third = told["agent"]["id"].as_str().unwrap().to_owned();
    stage.wait_for_mark("long.started", &third);
    assert_eq!(stage.record(&first)["id"], json!(third), "an earlier id leads to the living agent");
    stage.daemon.post(&format!("/api/agents/{third}/instruct"), &message);
    let rotated = stage.daemon.post(&format!("/api/agents/{third}/rotate"), &json!({}));
    let fourth = stage.completed(rotated["new"].as_str().unwrap());
    assert_eq!(fourth["lineageId"], before["lineageId"]);
    let own = own_total(stage, fourth["lineageId"].as_str().unwrap());
    assert_eq!(fourth["tokensUsed"], own, "what the program itself told; {fourth:#}");
    assert!(own >= PLAIN_TOKENS + SECOND_TOKENS + SECOND_ALONE_TOKENS, "{own}");
}

/// What a program told of its tokens in the lines it printed for a lineage, added up by its own rules.
fn own_total(stage: &Stage, lineage: &str) -> u64 {
    let path = stage.daemon.project.join(format!(".svc/logs/{lineage}/raw-000001.jsonl"));
    let raw = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let sum = |figures: &Value, keys: &[&str]| -> u64 {
        keys.iter().map(|key| figures[key].as_u64().unwrap_or_default()).sum()
    };
    let classes = ["output_tokens", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let mut told: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut thread = String::new();
    for (at, line) in raw.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Ok(event) = serde_json::from_str::<Value>(line["line"].as_str().unwrap()) else { continue };
        let agent = line["agentId"].to_string();
        let (key, count) = match (stage.cli, event["type"].as_str().unwrap_or_default()) {
            (Cli::Codex, "thread.started") => {
                thread = event["thread_id"].to_string();
                continue;
            }
            // Cumulative over all runs of a thread: the last figure counts.
            (Cli::Codex, "turn.completed") => {
                ((String::new(), thread.clone()), sum(&event["usage"], &["input_tokens", "output_tokens"]))
            }
            (Cli::Gemini, "result") => ((agent, at.to_string()), sum(&event["stats"], &["total_tokens"])),
            (Cli::OpenCode, "step_finish") => {
                ((agent, at.to_string()), sum(&event["part"]["tokens"], &["total"]))
            }
            // The lines of one answer repeat its figures, with a placeholder for the output; only the turn's
            // result has the true ones, and a turn that was cut off has none.
            (Cli::Claude, "assistant") => {
                ((agent, event["message"]["id"].to_string()), sum(&event["message"]["usage"], &classes[1..]))
            }
            (Cli::Claude, "result") => {
                told.retain(|(of, what), _| *of != agent || !what.starts_with("\"msg_"));
                ((agent, at.to_string()), sum(&event["usage"], &classes))
            }
            _ => continue,
        };
        told.insert(key, count);
    }
    told.values().sum()
}

fn rotation_ends_the_old_agent_and_hands_over(stage: &Stage) {
    let old = stage.spawn_long();
    let message = json!({"message": "Please do REAL-SECOND now."});
    let queued = stage.daemon.post(&format!("/api/agents/{old}/instruct"), &message);
    assert_eq!((&queued["status"], &queued["deliverOn"]), (&json!("queued"), &json!("rotation")));
    let lineage = stage.record(&old)["lineageId"].clone();

    let rotated = stage.daemon.post(&format!("/api/agents/{old}/rotate"), &json!({}));
    assert_eq!(rotated["old"], json!(old));
    assert_eq!((&rotated["handoffBrief"], &rotated["reason"]), (&json!(true), &json!("manual")));
    assert_eq!(alive(&old), Vec::<u32>::new(), "the old agent's processes are gone");
    let new = rotated["new"].as_str().unwrap().to_owned();
    let record = stage.completed(&new);
    assert_eq!((&record["predecessorId"], &record["lineageId"]), (&json!(old), &lineage));
    assert_eq!(record["pendingInstructions"], 0);
    assert!(record["tokensUsed"].as_u64().unwrap() >= SECOND_ALONE_TOKENS, "{record:#}");
    // The endpoint answers so only when there is no earlier answer: the successor has a fresh context.
    assert!(stage.logged(&new, "text", SECOND_ALONE_ANSWER), "{}", stage.told(&new));
}

/// A program that takes no live input: the message goes at once to a successor.
fn a_message_for_now_begins_a_successor(stage: &Stage) {
    let old = stage.spawn_long();
    let message = json!({"message": "Please do REAL-SECOND now.", "deliver": "now"});
    let reply = stage.daemon.post(&format!("/api/agents/{old}/instruct"), &message);
    assert_eq!((&reply["status"], &reply["deliverOn"]), (&json!("queued"), &json!("now")));
    let new = wait_within(LIMIT, "the successor", || {
        let id = stage.record(&old)["id"].as_str()?.to_owned();
        (id != old).then_some(id)
    });
    let record = stage.completed(&new);
    assert_eq!((&record["predecessorId"], &record["pendingInstructions"]), (&json!(old), &json!(0)));
    assert!(stage.logged(&new, "text", SECOND_ALONE_ANSWER), "{}", stage.told(&new));
    assert_eq!(alive(&old), Vec::<u32>::new(), "the old agent's processes are gone");
    assert!(!stage.daemon.project.join("long.ended").exists());
}

fn a_kill_leaves_no_process(stage: &Stage) {
    let id = stage.spawn_long();
    let command_line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // The shell begins it after it has written the mark.
    wait_within(LIMIT, "the tool to run, marked", || {
        alive(&id).iter().any(|pid| command_line(pid).contains("sleep")).then_some(())
    });
    stage.kill(&id);
    assert!(!stage.daemon.project.join("long.ended").exists());
}

/// These two are ended by it; claude and gemini make an exit code of it, or nothing.
fn a_signal_from_outside_is_told(stage: &Stage) {
    let id = stage.spawn_long();
    let pid = stage.record(&id)["pid"].to_string();
    let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(sent.success());
    let record = stage.wait_state(&id, &["completed", "crashed", "killed", "interrupted"]);
    let told = (&record["state"], &record["statusReason"], &record["exit"]["signal"]);
    let wanted = "signal 15 ended it; the daemon did not send it";
    assert_eq!(told, (&json!("killed"), &json!(wanted), &json!(15)), "{}", stage.told(&id));
    assert_eq!(alive(&id), Vec::<u32>::new(), "what it had started is gone");
}

/// A command that the agent left in the background goes with it.
fn an_agent_that_ends_leaves_no_process(stage: &Stage) {
    let id = stage.spawn("REAL-BACKGROUND", "full");
    stage.completed(&id);
    assert_eq!(alive(&id), Vec::<u32>::new(), "{}", stage.told(&id));
    let started = fs::read_to_string(stage.daemon.project.join("background.started"));
    assert_eq!(started.ok(), Some(format!("{id}\n")), "{}", stage.told(&id));
    assert!(stage.logged(&id, "text", "A command goes on in the background."), "{}", stage.told(&id));
    assert_eq!(stage.daemon.get("/api/health")["leaked"], 0);
}

fn a_message_reaches_the_agent_in_the_middle_of_a_turn(stage: &Stage) {
    let id = stage.spawn("REAL-PAUSE", "full");
    stage.wait_for_mark("pause.started", &id);
    let message = json!({"message": "Please mind the blue door.", "deliver": "now"});
    assert_eq!(stage.daemon.post(&format!("/api/agents/{id}/instruct"), &message)["deliverOn"], "now");
    wait_within(LIMIT, "the message to be delivered", || {
        (stage.record(&id)["pendingInstructions"] == 0).then_some(())
    });
    fs::write(stage.daemon.project.join("pause.go"), "").unwrap();
    // The program takes the message up within its turn: one result for two messages, and then it ends.
    assert_eq!(stage.completed(&id)["tokensUsed"], TOOL_TURN_TOKENS);
    assert!(stage.logged(&id, "user", "the blue door"), "{}", stage.told(&id));
    assert!(stage.logged(&id, "text", "The pause is over."), "{}", stage.told(&id));
}

fn a_question_does_not_disturb_the_agent(stage: &Stage) {
    let id = stage.spawn_long();
    // What the program says of its session may come after what its tool does.
    let before = wait_within(LIMIT, "the session", || {
        Some(stage.record(&id)).filter(|record| record["sessionId"].is_string())
    });
    let question = json!({"question": "REAL-QUERY: what are you doing?"});
    let answer = stage.daemon.post(&format!("/api/agents/{id}/query"), &question);
    assert_eq!(answer["agentId"], json!(id));
    assert_eq!(answer["answer"].as_str().map(str::trim), Some("This is the answer to the question."));
    let after = stage.record(&id);
    for field in ["state", "sessionId", "pid"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    stage.kill(&id);
}

fn a_refused_request_crashes_the_agent_and_says_why(stage: &Stage) {
    let id = stage.spawn("REAL-REFUSED", "auto");
    let record = stage.wait_state(&id, &["completed", "crashed", "killed"]);
    assert_eq!(record["status"], "crashed", "{}", stage.told(&id));
    let why = format!("{} {}", record["statusReason"], record["error"]);
    assert!(why.contains("refuses this request"), "{why}");
}

fn a_busy_endpoint_is_tried_again(stage: &Stage) {
    let id = stage.spawn("REAL-BUSY", "auto");
    assert_eq!(stage.completed(&id)["tokensUsed"], PLAIN_TOKENS);
    assert!(stage.logged(&id, "text", "the answer after the busy time"), "{}", stage.told(&id));
}

/// The daemon goes on answering, the record tells the truth, and a kill works. `words`: one of them stands
/// in the agent's `statusReason` in the end.
fn a_dead_endpoint_disturbs_nobody(cli: Cli, words: &[&str]) {
    let Some(stage) = Stage::without_endpoint(cli) else { return };
    let id = stage.spawn("REAL-PLAIN", "auto");
    stage.wait_state(&id, &["running"]);
    wait_within(LIMIT, &format!("statusReason to have one of {words:?}"), || {
        let asked = Instant::now();
        assert_eq!(stage.daemon.get("/api/health")["status"], "ok");
        assert!(asked.elapsed() < RESPONSIVE, "health took {:?}", asked.elapsed());
        let record = stage.record(&id);
        assert_eq!(record["state"], "running", "{}", stage.told(&id));
        let reason = record["statusReason"].as_str()?.to_lowercase();
        (words.is_empty() || words.iter().any(|word| reason.contains(word))).then_some(())
    });
    assert_eq!(stage.record(&id)["tokensUsed"], 0);
    stage.kill(&id);
}
