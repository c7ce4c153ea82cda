//! The way of an agent to another machine, or from there: nobody works for it meanwhile.
//!
//! ```text
//! here      commit what is uncommitted ──▶ a bundle, the record of its session ──▶ there
//! there     the same; come into the branch and the folder here ──▶ here, or on to the next machine
//! ```
//!
//! **Invariant:** where it was everything stays as it is, but that work which no commit held is one commit of
//! its branch now. Each step may be done again.

use super::worker_fetch::take_home;
use super::worker_merge::{TURN, settled_tip};
use super::worker_worktree::Place;
use crate::agents::Agent;
use crate::agents::moving::{Order, Session, Trip};
use crate::agents::worker::{Far, own_program};
use crate::core::untrusted_line;
use crate::providers::{self, Carried, Program};
use crate::runners::Runner;
use crate::runners::dialogue::{Parcel, Record, is_branch};
use crate::runners::worker_parcel::{self, Told, Whose, dispatch, open, put};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use svc_base::folders::RUNS;
use svc_sys::process::Processes;

/// The record of a session on its way.
enum Bytes {
    File(File),
    Held(Cursor<Vec<u8>>),
}

impl Read for Bytes {
    fn read(&mut self, chunk: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.read(chunk),
            Self::Held(bytes) => bytes.read(chunk),
        }
    }
}

/// What of a session goes along.
enum Luggage {
    Nothing,
    Record(Record, Bytes),
    Stays(String),
}

/// Brings an agent's branch and session to where it is to go on.
///
/// Errors: a sentence; it can go on where it was.
pub fn carry(processes: &Arc<Processes>, project: &Path, order: &Order) -> Result<Trip, String> {
    let Order { agent, from, to, .. } = order;
    let here = Place::with(processes, project, agent).map_err(|problem| problem.error)?;
    let own = format!("svc/{}", here.path.rsplit('/').next().unwrap_or_default());
    if here.branch != own || !is_branch(&own) {
        return Err(format!(
            "its folder is on {} and not on its branch {own}: git -C {} switch {own}",
            untrusted_line(&here.branch),
            here.path
        ));
    }
    let uncommitted = match from {
        Some(runner) => {
            let fetched =
                take_home(processes, &here, runner, agent, true).map_err(|problem| problem.error)?;
            if fetched.uncommitted {
                return Err(format!("not all of its work on {} could be committed", runner.name));
            }
            None
        }
        None => Some(settle(&here, agent)?),
    };
    let luggage = pack(processes, project, order)?;
    let session = match &luggage {
        Luggage::Stays(why) => Session::Stays(why.clone()),
        _ if agent.session_id.is_none() => Session::None,
        _ => Session::Goes,
    };
    match to {
        Some(far) => send(processes, project, order, far, luggage)?,
        None => unpack(project, order, luggage)?,
    }
    Ok(Trip { session, committed: uncommitted.unwrap_or(false) })
}

/// Whether there was something to be committed.
fn settle(here: &Place, agent: &Agent) -> Result<bool, String> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let settled = || {
        let before = here.tree.run(&["rev-parse", "HEAD"])?;
        let tip = settled_tip(here, agent, false)?;
        Ok(before != tip)
    };
    settled().map_err(|problem: crate::api::Problem| problem.error)
}

/// Takes up the record of its session where it was.
fn pack(processes: &Processes, project: &Path, order: &Order) -> Result<Luggage, String> {
    let Order { agent, from, .. } = order;
    let Some(session) = agent.session_id.clone() else { return Ok(Luggage::Nothing) };
    let place = match whose(project, order, &session).carried() {
        Carried::Nothing => return Ok(Luggage::Nothing),
        Carried::Stays(why) => return Ok(Luggage::Stays(why.to_owned())),
        Carried::File(place) => place,
    };
    if let Some(runner) = from {
        let work = agent.lineage_id.to_string();
        let asked = (agent.provider.as_str(), session.as_str());
        return Ok(match worker_parcel::bring(processes, runner, &work, asked, &agent.working_dir)? {
            Told::Stays(why) => Luggage::Stays(why),
            Told::Came(name, held) => {
                if place.below(&name).is_none() {
                    return Err(format!("{} sends what is not the record of its session", runner.name));
                }
                let bytes = u64::try_from(held.len()).unwrap_or(u64::MAX);
                Luggage::Record(Record { session, name, bytes }, Bytes::Held(Cursor::new(held)))
            }
        });
    }
    Ok(match open(&place) {
        Ok((name, file, bytes)) => Luggage::Record(Record { session, name, bytes }, Bytes::File(file)),
        Err(why) => Luggage::Stays(why),
    })
}

fn whose<'a>(project: &'a Path, order: &'a Order, session: &'a str) -> Whose<'a> {
    Whose { provider: &order.agent.provider, session, project, folder: &order.folder, extra: &order.extra }
}

fn unpack(project: &Path, order: &Order, luggage: Luggage) -> Result<(), String> {
    let Luggage::Record(record, mut bytes) = luggage else { return Ok(()) };
    match whose(project, order, &record.session).carried() {
        Carried::File(place) => put(&place, &record.name, record.bytes, &mut bytes),
        _ => Ok(()),
    }
}

fn send(
    processes: &Processes,
    project: &Path,
    order: &Order,
    far: &Far,
    luggage: Luggage,
) -> Result<(), String> {
    let agent = &order.agent;
    let (session, mut bytes) = match luggage {
        Luggage::Record(record, bytes) => (Some(record), Some(bytes)),
        _ => (None, None),
    };
    let program = match providers::info_of(&agent.provider).program {
        Program::OnPath(program, _) => Some(program.to_owned()),
        Program::Itself => None,
    };
    let program = agent.command.first().cloned().or(program);
    let plan = far
        .parcel(processes, project, agent, program, Parcel { session })
        .map_err(|why| format!("{}: {why}", name_of(&far.runner)))?;
    // No room shows it.
    let folder = project.join(RUNS).join(format!("move-{}", agent.lineage_id));
    let bytes = bytes.as_mut().map(|bytes| bytes as &mut dyn Read);
    dispatch(processes, &folder, own_program(), &plan, bytes)
        .map_err(|why| format!("{}: {why}", name_of(&far.runner)))
}

fn name_of(runner: &Runner) -> &str {
    &runner.name
}
