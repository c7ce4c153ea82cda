//! What a program prints and is told goes on while daemons come and go.

use super::support::{PATIENCE, Room, is_alive, program, wait_for};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use svc_keeper::client::{self, Next};
use svc_keeper::protocol::{Order, ToKeeper, VERSION};
use svc_sys::process::{Spec, kill};

#[test]
fn a_run_is_told_from_its_start_to_its_end() {
    let room = Room::new("run");
    let mut story = room.start("echo out; echo err >&2; exit 3");
    assert_eq!(story.until_end(), "ended Some(3) None false 0");
    assert_eq!((story.text().as_str(), &story.err[..]), ("out\n", &b"err\n"[..]));
    assert!(story.program.is_some());
    let keeper = story.keeper();
    story.send(&ToKeeper::Forget);
    story.until_gone();
    wait_for("the keeper is gone", || !is_alive(keeper));
    assert_eq!(room.names(), ["keeper.log"]);
    assert!(std::fs::read(room.dir.join("keeper.log")).expect("a log").is_empty());
    assert!(client::find(&room.dir, 0).expect("no error").is_none());
}

#[test]
fn what_has_happened_is_told_again_from_any_record_and_forgotten_once_it_is_taken() {
    let room = Room::new("again");
    let mut story = room.start("echo one; read line; echo two; exec cat");
    story.until_out("one");
    let middle = story.end;
    story.write(1, "go\n");
    story.until_out("two");
    story.close(2);
    assert_eq!(story.until_end(), "ended Some(0) None false 0");
    let (end, all) = (story.end, story.text());
    let mut again = room.find(0);
    assert_eq!((again.link.welcome.first, again.link.welcome.end), (0, end));
    again.until_end();
    assert_eq!((again.text(), again.end), (all, end));
    let mut rest = room.find(middle);
    rest.until_end();
    assert_eq!(rest.text(), "two\n");
    assert!(client::find(&room.dir, middle + 1).is_err_and(|why| why.contains("no record ends at")));
    rest.taken(middle, 0);
    // Orders are heard in their order, and whoever greets next is heard after them.
    assert_eq!(room.find(end).link.welcome.first, middle);
}

#[test]
fn a_program_has_nothing_of_its_keeper_but_its_pipes() {
    let room = Room::new("plain");
    // As a tool of the daemon's own has it.
    let plain = "umask; trap; ls /proc/self/fd; grep -E '^Sig(Ign|Blk)' /proc/self/status";
    let mut story = room.start(&format!("{plain}; env; pwd"));
    story.until_end();
    let own = room.processes.capture(&Spec::tool("sh", &["-c", plain], &room.dir), b"", PATIENCE, 9999);
    let expected = String::from_utf8(own.expect("it ends").stdout).expect("text");
    assert!(expected.contains("SigIgn"), "{expected}");
    let dir = room.dir.display();
    let env = format!("PATH=/usr/bin:/bin\nPWD={dir}\nSVC_AGENT_ID=00abcdef\nSVC_PROJECT_DIR={dir}\n{dir}\n");
    // A shell may add a few variables of its own.
    let is_told = |line: &&str| !["OLDPWD", "SHLVL", "_="].iter().any(|own| line.starts_with(own));
    let text = story.text();
    let mut told: Vec<&str> = text.lines().filter(is_told).collect();
    let mut expected: Vec<&str> = expected.lines().chain(env.lines()).collect();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[test]
fn orders_right_behind_a_greeting_are_heard() {
    let room = Room::new("behind");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    let token = super::support::TOKEN.into();
    let hello = ToKeeper::Hello { version: VERSION, token, from: story.end };
    let write = ToKeeper::Write { seq: 1, note: None, bytes: b"at once\n".to_vec(), close: true };
    let both = [hello.encode().expect("short"), write.encode().expect("short")].concat();
    let mut socket = UnixStream::connect(room.dir.join("sock")).expect("it listens");
    socket.write_all(&both).expect("sent");
    // Its answer is for the one that has greeted; who comes next sees what has come of it.
    story.until_gone();
    let mut next = room.find(story.end);
    next.until_end();
    assert_eq!(next.text(), "at once\n");
}

#[test]
fn a_newer_greeting_takes_over() {
    let room = Room::new("over");
    let mut first = room.start("echo ready; exec cat");
    first.until_out("ready");
    let mut second = room.find(first.end);
    first.until_gone();
    assert_eq!(first.link.reader.next(None), Next::Gone);
    second.write(1, "hello\n");
    second.close(2);
    second.until_end();
    assert_eq!(second.text(), "hello\n");
}

#[test]
fn nothing_is_lost_or_told_twice_when_a_daemon_is_killed() {
    let room = Room::new("killed");
    let count = 400;
    // It prints on without a pause, before, while and after nobody listens.
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done; read line; echo last";
    let args = ["daemon", &room.dir.to_string_lossy(), &count.to_string()];
    let mut daemon = room.processes.spawn(&Spec::tool(program(), &args, &room.dir)).expect("a daemon");
    daemon.stdin.take().expect("its input").write_all(script.as_bytes()).expect("written");
    let mut seen = String::new();
    let mut taken = None;
    let lines = BufReader::new(daemon.stdout);
    for line in lines.lines().map(|line| line.expect("a line")) {
        if let Some(end) = line.strip_prefix("taken ") {
            taken = end.parse().ok();
            break;
        }
        seen = seen + &line + "\n";
    }
    assert!(kill(daemon.identity));
    let taken: u64 = taken.expect("it has told");
    let mut next = room.find(taken);
    assert_eq!(next.link.welcome.first, taken);
    next.write(1, "go\n");
    next.until_end();
    let told = seen + &next.text();
    let expected = (1..=3000).map(|i| format!("line {i}")).chain(["last".into()]);
    assert!(told.lines().eq(expected), "{told}");
}

#[test]
fn acts_are_told_to_the_next_daemon_until_they_are_taken() {
    let room = Room::new("notes");
    let mut story = room.start("while read line; do echo got $line; done");
    story.write(1, "a reply\n");
    story.write_noted(2, "an act\n");
    story.write_noted(3, "another\n");
    // Said before: it goes to nobody.
    story.write_noted(3, "twice\n");
    story.until_out("got another");
    story.until_event("Written { seq: 3 }");
    assert_eq!(story.events, ["Written { seq: 2 }", "Written { seq: 3 }"]);
    let next = room.find(story.end);
    let notes: Vec<u64> = next.link.welcome.notes.iter().map(|(seq, _)| *seq).collect();
    assert_eq!((notes, next.link.welcome.last_seq), (vec![2, 3], 3));
    assert_eq!(next.link.welcome.notes[0].1.what["said"], "an act\n");
    next.taken(0, 2);
    let mut last = room.find(story.end);
    assert_eq!(last.link.welcome.notes.len(), 1);
    last.close(4);
    last.until_end();
    assert_eq!(story.text(), "got a reply\ngot an act\ngot another\n");
}

#[test]
fn what_does_not_reach_the_program_is_told() {
    let room = Room::new("lost").limits("input_bytes_max=200000 stuck_ms=100");
    let gate = room.gate();
    let mut story =
        room.start("echo ready; read x <gate; read line; read line; exec 0<&-; echo closed; read x <gate");
    story.until_out("ready");
    let much = "x".repeat(150_000);
    story.write_noted(1, &much);
    // The pipe has 64 KiB of it; as much again is more than may wait.
    story.write_noted(2, &much);
    story.until_event("Stuck");
    std::fs::write(&gate, "go\n").expect("written");
    story.until_event("Written { seq: 1 }");
    story.write_noted(3, "\nsecond\n");
    story.until_out("closed");
    story.write_noted(4, "too late");
    story.until_event("Lost { seq: 4 }");
    let expected = [
        "Lost { seq: 2 }",
        "Stuck { seconds: 0 }",
        "Written { seq: 1 }",
        "Written { seq: 3 }",
        "Lost { seq: 4 }",
    ];
    assert_eq!(story.events, expected);
    std::fs::write(&gate, "go\n").expect("written");
    story.until_end();
}

#[test]
fn a_program_without_an_input_gets_none() {
    let room = Room::new("null");
    let mut order = room.order("cat; echo done; read x <gate");
    order.stdin = false;
    let gate = room.gate();
    let mut story = room.start_as(&order);
    story.until_out("done");
    story.write(1, "x");
    story.until_event("Lost { seq: 1 }");
    std::fs::write(&gate, "go\n").expect("written");
    story.until_end();
}

#[test]
fn a_program_that_prints_too_much_waits_and_goes_on() {
    let limits = "memory_bytes=65536 spill_bytes=262144 spool_bytes_max=1048576";
    let room = Room::new("cap").limits(limits);
    // It tells on the other channel that it has printed all.
    let mut story = room.start("read go; head -c 4000000 /dev/zero; echo printed >&2; read x; exit 0");
    let begun = story.end;
    story.write(1, "go\n");
    // Nothing is taken, but everything is sent: it stops at the bound.
    story.until("the bound", |story| story.out.len() > 900_000);
    story.until_quiet(Duration::from_millis(300));
    assert!(story.end <= 1_048_576 && story.err.is_empty());
    assert_eq!(room.names(), ["keeper.json", "keeper.log", "limits", "sock"], "files without names");
    let mut again = room.find(begun);
    again.until("what was kept", |again| again.out.len() >= story.out.len());
    while again.err.is_empty() {
        again.taken(again.end, 0);
        let before = again.end;
        again.until("more", |again| again.end > before);
    }
    assert_eq!(again.out.len(), 4_000_000);
    again.close(2);
    assert_eq!(again.until_end(), "ended Some(0) None false 0");
}

#[test]
fn a_reader_is_woken_from_other_threads_and_forgets_no_wake() {
    let room = Room::new("wake");
    let mut story = room.start("read line");
    story.until("started", |story| story.program.is_some());
    let waker = story.link.reader.waker();
    waker.wake();
    waker.wake();
    let limit = || Some(Instant::now() + PATIENCE);
    assert_eq!(story.link.reader.next(limit()), Next::Woken);
    assert_eq!(story.link.reader.next(Some(Instant::now())), Next::TimedOut, "two wakes were one");
    let other = std::thread::spawn(move || waker.wake());
    assert_eq!(story.link.reader.next(limit()), Next::Woken);
    other.join().expect("it has woken");
    story.link.reader.waker().wake();
    let began = Instant::now();
    story.link.reader.rest(PATIENCE);
    assert!(began.elapsed() < PATIENCE && story.link.reader.is_ready(Duration::ZERO));
    story.link.writer.close();
    assert_eq!(story.link.reader.next(limit()), Next::Woken);
    assert_eq!(story.link.reader.next(limit()), Next::Gone);
}

#[test]
fn a_run_stands_back_as_far_as_its_order_says() {
    let room = Room::new("nice");
    let order = Order { nice: 7, ..room.order("nice; cat /proc/self/autogroup; (setsid nice)") };
    let mut story = room.start_as(&order);
    story.until_end();
    let said = story.text();
    assert_eq!(said.lines().filter(|line| *line == "7").count(), 2, "{said}");
    // An ordinary user may say it of one session in 100 ms, and a kernel need not share by sessions at all.
    let session = said.lines().find_map(|line| line.split_once(" nice ").map(|(_, nice)| nice));
    assert!(session.is_none_or(|nice| nice == "7" || nice == "0"), "{said}");
}
