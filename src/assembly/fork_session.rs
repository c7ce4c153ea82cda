//! The session of a fork from before an earlier turn: the beginning of the record of the one that it is made
//! of, put where its program looks for the sessions of the new folder, under a name of its own.
//!
//! **Invariant:** the record that it is cut from is read and never written.

use super::host::Host;
use crate::agents::{Agent, Copied, variables};
use crate::api::Problem;
use crate::core::State;
use crate::core::time::Time;
use crate::providers::{self, Carried, Cut};
use crate::runners::worker_parcel::{Whose, open, put};
use std::io::Read;
use std::path::{Path, PathBuf};
use svc_sys::clock;

/// Sessions of an agent that are looked at, the newest: one that has changed them more often since that turn
/// is forked with a brief.
const MAX_SESSIONS: usize = 8;

/// What the new session begins with.
pub(super) struct Beginning {
    session: String,
    /// Of its file.
    name: String,
    cut: Cut,
}

impl Beginning {
    /// As the agent is told that it begins in it.
    pub(super) fn copied(&self) -> Copied {
        Copied { session: self.session.clone(), counted: self.cut.counted, is_own: true }
    }
}

/// What an agent's program remembered before a turn that has begun at `at`. `None` where no record tells.
pub(super) fn cut(host: &Host, state: &State, agent: &Agent, at: Time) -> Option<Beginning> {
    let provider = providers::by_id(&agent.provider).filter(|provider| provider.forks_elsewhere())?;
    if agent.runner.is_some() {
        // Its records are there.
        return None;
    }
    let folder = host.project.join(agent.worktree.as_deref().unwrap_or_default());
    agent.sessions().take(MAX_SESSIONS).find_map(|old| {
        let Carried::File(place) = carried(host, state, agent, old, &folder) else { return None };
        let (name, file, bytes) = open(&place).ok()?;
        let mut record = Vec::new();
        file.take(bytes).read_to_end(&mut record).ok()?;
        let cut = provider.cut(std::str::from_utf8(&record).ok()?, at)?;
        let session = fresh_name();
        let name = name.replace(old, &session);
        Some(Beginning { cut: cut.named(old, &session), session, name })
    })
}

/// Puts it where the program looks for it in this worktree; the file.
///
/// Errors: 500 `session_unwritten`.
pub(super) fn place(
    host: &Host,
    state: &State,
    agent: &Agent,
    begins: &Beginning,
    worktree: &Path,
) -> Result<PathBuf, Problem> {
    let refuse = |why: &str| {
        let text = format!("the session of the fork: {why}; \"fresh\": true forks without it");
        Problem::new(500, "session_unwritten", text)
    };
    let place = match carried(host, state, agent, &begins.session, worktree) {
        Carried::File(place) => place,
        Carried::Stays(why) => return Err(refuse(why)),
        Carried::Nothing => return Err(refuse("its program keeps none")),
    };
    let record = begins.cut.record.as_bytes();
    let bytes = u64::try_from(record.len()).unwrap_or(u64::MAX);
    put(&place, &begins.name, bytes, &mut &*record).map_err(|why| refuse(&why))?;
    Ok(place.root.join(place.below(&begins.name).unwrap_or_default()))
}

/// Where a session is kept that is held in the agent's folder of this tree.
fn carried(host: &Host, state: &State, agent: &Agent, session: &str, tree: &Path) -> Carried {
    // Joining nothing would add a slash.
    let folder = if agent.working_dir.is_empty() { tree.to_owned() } else { tree.join(&agent.working_dir) };
    let extra = variables(state, agent);
    let provider = agent.provider.as_str();
    Whose { provider, session, project: &host.project, folder: &folder, extra: &extra }.carried()
}

/// A random UUID, which every one of these programs takes for the name of a session.
fn fresh_name() -> String {
    uuid(clock::random(), clock::random())
}

/// Version 4 of RFC 9562.
fn uuid(high: u64, low: u64) -> String {
    let (high, low) = ((high & !0xf000) | 0x4000, (low & (u64::MAX >> 2)) | (1 << 63));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_random_uuid() {
        assert_eq!(uuid(0, 0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_ne!(fresh_name(), fresh_name());
    }
}
