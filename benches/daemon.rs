//! Speed and memory of the built daemon, as one table with the machine. Medians of at least five runs.
//!
//! `cargo bench` builds the release daemon first. `cargo bench -- --json` prints the same as JSON,
//! `cargo bench --bench daemon -- callers` only that section.

#[path = "support/load.rs"]
#[allow(dead_code, reason = "shared with other benches")]
mod load;
#[path = "../tests/support/mod.rs"]
mod support;

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::daemon::{Daemon, next_message};
use support::folder::Folder;
use support::processes::resident_bytes;
use support::wait::wait_for;
use svc::api::{Body, Method, Reply, Request};
use svc_sys::http::{self, Config, Limits, Policy, Server};

const RUNS: usize = 5;
const LOAD: Duration = Duration::from_millis(700);
/// Requests of one measurement at most, so that a quick machine does not go on for ever.
const MAX_REQUESTS: u64 = 200_000;

/// One line of the table.
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    target: Option<f64>,
    more_is_better: bool,
}

#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    fn add(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.0.push(Row { what: what.into(), value, unit, target: None, more_is_better: false });
    }

    fn at_most(&mut self, what: &str, value: f64, unit: &'static str, target: f64) {
        self.0.push(Row { what: what.into(), value, unit, target: Some(target), more_is_better: false });
    }

    fn print(&self) {
        println!("{:<58} {:>12}  {:<8} target", "", "median", "unit");
        for row in &self.0 {
            let target = row.target.map_or(String::new(), |target| {
                let ok = if row.more_is_better { row.value >= target } else { row.value <= target };
                format!("{target} {}", if ok { "ok" } else { "MISSED" })
            });
            println!("{:<58} {:>12.2}  {:<8} {target}", row.what, row.value, row.unit);
        }
    }

    fn json(&self) -> Value {
        let row =
            |row: &Row| json!({"what": row.what, "value": row.value, "unit": row.unit, "target": row.target});
        self.0.iter().map(row).collect()
    }
}

/// Measures something and adds its rows.
type Section = fn(&mut Table);

fn main() {
    let sections: [(&str, Section); 9] = [
        ("start-up", start_up),
        ("idle", idle),
        ("requests", requests),
        ("callers", callers),
        ("changes", changes),
        ("agents", agents),
        ("first-words", first_words),
        ("push", push),
        ("ingest", ingest),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut table = Table::default();
    for (name, measure) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            measure(&mut table);
        }
    }
    if std::env::args().any(|arg| arg == "--json") {
        println!("{}", json!({"machine": machine(), "rows": table.json()}));
    } else {
        println!("{}\n", machine());
        table.print();
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map_or("", |m| m.1);
    let memory = read("/proc/meminfo").lines().next().unwrap_or_default().to_owned();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{},{} cores, {}, Linux {}", model.trim(), cores(), memory, kernel.trim())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn percentile(sorted: &[u64], part: usize) -> f64 {
    let at = (sorted.len() * part / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |micros| to_f64(*micros) / 1000.0)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// A project with this many agents allowed and these scenarios.
fn project(scenarios: &[(&str, Value)]) -> Arc<Folder> {
    let folder = Arc::new(Folder::new("bench"));
    folder.write(".svc/config.json", r#"{"maxAgents": 100}"#);
    for (name, steps) in scenarios {
        let scenario = json!({"description": name, "steps": steps});
        folder.write(&format!(".svc/rehearsals/{name}.json"), &scenario.to_string());
    }
    folder
}

/// Process start to the first 200 of `/api/health`.
fn start_up(table: &mut Table) {
    let once = || {
        let folder = Folder::new("bench-start");
        let began = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["start", "--port", "0", "--project"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
            .unwrap();
        let address = line.trim().rsplit('/').next().unwrap().parse().unwrap();
        let mut client = Client::connect(address);
        assert!(client.get("/api/health") > 0);
        let took = millis(began);
        child.kill().unwrap();
        child.wait().unwrap();
        took
    };
    let runs = (0..11).map(|_| once()).collect();
    table.at_most("start-up: process start to first 200", median(runs), "ms", 50.0);
}

fn idle(table: &mut Table) {
    let daemon = Daemon::start();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default().to_owned();
        let fields: Vec<u64> = rest.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        // utime and stime, counted from the field after the state.
        fields.get(10).unwrap_or(&0) + fields.get(11).unwrap_or(&0)
    };
    wait_for("detection to end", || daemon.get("/api/providers")[0]["id"].is_string().then_some(()));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(3));
    table.at_most("idle: CPU in 3 s", to_f64(ticks() - before), "ticks", 0.0);
    table.at_most("idle: resident memory", to_f64(resident_bytes(daemon.pid())) / 1e6, "MB", 10.0);
    let size = std::fs::metadata(env!("CARGO_BIN_EXE_svc")).map_or(0, |meta| meta.len());
    table.at_most("size of the stripped binary", to_f64(size) / 1e6, "MB", 12.0);
}

/// A keep-alive connection that speaks just enough HTTP.
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: vec![0; 256 << 10] }
    }

    /// Bytes of the body.
    fn get(&mut self, path: &str) -> usize {
        write!(self.stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut filled = 0;
        loop {
            let n = self.stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(n > 0, "the connection ended");
            filled += n;
            let Some(end) = self.buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end]).unwrap();
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            let whole = end + 4 + length.parse::<usize>().unwrap();
            if self.buffer.len() < whole {
                self.buffer.resize(whole, 0);
            }
            if filled >= whole {
                return whole - end - 4;
            }
        }
    }
}

/// Requests per second, and the sorted times in microseconds.
fn load(address: SocketAddr, path: &str, connections: u64) -> (f64, Vec<u64>) {
    let began = Instant::now();
    let left = AtomicU64::new(MAX_REQUESTS);
    let mut times: Vec<u64> = std::thread::scope(|scope| {
        let one = || {
            let mut client = Client::connect(address);
            let mut times = Vec::new();
            while began.elapsed() < LOAD && left.fetch_sub(1, Ordering::Relaxed) > 1 {
                let sent = Instant::now();
                client.get(path);
                times.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            times
        };
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let rate = to_f64(times.len() as u64) / began.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate, times)
}

/// Answers everything with the same bytes: what the edge itself costs.
struct Bare(Arc<[u8]>);

fn bare_server(answer: Vec<u8>) -> Server {
    let bound = http::bind("127.0.0.1", http::Port::Named(0), Duration::ZERO).unwrap();
    let policy = Policy::local(bound.address.ip());
    let config = Config { limits: Limits::default(), policy, server: "bare" };
    Server::start(bound, config, Arc::new(Bare(answer.into()))).unwrap()
}

impl http::Service for Bare {
    fn body_limit(&self, _: &Method, _: &[String]) -> usize {
        0
    }

    fn handle(&self, _: &Request) -> Reply {
        let body = Body::Shared(Arc::clone(&self.0));
        Reply { status: 200, content_type: "application/json", headers: Vec::new(), body }
    }
}

fn requests(table: &mut Table) {
    let daemon = Daemon::start_in(project(&[]), &[]);
    let ids: Vec<String> = (0..50).map(|_| daemon.spawn("hang")).collect();
    for id in &ids {
        daemon.wait_state(id, &["running"]);
    }
    let address: SocketAddr = daemon.url.trim_start_matches("http://").parse().unwrap();
    for path in ["/api/health", "/api/agents"] {
        let bare = bare_server(daemon.get(path).to_string().into_bytes());
        for connections in [1, 16, 64] {
            let runs: Vec<_> = (0..RUNS).map(|_| load(address, path, connections)).collect();
            let what = |figure: &str| format!("GET {path}, 50 agents, {connections} connections: {figure}");
            let rate = median(runs.iter().map(|(rate, _)| *rate).collect());
            table.add(what("rate"), rate, "req/s");
            table.add(
                what("p50"),
                median(runs.iter().map(|(_, times)| percentile(times, 50)).collect()),
                "ms",
            );
            table.add(
                what("p99"),
                median(runs.iter().map(|(_, times)| percentile(times, 99)).collect()),
                "ms",
            );
            let bare_rate = median((0..RUNS).map(|_| load(bare.address(), path, connections).0).collect());
            table.add(what("rate against a bare handler of the same size"), rate / bare_rate, "ratio");
        }
    }
    table.add("resident memory with 50 live agents", to_f64(resident_bytes(daemon.pid())) / 1e6, "MB");
}

/// What it costs to know who calls: the first guarded request of a connection against an open one, and the
/// next ones of the same connection. This process is older than all agents, so all of them are looked at
/// before it.
fn callers(table: &mut Table) {
    let daemon = Daemon::start_in(project(&[]), &[]);
    let ids: Vec<String> = (0..50).map(|_| daemon.spawn("hang")).collect();
    for id in &ids {
        daemon.wait_state(id, &["running"]);
    }
    let address: SocketAddr = daemon.url.trim_start_matches("http://").parse().unwrap();
    let timed = |client: &mut Client, path: &str| {
        let began = Instant::now();
        client.get(path);
        millis(began)
    };
    let first = |path: &str| median((0..101).map(|_| timed(&mut Client::connect(address), path)).collect());
    let (open, guarded) = ("/api/approvals", "/api/credentials");
    let look = (0..RUNS).map(|_| first(guarded) - first(open)).collect();
    let what = "knowing the caller, 50 agents: first request of a connection";
    table.at_most(what, median(look), "ms", 3.0);
    let mut kept = Client::connect(address);
    kept.get(guarded);
    let mut later = |path: &str| median((0..1001).map(|_| timed(&mut kept, path)).collect());
    let after = (0..RUNS).map(|_| later(guarded) - later(open)).collect();
    table.add("knowing the caller, 50 agents: every later one", median(after), "ms");
}

/// Changes a second that are on disk before their answers: locks declared and completed.
fn changes(table: &mut Table) {
    let daemon = Daemon::start();
    let address: SocketAddr = daemon.url.trim_start_matches("http://").parse().unwrap();
    let post = |path: &str, body: &Value| {
        let body = body.to_string();
        let head = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length";
        format!("POST /api/coordination/{path} {head}: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    for connections in [1, 16] {
        let run = || {
            let began = Instant::now();
            let one = &|n: u64| {
                let resource = format!("resource-{n}");
                let declare = json!({"agentId": n.to_string(), "operation": "o", "resources": [resource]});
                let declare = post("declare", &declare);
                let complete = post("complete", &json!({"agentId": n.to_string()}));
                let (mut client, mut count) = (load::Client::connect(address), 0);
                while began.elapsed() < LOAD {
                    client.ask(&declare, 200);
                    client.ask(&complete, 200);
                    count += 2;
                }
                count
            };
            let count: u64 = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..connections).map(|n| scope.spawn(move || one(n))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            to_f64(count) / began.elapsed().as_secs_f64()
        };
        let rate = median((0..RUNS).map(|_| run()).collect());
        table.add(format!("durable changes (locks), {connections} connections: rate"), rate, "req/s");
    }
}

fn agents(table: &mut Table) {
    let daemon = Daemon::start_in(project(&[]), &[]);
    let mut spawns = Vec::new();
    let mut kills = Vec::new();
    for _ in 0..11 {
        let began = Instant::now();
        let id = daemon.spawn("hang");
        wait_tight(|| daemon.get(&format!("/api/agents/{id}"))["state"] == "running");
        spawns.push(millis(began));
        let began = Instant::now();
        daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
        kills.push(millis(began));
    }
    table.add("POST /api/agents to a running process", median(spawns), "ms");
    table.add("DELETE of a running agent, all descendants gone", median(kills), "ms");
}

/// From the wish to the first words on a WebSocket, beside the same program started by hand, in turns: what
/// the daemon, its keeper and the room add to a program's own start.
fn first_words(table: &mut Table) {
    let steps = json!([{"say": "first words"}, {"ask": "what?"}]);
    for (cage, words) in [("off", "no room"), ("auto", "a room")] {
        let project = project(&[("speaks", steps.clone())]);
        let settings = json!({"maxAgents": 100, "isolation": {"cage": cage}});
        project.write(".svc/config.json", &settings.to_string());
        let daemon = Daemon::start_in(project, &[]);
        let mut socket = daemon.connect("?types=agent:output");
        let (mut spawned, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..21 {
            let began = Instant::now();
            let id = daemon.spawn("speaks");
            while !next_message(&mut socket).to_string().contains("first words") {}
            spawned.push(millis(began));
            daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
            bare.push(bare_first_words(&daemon));
        }
        let over = median(spawned) - median(bare);
        let what = format!("spawn to first output, over the program's own start, {words}");
        table.at_most(&what, over, "ms", 20.0);
    }
}

/// The same program without a daemon, in milliseconds.
fn bare_first_words(daemon: &Daemon) -> f64 {
    let began = Instant::now();
    let mut program = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["agent-script", "--model", "speaks"])
        .current_dir(&daemon.project)
        .env("SVC_PROJECT_DIR", &daemon.project)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let prompt = json!({"type": "prompt", "text": "rehearse"});
    writeln!(program.stdin.as_mut().unwrap(), "{prompt}").unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("first words")), "it says nothing");
    let took = millis(began);
    program.kill().unwrap();
    program.wait().unwrap();
    took
}

fn wait_tight(look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain");
    }
}

/// From an instruction over HTTP to the agent's answer on a WebSocket, and the rate of a flood.
fn push(table: &mut Table) {
    let lines = 50_000;
    let flood = json!([{"waitForFile": {"path": "go", "timeoutMs": 60_000}}, {"flood": {"lines": lines, "bytes": 80}}]);
    for clients in [1_usize, 20, 100] {
        let daemon = Daemon::start_in(project(&[("wave", flood.clone()), ("echo", echo())]), &[]);
        let id = daemon.spawn("echo");
        daemon.wait_state(&id, &["running"]);
        let mut sockets: Vec<_> =
            (0..clients).map(|_| daemon.connect("?types=agent:output,agent:exit")).collect();
        for socket in &mut sockets {
            next_message(socket);
        }
        let mut latencies = Vec::new();
        for n in 0..30 {
            let word = format!("word-{n}.");
            let began = Instant::now();
            daemon.post(&format!("/api/agents/{id}/instruct"), &json!({"message": word, "deliver": "now"}));
            for socket in &mut sockets {
                while !next_message(socket).to_string().contains(&word) {}
            }
            latencies.push(millis(began));
        }
        table.add(format!("instruct to output at all of {clients} clients"), median(latencies), "ms");
        daemon.send("DELETE", &format!("/api/agents/{id}"), &Value::Null);
        let flooder = daemon.spawn("wave");
        daemon.wait_state(&flooder, &["running"]);
        std::fs::write(daemon.project.join("go"), "").unwrap();
        let counts: Vec<Counted> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                sockets.into_iter().map(|socket| scope.spawn(move || count(&socket))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let first = counts.iter().map(|c| c.first).min().unwrap();
        let last = counts.iter().map(|c| c.last).max().unwrap();
        let received: u64 = counts.iter().map(|c| c.messages).sum();
        let rate = to_f64(received) / (last - first).as_secs_f64();
        table.add(format!("push: messages a second, all {clients} clients together"), rate, "msg/s");
    }
}

fn echo() -> Value {
    let turn = json!([{"ask": "what?"}, {"say": "heard {{message}}"}]);
    json!([{"loop": {"times": 31, "steps": turn}}])
}

/// What one client got of a flood.
struct Counted {
    messages: u64,
    first: Instant,
    last: Instant,
}

/// Frames until the flooding agent has ended its turn, counted by their heads alone: the daemon is measured
/// here, not the client's library. Text frames of a server are never masked.
fn count(socket: &tungstenite::WebSocket<tungstenite::stream::MaybeTlsStream<TcpStream>>) -> Counted {
    let mut stream = match socket.get_ref() {
        tungstenite::stream::MaybeTlsStream::Plain(stream) => stream.try_clone().unwrap(),
        _ => unreachable!("the daemon speaks plain HTTP"),
    };
    let mut buffer = vec![0; 1 << 20];
    let (mut filled, mut messages, mut first) = (0, 0, None);
    loop {
        let read = stream.read(&mut buffer[filled..]).unwrap();
        assert!(read > 0, "the daemon closed a client that reads");
        first.get_or_insert_with(Instant::now);
        filled += read;
        let mut at = 0;
        while let Some(length) = frame_length(&buffer[at..filled]) {
            messages += 1;
            let start = &buffer[at..at + length.min(200)];
            if contains(start, br#""subtype":"result""#) {
                return Counted { messages, first: first.unwrap(), last: Instant::now() };
            }
            at += length;
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
    }
}

/// Length of the first whole frame, head included.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let (head, payload) = match *bytes.get(1)? & 0x7f {
        126 => (4, u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)),
        short => (2, u64::from(short)),
    };
    let length = head + usize::try_from(payload).unwrap();
    (bytes.len() >= length).then_some(length)
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Lines a second from the agents' pipes through parser, log and hub, without a WebSocket client.
fn ingest(table: &mut Table) {
    let lines = 50_000;
    let steps = json!([{"waitForFile": {"path": "go", "timeoutMs": 60_000}}, {"flood": {"lines": lines, "bytes": 80}}]);
    for agents in [1_u64, 10] {
        let runs = (0..RUNS).map(|_| {
            let daemon = Daemon::start_in(project(&[("wave", steps.clone())]), &[]);
            let ids: Vec<String> = (0..agents).map(|_| daemon.spawn("wave")).collect();
            for id in &ids {
                daemon.wait_state(id, &["running"]);
            }
            std::fs::write(daemon.project.join("go"), "").unwrap();
            let began = Instant::now();
            for id in &ids {
                daemon.wait_state(id, &["completed"]);
            }
            to_f64(agents * lines) / began.elapsed().as_secs_f64()
        });
        table.add(format!("ingest: lines a second from {agents} agents"), median(runs.collect()), "lines/s");
    }
}
