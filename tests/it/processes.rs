//! Real processes: whatever a program does to hide its descendants, a stop leaves none.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use svc::core::ids::AgentId;
use svc_sys::process::{Identity, Marker, Processes, Running, Spec, Stdin, StopReport};

/// How long any condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(20);

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// An agent id that no other test on this machine uses at the same time.
fn unique_agent() -> AgentId {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    AgentId((std::process::id() << 8) | NEXT.fetch_add(1, Ordering::Relaxed))
}

fn marker() -> Marker {
    Marker { agent: unique_agent(), project_dir: std::env::temp_dir() }
}

fn sh(script: &str, marker: Option<Marker>) -> Spec {
    Spec {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: std::env::temp_dir(),
        stdin: Stdin::Null,
        marker,
    }
}

fn start(processes: &Processes, script: &str, marker: &Marker) -> (Running, BufReader<File>) {
    let running = processes.spawn(&sh(script, Some(marker.clone()))).expect("starts");
    let lines = BufReader::new(running.stdout.try_clone().expect("a second handle"));
    (running, lines)
}

fn read_pid(lines: &mut BufReader<File>) -> u32 {
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no pid"))
}

/// Neither running nor a zombie.
fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

fn clean() -> StopReport {
    StopReport::default()
}

#[test]
fn decisions_2_a_grandchild_that_ignores_term_and_holds_the_pipe_is_ended() {
    let processes = Processes::start().expect("starts");
    let marker = marker();
    let script = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' & wait";
    let (running, mut lines) = start(&processes, script, &marker);
    let grandchild = read_pid(&mut lines);
    let report = processes.stop_tree(running.identity, Some(&marker), Duration::from_millis(200));
    assert_eq!(report.leaked, 0);
    assert!(report.killed >= 1, "TERM was ignored: {report:?}");
    assert!(!processes.is_alive(running.identity));
    until("the grandchild is collected", || is_gone(grandchild));
    assert_eq!(running.exit.recv_timeout(PATIENCE).expect("an exit").signal, Some(15));
    let mut rest = Vec::new();
    lines.read_to_end(&mut rest).expect("the pipe has no writer left");
}

#[test]
fn decisions_2_one_that_heeds_term_is_not_killed() {
    let processes = Processes::start().expect("starts");
    let marker = marker();
    let script = "trap 'exit 7' TERM; echo $$; while :; do sleep 0.01; done";
    let (running, mut lines) = start(&processes, script, &marker);
    read_pid(&mut lines);
    assert_eq!(processes.stop_tree(running.identity, Some(&marker), PATIENCE), clean());
    assert_eq!(running.exit.recv_timeout(PATIENCE).expect("an exit").code, Some(7));
    assert_eq!(processes.stop_tree(running.identity, Some(&marker), PATIENCE), clean(), "again");
}

#[test]
fn decisions_2_tools_with_sessions_of_their_own_are_found() {
    for hidden in [
        // Found by the marker: its parent is gone, its session is its own.
        "setsid sh -c 'sh -c \"echo \\$\\$; exec sleep 1000\" &'; sleep 1000",
        // Found as a descendant: its environment is empty.
        "setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000' & wait",
        // Found by its session: its environment is empty and its parent is gone.
        "(env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000' &); sleep 1000",
    ] {
        let processes = Processes::start().expect("starts");
        let marker = marker();
        let (running, mut lines) = start(&processes, hidden, &marker);
        let grandchild = read_pid(&mut lines);
        let report = processes.stop_tree(running.identity, Some(&marker), PATIENCE);
        assert_eq!(report.leaked, 0, "{hidden}");
        until("the grandchild is collected", || is_gone(grandchild));
    }
}

#[test]
fn decisions_2_what_a_program_leaves_behind_is_swept() {
    for script in [
        "sh -c 'echo $$; exec sleep 1000' & exit 3",
        "setsid sh -c 'echo $$; exec sleep 1000' & exit 3",
        "env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000' & exit 3",
    ] {
        let processes = Processes::start().expect("starts");
        let marker = marker();
        let (running, mut lines) = start(&processes, script, &marker);
        let left_behind = read_pid(&mut lines);
        assert_eq!(running.exit.recv_timeout(PATIENCE).expect("an exit").code, Some(3));
        assert_eq!(processes.sweep(running.identity, Some(&marker)), clean(), "{script}");
        until("it is collected", || is_gone(left_behind));
        let mut rest = Vec::new();
        lines.read_to_end(&mut rest).expect("the pipe has no writer left");
    }
}

#[test]
fn design_6_adopted_strays_do_not_stay_zombies() {
    let processes = Processes::start().expect("starts");
    let script = "(sh -c 'echo $$; exec sleep 0.05' &); exec sleep 1000";
    let (running, mut lines) = start(&processes, script, &marker());
    let stray = read_pid(&mut lines);
    until("the stray is collected", || is_gone(stray));
    assert!(processes.is_alive(running.identity));
    processes.stop_tree(running.identity, None, PATIENCE);
}

#[test]
fn decisions_2_a_recycled_pid_is_never_signalled() {
    let processes = Processes::start().expect("starts");
    let (running, mut lines) = start(&processes, "echo $$; exec sleep 1000", &marker());
    read_pid(&mut lines);
    let before = Identity { start_ticks: running.identity.start_ticks - 1, ..running.identity };
    assert!(!processes.is_alive(before));
    assert_eq!(processes.stop_tree(before, None, Duration::from_millis(50)), clean());
    assert!(processes.is_alive(running.identity));
    assert_eq!(processes.stop_tree(running.identity, None, PATIENCE).leaked, 0);
    assert!(!processes.is_alive(running.identity));
}

#[test]
fn decisions_2_a_stop_spares_other_agents() {
    let processes = Processes::start().expect("starts");
    let (one, other) = (marker(), marker());
    let (first, mut first_lines) = start(&processes, "echo $$; exec sleep 1000", &one);
    let (second, mut second_lines) = start(&processes, "echo $$; exec sleep 1000", &other);
    read_pid(&mut first_lines);
    read_pid(&mut second_lines);
    processes.stop_tree(first.identity, Some(&one), PATIENCE);
    assert!(processes.is_alive(second.identity));
    processes.stop_tree(second.identity, Some(&other), PATIENCE);
}

#[test]
fn decisions_2_many_stops_at_once_leave_nothing() {
    const AGENTS: usize = 24;
    let processes = Processes::start().expect("starts");
    let script = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' & wait";
    let agents: Vec<_> = (0..AGENTS)
        .map(|_| {
            let marker = marker();
            let (running, mut lines) = start(&processes, script, &marker);
            let grandchild = read_pid(&mut lines);
            (running, marker, grandchild)
        })
        .collect();
    std::thread::scope(|scope| {
        for (running, marker, grandchild) in &agents {
            let processes = &processes;
            scope.spawn(move || {
                let grace = Duration::from_millis(300);
                let report = processes.stop_tree(running.identity, Some(marker), grace);
                assert_eq!(report.leaked, 0);
                until("the grandchild is collected", || is_gone(*grandchild));
            });
        }
    });
}

#[test]
fn decisions_2_leftovers_of_an_earlier_daemon_are_ended() {
    let processes = Processes::start().expect("starts");
    let project_dir = std::env::temp_dir().join(format!("no-such-project-{}", std::process::id()));
    let of = |agent| Marker { agent, project_dir: project_dir.clone() };
    let left = of(unique_agent());
    let kept = of(unique_agent());
    let elsewhere = Marker { project_dir: PathBuf::from("/elsewhere"), ..of(unique_agent()) };
    let script = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1000; done' & wait";
    let mut started = Vec::new();
    for marker in [&left, &kept, &elsewhere] {
        let (running, mut lines) = start(&processes, script, marker);
        started.push((running, read_pid(&mut lines)));
    }
    let keeper = [started[1].0.identity.pid];
    let report = processes.sweep_leftovers(&project_dir, &keeper);
    assert!(report.found >= 2, "{report:?}");
    assert_eq!(report.remaining, 0);
    until("the leftover is collected", || is_gone(started[0].1));
    assert!(!is_gone(started[1].1) && !is_gone(started[2].1));
    assert_eq!(processes.sweep_leftovers(&project_dir, &keeper).found, 0);
    for ((running, _), marker) in started.iter().zip([left, kept, elsewhere]) {
        assert_eq!(processes.stop_tree(running.identity, Some(&marker), Duration::ZERO).leaked, 0);
    }
}

#[test]
fn decisions_2_the_environment_is_exactly_what_was_given() {
    let processes = Processes::start().expect("starts");
    let marker = Marker { agent: AgentId(0xab), project_dir: PathBuf::from("/some project") };
    let mut spec = sh("", Some(marker));
    spec.program = "env".into();
    spec.args.clear();
    spec.env.push(("A".into(), "old".into()));
    spec.env.push(("A".into(), "new=1".into()));
    let captured = processes.capture(&spec, b"", PATIENCE, 4096).expect("runs");
    let text = String::from_utf8(captured.stdout).expect("text");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let wanted = [
        "A=new=1",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "SVC_AGENT_ID=000000ab",
        "SVC_PROJECT_DIR=/some project",
    ];
    assert_eq!(lines, wanted);
}

#[test]
fn a_child_has_its_own_session_default_signals_and_no_inherited_files() {
    let processes = Processes::start().expect("starts");
    let script = "cat /proc/$$/status | grep -E '^Sig(Blk|Ign):'; ls /proc/$$/fd | wc -l; \
                  cut -d' ' -f1,6 /proc/$$/stat";
    let captured = processes.capture(&sh(script, None), b"", PATIENCE, 4096).expect("runs");
    let text = String::from_utf8(captured.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[..2] {
        let mask = u64::from_str_radix(line[7..].trim(), 16).expect("a mask");
        // The first 31; the real-time ones from 32 on belong to the C library.
        assert_eq!(mask & 0x7fff_ffff, 0, "{text}");
    }
    assert_eq!(lines[2].trim(), "3", "only the three standard files: {text}");
    let (pid, session) = lines[3].split_once(' ').expect("two numbers");
    assert_eq!(pid, session);
}

#[test]
fn errors_name_the_program_and_what_is_missing() {
    let processes = Processes::start().expect("starts");
    let error = |change: &dyn Fn(&mut Spec)| {
        let mut spec = sh("", None);
        change(&mut spec);
        processes.spawn(&spec).expect_err("cannot start").to_string()
    };
    let unknown = error(&|spec| spec.program = "codex-nowhere".into());
    assert_eq!(unknown, "cannot start codex-nowhere: not found on PATH");
    assert_eq!(error(&|spec| spec.env.clear()), "cannot start sh: not found on PATH");
    let missing = error(&|spec| spec.program = "/nowhere/codex".into());
    assert!(missing.starts_with("cannot start /nowhere/codex: the file, or"), "{missing}");
    let folder = error(&|spec| spec.cwd = "/nowhere".into());
    assert_eq!(folder, "cannot start sh: the folder /nowhere does not exist");
    let long = error(&|spec| spec.args.push(OsString::from("x".repeat(4 << 20))));
    assert_eq!(long, "cannot start sh: its arguments and environment are too long for the system");
}

#[test]
fn failed_starts_and_exits_do_not_race() {
    let processes = Processes::start().expect("starts");
    let bad = Spec { program: "/nowhere/at-all".into(), ..sh("", None) };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for code in 0..40 {
                    assert!(processes.spawn(&bad).is_err());
                    let good = processes.spawn(&sh(&format!("exit {code}"), None)).expect("starts");
                    assert_eq!(good.exit.recv_timeout(PATIENCE).expect("an exit").code, Some(code));
                }
            });
        }
    });
}

#[test]
fn a_capture_feeds_input_and_bounds_output() {
    let processes = Processes::start().expect("starts");
    let mut spec = sh("cat; echo err >&2; exit 4", None);
    spec.stdin = Stdin::Piped;
    let input = vec![b'x'; 1 << 20];
    let whole = processes.capture(&spec, &input, PATIENCE, 2 << 20).expect("runs");
    assert_eq!(whole.stdout.len(), input.len());
    assert_eq!((whole.stderr.as_slice(), whole.exit.code), (b"err\n".as_slice(), Some(4)));
    assert!(!whole.truncated && !whole.is_success());
    let cut = processes.capture(&spec, &input, PATIENCE, 1000).expect("runs");
    assert_eq!(cut.stdout.len(), 1000);
    assert!(cut.truncated);
}

#[test]
fn a_capture_that_takes_too_long_is_ended_with_its_tree() {
    let processes = Processes::start().expect("starts");
    let file = std::env::temp_dir().join(format!("capture-{}.pid", std::process::id()));
    let script = format!("sh -c 'echo $$ > {}; exec sleep 1000' & exec sleep 1000", file.display());
    let error = processes.capture(&sh(&script, None), b"", Duration::from_millis(700), 100);
    assert_eq!(error.expect_err("takes too long"), "sh did not end within 0.7 s");
    let pid = std::fs::read_to_string(&file).expect("it started").trim().parse().expect("a pid");
    std::fs::remove_file(&file).expect("removed");
    until("the grandchild is collected", || is_gone(pid));
}

#[test]
fn a_capture_does_not_wait_for_what_was_left_in_the_background() {
    let processes = Processes::start().expect("starts");
    let begun = Instant::now();
    let captured = processes.capture(&sh("echo done; sleep 1000 &", None), b"", PATIENCE, 100).expect("ends");
    assert_eq!(captured.stdout, b"done\n");
    assert!(begun.elapsed() < PATIENCE / 2);
}

#[test]
fn dropping_the_owner_joins_the_reaper_although_children_live() {
    let processes = Processes::start().expect("starts");
    let mut spec = sh("read line; exit 5", None);
    spec.stdin = Stdin::Piped;
    let mut running = processes.spawn(&spec).expect("starts");
    drop(processes);
    assert!(running.exit.try_recv().is_err());
    let _processes = Processes::start().expect("starts again");
    running.stdin.take().expect("piped").write_all(b"go\n").expect("written");
    assert_eq!(running.exit.recv_timeout(PATIENCE).expect("an exit").code, Some(5));
}
