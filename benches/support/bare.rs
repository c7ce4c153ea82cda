//! A bare handler in a process of its own, on the same HTTP edge: what is compared with.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use svc_base::api::{Body, Method, Reply, Request};
use svc_sys::http::{self, Config, Limits, Policy, Server};

/// Answers everything with the same bytes: what the edge itself costs.
struct Bare(u16, Arc<[u8]>);

impl http::Service for Bare {
    fn body_limit(&self, _: &Method, _: &[String]) -> usize {
        0
    }

    fn handle(&self, _: &Request) -> Reply {
        let body = Body::Shared(Arc::clone(&self.1));
        Reply { status: self.0, content_type: "application/json", headers: Vec::new(), body }
    }
}

/// Serves until its input ends.
pub fn serve_bare(status: u16, bytes: usize) {
    let bound = http::bind("127.0.0.1", http::Port::Named(0), Duration::ZERO).unwrap();
    let policy = Policy::local(bound.address.ip());
    let config = Config { limits: Limits::default(), policy, server: "bare" };
    let server = Server::start(bound, config, Arc::new(Bare(status, vec![b' '; bytes].into()))).unwrap();
    println!("{}", server.address());
    // It ends with its input.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A process of a bare handler; ends when dropped.
pub struct BareProcess(pub Child, pub SocketAddr);

impl BareProcess {
    pub fn start(status: u16, bytes: usize, command: impl FnOnce(&Command) -> Command) -> Self {
        let mut given = Command::new(std::env::current_exe().unwrap());
        given.args(["--bare", &status.to_string(), &bytes.to_string()]);
        let mut command = command(&given);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().parse().unwrap())
    }
}

impl Drop for BareProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
