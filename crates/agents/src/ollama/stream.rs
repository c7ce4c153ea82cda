//! One streamed answer: the `data:` lines of a chat completion, joined. Without I/O.
//!
//! The format is that of `OpenAI`'s `POST /v1/chat/completions` with `stream: true` and
//! `stream_options.include_usage`, with the liberties that other servers take.

use serde_json::Value;
use svc_providers::{Activity, Tokens};

/// One answer may have this much text and arguments together.
const REPLY_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// Words without an empty line are shown when there are this many.
const PARAGRAPH_LIMIT_BYTES: usize = 64 * 1024;
/// One answer may ask for this many tools.
const CALLS_LIMIT: usize = 128;

/// A tool the model asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Joins it with its result.
    pub id: String,
    pub name: String,
    /// JSON text, as the model wrote it.
    pub arguments: String,
}

/// What one answer cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallUsage {
    /// Cached input apart.
    pub tokens: Tokens,
    /// The whole input.
    pub context: u64,
}

/// One whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    pub text: String,
    /// The tools it asks for.
    pub calls: Vec<Call>,
    /// Where the endpoint tells it.
    pub usage: Option<CallUsage>,
}

/// Joins an answer from its lines.
#[derive(Debug, Default)]
pub struct Assembler {
    reply: Reply,
    /// Words that no paragraph has ended yet.
    paragraph: String,
    thinking: String,
    /// To which of the endpoint's indices the last call belongs.
    last_index: Option<u64>,
    bytes: usize,
    finished: bool,
    /// `[DONE]` was seen: nothing more will come.
    done: bool,
}

impl Assembler {
    /// Whether the endpoint has said that this was all.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes one line without its newline. Whole paragraphs go to `emit`.
    ///
    /// Errors: the endpoint's own words for its failure, or what is wrong with the line.
    pub fn line(&mut self, line: &str, emit: &mut dyn FnMut(Activity)) -> Result<(), String> {
        // Comments keep connections alive; other fields of an event mean nothing here.
        let Some(data) = line.strip_prefix("data:").map(str::trim) else { return Ok(()) };
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_slice(data.as_bytes())
            .map_err(|error| format!("the endpoint sent broken JSON: {error}"))?;
        if let Some(error) = error_words(&chunk) {
            return Err(format!("the endpoint failed: {error}"));
        }
        self.bytes += data.len();
        if self.bytes > REPLY_LIMIT_BYTES {
            return Err(format!("an answer has more than {REPLY_LIMIT_BYTES} bytes"));
        }
        if let Some(usage) = usage(&chunk["usage"]) {
            self.reply.usage = Some(usage);
        }
        let choice = &chunk["choices"][0];
        self.finished |= choice["finish_reason"].is_string();
        self.delta(&choice["delta"], emit)
    }

    fn delta(&mut self, delta: &Value, emit: &mut dyn FnMut(Activity)) -> Result<(), String> {
        let words = |key: &str| delta[key].as_str().unwrap_or("");
        self.thinking.push_str(words("reasoning_content"));
        self.thinking.push_str(words("reasoning"));
        let text = words("content");
        if !text.is_empty() {
            self.end_thinking(emit);
            self.reply.text.push_str(text);
            self.paragraph.push_str(text);
            if text.contains('\n') {
                self.end_paragraphs(emit);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call)?;
        }
        Ok(())
    }

    /// A piece of a tool call. Some servers give every call of an answer the index 0 but an id of its own.
    fn call(&mut self, piece: &Value) -> Result<(), String> {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().unwrap_or("");
        let continues = match self.reply.calls.last() {
            Some(last) => index == self.last_index && (id.is_empty() || id == last.id),
            None => false,
        };
        if !continues {
            if self.reply.calls.len() == CALLS_LIMIT {
                return Err(format!("an answer asks for more than {CALLS_LIMIT} tools"));
            }
            self.last_index = index;
            let own = format!("call-{}", self.reply.calls.len() + 1);
            let id = if id.is_empty() { own } else { id.to_owned() };
            self.reply.calls.push(Call { id, ..Call::default() });
        }
        let function = &piece["function"];
        if let Some(call) = self.reply.calls.last_mut() {
            call.name.push_str(function["name"].as_str().unwrap_or(""));
            match &function["arguments"] {
                Value::String(text) => call.arguments.push_str(text),
                Value::Null => {}
                // Not of the protocol, but seen: arguments as an object.
                whole => call.arguments.push_str(&whole.to_string()),
            }
        }
        Ok(())
    }

    /// Shows what is whole: up to the last empty line that does not stand in a block of code. Words above
    /// the limit are shown as they are.
    fn end_paragraphs(&mut self, emit: &mut dyn FnMut(Activity)) {
        let whole = if self.paragraph.len() > PARAGRAPH_LIMIT_BYTES {
            self.paragraph.len()
        } else {
            whole_paragraphs(&self.paragraph)
        };
        if whole > 0 {
            let rest = self.paragraph.split_off(whole);
            show(self.paragraph.trim_end_matches('\n'), emit);
            self.paragraph = rest;
        }
    }

    fn end_thinking(&mut self, emit: &mut dyn FnMut(Activity)) {
        let text = std::mem::take(&mut self.thinking);
        if !text.trim().is_empty() {
            emit(Activity::Thinking { text });
        }
    }

    /// The stream has ended.
    ///
    /// Errors: it was cut before the answer was whole.
    pub fn end(mut self, emit: &mut dyn FnMut(Activity)) -> Result<Reply, String> {
        self.end_thinking(emit);
        show(&self.paragraph, emit);
        if self.finished || self.done {
            return Ok(self.reply);
        }
        Err("the endpoint's answer was cut off before its end".to_owned())
    }
}

/// How many bytes of `text` are whole paragraphs, the empty line behind them included.
fn whole_paragraphs(text: &str) -> usize {
    let (mut whole, mut at, mut in_code) = (0, 0, false);
    for line in text.split_inclusive('\n') {
        at += line.len();
        in_code ^= line.trim_start().starts_with("```");
        if line == "\n" && !in_code {
            whole = at;
        }
    }
    whole
}

fn show(words: &str, emit: &mut dyn FnMut(Activity)) {
    if !words.trim().is_empty() {
        emit(Activity::Text { text: words.to_owned() });
    }
}

/// `prompt_tokens` contains the cached ones; ours are counted apart.
fn usage(usage: &Value) -> Option<CallUsage> {
    let context = usage["prompt_tokens"].as_u64()?;
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0).min(context);
    let output = usage["completion_tokens"].as_u64().unwrap_or(0);
    let tokens = Tokens { input: context - cached, output, cache_read: cached, cache_creation: 0 };
    Some(CallUsage { tokens, context })
}

/// The words of `{"error": {"message": ...}}` or `{"error": "..."}`.
pub fn error_words(body: &Value) -> Option<String> {
    match &body["error"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        error => Some(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned)),
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
