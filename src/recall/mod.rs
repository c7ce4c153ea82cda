//! Asking what is known: one question over all logs, handoff briefs, discoveries, decisions and rules of
//! the project, of agents that live and of those that have ended. By words, their stems and near words, in
//! several languages; no model is called. And finding words in the logs as they were typed, newest first, by
//! the same index.
//!
//! **Invariant:** a question changes nothing, and reads a bounded part of the logs however large they are.
//! **Invariant:** what it finds is somebody's text: it is shown as data.

pub mod api;
#[cfg(test)]
mod tests;
pub mod worker;

use crate::agents::worker_log::{Exact, Kind, LogStore, Searched, Within};
use crate::core::State as All;
use crate::core::ids::LineageId;
use serde_json::{Value, json};
use std::io;
use svc_base::matching::Matcher;
use svc_base::sorted;
use svc_base::terms;

/// Words of a question that count.
pub const MAX_WORDS: usize = 16;
/// Characters of a question.
pub const MAX_QUESTION_CHARS: usize = 500;
/// Answers that are given unasked.
pub const DEFAULT_HITS: usize = 10;
/// Answers at most.
pub const MAX_HITS: usize = 50;
/// Characters that are shown of what is not a log.
const EXCERPT_CHARS: usize = 320;
/// What was written down on purpose counts more than what was said on the way; a brief repeats a log.
const KEPT: f32 = 1.3;
const BRIEF: f32 = 0.8;

/// A question.
#[derive(Debug, Clone)]
pub struct Question {
    pub words: String,
    /// Only of this lineage; its logs alone are asked then.
    pub lineage: Option<LineageId>,
    pub most: usize,
}

/// A search for words as they were typed.
#[derive(Debug, Clone)]
pub struct Search {
    pub words: String,
    pub exact: Exact,
    pub within: Within,
    pub most: usize,
}

/// Finds words in all logs: newest first, as `GET /api/search` shows it.
///
/// Errors: the system's words, when the logs cannot be read.
pub fn find(logs: &LogStore, all: &All, search: &Search) -> io::Result<Value> {
    let Searched { mut found, bytes, skipped } = logs.find(&search.exact, search.within, search.most + 1)?;
    let more = found.len() > search.most;
    found.truncate(search.most);
    let hits: Vec<Value> = found
        .into_iter()
        .map(|found| {
            let agent = all.agents.by_lineage(found.lineage);
            let record = json!(found.record);
            json!({
                "agentId": agent.map(|agent| agent.id),
                "agentName": agent.map(|agent| &agent.name),
                "lineageId": found.lineage,
                "n": found.record.n,
                "ts": found.record.ts.to_string(),
                "type": record["type"],
                "tool": record["name"],
                "text": found.excerpt,
            })
        })
        .collect();
    let (query, searched) = (&search.words, bytes.saturating_sub(skipped));
    Ok(json!({
        "query": query,
        "hits": hits,
        "more": more,
        "searchedBytes": searched,
        "notSearchedBytes": skipped,
    }))
}

/// The kind of entries of this name.
pub fn kind(name: &str) -> Option<Kind> {
    match name {
        "text" => Some(Kind::Text),
        "tool" => Some(Kind::Tool),
        _ => None,
    }
}

/// Answers a question: best first, as `GET /api/recall` shows it.
///
/// Errors: the system's words, when the logs cannot be read.
pub fn ask(logs: &LogStore, all: &All, question: &Question) -> io::Result<Value> {
    let mut matcher = Matcher::new(terms::wanted(&question.words, MAX_WORDS));
    let Searched { found, bytes, skipped } = logs.search(&mut matcher, question.lineage, question.most)?;
    let mut hits: Vec<(f32, Value)> = Vec::new();
    for found in found {
        let agent = all.agents.by_lineage(found.lineage);
        let record = json!(found.record);
        hits.push((
            found.score,
            json!({
                "source": "log",
                "agentName": agent.map(|agent| &agent.name),
                "lineageId": found.lineage,
                "n": found.record.n,
                "ts": found.record.ts.to_string(),
                "type": record["type"],
                "text": found.excerpt,
            }),
        ));
    }
    if question.lineage.is_none() {
        written_down(all, &matcher, &mut hits);
    }
    sorted::by(&mut hits, |a, b| b.0.total_cmp(&a.0));
    hits.truncate(question.most);
    let hits: Vec<Value> = hits.into_iter().map(|(_, hit)| hit).collect();
    Ok(json!({"query": question.words, "hits": hits, "searchedBytes": bytes, "notSearchedBytes": skipped}))
}

/// What of the memory, the briefs and the journalist's notes answers.
fn written_down(all: &All, matcher: &Matcher, hits: &mut Vec<(f32, Value)>) {
    let mut add = |source: &str, agent: Option<&str>, ts: Option<String>, weight: f32, text: &str| {
        let Some(best) = matcher.best(text.as_bytes()) else { return };
        let text = matcher.excerpt(text, EXCERPT_CHARS);
        hits.push((
            best.score * weight,
            json!({"source": source, "agentName": agent, "ts": ts, "text": text}),
        ));
    };
    for found in all.memory.discoveries() {
        let text = format!("{} -> {}", found.trigger, found.fix);
        add("discovery", Some(&found.role), Some(found.ts.clone()), KEPT, &text);
    }
    for rule in all.memory.constraints() {
        add("rule", None, Some(rule.added_at.clone()), KEPT, &rule.text);
    }
    for role in all.memory.chain_roles() {
        for entry in all.memory.chain(role) {
            add("brief", Some(&entry.agent_name), Some(entry.ts.clone()), BRIEF, &entry.body);
        }
    }
    for (agent, text, at) in all.journalist.decisions() {
        add("decision", Some(agent), Some(at.to_string()), KEPT, text);
    }
}
