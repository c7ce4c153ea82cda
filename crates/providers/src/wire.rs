//! What all stream parsers share: reading JSON that may be nonsense, cutting, joining and counting.

use super::json::{Json, Look};
use super::limit;
use super::native;
use super::{Activity, LaunchRequest, SessionStart, Step, Tokens, TokensDelta, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// A tool's output is cut to this many bytes.
pub const TOOL_OUTPUT_LIMIT_BYTES: usize = 64 * 1024;
/// A line that is not of the protocol is cut to this many bytes.
pub const NOISE_LIMIT_BYTES: usize = 4 * 1024;
/// Text deltas are joined up to this many bytes; longer words arrive in several texts.
pub const JOINED_TEXT_LIMIT_BYTES: usize = 256 * 1024;
/// A prompt above this many bytes goes to standard input: Linux takes at most 128 KiB in one argument.
pub const ARGUMENT_LIMIT_BYTES: usize = 100 * 1024;
/// At most this many refused tools are named.
pub const DENIED_MAX: usize = 64;
/// An id or a name above this many bytes is not remembered.
pub const NAME_LIMIT_BYTES: usize = 1024;
/// The largest whole number that JSON carries exactly everywhere; a count above it is nonsense.
const COUNT_MAX: u64 = 1 << 53;

/// Refuses a model or session whose name a program would take for an option, such as `--yolo`.
pub fn check_names(request: &LaunchRequest) -> Result<(), String> {
    let session = match &request.session {
        SessionStart::Fresh => "",
        SessionStart::Resume { id, .. } | SessionStart::Fork { id, .. } => id,
    };
    for (thing, name) in [("model", request.model.as_deref().unwrap_or("")), ("session", session)] {
        if name.starts_with('-') || name.contains('\0') {
            return Err(format!("the {thing} {name:?} is not a name: it begins with a dash or has a NUL"));
        }
    }
    Ok(())
}

/// The object on this line, or `None` for anything else (nesting above 128 levels included).
pub fn object(line: &str) -> Option<Json<'_>> {
    Json::parse(line).ok().filter(Json::is_object)
}

/// As [`object`], with words of its own: for messages of which parts are kept.
pub fn own_object(line: &str) -> Option<Value> {
    serde_json::from_slice::<Value>(line.as_bytes()).ok().filter(Value::is_object)
}

/// The text under `key`, or the empty one.
pub fn text<'a>(value: &'a impl Look, key: &str) -> &'a str {
    value.get(key).and_then(Look::as_str).unwrap_or("")
}

/// The id or name under `key`; the empty one where there is none, or one that is too long to be remembered.
pub fn name<'a>(value: &'a impl Look, key: &str) -> &'a str {
    Some(text(value, key)).filter(|name| name.len() <= NAME_LIMIT_BYTES).unwrap_or("")
}

/// The count under `key`, or 0.
pub fn count(value: &impl Look, key: &str) -> u64 {
    value.get(key).and_then(Look::as_u64).unwrap_or(0).min(COUNT_MAX)
}

/// The count under `key`, if there is one.
pub fn count_if_any(value: &impl Look, key: &str) -> Option<u64> {
    value.get(key).and_then(Look::as_u64).map(|number| number.min(COUNT_MAX))
}

/// The items of the list under `key`; none when it is not a list.
pub fn items<'a, T: Look>(value: &'a T, key: &str) -> &'a [T] {
    value.get(key).and_then(Look::as_array).unwrap_or(&[])
}

/// The first `limit` bytes at most, never in the middle of a character.
pub fn cut(text: &str, limit: usize) -> String {
    native::cut(text, limit).to_owned()
}

/// Remembers that a tool was refused, for the end of the turn.
pub fn refused(denied: &mut Vec<String>, name: &str) {
    if denied.len() < DENIED_MAX {
        denied.push(cut(name, NAME_LIMIT_BYTES));
    }
}

/// The sum of two costs, which is a number whatever a program tells.
pub fn sum_of_costs(one: f64, other: f64) -> f64 {
    (one + other).min(f64::MAX)
}

/// Reports a line that is not of the protocol; an empty one says nothing.
pub fn noise(line: &str, out: &mut Vec<Step>) {
    if !line.trim().is_empty() {
        emit(out, Activity::Noise { text: cut(line, NOISE_LIMIT_BYTES) });
    }
}

/// Adds an event.
pub fn emit(out: &mut Vec<Step>, activity: Activity) {
    out.push(Step::Event(activity));
}

/// Adds words, unless there are none.
pub fn say(out: &mut Vec<Step>, text: &str) {
    if !text.is_empty() {
        emit(out, Activity::Text { text: text.to_owned() });
    }
}

/// Adds words of the answer, unless there are none, and remembers them as the last ones for the end of the
/// turn, which repeats [`JOINED_TEXT_LIMIT_BYTES`] of them.
pub fn answer(out: &mut Vec<Step>, last_text: &mut String, text: &str) {
    say(out, text);
    native::cut(text, JOINED_TEXT_LIMIT_BYTES).clone_into(last_text);
}

/// Adds thinking, unless there is none.
pub fn think(out: &mut Vec<Step>, text: &str) {
    if !text.is_empty() {
        emit(out, Activity::Thinking { text: text.to_owned() });
    }
}

/// Adds the begin of a turn, unless one is under way.
pub fn turn_started(out: &mut Vec<Step>, is_working: &mut bool) {
    if !std::mem::replace(is_working, true) {
        emit(out, Activity::TurnStarted);
    }
}

/// Adds a trouble, unless it says nothing.
pub fn trouble(out: &mut Vec<Step>, text: &str) {
    if !text.is_empty() {
        emit(out, Activity::Trouble { text: cut(text, NOISE_LIMIT_BYTES) });
    }
}

/// Adds a usage that changes something.
pub fn usage(out: &mut Vec<Step>, usage: Usage) {
    if usage != Usage::default() {
        emit(out, Activity::Usage(usage));
    }
}

/// Why a turn failed, as the `error` of an event tells it. The limit that it names, if any, is added.
pub fn failure(out: &mut Vec<Step>, event: &Json<'_>) -> String {
    let message = event.get("error").map_or("", |error| text(error, "message"));
    let message = if message.is_empty() { "the turn failed" } else { message };
    limit::told(out, None, message, "");
    cut(message, NOISE_LIMIT_BYTES)
}

/// Adds the end of a tool call.
pub fn tool_ended(out: &mut Vec<Step>, id: &str, error: bool, output: &str) {
    let output = cut(output, TOOL_OUTPUT_LIMIT_BYTES);
    emit(out, Activity::ToolEnded { id: id.to_owned(), error, output });
}

/// The words in a content value: a string, or a list of blocks with `text` (possibly one `content`
/// deeper, as the Agent Client Protocol has it). At most [`TOOL_OUTPUT_LIMIT_BYTES`] and a block.
pub fn words(content: &impl Look) -> String {
    if let Some(text) = content.as_str() {
        return cut(text, TOOL_OUTPUT_LIMIT_BYTES);
    }
    let blocks = content.as_array().unwrap_or(&[]).iter();
    joined(blocks.map(|block| text(block.get("content").unwrap_or(block), "text")))
}

/// These words, each on a line of its own, without empty ones. At most [`TOOL_OUTPUT_LIMIT_BYTES`] and one of
/// them.
pub fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut all = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if all.len() < TOOL_OUTPUT_LIMIT_BYTES {
            if !all.is_empty() {
                all.push('\n');
            }
            all.push_str(word);
        }
    }
    all
}

/// Joins text deltas to whole texts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joiner {
    /// At most [`JOINED_TEXT_LIMIT_BYTES`].
    held: String,
}

impl Joiner {
    /// Takes a delta. Returns what has become too long to hold back.
    pub fn push(&mut self, delta: &str) -> Option<String> {
        self.held.push_str(delta);
        (self.held.len() > JOINED_TEXT_LIMIT_BYTES).then(|| std::mem::take(&mut self.held))
    }

    /// What is held back, if anything.
    pub fn take(&mut self) -> Option<String> {
        (!self.held.is_empty()).then(|| std::mem::take(&mut self.held))
    }
}

/// Turns a provider's cumulative token counts into changes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meter {
    /// The provider's last own figure.
    total: Tokens,
    /// What was reported beyond it, before the provider's next figure.
    provisional: Tokens,
}

impl Meter {
    /// A meter of a session of which `counted` has been counted.
    pub fn starting_at(counted: Tokens) -> Self {
        Self { total: counted, provisional: Tokens::default() }
    }

    /// Moves the start so that the provider's figure `now` contains only `turn` that is to be counted.
    pub fn start_before(&mut self, now: Tokens, turn: Tokens) {
        let mut before = now;
        before += Tokens::default().minus(turn);
        self.total = before;
    }

    /// Counts something that the provider's next figure will contain.
    pub fn provisional(&mut self, tokens: Tokens) -> TokensDelta {
        self.provisional = self.provisional + tokens;
        tokens.minus(Tokens::default())
    }

    /// Takes back what was reported beyond the provider's last figure.
    pub fn take_back(&mut self) -> TokensDelta {
        Tokens::default().minus(std::mem::take(&mut self.provisional))
    }

    /// The change to the provider's own cumulative figure `now`, provisional counts taken back. A figure
    /// below the last one means that the provider has begun to count afresh.
    pub fn total(&mut self, now: Tokens) -> TokensDelta {
        if is_below(now, self.total) {
            self.total = Tokens::default();
        }
        let reported = self.total + self.provisional;
        *self = Self::starting_at(now);
        now.minus(reported)
    }
}

fn is_below(now: Tokens, then: Tokens) -> bool {
    now.input < then.input
        || now.output < then.output
        || now.cache_read < then.cache_read
        || now.cache_creation < then.cache_creation
}

/// Turns a cumulative cost in US dollars into changes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostMeter {
    /// `None` until the first figure of a continued session, whose earlier cost is not known here.
    last: Option<f64>,
}

impl CostMeter {
    /// `continued`: the provider's figure contains a cost from before this run.
    pub fn new(continued: bool) -> Self {
        Self { last: (!continued).then_some(0.0) }
    }

    /// The change, where it can be known.
    pub fn total(&mut self, now: Option<f64>) -> Option<f64> {
        let now = now.filter(|cost| cost.is_finite() && *cost >= 0.0)?;
        let before = self.last.replace(now)?;
        Some(if now < before { now } else { now - before })
    }
}

/// The file a tool's arguments name, under any of the names the providers use.
pub fn path_in(input: &impl Look) -> Option<String> {
    ["file_path", "filePath", "notebook_path", "absolute_path", "filepath", "path"]
        .iter()
        .map(|key| text(input, key))
        .find(|path| !path.is_empty())
        .map(str::to_owned)
}

/// Whether `path` (absolute, or relative to `folder`) lies in `folder`, judged by its words alone:
/// symbolic links are the sandbox's business.
pub fn is_inside(folder: &Path, path: &str) -> bool {
    if path.is_empty() || path.contains('\0') {
        return false;
    }
    let mut plain = PathBuf::new();
    for component in folder.join(path).components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain.starts_with(folder)
}
