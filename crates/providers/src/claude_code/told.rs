//! The record of a session, `~/.claude/projects/FOLDER/SESSION.jsonl`, when a person was at the screen.

use super::stream::{figures, is_subagent, sum_of_models, tokens_of_message, tool_results, tool_started};
use crate::json::{Json, Look};
use crate::outside::Session;
use crate::shares::Shares;
use crate::wire::{self, Meter};
use crate::{Activity, Step, Tokens, TurnEnd, Usage, terminal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The model of what the program itself has put there.
const SYNTHETIC: &str = "<synthetic>";
/// Messages behind the last sums whose figures are remembered.
const UNSUMMED_MAX: usize = 10_000;

/// What is told of it.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    meter: Meter,
    #[serde(default)]
    shares: Shares,
    /// What the sums contain of before is not known by model.
    #[serde(default)]
    continued: bool,
    /// The model of its last message.
    #[serde(default)]
    model: String,
    is_open: bool,
    /// What its messages have used that stand behind the last sums: their program was ended before it wrote
    /// them, or is of a version that writes none.
    #[serde(skip)]
    unsummed: BTreeMap<String, Tokens>,
}

/// What a line tells of the session itself.
pub(super) fn facts(event: &Json<'_>, session: &mut Session) {
    let known = |key: &str| Some(wire::name(event, key)).filter(|name| !name.is_empty());
    if session.id.is_empty() {
        known("sessionId").unwrap_or_default().clone_into(&mut session.id);
    }
    if session.folder.is_empty() {
        known("cwd").unwrap_or_default().clone_into(&mut session.folder);
        session.is_part = event.get("isSidechain").and_then(Json::as_bool).unwrap_or(false);
    }
    let message = event.get("message").filter(|_| wire::text(event, "type") == "assistant");
    let model = message.map(|message| wire::name(message, "model")).unwrap_or_default();
    if !model.is_empty() && model != SYNTHETIC {
        session.model = Some(model.to_owned());
    }
}

impl Told {
    pub(super) fn new(counted: Tokens) -> Self {
        let continued = counted != Tokens::default();
        Self { meter: Meter::starting_at(counted), continued, ..Self::default() }
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
        wire::turn_started(out, &mut self.is_open);
    }

    fn assistant(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let Some(message) = event.get("message") else { return };
        let model = wire::name(message, "model");
        if model == SYNTHETIC {
            return;
        }
        model.clone_into(&mut self.model);
        for block in wire::items(message, "content") {
            match wire::text(block, "type") {
                "text" => wire::say(out, wire::text(block, "text")),
                "tool_use" => tool_started(block, out),
                _ => {}
            }
        }
        if let Some(figures) = message.get("usage") {
            let used = tokens_of_message(figures);
            let context = Tokens { output: 0, ..used }.total();
            wire::usage(out, Usage { context_tokens: Some(context), ..Usage::default() });
            // Each block of a message stands on a line of its own, with the figures so far.
            if self.unsummed.len() < UNSUMMED_MAX {
                self.unsummed.insert(wire::name(message, "id").to_owned(), used);
            }
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

    /// Nothing follows: what nobody has summed up is told.
    pub(crate) fn end(&mut self, out: &mut Vec<Step>) {
        let used =
            std::mem::take(&mut self.unsummed).into_values().fold(Tokens::default(), |sum, one| sum + one);
        wire::usage(out, Usage { delta: used.minus(Tokens::default()), ..Usage::default() });
    }

    /// The sums of the whole session, sub-agents included.
    fn counted(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let models = event.get("modelUsage").filter(|models| !models.fields().is_empty());
        let Some(models) = models else { return };
        let total = sum_of_models(models);
        self.unsummed.clear();
        let delta = self.meter.total(total);
        let mut usage = Usage { delta, session_total: Some(total), ..Usage::default() };
        let is_first = std::mem::take(&mut self.continued);
        for part in self.shares.part(&self.model, &figures(models, None), is_first, &mut usage) {
            wire::usage(out, part);
        }
        if !delta.is_zero() {
            wire::usage(out, usage);
        }
    }
}
