//! `POST /api/agents/:id/fetch`: what an agent has committed on another machine comes into its branch here,
//! to be looked at and merged as that of any agent with a worktree.

use super::worker_worktree::Place;
use super::{Command, Fetched};
use crate::agents::Agent;
use crate::api::Problem;
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::runners::Runner;
use crate::runners::worker_bring::{Brought, bring, pack_of};
use std::sync::{Arc, Mutex, PoisonError};
use svc_sys::process::Processes;

/// Bytes of what git says of a pack.
const SAID_BYTES: usize = 64 << 10;

/// One at a time: a second one would meet git's own lock.
static TURN: Mutex<()> = Mutex::new(());

/// The handler.
pub fn fetch(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let agent = ask.state.agents.find(&ask.target())?;
    let Some(name) = &agent.runner else {
        let text = format!("{} works here; svc diff and svc merge see its work as it is", agent.name);
        return Err(Problem::new(409, "not_on_runner", text));
    };
    let runner = ask.state.runners.find(name)?;
    let here = Place::open(host, agent)?;
    // What it has not committed is taken along as a commit once nobody writes there any more.
    let settles = !agent.status.is_live();
    let fetched = take_home(&host.processes, &here, runner, agent, settles)?;
    Ok(Answer::Command(Command::Fetched(Box::new(fetched)).into()))
}

/// Brings what an agent has committed there into its branch here.
///
/// Errors: 502 `runner_failed`, 409 `diverged`.
pub(super) fn take_home(
    processes: &Arc<Processes>,
    here: &Place,
    runner: &Runner,
    agent: &Agent,
    settles: bool,
) -> Result<Fetched, Problem> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = &runner.name;
    let from = here.tree.run(&["rev-parse", "HEAD"])?;
    let work = agent.lineage_id.to_string();
    let Brought { tip, bundle, uncommitted } =
        bring(processes, runner, &runner.folder, &work, &from, settles)
            .map_err(|error| Problem::new(502, "runner_failed", error))?;
    if tip != from {
        let pack = pack_of(&bundle, &tip).map_err(|error| Problem::new(502, "runner_failed", error))?;
        // Each object is looked at, and nothing that they lead to may be missing; no name is given to any.
        here.project.feed(&["index-pack", "--stdin", "--fix-thin", "--strict"], pack, SAID_BYTES)?;
        if here.project.commit(&tip)?.as_deref() != Some(tip.as_str()) {
            let text = "the bundle that was brought does not hold the commit that it names";
            return Err(Problem::new(502, "runner_failed", text));
        }
        let is_ahead = here.project.try_admin(&["merge-base", "--is-ancestor", &from, &tip])?;
        if !is_ahead.is_success() {
            let text = format!(
                "the branch {} has commits that are not on {name}: what was done there ({tip}) is in this \
                 repository now, git merge it yourself",
                here.branch
            );
            return Err(Problem::new(409, "diverged", text).with("commit", tip.as_str()));
        }
        here.tree.write(&["merge", "--quiet", "--ff-only", &tip])?;
    }
    let count = here.project.admin(&["rev-list", "--count", &format!("{from}..{tip}")])?;
    Ok(Fetched {
        agent: agent.id,
        branch: here.branch.clone(),
        from,
        to: tip,
        commits: count.trim().parse().unwrap_or(0),
        uncommitted,
    })
}
