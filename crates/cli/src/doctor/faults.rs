//! The usual faults beyond the basics, each with its explanation: what holds agents up, what was broken and
//! set aside, what runs an older program, and limits of the system that are too low.

use super::super::client::Client;
use super::super::help::VERSION;
use super::super::render::one_line;
use super::super::target::{is_live, state, text};
use super::{Check, Level, not, ok, output_of, programs};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use svc_base::sorted;
use svc_sys::files;

/// Open files of a daemon with a full house: three pipes an agent, logs, clients.
const MIN_OPEN_FILES: u64 = 1024;
/// Folders that the watcher should be able to watch.
const MIN_WATCHES: u64 = 8192;
/// The program's name, and the one that nobody else has.
const NAME: &str = "svc";
const SECOND_NAME: &str = "svc-cli";
/// Names in one line.
const NAMED_MAX: usize = 3;
/// Bytes of a configuration file that are read: 1 MiB.
const CONFIG_BYTES: u64 = 1 << 20;

/// What can be told without a daemon.
pub(super) fn of_the_project(project: &Path) -> Vec<Check> {
    let mut checks = config_files(project);
    checks.extend(set_aside(project));
    checks.extend(open_files());
    checks.extend(watches());
    checks.push(on_path());
    checks
}

/// What the daemon tells of itself and its agents.
pub(super) fn of_the_daemon(client: &Client) -> Vec<Check> {
    let get = |path: &str| client.try_call("GET", path, None).unwrap_or_default();
    let mut checks = Vec::new();
    checks.extend(health(&get("/api/health")));
    checks.extend(replaced(&get("/api/status")));
    checks.extend(default_provider(&get("/api/config"), &get(programs::PROVIDERS)));
    checks.extend(budget(&get("/api/dashboard")));
    checks.extend(agents(&get("/api/agents")));
    checks.extend(waiting(&get("/api/approvals")));
    checks.extend(integrations(&get("/api/integrations")));
    checks
}

/// A file that a person edited: the daemon refuses to start with a broken one.
fn config_files(project: &Path) -> Vec<Check> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let user = base.map(|base| base.join("svc/config.json"));
    let files = [Some(project.join(".svc/config.json")), user];
    files.into_iter().flatten().filter_map(|file| config_file(&file)).collect()
}

fn config_file(file: &Path) -> Option<Check> {
    let name = "configuration";
    let size = fs::metadata(file).ok()?.len();
    let remedy = "fix the file, or remove it to go back to the defaults";
    if size > CONFIG_BYTES {
        let detail = format!("{} has {size} bytes, the limit is {CONFIG_BYTES}", file.display());
        return Some(not(Level::Fail, name, detail, remedy));
    }
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            return Some(not(Level::Fail, name, format!("{}: {error}", file.display()), remedy));
        }
    };
    match serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        Ok(_) => Some(ok(name, format!("{} can be read", file.display()))),
        Err(error) => {
            let detail = format!("{} is not a JSON object: {error}", file.display());
            Some(not(Level::Fail, name, detail, remedy))
        }
    }
}

/// Documents that a daemon could not read and renamed, to start all the same.
fn set_aside(project: &Path) -> Option<Check> {
    let entries = fs::read_dir(project.join(".svc")).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.contains(".corrupt-")).collect();
    sorted::up(&mut names);
    (!names.is_empty()).then(|| {
        not(
            Level::Warn,
            "broken documents",
            format!("set aside in .svc, their content is not in use: {}", named(&names)),
            "a full disk or a crash of the machine does that; what is missing must be set again; then remove them",
        )
    })
}

/// `a, b, c and 2 more`.
fn named(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn open_files() -> Option<Check> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let files = soft_limit(&limits, "Max open files")?;
    (files < MIN_OPEN_FILES).then(|| {
        not(
            Level::Warn,
            "open files",
            format!("at most {files} for a program started here; many agents need more"),
            format!("ulimit -n {MIN_OPEN_FILES}, then svc stop && svc start --background"),
        )
    })
}

/// The soft limit in a line of `/proc/self/limits`; `unlimited` is none.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn watches() -> Option<Check> {
    let text = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok()?;
    let watches: u64 = text.trim().parse().ok()?;
    (watches < MIN_WATCHES).then(|| {
        not(
            Level::Warn,
            "file watching",
            format!("the system watches {watches} folders at most; in a large project changes are missed"),
            "sudo sysctl fs.inotify.max_user_watches=524288",
        )
    })
}

/// Agents and hooks call `svc` by name.
/// Which program a person reaches by the name: others have a command of the same name.
fn on_path() -> Check {
    let version = |path: &PathBuf| output_of(&path.to_string_lossy(), &["version", "--quiet"]);
    let [first, second] = [NAME, SECOND_NAME].map(|name| files::on_path(name).map(|(path, _)| path));
    let told = first.as_ref().and_then(version);
    let second = second.filter(|path| version(path).as_deref() == Some(VERSION));
    by_name(first.as_deref(), told.as_deref(), second.as_deref())
}

/// `told` is the version that the program of the first name prints; `second` is ours by its second name.
fn by_name(first: Option<&Path>, told: Option<&str>, second: Option<&Path>) -> Check {
    let name = "svc on PATH";
    let Some(first) = first else {
        return not(
            Level::Warn,
            name,
            "there is no 'svc' on PATH; completions and people look for it there",
            "make install, or add its folder to PATH",
        );
    };
    let place = first.display();
    let is_version = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && !word.contains(' ');
    match (told, second) {
        (Some(version), _) if version == VERSION => ok(name, format!("{place} answers, version {version}")),
        (Some(version), _) if is_version(version) => not(
            Level::Warn,
            name,
            format!("{place} answers to that name and is version {version}, this one is {VERSION}"),
            "make install, or put this one's folder first in PATH",
        ),
        // BusyBox and daemontools have a command of this name.
        (_, Some(second)) => not(
            Level::Warn,
            name,
            format!("{place} answers to that name and is another program; {} is this one", second.display()),
            "type svc-cli instead of svc, or put this one's folder first in PATH",
        ),
        (_, None) => not(
            Level::Warn,
            name,
            format!("{place} answers to that name and is another program"),
            "put this one's folder first in PATH, or make install, which adds the name svc-cli",
        ),
    }
}

fn health(health: &Value) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(error) = health["storageError"].as_str() {
        checks.push(not(
            Level::Fail,
            "storage",
            format!("state cannot be saved, changes are refused: {}", one_line(error)),
            "make room or give write permission in .svc; the daemon recovers on its own",
        ));
    }
    for file in health["setAside"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        checks.push(not(
            Level::Fail,
            "state files",
            format!("broken and set aside at the start: {}", one_line(file)),
            "stop the daemon, fix the file and put it back under its name, or start again to go on without",
        ));
    }
    if health["panics"].as_u64() > Some(0) {
        checks.push(not(
            Level::Warn,
            "daemon errors",
            format!("{} internal errors, each cost one request", health["panics"]),
            "report the lines with 'panic' in .svc/daemon.log",
        ));
    }
    if health["leaked"].as_u64() > Some(0) {
        checks.push(not(
            Level::Warn,
            "processes",
            format!("{} processes of agents outlived their end", health["leaked"]),
            ".svc/daemon.log names them; end them with kill",
        ));
    }
    checks
}

/// A program that was replaced under a running daemon.
fn replaced(status: &Value) -> Option<Check> {
    let program = fs::read_link(format!("/proc/{}/exe", status["pid"].as_u64()?)).ok()?;
    program.to_string_lossy().ends_with(" (deleted)").then(|| {
        not(
            Level::Warn,
            "daemon program",
            "the program file was replaced since this daemon started",
            "svc stop && svc start --background",
        )
    })
}

fn default_provider(config: &Value, providers: &Value) -> Option<Check> {
    let wanted = config["defaultProvider"].as_str()?;
    let list = providers.as_array()?;
    let provider = list.iter().find(|provider| text(provider, "id") == wanted)?;
    if provider["installed"] == true {
        let name = "default provider";
        return Some(match programs::access(provider) {
            (access, remedy) if !remedy.is_empty() => {
                not(Level::Warn, name, format!("{wanted} is installed, but: {access}"), remedy)
            }
            _ => ok(name, format!("{wanted} is installed")),
        });
    }
    let others = list.iter().filter(|one| one["installed"] == true).map(|one| text(one, "id"));
    let others: Vec<&str> = others.collect();
    let has = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
    Some(not(
        Level::Warn,
        "default provider",
        format!("'svc spawn' without --provider runs {wanted}, which is not installed; installed: {has}"),
        format!("{}, or svc config set defaultProvider ID", text(provider, "installCommand")),
    ))
}

fn budget(dashboard: &Value) -> Option<Check> {
    let cost = &dashboard["cost"];
    (cost["budgetReached"] == true).then(|| {
        not(
            Level::Warn,
            "budget",
            format!(
                "today's budget of ${:.2} is used up: no agent starts",
                cost["dailyBudgetUsd"].as_f64().unwrap_or_default()
            ),
            "svc config set safety.dailyBudgetUsd DOLLARS, or wait for tomorrow",
        )
    })
}

fn agents(agents: &Value) -> Option<Check> {
    let list = agents.as_array().or_else(|| agents["agents"].as_array())?;
    let crashed: Vec<&Value> = list.iter().filter(|agent| state(agent) == "crashed").collect();
    let last = crashed.last()?;
    let names: Vec<&str> = crashed.iter().map(|agent| text(agent, "name")).collect();
    let live = list.iter().filter(|agent| is_live(agent)).count();
    Some(not(
        Level::Warn,
        "agents",
        format!(
            "{live} live; crashed: {}; {}: {}",
            named(&names),
            text(last, "name"),
            one_line(text(last, "statusReason"))
        ),
        format!("svc logs {0}; svc resume {0} goes on, svc kill {0} removes it", text(last, "name")),
    ))
}

fn waiting(approvals: &Value) -> Option<Check> {
    let pending = approvals["pending"].as_array().map_or(0, Vec::len);
    (pending > 0).then(|| {
        not(
            Level::Warn,
            "approvals",
            format!("{pending} wait for your decision"),
            "svc approvals, or svc top",
        )
    })
}

fn integrations(list: &Value) -> Vec<Check> {
    let failed = list.as_array().into_iter().flatten().filter(|one| text(one, "status") == "failed");
    failed
        .map(|one| {
            let name = format!("integration {}", text(one, "id"));
            let remedy = format!("svc integrations tools {} tries again", text(one, "id"));
            not(Level::Warn, &name, one_line(text(one, "lastError")), remedy)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn issue_7_the_daemons_troubles_are_explained_with_a_next_step() {
        assert!(health(&json!({"storageError": null, "panics": 0, "leaked": 0})).is_empty());
        let ill = health(&json!({"storageError": "no space left", "panics": 2, "leaked": 1}));
        assert_eq!(ill.len(), 3);
        let providers = json!([
            {"id": "codex", "installed": false, "installCommand": "npm i codex"},
            {"id": "script", "installed": true},
        ]);
        let told = default_provider(&json!({"defaultProvider": "codex"}), &providers).unwrap();
        assert_eq!(told.level, Level::Warn);
        assert!(told.detail.ends_with("installed: script") && told.remedy.starts_with("npm i codex, or"));
        let told = default_provider(&json!({"defaultProvider": "script"}), &providers).unwrap();
        assert_eq!(told.level, Level::Ok);
        assert!(budget(&json!({"cost": {"budgetReached": false}})).is_none());
        assert!(budget(&json!({"cost": {"budgetReached": true, "dailyBudgetUsd": 5}})).is_some());
        let crashed = json!([{"name": "a-1", "status": "crashed", "statusReason": "exit code 3"}]);
        assert!(agents(&crashed).unwrap().detail.contains("a-1: exit code 3"));
        assert!(agents(&json!([])).is_none());
        assert!(waiting(&json!({"pending": [{}]})).is_some());
        let list = json!([{"id": "gh", "status": "failed", "lastError": "no\nsuch file"}]);
        assert_eq!(integrations(&list)[0].detail, "no such file");
        // A daemon that does not answer tells nothing.
        assert!(health(&Value::Null).is_empty() && agents(&Value::Null).is_none());
    }

    #[test]
    fn which_program_answers_to_the_name_is_told() {
        let (ours, theirs, second) =
            (Path::new("/a/svc"), Path::new("/usr/bin/svc"), Path::new("/a/svc-cli"));
        let told = |check: Check| (check.level, format!("{} / {}", check.detail, check.remedy));
        let (level, words) = told(by_name(Some(ours), Some(VERSION), None));
        assert!(level == Level::Ok && words.starts_with("/a/svc answers"), "{words}");
        let (level, words) = told(by_name(Some(ours), Some("0.0.1"), Some(second)));
        assert!(level == Level::Warn && words.contains("version 0.0.1"), "{words}");
        for other in [None, Some("svc: warning: unable to chdir to version"), Some("")] {
            let (level, words) = told(by_name(Some(theirs), other, Some(second)));
            assert!(level == Level::Warn && words.contains("/a/svc-cli is this one"), "{words}");
            let (_, words) = told(by_name(Some(theirs), other, None));
            assert!(words.contains("/usr/bin/svc answers") && words.contains("svc-cli"), "{words}");
        }
        assert_eq!(by_name(None, None, None).level, Level::Warn);
    }

    #[test]
    fn limits_are_read_as_linux_prints_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max open files            256                  unlimited            files\n";
        assert_eq!(soft_limit(text, "Max open files"), Some(256));
        assert_eq!(soft_limit(text, "Max processes"), None);
    }

    #[test]
    fn a_configuration_that_is_no_json_is_told_with_the_place() {
        let folder = std::env::temp_dir().join(format!("svc-doctor-test-{}", std::process::id()));
        fs::create_dir_all(folder.join(".svc")).unwrap();
        let file = folder.join(".svc/config.json");
        fs::write(&file, "{\"port\": 1,}").unwrap();
        fs::write(folder.join(".svc/agents.json.corrupt-17"), "").unwrap();
        let (config, aside) = (config_file(&file).unwrap(), set_aside(&folder).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert!(
            config.level == Level::Fail && config.detail.contains("line 1 column 12"),
            "{}",
            config.detail
        );
        assert!(aside.detail.ends_with("agents.json.corrupt-17"));
        assert!(config_file(&file).is_none());
    }
}
