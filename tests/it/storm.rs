//! Ten agents in mid-turn, the real Codex and `OpenCode` among them, while their daemon is killed at random
//! moments: `make kills COUNT=1000`, and a few of them in the suite.
//!
//! What is asked of each agent when it has ended: one turn, every line once and in order, every token once.
//! What is asked after every kill: who is shown alive has a process, who has one is shown. And at the end:
//! nothing is left.

use crate::support::aimock::{Aimock, Cli, Home};
use crate::support::daemon::Daemon;
use crate::support::dice::Dice;
use crate::support::folder::Folder;
use crate::support::processes::{keepers_of, of_project, with_variable};
use crate::support::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kills in the suite; `COUNT` says another number.
const KILLS: usize = 15;
/// The longest that a daemon lives, and an agent has to itself before it counts as hung.
const LIFE: Duration = Duration::from_millis(400);
const TURN_LIMIT: Duration = Duration::from_secs(180);
/// How long a record may say of a program that is gone that it lives. The table tells how long they did; on a
/// machine that starves, the look itself takes long.
const GHOST_LIMIT: Duration = Duration::from_secs(20);
/// Of an agent that is shown again later than this it is told why.
const SHOWN_LIMIT: Duration = Duration::from_millis(200);
/// Lines of the rehearsed agents, and of those how many travel together.
const LINES: usize = 200;
const GROUP: usize = 10;
/// Calls of a tool in a turn of the real programs; see `7-steps.json`.
const STEPS: usize = 6;

#[derive(Clone, Copy)]
enum Kind {
    Rehearsed,
    Real(Cli),
}

/// Who works, side by side.
const CREW: [Kind; 10] = {
    let (script, codex, opencode) = (Kind::Rehearsed, Kind::Real(Cli::Codex), Kind::Real(Cli::OpenCode));
    [script, codex, opencode, script, codex, opencode, script, codex, opencode, script]
};

impl Kind {
    fn order(self) -> Value {
        match self {
            Self::Rehearsed => {
                json!({"role": "tester", "provider": "script", "model": "talk", "prompt": "Please talk."})
            }
            Self::Real(cli) => json!({
                "role": "builder", "provider": cli.provider(), "model": cli.model(), "permission": "full",
                "prompt": "Please do REAL-STEPS now.",
            }),
        }
    }

    /// What it says, in order.
    fn words(self) -> Vec<String> {
        match self {
            Self::Rehearsed => (1..=LINES).map(|line| format!("line {line}")).collect(),
            Self::Real(_) => vec!["I took six steps.".to_owned()],
        }
    }

    /// Calls of tools, tokens in and out.
    fn figures(self) -> (usize, usize, usize) {
        match self {
            Self::Rehearsed => (0, 100 * LINES / GROUP, 10 * LINES / GROUP),
            Self::Real(_) => (STEPS, (0..=STEPS).map(|step| 1000 + 100 * step).sum(), 20 * STEPS + 25),
        }
    }
}

/// One agent at work.
struct Worker {
    id: String,
    kind: Kind,
    since: Instant,
}

#[derive(Default)]
struct Seen {
    faults: Vec<String>,
    ended: usize,
    real: usize,
    /// Of `OpenCode`: it gives up when others have its database for 5 s, or make it in the same moment.
    locked: usize,
    lines: usize,
    /// From a daemon's first answer until an agent was shown again.
    shown: Vec<Duration>,
    /// From the end of a program until it was told, of those that ended after that.
    told: Vec<Duration>,
}

impl Seen {
    fn fault(&mut self, id: &str, what: &str, log: &Value) {
        eprintln!("FAULT {id}: {what}");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kills-{id}.json"));
        let _ = std::fs::write(place, log.to_string());
        self.faults.push(format!("{id}: {what}"));
    }

    /// The daemon was killed and another has come: who is shown as what. Each agent is shown again when what
    /// is said of it is so for the first time, its program living or ended. An end after that is timed apart,
    /// as is that of a program which was there behind the first answer; `pids` are those of before the kill.
    fn look(&mut self, daemon: &Daemon, crew: &[Worker], pids: &HashMap<String, u64>) {
        daemon.get("/api/health");
        let began = Instant::now();
        let there: HashSet<&str> =
            pids.iter().filter(|(_, pid)| is_there(**pid)).map(|(id, _)| id.as_str()).collect();
        let (mut is_shown, mut gone, mut late) = (HashSet::new(), HashMap::new(), HashMap::new());
        loop {
            let records = daemon.get("/api/agents?fields=id,state,status,pid");
            let found: Vec<(&str, String)> = crew
                .iter()
                .filter_map(|worker| Some((worker.id.as_str(), wrong(&records, worker)?)))
                .collect();
            let is_right = |id: &str| found.iter().all(|(wrong, _)| *wrong != id);
            for id in crew.iter().map(|worker| worker.id.as_str()).filter(|id| is_right(id)) {
                if is_shown.insert(id) && !gone.contains_key(id) {
                    let took = began.elapsed();
                    self.shown.push(took);
                    if let Some(why) = late.remove(id).filter(|_| took > SHOWN_LIMIT) {
                        eprintln!("{id} was shown after {} ms: {why}\n{}", took.as_millis(), daemon.log());
                    }
                }
                self.told.extend(gone.remove(id).map(|since: Instant| since.elapsed()));
            }
            for (id, why) in &found {
                if is_shown.contains(id) || there.contains(id) {
                    gone.entry(*id).or_insert_with(Instant::now);
                } else {
                    late.entry(*id).or_insert_with(|| why.clone());
                }
            }
            let took = began.elapsed();
            if found.is_empty() {
                return;
            }
            if took > GHOST_LIMIT {
                for (id, why) in found {
                    let left = with_variable(&format!("SVC_AGENT_ID={id}"));
                    let ms = took.as_millis();
                    let why = format!("after {ms} ms: {why}; of its processes are there {left:?}");
                    self.fault(id, &why, &Value::Null);
                }
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// An agent has ended: what it said and did.
    fn audit(&mut self, daemon: &Daemon, worker: &Worker, record: &Value) {
        // The end is known a moment before it is in the log.
        let until = Instant::now() + GHOST_LIMIT;
        let mut entries = daemon.log_of(&worker.id);
        while !entries.iter().any(|entry| entry["type"] == "life") && Instant::now() < until {
            entries = daemon.log_of(&worker.id);
        }
        let log = json!({"record": record, "entries": entries});
        let (tools, input, output) = worker.kind.figures();
        let count = |kind: &str| entries.iter().filter(|entry| entry["type"] == kind).count();
        let error = record["error"].as_str().unwrap_or_default();
        if error.contains("database is locked") || error.contains("Failed query") {
            self.locked += 1;
            return;
        }
        let told =
            (&record["state"], &record["turns"], &record["tokens"]["input"], &record["tokens"]["output"]);
        if told != (&json!("completed"), &json!(1), &json!(input), &json!(output)) {
            self.fault(&worker.id, &format!("state, turns, tokens: {told:?}"), &log);
        }
        for (kind, wanted) in
            [("user", 1), ("tool-started", tools), ("tool-ended", tools), ("turn-ended", 1), ("life", 1)]
        {
            if count(kind) != wanted {
                self.fault(&worker.id, &format!("{} of {kind}, not {wanted}", count(kind)), &log);
            }
        }
        let said: Vec<&str> = entries
            .iter()
            .filter(|entry| entry["type"] == "text")
            .filter_map(|entry| entry["text"].as_str())
            .filter(|text| *text != "all said")
            .collect();
        let words = worker.kind.words();
        if said != words {
            self.fault(&worker.id, &format!("{} lines said, not {} in order", said.len(), words.len()), &log);
        }
        self.ended += 1;
        self.lines += entries.len();
        self.real += usize::from(matches!(worker.kind, Kind::Real(_)));
    }

    fn tell(&mut self, kills: usize) {
        println!(
            "{kills} kills; {} turns to their end, {} of Codex and OpenCode, {} lines of logs; shown again in {}; \
             ends told in {}; given up by themselves: {}; faults: {}",
            self.ended,
            self.real,
            self.lines,
            spread(&mut self.shown),
            spread(&mut self.told),
            self.locked,
            self.faults.len()
        );
    }
}

/// How long it took.
fn spread(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return "no case".to_owned() };
    let at = |share: usize| times[last * share / 1000].as_secs_f64() * 1000.0;
    let (median, most, longest) = (at(500), at(990), at(1000));
    format!("{median:.1} ms (median of {}), {most:.1} (99 %), {longest:.1} (longest)", times.len())
}

fn is_there(pid: u64) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The processes of those that are shown alive.
fn pids_of(daemon: &Daemon) -> HashMap<String, u64> {
    let records = daemon.get("/api/agents?fields=id,pid");
    let own = |record: &Value| Some((record["id"].as_str()?.to_owned(), record["pid"].as_u64()?));
    records.as_array().unwrap().iter().filter_map(own).collect()
}

/// What is said of an agent that is not so.
fn wrong(records: &Value, worker: &Worker) -> Option<String> {
    let record = records.as_array().unwrap().iter().find(|record| record["id"] == worker.id);
    record.map_or(Some("not there".to_owned()), ghost)
}

/// Why what is shown is not so.
fn ghost(record: &Value) -> Option<String> {
    let (state, status) = (record["state"].as_str()?, record["status"].as_str()?);
    match record["pid"].as_u64() {
        Some(pid) if status == "active" => {
            (!is_there(pid)).then(|| format!("{state}, and process {pid} is gone"))
        }
        // One whose start was ordered before the kill, and is made again, has none yet.
        None if status == "active" && state != "starting" => Some(format!("{state} without a process")),
        // How it has ended is looked at with its log.
        _ => None,
    }
}

fn start(daemon: &Daemon, kind: Kind) -> Worker {
    let record = wait_within(TURN_LIMIT, "the program to be found", || {
        let (status, record) = daemon.send("POST", "/api/agents", &kind.order());
        assert!([201, 422, 503].contains(&status), "{status} {record}");
        (status == 201).then_some(record)
    });
    Worker { id: record["id"].as_str().unwrap().to_owned(), kind, since: Instant::now() }
}

/// Those that have ended are looked at and removed, and others come in their place.
fn relieve(daemon: &Daemon, crew: &mut [Worker], seen: &mut Seen) {
    for worker in crew {
        if let Some(record) = over(daemon, worker) {
            seen.audit(daemon, worker, &record);
            let (status, removed) = daemon.send("DELETE", &format!("/api/agents/{}", worker.id), &json!({}));
            assert_eq!(status, 200, "{removed}");
            *worker = start(daemon, worker.kind);
        }
    }
}

fn over(daemon: &Daemon, worker: &Worker) -> Option<Value> {
    let record = daemon.get(&format!("/api/agents/{}", worker.id));
    let is_hung = worker.since.elapsed() > TURN_LIMIT;
    (record["status"] != "active" || is_hung).then_some(record)
}

fn project() -> Arc<Folder> {
    let folder = Folder::new("kills");
    let mut steps = Vec::new();
    for line in 1..=LINES {
        steps.push(json!({"say": format!("line {line}")}));
        if line % GROUP == 0 {
            steps.push(json!({"usage": {"input": 100, "output": 10, "cacheRead": 0, "cacheCreation": 0}}));
            steps.push(json!({"sleepMs": 150}));
        }
    }
    steps.push(json!({"answer": "all said"}));
    folder.write(".svc/rehearsals/talk.json", &json!({"steps": steps}).to_string());
    folder.write(".svc/config.json", &json!({"maxAgents": 40}).to_string());
    Arc::new(folder)
}

#[test]
fn agents_in_mid_turn_lose_and_double_nothing_however_often_their_daemon_is_killed() {
    let kills = std::env::var("COUNT").map_or(KILLS, |count| count.parse().unwrap());
    let folder = project();
    let clis: Vec<Cli> = [Cli::Codex, Cli::OpenCode].into_iter().filter(|cli| cli.is_here()).collect();
    let aimock = clis.first().map(|_| Aimock::start(folder.path()));
    let url = aimock.as_ref().map_or("", |aimock| &aimock.url);
    let home = Home::new(url);
    let variables = home.variables_of(&clis, url);
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut daemon = Daemon::start_in(Arc::clone(&folder), &variables);
    let is_here = |kind: &Kind| !matches!(kind, Kind::Real(cli) if !clis.contains(cli));
    let mut crew: Vec<Worker> = CREW.into_iter().filter(is_here).map(|kind| start(&daemon, kind)).collect();
    let (mut dice, mut seen) = (Dice::seeded(1000), Seen::default());
    for kill in 1..=kills {
        relieve(&daemon, &mut crew, &mut seen);
        let fate =
            Instant::now() + LIFE.mul_f64(f64::from(u32::try_from(dice.below(1000)).unwrap()) / 1000.0);
        wait_for("the moment", || (Instant::now() >= fate).then_some(()));
        let pids = pids_of(&daemon);
        daemon.kill();
        daemon = Daemon::start_in(Arc::clone(&folder), &variables);
        seen.look(&daemon, &crew, &pids);
        if kill % 50 == 0 {
            seen.tell(kill);
        }
    }
    for worker in &crew {
        let record = wait_within(TURN_LIMIT * 2, "its end", || over(&daemon, worker));
        seen.audit(&daemon, worker, &record);
    }
    seen.tell(kills);
    wait_for("the keepers to go", || keepers_of(folder.path()).is_empty().then_some(()));
    assert_eq!(daemon.stop(), Some(0));
    assert!(of_project(folder.path()).is_empty());
    assert!(seen.faults.is_empty(), "{:#?}", seen.faults);
}
