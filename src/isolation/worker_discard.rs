//! `POST /api/agents/:id/discard`: the worktree of an agent goes and nothing of it is merged. What it has
//! done stays on its branch, what it had not committed included, until a person deletes that.

use super::worker_merge::{TURN, remove, settled_tip};
use super::worker_worktree::Place;
use super::{Command, Merged};
use crate::api::Problem;
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use serde_json::json;
use std::sync::PoisonError;

/// `POST /api/agents/:id/discard`.
pub fn discard(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let agent = ask.state.agents.find(&ask.target())?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::open(host, agent)?;
    let (id, name) = (agent.id, &agent.name);
    if agent.status.is_live() {
        let text =
            format!("{name} still runs; wait for it (svc wait {name}) or end it (svc kill {name}) first");
        return Err(Problem::new(409, "agent_running", text));
    }
    if place.is_detached()? {
        // With the worktree the last thing would go that names its commits.
        let text = format!(
            "{name} has left its branch, so nothing would hold its commits; give them one (git -C {} switch -c NAME)",
            place.path
        );
        return Err(Problem::new(409, "no_branch", text));
    }
    host.snapshots.before_merge(agent.lineage_id, id);
    let commit = settled_tip(&place, agent, false)?;
    let reply = json!({
        "ok": true, "agentId": id, "agentName": name, "branch": place.branch, "commit": commit,
        "worktree": place.path, "worktreeRemoved": false,
    });
    let branch = place.branch.clone();
    let gone =
        Merged { agent: id, commit: None, branch, into: String::new(), files: vec![], removes: true, reply };
    let command = Command::Merged(Box::new(gone)).into();
    // From here on no record names the worktree, so that nothing can be started in it meanwhile.
    Ok(Answer::Followed(command, Box::new(move |reply| remove(&place, id, reply))))
}
