//! Looks once which providers are installed, on a thread of its own, and tells the core.

use super::process::{Processes, Spec};
use crate::providers::registry::Detection;
use crate::providers::{Info, Program};
use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program that does not tell its version in this time counts as installed, version unknown.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
const VERSION_CHARS: usize = 60;

/// What is installed. Takes as long as the slowest program's `--version`.
pub fn detect(processes: &Processes, project: &Path) -> Vec<Detection> {
    std::thread::scope(|scope| {
        let looks: Vec<_> = crate::providers::all()
            .iter()
            .map(|provider| {
                let info = provider.info();
                scope.spawn(move || Detection {
                    provider: info.id,
                    version: version(processes, project, info),
                    has_key: !info.env_key.is_empty() && env::var_os(info.env_key).is_some(),
                })
            })
            .collect();
        looks.into_iter().filter_map(|look| look.join().ok()).collect()
    })
}

fn version(processes: &Processes, project: &Path, info: &Info) -> Option<String> {
    let Program::OnPath(program, args) = info.program else { return Some(crate::VERSION.to_owned()) };
    let path = find_on_path(program)?;
    let spec = Spec::tool(path, args, project);
    let told = processes.capture(&spec, b"", VERSION_TIMEOUT, 4096);
    let text =
        told.map(|captured| String::from_utf8_lossy(&captured.stdout).into_owned()).unwrap_or_default();
    let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let version = number.unwrap_or("unknown");
    Some(version.chars().take(VERSION_CHARS).collect())
}

/// Where `program` is found on the daemon's `PATH`.
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs =
        |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(runs)
}
