//! Clients that ask a service of this machine again and again, and how long each answer took.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clock ticks of `/proc/PID/stat` in a second, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

/// A keep-alive connection that speaks just enough HTTP.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: vec![0; 256 << 10] }
    }

    /// Sends a request and reads the whole answer, which must have this status.
    pub fn ask(&mut self, request: &[u8], status: u16) {
        self.stream.write_all(request).unwrap();
        let mut filled = 0;
        loop {
            let n = self.stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(n > 0, "the connection ended");
            filled += n;
            let Some(end) = self.buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end]).unwrap();
            assert!(head[9..].starts_with(&status.to_string()), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let whole = end + 4 + if status == 304 { 0 } else { length.unwrap().parse::<usize>().unwrap() };
            self.buffer.resize(whole.max(self.buffer.len()), 0);
            while filled < whole {
                let n = self.stream.read(&mut self.buffer[filled..]).unwrap();
                assert!(n > 0, "the connection ended");
                filled += n;
            }
            return;
        }
    }
}

/// What one measurement gave.
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// Requests a second of CPU time that the process used.
    pub rate_per_core: f64,
    /// Sorted, in microseconds.
    pub times: Vec<u64>,
}

impl Load {
    pub fn percentile(&self, part: usize) -> f64 {
        let at = (self.times.len() * part / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).map_or(f64::NAN, |micros| to_f64(*micros) / 1000.0)
    }
}

/// CPU seconds that a process has used.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default().to_owned();
    // utime and stime, counted from the field after the name; the first one is a letter.
    let fields: Vec<u64> = rest.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    to_f64(fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0)) / TICKS_PER_SECOND
}

/// Asks for a while over so many connections; `request` makes the n-th request.
pub fn load(
    address: SocketAddr,
    pid: u32,
    connections: usize,
    time: Duration,
    status: u16,
    request: &(impl Fn(u64) -> Vec<u8> + Sync),
) -> Load {
    let next = AtomicU64::new(0);
    let cpu = cpu_seconds(pid);
    let began = Instant::now();
    let mut times: Vec<u64> = std::thread::scope(|scope| {
        let one = || {
            let mut client = Client::connect(address);
            let mut times = Vec::new();
            while began.elapsed() < time {
                let bytes = request(next.fetch_add(1, Ordering::Relaxed));
                let sent = Instant::now();
                client.ask(&bytes, status);
                times.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            times
        };
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = to_f64(times.len() as u64);
    let (rate, used) = (count / began.elapsed().as_secs_f64(), cpu_seconds(pid) - cpu);
    times.sort_unstable();
    Load { rate, rate_per_core: count / used, times }
}

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}
