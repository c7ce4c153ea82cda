//! What is commented on is read from the agent's folder, on the caller's own thread.

use super::removed::Removed;
use super::{Command, Comment, MAX_QUOTE_CHARS, New, Side, api, place_of};
use crate::agents::Agent;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::isolation::worker_diff::Look;
use crate::snapshots::worker_diff::changed;
use crate::workspace::path::ProjectPath;
use crate::workspace::worker_files::{refusal, text_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_sys::beneath::Root;

/// Where an agent works.
fn root(host: &Host, agent: &Agent) -> Result<Root, Problem> {
    let folder = agent.worktree.as_ref().map_or_else(|| host.project.clone(), |tree| host.project.join(tree));
    Root::open(&folder).map_err(|error| refusal(&error, &ProjectPath::found("")))
}

/// What an agent has changed, without the lines around it.
fn patch(host: &Host, agent: &Agent) -> Result<String, Problem> {
    let told = changed(host, agent, None, Look { path: "", context: 0 })?;
    Ok(told["diff"].as_str().unwrap_or_default().to_owned())
}

/// `POST /api/agents/:id/comments`.
pub fn add(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let mut wish = ask.request.read(api::wish)?;
    let agent = ask.state.agents.find(&ask.target())?;
    let path = ProjectPath::parse(&wish.path)?;
    let quote = match wish.side {
        Side::New => standing(host, agent, &path, &mut wish)?,
        Side::Old => {
            let patch = patch(host, agent)?;
            Removed::of(&patch).between(path.as_str(), wish.line, wish.last_line).ok_or_else(|| {
                let text = format!(
                    "line {} or {} of {:?} as it was is not removed; 'svc diff' shows which are, and lines that still \
                     stand are commented on with side new",
                    wish.line,
                    wish.last_line,
                    path.as_str()
                );
                Problem::not_found(text)
            })?
        }
    };
    if quote.chars().count() > MAX_QUOTE_CHARS {
        let text = format!("these lines have more than {MAX_QUOTE_CHARS} characters; name fewer of them");
        return Err(Problem::bad_request("too_many_lines", text));
    }
    let new = New {
        agent: agent.id,
        path: path.as_str().to_owned(),
        line: wish.line,
        last_line: wish.last_line,
        side: wish.side,
        quote,
        text: wish.text,
    };
    Ok(Answer::Command(Command::Add(Box::new(new)).into()))
}

/// The lines of a file as it is now; the numbers are those in the agent's folder from then on.
///
/// Errors: 404, 409 `lines_differ`.
fn standing(host: &Host, agent: &Agent, path: &ProjectPath, wish: &mut api::Wish) -> Result<String, Problem> {
    let content = text_of(&root(host, agent)?, path)?;
    if let Some(quote) = &wish.quote {
        let place = place_of(quote, wish.line, &content).ok_or_else(|| {
            let text = format!(
                "{:?} does not hold these lines where {} works; its Diff, or svc diff, shows what it has there",
                path.as_str(),
                agent.name
            );
            Problem::new(409, "lines_differ", text)
        })?;
        (wish.line, wish.last_line) = (place, place + (quote.lines().count() as u64).max(1) - 1);
    }
    let count = content.lines().count() as u64;
    if wish.last_line > count {
        let text = format!("{:?} has {count} lines, there is no line {}", path.as_str(), wish.last_line);
        return Err(Problem::not_found(text));
    }
    let (skip, take) = (wish.line - 1, wish.last_line - wish.line + 1);
    let skipped = content.lines().skip(usize::try_from(skip).unwrap_or(usize::MAX));
    let lines: Vec<&str> = skipped.take(usize::try_from(take).unwrap_or_default()).collect();
    Ok(lines.join("\n"))
}

/// `GET /api/agents/:id/comments`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&ask.target())?;
    let root = root(host, agent);
    let mut contents: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut shown: Vec<Value> = Vec::new();
    let is_removed = |comment: &&Arc<Comment>| comment.side == Side::Old;
    let any_removed = ask.state.comments.of(agent.lineage_id).any(|comment| is_removed(&comment));
    // Where nothing can be compared any more, nothing is removed either.
    let patch = if any_removed { patch(host, agent).unwrap_or_default() } else { String::new() };
    let removed = Removed::of(&patch);
    for comment in ask.state.comments.of(agent.lineage_id) {
        if is_removed(&comment) {
            let now = removed.between(&comment.path, comment.line, comment.last_line);
            shown.push(told(comment, now.filter(|now| **now == *comment.quote).map(|_| comment.line)));
            continue;
        }
        let read = || text_of(root.as_ref().ok()?, &ProjectPath::parse(&comment.path).ok()?).ok();
        let content = contents.entry(&comment.path).or_insert_with(read);
        // A file that is gone, or cannot be read, holds its lines no more.
        shown.push(told(comment, content.as_ref().and_then(|content| comment.stands_in(content))));
    }
    let body = json!({"agentId": agent.id, "agentName": agent.name, "comments": shown});
    Ok(Answer::Reply(Reply::ok(&body)))
}

/// `stands`: where its lines begin now.
fn told(comment: &Comment, stands: Option<u64>) -> Value {
    let is_changed = stands.is_none();
    let state = match (comment.done_at, comment.sent_at) {
        (Some(_), _) => "done",
        (None, Some(_)) if is_changed => "done",
        (None, Some(_)) => "sent",
        (None, None) => "open",
    };
    let mut told = comment.shown();
    (told["state"], told["changed"], told["stands"]) = (json!(state), json!(is_changed), json!(stands));
    told
}
