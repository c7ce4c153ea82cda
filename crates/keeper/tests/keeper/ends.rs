//! How a run ends, and that nothing of it stays.

use super::support::{PATIENCE, Room, Story, is_alive, program, wait_for};
use std::fs;
use std::time::{Duration, Instant};
use svc_keeper::client;
use svc_keeper::protocol::ToKeeper;
use svc_sys::process::{Identity, Origin, Spec, identity_of, kill, origin};

/// Ways to get away from one's parent, each of which tells its process id and stays.
const ESCAPES: &str = "
    setsid sh -c 'echo pid $$; exec sleep 1000' &
    ( ( setsid sh -c 'echo pid $$; exec sleep 1000' & ) & )
    env -i /bin/sh -c '(setsid /bin/sh -c \"echo pid \\$\\$; trap \\\"\\\" TERM; while :; do sleep 1000; done\" &)' &
    setsid env -i setsid sh -c 'echo pid $$; exec 0<&- 1>&- 2>&-; sleep 1000; sleep 1000' &
    (trap '' HUP; cd /; umask 0; setsid sh -c 'echo pid $$; sleep 1000 & wait' &)
";

fn pids(story: &Story) -> Vec<Identity> {
    let text = story.text();
    let pids = text.lines().filter_map(|line| line.strip_prefix("pid ")?.parse().ok());
    pids.filter_map(identity_of).collect()
}

fn until_escaped(story: &mut Story) -> Vec<Identity> {
    story.until("all have told", |story| story.text().matches("pid ").count() == 5);
    let found = pids(story);
    assert_eq!(found.len(), 5, "{}", story.text());
    found
}

#[test]
fn whoever_leaves_its_parent_is_ended_with_the_rest() {
    let room = Room::new("escapes");
    let mut story = room.start(&format!("{ESCAPES} read x; exit 0"));
    let escaped = until_escaped(&mut story);
    story.send(&ToKeeper::Stop { grace_ms: 200 });
    assert!(story.until_end().ends_with("true 0"), "{:?}", story.events);
    assert!(escaped.iter().all(|process| !is_alive(*process)));
}

#[test]
fn what_a_program_leaves_behind_is_ended_when_it_ends_by_itself() {
    let room = Room::new("sweep");
    let mut story = room.start(&format!("{ESCAPES} read x; exit 4"));
    let escaped = until_escaped(&mut story);
    story.write(1, "go\n");
    assert_eq!(story.until_end(), "ended Some(4) None false 0");
    assert!(escaped.iter().all(|process| !is_alive(*process)));
}

#[test]
fn a_stop_is_patient_unless_a_later_one_is_not() {
    let room = Room::new("grace");
    room.gate();
    let mut story = room.start("trap 'echo asked' TERM; echo ready; while :; do read x <gate; done");
    story.until_out("ready");
    story.send(&ToKeeper::Stop { grace_ms: 3_000_000 });
    story.until_out("asked");
    assert!(is_alive(story.program.expect("started")));
    story.send(&ToKeeper::Stop { grace_ms: 5_000_000 });
    story.send(&ToKeeper::Stop { grace_ms: 0 });
    assert_eq!(story.until_end(), "ended None Some(9) true 0");
}

#[test]
fn a_program_that_heeds_the_order_ends_as_it_likes() {
    let room = Room::new("heeds");
    let mut story = room.start("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    story.until_out("ready");
    story.send(&ToKeeper::Stop { grace_ms: 20_000 });
    assert_eq!(story.until_end(), "ended Some(5) None true 0");
    assert_eq!(story.text(), "ready\nbye\n");
}

#[test]
fn a_run_without_a_daemon_ends_and_waits_to_be_told() {
    let room = Room::new("orphan");
    let mut order = room.order("echo ready; exec cat");
    order.orphan_ms = 0;
    let mut story = room.start_as(&order);
    story.until_out("ready");
    let program = story.program.expect("started");
    // As long as somebody is there it goes on; another time is in force as soon as it is said.
    story.send(&ToKeeper::Settings { orphan_ms: 100, ceiling: None, frozen: false });
    story.write(1, "still here\n");
    story.until_out("still here");
    story.link.writer.close();
    wait_for("the program is gone", || !is_alive(program));
    let mut next = room.find(0);
    assert_eq!(next.until_end(), "ended None Some(15) true 0");
    assert_eq!(next.text(), "ready\nstill here\n");
}

/// Holds so many megabytes, says so, and waits.
fn holds(megabytes: usize) -> String {
    format!("x=$(head -c {} /dev/zero | tr '\\0' x); echo held; read y", megabytes << 20)
}

#[test]
fn a_run_that_holds_more_than_it_may_is_ended_with_all_that_it_has_started() {
    let room = Room::new("ceiling");
    let mut order = room.order(&format!("{ESCAPES} read x; {}", holds(300)));
    order.ceiling = 120 << 20;
    let mut story = room.start_as(&order);
    let escaped = until_escaped(&mut story);
    story.write(1, "go\n");
    let began = Instant::now();
    assert!(story.until_end().ends_with(" true 0"), "{:?}", story.events);
    assert!(began.elapsed() < PATIENCE / 3, "{:?}", began.elapsed());
    let over = story.over.expect("it is told why");
    assert!(over.ceiling == 120 << 20 && over.held > over.ceiling, "{over:?}");
    assert!(escaped.iter().all(|process| !is_alive(*process)));
}

#[test]
fn a_ceiling_counts_without_a_daemon_and_another_one_as_soon_as_it_is_said() {
    let room = Room::new("lower");
    let mut order = room.order(&holds(100));
    order.ceiling = 1 << 30;
    let mut story = room.start_as(&order);
    story.until_out("held");
    story.send(&ToKeeper::Settings { orphan_ms: 3_600_000, ceiling: None, frozen: false });
    story.send(&ToKeeper::Settings { orphan_ms: 3_600_000, ceiling: Some(50 << 20), frozen: false });
    story.link.writer.close();
    let program = story.program.expect("started");
    wait_for("the program is gone", || !is_alive(program));
    let mut next = room.find(0);
    next.until_end();
    assert_eq!(next.over.map(|over| over.ceiling), Some(50 << 20));
}

#[test]
fn a_program_goes_before_its_keeper_when_the_machine_has_no_memory_left() {
    let room = Room::new("victim");
    let mut story = room.start("cat /proc/self/oom_score_adj; read x");
    story.until_out("\n");
    let score = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("linux");
        text.trim().parse::<i32>().expect("a number")
    };
    let (own, keeper) = (score(std::process::id()), score(story.keeper().pid));
    let program: i32 = story.text().trim().parse().expect("a number");
    // Whoever is at the end of the scale already stays there.
    assert!(own < keeper && keeper < program || own > 700, "{own} {keeper} {program}");
}

/// A daemon that was killed just after it had started a keeper: the next one found an empty folder.
#[test]
fn a_keeper_that_nobody_can_find_any_more_ends_its_run_and_goes() {
    let room = Room::new("lost");
    let mut order = room.order("echo ready; exec cat");
    order.orphan_ms = 3_600_000;
    let mut story = room.start_as(&order);
    story.until_out("ready");
    let (program, keeper) = (story.program.expect("started"), story.keeper());
    std::fs::remove_file(order.run_dir.join("keeper.json")).expect("it is there");
    assert!(is_alive(program), "while a daemon is there, it needs no file");
    story.link.writer.close();
    wait_for("the program is gone", || !is_alive(program));
    wait_for("the keeper is gone", || !is_alive(keeper));
}

#[test]
fn a_program_that_cannot_start_is_told() {
    let room = Room::new("missing");
    let mut order = room.order("");
    order.program = "no-such-program".into();
    let mut story = room.start_as(&order);
    story.until_event("StartFailed");
    assert!(
        story.events[0].contains("cannot start no-such-program: not found on PATH"),
        "{:?}",
        story.events
    );
    assert!(client::find(&room.dir, story.end).expect("it does not refuse").is_some(), "it is kept");
}

#[test]
fn a_keeper_that_cannot_settle_says_why_and_goes() {
    let room = Room::new("nowhere");
    fs::create_dir(room.dir.join("sock")).expect("in its way");
    let error = client::start(&room.processes, program(), &room.order("")).err().expect("no keeper");
    assert!(error.contains("cannot be its place"), "{error}");
    let mut order = room.order("");
    order.run_dir = room.dir.join("none");
    let error = client::start(&room.processes, program(), &order).err().expect("no folder");
    assert!(error.contains("cannot start the keeper"), "{error}");
    let error = client::start(&room.processes, "/bin/true".into(), &room.order("")).err().expect("no keeper");
    assert!(error.contains("has ended without a word"), "{error}");
}

#[test]
fn a_folder_has_one_keeper() {
    let room = Room::new("one");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    let error = client::start(&room.processes, program(), &room.order("")).err().expect("no second");
    assert!(error.contains("another keeper lives there"), "{error}");
    story.write(1, "still here\n");
    story.until_out("still here");
    assert_eq!(room.find(story.end).keeper(), story.keeper());
}

#[test]
fn a_program_does_not_outlive_its_keeper() {
    let room = Room::new("killed");
    let mut story = room.start("echo ready; exec sleep 1000");
    story.until_out("ready");
    let program = story.program.expect("started");
    assert!(kill(story.keeper()));
    let took = wait_for("the program is gone", || !is_alive(program));
    assert!(took < Duration::from_secs(1), "{took:?}");
    story.until_gone();
    wait_for("the keeper is collected", || !is_alive(story.keeper()));
    assert!(client::find(&room.dir, 0).expect("no error").is_none());
    assert_eq!(room.names(), ["keeper.log"]);
}

#[test]
fn a_keeper_told_to_end_by_a_signal_ends_the_run_and_goes() {
    let room = Room::new("term");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    let pid = story.keeper().pid.to_string();
    let signal = |name: &str| room.tool("kill", &[name, &pid]);
    ["-HUP", "-INT", "-QUIT", "-USR1"].into_iter().for_each(signal);
    story.write(1, "still here\n");
    story.until_out("still here");
    signal("-TERM");
    assert_eq!(story.until_end(), "ended None Some(15) true 0");
    // It stays for a moment, so that a daemon that listens hears of it.
    story.taken(story.end, 0);
    story.until_gone();
    wait_for("the keeper is gone", || !is_alive(story.keeper()));
    assert_eq!(room.names(), ["keeper.log"]);
}

#[test]
fn what_nobody_fetches_is_kept_for_a_time() {
    let room = Room::new("stay").limits("stay_ms=300");
    let mut story = room.start("exit 0");
    story.until_end();
    wait_for("the keeper is gone", || !is_alive(story.keeper()));
    assert_eq!(room.names(), ["keeper.log", "limits"]);
}

#[test]
fn what_is_below_a_keeper_comes_from_its_agent() {
    let room = Room::new("origin");
    let mut story = room.start(&format!("{ESCAPES} read x; exit 0"));
    let escaped = until_escaped(&mut story);
    let agent = room.order("").marker.agent;
    for process in &escaped {
        assert_eq!(origin(process.pid, &room.dir), Origin::Agent(agent));
        // Of which project the one who asks is makes no difference: the keeper is known.
        assert_eq!(origin(process.pid, std::path::Path::new("/")), Origin::Agent(agent));
    }
    assert_eq!(origin(story.keeper().pid, &room.dir), Origin::Daemon);
    // To a daemon that does not know this keeper, a process is what it says, unless it says nothing.
    let pids = escaped.iter().copied().chain([story.keeper()]).map(|process| process.pid.to_string());
    let args = ["origin".into(), room.dir.to_string_lossy().into_owned()];
    let args: Vec<String> = args.into_iter().chain(pids).collect();
    let mut ask = Spec::tool(program(), &[], &room.dir);
    ask.args = args.into_iter().map(Into::into).collect();
    let told = room.processes.capture(&ask, b"", PATIENCE, 9999).expect("it ends").stdout;
    let mut told: Vec<&str> = std::str::from_utf8(&told).expect("text").lines().collect();
    assert_eq!(told.pop(), Some("Daemon"));
    told.sort_unstable();
    let marked = format!("{:?}", Origin::Agent(agent));
    assert_eq!(told, [&marked, &marked, &marked, "Inside", "Inside"]);
    assert_eq!(room.processes.strays(&room.dir, |_| false), 0, "a keeper is none");
    room.processes.sweep_strays();
    assert!(is_alive(story.keeper()));
    let left = room.processes.sweep_leftovers(&room.dir, &[story.keeper().pid]);
    assert_eq!((left.found, is_alive(story.keeper())), (0, true));
}
