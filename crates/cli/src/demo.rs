//! `svc demo`: a guided tour with scripted agents, in a project that is removed afterwards.
//!
//! It runs this very program for each step, so that what a person sees is what a person can type.

use super::client::Client;
use super::commands::{Command, Group, switch};
use super::control::{Background, shut_down, start_in_background};
use super::render::Style;
use super::session::{Failure, Out, Outcome, Session};
use super::target::{agents, text};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A step of the tour takes seconds; one that takes longer has gone wrong.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at what a step waits for.
const POLL: Duration = Duration::from_millis(50);
/// The pause before each step, so that a person can read; `--fast` and a pipe leave it out.
const READING: Duration = Duration::from_secs(4);

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "demo",
    group: Group::Help,
    summary: "take a two-minute tour: scripted agents, no key, no cost",
    usage: "demo [--fast] [--keep]",
    options: &[
        switch("fast", "without pauses for reading"),
        switch("keep", "leave the project and its daemon for a look around"),
    ],
    details: "It works in a temporary project of its own and removes it; your projects are not touched.\n\
              Each command is printed before its output. For scripted agents in a project of yours see\n\
              'svc help rehearse'.",
    run: demo,
    ..Command::PLAIN
}];

/// How an agent that is a script asks whether it may write: as real programs do, by `svc hook`.
fn may_write(project: &Path, program: &Path) -> String {
    let call = json!({"tool_name": "Write", "tool_input": {"file_path": project.join("api/routes.txt")}});
    format!("printf %s {} | {} hook\n", shell_word(&call.to_string()), shell_word(&program.to_string_lossy()))
}

/// An agent that must write a file outside of its scope: it asks, waits for the decision, and then tries
/// again.
fn careful() -> Value {
    let hook = "sh .svc/rehearsals/may-write.sh";
    json!({
        "description": "Owns web/, needs one line in api/, and asks for it",
        "steps": [
            {"write": {"path": "web/login.html", "text": "<form>..</form>\n"}},
            {"say": "The form needs a route in api/, which is not mine. I ask."},
            {"run": {"command": hook, "timeoutMs": 20_000}},
            {"usage": {"input": 900, "output": 140, "cacheRead": 5200, "contextWindow": 200_000}},
            {"ask": "Until a person has decided, I wait."},
            {"run": {"command": hook, "timeoutMs": 20_000}},
            {"write": {"path": "api/routes.txt", "text": "POST /login\n"}},
            {"answer": "The form and its route are there."},
        ],
    })
}

/// An agent whose context fills, so that a rotation makes sense.
const WRITER: &str = r#"{
  "description": "Writes a page, and then waits for more to do",
  "query": "{{name}}: the page stands in web/index.html; the style is missing.",
  "steps": [
    {"think": "What does the page need?"},
    {"write": {"path": "web/index.html", "text": "<h1>Hello</h1>\n"}},
    {"say": "The page has a heading. Next: the style."},
    {"usage": {"input": 118000, "output": 2400, "cacheRead": 0, "contextWindow": 200000}},
    {"ask": "Which colour shall the heading have?"},
    {"write": {"path": "web/style.css", "text": "h1 { color: {{message}} }\n"}},
    {"answer": "The heading is {{message}} now."}
  ]
}"#;

/// The temporary project; removed when it is dropped, unless it is kept.
struct Project {
    dir: PathBuf,
    kept: bool,
}

impl Project {
    fn make(kept: bool) -> Result<Self, Failure> {
        let fail = |dir: &Path, error: std::io::Error| {
            Failure::failed(format!(
                "{} cannot be made: {error}; set TMPDIR to another folder",
                dir.display()
            ))
        };
        let dir = std::env::temp_dir().join(format!("svc-demo-{}", std::process::id()));
        // A folder that is there already belongs to somebody else.
        std::fs::create_dir(&dir).map_err(|error| fail(&dir, error))?;
        let dir = std::fs::canonicalize(&dir).map_err(|error| fail(&dir, error))?;
        let project = Self { dir, kept };
        let program = std::env::current_exe().map_err(|error| fail(&project.dir, error))?;
        let (careful, may_write) = (careful().to_string(), may_write(&project.dir, &program));
        for (name, content) in [
            (".svc/rehearsals/careful.json", careful.as_str()),
            (".svc/rehearsals/writer.json", WRITER),
            (".svc/config.json", r#"{"defaultProvider": "script"}"#),
            (".svc/rehearsals/may-write.sh", may_write.as_str()),
            ("api/routes.txt", ""),
        ] {
            let path = project.dir.join(name);
            let folder = path.parent().unwrap_or(&project.dir);
            std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&path, content))
                .map_err(|error| fail(&path, error))?;
        }
        owner_only(&project.dir.join(".svc")).map_err(|error| fail(&project.dir, error))?;
        Ok(project)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn owner_only(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// `svc demo`.
pub fn demo(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    if args.flag("project") || args.flag("url") {
        return Err(Failure::usage(
            "'svc demo' makes a project of its own; for yours see 'svc help rehearse'",
        ));
    }
    let keep = args.flag("keep");
    let mut project = Project::make(keep)?;
    let options =
        Background { project_dir: project.dir.clone(), port: Some(0), host: None, own_session: true };
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    // Ctrl-C reaches the tour alone (the daemon has a session of its own), which then tidies up.
    // Nothing is left behind by a tour that did not even begin.
    let daemon =
        start_in_background(&options, &|words| out.note(words)).inspect_err(|_| project.kept = false)?;
    let client = Client::new(daemon.address)?;
    let tour = Tour {
        out,
        client,
        dir: &project.dir,
        interrupted,
        pause: !args.flag("fast") && out.width.is_some(),
    };
    let toured = tour.run();
    if keep {
        let place = project.dir.display();
        tour.say(&format!(
            "Look around in {place}, for example with 'svc top'. At the end: svc stop && rm -r {place}"
        ))?;
        return toured;
    }
    let stopped = shut_down(&tour.client).map(|_| ());
    toured.and(stopped)?;
    if out.json {
        return out.document(&json!({"ok": true}));
    }
    tour.say("The daemon has stopped, its agents with it, and the temporary project is gone.")?;
    tour.say("")?;
    tour.say("In a project of yours:")?;
    for line in ["svc start --background", "svc doctor", "svc spawn backend 'Add a login page' --follow"] {
        tour.say(&format!("  {line}"))?;
    }
    Ok(())
}

struct Tour<'a> {
    out: &'a Out,
    client: Client,
    dir: &'a Path,
    interrupted: Arc<AtomicBool>,
    pause: bool,
}

impl Tour<'_> {
    fn run(&self) -> Outcome {
        let place = self.dir.display();
        self.say(&format!(
            "A tour in a temporary project, {place}, with a daemon of its own.\n\
             The agents are scripts (provider 'script'): no model, no key, no cost. Ctrl-C ends it."
        ))?;
        self.team()?;
        self.approval()?;
        self.rotation()?;
        self.chapter(
            "4. What it cost",
            "Tokens and dollars are counted by agent and by team, as the programs report them.",
        )?;
        self.svc(&["tokens"])?;
        self.svc(&["agents"])
    }

    fn team(&self) -> Outcome {
        self.chapter(
            "1. A team at work",
            "Each agent is a process of its own, with a role, a task and files that it owns.",
        )?;
        for (role, scope, task) in [
            ("planner", "plan.md", "Plan the work of the team."),
            ("builder", "hello.txt", "Build what the planner planned."),
            ("reviewer", "review.md", "Review what the builder built."),
        ] {
            self.svc(&["spawn", role, task, "--model", role, "--scope", scope])?;
        }
        self.svc(&["agents"])?;
        self.svc(&["wait", "--timeout", "60s"])?;
        self.svc(&["logs", "reviewer-1", "--tail", "8"])
    }

    fn approval(&self) -> Outcome {
        self.chapter(
            "2. What needs a person",
            "This agent owns web/ alone. Before it writes elsewhere it asks; it waits; you decide; it goes on.",
        )?;
        let task = "Add a login form.";
        self.svc(&["spawn", "web", task, "--model", "careful", "--scope", "web/**"])?;
        let record = self.until("web-1 to ask", |agents| {
            agents
                .iter()
                .find(|one| text(one, "name") == "web-1" && text(one, "currentActivity").contains("wait"))?;
            self.client.get("/api/approvals").ok()?["pending"].as_array()?.first().cloned()
        })?;
        self.svc(&["approvals"])?;
        self.svc(&["approve", text(&record, "id")])?;
        self.svc(&["wait", "web-1", "--timeout", "60s"])?;
        self.svc(&["logs", "web-1", "--tail", "12"])
    }

    fn rotation(&self) -> Outcome {
        self.chapter(
            "3. A fresh context",
            "Long sessions fill an agent's context. A rotation replaces it by a fresh one that is briefed.",
        )?;
        self.svc(&["spawn", "writer", "Write the page.", "--model", "writer"])?;
        self.until("writer-1 to ask", |agents| {
            agents
                .iter()
                .find(|one| text(one, "name") == "writer-1" && one["contextUsage"].as_f64() > Some(0.5))
                .cloned()
        })?;
        self.svc(&["query", "writer-1", "How far are you?"])?;
        self.svc(&["rotate", "writer-1", "--dry-run"])?;
        self.svc(&["rotate", "writer-1"])?;
        self.svc(&["instruct", "writer-1", "--now", "navy"])?;
        self.svc(&["wait", "writer-1", "--timeout", "60s"])
    }

    /// Waits until `look` finds something among the agents.
    fn until(&self, what: &str, look: impl Fn(&[Value]) -> Option<Value>) -> Result<Value, Failure> {
        let deadline = Instant::now() + STEP_LIMIT;
        loop {
            self.go_on()?;
            if let Some(found) = look(&agents(&self.client)?) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                let limit = STEP_LIMIT.as_secs();
                return Err(Failure::failed(format!(
                    "the tour waited {limit} s in vain for {what}; see 'svc doctor'"
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Errors: a signal asks to end.
    fn go_on(&self) -> Outcome {
        if self.interrupted.load(Ordering::SeqCst) {
            return Err(Failure::failed("the tour was interrupted; nothing of it is left"));
        }
        Ok(())
    }

    fn read_time(&self) -> Outcome {
        let until = Instant::now() + READING;
        while self.pause && Instant::now() < until {
            self.go_on()?;
            std::thread::sleep(POLL);
        }
        self.go_on()
    }

    fn say(&self, line: &str) -> Outcome {
        if self.out.json || self.out.quiet { Ok(()) } else { self.out.line(line) }
    }

    fn chapter(&self, title: &str, words: &str) -> Outcome {
        self.say("")?;
        self.say(&self.out.paint(Style::Bold, title))?;
        self.say(words)
    }

    /// Prints a command, and runs it in the project.
    fn svc(&self, args: &[&str]) -> Outcome {
        self.read_time()?;
        self.say("")?;
        let words: Vec<String> = args.iter().map(|word| shell_word(word)).collect();
        self.say(&self.out.paint(Style::Cyan, &format!("$ svc {}", words.join(" "))))?;
        let fail = |error: std::io::Error| Failure::failed(format!("svc cannot be run again: {error}"));
        let mut command = std::process::Command::new(std::env::current_exe().map_err(fail)?);
        command.args(args).current_dir(self.dir).env_remove("SVC_DAEMON_URL").stdin(Stdio::null());
        if self.out.json || self.out.quiet {
            command.stdout(Stdio::null());
        }
        let status = command.status().map_err(fail)?;
        self.go_on()?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "the tour ends here: 'svc {}' failed ({status}); see 'svc doctor'",
            args[0]
        )))
    }
}

/// A word as one would type it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_of_the_tour_are_good() {
        let careful = careful().to_string();
        for scenario in [careful.as_str(), WRITER] {
            svc_agents::rehearsal::scenario::parse(scenario).unwrap();
        }
    }

    #[test]
    fn commands_are_printed_as_a_shell_takes_them() {
        assert_eq!(shell_word("--tail"), "--tail");
        assert_eq!(shell_word("it's a"), r"'it'\''s a'");
        let script = may_write(Path::new("/tmp/a b"), Path::new("/opt/s v/svc"));
        assert!(script.contains("/tmp/a b/api/routes.txt") && script.ends_with(" | '/opt/s v/svc' hook\n"));
    }
}
