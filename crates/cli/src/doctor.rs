//! `svc doctor`: whether this machine and this project are fit, and what to do where they are not.

mod faults;
mod programs;

use super::capacity;
use super::client::{CallError, Client};
use super::control::{lock_is_held, running};
use super::help::{VERSION, broken};
use super::progress::{during, is_shown};
use super::render::{Style, cut, one_line};
use super::session::{Failure, Out, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use svc_room::{Refusal, Tried};
use svc_sys::confine;

/// How long another program may take to print its version.
const PROGRAM_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of another program's output that are read.
const OUTPUT_LIMIT_BYTES: u64 = 4096;
/// Free space below which a check fails, and below which it warns: 100 MiB and 1 GiB.
const DISK_FAIL_KIB: u64 = 100 << 10;
const DISK_WARN_KIB: u64 = 1 << 20;

/// Below the words of a check.
const INDENT: &str = "      ";
/// How the name of a provider's check begins.
const PROVIDER: &str = "provider ";

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Ok,
    Warn,
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line of the report.
struct Check {
    level: Level,
    name: String,
    detail: String,
    remedy: String,
}

fn ok(name: &str, detail: impl Into<String>) -> Check {
    Check { level: Level::Ok, name: name.into(), detail: detail.into(), remedy: String::new() }
}

fn not(level: Level, name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { level, name: name.into(), detail: detail.into(), remedy: remedy.into() }
}

/// `svc doctor`.
pub fn doctor(session: &Session) -> Outcome {
    let out = &session.out;
    let checks = during(is_shown(out), "checking", || all_checks(session));
    let failed = checks.iter().any(|check| check.level == Level::Fail);
    if out.json {
        let list: Vec<Value> = checks
            .iter()
            .map(|check| {
                json!({"name": check.name, "status": check.level.word(), "detail": check.detail,
                    "remedy": check.remedy})
            })
            .collect();
        out.document(&json!({"ok": !failed, "checks": list}))?;
    } else {
        tell(out, &short(checks))?;
    }
    if failed { Err(Failure::Told(1)) } else { Ok(()) }
}

/// Programs that are not installed are many; more than one stands in one line.
fn short(mut checks: Vec<Check>) -> Vec<Check> {
    let is_absent = |check: &Check| check.detail == "not installed" && check.name.starts_with(PROVIDER);
    let absent: Vec<&str> =
        checks.iter().filter(|check| is_absent(check)).map(|check| &check.name[PROVIDER.len()..]).collect();
    if absent.len() < 2 {
        return checks;
    }
    let line = not(
        Level::Warn,
        "providers",
        format!("not installed: {}", absent.join(", ")),
        "those that you need; 'svc providers' tells how",
    );
    let at = checks.iter().position(is_absent).unwrap_or_default();
    checks.insert(at, line);
    checks.retain(|check| !is_absent(check));
    checks
}

fn tell(out: &Out, checks: &[Check]) -> Outcome {
    for check in checks.iter().filter(|check| !out.quiet || check.level != Level::Ok) {
        let word = format!("{:4}", check.level.word());
        let word = Style::of_status(check.level.word()).map_or_else(|| word.clone(), |s| out.paint(s, &word));
        // Sentences are broken at words; commands are not, so that they can be copied whole.
        let columns = out.width.map_or(usize::MAX, |width| width.saturating_sub(INDENT.len()));
        let detail =
            broken(&format!("{}: {}", check.name, check.detail), columns).join(&format!("\n{INDENT}"));
        out.line(&format!("{word}  {detail}"))?;
        if !check.remedy.is_empty() {
            out.line(&format!("{INDENT}{}", check.remedy))?;
        }
    }
    let of = |level: Level| checks.iter().filter(|check| check.level == level).count();
    if out.quiet {
        return Ok(());
    }
    out.line(&match (of(Level::Fail), of(Level::Warn)) {
        (0, 0) => "all is well".to_owned(),
        (0, warnings) => format!("nothing to fix; {warnings} to look at"),
        (failures, warnings) => format!("{failures} to fix, {warnings} to look at"),
    })
}

fn all_checks(session: &Session) -> Vec<Check> {
    let project = session.surroundings.project_dir_or_here();
    let client = session.surroundings.find().and_then(Client::new);
    let mut checks = vec![writable(&project), permissions(&project), daemon(client.as_ref())];
    checks.push(lock_and_port(&project));
    let client = client.ok();
    if let Some(client) = &client {
        checks.extend(faults::of_the_daemon(client));
        checks.extend(room(client));
    }
    checks.extend(programs::checks(client.as_ref()));
    checks.push(disk(&project));
    checks.push(git());
    checks.push(fence(confine::version()));
    checks.push(rooms());
    checks.extend(faults::of_the_project(&project));
    checks
}

fn writable(project: &Path) -> Check {
    let name = "project folder";
    let probe = project.join(format!(".svc-doctor-{}", std::process::id()));
    match fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)) {
        Ok(()) => ok(name, format!("{} can be written", project.display())),
        Err(error) => not(
            Level::Fail,
            name,
            format!("{} cannot be written: {error}", project.display()),
            "give yourself write permission there, or name another folder with --project",
        ),
    }
}

fn permissions(project: &Path) -> Check {
    let name = "state folder";
    let state = project.join(".svc");
    let mode = |path: &Path| fs::metadata(path).map(|data| data.permissions().mode() & 0o777);
    let Ok(folder) = mode(&state) else { return ok(name, "there is none yet; 'svc start' makes it") };
    if folder & 0o077 != 0 {
        return not(
            Level::Fail,
            name,
            format!("{} is open to other users (mode {folder:03o})", state.display()),
            format!("chmod 700 {}", state.display()),
        );
    }
    for secret in ["token", "credentials.key", "credentials.json"] {
        let file = state.join(secret);
        if let Ok(bits) = mode(&file).map(|mode| mode & 0o077)
            && bits != 0
        {
            let detail = format!("{} is open to other users", file.display());
            return not(Level::Fail, name, detail, format!("chmod 600 {}", file.display()));
        }
    }
    ok(name, format!("{} is yours alone", state.display()))
}

fn daemon(client: Result<&Client, &Failure>) -> Check {
    let name = "daemon";
    let client = match client {
        Ok(client) => client,
        Err(Failure::Say { message, .. }) => {
            return not(Level::Warn, name, message.clone(), "svc start --background");
        }
        Err(_) => return not(Level::Warn, name, "not looked for", "svc start --background"),
    };
    match client.try_call("GET", "/api/health", None) {
        Ok(health) if text(&health, "version") == VERSION => {
            ok(name, format!("{} answers at {}: {}", VERSION, client.address().url, text(&health, "status")))
        }
        Ok(health) => not(
            Level::Warn,
            name,
            format!("it is version {}, this command line is {VERSION}", text(&health, "version")),
            "svc stop && svc start --background",
        ),
        Err(CallError::NothingListens) => {
            let detail = format!("nothing answers at {}", client.address().url);
            not(Level::Fail, name, detail, "svc start --background")
        }
        Err(error) => {
            let detail = match client.explain(error) {
                Failure::Say { message, .. } => message,
                _ => "no answer".into(),
            };
            not(Level::Fail, name, detail, "look at .svc/daemon.log")
        }
    }
}

/// How many more agents fit on this machine. A daemon of another version may not know.
fn room(client: &Client) -> Option<Check> {
    let name = "room for agents";
    let answer = client.try_call("GET", "/api/capacity", None).ok()?;
    let said = capacity::said(&answer);
    if answer["more"].as_u64().unwrap_or_default() > 0 {
        return Some(ok(name, said));
    }
    Some(not(Level::Warn, name, said, "'svc capacity' tells why; what is started now waits its turn"))
}

fn lock_and_port(project: &Path) -> Check {
    let name = "lock and port file";
    let port_file = project.join(".svc").join("daemon.port");
    match (lock_is_held(project), port_file.exists()) {
        (true, true) => match running(project) {
            Some(running) => ok(name, format!("held by pid {}", running.pid)),
            None => not(
                Level::Fail,
                name,
                "a daemon holds the lock, and does not answer at its port",
                "look at .svc/daemon.log; end the process that holds .svc/daemon.lock",
            ),
        },
        (false, false) => ok(name, "neither is there, as no daemon runs"),
        (true, false) => not(
            Level::Warn,
            name,
            "the lock is held, the port file is not there yet",
            "try again in a few seconds",
        ),
        (false, true) => not(
            Level::Warn,
            name,
            format!("{} is stale: no daemon holds the lock", port_file.display()),
            "the next 'svc start' replaces it",
        ),
    }
}

fn git() -> Check {
    match output_of("git", &["--version"]) {
        Some(version) => ok("git", version),
        None => not(
            Level::Warn,
            "git",
            "not found; worktrees, diffs and imports need it",
            "install git with your system's package manager",
        ),
    }
}

/// What the kernel can hold back of what agents do.
fn fence(version: u32) -> Check {
    let name = "kernel fence";
    if version == 0 {
        let detail = "this system has no Landlock: enforcement \"kernel\" starts no agent";
        return not(
            Level::Warn,
            name,
            detail,
            "Linux 5.13 or newer, with landlock among lsm= of its command line",
        );
    }
    let (held, open) = confine::holds_back(version);
    ok(name, format!("Landlock {version} holds back {held}; it leaves open {open}"))
}

/// Whether this system can give each agent a room of its own. It is tried, as the daemon does at its start.
fn rooms() -> Check {
    let name = "rooms";
    let line = [svc_room::SUB_COMMAND, svc_room::TRY];
    let tried = std::env::current_exe().and_then(|own| Command::new(own).args(line).output());
    let refusal = match tried {
        Ok(output) => Tried::read(&output.stdout).refusal,
        Err(error) => Some(error.to_string().into()),
    };
    let Some(Refusal { cause, reason }) = refusal else {
        return ok(
            name,
            "each agent sees no process, secret or service outside, and writes only in its project",
        );
    };
    not(Level::Warn, name, format!("agents see the whole machine: {reason}"), cause.remedy())
}

fn disk(project: &Path) -> Check {
    let name = "disk";
    let path = project.to_string_lossy();
    let Some(free) = output_lines("df", &["-Pk", &path]).and_then(|text| free_kib(&text)) else {
        return not(Level::Warn, name, "free space is unknown: df does not tell", "look with df -h");
    };
    let detail = format!("{} MiB free", free >> 10);
    match free {
        free if free < DISK_FAIL_KIB => {
            not(Level::Fail, name, detail, "make room: state can no longer be saved reliably")
        }
        free if free < DISK_WARN_KIB => not(Level::Warn, name, detail, "make room: logs and worktrees grow"),
        _ => ok(name, detail),
    }
}

/// The fourth column of the second line of `df -Pk`.
fn free_kib(text: &str) -> Option<u64> {
    text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

/// The first line a program prints, if it ends well in time.
fn output_of(program: &str, args: &[&str]) -> Option<String> {
    let text = output_lines(program, args)?;
    Some(cut(&one_line(text.lines().next().unwrap_or_default()), 60))
}

fn output_lines(program: &str, args: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    // The thread ends with the pipe; it is not joined, as a descendant may hold the pipe open for long.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.take(OUTPUT_LIMIT_BYTES).read_to_end(&mut text);
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    let deadline = Instant::now() + PROGRAM_LIMIT;
    let text = receiver.recv_timeout(PROGRAM_LIMIT).ok();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return text.filter(|_| status.success()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                let _ = child.kill().and_then(|()| child.wait());
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_not_installed_share_a_line() {
        let absent = |name: &str| not(Level::Warn, &format!("{PROVIDER}{name}"), "not installed", "get it");
        let names = |checks: Vec<Check>| -> Vec<String> {
            short(checks).into_iter().map(|check| format!("{}: {}", check.name, check.detail)).collect()
        };
        assert_eq!(
            names(vec![ok("disk", "x"), absent("a"), ok("provider b", "1"), absent("c")]),
            ["disk: x", "providers: not installed: a, c", "provider b: 1"]
        );
        assert_eq!(names(vec![absent("a")]), ["provider a: not installed"]);
    }

    #[test]
    fn what_the_kernel_fences_in_stands_in_one_line() {
        let line = fence(4);
        assert_eq!((line.level, &*line.name), (Level::Ok, "kernel fence"));
        assert!(
            line.detail.starts_with("Landlock 4 holds back writing") && line.detail.contains("open calls of")
        );
        let none = fence(0);
        assert_eq!(none.level, Level::Warn);
        assert!(none.detail.contains("no Landlock") && none.remedy.contains("5.13"), "{}", none.detail);
    }

    #[test]
    fn free_space_is_the_fourth_column_of_df() {
        let text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 100 60 40 60% /a b\n";
        assert_eq!(free_kib(text), Some(40));
        assert_eq!(free_kib("df: no such file"), None);
    }
}
