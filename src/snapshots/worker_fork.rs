//! Where a fork begins: what stood in an agent's folder before a turn, put into a worktree of its own.

use super::lines::{Line, Snap, turns};
use super::worker::{Snapshots, line};
use super::worker_undo::{find, unreadable};
use super::{Kind, MAX_NAMED};
use crate::agents::Agent;
use crate::api::Problem;
use crate::core::time::Time;
use svc_snapshots::{apply, changes, plan, spans, view};

/// The moment that a fork goes on from.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    /// The turn that comes next.
    pub turn: u64,
    /// What was on record then; `None` is all of it. What a turn begins with is said before it begins: this
    /// is behind the turn before.
    pub until: Option<Time>,
    /// The moment from which on what its program notes is of this turn or later ones. `None` without an end
    /// of what was on record, and where the program has begun the turn by itself, unseen.
    pub from: Option<Time>,
    snap: Snap,
}

impl Snapshots {
    /// Before this turn of an agent; without a number, behind its last one, or before the one it is in.
    ///
    /// Errors: 404 for a turn that is not kept, 409 `no_snapshot`.
    pub fn beginning(&self, agent: &Agent, turn: Option<u64>) -> Result<Beginning, Problem> {
        let known = turns(&self.lines(agent.lineage_id));
        let number = turn.map(|number| find(agent, &known, number)).transpose()?;
        let chosen = match number {
            Some(number) => known.iter().find(|turn| turn.number() == number),
            None => known.last(),
        };
        let refuse = |why: &str| {
            let text = format!("{} cannot be forked: {why}", agent.name);
            Problem::new(409, "no_snapshot", text)
        };
        let chosen = chosen.ok_or_else(|| {
            refuse("no snapshot of it is kept; it has had no turn yet, or snapshots.enabled is false")
        })?;
        let of = |line: &Line| {
            line.snap.ok_or_else(|| refuse(line.missed.as_deref().unwrap_or("its turn has no snapshot")))
        };
        match &chosen.end {
            Some(end) if number.is_none() => {
                Ok(Beginning { turn: chosen.number() + 1, until: None, from: None, snap: of(end)? })
            }
            _ => {
                let before = known.iter().rfind(|turn| turn.number() < chosen.number());
                let end = before.and_then(|turn| turn.end.as_ref()).map(|end| end.at + 1);
                let until = Some(Time(end.unwrap_or(chosen.begin.at)));
                let from = Some(Time(chosen.begin.at)).filter(|_| !chosen.begin.late);
                Ok(Beginning { turn: chosen.number(), until, from, snap: of(&chosen.begin)? })
            }
        }
    }

    /// Has a folder in which nobody works yet hold what stood there then. `folder` is below the project.
    ///
    /// Errors: 409 `no_snapshot`, 500 `snapshot_lost`; what is in the folder is of no use then.
    pub fn fill(&self, folder: &str, of: &Agent, from: &Beginning) -> Result<(), Problem> {
        let refuse = |why: String| {
            let text = format!("the folder of the fork cannot be filled: {why}");
            Problem::new(409, "no_snapshot", text)
        };
        let _busy = self.enter(folder).map_err(refuse)?;
        // It is looked at as for a turn, and that look is the first of the fork's own.
        let mut now = line(0, Kind::Begin, 0, folder);
        self.look(&mut now, of.id).map_err(refuse)?;
        let now = now.snap.ok_or_else(|| refuse("there is none of it as it is".into()))?;
        let put = || {
            let root = self.root_of(folder)?;
            let mut wanted = view(&self.store, from.snap.files, from.snap.meta)?;
            let mut there = view(&self.store, now.files, now.meta)?;
            let mut found = changes(&mut wanted, &mut there)?;
            // What no snapshot holds stays as the commit has it.
            found.retain(|path, _| wanted.why_left(path).is_none() && there.why_left(path).is_none());
            let (steps, mut left) = plan(&root, &mut there, &spans([found]))?;
            if left.is_empty() {
                left = apply(&self.store, &root, &steps);
            }
            Ok(left)
        };
        let left = put().map_err(|error| unreadable(&error))?;
        if left.is_empty() {
            return Ok(());
        }
        let names: Vec<String> =
            left.iter().take(MAX_NAMED).map(|left| format!("{} ({})", left.path, left.why)).collect();
        Err(refuse(names.join(", ")))
    }
}
