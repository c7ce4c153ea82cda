//! The record of a session, `~/.claude/projects/FOLDER/SESSION.jsonl`, when a person was at the screen.

use super::stream::{is_subagent, sum_of_models, tool_results, tool_started};
use crate::json::{Json, Look};
use crate::wire::{self, Meter};
use crate::{Activity, Step, Tokens, TurnEnd, Usage, terminal};
use serde::{Deserialize, Serialize};

/// What is told of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    meter: Meter,
    is_open: bool,
}

impl Told {
    pub(super) fn new(counted: Tokens) -> Self {
        Self { meter: Meter::starting_at(counted), is_open: false }
    }

    /// One line of the record.
    pub(crate) fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return };
        let is = |key: &str| event.get(key).and_then(Json::as_bool).unwrap_or(false);
        if is("isSidechain") || is("isMeta") || is_subagent(&event) {
            return;
        }
        match wire::text(&event, "type") {
            "user" => self.user(&event, out),
            "assistant" => self.assistant(&event, out),
            "cost-state" => self.counted(&event, out),
            _ => {}
        }
    }

    fn user(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let content = event.get("message").and_then(|message| message.get("content"));
        let text = content.map(terminal::text_of).unwrap_or_default();
        if text.trim().is_empty() {
            return tool_results(event, out);
        }
        if text.starts_with("[Request interrupted") {
            return self.over(String::new(), out);
        }
        terminal::said(out, &text);
        if !std::mem::replace(&mut self.is_open, true) {
            wire::emit(out, Activity::TurnStarted);
        }
    }

    fn assistant(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let Some(message) = event.get("message") else { return };
        if wire::text(message, "model") == "<synthetic>" {
            return;
        }
        for block in wire::items(message, "content") {
            match wire::text(block, "type") {
                "text" => wire::say(out, wire::text(block, "text")),
                "tool_use" => tool_started(block, out),
                _ => {}
            }
        }
        if let Some(figures) = message.get("usage") {
            let read = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
            let context = read.iter().map(|key| wire::count(figures, key)).fold(0, u64::saturating_add);
            wire::usage(out, Usage { context_tokens: Some(context), ..Usage::default() });
        }
        if !matches!(wire::text(message, "stop_reason"), "" | "tool_use") {
            self.over(message.get("content").map(terminal::text_of).unwrap_or_default(), out);
        }
    }

    fn over(&mut self, text: String, out: &mut Vec<Step>) {
        if std::mem::take(&mut self.is_open) {
            wire::emit(out, Activity::TurnEnded(TurnEnd { text, ..TurnEnd::default() }));
        }
    }

    /// The sums of the whole session, sub-agents included.
    fn counted(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let models = event.get("modelUsage").filter(|models| !models.fields().is_empty());
        let Some(total) = models.map(sum_of_models) else { return };
        let delta = self.meter.total(total);
        if !delta.is_zero() {
            wire::usage(out, Usage { delta, session_total: Some(total), ..Usage::default() });
        }
    }
}
