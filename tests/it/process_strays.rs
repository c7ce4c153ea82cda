//! Strays: descendants that have left their agent in every way there is. One test ends every stray that this
//! process has adopted, so they run one at a time.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::processes::keepers_of;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use svc::core::ids::AgentId;
use svc_sys::process::{Marker, Processes, Spec, Stdin};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Twelve ways to leave; `LEAF` is a program that writes its id into a file and stays.
const WAYS: [&str; 12] = [
    "LEAF &",
    "(LEAF &)",
    "nohup LEAF &",
    "setsid LEAF &",
    "setsid /bin/sh -c '(LEAF &)'",
    "setsid /bin/sh -c '(setsid LEAF &)'",
    "env -i LEAF &",
    "env -i /bin/sh -c '(LEAF &)'",
    "env -i setsid LEAF &",
    "env -i setsid /bin/sh -c '(LEAF &)'",
    "env -i setsid /bin/sh -c '(setsid LEAF &)'",
    "cd /; env -i setsid /bin/sh -c 'trap \"\" TERM; (setsid /bin/sh -c \"(setsid LEAF &)\" &)'",
];

/// A shell command that leaves one process behind in this way; it writes its id into `file`.
fn leaving(way: &str, file: &Path) -> String {
    let leaf = file.with_extension("sh");
    std::fs::write(&leaf, format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000\n", file.display()))
        .unwrap();
    way.replace("LEAF", &format!("/bin/sh {}", leaf.display()))
}

fn pid_in(file: &Path) -> u32 {
    wait_for("the process that stays", || std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn sh(script: String, marker: Option<Marker>) -> Spec {
    Spec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: std::env::temp_dir(),
        stdin: Stdin::Null,
        marker,
    }
}

#[test]
fn decisions_2_a_stray_without_any_trace_of_its_agent_ends_with_the_daemon() {
    let _alone = alone();
    let processes = Processes::start().expect("starts");
    // No marker, a session of its own, and its whole ancestry gone before anybody looked.
    let script = "setsid env -i /bin/sh -c '(/bin/sh -c \"echo \\$\\$; exec /bin/sleep 1000\" &)'";
    let running = processes.spawn(&sh(script.into(), None)).expect("starts");
    let mut line = String::new();
    BufReader::new(running.stdout).read_line(&mut line).expect("a line");
    running.exit.recv_timeout(Duration::from_secs(20)).expect("an exit");
    let stray = line.trim().parse().expect("a pid");
    assert!(is_there(stray));
    assert_eq!(processes.sweep_strays().leaked, 0);
    wait_for("the stray to be collected", || (!is_there(stray)).then_some(()));
}

#[test]
fn decisions_2_no_way_of_leaving_survives_a_stop_or_the_own_end() {
    let _alone = alone();
    let folder = Folder::new("ways");
    let processes = Processes::start().expect("starts");
    for (n, way) in (0..).zip(WAYS) {
        for ends_itself in [false, true] {
            let file = folder.path().join(format!("{n}-{ends_itself}"));
            let agent = AgentId((std::process::id() << 8) | (2 * n + u32::from(ends_itself)) | 1 << 7);
            let marker = Marker { agent, project_dir: folder.path().to_path_buf() };
            let end = if ends_itself {
                format!("while [ ! -s {} ]; do sleep 0.01; done", file.display())
            } else {
                "sleep 1000".to_owned()
            };
            let script = format!("{}\n{end}", leaving(way, &file));
            let running = processes.spawn(&sh(script, Some(marker.clone()))).expect("starts");
            let stray = pid_in(&file);
            let report = if ends_itself {
                running.exit.recv_timeout(Duration::from_secs(20)).expect("an exit");
                processes.sweep(running.identity, Some(&marker))
            } else {
                processes.stop_tree(running.identity, Some(&marker), Duration::from_millis(300))
            };
            assert_eq!(report.leaked, 0, "{way}");
            wait_for(&format!("{way} to be ended, own end: {ends_itself}"), || {
                (!is_there(stray)).then_some(())
            });
        }
    }
}

#[test]
fn decisions_2_adopted_strays_of_nobody_who_lives_are_counted() {
    let _alone = alone();
    let folder = Folder::new("counted");
    let processes = Processes::start().expect("starts");
    let marker = Marker { agent: AgentId(7), project_dir: folder.path().to_path_buf() };
    let file = folder.path().join("stray");
    let script = leaving(WAYS[10], &file);
    let running = processes.spawn(&sh(script, Some(marker.clone()))).expect("starts");
    running.exit.recv_timeout(Duration::from_secs(20)).expect("an exit");
    let stray = pid_in(&file);
    let count = |lives: bool| processes.strays(folder.path(), |agent| lives && agent == AgentId(7));
    wait_for("the stray to be adopted", || (count(false) == 1).then_some(()));
    assert_eq!(count(true), 0, "it is the living agent's");
    assert_eq!(processes.strays(Path::new("/elsewhere"), |_| true), 1, "of another project");
    processes.sweep(running.identity, Some(&marker));
    wait_for("the stray to be collected", || (!is_there(stray)).then_some(()));
    assert_eq!(count(false), 0);
}

/// An agent whose process has left in the last way, and that process.
fn agent_with_a_stray(daemon: &Daemon, name: &str) -> (String, u32) {
    let file = daemon.project.join(name);
    let scenario = json!({"description": "leaves a stray", "steps": [
        {"run": {"command": leaving(WAYS[10], &file)}}, {"hang": true},
    ]});
    let path = daemon.project.join(format!(".svc/rehearsals/{name}.json"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, scenario.to_string()).unwrap();
    let id = daemon.spawn(name);
    let stray = pid_in(&file);
    (id, stray)
}

#[test]
fn decisions_2_the_daemon_ends_a_stray_with_its_agent_and_leaves_that_of_another() {
    let daemon = Daemon::start_open();
    let (first, ended) = agent_with_a_stray(&daemon, "first");
    let (_, stays) = agent_with_a_stray(&daemon, "second");
    let (status, reply) = daemon.send("DELETE", &format!("/api/agents/{first}"), &Value::Null);
    assert_eq!((status, &reply["leaked"]), (200, &json!(0)));
    assert!(!is_there(ended), "it is gone when the reply comes");
    assert!(is_there(stays), "it belongs to an agent that works");
    assert_eq!(daemon.get("/api/health")["leaked"], 0);
    daemon.stop();
    assert!(!is_there(stays));
}

#[test]
fn decisions_2_a_stray_that_outlived_a_killed_daemon_is_ended_by_the_next() {
    let mut daemon = Daemon::start_open();
    let (_, stray) = agent_with_a_stray(&daemon, "stray");
    // With their keeper, which would have ended it.
    let both = keepers_of(&daemon.project).into_iter().chain([daemon.pid()]).map(|pid| pid.to_string());
    let killed = Command::new("kill").arg("-9").args(both).status().unwrap();
    assert!(killed.success());
    daemon.exit_code();
    assert!(is_there(stray));
    let next = Daemon::start_in(daemon.folder(), &[]);
    wait_for("the stray to be ended", || (!is_there(stray)).then_some(()));
    next.stop();
}
