//! Who is not heard.

use super::support::{PATIENCE, Room, TOKEN};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use svc_keeper::client;
use svc_keeper::protocol::{FromKeeper, ToKeeper, VERSION};

fn connect(room: &Room) -> UnixStream {
    let socket = UnixStream::connect(room.dir.join("sock")).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    socket
}

/// The whole answer, up to the end of the connection.
fn answer(mut socket: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // One that is closed with something unread is reset, which ends it as well.
    let _ = socket.read_to_end(&mut bytes);
    bytes
}

fn refusal(socket: UnixStream) -> String {
    let bytes = answer(socket);
    match FromKeeper::decode(bytes[4], &bytes[5..]) {
        Ok(FromKeeper::Refused { why }) => why,
        other => panic!("{other:?}"),
    }
}

fn hello(version: u32, token: &str, from: u64) -> Vec<u8> {
    ToKeeper::Hello { version, token: token.into(), from }.encode().expect("short")
}

#[test]
fn only_the_right_word_is_answered() {
    let room = Room::new("token");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    for (word, why) in [
        (hello(VERSION, "0123456789abcdeF", 0), "token"),
        (hello(VERSION, "", 0), "token"),
        (hello(VERSION + 1, TOKEN, 0), "version"),
        (hello(VERSION, TOKEN, 1), "no record ends at 1"),
        (hello(VERSION, TOKEN, u64::MAX), "no record ends at"),
        (ToKeeper::Stop { grace_ms: 0 }.encode().expect("short"), "Hello"),
    ] {
        let mut socket = connect(&room);
        socket.write_all(&word).expect("sent");
        let told = refusal(socket);
        assert!(told.contains(why), "{told}");
    }
    // Nobody has taken over.
    story.write(1, "still here\n");
    story.until_out("still here");
}

#[test]
fn garbage_is_not_answered_and_disturbs_nobody() {
    let room = Room::new("garbage");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    let whole = hello(VERSION, TOKEN, 0);
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[5, 0, 0, 0, 3, b'{', b'}', b'[', b']', 0],
        &[0, 0, 0, 0, 9],
        // Longer than a stranger's first word may be.
        &[0, 0, 1, 0, 3],
    ] {
        let mut socket = connect(&room);
        socket.write_all(garbage).expect("sent");
        assert_eq!(answer(socket), b"");
    }
    // Half a word, and nothing more.
    let mut socket = connect(&room);
    socket.write_all(&whole[..whole.len() - 1]).expect("sent");
    socket.shutdown(std::net::Shutdown::Write).expect("closed");
    assert_eq!(answer(socket), b"");
    story.write(1, "still here\n");
    story.until_out("still here");
}

#[test]
fn a_daemon_that_breaks_the_protocol_is_parted_with_and_the_run_goes_on() {
    let room = Room::new("broken");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    for garbage in [&[0xff; 64][..], &[2, 0, 0, 0, 3, b'{', b'}'], &hello(VERSION, TOKEN, 0)] {
        let mut socket = connect(&room);
        socket.write_all(&[&hello(VERSION, TOKEN, story.end), garbage].concat()).expect("sent");
        // Nothing but the end follows the welcome, if that still went out.
        answer(socket);
    }
    let mut next = room.find(story.end);
    next.write(1, "still here\n");
    next.until_out("still here");
}

#[test]
fn a_word_that_drips_is_not_waited_for() {
    let room = Room::new("drip").limits("hello_ms=300");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    // As many as may wait, each of which has begun to speak.
    let strangers: Vec<UnixStream> = (0..4)
        .map(|_| {
            let mut socket = connect(&room);
            socket.write_all(&hello(VERSION, TOKEN, 0)[..7]).expect("sent");
            socket
        })
        .collect();
    // The fifth waits behind them until their time is over.
    let mut next = room.find(story.end);
    for socket in strangers {
        assert_eq!(answer(socket), b"");
    }
    next.write(1, "heard\n");
    next.until_out("heard");
}

#[test]
fn what_finds_a_keeper_is_its_users_alone() {
    let room = Room::new("modes");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    for name in ["keeper.json", "keeper.log", "sock"] {
        let mode = fs::symlink_metadata(room.dir.join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let proc = |name: &str| fs::read(format!("/proc/{}/{name}", story.keeper().pid)).expect("readable");
    assert!(proc("environ").is_empty());
    let line = String::from_utf8(proc("cmdline")).expect("text");
    assert_eq!(line.split('\0').skip(1).collect::<Vec<_>>(), ["__keep", ""]);
    assert!(!line.contains(TOKEN));
}

#[test]
fn a_folder_without_a_keeper_is_cleaned_and_one_of_another_version_is_told() {
    let room = Room::new("stale");
    assert!(client::find(&room.dir.join("none"), 0).expect("no error").is_none());
    let stale = |version: u32, pid: u32| {
        let text =
            format!(r#"{{"version":{version},"pid":{pid},"startTicks":1,"token":"x","agent":"00000001"}}"#);
        fs::write(room.dir.join("keeper.json"), text).expect("written");
        fs::write(room.dir.join("sock"), "").expect("written");
    };
    // A process of that number there is, but it is another.
    stale(VERSION, std::process::id());
    assert!(client::find(&room.dir, 0).expect("no error").is_none());
    assert_eq!(room.names(), [""; 0]);
    stale(VERSION + 1, 1);
    assert!(client::find(&room.dir, 0).is_err_and(|why| why.contains("is of version 2")));
    fs::write(room.dir.join("keeper.json"), "{").expect("written");
    assert!(client::find(&room.dir, 0).is_err_and(|why| why.contains("no JSON")));
}

#[test]
fn a_keeper_is_found_below_a_path_that_no_socket_address_has_room_for() {
    let mut room = Room::new("long");
    let short = room.dir.clone();
    room.dir = short.join("a".repeat(200)).join("b".repeat(200));
    fs::create_dir_all(&room.dir).expect("a folder");
    let mut story = room.start("echo ready; exec cat");
    story.until_out("ready");
    let mut next = room.find(0);
    next.close(1);
    next.until_end();
    next.send(&ToKeeper::Forget);
    next.until_gone();
    fs::remove_dir_all(short).expect("removed");
}
