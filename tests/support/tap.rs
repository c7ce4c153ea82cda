//! A tap on the line between a program and a server of this machine: passes all bytes on, keeps those of the
//! program.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Bytes kept; more than one agent program sends in a test.
const KEPT_BYTES: usize = 32 << 20;

/// A running tap. Its threads end with the test's process.
pub struct Tap {
    /// `http://127.0.0.1:PORT`: where the program is to call.
    pub url: String,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    /// Starts one in front of the server at `http://ADDRESS`.
    pub fn start(server: &str) -> Self {
        let server: SocketAddr = server.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (there, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let kept = Arc::clone(&kept);
                thread::spawn(move || pass(there, server, Some(&kept)));
                thread::spawn(move || pass(back, client, None));
            }
        });
        Self { url, sent }
    }

    /// All that was sent so far, heads and bodies, as text.
    pub fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, kept: Option<&Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        if let Some(kept) = kept {
            let mut kept = kept.lock().unwrap();
            let room = KEPT_BYTES.saturating_sub(kept.len()).min(count);
            kept.extend_from_slice(&buffer[..room]);
        }
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
