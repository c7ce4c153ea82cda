//! A person's comments on lines of files that an agent works on: they gather, and travel to it as one
//! message.
//!
//! ```text
//! open ──send──▶ sent ──its lines are other ones, or a person ticks it──▶ done
//! ```
//! Whether lines are other ones is looked at when somebody asks, in the agent's own folder. A comment may
//! also be on lines that the agent has removed: then it is done when they are removed no more.
//!
//! **Invariant:** an acknowledged comment is on disk.
//! **Invariant:** a comment is marked as sent in the event that gives the agent its message. A daemon that
//! dies between the writes of the two may have it sent again, and never lost.

pub mod api;
mod removed;
pub mod store;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::agents::{self, Deliver};
use crate::api::{Problem, Reply};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{CallId, Context, Document, Durability, Effect, Moment, State as All};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
pub use store::{STORED_VERSION, Stored};

/// Comments on the work of one agent; of more the oldest that is done goes, or the new one is refused.
pub const MAX_OF_AGENT: usize = 200;
/// Comments in all.
pub const MAX_COMMENTS: usize = 2_000;
/// Characters of a comment.
pub const MAX_TEXT_CHARS: usize = 4_000;
/// Lines that one comment may be about.
pub const MAX_LINES: u64 = 200;
/// Characters of these lines that are kept.
pub const MAX_QUOTE_CHARS: usize = 8_000;
/// Lines of them that the agent is told.
const TOLD_LINES: usize = 20;
/// Characters of one message; comments that do not fit wait for the next.
const MAX_MESSAGE_CHARS: usize = 60_000;

/// Which text the lines of a comment are counted in.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The file as it is.
    #[default]
    New,
    /// The file as it was before the agent's changes, which removed them.
    Old,
}

/// What a person says of some lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Comment {
    /// From 1, never given twice.
    pub id: u64,
    pub lineage: LineageId,
    /// Relative to the agent's folder.
    pub path: String,
    /// The first line, from 1.
    pub line: u64,
    pub last_line: u64,
    #[serde(default)]
    pub side: Side,
    /// The lines as they stood when it was written; of a range of the old text those that were removed.
    pub quote: Arc<str>,
    pub text: Arc<str>,
    /// When it was written.
    pub at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Time>,
    /// When a person has ticked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_at: Option<Time>,
}

/// All comments, oldest first.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    all: Vec<Arc<Comment>>,
    /// How many there have been.
    given: u64,
}

/// A wish of a person's about comments.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    Add(Box<New>),
    /// All that is open goes to the agent, behind these words.
    Send {
        target: String,
        message: Option<String>,
    },
    /// It is ticked, or open again.
    Tick {
        target: String,
        id: u64,
        done: bool,
    },
    Remove {
        target: String,
        id: u64,
    },
}

/// See [`Command::Add`].
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct New {
    pub agent: AgentId,
    pub path: String,
    pub line: u64,
    pub last_line: u64,
    pub side: Side,
    pub quote: String,
    pub text: String,
}

impl State {
    /// Those on the work of one agent, oldest first.
    pub fn of(&self, lineage: LineageId) -> impl Iterator<Item = &Arc<Comment>> {
        self.all.iter().filter(move |comment| comment.lineage == lineage)
    }

    fn at(&self, lineage: LineageId, id: u64) -> Result<usize, Problem> {
        let is_it = |comment: &Arc<Comment>| comment.id == id && comment.lineage == lineage;
        self.all.iter().position(is_it).ok_or_else(|| {
            Problem::not_found(format!("it has no comment {id}; 'svc comments' lists those that there are"))
        })
    }
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let result = all.health.writable().and_then(|()| match command {
        Command::Add(new) => add(all, cx, *new),
        Command::Send { target, message } => send(all, cx, &target, message.as_deref()),
        Command::Tick { target, id, done } => tick(all, cx, &target, id, done),
        Command::Remove { target, id } => remove(all, cx, &target, id),
    });
    cx.answer(call, result);
}

/// Errors: 404, 409 `too_many_comments`.
fn add(all: &mut All, cx: &mut Context, new: New) -> Result<Reply, Problem> {
    let lineage = all.agents.find(&new.agent.to_string())?.lineage_id;
    make_room(all, lineage)?;
    let comments = Arc::make_mut(&mut all.comments);
    comments.given += 1;
    let comment = Comment {
        id: comments.given,
        lineage,
        path: new.path,
        line: new.line,
        last_line: new.last_line,
        side: new.side,
        quote: new.quote.into(),
        text: new.text.into(),
        at: cx.now,
        sent_at: None,
        done_at: None,
    };
    let reply = Reply::json(201, &comment.shown());
    comments.all.push(Arc::new(comment));
    keep(cx);
    Ok(reply)
}

fn make_room(all: &mut All, lineage: LineageId) -> Result<(), Problem> {
    let of_agent = all.comments.of(lineage).count() >= MAX_OF_AGENT;
    if !of_agent && all.comments.all.len() < MAX_COMMENTS {
        return Ok(());
    }
    let may_go =
        |comment: &Arc<Comment>| comment.done_at.is_some() && (!of_agent || comment.lineage == lineage);
    let Some(at) = all.comments.all.iter().position(may_go) else {
        let text = format!(
            "there are {MAX_OF_AGENT} comments on its work, or {MAX_COMMENTS} in all, and none is done; tick or \
             remove some"
        );
        return Err(Problem::new(409, "too_many_comments", text));
    };
    Arc::make_mut(&mut all.comments).all.remove(at);
    Ok(())
}

/// Errors: 404, 409 `nothing_to_send`, and what [`agents::say_to`] refuses.
fn send(all: &mut All, cx: &mut Context, target: &str, message: Option<&str>) -> Result<Reply, Problem> {
    let agent = Arc::clone(all.agents.find(target)?);
    let is_open = |comment: &&Arc<Comment>| comment.sent_at.is_none() && comment.done_at.is_none();
    let open: Vec<Arc<Comment>> = all.comments.of(agent.lineage_id).filter(is_open).map(Arc::clone).collect();
    if open.is_empty() {
        let text = format!("no comment on the work of {} waits to be sent", agent.name);
        return Err(Problem::new(409, "nothing_to_send", text));
    }
    let (text, count) = told(message, &open);
    let to = agents::say_to(all, cx, target, text.clone(), Deliver::Auto)?;
    let ids: Vec<u64> = open.iter().take(count).map(|comment| comment.id).collect();
    for comment in &mut Arc::make_mut(&mut all.comments).all {
        if ids.contains(&comment.id) {
            Arc::make_mut(comment).sent_at = Some(cx.now);
        }
    }
    cx.audit("comments.send", &json!({"agentId": to, "agentName": agent.name, "comments": ids}));
    keep(cx);
    let left = open.len() - count;
    Ok(Reply::ok(
        &json!({"agentId": to, "agentName": agent.name, "sent": ids, "left": left, "message": text}),
    ))
}

/// The message, and how many of the comments are in it.
fn told(message: Option<&str>, open: &[Arc<Comment>]) -> (String, usize) {
    let mut text = message.map(|words| format!("{words}\n\n")).unwrap_or_default();
    text.push_str("Comments on your work. See to each of them, or say why not.\n");
    for (at, comment) in open.iter().enumerate() {
        let one = comment.told(at + 1);
        if at > 0 && text.chars().count() + one.chars().count() > MAX_MESSAGE_CHARS {
            return (text, at);
        }
        text.push_str(&one);
    }
    (text, open.len())
}

impl Comment {
    /// As it is shown: times as RFC 3339.
    fn shown(&self) -> Value {
        let mut shown = json!(self);
        for (name, time) in [("at", Some(self.at)), ("sentAt", self.sent_at), ("doneAt", self.done_at)] {
            shown[name] = json!(time.map(|time| time.to_string()));
        }
        shown
    }

    fn told(&self, number: usize) -> String {
        let mut text = format!("\n{number}. {}:{}", self.path, self.line);
        if self.last_line > self.line {
            let _ = write!(text, "-{}", self.last_line);
        }
        text.push_str(if self.side == Side::Old { " before your changes, removed:\n" } else { "\n" });
        for line in self.quote.lines().take(TOLD_LINES) {
            let _ = writeln!(text, "> {line}");
        }
        if self.quote.lines().count() > TOLD_LINES {
            text.push_str("> ...\n");
        }
        let _ = writeln!(text, "{}", self.text);
        text
    }

    /// Where the lines that it is about stand in this text of its file, one behind the other: the first line,
    /// of several places the one nearest to where they stood.
    fn stands_in(&self, content: &str) -> Option<u64> {
        place_of(&self.quote, self.line, content)
    }
}

/// Where these lines stand in a text, one behind the other: the first line, of several places the one nearest
/// to `line`. No lines stand anywhere.
fn place_of(quote: &str, line: u64, content: &str) -> Option<u64> {
    let quote: Vec<&str> = quote.lines().collect();
    if quote.is_empty() {
        return Some(line);
    }
    let lines: Vec<&str> = content.lines().collect();
    let places = lines.windows(quote.len()).zip(1_u64..).filter(|(found, _)| *found == quote);
    places.map(|(_, place)| place).min_by_key(|place| place.abs_diff(line))
}

/// Errors: 404.
fn tick(all: &mut All, cx: &mut Context, target: &str, id: u64, done: bool) -> Result<Reply, Problem> {
    let lineage = all.agents.find(target)?.lineage_id;
    let at = all.comments.at(lineage, id)?;
    let comment = Arc::make_mut(&mut Arc::make_mut(&mut all.comments).all[at]);
    comment.done_at = done.then_some(cx.now);
    let reply = Reply::ok(&comment.shown());
    keep(cx);
    Ok(reply)
}

/// Errors: 404.
fn remove(all: &mut All, cx: &mut Context, target: &str, id: u64) -> Result<Reply, Problem> {
    let lineage = all.agents.find(target)?.lineage_id;
    let at = all.comments.at(lineage, id)?;
    Arc::make_mut(&mut all.comments).all.remove(at);
    keep(cx);
    Ok(Reply::ok(&json!({"removed": true, "id": id})))
}

fn keep(cx: &mut Context) {
    cx.push(Effect::Put(Document::Comments, Durability::BeforeReply));
}

/// Comments go with the record of their agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    if let Moment::Removed(_, lineage) = *moment
        && all.comments.of(lineage).next().is_some()
    {
        Arc::make_mut(&mut all.comments).all.retain(|comment| comment.lineage != lineage);
        cx.push(Effect::Put(Document::Comments, Durability::Soon));
    }
}
