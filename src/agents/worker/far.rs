//! A run on another machine: the program of its keeper here is the line to the keeper there.

use super::checkpoint::RunFolder;
use super::env::own_program;
use super::{Inner, RunSpec, millis, random};
use crate::agents::Agent;
use crate::agents::report::RunReport;
use crate::providers::environment::Extra;
use crate::providers::{Launch, LaunchProgram, LaunchRequest};
use crate::runners::dialogue::{LENT, Opening, Parcel, Plan};
use crate::runners::kind::Spot;
use crate::runners::worker_host::{line_variables, own_hash};
use crate::runners::worker_place::{self, Ready};
use crate::runners::{Runner, worker_line, worker_master};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use svc_sys::process::{Processes, Spec};

/// The keeper there goes on without a daemon for at least this long: a line may be cut for a while.
pub const ORPHAN_LEAST: Duration = Duration::from_secs(15 * 60);
/// Beyond the time that ending takes there: the order has to get there, and its end back.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(15);

/// Of the variables that svc adds only these go there: none of a key, nor of a daemon that is not reached
/// from there.
const SENT: [&str; 3] = ["SVC_AGENT_ID", "SVC_AGENT_NAME", "SVC_AGENT_ROLE"];

/// Where a run is to be, when that is not here.
#[derive(Debug, Clone)]
pub struct Far {
    pub runner: Arc<Runner>,
    /// SHA-256 of the program that was last seen there.
    pub program: String,
    /// The name of the agent's folder there, see [`crate::runners::dialogue`].
    pub work: String,
    /// What it works on, and where below that.
    pub tree: PathBuf,
    pub folder: String,
    /// The branch that the tree begins with.
    pub branch: String,
    /// Whether that may have to be made first.
    pub is_new: bool,
    /// Variables of granted keys: these go along, of all that the vault has given.
    pub lent: Vec<String>,
}

impl Far {
    /// The request as that machine is to see it.
    pub(super) fn request(&self, request: &LaunchRequest) -> LaunchRequest {
        LaunchRequest { project_dir: self.tree.clone(), ..request.clone() }
    }

    /// The mark of the line's own words, and what it is to do, as that is written down for it.
    ///
    /// Errors: a sentence.
    pub(super) fn line(
        &self,
        inner: &Inner,
        spec: &RunSpec,
        launch: &Launch,
    ) -> Result<(String, Vec<u8>), String> {
        let name = &self.runner.name;
        if self.program != own_hash()? {
            return Err(format!(
                "this svc is another than the one that was put on runner {name}: svc runner check {name} puts it \
                 there"
            ));
        }
        let mark = format!("svc-line {} ", random());
        let plan = self.plan(inner, spec, launch, mark.clone())?;
        let text = serde_json::to_vec(&plan).map_err(|error| error.to_string())?;
        Ok((mark, text))
    }

    /// The process of the line.
    pub(super) fn process(&self, spec: &RunSpec, folder: &RunFolder) -> Spec {
        Spec {
            env: line_variables().into_iter().chain(self.lent_to(spec)).collect(),
            args: vec![worker_line::SUB_COMMAND.into(), folder.path().into()],
            ..Spec::tool(own_program(), &[], &spec.request.project_dir)
        }
    }

    /// What the line passes on of the vault, which stands in no plan.
    fn lent_to(&self, spec: &RunSpec) -> Vec<(OsString, OsString)> {
        let is_lent = |name: &String| self.lent.contains(name);
        let lent = spec.env_extra.iter().filter(|(name, _)| is_lent(name));
        lent.map(|(name, value)| (format!("{LENT}{name}").into(), value.into())).collect()
    }

    /// What brings an agent there that moves: its branch, and the record of its session. `program` is the one
    /// that has to be there.
    pub fn parcel(
        &self,
        processes: &Processes,
        project: &Path,
        agent: &Agent,
        program: Option<String>,
        parcel: Parcel,
    ) -> Result<Plan, String> {
        // Nobody waits in a line with what is carried: its place has to stand soon.
        let spot = worker_place::have_soon(processes, &self.runner)?;
        let opening = Opening {
            provider: agent.provider.clone(),
            program,
            extra: Extra::clone(&agent.env),
            folder: self.folder.clone(),
            agent: agent.id,
            branch: self.branch.clone(),
            ..Opening::default()
        };
        let plan = self.plan_of(processes, project, spot, opening);
        Ok(Plan { direct: None, parcel: Some(parcel), ..plan })
    }

    /// The plan of a call to a place that is there, through the connection that stands, if one does.
    fn plan_of(&self, processes: &Processes, project: &Path, spot: Spot, opening: Opening) -> Plan {
        let facts = self.runner.checked.as_ref().and_then(|checked| checked.facts.as_ref());
        let home = facts.map_or("", |facts| &facts.home);
        let (socket, direct) = worker_master::standing(processes, project, &self.runner, &spot, home).unzip();
        Plan {
            socket,
            direct: direct.flatten(),
            spot,
            waits: false,
            program: self.program.clone(),
            project: project.to_path_buf(),
            mark: String::new(),
            place: self.runner.folder.clone(),
            work: self.work.clone(),
            run: random(),
            opening,
            parcel: None,
        }
    }

    /// What the line is told, once its place is there.
    fn plan(&self, inner: &Inner, spec: &RunSpec, launch: &Launch, mark: String) -> Result<Plan, String> {
        let Ready { spot, waits, copied } = worker_place::ready(&inner.processes, &self.runner)?;
        if copied {
            (inner.report)(spec.agent, RunReport::Copied { program: self.program.clone() });
        }
        let sent = spec.env_extra.iter().filter(|(name, _)| SENT.contains(&name.as_str()));
        let opening = Opening {
            provider: spec.provider.info().id.to_owned(),
            program: match &launch.program {
                LaunchProgram::Named(name) => Some(name.clone()),
                LaunchProgram::Itself => None,
            },
            args: launch.args.clone(),
            env: launch.env.clone(),
            own_env: sent.cloned().collect(),
            extra: spec.request.extra_env.clone(),
            folder: self.folder.clone(),
            stdin: launch.stdin,
            agent: spec.agent,
            token: random(),
            stop_grace_ms: millis(inner.limits.stop_grace),
            orphan_ms: millis(spec.orphan.max(ORPHAN_LEAST)),
            nice: spec.nice,
            ceiling: spec.ceiling,
            branch: self.branch.clone(),
            tip: String::new(),
        };
        let plan = self.plan_of(&inner.processes, &spec.request.project_dir, spot, opening);
        Ok(Plan { waits, mark, ..plan })
    }
}
