//! What one line of an agent's output costs the daemon, on what the real programs printed
//! (`tests/data/recordings`): processor time a line for every provider with 1, 8 and 50 agents, and how long
//! `/api/health` takes meanwhile, beside what a bare handler in another process takes: what both have to wait
//! for is the processor, which the programs want, too.
//!
//! The agents' programs are this one: it prints a provider's recordings again and again, one write a line, as
//! fast as the daemon takes them; with `--rate=20000` so many lines a second, all agents together, which
//! leaves the processor some rest. `cargo bench --bench lines -- claude codex` measures these alone,
//! `--agents=8` with so many; `-- --recorder` compares the same with and without the flight recorder.

#[path = "support/bare.rs"]
mod bare;
#[path = "support/load.rs"]
#[allow(dead_code, reason = "every bench uses another part")]
mod load;
#[path = "../tests/support/mod.rs"]
mod support;

use bare::{BareProcess, serve_bare};
use load::{Client, cpu_seconds, get, to_f64};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::daemon::Daemon;
use support::folder::Folder;
use support::wait::wait_for;

/// Measurements of which the middle one is shown.
const RUNS: usize = 3;
/// Measurements with the recorder, and as many without.
const RECORDER_RUNS: usize = 8;
/// Lines of one measurement, all agents together: some tenths of a second, where a clock tick is a hundredth.
const LINES: usize = 160_000;
const AGENTS: [usize; 3] = [1, 8, 50];
/// Between two questions after the daemon's health; they are part of what it uses.
const HEALTH_EVERY: Duration = Duration::from_millis(5);
/// About what `/api/health` answers with.
const HEALTH_BYTES: usize = 400;
/// Repeated recordings in memory, at least; the program writes from there.
const BLOCK_BYTES: usize = 256 * 1024;
/// What is wanted.
const TARGET_MICROS: f64 = 5.0;
const TARGET_HEALTH_MS: f64 = 5.0;

const PROVIDERS: [(&str, &str); 9] = [
    ("claude", "claude-code"),
    ("codex", "codex"),
    ("gemini", "gemini"),
    ("opencode", "opencode"),
    ("qwen", "qwen"),
    ("copilot", "copilot"),
    ("cline", "cline"),
    ("aider", "aider"),
    ("acp", "acp"),
];
/// Of each program: its ordinary sessions. In the others it asks, or its end is cut off.
const CASES: [&str; 8] = ["default", "denied", "full", "plain", "mcp", "ctx", "twoturns", "resume"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, file, lines, go, rate] = arguments.as_slice()
        && flag == "--replay"
    {
        let rate = rate.parse().expect("lines a second");
        return replay(Path::new(file), lines.parse().expect("a count"), Path::new(go), rate);
    }
    if let [flag, status, bytes] = arguments.as_slice()
        && flag == "--bare"
    {
        return serve_bare(status.parse().expect("a status"), bytes.parse().expect("a length"));
    }
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let only: Option<usize> =
        arguments.iter().find_map(|word| word.strip_prefix("--agents=")).map(|n| n.parse().expect("a count"));
    let rate = arguments.iter().find_map(|word| word.strip_prefix("--rate="));
    let rate: usize = rate.map_or(0, |rate| rate.parse().expect("lines a second"));
    if arguments.iter().any(|word| word == "--recorder") {
        return compare_recorder(&wanted, only);
    }
    println!(
        "{:<10} {:>10} {:>12} {:>6} {:>12} {:>12} {:>14} {:>14} {:>14}",
        "program",
        "bytes/line",
        "entries/line",
        "agents",
        "us CPU/line",
        "of target",
        "lines/s",
        "health p99 ms",
        "bare p99 ms"
    );
    for (program, provider) in PROVIDERS {
        if !wanted.is_empty() && !wanted.iter().any(|word| *word == program) {
            continue;
        }
        let stream = stream(program);
        let bytes = to_f64(stream.len() as u64) / to_f64(lines_of(&stream) as u64);
        for agents in AGENTS.into_iter().filter(|agents| only.is_none_or(|only| only == *agents)) {
            let mut runs: Vec<Measured> =
                (0..RUNS).map(|_| measure(program, provider, &stream, [agents, rate], true)).collect();
            runs.sort_by(|a, b| a.micros.total_cmp(&b.micros));
            let middle = &runs[RUNS / 2];
            let worst = runs.iter().map(|run| run.health_p99).fold(0.0, f64::max);
            let bare = runs.iter().map(|run| run.bare_p99).fold(0.0, f64::max);
            let met = middle.micros <= TARGET_MICROS && worst <= TARGET_HEALTH_MS;
            println!(
                "{program:<10} {bytes:>10.0} {:>12.2} {agents:>6} {:>12.2} {:>12.2} {:>14.0} {worst:>14.2} {bare:>14.2} {}",
                middle.entries,
                middle.micros,
                middle.micros / TARGET_MICROS,
                middle.rate,
                if met { "ok" } else { "MISSED" }
            );
        }
    }
}

/// What the flight recorder adds to a line: both in turn, so that both meet the same machine.
fn compare_recorder(wanted: &[&String], only: Option<usize>) {
    println!("{:<10} {:>6} {:>14} {:>14} {:>8}", "program", "agents", "us off/line", "us on/line", "ratio");
    for (program, provider) in PROVIDERS {
        if !wanted.is_empty() && !wanted.iter().any(|word| *word == program) {
            continue;
        }
        let stream = stream(program);
        let agents = only.unwrap_or(8);
        let mut micros = [Vec::new(), Vec::new()];
        for run in 0..2 * RECORDER_RUNS {
            // On, off, off, on: what drifts meets both alike.
            let is_on = matches!(run % 4, 0 | 3);
            micros[usize::from(is_on)].push(measure(program, provider, &stream, [agents, 0], is_on).micros);
        }
        let [off, on] = micros.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        });
        println!("{program:<10} {agents:>6} {off:>14.3} {on:>14.3} {:>8.3}", on / off);
    }
}

fn lines_of(stream: &[u8]) -> usize {
    stream.split_inclusive(|byte| *byte == b'\n').count()
}

/// What this program printed in its ordinary sessions, one after the other.
fn stream(program: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recordings");
    let mut all = Vec::new();
    let mut add = |bytes: &[u8]| {
        all.extend_from_slice(bytes);
        if all.last().is_some_and(|last| *last != b'\n') {
            all.push(b'\n');
        }
    };
    if program == "acp" {
        let agents = ["claude-allow", "codex-allow", "gemini-allow", "opencode-allow"];
        for agent in agents {
            let text = fs::read_to_string(format!("{folder}/acp/{agent}.jsonl")).expect("a recording");
            for line in said(&text) {
                add(line.as_bytes());
            }
        }
    } else {
        for case in CASES {
            if let Ok(bytes) = fs::read(format!("{folder}/{program}-{case}.jsonl")) {
                add(&bytes);
            }
        }
    }
    assert!(!all.is_empty(), "there are recordings of {program}");
    all
}

/// The agent's side of a recording of both, but for what it asks: nobody is there to answer so often.
fn said(text: &str) -> Vec<String> {
    let mut answered = 0;
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a record is JSON"));
    let own = records.filter(|record| record["dir"] == "<-").filter_map(|mut record| {
        let message = record["msg"].take();
        let mut message = message.as_object().cloned().expect("a message is an object");
        match (message.contains_key("method"), message.contains_key("id")) {
            (true, true) => return None,
            (false, _) => {
                answered += 1;
                message.insert("id".to_owned(), json!(answered));
            }
            _ => {}
        }
        Some(Value::Object(message).to_string())
    });
    own.collect()
}

/// The program of an agent: waits for the file `go`, then prints so many lines of the stream, `rate` of them
/// a second unless that is 0.
fn replay(file: &Path, lines: usize, go: &Path, rate: usize) {
    let stream = fs::read(file).expect("the stream");
    let mut block = Vec::new();
    while block.len() < BLOCK_BYTES {
        block.extend_from_slice(&stream);
    }
    while !go.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut out = std::io::stdout().lock();
    let began = Instant::now();
    let of_stream = block.split_inclusive(|byte| *byte == b'\n').cycle();
    for (n, line) in of_stream.take(lines).enumerate() {
        // One write a line, as they do; the buffer of `stdout` would do it too, and copy.
        out.write_all(line).and_then(|()| out.flush()).expect("the daemon reads");
        if rate > 0 {
            let due = Duration::from_secs_f64(to_f64(n as u64) / to_f64(rate as u64));
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
}

struct Measured {
    entries: f64,
    micros: f64,
    rate: f64,
    health_p99: f64,
    bare_p99: f64,
}

/// Says on its drop that it is over, also when a measurement fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A project in which the programs on the path are this one.
fn project(
    stream: &[u8],
    program: &str,
    [lines, rate]: [usize; 2],
    recorded: bool,
) -> (Arc<Folder>, PathBuf, String) {
    let folder = Arc::new(Folder::new("lines"));
    // Nobody has used so much so quickly as an agent that repeats a session: it is to run on. Nor are its
    // turns, of twenty lines each, so many: a snapshot is a cost of the turn (benches/snapshots.rs).
    let safety = json!({"tokenCeilingPerAgent": 1_000_000_000_000_u64});
    let config = json!({"maxAgents": 100, "autoRotation": false, "safety": safety,
        "record": {"enabled": recorded}, "snapshots": {"enabled": false}});
    folder.write(".svc/config.json", &config.to_string());
    let (file, go) = (folder.path().join("stream"), folder.path().join("go"));
    fs::write(&file, stream).unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in --version) echo 9.9.9; exit;; auth|login) exit 1;; esac\nexec '{}' --replay '{}' {lines} '{}' {rate}\n",
        std::env::current_exe().unwrap().display(),
        file.display(),
        go.display(),
    );
    let path = format!("bin/{program}");
    folder.write(&path, &script);
    let path = folder.path().join(path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let bin = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap());
    (folder, path, bin)
}

/// With so many agents, which print so many lines a second in all, or as fast as they can (0).
fn measure(
    program: &str,
    provider: &str,
    stream: &[u8],
    [agents, rate]: [usize; 2],
    recorded: bool,
) -> Measured {
    let lines = LINES / agents;
    let (folder, path, bin) = project(stream, program, [lines, rate / agents], recorded);
    let daemon = Daemon::start_in(folder, &[("PATH", &bin)]);
    if provider != "acp" {
        wait_for("the program to be found", || {
            let providers = daemon.get("/api/providers");
            let found = |one: &Value| one["id"] == provider && one["installed"] == true;
            providers.as_array().unwrap().iter().any(found).then_some(())
        });
    }
    let ids: Vec<String> = (0..agents).map(|_| spawn(&daemon, provider, &path)).collect();
    for id in &ids {
        wait_for("it to run", || daemon.get(&format!("/api/agents/{id}"))["pid"].is_number().then_some(()));
    }
    let address: SocketAddr = daemon.url.trim_start_matches("http://").parse().unwrap();
    let bare = BareProcess::start(200, HEALTH_BYTES, |given| {
        let mut command = Command::new(given.get_program());
        command.args(given.get_args());
        command
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let health = scope.spawn(|| health_times([address, bare.1], &over));
        let cpu = cpu_seconds(daemon.pid());
        let began = Instant::now();
        fs::write(daemon.project.join("go"), "").unwrap();
        let guard = Over(&over);
        for id in &ids {
            wait_for("it to end", || ended(&daemon, id).then_some(()));
        }
        let (used, took) = (cpu_seconds(daemon.pid()) - cpu, began.elapsed().as_secs_f64());
        drop(guard);
        let [health_p99, bare_p99] = health.join().unwrap();
        let all = to_f64((lines * agents) as u64);
        let logged: u64 = ids.iter().map(|id| entries(&daemon, id)).sum();
        Measured {
            micros: used * 1e6 / all,
            entries: to_f64(logged) / all,
            rate: all / took,
            health_p99,
            bare_p99,
        }
    })
}

fn spawn(daemon: &Daemon, provider: &str, path: &Path) -> String {
    let mut wish = json!({"role": "dev", "provider": provider, "prompt": "go", "permission": "full"});
    if provider == "acp" {
        wish["command"] = json!([path]);
    }
    daemon.post("/api/agents", &wish)["id"].as_str().unwrap().to_owned()
}

fn ended(daemon: &Daemon, id: &str) -> bool {
    let record = daemon.get(&format!("/api/agents/{id}"));
    let exit = &record["exit"];
    // Cut off, not all of its lines would have been read.
    assert!(exit.is_null() || exit["code"] == 0, "{record}");
    !exit.is_null()
}

/// Entries of the agent's log: a line that is not understood, or of which nothing is worth keeping, has none.
fn entries(daemon: &Daemon, id: &str) -> u64 {
    daemon.get(&format!("/api/agents/{id}/log?tail=1"))["entries"][0]["n"].as_u64().unwrap_or_default()
}

/// What the slowest hundredth of questions after the daemon's health took at least, and of the same to a bare
/// handler, in milliseconds: both are asked in turn until it is over.
fn health_times(addresses: [SocketAddr; 2], over: &AtomicBool) -> [f64; 2] {
    let mut asked = addresses.map(|address| (Client::connect(address), Vec::new()));
    while !over.load(Ordering::Relaxed) {
        for (client, times) in &mut asked {
            let began = Instant::now();
            client.ask(&get("/api/health"), 200);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        std::thread::sleep(HEALTH_EVERY);
    }
    asked.map(|(_, mut times)| {
        times.sort_by(f64::total_cmp);
        times[times.len() * 99 / 100]
    })
}
