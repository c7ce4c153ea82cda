//! Who is calling: the kernel knows which process holds the other end of a loopback connection, and that
//! process may be an agent's. Looked up only for endpoints that agents may not use.
//!
//! Source: proc(5), `/proc/net/tcp`, `/proc/PID/fd`, `/proc/PID/stat`.

use super::process::agent_of;
use crate::core::State;
use crate::core::ids::AgentId;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Ancestors looked at, so that a damaged process table cannot keep us here.
const MAX_ANCESTORS: usize = 64;

/// The agent whose process calls, if it is one's. `None` also where the kernel cannot tell.
pub fn calling_agent(state: &State, peer: SocketAddr, local: SocketAddr) -> Option<AgentId> {
    let inode = socket_inode(peer, local)?;
    let mut pid = owner_of(inode)?;
    for _ in 0..MAX_ANCESTORS {
        if pid <= 1 || pid == state.project.pid {
            return None;
        }
        if let Some(agent) = agent_of(pid, &state.project.dir) {
            return Some(agent);
        }
        if let Some(agent) = state.agents.live().find(|agent| agent.pid == Some(pid)) {
            return Some(agent.id);
        }
        pid = parent_of(pid)?;
    }
    None
}

/// The inode of the socket whose own end is `peer` and whose other end is `local`.
fn socket_inode(peer: SocketAddr, local: SocketAddr) -> Option<u64> {
    let tables = if peer.is_ipv4() { ["/proc/net/tcp", "/proc/net/tcp6"] } else { ["/proc/net/tcp6", ""] };
    tables.iter().filter_map(|table| fs::read_to_string(table).ok()).find_map(|text| {
        text.lines().skip(1).find_map(|line| {
            let mut columns = line.split_ascii_whitespace();
            let own = parse_address(columns.nth(1)?)?;
            let other = parse_address(columns.next()?)?;
            let inode = columns.nth(6)?.parse().ok()?;
            (own == plain(peer) && other == plain(local) && inode != 0).then_some(inode)
        })
    })
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// `0100007F:7A69`: 32-bit words in host byte order, then the port.
fn parse_address(text: &str) -> Option<(IpAddr, u16)> {
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

fn owner_of(inode: u64) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut descriptors = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        descriptors
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == wanted.as_str()))
            .then_some(pid)
    })
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself contain spaces and parentheses.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn decisions_4_the_kernel_tells_which_process_holds_the_other_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let inode = socket_inode(peer, server.local_addr().unwrap()).unwrap();
        assert_eq!(owner_of(inode), Some(std::process::id()));
        assert!(parent_of(std::process::id()).is_some_and(|pid| pid > 0));
        drop(client);
    }

    #[test]
    fn addresses_of_the_kernels_table_are_read() {
        let v4 = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(parse_address(&format!("{v4:08X}:7AB7")), Some(("127.0.0.1".parse().unwrap(), 31415)));
        assert_eq!(parse_address("nonsense"), None);
    }
}
