//! When a change that somebody wishes is in force: not before it is on disk.
//!
//! ```text
//! call ──tried on a copy──▶ acknowledges nothing that must last: in force at once
//!              │
//!              └▶ its documents and audit lines are written ──on disk──▶ done, answered
//!                                                           └─refused──▶ undone on disk, 503
//! ```
//!
//! The copy is thrown away: what the state shows, whom it tells, and what is ordered of the threads begins
//! when the disk has the change. What else happens in between stays, because nothing has to be taken back in
//! the state; the wish is then judged again, by the state as it has become.
//!
//! In force at once, whatever the disk says, are the end of an agent's process, what no caller waits for, and
//! what waits for the disk in its own way (the use of an approval). A wish that is answered by a later event,
//! such as the removal of an integration, is begun when the disk has it; what then comes of it is told as it
//! is.
//!
//! The words to a known agent go into its log ahead of the documents that no longer hold them as waiting: a
//! daemon that is killed between the two has them twice rather than not at all.
//!
//! **Invariant:** a wish answered 503 has changed nothing, unless the answer says `inForce: true`.
//! **Invariant:** as long as a change waits, every write of its documents holds it.

use super::apply::happen;
use crate::agents::{self, LogEntry};
use crate::api::Problem;
use crate::core::{
    Actor, CallId, Command, Context, Document, Durability, Effect, Event, Journal, Logged, State, Unwritten,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted::Gather;

/// Changes that wait for the disk at most; a further wish for one is refused.
pub const MAX_UNWRITTEN: usize = 1000;

/// A change that the disk has within this time has happened when it was wished, a later one now.
const SAME_TIME: Duration = Duration::from_secs(1);
/// Why a change is not in what was written: those before it do not leave it room.
pub const LEFT_OUT: &str = "changes that were asked for at the same time went before; retry";

/// What happens, once more, when a change is made.
fn event(change: &Unwritten) -> Event {
    Event::Call(change.call, change.actor.clone(), change.command.clone())
}

/// Handles a wish.
pub fn call(state: &mut State, cx: &mut Context, call: CallId, actor: Actor, command: Command) {
    let mut tried = state.clone();
    let mut trial = cx.fork();
    let (at, seed) = (cx.now, cx.seed());
    happen(&mut tried, &mut trial, Event::Call(call, actor.clone(), command.clone()));
    let documents = to_be_durable(call, &command, trial.effects());
    if documents.is_empty() {
        *state = tried;
        return cx.adopt(trial);
    }
    if state.unwritten.len() >= MAX_UNWRITTEN {
        let text =
            format!("{MAX_UNWRITTEN} changes wait for the disk, and that is the limit; retry in a moment");
        return cx.reply(call, Problem::new(503, "storage_busy", text).with_header("Retry-After", "5"));
    }
    let (lines, logged) = (lines(trial.effects()), logged(state, trial.effects()));
    for (lineage, agent, entry) in &logged {
        cx.push(Effect::Log(*lineage, *agent, entry.clone()));
    }
    for document in &documents {
        cx.push(Effect::Put(*document, Durability::BeforeReply));
    }
    for (journal, line) in &lines {
        cx.push(Effect::Append(*journal, Arc::clone(line)));
    }
    cx.push(Effect::AwaitDisk(call));
    let change = Unwritten { call, actor, command, at, seed, documents, lines, logged };
    Arc::make_mut(&mut state.unwritten).push(Arc::new(change));
}

/// What a call would change is on disk, or why not. Whether it was a call that waits here.
pub fn on_disk(state: &mut State, cx: &mut Context, call: CallId, outcome: &Result<(), String>) -> bool {
    let Some(at) = state.unwritten.iter().position(|change| change.call == call) else { return false };
    let change = Arc::make_mut(&mut state.unwritten).remove(at);
    let mut next = state.clone();
    // So that the state is to the millisecond what was written.
    let is_now = cx.now >= change.at && cx.now.since(change.at) < SAME_TIME;
    let mut done = Context::new(if is_now { change.at } else { cx.now }, change.seed);
    let refused = match outcome {
        Ok(()) => None,
        Err(why) if why == LEFT_OUT => {
            happen(&mut next, &mut done, event(&change));
            let is_granted = !to_be_durable(call, &change.command, done.effects()).is_empty();
            is_granted.then_some(why)
        }
        Err(why) => Some(why),
    };
    if let Some(why) = refused {
        withdraw(state, cx, &change, why);
        let problem = Problem::new(503, "storage_unavailable", why.clone());
        cx.reply_stored(call, problem.with("inForce", false).with_header("Retry-After", "5"));
    } else {
        if outcome.is_ok() {
            happen(&mut next, &mut done, event(&change));
        }
        *state = next;
        perform(state, cx, &change, done.take());
    }
    true
}

/// The disk has the change, and it is made; or it came to nothing, by the state as it is now.
fn perform(state: &State, cx: &mut Context, change: &Unwritten, mut effects: Vec<Effect>) {
    let documents = to_be_durable(change.call, &change.command, &effects);
    let is_granted = !documents.is_empty();
    let is_same = is_granted && lines(&effects).iter().map(said).eq(change.lines.iter().map(said));
    if is_same {
        effects.retain(|effect| !matches!(effect, Effect::Append(..)));
    } else {
        withdraw(state, cx, change, "it came to something else before it was written");
    }
    effects.retain(|effect| !logged_line(effect).is_some_and(|line| change.logged.contains(&line)));
    let is_on_disk = documents.is_subset(&change.documents);
    for effect in effects {
        cx.push(match effect {
            // The words of a task do not change with the time.
            Effect::Put(document @ Document::Prompt(_), _) if change.documents.contains(&document) => {
                continue;
            }
            // It is there already, but for times that have passed.
            Effect::Put(document, Durability::BeforeReply) if change.documents.contains(&document) => {
                Effect::Put(document, Durability::Later)
            }
            // What came to something else is answered when that is on disk.
            Effect::Reply(call, reply) if call == change.call && is_same && is_on_disk => {
                Effect::ReplyStored(call, reply)
            }
            other => other,
        });
    }
}

/// Has the documents written without the change, and says so behind its audit lines.
fn withdraw(state: &State, cx: &mut Context, change: &Unwritten, why: &str) {
    for document in &change.documents {
        cx.push(match document {
            Document::Prompt(lineage) if state.agents.stored_prompt(*lineage).is_none() => {
                Effect::Remove(*document)
            }
            Document::Handoff(lineage) if state.agents.stored_handoff(*lineage).is_none() => {
                Effect::Remove(*document)
            }
            _ => Effect::Put(*document, Durability::BeforeReply),
        });
    }
    for (lineage, agent, _) in &change.logged {
        let text = format!("the line before came to nothing: {why}");
        cx.push(Effect::Log(*lineage, *agent, LogEntry::life(text)));
    }
    if !change.lines.is_empty() {
        cx.actor.clone_from(&change.actor);
        let events: Vec<Value> = change.lines.iter().map(told).collect();
        cx.audit("change.withdrawn", &json!({"withdrawn": events, "reason": why}));
    }
}

/// The state as the disk is to have it, with every change that waits; and the calls whose changes come to
/// nothing behind the others: [`LEFT_OUT`] is what became of their writes.
pub fn to_be_stored(state: &State) -> (State, BTreeSet<CallId>) {
    let mut stored = state.clone();
    let mut left_out = BTreeSet::new();
    for change in state.unwritten.iter() {
        let mut next = stored.clone();
        let mut cx = Context::new(change.at, change.seed);
        happen(&mut next, &mut cx, event(change));
        if to_be_durable(change.call, &change.command, cx.effects()).is_empty() {
            left_out.insert(change.call);
        } else {
            stored = next;
        }
    }
    stored.unwritten = Arc::default();
    (stored, left_out)
}

/// The documents that must be on disk before what a call wishes may be done; none where it is refused.
fn to_be_durable(call: CallId, command: &Command, effects: &[Effect]) -> BTreeSet<Document> {
    let granted = effects.iter().find_map(|effect| match effect {
        Effect::Reply(to, response) if *to == call => Some(response.is_granted()),
        _ => None,
    });
    let has_own_way = effects.iter().any(|effect| matches!(effect, Effect::AwaitDisk(_)));
    // An agent can be ended on a full disk too: it may be what fills it.
    let is_end = matches!(command, Command::Agents(agents::Command::Delete(_)));
    let may_wait = granted.unwrap_or(!has_own_way && !is_end);
    let durable = effects.iter().filter(|_| may_wait).filter_map(|effect| match effect {
        Effect::Put(document, Durability::BeforeReply) => Some(*document),
        _ => None,
    });
    durable.gather()
}

fn lines(effects: &[Effect]) -> Vec<(Journal, Arc<[u8]>)> {
    let line = |effect: &Effect| match effect {
        Effect::Append(journal, line) => Some((*journal, Arc::clone(line))),
        _ => None,
    };
    effects.iter().filter_map(line).collect()
}

/// What is said to agents that are known; the first words to a new one are a document of their own.
fn logged(state: &State, effects: &[Effect]) -> Vec<Logged> {
    let lines = effects.iter().filter_map(logged_line);
    lines.filter(|(lineage, ..)| state.agents.iter().any(|agent| agent.lineage_id == *lineage)).collect()
}

fn logged_line(effect: &Effect) -> Option<Logged> {
    let Effect::Log(lineage, agent, entry) = effect else { return None };
    Some((*lineage, *agent, entry.clone()))
}

/// All that a line tells but when.
fn said((_, line): &(Journal, Arc<[u8]>)) -> Value {
    let mut entry: Value = serde_json::from_slice(line).unwrap_or_default();
    entry.as_object_mut().map(|entry| entry.remove("ts"));
    entry
}

/// The event that a line tells.
fn told((_, line): &(Journal, Arc<[u8]>)) -> Value {
    let entry: Value = serde_json::from_slice(line).unwrap_or_default();
    entry["event"].clone()
}

#[cfg(test)]
#[path = "unwritten_tests.rs"]
mod tests;
