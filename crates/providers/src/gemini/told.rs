//! The record of a session, `~/.gemini/tmp/PROJECT/chats/session-TIME-ID.jsonl` (tried with 0.61.0). A
//! message that grows stands there again, whole.

use crate::json::{Json, Look};
use crate::outside::Session;
use crate::{Activity, Step, Tokens, TurnEnd, Usage, terminal, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Messages that are remembered as told; of those beyond it what stands there again is told again.
const TOLD_MAX: usize = 20_000;

/// What is told of it.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    messages: BTreeMap<String, Message>,
    is_open: bool,
    last_text: String,
}

/// What was told of a message.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    used: Tokens,
    calls: usize,
    is_said: bool,
}

impl Told {
    /// One line of the record.
    pub(crate) fn line(&mut self, line: &str, out: &mut Vec<Step>) {
        let Some(event) = wire::object(line) else { return };
        match event.get("$set") {
            Some(set) => wire::items(set, "messages").iter().for_each(|message| self.message(message, out)),
            None => self.message(&event, out),
        }
    }

    fn message(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let id = wire::name(event, "id");
        let mut told = self.messages.get(id).copied().unwrap_or_default();
        match wire::text(event, "type") {
            "user" if !told.is_said => self.user(event, out),
            "gemini" => self.answer(event, &mut told, out),
            _ => return,
        }
        told.is_said |= wire::text(event, "type") == "user";
        if self.messages.len() < TOLD_MAX {
            self.messages.insert(id.to_owned(), told);
        }
    }

    fn user(&mut self, event: &Json<'_>, out: &mut Vec<Step>) {
        let text = event.get("content").map(terminal::text_of).unwrap_or_default();
        // The program's own words about the folder, and what tools have answered.
        if text.trim().is_empty() || text.starts_with("<session_context>") {
            return;
        }
        self.end(out);
        terminal::said(out, &text);
        self.is_open = true;
        wire::emit(out, Activity::TurnStarted);
    }

    fn answer(&mut self, event: &Json<'_>, told: &mut Message, out: &mut Vec<Step>) {
        let text = event.get("content").map(terminal::text_of).unwrap_or_default();
        if !text.is_empty() && !std::mem::replace(&mut told.is_said, true) {
            wire::answer(out, &mut self.last_text, &text);
        }
        let calls = wire::items(event, "toolCalls");
        for call in calls.iter().skip(told.calls) {
            super::tool_called(call, out);
        }
        told.calls = told.calls.max(calls.len());
        let Some(figures) = event.get("tokens") else { return };
        let (used, context) = (super::tokens(figures, super::OF_CALL), wire::count(figures, "input"));
        let delta = used.minus(std::mem::replace(&mut told.used, used));
        if !delta.is_zero() {
            let context_tokens = (context > 0).then_some(context);
            wire::usage(out, Usage { delta, context_tokens, ..Usage::default() });
        }
    }

    /// The turn is over: the person has said something else, or the record ends.
    pub(crate) fn end(&mut self, out: &mut Vec<Step>) {
        let text = std::mem::take(&mut self.last_text);
        if std::mem::take(&mut self.is_open) {
            wire::emit(out, Activity::TurnEnded(TurnEnd { text, ..TurnEnd::default() }));
        }
    }
}

/// What a line tells of the session itself.
pub(super) fn facts(event: &Json<'_>, session: &mut Session) {
    if session.id.is_empty() {
        wire::name(event, "sessionId").clone_into(&mut session.id);
        session.is_part = !matches!(wire::text(event, "kind"), "" | "main");
    }
    let model = wire::name(event, "model");
    if !model.is_empty() {
        session.model = Some(model.to_owned());
    }
}
