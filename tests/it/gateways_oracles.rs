//! The servers that stand for the chat platforms, talked to by the platforms' own public libraries: what
//! the daemon's tests rely on is what grammy, discord.js and @slack/bolt take for the real thing.
//!
//! `tests/real/setup-oracles` installs the libraries, pinned; without them these tests say that they were
//! skipped, and fail where `SVC_REAL_CLIS=require`.

use crate::support::chat::{discord, slack, telegram};
use crate::support::real::absent;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

struct Library {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Library {
    /// Runs `tests/oracles/NAME.mjs` with a library; `None`, and a word, when it is not there.
    fn start(library: &str, name: &str, arguments: &[&str]) -> Option<Self> {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/chat-libraries");
        let folder = std::env::var_os("SVC_CHAT_LIBRARIES").map_or_else(default, PathBuf::from).join(name);
        if !folder.join("node_modules").join(library).is_dir() {
            absent(library, "setup-oracles");
            return None;
        }
        let (url, rest) = arguments.split_first().unwrap();
        let mut command = Command::new("node");
        command.arg(format!("tests/oracles/{name}.mjs")).arg(url).arg(&folder).args(rest);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Some(Self { child, stdin, lines: BufReader::new(stdout).lines() })
    }

    /// The next line that begins so.
    fn says(&mut self, beginning: &str) -> String {
        for line in self.lines.by_ref().map_while(Result::ok) {
            if line.starts_with(beginning) {
                return line;
            }
        }
        panic!("the library ended before it said {beginning:?}");
    }

    fn end(mut self) {
        self.stdin = None;
        wait_for("the library to end", || self.child.try_wait().unwrap());
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn grammy_takes_our_telegram_for_the_real_one() {
    let (web, server) = telegram::Telegram::start();
    let url = format!("http://127.0.0.1:{}", web.port);
    let Some(mut library) = Library::start("grammy", "grammy", &[&url, telegram::TOKEN]) else {
        return;
    };
    assert_eq!(library.says("ready"), "ready svc_bot");
    server.says(7, 77, "/start");
    let sent: i64 = library.says("sent")[5..].parse().unwrap();
    assert_eq!(server.with(|state| state.messages[0].2.clone()), "hello & welcome");
    server.clicks(7, sent, "/approve apr-00000001");
    assert_eq!(library.says("clicked"), "clicked /approve apr-00000001");
    assert!(library.says("refused").starts_with("refused 400 Bad Request: message is too long"));
    assert_eq!(library.says("over"), "over");
    assert_eq!(server.with(|state| (state.messages[0].2.clone(), state.messages.len())), ("done".into(), 1));
}

#[test]
fn discord_js_takes_our_discord_for_the_real_one() {
    let (web, server) = discord::Discord::start();
    let url = format!("http://127.0.0.1:{}", web.port);
    let Some(mut library) = Library::start("discord.js", "discord", &[&url, discord::TOKEN]) else {
        return;
    };
    assert_eq!(library.says("ready"), "ready svc_bot");
    library.says("sent");
    assert!(library.says("refused").starts_with("refused 400"));
    server.with(|state| assert_eq!((state.messages[0].2.as_str(), state.messages.len()), ("done", 1)));
    server.says("m-1", "7", "hello");
    assert_eq!(library.says("message"), "message hello");
    server.order(discord::Order::Frame(json!({"op": 7, "d": null})));
    wait_for("the connection to go", || server.with(|state| !state.ready).then_some(()));
    server.says("m-2", "7", "while away");
    assert_eq!(library.says("message"), "message while away");
    server.order(discord::Order::Close(4000));
    wait_for("two resumes", || {
        server.with(|state| (state.heard.iter().filter(|one| one["op"] == 6).count() >= 2).then_some(()))
    });
    wait_for("the session", || server.with(|state| state.ready.then_some(())));
    server.interacts("i-1", "7", 3, &json!({"component_type": 2, "custom_id": "/approve x"}));
    assert_eq!(library.says("interaction"), "interaction /approve x");
    let options = json!([{"type": 3, "name": "arguments", "value": "all"}]);
    server.interacts("i-2", "7", 2, &json!({"id": "9", "name": "agents", "type": 1, "options": options}));
    // Both the library and the server know no answer before the acknowledgement.
    assert_eq!(library.says("early"), "early InteractionNotReplied");
    assert_eq!(library.says("raw"), "raw 404 10015");
    assert_eq!(library.says("command"), "command agents all");
    server.with(|state| {
        let deferred = |(method, path, body): &&(String, String, Value)| {
            method == "POST" && path == "interactions/i-2/toki-2/callback" && body["type"] == 5
        };
        assert_eq!(state.calls.iter().filter(deferred).count(), 1, "as the daemon does it");
        let answered = |(method, path, _): &&(String, String, Value)| {
            // The library writes the @ as %40, which is the same path.
            method == "PATCH" && path.replace("%40", "@") == "webhooks/901/toki-2/messages/@original"
        };
        assert_eq!(
            state.calls.iter().filter(answered).count(),
            2,
            "the early one, and as the daemon does it"
        );
    });
    library.end();
}

#[test]
fn bolt_takes_our_slack_for_the_real_one() {
    let (web, server) = slack::Slack::start();
    let url = format!("http://127.0.0.1:{}", web.port);
    let tokens = [url.as_str(), slack::BOT_TOKEN, slack::APP_TOKEN];
    let Some(mut library) = Library::start("@slack/bolt", "bolt", &tokens) else { return };
    library.says("ready");
    server.says("Ev1", "U7", "hello");
    assert!(library.says("message").starts_with("message hello 17."));
    assert_eq!(server.with(|state| state.messages[0].2.clone()), "done");
    server.commands("t1", "U7", "/svc", "status");
    assert_eq!(library.says("command"), "command status");
    server.clicks("t2", "U7", "/approve x");
    assert_eq!(library.says("clicked"), "clicked /approve x");
    let opened = server.with(|state| state.opened);
    server.order(json!({"type": "disconnect", "reason": "refresh_requested", "debug_info": {"host": "x"}}));
    wait_for("another connection", || server.with(|state| (state.opened > opened).then_some(())));
    server.says("Ev2", "U7", "again");
    assert!(library.says("message").starts_with("message again"));
    server.with(|state| assert!(state.acknowledged.len() >= 4, "{:?}", state.acknowledged));
    library.end();
}
