//! Speed and memory of the built marketplace service, as one table with the machine. Medians of five runs.
//!
//! The service runs on one core and the clients on the others, where `taskset` and a second core are there,
//! so that a rate is what one core serves. "Bare handler" is a second process on the same core: the same
//! HTTP edge, which answers everything with ready bytes of the same size.
//! `cargo bench -p svc-skills --bench skills` takes two minutes; with `SVC_BENCH_MANY=1`, in some more, also
//! a catalogue of 100 000.

#[path = "support/bare.rs"]
mod bare;
#[path = "support/load.rs"]
mod load;
#[path = "../tests/support"]
#[allow(dead_code, reason = "shared with the tests")]
mod support {
    pub mod folder;
    pub mod market;
    pub mod processes;
    pub mod wait;
}

use bare::{BareProcess, serve_bare};
use load::{Client, Load, get, load, to_f64};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::folder::Folder;
use support::market::{Market, command};
use support::processes::resident_bytes;

const RUNS: usize = 5;
const START_RUNS: usize = 11;
const LOAD: Duration = Duration::from_millis(1500);
const WARM_UP: Duration = Duration::from_millis(300);
const SKILLS: usize = 10_000;
const SKILLS_FOR_MEMORY: usize = 1_000;
/// A catalogue larger than any that is known, measured where `SVC_BENCH_MANY` is set.
const MANY_SKILLS: usize = 100_000;
const CONNECTIONS: usize = 16;
const INSTALLERS: usize = 64;
/// Different searches, so that hardly one is answered from the cache of list bodies.
const SEARCHES: usize = 5_000;
/// What a search may take at [`SKILLS`] and at [`MANY_SKILLS`].
const SEARCH_P99_MS: f64 = 5.0;
const MANY_SEARCH_P99_MS: f64 = 50.0;
/// Writes one after another, in one run.
const WRITES: usize = 400;

const ADJECTIVES: [&str; 20] = [
    "tidy", "careful", "quick", "silent", "modern", "strict", "gentle", "robust", "lazy", "typed", "async",
    "remote", "local", "shared", "atomic", "static", "dynamic", "nested", "hidden", "open",
];
const CATEGORIES: [&str; 6] = ["design", "quality", "devtools", "workflow", "security", "specialized"];
const NOUNS: [&str; 25] = [
    "tests",
    "reviews",
    "commits",
    "queries",
    "pages",
    "layouts",
    "secrets",
    "pipelines",
    "caches",
    "schemas",
    "tables",
    "forms",
    "icons",
    "hooks",
    "queues",
    "workers",
    "tokens",
    "parsers",
    "logs",
    "traces",
    "branches",
    "releases",
    "backups",
    "widgets",
    "charts",
];

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
        self.row(Row { what: what.into(), value, unit, target: None, more_is_better: false });
    }

    fn at_most(&mut self, what: impl Into<String>, value: f64, unit: &'static str, target: f64) {
        self.row(Row { what: what.into(), value, unit, target: Some(target), more_is_better: false });
    }

    fn at_least(&mut self, what: impl Into<String>, value: f64, unit: &'static str, target: f64) {
        self.row(Row { what: what.into(), value, unit, target: Some(target), more_is_better: true });
    }

    /// Shown at once, for the whole takes two minutes.
    fn row(&mut self, row: Row) {
        eprintln!("{}: {:.2} {}", row.what, row.value, row.unit);
        self.0.push(row);
    }

    fn print(&self) {
        println!("{:<66} {:>10}  {:<6} target", "", "median", "unit");
        for row in &self.0 {
            let target = row.target.map_or(String::new(), |target| {
                let ok = if row.more_is_better { row.value >= target } else { row.value <= target };
                let sign = if row.more_is_better { "at least" } else { "at most" };
                format!("{sign} {target} {}", if ok { "ok" } else { "MISSED" })
            });
            println!("{:<66} {:>10.2}  {:<6} {target}", row.what, row.value, row.unit);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--bare") {
        return serve_bare(args[at + 1].parse().unwrap(), args[at + 2].parse().unwrap());
    }
    let mut table = Table::default();
    start_up(&mut table);
    let cores = Cores::part();
    let folder = imported(SKILLS, &cores);
    let market = serve(&folder, cores.service.as_deref());
    reads(&mut table, &market, &cores);
    searches(&mut table, &market, &cores, SEARCH_P99_MS);
    drop(market);
    installs(&mut table, &folder, &cores);
    single_writes(&mut table, &folder, &cores, SKILLS);
    memory(&mut table, &cores);
    if std::env::var_os("SVC_BENCH_MANY").is_some() {
        many(&mut table, &cores);
    }
    println!("{}\n", machine(&cores));
    table.print();
}

fn machine(parted: &Cores) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map_or("", |m| m.1);
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let place = if parted.service.is_some() {
        "service and clients on cores of their own"
    } else {
        "NOT pinned to cores"
    };
    format!("{}, {cores} cores, Linux {}; {place}", model.trim(), kernel.trim())
}

/// Lists of cores as `taskset` takes them; `None` where processes are not bound to cores.
struct Cores {
    service: Option<String>,
    all: Option<String>,
}

impl Cores {
    /// Binds this process, the clients, to all cores but the first, which is the service's.
    fn part() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let pid = std::process::id().to_string();
        let bound = Command::new("taskset")
            .args(["--all-tasks", "--cpu-list", "--pid", &format!("1-{}", cores.saturating_sub(1)), &pid])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if cores > 1 && bound.is_ok_and(|status| status.success()) {
            Self { service: Some("0".into()), all: Some(format!("0-{}", cores - 1)) }
        } else {
            Self { service: None, all: None }
        }
    }
}

/// The same command, on these cores.
fn on(cores: Option<&str>, given: &Command) -> Command {
    let mut command = if let Some(cores) = cores {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", cores]).arg(given.get_program());
        command
    } else {
        Command::new(given.get_program())
    };
    for (name, value) in given.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(given.get_args());
    command
}

fn serve(folder: &Arc<Folder>, cores: Option<&str>) -> Market {
    let mut given = command(folder, &[("SVC_LOG", "warn")]);
    given.args(["serve", "--addr", "127.0.0.1:0"]);
    Market::from_command(on(cores, &given), Arc::clone(folder))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// About 300 characters in words that skills have in common, as real descriptions are.
fn description(n: usize, adjective: &str, noun: &str, other: &str) -> String {
    let phrases = [
        "Use this skill when the user asks to review code or to write tests for a project.",
        "Guides the agent through planning, building and checking a change in small steps.",
        "Finds security issues, performance problems and missing documentation.",
        "Works with TypeScript, Python, Rust and Go, and follows the style of the repository.",
        "Creates clear commit messages, changelogs and pull request descriptions.",
        "Designs accessible interfaces with consistent spacing, color and typography.",
        "Explains errors, proposes fixes and verifies them by running the tools.",
    ];
    let more: Vec<&str> = (0..3).map(|at| phrases[(n * 3 + at * 2 + n / 7) % phrases.len()]).collect();
    format!("Keeps {noun} {adjective} while {other} change. {}", more.join(" "))
}

/// A database of this many published skills, made by `svc-skills import`.
fn imported(skills: usize, cores: &Cores) -> Arc<Folder> {
    let folder = Arc::new(Folder::new("bench-skills"));
    let mirror = folder.path().join("mirror");
    fs::create_dir_all(mirror.join("skills/content")).unwrap();
    let registry: Vec<Value> = (0..skills)
        .map(|n| {
            let (adjective, noun) = (ADJECTIVES[n % 20], NOUNS[n / 20 % 25]);
            let other = NOUNS[(n * 7 + 3) % 25];
            let id = format!("{adjective}-{noun}-{n}");
            let text = format!("# {adjective} {noun}\n\n{}", "Say what is wrong, and how to see it.\n".repeat(50));
            fs::write(mirror.join(format!("skills/content/{id}.md")), text).unwrap();
            json!({
                "id": id, "name": format!("{adjective} {noun} {n}"), "source": "community", "status": "published",
                "description": description(n, adjective, noun, other),
                "author": format!("Author {}", n % 500), "authorProfile": {"github": format!("author-{}", n % 500)},
                "category": CATEGORIES[n % 6],
                "tags": [noun, adjective, format!("group-{}", n % 40)], "roles": ["backend"], "downloads": n * 37 % 5000,
                "rating": 4.5, "ratingCount": n % 90, "price": 0, "version": "1.0.0",
            })
        })
        .collect();
    fs::write(mirror.join("skills/registry.json"), Value::Array(registry).to_string()).unwrap();
    let mut import = command(&folder, &[]);
    import.arg("import").arg(&mirror).arg("--trust");
    let output = on(cores.all.as_deref(), &import).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

/// Process start to "listening", which is printed once it accepts.
fn start_up(table: &mut Table) {
    let mut first = Vec::new();
    let mut again = Vec::new();
    for _ in 0..START_RUNS {
        let began = Instant::now();
        let market = Market::start(&[]);
        first.push(millis(began));
        let folder = market.folder();
        drop(market);
        let began = Instant::now();
        let market = Market::start_in(folder, &[]);
        again.push(millis(began));
        assert!(market.get("/api/v1/skills").text.contains("\"total\":21"));
    }
    table.at_most("start-up with the seeds, new database", median(first), "ms", 100.0);
    table.at_most("start-up with the seeds, known database", median(again), "ms", 100.0);
}

/// A read with what it is to reach.
struct Reading {
    name: &'static str,
    request: Vec<u8>,
    status: u16,
    bytes: usize,
    rate: f64,
    p99_ms: Option<f64>,
}

/// The tag of a page by the name that [`get`] asks for: addresses in an answer, and with them its tag,
/// follow it.
fn tag(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&get(path)).unwrap();
    let lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let mut tags = lines.filter_map(|line| Some(line.strip_prefix("ETag: ")?.to_owned()));
    tags.next().unwrap()
}

fn reads(table: &mut Table, market: &Market, cores: &Cores) {
    let list = market.get("/api/v1/skills");
    assert_eq!((list.status, list.json()["total"].as_u64()), (200, Some(SKILLS as u64 + 21)));
    assert_eq!(list.json()["skills"].as_array().unwrap().len(), 50);
    let one = market.get("/api/v1/skills/tidy-tests-0");
    let tag = tag(market.address, "/api/v1/skills/tidy-tests-0");
    let known = format!(
        "GET /api/v1/skills/tidy-tests-0 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"
    );
    let readings = [
        Reading {
            name: "list of 50 with total and categories",
            request: get("/api/v1/skills"),
            status: 200,
            bytes: list.text.len(),
            rate: 20_000.0,
            p99_ms: Some(2.0),
        },
        Reading {
            name: "single skill",
            request: get("/api/v1/skills/tidy-tests-0"),
            status: 200,
            bytes: one.text.len(),
            rate: 30_000.0,
            p99_ms: None,
        },
        Reading {
            name: "single skill, 304",
            request: known.into_bytes(),
            status: 304,
            bytes: 0,
            rate: 30_000.0,
            p99_ms: None,
        },
    ];
    for reading in readings {
        read(table, market, &reading, cores);
    }
}

fn read(table: &mut Table, market: &Market, reading: &Reading, cores: &Cores) {
    let Reading { name, status, .. } = *reading;
    let bare = BareProcess::start(status, reading.bytes, |given| on(cores.service.as_deref(), given));
    let ask =
        |address, pid, time| load(address, pid, CONNECTIONS, time, status, &|_| reading.request.clone());
    ask(market.address, market.pid(), WARM_UP);
    ask(bare.1, bare.0.id(), WARM_UP);
    // One after the other each time, so that a disturbance of the machine meets both.
    let pairs: Vec<(Load, Load)> = (0..RUNS)
        .map(|_| (ask(market.address, market.pid(), LOAD), ask(bare.1, bare.0.id(), LOAD)))
        .collect();
    let of = |figure: &dyn Fn(&(Load, Load)) -> f64| median(pairs.iter().map(figure).collect());
    let what = |figure: &str| format!("{name} ({} bytes): {figure}", reading.bytes);
    table.at_least(what("rate on one core"), of(&|p| p.0.rate), "req/s", reading.rate);
    table.add(what("rate per CPU second"), of(&|p| p.0.rate_per_core), "req/s");
    table.add(what("p50"), of(&|p| p.0.percentile(50)), "ms");
    match reading.p99_ms {
        Some(target) => table.at_most(what("p99"), of(&|p| p.0.percentile(99)), "ms", target),
        None => table.add(what("p99"), of(&|p| p.0.percentile(99)), "ms"),
    }
    table.add(what("bare handler"), of(&|p| p.1.rate), "req/s");
    table.add(what("ratio to the bare handler"), of(&|p| p.0.rate / p.1.rate), "ratio");
}

/// Words with many, few and no matches, as people write them: common ones, stems, parts and slips; mostly by
/// relevance, sometimes in another order, on other pages each time.
fn search_of(n: u64) -> Vec<u8> {
    let n = usize::try_from(n).unwrap() % SEARCHES;
    let (adjective, noun) = (ADJECTIVES[n % 20], NOUNS[n * 3 % 25]);
    let words = match n % 8 {
        0 => noun.to_owned(),
        1 => format!("{adjective}+{noun}"),
        2 => format!("code+{noun}"),
        3 => format!("nothing+like+{n}"),
        4 => format!("{}+checking", &noun[..3]),
        5 => format!("reviewing+{adjective}"),
        6 => format!("securty+{noun}"),
        _ => format!("{noun}+{n}"),
    };
    let sort = if n.is_multiple_of(3) {
        ["&sort=popular", "&sort=rating", "&sort=newest", "&sort=name"][n / 3 % 4]
    } else {
        ""
    };
    get(&format!("/api/v1/skills?search={words}{sort}&offset={}", n % 40))
}

fn searches(table: &mut Table, market: &Market, cores: &Cores, p99_ms: f64) {
    let bare = BareProcess::start(200, market.get("/api/v1/skills?search=tests").text.len(), |given| {
        on(cores.service.as_deref(), given)
    });
    for connections in [1, CONNECTIONS / 4, CONNECTIONS] {
        let ask = |address, pid, time| load(address, pid, connections, time, 200, &search_of);
        ask(market.address, market.pid(), WARM_UP);
        let pairs: Vec<(Load, Load)> = (0..RUNS)
            .map(|_| (ask(market.address, market.pid(), LOAD), ask(bare.1, bare.0.id(), LOAD)))
            .collect();
        let of = |figure: &dyn Fn(&(Load, Load)) -> f64| median(pairs.iter().map(figure).collect());
        let what = |figure: &str| format!("search, {connections} connections: {figure}");
        table.add(what("rate"), of(&|p| p.0.rate), "req/s");
        table.add(what("p50"), of(&|p| p.0.percentile(50)), "ms");
        table.at_most(what("p99"), of(&|p| p.0.percentile(99)), "ms", p99_ms);
        table.add(what("p99 of the bare handler"), of(&|p| p.1.percentile(99)), "ms");
        table.add(what("ratio to the bare handler"), of(&|p| p.0.rate / p.1.rate), "ratio");
    }
}

/// What one write of a block costs to become durable on this disk.
fn fsync_ms(folder: &Folder) -> f64 {
    let mut file = fs::File::create(folder.path().join("fsync")).unwrap();
    let once = || {
        let began = Instant::now();
        file.write_all(&[0; 4096]).unwrap();
        file.sync_data().unwrap();
        millis(began)
    };
    median(std::iter::repeat_with(once).take(50).collect())
}

/// The n-th install, each of another skill and from another client, so that every one counts.
fn install(n: u64, skills: usize) -> Vec<u8> {
    let at = usize::try_from(n.wrapping_mul(7919)).unwrap() % skills;
    let id = format!("{}-{}-{at}", ADJECTIVES[at % 20], NOUNS[at / 20 % 25]);
    let ip = format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255);
    let head = format!("POST /api/v1/skills/{id}/install HTTP/1.1\r\nHost: localhost\r\n");
    format!("{head}X-Forwarded-For: {ip}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

fn installs(table: &mut Table, folder: &Arc<Folder>, cores: &Cores) {
    // On all cores: it is the disk that this asks about.
    let market = serve(folder, cores.all.as_deref());
    let before = downloads(&market);
    let sent = AtomicU64::new(0);
    let run = || {
        load(market.address, market.pid(), INSTALLERS, LOAD, 200, &|_| {
            install(sent.fetch_add(1, Ordering::Relaxed), SKILLS)
        })
    };
    let runs: Vec<Load> = (0..RUNS).map(|_| run()).collect();
    let answered: usize = runs.iter().map(|run| run.times.len()).sum();
    assert_eq!(downloads(&market) - before, answered as u64, "each was counted, once");
    table.add("one write and fsync of 4 KiB on this disk", fsync_ms(folder), "ms");
    let what = |figure: &str| format!("durable installs, {INSTALLERS} connections: {figure}");
    table.at_least(what("rate"), median(runs.iter().map(|run| run.rate).collect()), "req/s", 5000.0);
    table.add(what("p50"), median(runs.iter().map(|run| run.percentile(50)).collect()), "ms");
    table.add(what("p99"), median(runs.iter().map(|run| run.percentile(99)).collect()), "ms");
}

/// What a transaction of one row costs in a database with the service's own settings, in the same folder.
fn bare_commits(folder: &Folder) -> Vec<f64> {
    let path = folder.path().join("bare.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database.pragma_update(None, "synchronous", "FULL").unwrap();
    database.execute_batch("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, words TEXT)").unwrap();
    let mut insert = database.prepare("INSERT INTO bare (words) VALUES (?1)").unwrap();
    let once = || {
        let began = Instant::now();
        insert.execute(["one row"]).unwrap();
        millis(began)
    };
    std::iter::repeat_with(once).take(WRITES).collect()
}

/// One client that writes again and again, in turn with bare commits on the same disk.
fn single_writes(table: &mut Table, folder: &Arc<Folder>, cores: &Cores, skills: usize) {
    let market = serve(folder, cores.all.as_deref());
    let mut client = Client::connect(market.address);
    // Far from the numbers of [`installs`], so that each of these counts, too.
    let mut sent = 1 << 23;
    let mut pairs = Vec::new();
    for _ in 0..RUNS {
        let writes: Vec<f64> = std::iter::repeat_with(|| {
            sent += 1;
            let request = install(sent, skills);
            let began = Instant::now();
            client.ask(&request, 200);
            millis(began)
        })
        .take(WRITES)
        .collect();
        pairs.push((median(writes), median(bare_commits(folder))));
    }
    let of = |figure: &dyn Fn(&(f64, f64)) -> f64| median(pairs.iter().map(figure).collect());
    table.add(format!("one durable install at {skills} skills"), of(&|pair| pair.0), "ms");
    table.add("a bare commit of one row on this disk", of(&|pair| pair.1), "ms");
    let ratio = of(&|pair| pair.0 / pair.1);
    table.at_most("one durable install: ratio to the bare commit", ratio, "ratio", 3.0);
}

/// Start, search and one write where there are very many skills.
fn many(table: &mut Table, cores: &Cores) {
    let began = Instant::now();
    let folder = imported(MANY_SKILLS, cores);
    table.add(format!("import of {MANY_SKILLS} skills"), millis(began) / 1000.0, "s");
    let mut starts = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        let market = serve(&folder, cores.all.as_deref());
        starts.push(millis(began) / 1000.0);
        drop(market);
    }
    table.add(format!("start-up with {MANY_SKILLS} skills"), median(starts), "s");
    let market = serve(&folder, cores.service.as_deref());
    table.add("resident memory after it", to_f64(resident_bytes(market.pid())) / 1e6, "MB");
    searches(table, &market, cores, MANY_SEARCH_P99_MS);
    drop(market);
    single_writes(table, &folder, cores, MANY_SKILLS);
}

/// All counters together.
fn downloads(market: &Market) -> u64 {
    let all = market.get("/api/v1/skills/registry.json").json();
    all.as_array().unwrap().iter().map(|skill| skill["downloads"].as_u64().unwrap()).sum()
}

/// After every kind of read, with the caches full.
fn memory(table: &mut Table, cores: &Cores) {
    let mut fresh = Vec::new();
    let mut used = Vec::new();
    let folder = imported(SKILLS_FOR_MEMORY, cores);
    for _ in 0..RUNS {
        let market = serve(&folder, cores.service.as_deref());
        assert_eq!(market.get("/api/v1/skills?limit=1").json()["total"], SKILLS_FOR_MEMORY as u64 + 21);
        fresh.push(to_f64(resident_bytes(market.pid())) / 1e6);
        load(market.address, market.pid(), CONNECTIONS, LOAD, 200, &|n| {
            let at = usize::try_from(n).unwrap() % SKILLS_FOR_MEMORY;
            let id = format!("{}-{}-{at}", ADJECTIVES[at % 20], NOUNS[at / 20 % 25]);
            match n % 5 {
                0 => get(&format!("/api/v1/skills/{id}/content")),
                1 => get(&format!("/s/{id}")),
                2 => get(&format!("/?offset={}", at % 900)),
                3 => get("/api/v1/skills/registry.json"),
                _ => search_of(n),
            }
        });
        used.push(to_f64(resident_bytes(market.pid())) / 1e6);
    }
    table.at_most(
        format!("resident memory, {SKILLS_FOR_MEMORY} skills, after start"),
        median(fresh),
        "MB",
        40.0,
    );
    table.at_most(
        format!("resident memory, {SKILLS_FOR_MEMORY} skills, after every kind of read"),
        median(used),
        "MB",
        40.0,
    );
}
