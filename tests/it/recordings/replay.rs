//! Feeds a recording to the conversation of its provider.

use serde_json::Value;
use std::path::PathBuf;
use svc::providers::{
    Activity, Conversation, Effort, LaunchRequest, Permission, Purpose, Ruling, SessionStart, Step, Tokens,
    TokensDelta, TurnEnd, Usage, by_id,
};

pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recordings");

pub fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All recordings, for example `claude-default` and `acp/codex-allow`.
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for (folder, prefix) in [(FOLDER.to_owned(), ""), (format!("{FOLDER}/acp"), "acp/")] {
        for entry in std::fs::read_dir(folder).expect("the folder of recordings") {
            let file = entry.expect("an entry").file_name().into_string().expect("a plain name");
            if let Some(name) = file.strip_suffix(".jsonl") {
                names.push(format!("{prefix}{name}"));
            }
        }
    }
    names.sort();
    assert!(names.len() > 50, "the recordings are there");
    names
}

pub fn provider_of(name: &str) -> &'static str {
    match name.split(['-', '/']).next() {
        Some("claude") => "claude-code",
        Some("codex") => "codex",
        Some("gemini") => "gemini",
        Some("opencode") => "opencode",
        Some("qwen") => "qwen",
        Some("copilot") => "copilot",
        Some("cline") => "cline",
        Some("aider") => "aider",
        Some("acp") => "acp",
        other => panic!("{name}: no provider for {other:?}"),
    }
}

/// What was counted of the session before this recording: the provider's totals of its first half.
pub fn counted_before(name: &str) -> Option<Tokens> {
    match name {
        "claude-resume" => Some(Tokens { input: 1000, output: 40, cache_read: 5000, cache_creation: 300 }),
        "codex-resume" => Replay::of("codex-plain").last_session_total(),
        "gemini-sessionresume" => {
            Some(Tokens { input: 1000, output: 45, cache_read: 5000, cache_creation: 0 })
        }
        // One answer, and one call that the stream does not show.
        "qwen-sessionresume" => {
            Some(Tokens { input: 2000, output: 80, cache_read: 10_000, cache_creation: 0 })
        }
        _ => None,
    }
}

pub fn conversation(name: &str, session: SessionStart) -> Box<dyn Conversation> {
    // The recording with a refusal is answered as an agent is that works in another folder.
    let allow = name != "acp/claude-reject";
    let provider = by_id(provider_of(name)).expect("a registered provider");
    let session = if provider.info().capabilities.resume { session } else { SessionStart::Fresh };
    let request = LaunchRequest {
        purpose: Purpose::Work,
        prompt: "do it".to_owned(),
        model: name.starts_with("acp/").then(|| "qwen".to_owned()),
        effort: Effort::Medium,
        permission: if allow { Permission::Full } else { Permission::Auto },
        working_dir: PathBuf::from(if allow { "/project" } else { "/elsewhere" }),
        project_dir: PathBuf::from("/project"),
        session,
        command: Vec::new(),
        has_integrations: false,
        hook_program: None,
        fence: None,
        room: None,
        extra_env: svc::providers::environment::Extra::default(),
    };
    provider.launch(&request).expect("a launch").conversation
}

/// The lines a program printed. Of the bidirectional recordings: the agent's, with our own numbering of
/// the requests they answer.
pub fn lines(name: &str) -> Vec<String> {
    let text = read(&format!("{FOLDER}/{name}.jsonl"));
    if !name.starts_with("acp/") {
        return text.lines().map(str::to_owned).collect();
    }
    let mut answered = 0;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut record: Value = serde_json::from_str(line).expect("a record is JSON");
        if record["dir"] == "<-" {
            let message = &mut record["msg"];
            if message.get("method").is_none() {
                answered += 1;
                message["id"] = answered.into();
            }
            lines.push(message.to_string());
        }
    }
    lines
}

/// A person answers a question as in the recording.
fn answer(name: &str, conversation: &mut dyn Conversation, steps: &mut Vec<Step>) {
    if let Some(Step::Event(Activity::PermissionAsked { question, .. })) = steps.last() {
        let question = question.clone();
        let ruling = Ruling { allow: name != "acp/claude-reject", ..Ruling::default() };
        conversation.decide(&question, &ruling, steps);
    }
}

/// A recording and what came of it.
pub struct Replay {
    pub steps: Vec<Step>,
}

impl Replay {
    pub fn of(name: &str) -> Self {
        let session = match counted_before(name) {
            Some(counted) => SessionStart::Resume { id: "given".to_owned(), counted },
            None => SessionStart::Fresh,
        };
        Self::with(name, session, &lines(name))
    }

    pub fn with(name: &str, session: SessionStart, lines: &[String]) -> Self {
        Self::by(name, conversation(name, session).as_mut(), lines)
    }

    pub fn by(name: &str, conversation: &mut dyn Conversation, lines: &[String]) -> Self {
        let mut steps = Vec::new();
        conversation.open(&mut steps);
        for line in lines {
            conversation.line(line, &mut steps);
            answer(name, conversation, &mut steps);
        }
        // Some programs tell troubles, or their tokens, only there.
        let complaints = std::fs::read_to_string(format!("{FOLDER}/{name}.stderr.txt")).unwrap_or_default();
        for line in complaints.lines() {
            conversation.complaint(line, &mut steps);
        }
        conversation.end(&mut steps);
        Self { steps }
    }

    pub fn activities(&self) -> impl Iterator<Item = &Activity> {
        self.steps.iter().filter_map(|step| match step {
            Step::Event(activity) => Some(activity),
            _ => None,
        })
    }

    pub fn usages(&self) -> impl Iterator<Item = &Usage> {
        self.activities().filter_map(|activity| match activity {
            Activity::Usage(usage) => Some(usage),
            _ => None,
        })
    }

    pub fn turn_ends(&self) -> Vec<&TurnEnd> {
        let ends = self.activities().filter_map(|activity| match activity {
            Activity::TurnEnded(end) => Some(end),
            _ => None,
        });
        ends.collect()
    }

    /// The sum of all changes.
    pub fn counted(&self) -> TokensDelta {
        self.usages().fold(TokensDelta::default(), |sum, usage| TokensDelta {
            input: sum.input + usage.delta.input,
            output: sum.output + usage.delta.output,
            cache_read: sum.cache_read + usage.delta.cache_read,
            cache_creation: sum.cache_creation + usage.delta.cache_creation,
        })
    }

    pub fn last_session_total(&self) -> Option<Tokens> {
        self.usages().filter_map(|usage| usage.session_total).last()
    }

    pub fn session_ids(&self) -> Vec<&str> {
        let ids = self.activities().filter_map(|activity| match activity {
            Activity::Session { id, .. } => Some(id.as_str()),
            _ => None,
        });
        ids.collect()
    }
}
