//! The state folder `.svc`: making it, and reading what an earlier daemon wrote there.

use super::documents::{self, known_version};
use super::{ahead, clock};
use crate::agents::{self, Stored, StoredPrompt, worker};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Document, State};
use crate::settings::{self, Config};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_sys::files::{if_there, replace};
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

/// The state an earlier daemon has left: agents that were alive are `interrupted`, but for those whose
/// keepers have answered.
///
/// Errors: a setting that breaks its rule, or a file written by a newer version.
pub fn load(
    folder: &Path,
    kept: impl FnOnce(&Config) -> HashSet<AgentId>,
    now: Time,
) -> Result<State, String> {
    let user = worker::user_folder()
        .map_or_else(|| Ok(Map::new()), |folder| read_object(&folder.join("config.json")))?;
    load_with(folder, user, kept, now)
}

/// As [`load`], with this in place of the user's own configuration.
///
/// Errors: as [`load`].
pub fn load_with(
    folder: &Path,
    user: Map<String, Value>,
    kept: impl FnOnce(&Config) -> HashSet<AgentId>,
    now: Time,
) -> Result<State, String> {
    ahead::recover(folder).map_err(|error| format!("what was written ahead of the state files: {error}"))?;
    let project = read_object(&folder.join(Document::Config.path()))?;
    let reader = Reader { folder, now, set_aside: RefCell::default() };
    let settings = settings::State::new(user, project)
        .map_err(|problem| format!("the configuration is refused: {}", problem.error))?;
    let stored: Stored = reader.read(Document::Agents)?.unwrap_or_default();
    known_version(Document::Agents, stored.version, agents::STORED_VERSION)?;
    let mut trouble = None;
    let mut text = |document| match reader.read::<StoredPrompt>(document) {
        Ok(stored) => stored.map(|stored| stored.prompt),
        Err(error) => {
            trouble = Some(error);
            None
        }
    };
    let prompt = |lineage| text(Document::Prompt(lineage)).unwrap_or_default();
    let mut agents = agents::State::restore(stored, prompt, &kept(settings.config()), now);
    agents.restore_handoffs(|lineage| text(Document::Handoff(lineage)));
    trouble.map_or(Ok(()), Err)?;
    let mut state = State { agents: Arc::new(agents), settings: Arc::new(settings), ..State::default() };
    documents::restore(&reader, &mut state, now)?;
    state.agents.rotations().watch(Arc::make_mut(&mut state.timers));
    clock::restored(&mut state, now);
    Arc::make_mut(&mut state.health).set_aside = reader.set_aside.into_inner();
    Ok(state)
}

fn read_object(path: &Path) -> Result<Map<String, Value>, String> {
    let found = if_there(regular::read(path)).map_err(|error| format!("{}: {error}", path.display()))?;
    let Some(bytes) = found else { return Ok(Map::new()) };
    // A person edits this file: it is refused with the place of the fault rather than set aside.
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("{} is not a JSON object: {error}", path.display()))
}

/// Reads the documents, and notes which of them it had to set aside.
pub struct Reader<'a> {
    folder: &'a Path,
    now: Time,
    set_aside: RefCell<Vec<String>>,
}

impl Reader<'_> {
    /// Reads a document. A broken one is set aside with a warning, so that the daemon starts all the same.
    pub fn read<T: DeserializeOwned>(&self, document: Document) -> Result<Option<T>, String> {
        let path = self.folder.join(document.path());
        let named = |error: std::io::Error| format!("{}: {error}", path.display());
        let Some(bytes) = if_there(regular::read(&path)).map_err(named)? else { return Ok(None) };
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

/// Tasks and briefs of agents whose records are gone: a daemon that ended before it removed them has left
/// them.
pub fn orphaned_tasks(folder: &Path, state: &State) -> Vec<Document> {
    let known: HashSet<LineageId> = state.agents.iter().map(|agent| agent.lineage_id).collect();
    let lineage = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
    let orphans = |beneath: &str, document: fn(LineageId) -> Document| {
        let entries = fs::read_dir(folder.join(beneath)).into_iter().flatten();
        let lineages = entries.flatten().filter_map(lineage);
        lineages.filter(|lineage| !known.contains(lineage)).map(document).collect::<Vec<_>>()
    };
    [orphans("state/prompts", Document::Prompt), orphans("state/handoffs", Document::Handoff)].concat()
}
