//! The state folder `.svc`: making it, and reading what an earlier daemon wrote there.

use super::{ahead, clock};
use crate::agents::{self, Stored, StoredPrompt};
use crate::approvals;
use crate::context::triggers;
use crate::coordination;
use crate::core::ids::LineageId;
use crate::core::time::Time;
use crate::core::{Document, State};
use crate::credentials;
use crate::federation;
use crate::gateways;
use crate::integrations;
use crate::journalist;
use crate::market;
use crate::memory;
use crate::oversight::cleanup;
use crate::oversight::pm;
use crate::oversight::timeline;
use crate::schedules;
use crate::settings;
use crate::teams;
use crate::usage;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_sys::files::replace;
use svc_sys::regular;

/// Makes `.svc` with access for its owner alone, and keeps it out of version control.
///
/// Errors: a sentence that names the folder.
pub fn prepare(project: &Path) -> Result<PathBuf, String> {
    let folder = project.join(".svc");
    let named = |error: std::io::Error| format!("the state folder {}: {error}", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(named)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).map_err(named)?;
    let ignore = folder.join(".gitignore");
    if !ignore.exists() {
        replace(&ignore, b"*\n").map_err(named)?;
    }
    Ok(folder)
}

/// The state an earlier daemon has left: agents that were alive are `interrupted`.
///
/// Errors: a setting that breaks its rule, or a file written by a newer version.
pub fn load(folder: &Path, now: Time) -> Result<State, String> {
    ahead::recover(folder).map_err(|error| format!("what was written ahead of the state files: {error}"))?;
    let user = user_config_path().map_or_else(|| Ok(Map::new()), |path| read_object(&path))?;
    let project = read_object(&folder.join(Document::Config.path()))?;
    let reader = Reader { folder, now, set_aside: RefCell::default() };
    let settings = settings::State::new(user, project)
        .map_err(|problem| format!("the configuration is refused: {}", problem.error))?;
    let stored: Stored = reader.read(Document::Agents)?.unwrap_or_default();
    known_version(Document::Agents, stored.version, agents::STORED_VERSION)?;
    let mut trouble = None;
    let prompt = |lineage| match reader.read::<StoredPrompt>(Document::Prompt(lineage)) {
        Ok(Some(stored)) => stored.prompt,
        Ok(None) => Arc::from(""),
        Err(error) => {
            trouble = Some(error);
            Arc::from("")
        }
    };
    let agents = agents::State::restore(stored, prompt, now);
    trouble.map_or(Ok(()), Err)?;
    let mut state = State { agents: Arc::new(agents), settings: Arc::new(settings), ..State::default() };
    load_trust(&reader, now, &mut state)?;
    load_teams(&reader, now, &mut state)?;
    load_usage(&reader, now, &mut state)?;
    load_notes(&reader, now, &mut state)?;
    clock::restored(&mut state, now);
    Arc::make_mut(&mut state.health).set_aside = reader.set_aside.into_inner();
    Ok(state)
}

/// What people have decided and agents hold.
fn load_trust(reader: &Reader, now: Time, state: &mut State) -> Result<(), String> {
    let timers = Arc::make_mut(&mut state.timers);
    let stored: approvals::Stored = reader.read(Document::Approvals)?.unwrap_or_default();
    known_version(Document::Approvals, stored.version, approvals::STORED_VERSION)?;
    state.approvals = Arc::new(approvals::State::restore(stored, timers));
    let stored: integrations::Stored = reader.read(Document::Integrations)?.unwrap_or_default();
    known_version(Document::Integrations, stored.version, integrations::STORED_VERSION)?;
    state.integrations = Arc::new(integrations::State::restore(stored));
    let stored: credentials::Stored = reader.read(Document::Credentials)?.unwrap_or_default();
    known_version(Document::Credentials, stored.version, credentials::STORED_VERSION)?;
    state.credentials = Arc::new(credentials::State::restore(stored));
    let stored: coordination::Stored = reader.read(Document::Locks)?.unwrap_or_default();
    known_version(Document::Locks, stored.version, coordination::STORED_VERSION)?;
    state.coordination = Arc::new(coordination::State::restore(stored, &state.agents, timers));
    let stored: gateways::Stored = reader.read(Document::Gateways)?.unwrap_or_default();
    known_version(Document::Gateways, stored.version, gateways::STORED_VERSION)?;
    state.gateways = Arc::new(gateways::State::restore(stored, now, timers));
    Ok(())
}

/// Teams with their plans, and schedules with their next times.
fn load_teams(reader: &Reader, now: Time, state: &mut State) -> Result<(), String> {
    let stored: teams::Stored = reader.read(Document::Teams)?.unwrap_or_default();
    known_version(Document::Teams, stored.version, teams::STORED_VERSION)?;
    state.teams = Arc::new(teams::State::restore(stored, now));
    let stored: schedules::Stored = reader.read(Document::Schedules)?.unwrap_or_default();
    known_version(Document::Schedules, stored.version, schedules::STORED_VERSION)?;
    state.schedules = Arc::new(schedules::State::restore(stored));
    Ok(())
}

/// What agents have used.
fn load_usage(reader: &Reader, now: Time, state: &mut State) -> Result<(), String> {
    let stored: usage::Stored = reader.read(Document::Usage)?.unwrap_or_default();
    known_version(Document::Usage, stored.version, usage::STORED_VERSION)?;
    usage::restore(state, stored, now);
    let stored: triggers::Stored = reader.read(Document::Adaptive)?.unwrap_or_default();
    known_version(Document::Adaptive, stored.version, triggers::STORED_VERSION)?;
    state.triggers = Arc::new(triggers::State::restore(stored));
    let stored: timeline::Stored = reader.read(Document::Timeline)?.unwrap_or_default();
    known_version(Document::Timeline, stored.version, timeline::STORED_VERSION)?;
    state.timeline = Arc::new(timeline::State::restore(stored));
    state.agents.rotations().watch(Arc::make_mut(&mut state.timers));
    Ok(())
}

/// Refuses a document that a newer daemon has written.
fn known_version(document: Document, found: u32, known: u32) -> Result<(), String> {
    if found <= known {
        return Ok(());
    }
    Err(format!(
        "{} was written by a newer svc (format {found}, this one knows {known}); use that one",
        document.path()
    ))
}

/// What is remembered and written down.
fn load_notes(reader: &Reader, now: Time, state: &mut State) -> Result<(), String> {
    let memory = memory::State::restore(
        read_versioned(reader, Document::Constraints)?,
        read_versioned(reader, Document::Discoveries)?,
        read_versioned(reader, Document::HandoffChains)?,
        read_versioned(reader, Document::Specializations)?,
    );
    state.memory = Arc::new(memory.forget_gone(&state.agents));
    let stored: journalist::store::Stored = reader.read(Document::Journalist)?.unwrap_or_default();
    known_version(Document::Journalist, stored.version, journalist::store::VERSION)?;
    state.journalist = Arc::new(journalist::State::restore(stored));
    let stored: pm::Stored = reader.read(Document::PmReviews)?.unwrap_or_default();
    known_version(Document::PmReviews, stored.version, pm::VERSION)?;
    state.pm = Arc::new(pm::State::restore(stored));
    let stored: market::Stored = reader.read(Document::Skills)?.unwrap_or_default();
    known_version(Document::Skills, stored.version, market::STORED_VERSION)?;
    state.market = Arc::new(market::State::restore(stored));
    let stored: federation::Stored = reader.read(Document::Federation)?.unwrap_or_default();
    known_version(Document::Federation, stored.version, federation::STORED_VERSION)?;
    state.federation = Arc::new(federation::State::restore(stored));
    let stored: cleanup::Stored = reader.read(Document::Cleanup)?.unwrap_or_default();
    known_version(Document::Cleanup, stored.version(), cleanup::STORED_VERSION)?;
    cleanup::restore(state, stored, now);
    journalist::arm(state, now);
    Ok(())
}

/// A document of memory, or its default. Written by a newer version it is refused.
fn read_versioned<T: DeserializeOwned + Default>(reader: &Reader, document: Document) -> Result<T, String> {
    let Some(stored) = reader.read::<memory::store::Stored<T>>(document)? else {
        return Ok(T::default());
    };
    known_version(document, stored.version, memory::store::VERSION)?;
    Ok(stored.content)
}

/// `~/.config/svc/config.json`, or below `XDG_CONFIG_HOME`.
fn user_config_path() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("svc/config.json"))
}

fn read_object(path: &Path) -> Result<Map<String, Value>, String> {
    let bytes = match regular::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Map::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    // A person edits this file: it is refused with the place of the fault rather than set aside.
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("{} is not a JSON object: {error}", path.display()))
}

/// Reads the documents, and notes which of them it had to set aside.
struct Reader<'a> {
    folder: &'a Path,
    now: Time,
    set_aside: RefCell<Vec<String>>,
}

impl Reader<'_> {
    /// Reads a document. A broken one is set aside with a warning, so that the daemon starts all the same.
    fn read<T: DeserializeOwned>(&self, document: Document) -> Result<Option<T>, String> {
        let path = self.folder.join(document.path());
        let named = |error: std::io::Error| format!("{}: {error}", path.display());
        let bytes = match regular::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(error)),
        };
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let aside = path.with_extension(format!("json.corrupt-{}", self.now.0));
                fs::rename(&path, &aside).map_err(named)?;
                log::warn!("{} is broken ({error}); set aside as {}", path.display(), aside.display());
                let name = aside.file_name().unwrap_or_default().to_string_lossy();
                self.set_aside.borrow_mut().push(format!("{}, now {name}: {error}", document.path()));
                Ok(None)
            }
        }
    }
}

/// Tasks of agents whose records are gone: a daemon that ended before it removed them has left them.
pub fn orphaned_tasks(folder: &Path, state: &State) -> Vec<Document> {
    let Ok(entries) = fs::read_dir(folder.join("state/prompts")) else { return Vec::new() };
    let known: HashSet<LineageId> = state.agents.iter().map(|agent| agent.lineage_id).collect();
    let lineage = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
    let orphans = entries.flatten().filter_map(lineage).filter(|lineage| !known.contains(lineage));
    orphans.map(Document::Prompt).collect()
}
