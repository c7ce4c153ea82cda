//! The daemon without a descriptor or a thread left: who asks is told so, and what must be stored still is;
//! and what it keeps from other programs of its user.
#![cfg(target_os = "linux")]

use crate::support::daemon::{Daemon, as_user, is_root, new_user};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::json;
use std::fs;
use std::net::TcpStream;
use std::process::Stdio;
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

/// Clients that wait to be accepted, and changes that are stored all the same: more than are kept for them.
const WAITING: usize = 64;
/// Clients that connect between two looks whether all descriptors are taken.
const AT_ONCE: usize = 8;
const CHANGES: u32 = 40;

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
    let fill = |clients: &mut Vec<TcpStream>| {
        wait_for("all descriptors to be taken", || {
            // Several, for one that asks nothing is let go of after some seconds.
            clients.extend((0..AT_ONCE).map(|_| TcpStream::connect(&address).unwrap()));
            (descriptors(daemon.pid()).unwrap().len() as u64 == highest + 1).then_some(())
        });
    };
    // What is still at work for the first agent may give one back meanwhile, and the spawn take it.
    let (status, problem) = wait_for("a spawn without a descriptor", || {
        fill(&mut clients);
        let (status, told) = daemon.send("POST", "/api/agents", &wish);
        if status == 201 {
            daemon.wait_state(told["id"].as_str().unwrap(), &["completed", "crashed"]);
        }
        (status != 201).then_some((status, told))
    });
    assert_eq!((status, &problem["code"]), (503, &json!("out_of_files")), "{problem}");
    assert!(problem["error"].as_str().unwrap().contains("then retry"), "{problem}");

    // Whoever waits to be accepted takes each descriptor that is free for a moment.
    clients.extend((0..WAITING).map(|_| TcpStream::connect(&address).unwrap()));
    for most in 1..=CHANGES {
        let (status, config) = daemon.send("PATCH", "/api/config", &json!({"maxAgents": most}));
        assert_eq!(status, 200, "change {most} has a descriptor kept for it: {config}");
        let stored = fs::read_to_string(daemon.project.join(".svc/config.json")).unwrap();
        let stored: serde_json::Value = serde_json::from_str(&stored).unwrap();
        assert_eq!(stored["maxAgents"], most, "{stored}");
    }

    limit_descriptors(daemon.pid(), before);
    drop(clients);
    wait_for("descriptors to be free", || (daemon.send("POST", "/api/agents", &wish).0 == 201).then_some(()));
}

const ENOUGH_THREADS: u64 = 1_000;

/// How many threads each of a user's processes has.
fn threads_of(user: u32) -> Vec<u64> {
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let told = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let theirs = told.filter(|text| field(text, "Uid:") == Some(u64::from(user)));
    theirs.filter_map(|text| field(&text, "Threads:")).collect()
}

/// How many threads the daemon has once nothing that it has started is left: a keeper stays until its run
/// is on disk, and would leave its place to what this forbids.
fn threads_when_alone(user: u32) -> u64 {
    wait_for("the daemon to be alone", || match threads_of(user)[..] {
        [daemon] => Some(daemon),
        _ => None,
    })
}

/// Sets how many threads a user's process may have; by that user, for not every root may.
fn limit_threads(user: u32, pid: u32, count: u64) {
    let mut prlimit = as_user(user, "prlimit");
    let done = prlimit.args(["--pid", &pid.to_string(), &format!("--nproc={count}:")]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Whatever of a start the limit hits, the agent is told as what it is: it has worked, or it never started.
#[test]
fn an_agent_for_which_there_is_no_thread_has_not_completed() {
    if !is_root() {
        eprintln!("skipped: only root can give the daemon a user of its own, whose threads this counts");
        return;
    }
    let (user, folder) = (new_user(), Arc::new(Folder::new("threads")));
    folder.write(".svc/rehearsals/own.json", r#"{"steps": [{"say": "I was here"}]}"#);
    let token = "a-token-that-proves-a-person";
    let daemon =
        Daemon::start_as(user, Arc::clone(&folder), &[("SVC_OPERATOR_TOKEN", token)]).with_token(token);
    let wish = json!({"role": "dev", "provider": "script", "model": "own", "prompt": "x"});
    let first = daemon.post("/api/agents", &wish);
    daemon.wait_state(first["id"].as_str().unwrap(), &["completed"]);

    // A thread of the daemon's own may have been counted that ends: from below, the first start is sure to
    // meet the limit.
    let lowest = threads_when_alone(user) - 4;
    let mut faults = Vec::new();
    for more in 0..28 {
        limit_threads(user, daemon.pid(), lowest + more);
        let (status, told) = daemon.send("POST", "/api/agents", &wish);
        assert_eq!(status, 201, "{told}");
        let id = told["id"].as_str().unwrap();
        let ended = daemon.wait_state(id, &["completed", "crashed"]);
        limit_threads(user, daemon.pid(), ENOUGH_THREADS);
        let log = daemon.get(&format!("/api/agents/{id}/log")).to_string();
        let reason = ended["statusReason"].as_str().unwrap().to_owned();
        if ended["state"] == "completed" {
            assert!(log.contains("I was here"), "with {more} threads it did nothing: {ended}");
        } else {
            faults.push(format!("{more}: {reason}"));
        }
        assert_eq!(daemon.send("DELETE", &format!("/api/agents/{id}"), &json!(null)).0, 200);
    }
    let has = |words: &str| faults.iter().any(|fault| fault.contains(words));
    assert!(has("cannot start a thread for agent"), "{faults:#?}");
}

/// The daemon's memory holds the keys of all agents; programs of its own user may not read it.
#[test]
fn nobody_of_its_user_reads_the_daemons_memory() {
    let (user, folder) = (new_user(), Arc::new(Folder::new("memory")));
    let daemon = Daemon::start_as(user, folder, &[]);
    let read = |pid: u32, what: &str| {
        let path = format!("/proc/{pid}/{what}");
        let dd = as_user(user, "dd").args([&format!("if={path}"), "count=1", "status=none"]).output();
        dd.unwrap().status.success()
    };
    let mut other = as_user(user, "sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let open =
        ["environ", "maps", "auxv"].map(|what| (what, read(other.id(), what), read(daemon.pid(), what)));
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(
        open,
        ["environ", "maps", "auxv"].map(|what| (what, true, false)),
        "(file, sleep's, the daemon's)"
    );
}
