//! Which socket is at the other end of a connection on this machine: asked of the kernel by its exact
//! address, and read from its tables where it does not answer. The tables take milliseconds whatever their
//! size; the question takes microseconds.
//!
//! Source: `sock_diag(7)`, proc(5).
#![allow(unsafe_code, reason = "netlink sockets, which std does not offer")]

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

/// What the kernel says of a connection's other end.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// It is on this machine; its inode.
    Socket(u64),
    /// It is not on this machine, or was closed.
    Gone,
    /// The kernel tells nothing of the kind, or could not be asked.
    NotTold,
}

/// Opens what the kernel is asked through, so that it is there when no descriptor is left.
pub fn prepare() {
    diag::prepare();
}

/// The socket whose own end is `peer` and whose other end is `local`.
pub fn socket(peer: SocketAddr, local: SocketAddr) -> Found {
    // A refusal may also mean that the kernel has no such service, so only the tables say "gone".
    diag::ask(peer, local).unwrap_or_else(|| tables(peer, local))
}

fn tables(peer: SocketAddr, local: SocketAddr) -> Found {
    let mut found = Found::Gone;
    let names: &[&str] =
        if peer.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"] } else { &["/proc/net/tcp6"] };
    for name in names {
        let text = match fs::read_to_string(name) {
            Ok(text) => text,
            // A machine without the newer protocol has no second table.
            Err(error) if error.kind() == ErrorKind::NotFound && name.ends_with('6') => continue,
            Err(_) => {
                found = Found::NotTold;
                continue;
            }
        };
        if let Some(inode) = row(&text, peer, local).filter(|inode| *inode != 0) {
            return Found::Socket(inode);
        }
    }
    found
}

fn row(text: &str, peer: SocketAddr, local: SocketAddr) -> Option<u64> {
    let port = format!(":{:04X} ", peer.port());
    text.lines().skip(1).filter(|line| line.contains(&port)).find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let own = parse_address(columns.nth(1)?)?;
        let other = parse_address(columns.next()?)?;
        let inode = columns.nth(6)?.parse().ok()?;
        (own == plain(peer) && other == plain(local)).then_some(inode)
    })
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// `0100007F:7A69`: 32-bit words in host byte order, then the port.
pub fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .filter_map(|word| u32::from_str_radix(address.get(word * 8..word * 8 + 8)?, 16).ok())
        .map(u32::to_ne_bytes)
        .collect();
    let ip = match words.as_slice() {
        [word] => IpAddr::from(*word),
        [a, b, c, d] => {
            let bytes: Vec<u8> = [a, b, c, d].into_iter().flatten().copied().collect();
            IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(target_os = "linux")]
mod diag {
    use super::Found;
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::{Mutex, PoisonError};

    /// Through which all questions go, one after the other; it stays open.
    static SOCKET: Mutex<Line> = Mutex::new(Line { socket: None, questions: 0 });

    struct Line {
        socket: Option<OwnedFd>,
        questions: u32,
    }

    /// `SOCK_DIAG_BY_FAMILY`, also the type of its answer.
    const BY_FAMILY: u16 = 20;
    /// Bytes of `nlmsghdr`.
    const HEADER: usize = 16;
    /// Where the header has the number of the question.
    const NUMBER_AT: usize = 8;
    /// Bytes of the question: the header and `inet_diag_req_v2`.
    const QUESTION: usize = HEADER + 56;
    /// Bytes of the answer: the header and `inet_diag_msg`; attributes may follow.
    const ANSWER: usize = HEADER + 72;
    /// Where the answer has the inode.
    const INODE_AT: usize = HEADER + 68;

    /// Opens the socket, so that the first caller need not wait for it.
    pub fn prepare() {
        let mut line = SOCKET.lock().unwrap_or_else(PoisonError::into_inner);
        if line.socket.is_none() {
            line.socket = open();
        }
    }

    fn open() -> Option<OwnedFd> {
        // SAFETY: socket takes numbers and returns a new descriptor or -1.
        let fd = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG)
        };
        if fd < 0 {
            return None;
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Asks for exactly this socket; `None` when there is no good answer.
    pub fn ask(peer: SocketAddr, local: SocketAddr) -> Option<Found> {
        prepare();
        let mut line = SOCKET.lock().unwrap_or_else(PoisonError::into_inner);
        line.questions = line.questions.wrapping_add(1);
        let number = line.questions;
        let socket = line.socket.as_ref()?;
        let question = question(peer, local, number)?;
        // SAFETY: the pointer and the length are those of a live array; the kernel only reads it.
        let sent = unsafe { libc::send(socket.as_raw_fd(), question.as_ptr().cast(), QUESTION, 0) };
        if usize::try_from(sent) != Ok(QUESTION) {
            return None;
        }
        let mut answer = [0_u8; 1024];
        loop {
            // The answer is there when the question has been sent: the kernel makes it within that call.
            // SAFETY: the pointer and the length are those of a live array that nothing else looks at.
            let length = unsafe {
                libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT)
            };
            let answer = answer.get(..usize::try_from(length).ok()?)?;
            // What an earlier question has left unread is no answer to this one.
            if answer.get(NUMBER_AT..NUMBER_AT + 4)? == number.to_ne_bytes() {
                return read(answer, peer.port(), local.port());
            }
        }
    }

    fn question(peer: SocketAddr, local: SocketAddr, number: u32) -> Option<[u8; QUESTION]> {
        let (family, source, target) = match (peer.ip().to_canonical(), local.ip().to_canonical()) {
            (IpAddr::V4(peer), IpAddr::V4(local)) => {
                (libc::AF_INET, wide(peer.octets()), wide(local.octets()))
            }
            (IpAddr::V6(peer), IpAddr::V6(local)) => (libc::AF_INET6, peer.octets(), local.octets()),
            _ => return None,
        };
        let mut bytes = [0; QUESTION];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&u32::try_from(QUESTION).ok()?.to_ne_bytes());
        put(&BY_FAMILY.to_ne_bytes());
        put(&u16::try_from(libc::NLM_F_REQUEST).ok()?.to_ne_bytes());
        put(&number.to_ne_bytes());
        put(&[0; 4]);
        put(&[u8::try_from(family).ok()?, u8::try_from(libc::IPPROTO_TCP).ok()?, 0, 0]);
        // All states.
        put(&u32::MAX.to_ne_bytes());
        put(&peer.port().to_be_bytes());
        put(&local.port().to_be_bytes());
        put(&source);
        put(&target);
        // Any interface, any cookie.
        put(&[0; 4]);
        put(&[0xff; 8]);
        Some(bytes)
    }

    fn wide(octets: [u8; 4]) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&octets);
        bytes
    }

    /// The answer, if it is one and speaks of these ports: the kernel falls back on listening sockets.
    fn read(answer: &[u8], own: u16, other: u16) -> Option<Found> {
        let small = |at: usize| Some(u16::from_be_bytes(answer.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
        let is_it = answer.len() >= ANSWER
            && kind == BY_FAMILY
            && small(HEADER + 4)? == own
            && small(HEADER + 6)? == other;
        let inode = word(INODE_AT)?;
        (is_it && inode != 0).then(|| Found::Socket(inode.into()))
    }
}

#[cfg(not(target_os = "linux"))]
mod diag {
    use super::Found;
    use std::net::SocketAddr;

    /// Nothing: this system has no such socket.
    pub fn prepare() {}

    /// Nobody, which makes the caller unknown.
    pub fn ask(_peer: SocketAddr, _local: SocketAddr) -> Option<Found> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernels_answer_and_its_tables_agree() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without this protocol has nothing to agree on.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let local = server.local_addr().unwrap();
            let found = tables(peer, local);
            assert!(matches!(found, Found::Socket(_)), "{address}: {found:?}");
            assert_eq!(socket(peer, local), found);
            assert!(diag::ask(peer, local).is_none_or(|told| told == found));
            drop(client);
            assert_eq!(socket(peer, local), Found::Gone, "{address}: hung up");
        }
    }

    #[test]
    fn addresses_of_the_kernels_table_are_read() {
        let v4 = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(parse_address(&format!("{v4:08X}:7AB7")), Some(("127.0.0.1".parse().unwrap(), 31415)));
        assert_eq!(parse_address("nonsense"), None);
    }
}
