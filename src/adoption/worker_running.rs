//! Programs that run and that no agent has started: who may have a session open.

use crate::core::time::Time;
use crate::providers::outside::Session;
use crate::providers::{Info, Program};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use svc_sys::process::{Origin, identity_of, origin};

/// Ticks of a second in `/proc`, on every Linux.
const TICKS: u64 = 100;

/// One of them.
pub struct Running {
    pid: u32,
    /// The words of its command line.
    words: Vec<String>,
    folder: PathBuf,
    began: Time,
}

/// All that can be seen: those of other users cannot.
pub fn all(project: &Path) -> Vec<Running> {
    let Some(boot) = boot() else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| look(pid, boot, project)).collect()
}

fn look(pid: u32, boot: u64, project: &Path) -> Option<Running> {
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = String::from_utf8_lossy(&line).split('\0').map(str::to_owned).collect();
    let began = Time(boot + identity_of(pid)?.start_ticks * 1000 / TICKS);
    let is_outside = matches!(origin(pid, project), Origin::Outside);
    is_outside.then_some(Running { pid, words, folder, began })
}

/// When the machine was started, in milliseconds since 1970.
fn boot() -> Option<u64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let boot = now.checked_sub(std::time::Duration::try_from_secs_f64(seconds).ok()?)?;
    u64::try_from(boot.as_millis()).ok()
}

/// Who may have a session open: it is named on a command line, or a program of its kind stands in its folder
/// and has been there since before it was written last.
pub fn holder(info: &Info, session: &Session, running: &[Running]) -> Option<u32> {
    let Program::OnPath(name, _) = info.program else { return None };
    let is_program = |one: &&Running| {
        let named = |word: &String| Path::new(word).file_name().is_some_and(|file| file == name);
        one.words.iter().take(2).any(named)
    };
    let has_it = |one: &&Running| {
        let writes = session.changed.is_some_and(|changed| one.began <= changed);
        one.words.contains(&session.id) || one.folder == Path::new(&session.folder) && writes
    };
    running.iter().filter(is_program).find(has_it).map(|one| one.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_a_session_open_is_told_by_its_line_or_its_folder_and_time() {
        let info = crate::providers::info_of("claude-code");
        let session =
            Session { id: "s-1".into(), folder: "/p".into(), changed: Some(Time(100)), ..Session::default() };
        let one = |line: &str, folder: &str, began: u64| Running {
            pid: 7,
            words: line.split(' ').map(str::to_owned).collect(),
            folder: folder.into(),
            began: Time(began),
        };
        for (running, wanted) in [
            (one("/usr/bin/claude", "/p", 50), true),
            (one("node /x/bin/claude -c", "/p", 100), true),
            (one("claude --resume s-1", "/elsewhere", 500), true),
            (one("claude", "/p", 101), false),
            (one("claude", "/p/below", 50), false),
            (one("vim notes on claude", "/p", 50), false),
            (one("codex resume s-1", "/p", 50), false),
        ] {
            let found = holder(info, &session, std::slice::from_ref(&running));
            assert_eq!(found.is_some(), wanted, "{:?} in {:?}", running.words, running.folder);
        }
    }
}
