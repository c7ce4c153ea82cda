//! The built-in agent for OpenAI-compatible endpoints as the daemon meets it: the built binary with pipes,
//! against a small endpoint in the test that speaks streamed chat completions over real sockets.

use crate::support::chat_endpoint::{Answer, Endpoint};
use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::rehearsal::{Agent, Project};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::Arc;

fn start(project: &Project, endpoint: &Endpoint, args: &[&str]) -> Agent {
    let mut all = vec!["--model", "tiny"];
    all.extend(args);
    let env = [("SVC_OLLAMA_URL", endpoint.url.as_str()), ("SVC_OLLAMA_KEY", "sesame")];
    let mut agent = project.start_as("agent-ollama", &all, &env);
    agent.write(&json!({"type": "prompt", "text": "build it"}));
    agent
}

/// The activities of one kind.
fn of<'a>(activities: &'a [Value], kind: &str) -> Vec<&'a Value> {
    activities.iter().filter(|activity| activity["type"] == kind).collect()
}

fn error_of(activities: &[Value]) -> &str {
    let end = activities.last().expect("an end");
    assert_eq!((&end["type"], &end["isError"]), (&json!("turn-ended"), &json!(true)), "{end}");
    end["error"].as_str().expect("words")
}

/// The id of the session, from the first line.
fn session_of(agent: &Agent) -> String {
    let opening = agent.next();
    assert_eq!((&opening["type"], &opening["model"]), (&json!("session"), &json!("tiny")));
    opening["id"].as_str().expect("an id").to_owned()
}

fn exit_code(agent: Agent) -> Option<i32> {
    agent.end().0.code()
}

#[test]
fn a_tool_call_writes_a_file_and_the_answer_ends_the_turn() {
    let project = Project::new();
    let write = json!({"path": "out/a.txt", "content": "hello"});
    let endpoint = Endpoint::start(vec![
        Answer::call("write_file", &write).usage(100, 60, 7),
        Answer::text("Done.\n\nThe file is there.").usage(150, 100, 5),
    ]);
    let agent = start(&project, &endpoint, &["--context", "1000"]);
    let activities = agent.turn();
    agent.end_well();

    assert_eq!(fs::read_to_string(project.work("out/a.txt")).expect("written"), "hello");
    let started = of(&activities, "tool-started")[0];
    let expected = json!({"type": "tool-started", "id": "tool-1", "name": "write_file", "input": write,
        "path": "out/a.txt", "writes": true});
    assert_eq!(started, &expected);
    let ended = of(&activities, "tool-ended")[0];
    assert_eq!((&ended["error"], &ended["output"]), (&json!(false), &json!("wrote 5 bytes to out/a.txt")));
    let texts: Vec<_> = of(&activities, "text").iter().map(|text| text["text"].clone()).collect();
    assert_eq!(texts, ["Done.", "The file is there."]);
    let usages = of(&activities, "usage");
    let total = json!({"input": 90, "output": 12, "cacheRead": 160, "cacheCreation": 0});
    assert_eq!((usages.len(), &usages[1]["sessionTotal"]), (2, &total));
    assert_eq!((&usages[1]["contextTokens"], &usages[1]["contextWindow"]), (&json!(150), &json!(1000)));
    let end = activities.last().expect("an end");
    let told = (&end["text"], &end["isError"], &end["turns"]);
    assert_eq!(told, (&json!("Done.\n\nThe file is there."), &json!(false), &json!(2)));

    let requests = endpoint.requests();
    let first = &requests[0];
    assert_eq!(first.head.lines().next(), Some("POST /v1/chat/completions HTTP/1.1"));
    assert!(first.head.to_lowercase().contains("authorization: bearer sesame"), "{}", first.head);
    let streamed =
        (&first.body["model"], &first.body["stream"], &first.body["stream_options"]["include_usage"]);
    assert_eq!(streamed, (&json!("tiny"), &json!(true), &json!(true)));
    assert_eq!(first.body["messages"][1], json!({"role": "user", "content": "build it"}));
    let messages = requests[1].body["messages"].as_array().expect("a list");
    assert_eq!(messages[2]["tool_calls"][0]["function"]["name"], "write_file");
    let result = json!({"role": "tool", "tool_call_id": "call_1", "content": "wrote 5 bytes to out/a.txt"});
    assert_eq!(messages[3], result);
}

#[test]
fn a_failing_tool_is_told_to_the_model_and_shown() {
    let project = Project::new();
    let endpoint = Endpoint::start(vec![
        Answer::call("read_file", &json!({"path": "../../secret"})),
        Answer::raw_call("read_file", "{\"path\":"),
        Answer::text("I give up."),
    ]);
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    agent.end_well();
    let ends = of(&activities, "tool-ended");
    assert!(ends.iter().all(|end| end["error"] == true), "{ends:?}");
    let requests = endpoint.requests();
    let result = |request: usize, message: usize| {
        requests[request].body["messages"][message]["content"].as_str().expect("words").to_owned()
    };
    assert_eq!(result(1, 3), "error: ../../secret: leads out of the working directory");
    assert!(result(2, 5).starts_with("error: the arguments are not an object"), "{}", result(2, 5));
}

#[test]
fn what_is_said_continues_the_history_and_a_resume_too() {
    let project = Project::new();
    let endpoint = Endpoint::start(vec![
        Answer::text("first").usage(10, 0, 1),
        Answer::text("second").usage(20, 0, 2),
        Answer::text("third").usage(30, 0, 3),
    ]);
    let mut agent = start(&project, &endpoint, &[]);
    let session = session_of(&agent);
    agent.turn();
    agent.say("and more");
    assert_eq!(agent.turn().last().expect("an end")["text"], "second");
    agent.end_well();

    let counted = r#"{"input":30,"output":3}"#;
    let agent = start(&project, &endpoint, &["--resume", &session, "--counted", counted]);
    assert_eq!(session_of(&agent), session);
    let activities = agent.turn();
    agent.end_well();
    let total = json!({"input": 60, "output": 6, "cacheRead": 0, "cacheCreation": 0});
    assert_eq!(of(&activities, "usage")[0]["sessionTotal"], total);

    let requests = endpoint.requests();
    let messages = requests[2].body["messages"].as_array().expect("a list");
    let words: Vec<_> = messages[1..].iter().map(|message| message["content"].clone()).collect();
    assert_eq!(words, ["build it", "first", "and more", "second", "build it"]);
}

#[test]
fn decisions_2_a_query_forks_the_session_read_only_and_ends() {
    let project = Project::new();
    let endpoint = Endpoint::start(vec![
        Answer::text("first"),
        Answer::call("shell", &json!({"command": "touch changed"})),
        Answer::text("an answer"),
    ]);
    let agent = start(&project, &endpoint, &[]);
    let session = session_of(&agent);
    agent.turn();
    agent.end_well();
    let file = project.0.join(format!(".svc/sessions/{session}.json"));
    let before = fs::read(&file).expect("saved");

    let agent = start(&project, &endpoint, &["--query", "--fork", &session]);
    let activities = agent.turn();
    assert_eq!(activities.last().expect("an end")["text"], "an answer");
    assert_eq!(of(&activities, "tool-ended")[0]["error"], true);
    // It ends by itself: its input is still open here.
    assert_eq!(agent.raw(), None);
    agent.end_well();
    assert!(!project.work("changed").exists());
    assert_eq!(fs::read(&file).expect("saved"), before);
    let requests = endpoint.requests();
    assert_eq!(requests[1].body["messages"][2]["content"], "first");
    assert_eq!(requests[1].body["tools"].as_array().expect("a list").len(), 3);
}

#[test]
fn a_busy_endpoint_is_asked_again_as_it_wishes() {
    let project = Project::new();
    let busy = Answer::status(429, "{\"error\":{\"message\":\"slow down\"}}").header("Retry-After: 0");
    let endpoint = Endpoint::start(vec![busy.clone(), busy, Answer::text("at last")]);
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    agent.end_well();
    let told: Vec<_> = of(&activities, "trouble").iter().map(|trouble| trouble["text"].clone()).collect();
    let words = |retry| format!("retry {retry} of 4 after error 429: the endpoint answered 429: slow down");
    assert_eq!(told, [words(1), words(2)]);
    assert_eq!(activities.last().expect("an end")["text"], "at last");
}

#[test]
fn retries_have_an_end() {
    let project = Project::new();
    let busy = Answer::status(503, "overloaded").header("Retry-After: 0");
    let endpoint = Endpoint::start(vec![busy; 5]);
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    assert_eq!(of(&activities, "trouble").len(), 4);
    assert_eq!(error_of(&activities), "the endpoint answered 503: overloaded");
    assert_eq!(exit_code(agent), Some(1));
    assert_eq!(endpoint.requests().len(), 5);
}

#[test]
fn a_refused_key_is_told_in_the_endpoints_words_at_once() {
    let project = Project::new();
    let answer = Answer::status(401, "{\"error\":{\"message\":\"invalid api key\"}}");
    let endpoint = Endpoint::start(vec![answer]);
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    assert_eq!(error_of(&activities), "the endpoint answered 401: invalid api key");
    assert!(of(&activities, "trouble").is_empty());
    assert_eq!(exit_code(agent), Some(1));
}

#[test]
fn a_cut_stream_is_an_error_and_its_words_are_kept() {
    let project = Project::new();
    let endpoint = Endpoint::start(vec![Answer::text("half a sen").cut()]);
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    assert_eq!(of(&activities, "text")[0]["text"], "half a sen");
    assert!(error_of(&activities).starts_with("the endpoint's answer was cut off before its end"));
    assert_eq!(exit_code(agent), Some(1));
}

#[test]
fn an_endpoint_that_is_not_there_is_named() {
    let project = Project::new();
    let endpoint = Endpoint::nowhere();
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    let error = error_of(&activities);
    assert!(error.starts_with(&format!("cannot reach {}: ", endpoint.url)), "{error}");
    assert!(error.contains("refused"), "{error}");
    assert_eq!(exit_code(agent), Some(1));
}

#[test]
fn a_model_that_never_comes_to_an_end_is_stopped() {
    let project = Project::new();
    let endpoint = Endpoint::start(vec![Answer::call("list_files", &json!({})); 50]);
    let agent = start(&project, &endpoint, &[]);
    let activities = agent.turn();
    assert_eq!(error_of(&activities), "stopped after 50 answers of the model without a result");
    assert_eq!(of(&activities, "tool-ended").len(), 50);
    assert_eq!(exit_code(agent), Some(1));
}

#[test]
fn a_wrong_command_line_or_session_ends_with_code_2() {
    let project = Project::new();
    let endpoint = Endpoint::nowhere();
    for (args, words) in [
        (&["--resume", "gone"][..], "session gone cannot be resumed: No such file"),
        (&["--resume", "../x"], "a session id has 1 to 64 letters"),
        (&["--dance"], "--dance: unknown option"),
    ] {
        let mut all = vec!["--model", "tiny"];
        all.extend(args);
        let env = [("SVC_OLLAMA_URL", endpoint.url.as_str())];
        let mut agent = project.start_as("agent-ollama", &all, &env);
        if args[0] == "--resume" {
            agent.write(&json!({"type": "prompt", "text": "go on"}));
        }
        let activities = agent.turn();
        assert!(error_of(&activities).starts_with(words), "{activities:?}");
        let (status, stderr) = agent.end();
        assert_eq!(status.code(), Some(2));
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn the_daemon_runs_it_asks_it_and_continues_its_session() {
    let endpoint = Endpoint::start(vec![
        Answer::call("write_file", &json!({"path": "a.txt", "content": "hello"})).usage(100, 60, 7),
        Answer::text("written").usage(150, 100, 5),
        Answer::text("because of the task").usage(200, 0, 4),
        Answer::text("more is written").usage(300, 0, 6),
    ]);
    let env = [("SVC_OLLAMA_URL", endpoint.url.as_str())];
    let daemon = Daemon::start_in(Arc::new(Folder::new("ollama")), &env);
    let model = "tiny?context=1000";
    let body = json!({"role": "backend", "provider": "ollama", "model": model, "prompt": "write a.txt"});
    let id = daemon.post("/api/agents", &body)["id"].as_str().expect("an id").to_owned();
    let record = daemon.wait_state(&id, &["completed", "crashed"]);
    assert_eq!((&record["state"], &record["tokensUsed"]), (&json!("completed"), &json!(262)), "{record}");
    assert_eq!(record["contextUsage"], 0.15);
    assert_eq!(fs::read_to_string(daemon.project.join("a.txt")).expect("written"), "hello");

    let answer = daemon.post(&format!("/api/agents/{id}/query"), &json!({"question": "why?"}));
    assert_eq!(answer["answer"], "because of the task", "{answer}");
    let asked = endpoint.requests()[2].body["messages"].clone();
    assert_eq!(asked[4]["content"], "written", "a question sees the session: {asked}");

    let told = daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": "and b.txt"}));
    let next = told["agent"]["id"].as_str().unwrap_or(&id).to_owned();
    let record = daemon.wait_state(&next, &["completed", "crashed"]);
    assert_eq!(record["state"], "completed", "{record}");
    let history = endpoint.requests()[3].body["messages"].as_array().expect("a list").clone();
    let words: Vec<_> = history.iter().filter_map(|message| message["content"].as_str()).collect();
    assert!(!words.contains(&"because of the task"), "a question leaves no trace: {words:?}");
    assert!(words[4] == "written" && words[5].contains("and b.txt"), "{words:?}");
    assert_eq!(record["tokensUsed"], 262 + 306);
}

#[test]
fn a_fork_remembers_what_was_said_before_its_turn_and_keeps_a_session_of_its_own() {
    let answers = ["one", "two", "three", "of the end", "of turn 2", "further", "further, too"];
    let endpoint = Endpoint::start(answers.map(Answer::text).to_vec());
    let folder = Arc::new(Folder::new("ollama-fork"));
    folder.write("a.txt", "a\n");
    for args in [&["init", "--quiet", "-b", "main"][..], &["add", "."], &["commit", "--quiet", "-m", "First"]]
    {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let said = Command::new("git").current_dir(folder.path()).args(who).args(args).output().unwrap();
        assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
    }
    let env = [("SVC_OLLAMA_URL", endpoint.url.as_str())];
    let daemon = Daemon::start_in(folder, &env);
    let body = json!({"role": "backend", "provider": "ollama", "model": "tiny", "prompt": "say one"});
    let mut id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    let ended = |id: &str| {
        let record = daemon.wait_state(id, &["completed", "crashed"]);
        assert_eq!(record["state"], "completed", "{record}");
        record
    };
    let says = |id: &str, message: &str| {
        let told = daemon.post(&format!("/api/agents/{id}/resume"), &json!({"message": message}));
        let next = told["agent"]["id"].as_str().unwrap().to_owned();
        ended(&next);
        next
    };
    let kept = ended(&id)["sessionId"].clone();
    for message in ["say two", "say three"] {
        id = says(&id, message);
    }
    // What stood in a request behind its introduction, which names the folder.
    let asked = |request: usize, folder: &str| {
        let messages = endpoint.requests()[request].body["messages"].as_array().unwrap().clone();
        let introduction = messages[0]["content"].as_str().unwrap();
        assert!(introduction.contains(folder), "{introduction}");
        let words = messages[1..].iter().map(|message| message["content"].as_str().unwrap().to_owned());
        words.collect::<Vec<String>>()
    };
    let fork = |wish: Value| {
        let new = daemon.post(&format!("/api/agents/{id}/fork"), &wish);
        let record = ended(new["id"].as_str().unwrap());
        assert!(record["sessionId"] != kept && record["sessionId"].is_string(), "{record}");
        (record["id"].as_str().unwrap().to_owned(), new["worktree"].as_str().unwrap().to_owned())
    };
    let (whole, at) = fork(json!({"prompt": "another way"}));
    let said = asked(3, &at);
    assert!(said[4] == "say three" && said[5] == "three" && said[6].ends_with("another way\n"), "{said:?}");
    let (part, at) = fork(json!({"turn": 2, "prompt": "another way"}));
    let said = asked(4, &at);
    assert!(said.len() == 3 && said[1] == "one" && said[2].ends_with("another way\n"), "{said:?}");
    assert!(!said.concat().contains("say two") && !said.concat().contains("say three"), "{said:?}");
    // Each goes on in its own.
    says(&part, "go on");
    assert_eq!(asked(5, &at)[3..], ["of turn 2", "go on"]);
    says(&whole, "go on");
    assert_eq!(asked(6, "").len(), 9);
    let sessions = daemon.project.join(".svc/sessions");
    let first = fs::read_to_string(sessions.join(format!("{}.json", kept.as_str().unwrap()))).unwrap();
    assert!(first.contains("\"three\"") && !first.contains("another way"), "{first}");
    // Of one that is refused nothing is left.
    let files = || fs::read_dir(&sessions).unwrap().count();
    assert_eq!(files(), 3);
    let refused =
        daemon.send("POST", &format!("/api/agents/{id}/fork"), &json!({"turn": 2, "name": "backend-1"}));
    assert_eq!((refused.0, files()), (400, 3), "{}", refused.1);
}
