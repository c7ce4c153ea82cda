//! Who is found to hold a connection.

use super::*;
use std::net::{TcpListener, TcpStream};

fn pair() -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (listener, client, server)
}

fn wanted(server: &TcpStream) -> String {
    let (peer, local) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
    let Found::Socket(inode) = socket(peer, local) else { panic!("the connection is not listed") };
    format!("socket:[{inode}]")
}

fn holder_at(server: &TcpStream) -> Holder {
    holder(&State::default(), server.peer_addr().unwrap(), server.local_addr().unwrap())
}

#[test]
fn decisions_4_the_kernel_tells_which_process_holds_the_other_end() {
    let (_listener, client, server) = pair();
    assert_eq!(holder_of(wanted(&server).as_bytes(), |pid, _| Some(pid)), Ok(std::process::id()));
    let theirs = holder_at(&server);
    assert_eq!(theirs, Holder::Unseen, "a daemon that asks itself was made to, and is nobody");
    drop(client);
}

#[test]
fn decisions_4_who_hangs_up_before_anybody_looks_is_nobody() {
    let (_listener, client, server) = pair();
    drop(client);
    assert_eq!(holder_at(&server), Holder::Unseen);
}

#[test]
fn decisions_4_a_thread_with_descriptors_of_its_own_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (connected, wait) = crossbeam_channel::bounded(1);
    let (end, ended) = crossbeam_channel::bounded::<()>(0);
    let thread = std::thread::spawn(move || {
        unshare_files();
        let client = TcpStream::connect(address).unwrap();
        connected.send(()).unwrap();
        let _ = ended.recv();
        drop(client);
    });
    wait.recv().unwrap();
    let (server, _) = listener.accept().unwrap();
    let wanted = wanted(&server);
    let own = std::process::id();
    assert!(!holds(own, wanted.as_bytes()).unwrap(), "the process's first table does not have it");
    assert_eq!(holder_of(wanted.as_bytes(), |pid, _| Some(pid)), Ok(own));
    drop(end);
    thread.join().unwrap();
}

/// Gives this thread a table of descriptors of its own.
#[allow(unsafe_code, reason = "unshare, which std does not offer")]
fn unshare_files() {
    // SAFETY: the call takes a number, and this thread uses no descriptor that another thread will close.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
}

#[test]
fn decisions_4_no_address_of_this_machine_is_elsewhere() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let lan = at("192.0.2.2:31415");
    assert!(is_elsewhere(at("192.0.2.1:5"), lan), "an address for documentation, of no machine");
    for own in ["127.0.0.1:5", "127.0.0.2:5", "[::1]:5", "192.0.2.2:5", "[::ffff:192.0.2.2]:5"] {
        assert!(!is_elsewhere(at(own), lan), "{own}");
    }
    assert!(
        !is_elsewhere(at("192.0.2.1:5"), at("127.0.0.1:31415")),
        "nobody else reaches the loopback address"
    );
    assert_eq!(holder(&State::default(), at("192.0.2.1:5"), lan), Holder::Elsewhere);
    assert_eq!(holder(&State::default(), at("192.0.2.1:5"), at("127.0.0.1:1")), Holder::Unseen);
}

#[test]
fn the_likely_callers_are_looked_at_first() {
    let mut pids: Vec<u32> = (1..=30).collect();
    order(&mut pids, &[20, 3, 99], 10);
    let wanted: Vec<u32> = [20, 3]
        .into_iter()
        .chain((23..=30).rev())
        .chain([9, 8, 7, 6, 5, 4, 2, 1])
        .chain((21..=22).rev())
        .collect();
    assert_eq!(pids[..wanted.len()], wanted, "recent, newest, older than us, then the rest");
    assert_eq!(pids.len(), 30, "nobody is left out");
    let mut few = vec![5, 7];
    order(&mut few, &[], 6);
    assert_eq!(few, [7, 5]);
}
