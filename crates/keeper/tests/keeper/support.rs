//! A keeper in a folder of its own, and what a test wants to know of it.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use svc_base::ids::AgentId;
use svc_keeper::client::{self, Link, Next};
use svc_keeper::protocol::{Note, Order, Over, Record, ToKeeper, records};
use svc_sys::process::{Identity, Marker, Processes, Spec, identity_of, kill};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const TOKEN: &str = "0123456789abcdef";

/// The program that is built beside the tests: a keeper.
pub fn program() -> OsString {
    let own = std::env::current_exe().expect("this program");
    let built =
        own.parent().and_then(|deps| deps.parent()).expect("a target folder").join("examples/svc-keep");
    assert!(built.exists(), "{} is built by 'cargo test -p svc-keeper'", built.display());
    built.into()
}

/// A folder of one run.
pub struct Room {
    pub dir: PathBuf,
    pub processes: Arc<Processes>,
}

impl Drop for Room {
    fn drop(&mut self) {
        // Only what a failed test has left is still there.
        if let Ok(Some(link)) = client::find(&self.dir, 0) {
            kill(keeper_of(&link));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn keeper_of(link: &Link) -> Identity {
    Identity { pid: link.welcome.pid, start_ticks: link.welcome.start_ticks }
}

impl Room {
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = std::process::id();
        let dir = std::env::temp_dir().join(format!("svc-keeper-{name}-{own}-{number}"));
        fs::create_dir_all(&dir).expect("a folder");
        Self { dir, processes: Processes::start().expect("a subreaper") }
    }

    /// The keeper started in here has these bounds.
    pub fn limits(self, text: &str) -> Self {
        fs::write(self.dir.join("limits"), text.replace(' ', "\n")).expect("written");
        self
    }

    pub fn order(&self, script: &str) -> Order {
        Order {
            token: TOKEN.into(),
            run_dir: self.dir.clone(),
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: self.dir.clone(),
            stdin: true,
            marker: Marker { agent: AgentId(0x00ab_cdef), project_dir: self.dir.clone() },
            stop_grace_ms: 10_000,
            orphan_ms: 60_000,
            nice: 0,
            ceiling: 0,
        }
    }

    pub fn start(&self, script: &str) -> Story {
        self.start_as(&self.order(script))
    }

    pub fn start_as(&self, order: &Order) -> Story {
        Story::new(client::start(&self.processes, program(), order).expect("a keeper"))
    }

    pub fn find(&self, from: u64) -> Story {
        let link = client::find(&self.dir, from).expect("it does not refuse").expect("a keeper is there");
        Story { end: from, ..Story::new(link) }
    }

    /// A pipe in the folder, for a script to wait at.
    pub fn gate(&self) -> PathBuf {
        self.tool("mkfifo", &["gate"]);
        self.dir.join("gate")
    }

    /// Runs a program to its end. By way of the reaper: nobody else waits for children.
    pub fn tool(&self, name: &str, args: &[&str]) {
        let done = self.processes.capture(&Spec::tool(name, args, &self.dir), b"", PATIENCE, 4096);
        assert!(done.expect("it ends").is_success(), "{name} {args:?}");
    }

    /// Names in the folder.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).expect("the folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }
}

/// What a keeper has told.
pub struct Story {
    pub link: Link,
    /// The offset behind the last record.
    pub end: u64,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    /// Everything but what was printed, as text.
    pub events: Vec<String>,
    pub program: Option<Identity>,
    pub over: Option<Over>,
}

impl Story {
    pub fn new(link: Link) -> Self {
        Self { link, end: 0, out: Vec::new(), err: Vec::new(), events: Vec::new(), program: None, over: None }
    }

    pub fn send(&self, order: &ToKeeper) {
        self.link.writer.send(order).expect("sent");
    }

    pub fn write(&self, seq: u64, text: &str) {
        self.send(&ToKeeper::Write { seq, note: None, bytes: text.into(), close: false });
    }

    pub fn write_noted(&self, seq: u64, text: &str) {
        let note = Note { after: seq, what: serde_json::json!({ "said": text }) };
        self.send(&ToKeeper::Write { seq, note: Some(note), bytes: text.into(), close: false });
    }

    pub fn close(&self, seq: u64) {
        self.send(&ToKeeper::Write { seq, note: None, bytes: Vec::new(), close: true });
    }

    pub fn taken(&self, offset: u64, seq: u64) {
        self.send(&ToKeeper::Taken { offset, seq });
    }

    /// Reads on until it is so.
    pub fn until(&mut self, wanted: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            match self.link.reader.next(Some(deadline)) {
                Next::Records { offset, len } => self.take(offset, len),
                other => panic!("{wanted}: {other:?} after {:?} and {} bytes", self.events, self.out.len()),
            }
        }
    }

    fn take(&mut self, offset: u64, len: usize) {
        assert_eq!(offset, self.end, "nothing is left out or told twice");
        assert_eq!(len, self.link.reader.bytes().len());
        for (behind, time, record) in records(self.link.reader.bytes()) {
            assert!(time > 1_600_000_000_000, "{time}");
            self.end = offset + behind;
            match record {
                Record::Out(bytes) => self.out.extend(bytes),
                Record::Err(bytes) => self.err.extend(bytes),
                Record::Started { pid, start_ticks } => self.program = Some(Identity { pid, start_ticks }),
                Record::Ended { code, signal, signalled, leaked, over, .. } => {
                    self.over = over;
                    self.events.push(format!("ended {code:?} {signal:?} {signalled} {leaked}"));
                }
                other => self.events.push(format!("{other:?}")),
            }
        }
        assert_eq!(self.end, offset + len as u64, "whole records");
    }

    pub fn until_out(&mut self, text: &str) {
        self.until(text, |story| String::from_utf8_lossy(&story.out).contains(text));
    }

    pub fn until_event(&mut self, text: &str) {
        self.until(text, |story| story.events.iter().any(|event| event.contains(text)));
    }

    /// Reads on to the last record.
    pub fn until_end(&mut self) -> String {
        self.until_event("ended");
        self.events.last().cloned().unwrap_or_default()
    }

    /// Reads on as long as something comes within `pause`.
    pub fn until_quiet(&mut self, pause: Duration) {
        loop {
            match self.link.reader.next(Some(Instant::now() + pause)) {
                Next::TimedOut => return,
                Next::Records { offset, len } => self.take(offset, len),
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn until_gone(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.link.reader.next(Some(deadline)) {
                Next::Gone => return,
                Next::Records { offset, len } => self.take(offset, len),
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    pub fn keeper(&self) -> Identity {
        keeper_of(&self.link)
    }
}

pub fn is_alive(process: Identity) -> bool {
    identity_of(process.pid) == Some(process)
}

/// Waits for something that no event tells.
pub fn wait_for(wanted: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{wanted}");
        std::thread::yield_now();
    }
    began.elapsed()
}
