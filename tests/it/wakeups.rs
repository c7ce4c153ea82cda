//! A daemon of which nobody wants anything sleeps, also beside agents that wait: how often its threads wake.
#![cfg(target_os = "linux")]

use crate::support::daemon::{Daemon, OPEN};
use crate::support::folder::Folder;
use crate::support::wait::{wait_for, wait_within};
use serde_json::json;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a start has to do is over by then, and so many times of rest have passed.
const PATIENCE: Duration = Duration::from_secs(120);
/// So long nothing is to happen.
const REST: Duration = Duration::from_secs(8);
const AGENTS: usize = 6;

/// How often the threads of a process have gone to sleep so far: something has woken them each time.
fn sleeps(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let told = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    told.filter_map(count).sum()
}

/// Waits until the daemon has rested: has woken no more than so many times. One that wakes regularly never
/// has.
fn rests(daemon: &Daemon, most: u64) {
    let mut since = (Instant::now(), sleeps(daemon.pid()));
    wait_within(PATIENCE, "a daemon that sleeps", || {
        let now = sleeps(daemon.pid());
        if now.abs_diff(since.1) > most {
            since = (Instant::now(), now);
        }
        (since.0.elapsed() >= REST).then_some(())
    });
}

#[test]
fn a_daemon_without_agents_sleeps_and_wakes_less_than_once_a_second_beside_some_that_wait() {
    let folder = Folder::new("wakeups");
    folder.write(".svc/config.json", OPEN);
    let steps = json!({"steps": [{"ask": "and now?"}, {"answer": "{{message}}"}]});
    folder.write(".svc/rehearsals/waits.json", &steps.to_string());
    let daemon = Daemon::start_in(Arc::new(folder), &[]);
    rests(&daemon, 0);
    for _ in 0..AGENTS {
        let id = daemon.spawn("waits");
        wait_for("its question", || {
            daemon.log_of(&id).iter().any(|line| line["text"] == "and now?").then_some(())
        });
    }
    rests(&daemon, REST.as_secs());
    assert_eq!(daemon.get("/api/agents").as_array().map(Vec::len), Some(AGENTS));
    assert_eq!(daemon.stop(), Some(0));
}
