//! Looking at the processes of this machine.

use std::collections::BTreeSet;
use std::fs;

/// Living processes (no zombies) whose environment has exactly this `NAME=value`.
pub fn with_variable(variable: &str) -> Vec<u32> {
    let has = |pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    all().into_iter().filter(|pid| has(*pid) && !is_zombie(*pid)).collect()
}

/// The values that living processes (no zombies) have for a variable: one look for many questions.
pub fn values_of(name: &str) -> BTreeSet<String> {
    let value = |pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).find_map(|entry| {
            let entry = String::from_utf8_lossy(entry);
            Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned())
        })
    };
    all().into_iter().filter(|pid| !is_zombie(*pid)).filter_map(value).collect()
}

/// Living processes that descend from an agent of this project.
pub fn of_project(project: &std::path::Path) -> Vec<u32> {
    with_variable(&format!("SVC_PROJECT_DIR={}", project.display()))
}

/// Daemons of this project that were started by name, as `svc restart` does: nobody waits for them.
pub fn daemons_of(project: &std::path::Path) -> Vec<u32> {
    let is_its = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let named = |pair: &[&[u8]]| pair == [b"--project", project.as_os_str().as_encoded_bytes()];
        words.contains(&&b"start"[..]) && words.windows(2).any(named)
    };
    all().into_iter().filter(is_its).collect()
}

/// The processes that keep agents of this project.
pub fn keepers_of(project: &std::path::Path) -> Vec<u32> {
    let Ok(runs) = fs::read_dir(project.join(".svc/run")) else { return Vec::new() };
    let pid = |run: fs::DirEntry| {
        let text = fs::read_to_string(run.path().join("keeper.json")).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).ok()?["pid"].as_u64()?.try_into().ok()
    };
    runs.flatten().filter_map(pid).collect()
}

fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']) || rest.is_empty())
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0 kB");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}
