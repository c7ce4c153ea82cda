//! The team endpoints that do I/O: they look at the folders that agents are to work in.

use super::plan::Recommendation;
use super::{Command, api};
use crate::agents::worker_api::{look_at, make_folder};
use crate::api::{Problem, Validator};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::isolation::worker_worktree::prepare;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `POST /api/teams/:name/load`.
pub fn load(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let target = api::target(ask);
    let team = Arc::clone(ask.state.teams.find(&target)?);
    let mut prepared = BTreeMap::new();
    for saved in &team.agents {
        let name = saved.name.clone().unwrap_or_default();
        if ask.state.agents.live().any(|agent| agent.name == name) {
            continue;
        }
        let mut request = saved.clone();
        if request.working_dir.is_empty() {
            request.working_dir.clone_from(&team.working_dir);
        }
        let looked = if request.runner.is_some() {
            // Its run makes the worktree, once it is known where it works.
            look_at(host, ask, &request)
        } else {
            prepare(host, ask, &mut request)
        };
        prepared.insert(name, looked.map(|()| request.worktree).map_err(|problem| problem.error));
    }
    Ok(Answer::Command(Command::Load { target, prepared }.into()))
}

/// `POST /api/recommended-team/launch`: folders that are planned but not there are made.
pub fn launch(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let launch = api::parse_launch(ask)?;
    let recommendation = ask.state.teams.planning().recommendation().filter(|_| launch.agents.is_none());
    let project_dir =
        recommendation.map_or(&launch.project_dir, |found: &Arc<Recommendation>| &found.project_dir);
    let planned = recommendation.map(|found| &found.agents).or(launch.agents.as_ref());
    let mut validator = Validator::default();
    let folders = planned.into_iter().flatten().map(|planned| planned.agent.working_dir.as_str());
    for folder in folders.chain(project_dir.as_deref()).filter(|folder| !folder.is_empty()) {
        if let Err(fault) = make_folder(&host.project, folder) {
            validator.fail("workingDir", format!("workingDir {folder:?} {fault}"));
        }
    }
    validator.finish()?;
    Ok(Answer::Command(Command::Launch(Box::new(launch)).into()))
}
