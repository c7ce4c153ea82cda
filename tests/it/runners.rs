//! Other machines: a real sshd in a network namespace of its own, reached by the real ssh.
//!
//! `tests/real/setup-runners` installs sshd; without it, or without root, these tests say that they were
//! skipped, and fail where `SVC_REAL_CLIS=require`.

use crate::support::daemon::{Daemon, is_root};
use crate::support::folder::Folder;
use crate::support::real::absent;
use crate::support::wait::wait_within;
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Within this time an agent is shown as unreachable whose machine does not answer.
pub const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A machine with sshd; it is gone on drop.
pub struct Host {
    folder: Folder,
}

impl Host {
    /// `None` where there is none to be had.
    ///
    /// Panics where `SVC_REAL_CLIS=require`.
    pub fn start() -> Option<Self> {
        let host = Self { folder: Folder::new("runner") };
        // Namespaces are root's.
        if is_root() && host.setup("--status").is_ok() {
            enter_own_network();
            host.do_("start");
            return Some(host);
        }
        absent("sshd, or root's rights,", "setup-runners");
        None
    }

    fn setup(&self, word: &str) -> Result<(), String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/setup-runners");
        let mut command = Command::new(script);
        command.arg(word);
        if word != "--status" {
            command.arg(self.folder.path());
        }
        let said = command.output().map_err(|error| error.to_string())?;
        if said.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
    }

    /// `cut`, `mend`, `die`: see the script.
    pub fn do_(&self, word: &str) {
        self.setup(word).unwrap_or_else(|error| panic!("setup-runners {word}: {error}"));
    }

    /// A file of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// This machine, as it sees it.
    pub fn address_of_here(&self) -> String {
        let number = std::fs::read_to_string(self.path("number")).unwrap();
        format!("10.213.{}.1", number.trim())
    }

    /// The HOME of whoever logs in there.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// A daemon whose `ssh` knows this machine as `box`.
    pub fn daemon(&self, project: Arc<Folder>) -> Daemon {
        let path = format!("{}/bin:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        Daemon::start_in(project, &[("PATH", &path)])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if is_root() {
            // A host that was not started leaves nothing to stop.
            let _ = self.setup("stop");
        }
    }
}

/// Puts this thread, and what it starts from now on, into a network of its own, where the cables are laid: a
/// browser beside gives up whatever it loads when an interface of its machine comes or goes.
#[allow(unsafe_code, reason = "std leaves no namespace")]
fn enter_own_network() {
    thread_local! {
        static ENTERED: OnceCell<()> = const { OnceCell::new() };
    }
    ENTERED.with(|entered| {
        entered.get_or_init(|| {
            // SAFETY: takes a flag and touches no memory.
            let failed = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.is_ok_and(|up| up.success()), "ip link set lo up");
        });
    });
}

/// Gives the machine at this destination a name.
pub fn add(daemon: &Daemon, name: &str, destination: &str) {
    daemon.post("/api/runners", &json!({"name": name, "kind": "ssh", "destination": destination}));
}

pub fn check(daemon: &Daemon, name: &str) -> Value {
    daemon.post(&format!("/api/runners/{name}/check"), &Value::Null)["checked"].clone()
}

#[test]
fn a_runner_is_checked_and_gets_this_very_program_once() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(Arc::new(Folder::new("runners")));
    add(&daemon, "box", "box");
    let first = check(&daemon, "box");
    assert_eq!((&first["error"], &first["copied"]), (&Value::Null, &json!(true)), "{first:#}");
    let facts = &first["facts"];
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(facts["kernel"], kernel.trim());
    assert!(facts["memory"].as_u64() > Some(0) && facts["processors"].as_u64() > Some(0), "{facts}");
    let hash = facts["program"].as_str().unwrap();
    let there = host.home().join(".cache/svc/bin").join(hash).join("svc");
    let own = Path::new(env!("CARGO_BIN_EXE_svc"));
    assert!(std::fs::read(&there).unwrap() == std::fs::read(own).unwrap(), "it is this very program");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&there).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let again = check(&daemon, "box");
    assert_eq!((&again["error"], &again["copied"]), (&Value::Null, &json!(false)), "{again:#}");
    // Somebody has put another program there. The one that was there runs.
    std::fs::remove_file(&there).unwrap();
    executable(&there, "#!/bin/sh\necho 'svc-far {\"version\":\"1\"}'\n");
    let other = check(&daemon, "box");
    assert!(other["error"].as_str().unwrap().contains("cannot be read"), "{other:#}");
    // One that lacks its loader is a program that the shell cannot run.
    std::fs::write(&there, "#!/nowhere/loader\n").unwrap();
    let unable = check(&daemon, "box");
    assert!(unable["error"].as_str().unwrap().contains("make static"), "{unable:#}");
}

#[test]
fn a_host_that_is_not_known_or_not_there_is_told_and_gets_nothing() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(Arc::new(Folder::new("runners")));
    add(&daemon, "stranger", "stranger");
    let told = check(&daemon, "stranger");
    let error = told["error"].as_str().unwrap();
    assert!(error.contains("Host key verification failed") && error.contains("ssh stranger"), "{error}");
    assert!(!host.home().join(".cache").exists(), "nothing was sent to a host that is not known");
    add(&daemon, "box", "box");
    host.do_("die");
    let told = check(&daemon, "box");
    assert!(told["error"].as_str().unwrap().contains("ssh cannot reach box"), "{told:#}");
    assert_eq!(daemon.get("/api/runners")["runners"][0]["checked"], told, "it stands in the record");
}

/// A project whose agents can be sent away, with a scenario that says `count` numbered lines, one every
/// `pause_ms`, and writes a file.
pub fn repository(count: usize, pause_ms: u64) -> Arc<Folder> {
    let folder = Folder::new("far");
    let mut steps: Vec<Value> = (1..=count)
        .flat_map(|n| [json!({"say": format!("line {n}")}), json!({"sleepMs": pause_ms})])
        .collect();
    steps.extend([json!({"run": {"command": "echo $HOME > where"}}), json!({"answer": "counted"})]);
    let lines = json!({"description": "counts", "steps": steps});
    folder.write(".svc/rehearsals/counts.json", &lines.to_string());
    folder.write("a.txt", "one\n");
    let git = |args: &[&str]| {
        let settings = ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "init.defaultBranch=main"];
        let done = Command::new("git").args(settings).args(args).current_dir(folder.path()).output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "--quiet"]);
    // The rehearsal plays there, so the scenario has to be in a commit.
    git(&["add", "--force", "a.txt", ".svc/rehearsals"]);
    git(&["commit", "--quiet", "-m", "first"]);
    Arc::new(folder)
}

pub fn spawn_there(daemon: &Daemon, name: &str, runner: &str) -> String {
    let body = json!({"role": "dev", "name": name, "provider": "script", "model": "counts", "runner": runner,
        "prompt": "count"});
    let agent = daemon.post("/api/agents", &body);
    assert_eq!((&agent["runner"], &agent["isolation"]), (&json!(runner), &json!("worktree")), "{agent:#}");
    agent["id"].as_str().unwrap().to_owned()
}

pub fn agent(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/api/agents/{id}"))
}

/// The numbers of the lines that it has said, as its log has them.
pub fn said(daemon: &Daemon, id: &str) -> Vec<usize> {
    let log = daemon.get(&format!("/api/agents/{id}/log?tail=10000"));
    let entries = log["entries"].as_array().cloned().unwrap_or_default();
    let lines = entries.iter().filter(|entry| entry["type"] == "text");
    lines.filter_map(|entry| entry["text"].as_str()?.strip_prefix("line ")?.parse().ok()).collect()
}

/// From 1 on, each once.
pub fn counted(to: usize) -> Vec<usize> {
    (1..=to).collect()
}

pub fn wait_code(daemon: &Daemon, id: &str, code: &str) -> Value {
    wait_within(Duration::from_secs(60), code, || {
        let agent = agent(daemon, id);
        (agent["statusCode"] == code).then_some(agent)
    })
}

/// From the wish to the first word of its program, which comes to its end after that.
pub fn first_word(daemon: &Daemon, name: &str, runner: Option<&str>) -> Duration {
    let mut body = json!({"role": "dev", "name": name, "provider": "script", "model": "counts", "prompt": "count",
        "isolation": "worktree"});
    if let Some(runner) = runner {
        body["runner"] = json!(runner);
    }
    let began = Instant::now();
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    wait_within(Duration::from_secs(120), "its first word", || (!said(daemon, &id).is_empty()).then_some(()));
    let took = began.elapsed();
    wait_finished(daemon, &id);
    took
}

pub fn wait_finished(daemon: &Daemon, id: &str) {
    let ended = wait_within(Duration::from_secs(120), "the end", || {
        let agent = agent(daemon, id);
        (agent["status"] != "active").then_some(agent)
    });
    assert_eq!(ended["statusCode"], "finished", "{ended:#}");
}

#[test]
fn an_agent_works_on_another_machine_and_its_work_comes_back_as_commits() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(repository(3, 20));
    add(&daemon, "box", "box");
    let body = json!({"role": "dev", "provider": "script", "runner": "box", "prompt": "x"});
    let (status, told) = daemon.send("POST", "/api/agents", &body);
    assert!(status == 400 && told.to_string().contains("svc runner check box"), "{told}");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let id = spawn_there(&daemon, "one", "box");
    wait_finished(&daemon, &id);
    assert_eq!(said(&daemon, &id), counted(3));
    let fetched = daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
    assert_eq!((&fetched["commits"], &fetched["uncommitted"]), (&json!(1), &json!(false)), "{fetched:#}");
    let again = daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
    assert_eq!(again["commits"], 0, "{again:#}");
    let merged = daemon.post(&format!("/api/agents/{id}/merge"), &json!({}));
    assert_eq!(merged["merged"], true, "{merged:#}");
    let there = std::fs::read_to_string(daemon.project.join("where")).unwrap();
    assert_eq!(there.trim(), host.home().to_str().unwrap(), "its file was written there");
    // The next one finds the repository there.
    let second = spawn_there(&daemon, "two", "box");
    wait_finished(&daemon, &second);
    assert_eq!(said(&daemon, &second), counted(3));
    wait_within(Duration::from_secs(10), "each keeper's folder to be removed there", || {
        let inside = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
        let places = inside(&host.home().join(".local/state/svc/runners")).collect::<Vec<_>>();
        let works = places.iter().flat_map(|place| inside(&place.path()));
        let mut all = works.flat_map(|work| inside(&work.path()).collect::<Vec<_>>());
        let is_left = all.any(|entry| entry.file_name().to_string_lossy().starts_with("run-"));
        (!places.is_empty() && !is_left).then_some(())
    });
}

/// How long the cable is out once that is known: `SVC_TEST_CUT_SECONDS`, by hand.
fn cut_time() -> Duration {
    let seconds = std::env::var("SVC_TEST_CUT_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1))
}

#[test]
fn a_cable_that_is_pulled_costs_no_line_and_interrupts_no_turn() {
    let Some(host) = Host::start() else { return };
    // Fewer than a page of the log holds.
    let count = 900;
    // It goes on for longer than the cable is out, and not much longer.
    let pause = 40 + cut_time().as_millis() * 11 / 10 / 900;
    let folder = repository(count, u64::try_from(pause).unwrap());
    let mut daemon = host.daemon(Arc::clone(&folder));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let id = spawn_there(&daemon, "one", "box");
    wait_within(Duration::from_secs(60), "some lines", || (said(&daemon, &id).len() > 20).then_some(()));
    host.do_("cut");
    let began = Instant::now();
    let cut = wait_code(&daemon, &id, "unreachable");
    let known = began.elapsed();
    assert!(known < SHOWN_WITHIN, "{known:?}");
    assert_eq!(cut["status"], "active", "{cut:#}");
    // The daemon dies meanwhile, too.
    daemon.kill();
    daemon = host.daemon(folder);
    wait_code(&daemon, &id, "unreachable");
    let heard = said(&daemon, &id).len();
    wait_within(cut_time() * 2, "the cable", || (began.elapsed() >= known + cut_time()).then_some(()));
    assert!(heard < count && said(&daemon, &id).len() <= heard + 1, "nothing comes over a cut cable");
    host.do_("mend");
    wait_finished(&daemon, &id);
    assert_eq!(said(&daemon, &id), counted(count), "each line once, in its order");
    let turns = agent(&daemon, &id)["turns"].clone();
    assert_eq!(turns, 1, "the turn was not interrupted");
    eprintln!("the cable was out for {:?}, known after {known:?}; {heard} lines before", began.elapsed());
}

/// A program that a shell runs.
pub fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// Hosts that one daemon knows as `box0`, `box1` and so on.
pub fn daemon_of(hosts: &[Host], project: Arc<Folder>) -> Daemon {
    let configs = hosts.iter().enumerate().map(|(n, host)| {
        let config = std::fs::read_to_string(host.folder.path().join("config")).unwrap();
        let own = config.split("Host stranger").next().unwrap_or_default();
        own.replace("Host box", &format!("Host box{n}"))
    });
    let all: String = configs.collect();
    let folder = hosts[0].folder.path().join("all");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config"), all).unwrap();
    let wrapper = std::fs::read_to_string(hosts[0].folder.path().join("bin/ssh")).unwrap();
    let own = hosts[0].folder.path().join("config").display().to_string();
    let wrapper = wrapper.replace(&own, &folder.join("config").display().to_string());
    executable(&folder.join("ssh"), &wrapper);
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    Daemon::start_in(project, &[("PATH", &path)])
}

#[test]
fn of_twenty_agents_on_three_hosts_those_of_a_host_that_dies_are_shown_and_go_on_elsewhere() {
    let hosts: Vec<Host> = (0..3).filter_map(|_| Host::start()).collect();
    if hosts.len() < 3 {
        return;
    }
    let daemon = daemon_of(&hosts, repository(400, 250));
    daemon.send("PATCH", "/api/config", &json!({"maxAgents": 40}));
    for n in 0..3 {
        add(&daemon, &format!("box{n}"), &format!("box{n}"));
        assert_eq!(check(&daemon, &format!("box{n}"))["error"], Value::Null);
    }
    let runner = |n: usize| format!("box{}", n % 3);
    let all: Vec<String> = (0..20).map(|n| spawn_there(&daemon, &format!("a{n}"), &runner(n))).collect();
    wait_within(Duration::from_secs(120), "all of them to say something", || {
        all.iter().all(|id| !said(&daemon, id).is_empty()).then_some(())
    });
    // Its cable goes first: nobody says goodbye.
    hosts[1].do_("cut");
    hosts[1].do_("die");
    let began = Instant::now();
    let dead: Vec<&String> = all.iter().skip(1).step_by(3).collect();
    for id in &dead {
        wait_code(&daemon, id, "unreachable");
    }
    let known = began.elapsed();
    eprintln!("{} agents of the dead host are known after {known:?}", dead.len());
    assert!(known < SHOWN_WITHIN, "{known:?}");
    let shown = daemon.get("/api/runners")["runners"].clone();
    let counts = |n: usize| (shown[n]["agents"].clone(), shown[n]["unreachable"].clone());
    assert_eq!(
        [counts(0), counts(1), counts(2)],
        [(7, 0), (7, 7), (6, 0)].map(|(all, silent)| (json!(all), json!(silent)))
    );
    let moved = dead[0];
    let (status, told) = daemon.send("DELETE", &format!("/api/agents/{moved}"), &Value::Null);
    assert_eq!(status, 200, "{told}");
    wait_within(Duration::from_secs(60), "its end", || {
        (agent(&daemon, moved)["status"] != "active").then_some(())
    });
    let resumed = daemon.post(&format!("/api/agents/{moved}/resume"), &json!({"runner": "box0"}));
    let next = resumed["id"].as_str().unwrap().to_owned();
    assert_eq!(resumed["agent"]["runner"], "box0", "{resumed:#}");
    let before = said(&daemon, &next).len();
    wait_within(Duration::from_secs(60), "it to go on there", || {
        (said(&daemon, &next).len() > before).then_some(())
    });
    assert_eq!(agent(&daemon, &all[0])["statusCode"], "working", "the others work on");
}
