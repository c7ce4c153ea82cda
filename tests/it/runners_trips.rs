//! How many round trips a start takes on another machine: a real sshd behind a pipe that holds back each byte
//! for half of one, for not every kernel has `tc netem`.

use crate::runners::{Host, add, check, executable, first_word, repository};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// One that dwarfs what this machine does meanwhile.
const ROUND_TRIP: Duration = Duration::from_secs(2);

/// Whether it takes that long already: the program is copied there before.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Passes bytes on, each half a round trip late.
fn late(mut from: TcpStream, mut to: TcpStream) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in receiver {
            while let Some(left) = due.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut chunk = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let late = if IS_LATE.load(Ordering::Relaxed) { ROUND_TRIP / 2 } else { Duration::ZERO };
        if sender.send((Instant::now() + late, chunk[..count].to_vec())).is_err() {
            break;
        }
    }
}

/// The port of this machine behind which the host is late.
fn far_away(address: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&address) else { continue };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || late(near, far));
            thread::spawn(move || late(far2, near2));
        }
    });
    port
}

#[test]
fn the_first_word_of_an_agent_there_comes_two_round_trips_later_than_of_one_here() {
    let Some(host) = Host::start() else { return };
    let config = std::fs::read_to_string(host.path("config")).unwrap();
    let line = config.lines().find_map(|line| line.trim().strip_prefix("HostName ")).unwrap().to_owned();
    let port = far_away(format!("{line}:22"));
    let own = format!("HostName 127.0.0.1\n    Port {port}\n    HostKeyAlias {line}");
    let config = config.replacen(&format!("HostName {line}"), &own, 1);
    executable(&host.path("config"), &config);
    let daemon = host.daemon(repository(1, 1));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    // The first brings the commit there, which is a further one; by its end a connection stands.
    let first = first_word(&daemon, "first", Some("box"));
    IS_LATE.store(true, Ordering::Relaxed);
    let here = first_word(&daemon, "here", None);
    let there = (0..3).map(|n| first_word(&daemon, &format!("there{n}"), Some("box"))).min().unwrap();
    let trips = there.saturating_sub(here).as_secs_f64() / ROUND_TRIP.as_secs_f64();
    eprintln!(
        "a round trip is {ROUND_TRIP:?}: here {here:?}, there {there:?} ({trips:.2}); at once {first:?}"
    );
    // What is beyond two is work of this machine, and less than a third.
    assert!(trips < 2.9, "{trips:.2}: here {here:?}, there {there:?}");
    // Where nobody listens there a line is a command, which takes one more.
    let doors = std::fs::read_dir(host.home().join(".local/state/svc/runners")).unwrap();
    let doors = doors.map(|entry| entry.unwrap().path());
    let doors: Vec<_> = doors.filter(|path| path.to_str().unwrap().contains("/doors-")).collect();
    assert_eq!(doors.len(), 1, "{doors:?}");
    std::fs::remove_file(&doors[0]).unwrap();
    let command = first_word(&daemon, "command", Some("box"));
    assert!(command > there, "{command:?}, {there:?}");
}
