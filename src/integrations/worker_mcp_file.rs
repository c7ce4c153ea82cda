//! `.mcp.json` in the working directories of running agents: our entry is there while at least one of them
//! runs.

use super::instructions::is_native;
use super::mcp_file::{Change, add, remove};
use crate::providers::LaunchRequest;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use svc_sys::files::replace;
use svc_sys::process::Prepare;
use svc_sys::threads::lock;

/// Bytes of a file that is looked at; a larger one is left alone.
const MAX_BYTES: u64 = 4 << 20;

/// How many running agents hold the entry of each file. One daemon per process, so one table.
static HELD: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

/// Keeps our entry in a file until it is dropped.
#[derive(Debug)]
pub struct Held(PathBuf);

/// What a run does before its program starts; nothing where the program reads no such file, or has no
/// integration attached. Taken out again when the run is over.
pub fn prepare(provider: &str, request: &LaunchRequest) -> Option<Prepare> {
    prepare_again(provider, request.has_integrations, &request.working_dir)
}

/// As [`prepare`], for a program that an earlier daemon has started.
pub fn prepare_again(provider: &str, has_integrations: bool, working_dir: &Path) -> Option<Prepare> {
    if !has_integrations || !is_native(provider) {
        return None;
    }
    let folder = working_dir.to_path_buf();
    Some(Box::new(move || Box::new(hold(&folder))))
}

/// Puts our entry into the `.mcp.json` of a working directory. A file that cannot be used is left as it is,
/// with a warning: the agent then has no tools of integrations by itself, but its instructions tell the
/// endpoint.
pub fn hold(working_dir: &Path) -> Option<Held> {
    let path = working_dir.join(".mcp.json");
    let mut table = lock(&HELD);
    // Also when others hold it: somebody may have replaced the file meanwhile.
    match change(&path, |text, program| add(text, program).map_err(|why| format!("{why:?}"))) {
        Ok(()) => {
            *table.entry(path.clone()).or_default() += 1;
            Some(Held(path))
        }
        Err(error) => {
            log::warn!("{} is left as it is: {error}", path.display());
            None
        }
    }
}

/// Takes our entry out of the `.mcp.json` of a working directory whose agents are gone with an earlier
/// daemon.
pub fn clean(working_dir: &Path) {
    let path = working_dir.join(".mcp.json");
    if path.is_file() {
        lock(&HELD).insert(path.clone(), 1);
        drop(Held(path));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = lock(&HELD);
        let Some(count) = table.get_mut(&self.0) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        table.remove(&self.0);
        let take_out =
            |text: Option<&str>, program: &str| Ok(text.map_or(Change::Keep, |text| remove(text, program)));
        if let Err(error) = change(&self.0, take_out) {
            log::warn!("our entry stays in {}: {error}", self.0.display());
        }
    }
}

fn change(
    path: &Path,
    decide: impl FnOnce(Option<&str>, &str) -> Result<Change, String>,
) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let program = std::env::current_exe().map_err(failed)?;
    let program = program.to_str().ok_or("the path of this program is not UTF-8")?;
    let text = match fs::symlink_metadata(path) {
        // A link may lead out of the project.
        Ok(meta) if !meta.is_file() => return Err("it is not a plain file".into()),
        Ok(meta) if meta.len() > MAX_BYTES => return Err("it is too large".into()),
        Ok(_) => Some(fs::read_to_string(path).map_err(failed)?),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    match decide(text.as_deref(), program)? {
        Change::Keep => Ok(()),
        Change::Delete => fs::remove_file(path).map_err(failed),
        Change::Write(new) => {
            let mode = text.is_some().then(|| fs::metadata(path).map(|meta| meta.permissions()));
            replace(path, new.as_bytes()).map_err(failed)?;
            match mode {
                Some(permissions) => {
                    permissions.and_then(|mode| fs::set_permissions(path, mode)).map_err(failed)
                }
                None => Ok(()),
            }
        }
    }
}
