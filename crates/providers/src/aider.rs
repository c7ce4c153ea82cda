//! Aider, one headless run a turn.
//!
//! It prints words for people and no protocol: what is known of a run is read from a few lines of fixed form
//! (tried with aider 0.86.2). Its exit status is 0 also after a refused request, so a turn counts as done
//! only when the line with its tokens came. Those figures are rounded: `6.0k` for 6 043. It keeps one history
//! in a folder and no sessions, so there is none to continue.
//!
//! The prompt comes on standard input, which is read as the file of the message: no prompt is taken for an
//! option, however it begins, and none is too long.

use super::wire::{self, Joiner};
use super::{
    Activity, Args, Capabilities, Conversation, Info, Launch, LaunchRequest, Once, Program, Provider,
    Purpose, SessionStart, Step, Tokens, TurnEnd, Usage, saved,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;

/// Aider.
pub struct Aider;

/// The largest count that a line may tell; more is nonsense.
const COUNT_MAX: u64 = 1 << 53;

static INFO: Info = Info {
    id: "aider",
    name: "Aider",
    program: Program::OnPath("aider", &["--version"]),
    auth_type: "api-key",
    env_key: "OPENAI_API_KEY",
    install_command: "pip install aider-chat",
    state_places: &[".aider/", ".aider.conf.yml"],
    obeyed_places: &[".aider.conf.yml"],
    pass_env: &["AIDER_*"],
    vendor_keys: true,
    capabilities: Capabilities { resume: false, live_input: false, hooks: false, mcp: false, headless: true },
    ..Info::PLAIN
};

/// Of these the last are the daemon's wish: nothing fetched, no note about a new version in the answer,
/// and no commit or ignored file that nobody asked for, in a folder that others may work in too.
const FIXED_ARGUMENTS: [&str; 11] = [
    "--no-pretty",
    "--yes-always",
    "--no-stream",
    "--no-show-model-warnings",
    "--analytics-disable",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-gitignore",
    "--no-auto-commits",
    "--no-dirty-commits",
    "--message-file=/dev/stdin",
];

impl Provider for Aider {
    fn info(&self) -> &'static Info {
        &INFO
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Launch, String> {
        wire::check_names(request)?;
        if request.session != SessionStart::Fresh {
            return Err("aider keeps no sessions that could be continued".to_owned());
        }
        let mut args = Args::of(&FIXED_ARGUMENTS);
        // It edits in both permissions, and a shell command that it suggests is never run without a person.
        if request.purpose == Purpose::Query {
            args.add(&["--chat-mode", "ask"]);
        }
        args.model("--model", request);
        args.effort("--reasoning-effort", ["low", "high", "high"], request);
        // A prompt that begins so would be run as a command of the program, or of the shell.
        let guard = if request.prompt.starts_with(['/', '!']) { " " } else { "" };
        let prompt = format!("{guard}{}", request.prompt);
        let stream = Stream { folder: request.working_dir.clone(), ..Stream::default() };
        Ok(Launch::once("aider", args, Some(prompt), stream))
    }

    fn restore(&self, saved: &str) -> Result<Box<dyn Conversation>, String> {
        saved::restore::<Once<Stream>>(INFO.id, saved)
    }
}

/// The lines of one run.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    /// What the names of files are relative to.
    #[serde(with = "saved::path")]
    folder: PathBuf,
    /// The announcements are over: what follows are the answer's words.
    answers: bool,
    /// What was said since the last line of fixed form.
    words: Joiner,
    last_text: String,
    /// A line with tokens came.
    is_counted: bool,
    /// The last complaint since then.
    error: String,
    edits: u64,
    cost_usd: f64,
}

impl Stream {
    /// The words so far are the answer.
    fn said(&mut self, out: &mut Vec<Step>) {
        let text = self.words.take().unwrap_or_default();
        let text = text.trim();
        if !text.is_empty() {
            wire::answer(out, &mut self.last_text, text);
        }
    }

    fn usage(&mut self, line: &str, out: &mut Vec<Step>) -> bool {
        let Some((tokens, cost)) = figures(line) else { return false };
        self.said(out);
        self.is_counted = true;
        self.error.clear();
        self.cost_usd = wire::sum_of_costs(self.cost_usd, cost.unwrap_or(0.0));
        let delta = tokens.minus(Tokens::default());
        let context = Tokens { output: 0, ..tokens }.total();
        let context_tokens = (context > 0).then_some(context);
        wire::usage(out, Usage { delta, context_tokens, cost_usd: cost, ..Usage::default() });
        true
    }

    /// It names the file only when it has been written.
    fn edited(&mut self, name: &str, out: &mut Vec<Step>) {
        // Before it stands the name once more, which is not the model's.
        let _ = self.words.take();
        self.edits = self.edits.saturating_add(1);
        let id = format!("edit-{}", self.edits);
        let path = self.folder.join(name).to_string_lossy().into_owned();
        let input = json!({"path": path});
        let (name, path) = ("edit".to_owned(), Some(path));
        wire::emit(out, Activity::ToolStarted { id: id.clone(), name, input, path, writes: true });
        wire::tool_ended(out, &id, false, "");
    }
}

impl Conversation for Stream {
    fn open(&mut self, out: &mut Vec<Step>) {
        wire::emit(out, Activity::TurnStarted);
    }

    fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        if !self.answers {
            // The last of its announcements.
            self.answers = line.starts_with("Repo-map: ");
            if !line.trim().is_empty() {
                self.error = wire::cut(line.trim(), wire::NOISE_LIMIT_BYTES);
            }
            if self.answers {
                self.error.clear();
            }
            return wire::noise(line, out);
        }
        if self.usage(line, out) {
            return;
        }
        if let Some(name) = line.strip_prefix("Applied edit to ").filter(|_| self.is_counted) {
            self.edited(name, out);
        } else if is_complaint(line) {
            self.said(out);
            self.error = wire::cut(line, wire::NOISE_LIMIT_BYTES);
            wire::trouble(out, line);
        } else if line.starts_with("Retrying in ") && !self.error.is_empty() {
            wire::trouble(out, line);
        } else if line.starts_with("https://aider.chat/") {
            wire::noise(line, out);
        } else {
            let piece = self.words.push(line).or_else(|| self.words.push("\n"));
            if let Some(text) = piece {
                wire::answer(out, &mut self.last_text, &text);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<Step>) {
        let rest = self.words.take().unwrap_or_default();
        wire::noise(rest.trim(), out);
        let is_error = !self.is_counted || !self.error.is_empty();
        super::limit::told(out, None, &self.error, "");
        if is_error && self.error.is_empty() {
            "it ended without an answer".clone_into(&mut self.error);
        }
        let failure = is_error.then(|| std::mem::take(&mut self.error));
        let end = TurnEnd {
            cost_usd: (self.cost_usd > 0.0).then_some(self.cost_usd),
            ..TurnEnd::of(std::mem::take(&mut self.last_text), failure)
        };
        wire::emit(out, Activity::TurnEnded(end));
    }
}

/// Whether the library that calls the model complains, for example `litellm.AuthenticationError: ...`.
fn is_complaint(line: &str) -> bool {
    line.strip_prefix("litellm.")
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(kind, _)| kind.ends_with("Error") || kind.ends_with("Timeout"))
}

/// Tokens and US dollars of a line such as
/// `Tokens: 6.0k sent, 5.0k cache hit, 40 received. Cost: $0.02 message, $0.03 session.`; the cost may also
/// stand on a line of its own. Cached tokens stand inside the sent ones.
fn figures(line: &str) -> Option<(Tokens, Option<f64>)> {
    let (tokens, cost) = if let Some(cost) = line.strip_prefix("Cost: $") {
        (Tokens::default(), Some(cost))
    } else {
        let rest = line.strip_prefix("Tokens: ")?;
        let (counts, cost) = rest.split_once(" received.")?;
        (tokens(counts)?, cost.trim_start().strip_prefix("Cost: $"))
    };
    let dollars = |cost: &str| cost.split_once(" message,")?.0.parse::<f64>().ok();
    let cost_usd = cost.and_then(dollars).filter(|cost| cost.is_finite() && *cost > 0.0);
    (tokens != Tokens::default() || cost_usd.is_some()).then_some((tokens, cost_usd))
}

/// `6.0k sent, 5.0k cache hit, 40`.
fn tokens(counts: &str) -> Option<Tokens> {
    let (mut sent, mut written, mut hit, mut received) = (None, 0, 0, None);
    for part in counts.split(", ") {
        let (number, class) = part.split_once(' ').unwrap_or((part, ""));
        let number = amount(number)?;
        match class {
            "sent" => sent = Some(number),
            "cache write" => written = number,
            "cache hit" => hit = number,
            "" => received = Some(number),
            _ => return None,
        }
    }
    let sent = sent?;
    let cache_read = hit.min(sent);
    let cache_creation = written.min(sent - cache_read);
    let input = sent - cache_read - cache_creation;
    Some(Tokens { input, output: received?, cache_read, cache_creation })
}

/// `940`, `6.0k` or `12k`.
fn amount(word: &str) -> Option<u64> {
    let Some(thousands) = word.strip_suffix('k') else {
        return word.parse().ok().filter(|count| *count <= COUNT_MAX);
    };
    let (whole, tenth) = thousands.split_once('.').unwrap_or((thousands, "0"));
    let tenth = tenth.parse::<u64>().ok().filter(|tenth| *tenth < 10)?;
    let count = whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(tenth * 100)?;
    (count <= COUNT_MAX).then_some(count)
}
