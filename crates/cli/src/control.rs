//! `svc start`, `svc stop`, `svc status`, `svc open`.

mod places;

use super::StartDaemon;
use super::client::{Address, Client, port_file_url};
use super::render::{age, count};
use super::session::{Failure, Out, Outcome, Session, complain};
use super::target::{agents, is_live, text};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use svc_sys::terminal;

/// How long a daemon may take to answer after its start: it waits 5 s for a busy port, and reads its state.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long a daemon may take to end: agents get 5 s, and their strays are swept up.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at a daemon that starts or ends.
const POLL: Duration = Duration::from_millis(50);
/// Bytes of the log that a failed start shows.
const LOG_TAIL_BYTES: u64 = 2048;

/// `svc start`.
pub fn start(session: &Session) -> Outcome {
    let args = &session.args;
    if args.flag("url") {
        return Err(Failure::usage("'svc start' takes --host and --port, not --url"));
    }
    let port = args.value("port").map(|text| {
        let wrong = || Failure::usage(format!("--port is a number from 0 to 65535, not '{text}'"));
        text.parse::<u16>().map_err(|_| wrong())
    });
    let port = port.transpose()?;
    let dir = session.surroundings.project_dir_or_here();
    let project_dir = fs::canonicalize(&dir).map_err(|error| {
        Failure::failed(format!("the project {} cannot be opened: {error}", dir.display()))
    })?;
    let out = session.out;
    if let Some(running) = running(&project_dir) {
        return already(&out, &project_dir, &running, port, args.value("host"));
    }
    if session.surroundings.project.is_none() {
        places::refuse_wide(&project_dir, &session.surroundings.folder)?;
    }
    if args.flag("background") {
        let options = Background { project_dir, port, host: args.value("host"), own_session: true };
        let daemon = start_in_background(&options, &|words| out.note(words))?;
        let link = Client::new(daemon.address.clone()).and_then(|client| console_link(&client, false)).ok();
        return announce(&out, &daemon.address.url, link.as_deref(), daemon.pid);
    }
    let on_ready = Box::new(move |url: &str, code: Option<&str>| {
        let link = code.map(|code| format!("{url}/#code={code}"));
        // A closed standard output is no reason to end a daemon that is up.
        let _ = announce(&out, url, link.as_deref(), std::process::id());
    });
    (session.start)(StartDaemon {
        project_dir,
        host: args.value("host").map(ToOwned::to_owned),
        port,
        stderr_is_log: args.flag("stderr-is-log"),
        on_ready,
    })
}

fn announce(out: &Out, url: &str, link: Option<&str>, pid: u32) -> Outcome {
    let mut document = json!({"url": url, "pid": pid});
    if let Some(link) = link {
        document["console"] = link.into();
    }
    out.told(&document, url, &last_words(url, link).join("\n"))
}

/// What a start says when the daemon is there: where it is, how to get in, what to do next.
fn last_words(url: &str, link: Option<&str>) -> Vec<String> {
    let mut lines = vec![format!("listening on {url}")];
    if is_beyond_this_machine(url) {
        lines.push(
            "sign in as user svc with the token in .svc/token; it is plain HTTP: trust the network".into(),
        );
    }
    lines.push(match link {
        Some(link) => format!("console {link} (proves you, once, within 10 minutes)"),
        None => "the console is at the same address".into(),
    });
    lines.push("next: svc open, svc doctor, svc spawn ROLE 'TASK'".into());
    lines
}

/// A link to the console that proves a person, once; `only_seen` for one that other programs may see.
fn console_link(client: &Client, only_seen: bool) -> Result<String, Failure> {
    let answer = client.post("/api/console/codes", &json!({"onlySeen": only_seen}))?;
    Ok(text(&answer, "link").to_owned())
}

/// Whether a daemon at this address is one for other machines, too.
fn is_beyond_this_machine(url: &str) -> bool {
    let host = url.trim_start_matches("http://").rsplit_once(':').map_or("", |(host, _)| host);
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| !ip.is_loopback())
}

/// What was asked for is there: no error, unless it is asked for at another address.
fn already(out: &Out, project: &Path, running: &Running, port: Option<u16>, host: Option<&str>) -> Outcome {
    let (url, pid) = (&running.address.url, running.pid);
    let (its_host, its_port) = url.trim_start_matches("http://").rsplit_once(':').unwrap_or((url, ""));
    let elsewhere = port.is_some_and(|port| port != 0 && port.to_string() != its_port)
        || host.is_some_and(|host| host.trim_matches(['[', ']']) != its_host.trim_matches(['[', ']']));
    if elsewhere {
        let dir = project.display();
        return Err(Failure::failed(format!(
            "a daemon runs for {dir} already, at another address: pid {pid} at {url}; end it with 'svc stop' first"
        )));
    }
    let document = json!({"url": url, "pid": pid, "already": true});
    out.told(&document, url, &format!("already runs at {url} (pid {pid})"))
}

/// How to start a daemon that this program does not wait for.
pub struct Background<'a> {
    /// The project's root, absolute.
    pub project_dir: PathBuf,
    /// `--port`.
    pub port: Option<u16>,
    /// `--host`.
    pub host: Option<&'a str>,
    /// Whether it survives ctrl-c and the end of this terminal.
    pub own_session: bool,
}

/// A daemon that answers.
pub struct Running {
    pub address: Address,
    pub pid: u32,
}

/// Starts this program again as a daemon and returns once it answers. `note` gets what the daemon warns of
/// until then, for example that its port is in use, as soon as it does.
///
/// Errors: the daemon's reason, from the end of its log.
pub fn start_in_background(options: &Background, note: &dyn Fn(&str)) -> Result<Running, Failure> {
    let dir = &options.project_dir;
    let log_path = dir.join(".svc").join("daemon.log");
    let (log, log_start) = open_log(dir, &log_path)?;
    let mut child = spawn_daemon(options, log)
        .map_err(|error| Failure::failed(format!("the daemon's process cannot be started: {error}")))?;
    let deadline = Instant::now() + START_LIMIT;
    let mut noted = log_start;
    loop {
        let running = running(dir).filter(|running| running.pid == child.id());
        noted = pass_on(&log_path, noted, note);
        if let Some(running) = running {
            return Ok(running);
        }
        let ended = child.try_wait().ok().flatten();
        let code =
            ended.map(|status| status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).max(1));
        let reason = match code {
            Some(_) => "the daemon ended at once",
            None if Instant::now() >= deadline => {
                let _ = child.kill().and_then(|()| child.wait());
                "the daemon did not answer in time and was ended"
            }
            None => {
                std::thread::sleep(POLL);
                continue;
            }
        };
        let tail = log_tail(&log_path, log_start);
        let tail =
            if tail.is_empty() { "its log is empty".to_owned() } else { format!("its log says:\n{tail}") };
        let message = format!("{reason}; {tail}\n(the whole log is {})", log_path.display());
        return Err(Failure::Say { code: code.unwrap_or(1), message });
    }
}

fn spawn_daemon(options: &Background, log: File) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("start").arg("--stderr-is-log").arg("--project").arg(&options.project_dir);
    if let Some(port) = options.port {
        command.arg("--port").arg(port.to_string());
    }
    if let Some(host) = options.host {
        command.arg("--host").arg(host);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&options.project_dir);
    if options.own_session {
        terminal::detach(&mut command);
    }
    command.spawn()
}

/// Opens the daemon's log for appending, and tells where this start's part begins.
fn open_log(dir: &Path, log_path: &Path) -> Result<(File, u64), Failure> {
    let fail = |what: &Path, error: std::io::Error| {
        Failure::failed(format!("{} cannot be written: {error}; see 'svc doctor'", what.display()))
    };
    let state = dir.join(".svc");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(|error| fail(&state, error))?;
    let log = File::options().create(true).append(true).mode(0o600).open(log_path);
    let log = log.map_err(|error| fail(log_path, error))?;
    let length = log.metadata().map_err(|error| fail(log_path, error))?.len();
    Ok((log, length))
}

/// Passes on what the log warns of in whole lines from `from` on; answers where the next look begins.
fn pass_on(path: &Path, from: u64, note: &dyn Fn(&str)) -> u64 {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.take(LOG_TAIL_BYTES).read_to_end(&mut text)
    });
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if read.is_err() || whole == 0 {
        return from;
    }
    for line in String::from_utf8_lossy(&text[..whole]).lines() {
        if let Some((_, words)) = line.split_once(" WARN  ") {
            note(&super::render::one_line(words));
        }
    }
    from + whole as u64
}

/// The end of the log, from `start` at the earliest, in whole lines where there are any.
fn log_tail(path: &Path, start: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        // A log that was rotated meanwhile is shorter than it was.
        let start = if length < start { 0 } else { start };
        let from = start.max(length.saturating_sub(LOG_TAIL_BYTES));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = if from > start { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
        Ok(super::render::clean(whole).trim_end().to_owned())
    };
    read().unwrap_or_default()
}

/// The daemon that answers for this project, by its port file.
pub fn running(project: &Path) -> Option<Running> {
    let file = project.join(".svc").join("daemon.port");
    let url = port_file_url(&fs::read_to_string(&file).ok()?)?;
    let address = Address { url, project: Some(project.to_path_buf()), source: file.display().to_string() };
    let client = Client::new(address.clone()).ok()?;
    let status = client.try_call("GET", "/api/status", None).ok()?;
    let pid = u32::try_from(status["pid"].as_u64()?).ok()?;
    let its_project = Path::new(text(&status, "projectDir"));
    // A stale port file may name a port that another project's daemon has taken since.
    let same = fs::canonicalize(its_project).ok()? == fs::canonicalize(project).ok()?;
    same.then_some(Running { address, pid })
}

/// `svc restart`.
pub fn restart(session: &Session) -> Outcome {
    refuse_agents(session)?;
    let client = session.client()?;
    let Some(project) = client.address().project.clone() else {
        return Err(Failure::usage(
            "'svc restart' restarts the daemon of a project: give --project, not --url",
        ));
    };
    let address = client.address().url.trim_start_matches("http://").to_owned();
    let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
    let port = port.parse::<u16>().ok();
    end(&client, true)?;
    let host = host.trim_matches(['[', ']']);
    let options = Background { project_dir: project, port, host: Some(host), own_session: true };
    let out = session.out;
    let daemon = start_in_background(&options, &|words| out.note(words))?;
    announce(&out, &daemon.address.url, None, daemon.pid)
}

fn refuse_agents(session: &Session) -> Result<(), Failure> {
    session.caller().map_or(Ok(()), |id| {
        Err(Failure::failed(format!(
            "agent {id} may not stop the daemon it runs under; ask the person who started it"
        )))
    })
}

/// `svc stop`.
pub fn stop(session: &Session) -> Outcome {
    refuse_agents(session)?;
    let client = session.client()?;
    let answer = end(&client, session.args.flag("keep"))?;
    let out = &session.out;
    out.told(&answer, "", "stopped")
}

/// Ends a daemon with its agents and returns when its process is gone and its lock is free.
pub fn shut_down(client: &Client) -> Result<Value, Failure> {
    end(client, false)
}

fn end(client: &Client, keep: bool) -> Result<Value, Failure> {
    let path = if keep { "/api/shutdown?keep=true" } else { "/api/shutdown" };
    let answer = client.post(path, &json!({}))?;
    let pid = answer["pid"].as_u64();
    let deadline = Instant::now() + STOP_LIMIT;
    while !is_gone(client, pid) {
        if Instant::now() >= deadline {
            let pid = pid.map_or_else(|| "the daemon".into(), |pid| format!("the daemon (pid {pid})"));
            let limit = STOP_LIMIT.as_secs();
            return Err(Failure::failed(format!(
                "{pid} has not ended within {limit} s; see .svc/daemon.log"
            )));
        }
        std::thread::sleep(POLL);
    }
    Ok(answer)
}

fn is_gone(client: &Client, pid: Option<u64>) -> bool {
    if let Some(project) = &client.address().project
        && lock_is_held(project)
    {
        return false;
    }
    match pid.map(process_is_alive) {
        Some(Some(alive)) => !alive,
        // Where the system does not tell of processes, the silence of the port has to do.
        _ => client.try_call("GET", "/api/health", None).is_err(),
    }
}

/// Whether a process runs; `None` where there is no `/proc`. One that has ended and waits to be collected by
/// its parent counts as gone.
fn process_is_alive(pid: u64) -> Option<bool> {
    if !Path::new("/proc/self/stat").exists() {
        return None;
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Some(false) };
    // The name in parentheses may contain anything; the state follows the last of them.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    Some(!matches!(state, Some("Z" | "X")))
}

/// Whether a daemon holds the project's lock. A shared lock is tried and given back at once.
pub fn lock_is_held(project: &Path) -> bool {
    let Ok(file) = File::open(project.join(".svc").join("daemon.lock")) else { return false };
    matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
}

/// `svc status`.
pub fn status(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    let status = client.get("/api/status")?;
    if out.json {
        return out.document(&status);
    }
    let url = &client.address().url;
    if out.quiet {
        return out.line(url);
    }
    let agents = agents(&client)?;
    let live = agents.iter().filter(|agent| is_live(agent)).count();
    let tokens = agents.iter().filter_map(|agent| agent["tokensUsed"].as_u64()).sum();
    let uptime = Duration::try_from_secs_f64(status["uptime"].as_f64().unwrap_or(0.0)).unwrap_or_default();
    let mut lines = vec![
        format!(
            "daemon   svc {} at {url}, pid {}, up {}",
            text(&status, "version"),
            status["pid"],
            age(uptime)
        ),
        format!("project  {}", text(&status, "projectDir")),
        format!("agents   {live} live, {} in all", agents.len()),
        format!("tokens   {}", count(tokens)),
    ];
    let waiting: Vec<&str> = agents
        .iter()
        .filter(|agent| text(agent, "state") == "waiting")
        .map(|agent| text(agent, "name"))
        .collect();
    if !waiting.is_empty() {
        lines.push(format!("waiting  {} for your decision; see 'svc approvals'", waiting.join(", ")));
    }
    out.lines(&lines)
}

/// `svc open`.
pub fn open(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    if session.args.flag("forget") {
        let answer = client.call("DELETE", "/api/console/sessions", None)?;
        let ended = answer["ended"].as_u64().unwrap_or_default();
        return out.told(&answer, "", &format!("ended {ended} sessions of the console"));
    }
    client.get("/api/health")?;
    let plain = format!("{}/", client.address().url);
    // Every user of the machine can read a program's arguments: what the browser is started with is for one
    // that is seen to be no agent's.
    let (link, shown) = match (console_link(&client, false), console_link(&client, true)) {
        (Ok(link), Ok(shown)) => (link, shown),
        (Err(error), _) | (_, Err(error)) => {
            if let Failure::Say { message, .. } = error {
                out.note(&format!("without a proof that you are a person: {message}"));
            }
            (plain.clone(), plain)
        }
    };
    out.said(&json!({"url": link}), &link)?;
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg(&shown).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    terminal::detach(&mut command);
    if command.spawn().is_err() && !out.quiet {
        complain(&format!("{opener} is not here: open the address in a browser yourself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_alive_and_an_impossible_one_is_not() {
        if Path::new("/proc/self/stat").exists() {
            assert_eq!(process_is_alive(u64::from(std::process::id())), Some(true));
            assert_eq!(process_is_alive(u64::MAX), Some(false));
        }
    }

    #[test]
    fn only_an_address_of_a_network_asks_for_the_token() {
        for (url, is_beyond) in [
            ("http://127.0.0.1:31415", false),
            ("http://[::1]:31415", false),
            ("http://10.0.0.5:31415", true),
            ("http://[fd00::5]:31415", true),
        ] {
            assert_eq!(is_beyond_this_machine(url), is_beyond, "{url}");
        }
    }

    #[test]
    fn a_start_says_where_how_to_get_in_and_what_to_do_next() {
        let next = "next: svc open, svc doctor, svc spawn ROLE 'TASK'";
        let here = "the console is at the same address";
        assert_eq!(
            last_words("http://127.0.0.1:31415", None),
            ["listening on http://127.0.0.1:31415", here, next]
        );
        let link = "http://127.0.0.1:31415/#code=c0de";
        let console = "console http://127.0.0.1:31415/#code=c0de (proves you, once, within 10 minutes)";
        assert_eq!(last_words("http://127.0.0.1:31415", Some(link))[1], console);
        let sign_in = "sign in as user svc with the token in .svc/token; it is plain HTTP: trust the network";
        assert_eq!(
            last_words("http://10.0.0.5:31415", None),
            ["listening on http://10.0.0.5:31415", sign_in, here, next]
        );
    }
}
