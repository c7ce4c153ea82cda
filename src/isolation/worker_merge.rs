//! `POST /api/agents/:id/merge`: the work of an agent becomes part of the project's current branch.
//!
//! ```text
//! look: worktree there, agent ended, nothing half done on either side
//!   └▶ commit what the agent has left uncommitted, on its branch, as its work
//!        └▶ look: no changed file of the project in the way, no conflict
//!             └▶ git merge --no-ff ──fails──▶ git merge --abort
//!                  └▶ the core: audit, event, record ──▶ the worktree goes, if that was asked for
//! ```

use super::api::{Wish, wish};
use super::changes::Change;
use super::worker_git::{Git, succeeded, words};
use super::worker_worktree::{OwnIndex, Place, add, changed_files, changes, list};
use super::{Command, Merged};
use crate::agents::Agent;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::ids::AgentId;
use crate::endpoint::{Answer, Ask};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use svc_base::sorted;
use svc_sys::process::Captured;

/// The address of an agent in commits; `.invalid` leads nowhere.
const AGENT_DOMAIN: &str = "agents.svc.invalid";
/// One merge at a time: a second one would meet git's own lock.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// `POST /api/agents/:id/merge`.
pub fn merge(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    ask.state.health.writable()?;
    let wish = ask.request.read(wish)?;
    let agent = ask.state.agents.find(&ask.target())?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::open(host, agent)?;
    let runs = agent.status.is_live();
    if runs && !wish.force {
        let text = format!(
            "{} still runs; wait for it (svc wait {}) or end it (svc kill {}), or merge what it has committed \
             so far with force",
            agent.name, agent.name, agent.name
        );
        return Err(Problem::new(409, "agent_running", text));
    }
    check_at_rest(&place.project, "the project")?;
    let into = place.project.ask(&["symbolic-ref", "--quiet", "--short", "HEAD"])?.ok_or_else(|| {
        let text =
            "the project is on no branch (detached HEAD); git switch to the branch that is to get the work";
        Problem::new(409, "no_branch", text)
    })?;
    let tip = if runs { tip_of(&place)? } else { settled_tip(&place, agent, wish.dry_run)? };
    let plan = Plan { agent, place: &place, wish: &wish, into: &into, tip: &tip };
    if !wish.dry_run {
        host.snapshots.before_merge(agent.lineage_id, agent.id);
    }
    let (commit, files) = plan.carry_out()?;
    if wish.dry_run {
        return Ok(Answer::Reply(Reply::ok(&plan.reply(None, &files))));
    }
    let removes = wish.remove && !runs;
    let merged = Merged {
        agent: agent.id,
        reply: plan.reply(commit.as_deref(), &files),
        commit,
        branch: place.branch.clone(),
        into,
        files,
        removes,
    };
    let command = Command::Merged(Box::new(merged)).into();
    if !removes {
        return Ok(Answer::Command(command));
    }
    // From here on no record names the worktree, so that nothing can be started in it meanwhile.
    let id = agent.id;
    Ok(Answer::Followed(command, Box::new(move |reply| remove(&place, id, reply))))
}

/// Removes the worktree once the core has let go of it; a reply that cannot say so says why.
pub(super) fn remove(place: &Place, agent: AgentId, reply: Reply) -> Reply {
    let Ok(mut body) = serde_json::from_slice::<Value>(reply.body.bytes()) else { return reply };
    if body["worktreeRemoved"] != true {
        return reply;
    }
    let Err(problem) = place.remove() else { return reply };
    log::warn!("agent {agent}: {problem}");
    body["worktreeRemoved"] = json!(false);
    body["note"] = json!(problem.error);
    Reply::json(reply.status, &body)
}

/// A merge, rebase or the like that somebody has begun has to be ended first.
fn check_at_rest(git: &Git, whose: &str) -> Result<(), Problem> {
    let folder = git.folders()?.0;
    let marks = [
        ("MERGE_HEAD", "merge"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
    ];
    let found = marks.iter().find(|(mark, _)| folder.join(mark).exists());
    let Some((_, what)) = found else { return Ok(()) };
    let text =
        format!("a {what} is under way in {whose}; end it (git {what} --continue or --abort) and retry");
    Err(Problem::new(409, "git_busy", text))
}

fn tip_of(place: &Place) -> Result<String, Problem> {
    place.tree.run(&["rev-parse", "HEAD"])
}

/// The agent's last commit, after what it has left uncommitted has become one: its own, on its branch. For a
/// rehearsal that commit is on no branch.
///
/// Errors: 409 `git_busy`.
pub(super) fn settled_tip(place: &Place, agent: &Agent, rehearses: bool) -> Result<String, Problem> {
    check_at_rest(&place.tree, &format!("the worktree {} of {}", place.path, agent.name))?;
    if place.uncommitted()?.is_empty() {
        return tip_of(place);
    }
    let tree = place.tree.as_person(&agent.name, &format!("{}@{AGENT_DOMAIN}", agent.id));
    let subject = format!("Work of {} that it has not committed itself", agent.name);
    if rehearses {
        let (_index, tree) = OwnIndex::of(&tree)?;
        succeeded(&add(&tree, &["--all"])?)?;
        let files = tree.write(&["write-tree"])?;
        return tree.write(&["commit-tree", "-p", "HEAD", "-m", &subject, &files]);
    }
    succeeded(&add(&tree, &["--all"])?)?;
    tree.write(&["commit", "--quiet", "--no-verify", "-m", &subject])?;
    tip_of(place)
}

/// A merge that is about to be done.
struct Plan<'a> {
    agent: &'a Agent,
    place: &'a Place,
    wish: &'a Wish,
    into: &'a str,
    tip: &'a str,
}

impl Plan<'_> {
    /// Merges, unless there is nothing to merge or this is a rehearsal: the new commit, and the files it
    /// changes.
    ///
    /// Errors: 409 `project_dirty`, `merge_conflict`, `merge_refused`; nothing is changed then.
    fn carry_out(&self) -> Result<(Option<String>, Vec<Change>), Problem> {
        let git = &self.place.project;
        let head = git.run(&["rev-parse", "HEAD"])?;
        if git.run(&["rev-list", "--count", &format!("{head}..{}", self.tip)])? == "0" {
            return Ok((None, Vec::new()));
        }
        let files = changes(git, &[&format!("{head}...{}", self.tip)], &[])?;
        self.check_room(&files)?;
        self.check_conflicts(&head)?;
        if self.wish.dry_run {
            return Ok((None, files));
        }
        self.merge()?;
        Ok((Some(git.run(&["rev-parse", "HEAD"])?), files))
    }

    /// No change of a person may be in the way: git would refuse, with fewer words.
    fn check_room(&self, files: &[Change]) -> Result<(), Problem> {
        let touches = |path: &str| {
            files.iter().any(|change| change.path == path || change.from.as_deref() == Some(path))
        };
        let dirty = changed_files(&self.place.project)?;
        let mut hindering: Vec<String> =
            dirty.iter().filter(|(path, _)| touches(path)).map(|(path, _)| path.clone()).collect();
        let (what, remedy) = if hindering.is_empty() {
            hindering.extend(dirty.into_iter().filter(|(_, staged)| *staged).map(|(path, _)| path));
            (
                "has staged changes, which would become part of the merge",
                "commit or unstage (git restore --staged)",
            )
        } else {
            ("has uncommitted changes in files that the merge changes", "commit or stash (git stash -u)")
        };
        if hindering.is_empty() {
            return Ok(());
        }
        hindering.dedup();
        let text = format!("the project {what}: {}; {remedy} them and retry", list(&hindering));
        Err(Problem::new(409, "project_dirty", text).with("files", hindering))
    }

    /// Merges in git's database alone, where a conflict harms nobody.
    fn check_conflicts(&self, head: &str) -> Result<(), Problem> {
        let args = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", head, self.tip];
        let said = self.place.project.try_run(&args)?;
        // Other codes come from a git that is too old for this; then the merge itself tells.
        if said.exit.code != Some(1) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let names = text.split('\0').skip(1).filter(|name| !name.is_empty()).map(Into::into).collect();
        Err(self.conflict(names))
    }

    fn conflict(&self, mut names: Vec<String>) -> Problem {
        sorted::up(&mut names);
        names.dedup();
        let (name, branch, into) = (&self.agent.name, &self.place.branch, self.into);
        let text = format!(
            "the work of {name} conflicts with {into} in {}; nothing was changed. Let it resolve them: svc resume \
             {name} \"merge {into} into your branch and resolve the conflicts\", or merge by hand: git merge {branch}",
            list(&names)
        );
        Problem::new(409, "merge_conflict", text).with("files", names).with("into", into)
    }

    fn merge(&self) -> Result<(), Problem> {
        let mut git = self.place.project.clone();
        if git.ask(&["config", "user.email"])?.is_none() {
            // Nobody has told git who works here.
            git = git.as_person("svc", "svc@localhost");
        }
        let (name, branch) = (&self.agent.name, &self.place.branch);
        let default = format!("Merge the work of {name} ({branch})");
        let message = self.wish.message.as_deref().unwrap_or(&default);
        let args =
            ["merge", "--no-ff", "--no-edit", "--no-verify", "--quiet", "--no-stat", "-m", message, self.tip];
        let said = git.try_write(&args);
        if said.as_ref().is_ok_and(Captured::is_success) {
            return Ok(());
        }
        let names = git.ask(&["diff", "--name-only", "--diff-filter=U", "-z"])?.unwrap_or_default();
        let names: Vec<String> = names.split('\0').filter(|name| !name.is_empty()).map(Into::into).collect();
        if git.commit("MERGE_HEAD")?.is_some() {
            git.write(&["merge", "--abort"])?;
        }
        if !names.is_empty() {
            return Err(self.conflict(names));
        }
        let text = format!("git does not merge, and nothing was changed: {}", words(&said?));
        Err(Problem::new(409, "merge_refused", text))
    }

    fn reply(&self, commit: Option<&str>, files: &[Change]) -> Value {
        let mut body = json!({
            "ok": true, "agentId": self.agent.id, "agentName": self.agent.name,
            "merged": commit.is_some(), "commit": commit, "branch": self.place.branch, "into": self.into,
            "files": files, "worktree": self.place.path, "worktreeRemoved": false,
        });
        if self.wish.dry_run {
            body["dryRun"] = json!(true);
        } else if commit.is_none() {
            body["note"] = json!(format!("{} holds all of {} already", self.into, self.place.branch));
        }
        body
    }
}
