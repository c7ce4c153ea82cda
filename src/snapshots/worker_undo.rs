//! Undo and redo: files come to be as they were, whole, or none does.

use super::lines::{Kind, Line, Turn, to_redo, turns};
use super::worker::{Snapshots, line};
use super::{Command, MAX_NAMED, Restored, is_alone};
use crate::agents::Agent;
use crate::api::{Fields, Problem, Reply};
use crate::assembly::host::Host;
use crate::core::ids::LineageId;
use crate::endpoint::{Answer, Ask};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use svc_base::folders::WORKTREES;
use svc_base::scopes;
use svc_snapshots::{Change, Left, Plan, Spans, apply, changes, plan, spans, taken_back, view};
use svc_sys::beneath::Root;
use svc_sys::files::{missing_is_fine, replace, sync_folder};
use svc_sys::regular;

/// By path.
type Changes = BTreeMap<String, Change>;

/// The highest number of a turn.
const MAX_TURN: u64 = 1 << 40;

/// What an undo is asked for with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// The first turn to undo; by default the last one that has changed something.
    pub turn: Option<u64>,
}

/// Reads the body.
pub fn wish(fields: &mut Fields) -> Wish {
    Wish { turn: fields.integer("turn", 1, MAX_TURN) }
}

/// What is on disk before the first file changes.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    lineage: LineageId,
    /// What is noted when it is done.
    line: Line,
    steps: Plan,
}

/// `POST /api/agents/:id/undo`.
pub fn undo(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let wish = ask.request.read(wish)?;
    let agent = ask.state.agents.find(&ask.target())?;
    at_rest(agent)?;
    let all = &host.snapshots;
    let lines = all.lines(agent.lineage_id);
    let known = turns(&lines);
    let own = |turn: &Turn| all.own_changes(agent, turn);
    let from = match wish.turn {
        Some(number) => find(agent, &known, number)?,
        None => last_changed(agent, &known, &own)?,
    };
    let chosen: Vec<&Turn> =
        known.iter().filter(|turn| turn.number() >= from && turn.undone.is_none()).collect();
    let Some((first, last)) = chosen.first().zip(chosen.last()) else {
        return Err(nothing(agent, "all of these turns are undone already; svc redo takes that back"));
    };
    if let Some(other) = chosen.iter().find(|turn| turn.begin.folder != first.begin.folder) {
        let text =
            format!("turn {} of {} was in another folder than turn {from}", other.number(), agent.name);
        return Err(Problem::new(409, "no_snapshot", text));
    }
    let mut of_turns = Vec::new();
    for turn in &chosen {
        of_turns.push(own(turn)?);
    }
    let mut noted = line(0, Kind::Undo, from, &first.begin.folder);
    noted.of = last.number();
    all.restore(agent, noted, &spans(of_turns))
}

/// `POST /api/agents/:id/redo`.
pub fn redo(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let agent = ask.state.agents.find(&ask.target())?;
    at_rest(agent)?;
    let all = &host.snapshots;
    let lines = all.lines(agent.lineage_id);
    let undo = to_redo(&lines).ok_or_else(|| nothing(agent, "nothing of it was undone"))?;
    let begun = all.read_plan(agent.lineage_id, undo.n).map_err(|error| {
        Problem::new(409, "no_snapshot", format!("what was undone is not known any more: {error}"))
    })?;
    let mut noted = line(0, Kind::Redo, undo.turn, &undo.folder);
    noted.of = undo.n;
    all.restore(agent, noted, &taken_back(&begun.steps))
}

/// Errors: 409 inside of a turn.
fn at_rest(agent: &Agent) -> Result<(), Problem> {
    if !agent.turn_open && agent.opening.is_none() {
        return Ok(());
    }
    let text = format!(
        "{} is in the middle of a turn; wait until it is over (svc wait {}), or end the turn first",
        agent.name, agent.name
    );
    Err(Problem::new(409, "agent_busy", text))
}

fn nothing(agent: &Agent, why: &str) -> Problem {
    Problem::new(409, "nothing_to_undo", format!("there is nothing to do for {}: {why}", agent.name))
}

pub(super) fn find(agent: &Agent, known: &[Turn], number: u64) -> Result<u64, Problem> {
    if known.iter().any(|turn| turn.number() == number) {
        return Ok(number);
    }
    let range = known.first().zip(known.last()).map_or_else(
        || "there is none".to_owned(),
        |(first, last)| format!("there are {} to {}", first.number(), last.number()),
    );
    Err(Problem::not_found(format!("no snapshot of turn {number} of {} is kept; {range}", agent.name)))
}

fn last_changed(
    agent: &Agent,
    known: &[Turn],
    own: &dyn Fn(&Turn) -> Result<Changes, Problem>,
) -> Result<u64, Problem> {
    for turn in known.iter().rev().filter(|turn| turn.undone.is_none()) {
        if !own(turn)?.is_empty() {
            return Ok(turn.number());
        }
    }
    Err(nothing(agent, "no turn of it that a snapshot is kept of has changed a file"))
}

pub(super) fn unreadable(error: &io::Error) -> Problem {
    Problem::new(500, "snapshot_lost", format!("the snapshots cannot be read: {error}"))
}

fn named(left: &[Left]) -> Vec<serde_json::Value> {
    left.iter().take(MAX_NAMED).map(|left| json!({"path": left.path, "why": left.why})).collect()
}

impl Snapshots {
    /// What a turn of an agent has changed. Where others were at work in the same folder, or its beginning
    /// was not seen, only what its own tools have written and what it owns.
    ///
    /// Errors: 409 `no_snapshot`, 500 `snapshot_lost`.
    pub(super) fn own_changes(&self, agent: &Agent, turn: &Turn) -> Result<Changes, Problem> {
        let Some((begin, end)) = turn.snaps() else {
            let why = turn.why_not().unwrap_or_default();
            let text = format!("turn {} of {} has no snapshot: {why}", turn.number(), agent.name);
            return Err(Problem::new(409, "no_snapshot", text));
        };
        let read = || -> io::Result<Changes> {
            let mut before = view(&self.store, begin.files, begin.meta)?;
            let mut after = view(&self.store, end.files, end.meta)?;
            let mut found = changes(&mut before, &mut after)?;
            // What was left out of one of them is not known to have changed.
            found.retain(|path, _| before.why_left(path).is_none() && after.why_left(path).is_none());
            Ok(found)
        };
        let mut found = read().map_err(|error| unreadable(&error))?;
        let is_shared = turn.begin.folder.is_empty();
        let is_sure =
            turn.is_sharp() && (!is_shared || is_alone(turn, &self.turns_of_others(agent.lineage_id)));
        if !is_sure {
            found.retain(|path, _| is_known_to_be_its(&self.project.join(&turn.begin.folder), agent, path));
        }
        Ok(found)
    }

    fn plan_path(&self, lineage: LineageId, n: u64) -> PathBuf {
        self.folder.join("undo").join(format!("{lineage}-{n}.json"))
    }

    fn read_plan(&self, lineage: LineageId, n: u64) -> io::Result<Begun> {
        Ok(serde_json::from_slice(&regular::read(&self.plan_path(lineage, n))?)?)
    }

    /// Forgets what an undo has done.
    pub(super) fn forget_plan(&self, lineage: LineageId, n: u64) -> io::Result<()> {
        fs::remove_file(self.plan_path(lineage, n)).or_else(missing_is_fine)
    }

    pub(super) fn root_of(&self, folder: &str) -> io::Result<Root> {
        Root::open(&if folder.is_empty() { self.project.clone() } else { self.project.join(folder) })
    }

    /// Has files be as they were before.
    fn restore(&self, agent: &Agent, mut noted: Line, spans: &Spans) -> Result<Answer, Problem> {
        let lineage = agent.lineage_id;
        let no_snapshot = |why: String| {
            let text = format!("nothing was changed, for what is there now cannot be kept: {why}");
            Problem::new(503, "no_snapshot", text)
        };
        if !self.project.join(&noted.folder).is_dir() {
            let (name, folder) = (&agent.name, &noted.folder);
            let text = format!(
                "the folder of {name}, {folder}, is gone; what was merged is taken back with git revert"
            );
            return Err(Problem::new(409, "no_worktree", text));
        }
        let _busy = self.enter(&noted.folder).map_err(no_snapshot)?;
        noted.n = self.lines(lineage).last().map_or(0, |last| last.n) + 1;
        self.keep(lineage, &mut noted, agent.id).map_err(no_snapshot)?;
        let snap = noted.snap.ok_or_else(|| no_snapshot(String::new()))?;
        let planned = || -> io::Result<_> {
            let root = self.root_of(&noted.folder)?;
            let mut now = view(&self.store, snap.files, snap.meta)?;
            let (steps, against) = plan(&root, &mut now, spans)?;
            Ok((root, steps, against))
        };
        let (root, steps, against) = planned().map_err(|error| unreadable(&error))?;
        if !against.is_empty() {
            return Err(refused(agent, &against));
        }
        noted.files = steps.len() as u64;
        let begun = Begun { lineage, line: noted, steps };
        self.write_plan(&begun).map_err(|error| no_snapshot(error.to_string()))?;
        let left = apply(&self.store, &root, &begun.steps);
        self.append(lineage, begun.line.clone());
        let Begun { line, steps, .. } = begun;
        let reply = json!({
            "ok": true, "agentId": agent.id, "agentName": agent.name, "turn": line.turn,
            "to": if line.kind == Kind::Undo { json!(line.of) } else { json!(null) },
            "files": steps.iter().map(|(path, step)| json!({
                "path": path,
                "is": match (step.from, step.to) {
                    (Some(_), None) => "removed",
                    (None, Some(_)) => "there again",
                    _ => "as before",
                },
            })).collect::<Vec<_>>(),
            "left": named(&left), "leftCount": left.len(), "snapshot": line.n,
        });
        let restored = Restored {
            agent: agent.id,
            is_redo: line.kind == Kind::Redo,
            turn: line.turn,
            files: steps.into_keys().collect(),
            reply,
        };
        Ok(Answer::Command(Command::Restored(Box::new(restored)).into()))
    }

    fn write_plan(&self, begun: &Begun) -> io::Result<()> {
        let path = self.plan_path(begun.lineage, begun.line.n);
        replace(&path, &serde_json::to_vec(begun)?)?;
        path.parent().map_or(Ok(()), sync_folder)
    }
}

/// Whether nobody but this agent is known to have changed a file while several were at work.
fn is_known_to_be_its(project: &std::path::Path, agent: &Agent, path: &str) -> bool {
    let wrote = agent.files.iter().any(|(file, touch)| {
        touch.writes > 0 && scopes::within(project, &agent.working_dir, file).as_deref() == Some(path)
    });
    wrote || scopes::owns(&agent.scope, path)
}

fn refused(agent: &Agent, against: &[Left]) -> Problem {
    let names: Vec<String> =
        against.iter().take(3).map(|left| format!("{} ({})", left.path, left.why)).collect();
    let more = against.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!("nothing of {} was changed: {}{more}", agent.name, names.join(", "));
    Problem::new(409, "changed_since", text).with("paths", named(against)).with("pathCount", against.len())
}

/// Ends what an earlier daemon has begun and not noted as done.
pub(super) fn recover(all: &Snapshots) {
    let Ok(files) = fs::read_dir(all.folder.join("undo")) else { return };
    for file in files.flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        let parsed = name.strip_suffix(".json").and_then(|name| name.split_once('-'));
        let Some((lineage, n)) =
            parsed.and_then(|(lineage, n)| Some((lineage.parse().ok()?, n.parse().ok()?)))
        else {
            continue;
        };
        if all.lines(lineage).iter().any(|line| line.n == n) {
            continue;
        }
        match go_on(all, lineage, n) {
            Ok(left) => log::warn!("an undo that was cut off is done now; {} files were left", left.len()),
            Err(error) => log::error!("an undo that was cut off cannot be ended: {name}: {error}"),
        }
    }
}

fn go_on(all: &Snapshots, lineage: LineageId, n: u64) -> io::Result<Vec<Left>> {
    let begun = all.read_plan(lineage, n)?;
    let folder = &begun.line.folder;
    // Whoever could write this file may not lead us elsewhere.
    let is_ours =
        folder.is_empty() || folder.strip_prefix(WORKTREES).is_some_and(|name| name.starts_with('/'));
    if !is_ours || folder.split('/').any(|part| part == "..") || begun.line.n != n || begun.lineage != lineage
    {
        return Err(io::Error::other("it is none of ours"));
    }
    let root = all.root_of(folder)?;
    let left = apply(&all.store, &root, &begun.steps);
    for left in &left {
        log::warn!("{} was left as it is: {}", left.path, left.why);
    }
    all.append(lineage, begun.line);
    Ok(left)
}

/// `GET /api/agents/:id/snapshots`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(&ask.target())?;
    let lines = host.snapshots.lines(agent.lineage_id);
    let shown = |turn: &Turn| {
        let at = |line: &Line| crate::core::time::Time(line.at).to_string();
        json!({
            "turn": turn.number(), "at": at(&turn.begin), "endedAt": turn.end.as_ref().map(at),
            "folder": turn.begin.folder, "files": turn.begin.files, "leftOut": turn.begin.left,
            "changed": turn.snaps().is_some_and(|(one, other)| (one.files, one.meta) != (other.files, other.meta)),
            "undone": turn.undone.is_some(), "missed": turn.why_not(), "tookMs": turn.begin.ms,
            "commit": turn.begin.snap.map(|snap| snap.commit.to_string()),
        })
    };
    let reply = json!({
        "agentId": agent.id, "agentName": agent.name,
        "enabled": ask.state.settings.config().snapshots.enabled,
        "turns": turns(&lines).iter().map(shown).collect::<Vec<_>>(),
        "redo": to_redo(&lines).map(|undo| undo.turn),
    });
    Ok(Answer::Reply(Reply::ok(&reply)))
}
