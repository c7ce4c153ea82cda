//! What a long history costs: the same few things asked of a daemon behind which 0, 100, 1 000 and 10 000
//! agents lie that have ended and been removed, each with [`USES`] entries in the ledger. Three agents live.
//!
//! The history is a true one: every agent was spawned, has run and reported, and was removed. At the last
//! level each thing is asked in turns of a second daemon, which has no past: the ratio is of these two, so
//! that a machine which is slower by then counts against neither. `cargo bench --bench history` takes some
//! minutes; `-- 100` stops at 100 agents, `-- --json` prints JSON. Of lists that hold their last 500 or 2 000
//! entries the ratio tells how far they fill.

#[path = "../tests/support/mod.rs"]
mod support;

#[path = "support/load.rs"]
#[allow(dead_code, reason = "shared with the marketplace's bench")]
mod load;

use load::{Client, get, to_f64};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::daemon::Daemon;
use support::folder::Folder;
use support::processes::resident_bytes;
use support::wait::wait_for;

const LEVELS: [u64; 4] = [0, 100, 1_000, 10_000];
/// Ledger entries of each agent: a million in all at the last level.
const USES: u64 = 100;
/// Agents that end at the same time while the history is made.
const MAKERS: usize = 6;
const RUNS: usize = 31;
/// Lines of one measurement.
const LINES: u64 = 20_000;
/// What flat means: the last level against a daemon without a past.
const RATIO: f64 = 1.3;

type Table = BTreeMap<String, Row>;

/// What one thing costs.
#[derive(Default, serde::Serialize)]
struct Row {
    unit: &'static str,
    /// One for each level.
    figures: Vec<f64>,
    /// Of a daemon without a past, asked in turns with the last level.
    fresh: Option<f64>,
}

impl Row {
    fn ratio(&self) -> f64 {
        let last = self.figures[self.figures.len() - 1];
        last / self.fresh.unwrap_or(last).max(1e-9)
    }
}

fn main() {
    let last = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(LEVELS[3]);
    let levels: Vec<u64> = LEVELS.into_iter().filter(|level| *level <= last).collect();
    let mut table = Table::new();
    let mut daemons = vec![Daemon::start_in(project(), &[])];
    let mut made = 0;
    for level in &levels {
        grow(&daemons[0], level - made);
        made = *level;
        if levels.last() == Some(level) {
            daemons.push(Daemon::start_in(project(), &[]));
        }
        measure(&daemons, &mut table);
        daemons = restart(daemons, &mut table);
    }
    if std::env::args().any(|arg| arg == "--json") {
        println!("{}", json!({"ended": levels, "rows": table}));
        return;
    }
    let head: Vec<String> = levels.iter().map(|level| format!("{level:>10}")).collect();
    let ended = "agents that have ended and are removed";
    println!("{ended:<44} {}  {:>10}  unit       ratio", head.join(" "), "no past");
    for (what, row) in &table {
        let shown = row.figures.iter().chain(&row.fresh).map(|figure| format!("{figure:>10.3}"));
        let shown: Vec<String> = shown.collect();
        let verdict = if row.ratio() <= RATIO { "" } else { " grows" };
        println!("{what:<44} {}  {:<8} {:>7.2}{verdict}", shown.join(" "), row.unit, row.ratio());
    }
}

fn project() -> Arc<Folder> {
    let folder = Arc::new(Folder::new("bench-history"));
    folder.write(".svc/config.json", r#"{"maxAgents": 100}"#);
    folder.write("notes.txt", "read by every agent\n");
    let usage = json!({"usage": {"input": 40, "output": 7, "cacheRead": 300}});
    let go = json!({"waitForFile": {"path": "go", "timeoutMs": 60_000}});
    let uses = |times: u64| json!({"loop": {"times": times, "steps": [usage]}});
    let scenarios = [
        ("past", json!([{"read": "notes.txt"}, uses(USES)])),
        ("wave", json!([go, {"flood": {"lines": LINES, "bytes": 80}}])),
        ("meter", json!([go, uses(LINES)])),
    ];
    for (name, steps) in scenarios {
        let scenario = json!({"description": name, "steps": steps});
        folder.write(&format!(".svc/rehearsals/{name}.json"), &scenario.to_string());
    }
    folder
}

/// Lets so many agents live, end and be removed.
fn grow(daemon: &Daemon, agents: u64) {
    let left = AtomicU64::new(agents);
    let one = || {
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
            let id = daemon.spawn("past");
            let path = format!("/api/agents/{id}");
            wait_for("an agent to end", || (daemon.get(&path)["state"] == "completed").then_some(()));
            daemon.send("DELETE", &path, &Value::Null);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..MAKERS {
            scope.spawn(one);
        }
    });
}

/// The quick tenth of so many runs of each daemon, in turns.
fn in_turns(daemons: &[Daemon], runs: usize, mut once: impl FnMut(usize, usize) -> f64) -> Vec<f64> {
    let mut taken = vec![Vec::new(); daemons.len()];
    for run in 0..runs {
        for (which, figures) in taken.iter_mut().enumerate() {
            figures.push(once(which, run));
        }
    }
    taken.into_iter().map(quick).collect()
}

fn of_each(daemons: &[Daemon], figure: impl Fn(&Daemon) -> f64) -> Vec<f64> {
    daemons.iter().map(figure).collect()
}

/// What it holds in memory.
fn megabytes(daemon: &Daemon) -> f64 {
    to_f64(resident_bytes(daemon.pid())) / 1e6
}

fn measure(daemons: &[Daemon], table: &mut Table) {
    let three = |daemon: &Daemon| -> Vec<String> { (0..3).map(|_| daemon.spawn("hang")).collect() };
    let living: Vec<Vec<String>> = daemons.iter().map(three).collect();
    for (daemon, ids) in daemons.iter().zip(&living) {
        for id in ids {
            daemon.wait_state(id, &["running"]);
        }
    }
    let spawn = |which: usize, _| {
        let began = Instant::now();
        let id = daemons[which].spawn("hang");
        let took = millis(began);
        end(&daemons[which], &id);
        took
    };
    add(table, "spawn: POST /api/agents", "ms", &in_turns(daemons, RUNS, spawn));
    for (what, scenario) in [("a line of output", "wave"), ("a line that tells of tokens", "meter")] {
        add(table, what, "us", &in_turns(daemons, 3, |which, _| lines(&daemons[which], scenario)));
    }
    let write = |which: usize, run: usize| {
        let path = format!("/api/agents/{}", living[which][0]);
        let began = Instant::now();
        let (status, body) = daemons[which].send("PATCH", &path, &json!({"name": format!("named-{run}")}));
        assert_eq!(status, 200, "{body}");
        millis(began)
    };
    add(table, "a durable change: PATCH /api/agents/:id", "ms", &in_turns(daemons, RUNS, write));
    reads(daemons, table);
    add(table, "memory of the daemon", "MB", &of_each(daemons, megabytes));
    for (daemon, ids) in daemons.iter().zip(&living) {
        for id in ids {
            end(daemon, id);
        }
    }
    let on_disk = |daemon: &Daemon| {
        let files = ["state", "memory"].map(|name| bytes_below(&daemon.project.join(".svc").join(name)));
        to_f64(files.iter().sum()) / 1e3
    };
    add(table, "state files", "kB", &of_each(daemons, on_disk));
}

/// Every GET that needs no more than its path.
fn reads(daemons: &[Daemon], table: &mut Table) {
    let api = daemons[0].get("/api/openapi.json");
    let is_plain = |path: &&String| !path.contains('{') && path.starts_with("/api");
    let paths = api["paths"].as_object().unwrap();
    let mut clients: Vec<Client> = daemons.iter().map(|daemon| Client::connect(address(daemon))).collect();
    for path in
        paths.iter().filter(|(_, verbs)| verbs.get("get").is_some()).map(|(path, _)| path).filter(is_plain)
    {
        if daemons[0].send("GET", path, &Value::Null).0 != 200 {
            continue;
        }
        let once = |which: usize, _| {
            // So that no answer is one that was made before.
            daemons[which].send("PATCH", "/api/config", &json!({"qcThreshold": 4}));
            let began = Instant::now();
            clients[which].ask(&get(path), 200);
            millis(began)
        };
        add(table, format!("GET {path}"), "ms", &in_turns(daemons, RUNS, once));
    }
}

/// Microseconds from the pipe to the end of one agent that writes [`LINES`] lines, for each line.
fn lines(daemon: &Daemon, scenario: &str) -> f64 {
    let go = daemon.project.join("go");
    // The last measurement's may be there.
    let _ = fs::remove_file(&go);
    let id = daemon.spawn(scenario);
    daemon.wait_state(&id, &["running"]);
    let mut client = Client::connect(address(daemon));
    fs::write(&go, "").unwrap();
    let began = Instant::now();
    while daemon.get(&format!("/api/agents/{id}"))["state"] != "completed" {
        client.ask(&get("/api/health"), 200);
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = began.elapsed();
    end(daemon, &id);
    took.as_secs_f64() * 1e6 / to_f64(LINES)
}

/// Stops each daemon and starts it again on what it has left.
fn restart(mut daemons: Vec<Daemon>, table: &mut Table) -> Vec<Daemon> {
    let mut times = vec![Vec::new(); daemons.len()];
    for _ in 0..5 {
        let again = |(daemon, times): (Daemon, &mut Vec<f64>)| {
            let folder = daemon.folder();
            daemon.stop();
            let began = Instant::now();
            let daemon = Daemon::start_in(folder, &[]);
            daemon.get("/api/health");
            times.push(millis(began));
            daemon
        };
        daemons = daemons.into_iter().zip(&mut times).map(again).collect();
    }
    let times: Vec<f64> = times.into_iter().map(quick).collect();
    add(table, "start-up: process start to first 200", "ms", &times);
    add(table, "memory after a start", "MB", &of_each(&daemons, megabytes));
    daemons
}

fn end(daemon: &Daemon, id: &str) {
    let path = format!("/api/agents/{id}");
    // A live one is ended, an ended one removed; which of the two this one is does not matter here.
    while daemon.send("DELETE", &path, &Value::Null).0 == 200 {}
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
}

fn address(daemon: &Daemon) -> SocketAddr {
    daemon.url.trim_start_matches("http://").parse().unwrap()
}

/// Adds a level's figure, and where there is a second one that of the daemon without a past.
fn add(table: &mut Table, what: impl Into<String>, unit: &'static str, figures: &[f64]) {
    let row = table.entry(what.into()).or_default();
    row.unit = unit;
    row.figures.push(figures[0]);
    row.fresh = figures.get(1).copied();
}

/// The quick tenth: what it takes by itself, whatever else the machine does meanwhile.
fn quick(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 10).copied().unwrap_or(f64::NAN)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
