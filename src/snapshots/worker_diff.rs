//! `GET /api/agents/:id/diff`: what an agent has changed, by its snapshots where it shares its folder.

use super::lines::{Turn, turns};
use super::worker::{Snapshots, git};
use crate::agents::Agent;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::isolation::parse_changes;
use crate::isolation::worker_diff::{self, Look};
use serde_json::{Value, json};
use svc_snapshots::{Entry, Id, Spans, spans, tree_of};

/// Bytes of a patch shown; a longer one is cut and says so.
const MAX_PATCH_BYTES: usize = 1 << 20;
/// Bytes of the list of its files.
const MAX_LIST_BYTES: usize = 4 << 20;

/// `GET /api/agents/:id/diff`.
pub fn diff(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&ask.target())?;
    let turn = ask.request.query("turn").map(|text| {
        let fault =
            || Problem::bad_request("validation_failed", format!("turn must be a number, it is {text:?}"));
        text.parse::<u64>().map_err(|_| fault())
    });
    let turn = turn.transpose()?;
    let look = Look::asked(ask)?;
    let is_whole = ask.request.query("whole") == Some("true");
    let told = if is_whole { worker_diff::diff(host, agent, look) } else { changed(host, agent, turn, look) };
    Ok(Answer::Reply(Reply::ok(&told?)))
}

/// What an agent has changed, in one turn or at all: its worktree against its base, else by its snapshots.
///
/// Errors: 409.
pub fn changed(host: &Host, agent: &Agent, turn: Option<u64>, look: Look) -> Result<Value, Problem> {
    if turn.is_none() && agent.worktree.is_some() {
        return worker_diff::diff(host, agent, look);
    }
    let known = turns(&host.snapshots.lines(agent.lineage_id));
    let is_meant = |known: &&Turn| turn.map_or(known.undone.is_none(), |turn| known.number() == turn);
    let (meant, missing): (Vec<&Turn>, Vec<&Turn>) =
        known.iter().filter(is_meant).partition(|turn| turn.snaps().is_some());
    if let (true, Some(number)) = (meant.is_empty(), turn) {
        let why = missing.first().and_then(|turn| turn.why_not());
        let why = why.unwrap_or_else(|| "none of it is kept".into());
        let text = format!("turn {number} of {} has no snapshot: {why}", agent.name);
        return Err(Problem::new(409, "no_snapshot", text));
    }
    if known.iter().all(|turn| turn.snaps().is_none()) {
        return worker_diff::diff(host, agent, look);
    }
    let mut of_turns = Vec::new();
    for turn in &meant {
        of_turns.push(host.snapshots.own_changes(agent, turn)?);
    }
    let mut found = spans(of_turns);
    let path = look.path.trim_end_matches('/');
    let below = format!("{path}/");
    found.retain(|name, span| {
        span.before != span.after && (path.is_empty() || name == path || name.starts_with(&below))
    });
    let mut reply = host.snapshots.shown(agent, &found, look.context)?;
    reply["base"] = json!(meant.first().and_then(|turn| turn.begin.snap).map(|snap| snap.commit.to_string()));
    reply["turns"] = json!(meant.iter().map(|turn| turn.number()).collect::<Vec<_>>());
    reply["missing"] = json!(missing.iter().map(|turn| turn.number()).collect::<Vec<_>>());
    Ok(reply)
}

impl Snapshots {
    fn shown(&self, agent: &Agent, found: &Spans, context: u32) -> Result<Value, Problem> {
        let failed = |error: std::io::Error| Problem::new(500, "snapshot_lost", error.to_string());
        let side = |entry: fn(&svc_snapshots::Span) -> Option<Entry>| -> Result<Id, Problem> {
            let files: Vec<(&str, Entry)> =
                found.iter().filter_map(|(path, span)| Some((path.as_str(), entry(span)?))).collect();
            tree_of(&self.store, &files).map_err(failed)
        };
        let sides = [side(|span| span.before)?.to_string(), side(|span| span.after)?.to_string()];
        let git = git(&self.processes, self.store.folder()).map_err(failed)?;
        let ask = |options: &[&str], max_bytes: usize| {
            let mut args = vec!["diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv"];
            args.extend(options);
            args.extend(sides.iter().map(String::as_str));
            git.try_run(&args).map(|said| {
                let is_cut = said.truncated || said.stdout.len() > max_bytes;
                let text = said.stdout.get(..max_bytes).unwrap_or(&said.stdout);
                (String::from_utf8_lossy(text).into_owned(), is_cut)
            })
        };
        let (names, _) = ask(&["-z", "--name-status"], MAX_LIST_BYTES)?;
        let (counts, list_cut) = ask(&["-z", "--numstat"], MAX_LIST_BYTES)?;
        let (patch, patch_cut) =
            ask(&["-p", "--no-color", &format!("--unified={context}")], MAX_PATCH_BYTES)?;
        let files = parse_changes(&names, &counts);
        let modes: Vec<&String> = found
            .iter()
            .filter(|(_, span)| span.before.zip(span.after).is_some_and(|(one, other)| one.id == other.id))
            .map(|(path, _)| path)
            .collect();
        let mixed: Vec<&String> =
            found.iter().filter(|(_, span)| span.is_broken).map(|(path, _)| path).collect();
        let written = |path: &str| agent.files.get(path).is_some_and(|touch| touch.writes > 0);
        let list: Vec<Value> = files
            .iter()
            .map(|file| {
                let mut entry = json!(file);
                entry["written"] = json!(written(&file.path));
                entry
            })
            .collect();
        Ok(json!({
            "agentId": agent.id, "agentName": agent.name, "isolation": agent.isolation,
            "source": "snapshots", "branch": null, "commits": 0, "uncommitted": !files.is_empty(),
            "files": list,
            "added": files.iter().map(|file| file.added).sum::<u64>(),
            "removed": files.iter().map(|file| file.removed).sum::<u64>(),
            "permissions": modes, "mixed": mixed, "diff": patch, "truncated": list_cut || patch_cut,
        }))
    }
}
