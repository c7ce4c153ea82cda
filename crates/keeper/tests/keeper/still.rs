//! Runs that stand still.

use super::support::{Room, Story, is_alive, wait_for};
use std::fs;
use std::time::Duration;
use svc_keeper::protocol::ToKeeper;
use svc_sys::process::Identity;

/// Beside it runs what it has started, in a session of its own.
const COUNTS: &str = "setsid sh -c 'echo $$ >beside; while :; do echo x >>ticks; sleep 0.02; done' & \
                      echo ready; while read x; do echo heard $x; done";

fn freeze(story: &Story, frozen: bool) {
    story.send(&ToKeeper::Settings { orphan_ms: 3_600_000, ceiling: None, frozen });
}

/// Whether the process is stopped, by a signal or with its control group. One that was told between `vfork`
/// and its child's `exec` waits for that child, which is stopped: `D`.
fn is_still(process: Identity) -> bool {
    let of = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
    let stat = of("stat");
    let is_stopped = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 'D']));
    let group = of("cgroup").lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned));
    let events = group.map(|group| fs::read_to_string(format!("/sys/fs/cgroup{group}/cgroup.events")));
    is_stopped || events.and_then(Result::ok).is_some_and(|events| events.contains("frozen 1"))
}

fn started(room: &Room) -> (Story, Identity) {
    let mut story = room.start(COUNTS);
    story.until_out("ready");
    let program = story.program.expect("started");
    let ticks = room.dir.join("ticks");
    wait_for("it to count", || fs::metadata(&ticks).is_ok_and(|file| file.len() > 4));
    (story, program)
}

/// What all of it has counted.
fn counted(room: &Room) -> u64 {
    fs::metadata(room.dir.join("ticks")).expect("it counts").len()
}

#[test]
fn all_of_a_run_stands_still_and_goes_on_where_it_was() {
    let room = Room::new("still");
    let (mut story, program) = started(&room);
    freeze(&story, true);
    wait_for("it to stand still", || is_still(program));
    let beside: u32 = fs::read_to_string(room.dir.join("beside")).unwrap().trim().parse().unwrap();
    let beside = svc_sys::process::identity_of(beside).expect("it runs");
    wait_for("what it has started, too", || is_still(beside));
    let before = counted(&room);
    // It is heard when it can be.
    story.write(1, "a word\n");
    story.until_quiet(Duration::from_millis(300));
    assert_eq!((counted(&room), story.text().as_str()), (before, "ready\n"));
    freeze(&story, false);
    story.until_out("heard a word");
    wait_for("it to count on", || counted(&room) > before);
    assert!(!is_still(program) && is_alive(beside));
}

#[test]
fn a_run_that_stands_still_ends_as_any_other() {
    let room = Room::new("still-ends");
    let (mut story, program) = started(&room);
    freeze(&story, true);
    wait_for("it to stand still", || is_still(program));
    story.send(&ToKeeper::Stop { grace_ms: 20_000 });
    // It does not come back to that on its way.
    freeze(&story, true);
    assert_eq!(story.until_end(), "ended None Some(15) true 0");
}

#[test]
fn a_run_goes_on_when_the_daemon_is_gone_that_could_let_it() {
    let room = Room::new("still-alone");
    let (story, program) = started(&room);
    freeze(&story, true);
    wait_for("it to stand still", || is_still(program));
    let before = counted(&room);
    story.link.writer.close();
    wait_for("it to go on", || counted(&room) > before);
    let mut next = room.find(0);
    next.send(&ToKeeper::Stop { grace_ms: 20_000 });
    assert_eq!(next.until_end(), "ended None Some(15) true 0");
}
