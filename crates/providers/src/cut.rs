//! The record of a session up to one of its turns, for a copy that remembers nothing of what came then. Pure:
//! workers of the daemon open the files.

use super::outside::Reader;
use super::{Activity, Step, Tokens};
use svc_base::time::Time;

/// The beginning of a record. It ends where a turn was over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    pub record: String,
    /// What its program had counted for the session by then, and goes on counting from.
    pub counted: Tokens,
}

impl Cut {
    /// The same under another name: wherever the name of the session stands as a word of its own in JSON.
    /// Within what somebody has said its quotes would be escaped.
    #[must_use]
    pub fn named(self, old: &str, new: &str) -> Self {
        Self { record: self.record.replace(&format!("\"{old}\""), &format!("\"{new}\"")), ..self }
    }
}

/// The lines of a record before the first one that is not older than `at`. `None` where no line is that
/// young, or the last turn before has no end: then the times do not tell where the turns part.
pub(super) fn lines(record: &str, at: Time, mut reader: Reader) -> Option<Cut> {
    let (mut kept, mut counted, mut is_over) = (0, Tokens::default(), false);
    let mut steps = Vec::new();
    for line in record.split_inclusive('\n') {
        reader.line(line, &mut steps);
        if reader.at().is_some_and(|written| written >= at) {
            let record = record[..kept].to_owned();
            return is_over.then_some(Cut { record, counted });
        }
        for step in steps.drain(..) {
            match step {
                Step::Event(Activity::TurnStarted) => is_over = false,
                Step::Event(Activity::TurnEnded(_)) => is_over = true,
                Step::Event(Activity::Usage(usage)) => counted = usage.session_total.unwrap_or(counted),
                _ => {}
            }
        }
        kept += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_id;

    /// The lines of a record at these seconds, and the moment of a second.
    fn record(lines: &[(u64, &str)]) -> String {
        let stamp = |second: &u64| format!("\"timestamp\":\"2026-11-23T19:30:{second:02}.500Z\"");
        let lines: Vec<_> =
            lines.iter().map(|(second, line)| format!("{{{},{line}}}\n", stamp(second))).collect();
        lines.concat()
    }

    fn at(second: u64) -> Time {
        Time::parse(&format!("2026-11-23T19:30:{second:02}Z")).unwrap()
    }

    fn cut(provider: &str, record: &str, second: u64) -> Option<Cut> {
        by_id(provider).unwrap().cut(record, at(second))
    }

    /// How many lines are kept.
    fn kept(provider: &str, record: &str, second: u64) -> Option<usize> {
        let cut = cut(provider, record, second)?;
        assert!(record.starts_with(&cut.record));
        Some(cut.record.lines().count())
    }

    const SAID: &str =
        "\"type\":\"user\",\"sessionId\":\"s-1\",\"message\":{\"content\":\"say \\\"s-1\\\"\"}";
    const ANSWER: &str = "\"type\":\"assistant\",\"sessionId\":\"s-1\",\"message\":{\"model\":\"m\",\"stop_reason\":\
                          \"end_turn\",\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}";

    #[test]
    fn claude_code_is_cut_between_turns_and_named_anew() {
        let sums = "\"type\":\"cost-state\",\"modelUsage\":{\"m\":{\"inputTokens\":7,\"outputTokens\":1}}";
        let all = [(1, SAID), (2, ANSWER), (3, sums), (5, SAID), (6, ANSWER), (8, SAID)];
        let all = record(&all);
        assert_eq!(kept("claude-code", &all, 1), None, "there was no turn before");
        assert_eq!(kept("claude-code", &all, 5), Some(3));
        assert_eq!(kept("claude-code", &all, 7), Some(5));
        assert_eq!(kept("claude-code", &all, 6), None, "in the middle of a turn");
        assert_eq!(kept("claude-code", &all, 9), None, "nothing came then");
        let cut = cut("claude-code", &all, 5).unwrap().named("s-1", "s-2");
        assert_eq!((cut.counted.input, cut.counted.output), (7, 1));
        assert_eq!(cut.record.matches("\"sessionId\":\"s-2\"").count(), 2, "{}", cut.record);
        assert!(cut.record.contains("say \\\"s-1\\\"") && !cut.record.contains("\"s-1\","), "{}", cut.record);
    }

    #[test]
    fn codex_is_cut_where_its_task_was_complete() {
        let event = |payload: &str| format!("\"type\":\"event_msg\",\"payload\":{payload}");
        let begin = event("{\"type\":\"task_started\"}");
        let counted = "{\"type\":\"token_count\",\"info\":{\"total_token_usage\":{\"input_tokens\":9,\"output_tokens\":2}}}";
        let (counted, end) = (event(counted), event("{\"type\":\"task_complete\"}"));
        let meta = "\"type\":\"session_meta\",\"payload\":{\"id\":\"s-1\"}";
        let lines = [(1, meta), (1, &begin), (2, &counted), (2, &end), (5, &begin), (6, &end), (8, &begin)];
        let all = record(&lines);
        assert_eq!((kept("codex", &all, 5), kept("codex", &all, 8)), (Some(4), Some(6)));
        assert_eq!((kept("codex", &all, 1), kept("codex", &all, 6)), (None, None));
        let cut = cut("codex", &all, 5).unwrap().named("s-1", "s-2");
        assert_eq!(cut.counted.total(), 11);
        assert!(cut.record.lines().next().unwrap().contains("\"id\":\"s-2\""), "{}", cut.record);
    }

    #[test]
    fn ollama_notes_itself_when_turns_began() {
        let said = |role: &str, text: &str| format!("{{\"role\":\"{role}\",\"content\":\"{text}\"}}");
        let messages =
            [said("user", "a"), said("tool", "t"), said("assistant", "b"), said("user", "c")].join(",");
        let of = |began: &str| {
            format!("{{\"version\":1,\"introduction\":{{}},\"messages\":[{messages}],\"began\":{began}}}")
        };
        let all = of(&format!("[{},{}]", at(1).0, at(5).0));
        let cut_at = |record: &str, second| {
            let cut = cut("ollama", record, second)?;
            let value: serde_json::Value = serde_json::from_str(&cut.record).unwrap();
            Some((value["messages"].as_array().unwrap().len(), value["began"].as_array().unwrap().len()))
        };
        assert_eq!((cut_at(&all, 3), cut_at(&all, 5)), (Some((3, 1)), Some((3, 1))));
        assert_eq!((cut_at(&all, 1), cut_at(&all, 6)), (None, None), "nothing before, nothing then");
        for other in ["[1]", "null", "[1,2,3]", "[\"a\",2]"] {
            assert_eq!(cut_at(&of(other), 0), None, "{other}");
        }
        assert_eq!((cut_at("", 0), cut_at("{\"version\":2}", 0), cut_at("[]", 0)), (None, None, None));
        assert!(by_id("gemini").unwrap().cut(&all, at(5)).is_none(), "its sessions stay in their folder");
    }
}
