//! What is commented on is read from the agent's folder, on the caller's own thread.

use super::{Command, Comment, MAX_QUOTE_CHARS, New, api};
use crate::agents::Agent;
use crate::agents::api::target;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core;
use crate::endpoint::{Answer, Ask};
use crate::workspace::path::ProjectPath;
use crate::workspace::worker_files::{refusal, text_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc_sys::beneath::Root;

/// Where an agent works.
fn root(host: &Host, agent: &Agent) -> Result<Root, Problem> {
    let folder = agent.worktree.as_ref().map_or_else(|| host.project.clone(), |tree| host.project.join(tree));
    Root::open(&folder).map_err(|error| refusal(&error, &ProjectPath::found("")))
}

/// `POST /api/agents/:id/comments`.
pub fn add(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let wish = ask.request.read(api::wish)?;
    let agent = ask.state.agents.find(&target(ask))?;
    let path = ProjectPath::parse(&wish.path)?;
    let content = text_of(&root(host, agent)?, &path)?;
    let count = content.lines().count() as u64;
    if wish.last_line > count {
        let text = format!("{:?} has {count} lines, there is no line {}", path.as_str(), wish.last_line);
        return Err(Problem::not_found(text));
    }
    let (skip, take) = (wish.line - 1, wish.last_line - wish.line + 1);
    let skipped = content.lines().skip(usize::try_from(skip).unwrap_or(usize::MAX));
    let lines: Vec<&str> = skipped.take(usize::try_from(take).unwrap_or_default()).collect();
    let quote = lines.join("\n");
    if quote.chars().count() > MAX_QUOTE_CHARS {
        let text = format!("these lines have more than {MAX_QUOTE_CHARS} characters; name fewer of them");
        return Err(Problem::bad_request("too_many_lines", text));
    }
    let new = New {
        agent: agent.id,
        path: path.as_str().to_owned(),
        line: wish.line,
        last_line: wish.last_line,
        quote,
        text: wish.text,
    };
    Ok(Answer::Command(core::Command::Comments(Command::Add(Box::new(new)))))
}

/// `GET /api/agents/:id/comments`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&target(ask))?;
    let root = root(host, agent);
    let mut contents: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut shown: Vec<Value> = Vec::new();
    for comment in ask.state.comments.of(agent.lineage_id) {
        let read = || text_of(root.as_ref().ok()?, &ProjectPath::parse(&comment.path).ok()?).ok();
        let content = contents.entry(&comment.path).or_insert_with(read);
        // A file that is gone, or cannot be read, holds its lines no more.
        let is_changed = content.as_ref().is_none_or(|content| !comment.stands_in(content));
        shown.push(told(comment, is_changed));
    }
    let body = json!({"agentId": agent.id, "agentName": agent.name, "comments": shown});
    Ok(Answer::Reply(Reply::ok(&body)))
}

fn told(comment: &Comment, is_changed: bool) -> Value {
    let state = match (comment.done_at, comment.sent_at) {
        (Some(_), _) => "done",
        (None, Some(_)) if is_changed => "done",
        (None, Some(_)) => "sent",
        (None, None) => "open",
    };
    let mut told = comment.shown();
    (told["state"], told["changed"]) = (json!(state), json!(is_changed));
    told
}
