//! The thread that does the commands of one gateway, one after the other. A command whose answer takes its
//! time is given to the core in its turn; a thread of its own waits for the answer.

use super::answers;
use super::commands::{self, Plan};
use super::message::{Button, Look, MAX_BUTTONS, Message, Text, cut};
use super::worker::Shared;
use super::{Entry, Errand, Receipt};
use crate::agents::worker_log::Query;
use crate::core::ids::LineageId;
use crate::core::{Command as CoreCommand, Response, State};
use crate::recall;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use svc_base::bounded;
use svc_sys::clock;
use svc_sys::threads::Thread;

/// A command whose answer has not come by then is waited for elsewhere.
const QUICK: Duration = Duration::from_millis(200);
/// The longest that an answer is waited for; longer than any of the core's own limits.
const MAX_WAIT: Duration = Duration::from_secs(100);
/// Answers that are waited for at once; the next command then waits too.
const MAX_WAITERS: usize = 8;
/// Answers of `/recall`: more do not fit a message.
const RECALLED: usize = 6;
/// Questions that wait for a choice; the oldest is forgotten.
const MAX_QUESTIONS: usize = 50;
/// A question is answered within this time, or asked again.
const QUESTION_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Choices that are listed; a longer list is no help.
const MAX_CHOICES: usize = 15;
/// A choice may lead to a command, not to another choice of a choice.
const MAX_STEPS: usize = 3;

/// A question with several answers.
struct Question {
    number: u32,
    user: String,
    chat: String,
    lines: Vec<String>,
    asked_at: Instant,
}

/// The state of the thread.
pub(super) struct Desk {
    shared: Arc<Shared>,
    questions: VecDeque<Question>,
    waiters: Vec<Thread>,
}

impl Desk {
    /// For this gateway.
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, questions: VecDeque::new(), waiters: Vec::new() }
    }

    /// Does commands until the gateway ends.
    pub(super) fn run(mut self, entries: &Receiver<Arc<Entry>>) {
        while let Ok(entry) = entries.recv() {
            if self.shared.stopper.is_stopped() {
                return;
            }
            self.take(&entry);
        }
    }

    fn take(&mut self, entry: &Arc<Entry>) {
        let state = self.shared.core.snapshot();
        let is_open = |known: &&Arc<Entry>| known.number == entry.number && !known.running;
        if state.gateways.inbox().iter().find(is_open).is_none() {
            return;
        }
        let mut text = entry.text.clone();
        for _ in 0..MAX_STEPS {
            let state = self.shared.core.snapshot();
            let Some(gateway) = state.gateways.get(entry.gateway) else { return };
            match commands::plan(&state, gateway, clock::now(), &text) {
                Plan::Say(words) if commands::is_help(&text) => {
                    let words = words.line(answers::whereabouts(&entry.chat, &entry.user));
                    return self.finish(entry, words.into());
                }
                Plan::Say(words) => return self.finish(entry, words.into()),
                Plan::Choose(question, choices) => {
                    let message = self.ask(entry, question, choices);
                    return self.finish(entry, message);
                }
                Plan::Log(name, lineage, count) => {
                    let words = self.log(&name, lineage, count);
                    return self.finish(entry, words.into());
                }
                Plan::Recall(words) => {
                    let words = self.recall(&state, words);
                    return self.finish(entry, words.into());
                }
                Plan::Pick(question, number) => match self.picked(entry, question, number) {
                    Ok(line) => text = line,
                    Err(words) => return self.finish(entry, words.into()),
                },
                Plan::Do(command) => return self.perform(entry, *command),
            }
        }
        self.finish(entry, Text::from("that leads nowhere; give the command again").into());
    }

    fn finish(&self, entry: &Entry, message: Message) {
        finish(&self.shared, entry, message);
    }

    /// The command has an effect: it is marked as begun, on disk, and then given to the core.
    fn perform(&mut self, entry: &Arc<Entry>, command: CoreCommand) {
        let actor = self.shared.actor(&entry.user);
        match self.shared.errand(&entry.user, Errand::Begin(entry.number)) {
            Response::Inbox(Receipt::Begun) => {}
            // Begun before: its effect must not come twice.
            Response::Inbox(Receipt::NotAgain) => return,
            other => return self.finish(entry, answers::told(&other).into()),
        }
        let response = self.shared.core.ask(actor, command);
        self.waiters.retain(|waiter| !waiter.is_finished());
        let patience = if self.waiters.len() < MAX_WAITERS { QUICK } else { MAX_WAIT };
        match response.recv_timeout(patience) {
            Ok(response) => self.finish(entry, answers::told(&response).into()),
            // The daemon ends: the next one tells the user.
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => {
                let (shared, entry) = (Arc::clone(&self.shared), Arc::clone(entry));
                let wait = move || wait(&shared, &entry, &response);
                match Thread::spawn("chat-wait", wait) {
                    Ok(thread) => self.waiters.push(thread),
                    Err(error) => log::error!("nobody waits for the answer to a chat command: {error}"),
                }
            }
        }
    }

    fn recall(&self, state: &State, words: String) -> Text {
        let question = recall::Question { words, lineage: None, most: RECALLED };
        match recall::ask(&self.shared.logs, state, &question) {
            Ok(answer) => answers::recalled(&answer),
            Err(error) => Text::from(format!("the logs cannot be read: {error}")),
        }
    }

    fn log(&self, name: &str, lineage: LineageId, count: u64) -> Text {
        let query = Query { tail: Some(count), ..Query::default() };
        match self.shared.logs.read(lineage, query) {
            Ok(page) => {
                let entries: Vec<Value> = page.entries.iter().map(|entry| json!(entry)).collect();
                answers::log(name, &entries)
            }
            Err(error) => Text::from(format!("the log of {name} cannot be read: {error}")),
        }
    }

    /// Remembers the choices, and makes the message that asks.
    fn ask(&mut self, entry: &Entry, question: Text, choices: Vec<(String, String)>) -> Message {
        let number = u32::try_from(clock::random() >> 32).unwrap_or_default();
        let more = choices.len().saturating_sub(MAX_CHOICES);
        let mut text = question;
        let mut buttons = Vec::new();
        let mut lines = Vec::new();
        for (at, (label, line)) in choices.into_iter().take(MAX_CHOICES).enumerate() {
            let shown = at + 1;
            text = text.line(Text::from(format!("{shown}. ")).code(cut(&label, 100)));
            if at < MAX_BUTTONS {
                buttons.push(Button::new(&label, format!("/pick {number:08x} {shown}"), Look::Neutral));
            }
            lines.push(line);
        }
        if more > 0 {
            text = text.line(format!("… and {more} more; say more of its name").into());
        }
        let hint = Text::from("choose below, or answer ").code("/pick <number>");
        let (user, chat, asked_at) = (entry.user.clone(), entry.chat.clone(), Instant::now());
        bounded::push(&mut self.questions, Question { number, user, chat, lines, asked_at }, MAX_QUESTIONS);
        Message { text: text.line(hint), buttons }
    }

    /// The command that was chosen. Only who was asked may answer, and once.
    fn picked(&mut self, entry: &Entry, question: Option<u32>, number: usize) -> Result<String, Text> {
        self.questions.retain(|question| question.asked_at.elapsed() < QUESTION_LIFETIME);
        let is_meant = |known: &Question| {
            known.user == entry.user
                && known.chat == entry.chat
                && question.is_none_or(|number| number == known.number)
        };
        let Some(at) = self.questions.iter().rposition(is_meant) else {
            return Err("that question is answered or too old; give the command again".into());
        };
        let line = number.checked_sub(1).and_then(|index| self.questions[at].lines.get(index)).cloned();
        let Some(line) = line else {
            return Err(format!("there is no choice {number}").into());
        };
        self.questions.remove(at);
        Ok(line)
    }
}

fn wait(shared: &Shared, entry: &Entry, response: &Receiver<Response>) {
    match response.recv_timeout(MAX_WAIT) {
        Ok(response) => finish(shared, entry, answers::told(&response).into()),
        Err(RecvTimeoutError::Timeout) => {
            finish(shared, entry, Text::from("no answer came; see /status").into());
        }
        // The daemon ends: the next one tells the user.
        Err(RecvTimeoutError::Disconnected) => {}
    }
}

/// Answers a command and forgets it.
fn finish(shared: &Shared, entry: &Entry, message: Message) {
    shared.answer(&entry.chat, &entry.reply_to, message);
    shared.errand(&entry.user, Errand::Done(entry.number));
}
