//! Entries of an agent's log as updates of a session.

use super::super::logs;
use super::super::render::{clean, cut, one_line};
use super::super::target::text;
use serde_json::{Value, json};
use std::collections::VecDeque;
use svc_base::bounded;

/// Calls of tools that have not ended; of more the oldest is forgotten, and stays open in the editor.
const OPEN_CALLS_MAX: usize = 256;
/// Characters of a tool's output that are shown.
const OUTPUT_CHARS: usize = 16_000;
/// Columns of a tool's title.
const TITLE_CHARS: usize = 200;

/// Tells an editor what a log says, entry by entry.
#[derive(Debug, Default)]
pub struct Scribe {
    /// Whether what people said is told, too: the editor knows what it has sent itself.
    tells_users: bool,
    /// The folder that paths of the log stand in.
    folder: String,
    /// The agent's id of a call, and the editor's.
    open: VecDeque<(String, String)>,
    /// The words before were of the same speaker.
    before: &'static str,
    /// Somebody has spoken in this turn.
    has_words: bool,
}

impl Scribe {
    pub fn new(folder: &str, tells_users: bool) -> Self {
        Self { folder: folder.to_owned(), tells_users, ..Self::default() }
    }

    /// What an entry says; nothing for bookkeeping.
    pub fn updates(&mut self, entry: &Value) -> Option<Value> {
        match text(entry, "type") {
            "text" => {
                self.has_words = true;
                self.words("agent_message_chunk", text(entry, "text"))
            }
            "thinking" => self.words("agent_thought_chunk", text(entry, "text")),
            "trouble" => self.words("agent_thought_chunk", &format!("! {}", text(entry, "text"))),
            "compacted" => self.words("agent_thought_chunk", "context compacted by the provider"),
            "user" if self.tells_users => {
                self.has_words = false;
                self.words("user_message_chunk", text(entry, "text"))
            }
            "tool-started" => Some(self.started(entry)),
            "tool-ended" => self.ended(entry),
            "turn-ended" => {
                let had_words = std::mem::take(&mut self.has_words);
                let is_told = had_words || entry["isError"] == true;
                if is_told { None } else { self.words("agent_message_chunk", text(entry, "text")) }
            }
            _ => None,
        }
    }

    /// Words of the door itself.
    pub fn said(&mut self, words: &str) -> Option<Value> {
        self.words("agent_message_chunk", words)
    }

    fn words(&mut self, kind: &'static str, words: &str) -> Option<Value> {
        let words = clean(words);
        if words.trim().is_empty() {
            return None;
        }
        // Editors join what follows each other; entries are whole paragraphs.
        let gap = if self.before == kind { "\n\n" } else { "" };
        self.before = kind;
        let content = json!({"type": "text", "text": format!("{gap}{}", words.trim_end())});
        Some(json!({"sessionUpdate": kind, "content": content}))
    }

    fn started(&mut self, entry: &Value) -> Value {
        self.before = "";
        let name = text(entry, "name");
        if let Some(plan) = plan(name, &entry["input"]) {
            return plan;
        }
        // Agents use their ids again after a restart; the number of an entry is never used twice.
        let call = format!("call-{}", entry["n"].as_u64().unwrap_or_default());
        bounded::push(&mut self.open, (text(entry, "id").to_owned(), call.clone()), OPEN_CALLS_MAX);
        let mut update = json!({
            "sessionUpdate": "tool_call",
            "toolCallId": call,
            "title": title(entry),
            "kind": kind(name, entry["writes"] == true),
            "status": "in_progress",
            "rawInput": entry["input"],
        });
        if let Some(path) = entry["path"].as_str() {
            let path = std::path::Path::new(&self.folder).join(path);
            update["locations"] = json!([{"path": path.to_string_lossy()}]);
        }
        update
    }

    fn ended(&mut self, entry: &Value) -> Option<Value> {
        self.before = "";
        let id = text(entry, "id");
        let at = self.open.iter().rposition(|(known, _)| known == id)?;
        let (_, call) = self.open.remove(at)?;
        let status = if entry["error"] == true { "failed" } else { "completed" };
        let mut update = json!({"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status});
        let output: String = clean(text(entry, "output")).chars().take(OUTPUT_CHARS).collect();
        if !output.trim().is_empty() {
            update["content"] = json!([{"type": "content", "content": {"type": "text", "text": output}}]);
        }
        Some(update)
    }
}

fn title(entry: &Value) -> String {
    let shown = logs::describe(entry).map_or_else(String::new, |shown| shown.text);
    let title = cut(&one_line(shown.trim_start_matches("* ")), TITLE_CHARS);
    if title.is_empty() { "tool".into() } else { title }
}

/// A list of what is to be done, where a tool keeps one.
fn plan(name: &str, input: &Value) -> Option<Value> {
    let (list, words) = match name {
        "TodoWrite" => (input["todos"].as_array()?, "content"),
        "update_plan" => (input["plan"].as_array()?, "step"),
        _ => return None,
    };
    let entry = |one: &Value| {
        let status = match text(one, "status") {
            done @ ("in_progress" | "completed") => done,
            _ => "pending",
        };
        json!({"content": one_line(text(one, words)), "priority": "medium", "status": status})
    };
    Some(json!({"sessionUpdate": "plan", "entries": list.iter().map(entry).collect::<Vec<_>>()}))
}

/// The protocol's kind of a tool, by what programs call theirs.
pub fn kind(name: &str, writes: bool) -> &'static str {
    let name = name.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if writes || is(&["edit", "write", "patch", "replace"]) => "edit",
        () if is(&["bash", "shell", "run", "exec", "command", "terminal"]) => "execute",
        () if is(&["fetch", "web", "http", "browse"]) => "fetch",
        () if is(&["grep", "glob", "search", "find", "list"]) => "search",
        () if is(&["read", "view", "open", "cat"]) => "read",
        () if is(&["think", "task", "plan"]) => "think",
        () => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(scribe: &mut Scribe, entries: &[Value]) -> Vec<Value> {
        entries.iter().filter_map(|entry| scribe.updates(entry)).collect()
    }

    #[test]
    fn words_of_one_speaker_are_parted_and_an_end_repeats_none() {
        let mut scribe = Scribe::new("/p", false);
        let told = kinds(
            &mut scribe,
            &[
                json!({"type": "user", "text": "hello"}),
                json!({"type": "text", "text": "one\n"}),
                json!({"type": "text", "text": "two\u{1b}"}),
                json!({"type": "turn-ended", "text": "two"}),
                json!({"type": "turn-ended", "text": "three"}),
                json!({"type": "turn-ended", "text": "", "isError": true, "error": "no"}),
                json!({"type": "noise", "text": "x"}),
            ],
        );
        let texts: Vec<&str> = told.iter().map(|one| one["content"]["text"].as_str().unwrap()).collect();
        assert_eq!(texts, ["one", "\n\ntwo\\u{1b}", "\n\nthree"]);
        let told = kinds(&mut Scribe::new("/p", true), &[json!({"type": "user", "text": "hello"})]);
        assert_eq!(told[0]["sessionUpdate"], "user_message_chunk");
    }

    #[test]
    fn a_call_keeps_its_id_from_its_start_to_its_end() {
        let mut scribe = Scribe::new("/p", false);
        let started = |n: u64, id: &str| {
            json!({"type": "tool-started", "n": n, "id": id, "name": "Write", "input": {"a": 1},
                "path": "src/a.rs", "writes": true})
        };
        let ended = |id: &str| json!({"type": "tool-ended", "id": id, "error": true, "output": "no"});
        let told =
            kinds(&mut scribe, &[started(3, "t"), ended("t"), ended("t"), started(9, "t"), ended("t")]);
        let ids: Vec<&str> = told.iter().map(|one| one["toolCallId"].as_str().unwrap()).collect();
        assert_eq!(ids, ["call-3", "call-3", "call-9", "call-9"]);
        assert_eq!((&told[0]["title"], &told[0]["kind"]), (&json!("Write src/a.rs"), &json!("edit")));
        assert_eq!(told[0]["locations"], json!([{"path": "/p/src/a.rs"}]));
        assert_eq!(
            (&told[1]["status"], &told[1]["content"][0]["content"]["text"]),
            (&json!("failed"), &json!("no"))
        );
        for n in 0..=OPEN_CALLS_MAX as u64 {
            scribe.updates(&started(n, &n.to_string()));
        }
        assert_eq!(scribe.updates(&ended("0")), None, "the oldest is forgotten");
    }

    #[test]
    fn a_list_of_what_is_to_be_done_is_a_plan() {
        let input =
            json!({"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "?"}]});
        let entry = json!({"type": "tool-started", "n": 1, "id": "t", "name": "TodoWrite", "input": input});
        let told = Scribe::new("/p", false).updates(&entry).unwrap();
        let entries = json!([
            {"content": "a", "priority": "medium", "status": "completed"},
            {"content": "b", "priority": "medium", "status": "pending"},
        ]);
        assert_eq!(told, json!({"sessionUpdate": "plan", "entries": entries}));
    }
}
