//! A person at the terminal of a program that a keeper keeps.

use super::support::{PATIENCE, Room, Story, is_alive, program, wait_for};
use std::os::fd::AsFd;
use std::time::Instant;
use svc_keeper::protocol::ToKeeper;
use svc_keeper::terminal::{SUB_COMMAND, Said, Viewer};
use svc_sys::process::{Size, identity_of, kill};
use svc_sys::sockets::Poll;

const SIZE: Size = Size { columns: 91, lines: 33 };
/// Longer than the tests that do not wait for it.
const LONG_MS: u64 = 3_600_000;

/// A keeper whose program is a terminal with this script on it; what the second prints is told behind it.
fn start(room: &Room, away_ms: u64, script: &str, last: &str) -> Story {
    let mut order = room.order("");
    order.program = program();
    let own = room.dir.to_str().expect("text");
    let words = [SUB_COMMAND, &away_ms.to_string(), own, "3", "/bin/sh", "-c", script, "/bin/sh", "-c", last];
    order.args = words.map(Into::into).to_vec();
    let mut story = room.start_as(&order);
    story.until("started", |story| story.program.is_some());
    story
}

/// The person, and what the screen has shown.
struct Person {
    viewer: Viewer,
    screen: String,
    over: Option<String>,
}

impl Person {
    fn come(room: &Room, token: &str) -> Self {
        Self::come_with(room, token, SIZE)
    }

    fn come_with(room: &Room, token: &str, size: Size) -> Self {
        // The socket has a name before it listens.
        let mut viewer = None;
        wait_for("the terminal", || {
            viewer = Viewer::come(&room.dir, token, size).ok();
            viewer.is_some()
        });
        Self { viewer: viewer.expect("it has come"), screen: String::new(), over: None }
    }

    fn until(&mut self, wanted: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{wanted}: {:?} {:?}", self.screen, self.over);
            let mut poll = Poll::default();
            poll.add(self.viewer.fd(), true, self.viewer.has_more());
            poll.wait(Some(PATIENCE)).expect("a wait");
            self.viewer.flush().expect("it takes");
            for said in
                self.viewer.hear().unwrap_or_else(|error| panic!("{wanted}: {error} {:?}", self.screen))
            {
                match said {
                    Said::Screen(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                    Said::Over(why) => self.over = Some(why),
                }
            }
        }
    }

    fn shows(&mut self, text: &str) {
        self.until(text, |person| person.screen.contains(text));
    }

    fn over(&mut self) -> String {
        self.until("over", |person| person.over.is_some());
        self.over.clone().expect("over")
    }
}

const ECHO: &str = "stty size; tty -s <&1 && echo is-a-tty; \
    trap 'echo window; stty size' WINCH; while :; do read x && echo \"said $x\"; done";

#[test]
fn a_person_who_is_expected_has_the_screen_and_what_was_said_there_is_told_behind_it() {
    let room = Room::new("screen");
    let mut story = start(&room, LONG_MS, ECHO, "echo one line; echo another");
    story.write(1, "expect abc\n");
    let mut person = Person::come(&room, "abc");
    person.shows("33 91");
    person.shows("is-a-tty");
    person.viewer.typed(b"hello\r").expect("typed");
    person.shows("said hello");
    person.viewer.resized(Size { columns: 100, lines: 40 }).expect("told");
    person.viewer.typed(b"\r").expect("typed");
    person.shows("40 100");
    person.viewer.leave().expect("told");
    assert_eq!(person.over(), "", "it is as the person wished");
    assert_eq!(story.until_end(), "ended Some(0) None false 0", "{:?}", story.text());
    let told =
        "{\"terminal\":\"shown\"}\n{\"terminal\":\"left\"}\none line\nanother\n\n{\"terminal\":\"told\"}\n";
    assert_eq!(story.text(), told);
}

/// A terminal that does not know its size says nought.
#[test]
fn a_window_of_no_size_is_taken_for_a_usual_one() {
    let room = Room::new("nought");
    let story = start(&room, LONG_MS, ECHO, "true");
    story.write(1, "expect abc\n");
    let mut person = Person::come_with(&room, "abc", Size { columns: 0, lines: 0 });
    person.shows("24 80");
    person.viewer.typed(b"hello\r").expect("typed");
    person.shows("said hello");
    person.viewer.resized(Size { columns: 0, lines: 7 }).expect("told");
    person.viewer.resized(Size { columns: 70, lines: 20 }).expect("told");
    person.viewer.typed(b"\r").expect("typed");
    person.shows("20 70");
    person.viewer.leave().expect("told");
    assert_eq!(person.over(), "");
}

/// What is typed at once with the first word is not left lying.
#[test]
fn whoever_types_before_the_door_is_open_is_heard() {
    let room = Room::new("early");
    let mut story = start(&room, LONG_MS, ECHO, "true");
    let mut person = Person::come(&room, "abc");
    person.viewer.typed(b"early\r").expect("typed");
    story.write(1, "expect abc\n");
    person.shows("said early");
    person.viewer.leave().expect("told");
    assert_eq!(person.over(), "");
    assert!(story.until_end().starts_with("ended Some(0)"));
}

#[test]
fn nobody_who_is_not_expected_gets_in_and_a_token_is_good_for_one() {
    let room = Room::new("door");
    let mut story = start(&room, LONG_MS, ECHO, "echo last");
    story.write(1, "expect abc\nexpect\nnonsense\n");
    let mut first = Person::come(&room, "abc");
    first.shows("33 91");
    let others = ["abc", "", "abd", "expect"].map(|token| Person::come(&room, token));
    for mut other in others {
        assert!(other.over().contains("nobody with this token"));
        assert_eq!(other.screen, "");
    }
    // One who is expected takes the place, and the program shows everything anew.
    story.write(2, "expect def\n");
    let mut second = Person::come(&room, "def");
    assert!(first.over().contains("somebody else"), "{:?}", first.over);
    second.viewer.typed(b"\r").expect("typed");
    second.shows("window");
    story.write(3, "leave\n");
    assert_eq!(second.over(), "");
    assert!(story.until_end().starts_with("ended Some(0)"));
}

#[test]
fn a_program_starts_with_the_person_and_nobody_there_is_a_person_who_has_left() {
    let room = Room::new("nobody");
    let mut story = start(&room, 200, "touch started; echo up; sleep 1000", "echo last");
    assert_eq!(story.until_end(), "ended Some(0) None false 0");
    assert_eq!(story.text(), "", "nothing was shown, so nothing is told");
    assert!(!room.dir.join("started").exists());

    let room = Room::new("gone");
    // So long a person may take to come, on a machine that is busy.
    let mut story = start(&room, 3000, "touch started; echo up; sleep 1000", "echo last");
    story.write(1, "expect abc\n");
    let mut person = Person::come(&room, "abc");
    person.shows("up");
    drop(person);
    assert!(story.until_end().starts_with("ended Some(0)"));
    assert!(story.text().contains("{\"terminal\":\"left\"}\nlast\n"), "{}", story.text());
}

#[test]
fn the_end_of_the_program_is_the_persons_leaving_and_a_bad_one_is_told() {
    let room = Room::new("by-itself");
    let mut story = start(&room, LONG_MS, "echo bye; exit 3", "echo last");
    story.write(1, "expect abc\n");
    let mut person = Person::come(&room, "abc");
    assert_eq!(person.over(), "its program ended with exit code 3");
    assert!(person.screen.contains("bye"), "{:?}", person.screen);
    assert_eq!(story.until_end(), "ended Some(3) None false 0");
    assert!(story.text().contains("last"), "{}", story.text());
}

#[test]
fn a_stop_is_patient_with_what_is_to_be_told_and_a_killed_keeper_takes_all_with_it() {
    let room = Room::new("stop");
    let mut story = start(&room, LONG_MS, "echo $$ >pid; echo up; sleep 1000", "echo last");
    story.write(1, "expect abc\n");
    Person::come(&room, "abc").shows("up");
    story.send(&ToKeeper::Stop { grace_ms: 20_000 });
    assert!(story.until_end().contains("true 0"), "{:?}", story.events);
    assert!(story.text().contains("last"), "{}", story.text());

    let room = Room::new("killed");
    let mut story = start(&room, LONG_MS, "trap '' HUP TERM; echo $$ >pid; echo up; sleep 1000", "echo last");
    story.write(1, "expect abc\n");
    Person::come(&room, "abc").shows("up");
    let pid = std::fs::read_to_string(room.dir.join("pid")).expect("told").trim().parse().expect("a number");
    let inner = identity_of(pid).expect("it runs");
    kill(story.keeper());
    wait_for("the program is gone", || !is_alive(inner));
    story.until_gone();
}

/// The person's terminal takes nothing, and the program waits; then all of it comes.
#[test]
fn limits_a_screen_that_nobody_reads_holds_the_program_up() {
    let room = Room::new("slow");
    let script = "i=0; while [ $i -lt 20000 ]; do echo \"line $i of the long output\"; i=$((i+1)); done; \
        touch done; echo finished; sleep 1000";
    let mut story = start(&room, LONG_MS, script, "true");
    story.write(1, "expect abc\n");
    let mut person = Person::come(&room, "abc");
    let mut poll = Poll::default();
    poll.add(person.viewer.fd().as_fd(), true, false);
    poll.wait(Some(PATIENCE)).expect("something is there");
    // Some 600 KB are more than socket, buffer and terminal hold together.
    story.until_quiet(std::time::Duration::from_millis(300));
    assert!(!room.dir.join("done").exists(), "it waits");
    person.shows("finished");
    let lines = person.screen.lines().filter(|line| line.starts_with("line ")).count();
    assert_eq!(lines, 20_000, "nothing is left out");
}
