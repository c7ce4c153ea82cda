//! Alone in its binary: it ends every stray that this process has adopted.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};
use svc::runtime::process::{Processes, Spec, Stdin};

#[test]
fn decisions_2_a_stray_without_any_trace_of_its_agent_ends_with_the_daemon() {
    let processes = Processes::start().expect("starts");
    // No marker, a session of its own, and its whole ancestry gone before anybody looked.
    let script = "setsid env -i /bin/sh -c '(/bin/sh -c \"echo \\$\\$; exec /bin/sleep 1000\" &)'";
    let spec = Spec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: std::env::temp_dir(),
        stdin: Stdin::Null,
        marker: None,
    };
    let running = processes.spawn(&spec).expect("starts");
    let mut line = String::new();
    BufReader::new(running.stdout).read_line(&mut line).expect("a line");
    running.exit.recv_timeout(Duration::from_secs(20)).expect("an exit");
    let stray = format!("/proc/{}", line.trim());
    assert!(Path::new(&stray).exists());
    assert_eq!(processes.sweep_strays().leaked, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new(&stray).exists() {
        assert!(Instant::now() < deadline, "the stray is still there");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
