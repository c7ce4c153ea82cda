//! Who has a port that somebody else wants: asked of whoever answers there, and read from the kernel's tables
//! where nobody does. What is found is for people; nothing is decided by it but how long to wait.
//!
//! Source: proc(5): `/proc/net/tcp`, `/proc/PID/fd`, `/proc/PID/comm`.

use super::descriptors::holds;
use super::http::client;
use serde_json::Value;
use std::fmt;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a program at the port may take to say that it is a daemon of ours.
const ANSWER_WAIT: Duration = Duration::from_millis(500);
/// Bytes of its answer that are read.
const ANSWER_BYTES: u64 = 64 << 10;
/// Characters of a name that are shown.
const SHOWN_CHARS: usize = 200;
/// `TCP_LISTEN` as the tables write it.
const LISTENS: &str = "0A";

/// Who has a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A daemon like this one, for another project.
    Daemon {
        /// The root of its project, as it tells.
        project: String,
        /// Its process id, as it tells.
        pid: u64,
    },
    /// Some other program that we may look at.
    Program {
        /// What the kernel calls it.
        name: String,
        pid: u32,
    },
    /// Nobody can be seen: another user's program, or a system that does not tell.
    Unknown,
}

impl Holder {
    /// Whether it answers as a daemon, which will not go away by itself.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Self::Daemon { .. })
    }
}

impl fmt::Display for Holder {
    /// `in use (project /x, pid 7)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon { project, pid } => write!(f, "in use (project {project}, pid {pid})"),
            Self::Program { name, pid } => write!(f, "in use ({name}, pid {pid})"),
            Self::Unknown => f.write_str("in use (by a program that cannot be seen from here)"),
        }
    }
}

/// Who listens at this address, or at all addresses with its port.
pub fn holder_of(ip: IpAddr, port: u16) -> Holder {
    ask(SocketAddr::new(ip, port)).or_else(|| look(ip, port)).unwrap_or(Holder::Unknown)
}

/// The daemon that answers there, if one does.
fn ask(address: SocketAddr) -> Option<Holder> {
    // A proxy from the environment must never see calls to this machine.
    let config = client::strict().timeout_global(Some(ANSWER_WAIT)).proxy(None).build();
    let mut answer = config.new_agent().get(format!("http://{address}/api/status")).call().ok()?;
    let text = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_string().ok()?;
    let status: Value = serde_json::from_slice(text.as_bytes()).ok()?;
    Some(Holder::Daemon { project: plain(status["projectDir"].as_str()?), pid: status["pid"].as_u64()? })
}

/// Text of a stranger: no control characters, and not much of it.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}

fn look(ip: IpAddr, port: u16) -> Option<Holder> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|text| listeners(&text, ip, port))
        .collect();
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids
        .filter(|pid| *pid != std::process::id())
        .find(|pid| wanted.iter().any(|link| holds(*pid, link.as_bytes()).is_ok_and(|it_is| it_is)))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(Holder::Program { name: plain(name.trim_end()), pid })
}

/// The inodes of the sockets that listen at this port, on this address or on all.
fn listeners(table: &str, ip: IpAddr, port: u16) -> Vec<String> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let (own, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        let (own_ip, own_port) = super::socket_table::parse_address(own)?;
        let fits = own_port == port && (own_ip == ip.to_canonical() || own_ip.is_unspecified());
        (fits && *state == LISTENS).then(|| (*inode).to_owned())
    };
    table.lines().skip(1).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    #[test]
    fn only_sockets_that_listen_at_the_address_are_read_from_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:7AB7 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1\n   \
             1: 00000000:7AB7 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 222 1\n   \
             2: 0100007F:7AB7 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 333 1\n   \
             3: 0200007F:7AB7 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 444 1\n   \
             4: 0100007F:7AB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 555 1\n";
        if cfg!(target_endian = "little") {
            assert_eq!(listeners(table, IpAddr::V4(Ipv4Addr::LOCALHOST), 31415), ["111", "222"]);
        }
    }

    #[test]
    fn a_daemon_is_known_by_what_it_answers_and_a_stranger_is_not_believed_to_be_one() {
        for (answer, wanted) in [
            (
                r#"{"pid":7,"projectDir":"/a\u001b[2Jb"}"#,
                Some(Holder::Daemon { project: "/a[2Jb".into(), pid: 7 }),
            ),
            (r#"{"pid":7}"#, None),
            ("<html>", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    answer.len()
                );
                stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.as_bytes())).unwrap();
            });
            assert_eq!(ask(address), wanted, "{answer}");
            server.join().unwrap();
        }
    }
}
