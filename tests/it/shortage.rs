//! The daemon without a file descriptor left: who asks is told so, and what must be stored still is.
#![cfg(target_os = "linux")]

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::json;
use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

/// The numbers of a process's descriptors; `None` where who runs this may not see them: the daemon hides from
/// programs of its own user.
fn descriptors(pid: u32) -> Option<Vec<u64>> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    Some(folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Sets how many descriptors a process may have; what it could have before.
#[allow(unsafe_code, reason = "prlimit of another process, which std does not offer")]
fn limit_descriptors(pid: u32, count: u64) -> u64 {
    let pid = libc::pid_t::try_from(pid).unwrap();
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structures outlive the calls, which read and write nothing else.
    let failed = unsafe {
        let asked = libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before);
        let limit = libc::rlimit { rlim_cur: count, rlim_max: before.rlim_max };
        asked | libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    before.rlim_cur
}

#[test]
fn without_a_descriptor_a_spawn_is_refused_as_our_fault_and_a_change_is_stored() {
    let folder = Arc::new(Folder::new("shortage"));
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let address = daemon.url.trim_start_matches("http://").to_owned();
    fs::create_dir_all(daemon.project.join(".svc/rehearsals")).unwrap();
    fs::write(daemon.project.join(".svc/rehearsals/own.json"), r#"{"steps": [{"say": "done"}]}"#).unwrap();
    let wish = json!({"role": "dev", "provider": "script", "model": "own", "prompt": "x"});
    // This connection stays, and who holds it is known from here on.
    let first = daemon.post("/api/agents", &wish);
    daemon.wait_state(first["id"].as_str().unwrap(), &["completed"]);

    let Some(open) = descriptors(daemon.pid()) else {
        eprintln!("skipped: only root sees the daemon's descriptors, which this counts");
        return;
    };
    let highest = open.into_iter().max().unwrap();
    let before = limit_descriptors(daemon.pid(), highest + 1);
    let mut clients = Vec::new();
    wait_for("all descriptors to be taken", || {
        clients.push(TcpStream::connect(&address).unwrap());
        (descriptors(daemon.pid()).unwrap().len() as u64 == highest + 1).then_some(())
    });
    let (status, problem) = daemon.send("POST", "/api/agents", &wish);
    assert_eq!((status, &problem["code"]), (503, &json!("out_of_files")), "{problem}");
    assert!(problem["error"].as_str().unwrap().contains("then retry"), "{problem}");
    let (status, config) = daemon.send("PATCH", "/api/config", &json!({"maxAgents": 7}));
    assert_eq!(status, 200, "a change has a descriptor kept for it: {config}");
    let stored = fs::read_to_string(daemon.project.join(".svc/config.json")).unwrap();
    assert!(stored.contains("\"maxAgents\": 7") || stored.contains("\"maxAgents\":7"), "{stored}");

    limit_descriptors(daemon.pid(), before);
    drop(clients);
    wait_for("descriptors to be free", || (daemon.send("POST", "/api/agents", &wish).0 == 201).then_some(()));
}
