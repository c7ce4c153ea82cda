//! Installing packages: npm, as a process of ours with a time limit.
//!
//! A package is installed beside its place and then moved there, so that half an installation never counts
//! as one. Its install scripts do not run.

use super::worker::{Means, inherited};
use super::{InstallOrder, Package};
use crossbeam_channel::{Receiver, bounded, select};
use serde_json::Value;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_sys::files::missing_is_fine;
use svc_sys::process::{Running, Source, Spec, Stdin, Wake};
use svc_sys::threads::Thread;

/// npm gets this long.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(300);
/// Between TERM and KILL of npm.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// Bytes kept of what npm prints.
const OUTPUT_BYTES: usize = 16 << 10;
/// Characters of npm's words in an error.
const WORDS_CHARS: usize = 400;

/// Where the package of an integration is, relative to the project.
fn place(id: &str) -> PathBuf {
    Path::new(".svc/integrations").join(id)
}

/// Installs a package.
///
/// Errors: a sentence for people.
pub(super) fn install(
    means: &Means,
    order: &InstallOrder,
    cancelled: &Receiver<()>,
) -> Result<Package, String> {
    let target = means.project.join(place(&order.id));
    let fresh = target.with_file_name(format!(".{}.new", order.id));
    let prepared = prepare(&fresh).map_err(|error| format!("{}: {error}", fresh.display()));
    let result = prepared.and_then(|()| {
        npm(means, &fresh, &format!("{}@{}", order.package, order.version), cancelled)?;
        let (version, bin) = look(&fresh, &order.package)?;
        clear(&target)
            .and_then(|()| fs::rename(&fresh, &target))
            .map_err(|error| format!("{}: {error}", target.display()))?;
        let program = place(&order.id).join("node_modules/.bin").join(bin);
        Ok(Package { program: program.to_string_lossy().into_owned(), version })
    });
    // What is left after a failure is worth nothing; the next installation would clear it as well.
    let _ = clear(&fresh);
    result
}

/// Removes the package of an integration, if it has one.
///
/// Errors: a sentence for people.
pub(super) fn remove(means: &Means, id: &str) -> Result<(), String> {
    let target = means.project.join(place(id));
    clear(&target).map_err(|error| format!("{}: {error}", target.display()))
}

fn clear(folder: &Path) -> io::Result<()> {
    fs::remove_dir_all(folder).or_else(missing_is_fine)
}

fn prepare(folder: &Path) -> io::Result<()> {
    clear(folder)?;
    fs::create_dir_all(folder)?;
    fs::write(folder.join("package.json"), "{\"private\": true}\n")
}

fn npm(means: &Means, folder: &Path, package: &str, cancelled: &Receiver<()>) -> Result<(), String> {
    let flags =
        ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"];
    let mut args: Vec<std::ffi::OsString> = flags.iter().map(Into::into).collect();
    args.extend(["--prefix".into(), folder.into(), "--".into(), package.into()]);
    let spec = Spec {
        program: "npm".into(),
        args,
        env: inherited(&["npm_config_*", "NPM_CONFIG_*"]),
        cwd: folder.to_path_buf(),
        stdin: Stdin::Null,
        marker: None,
    };
    let running = means.processes.spawn(&spec).map_err(|error| format!("{error}; install Node.js first"))?;
    let identity = running.identity;
    let exit_channel = running.exit.clone();
    let printed = Printed::read(running).map_err(|error| error.to_string())?;
    let outcome = select! {
        recv(exit_channel) -> exit => Ok(exit.unwrap_or_default()),
        recv(cancelled) -> _ => Err("the daemon is stopping".to_owned()),
        default(INSTALL_TIMEOUT) => Err(format!("npm took longer than {} s", INSTALL_TIMEOUT.as_secs())),
    };
    means.processes.stop_tree(identity, None, STOP_GRACE);
    let words = printed.words();
    match outcome? {
        exit if exit.code == Some(0) => Ok(()),
        _ => Err(format!("npm says: {words}")),
    }
}

/// The end of what a program prints, read by threads.
struct Printed {
    wakes: Vec<Wake>,
    texts: Vec<Receiver<Vec<u8>>>,
    threads: Vec<Thread>,
}

impl Printed {
    fn read(running: Running) -> io::Result<Self> {
        let mut all = Self { wakes: Vec::new(), texts: Vec::new(), threads: Vec::new() };
        for file in [running.stderr, running.stdout] {
            let (mut source, wake) = Source::new(file)?;
            let (give, text) = bounded(1);
            all.wakes.push(wake);
            all.texts.push(text);
            all.threads.push(Thread::spawn("mcp-npm", move || {
                let mut kept = Vec::new();
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = source.read(&mut chunk) {
                    let room = OUTPUT_BYTES.saturating_sub(kept.len()).min(count);
                    kept.extend_from_slice(&chunk[..room]);
                }
                // Nobody waits only when the installation is over.
                let _ = give.send(kept);
            })?);
        }
        Ok(all)
    }

    /// Its words in one line, errors first.
    fn words(mut self) -> String {
        self.wakes.clear();
        self.threads.clear();
        let all: Vec<u8> = self.texts.iter().filter_map(|text| text.try_recv().ok()).flatten().collect();
        let text = String::from_utf8_lossy(&all);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" ").chars().take(WORDS_CHARS).collect()
    }
}

/// The version and the program of a package that is installed in `folder`.
fn look(folder: &Path, package: &str) -> Result<(String, String), String> {
    let manifest = folder.join("node_modules").join(package).join("package.json");
    let bytes = fs::read(&manifest).map_err(|error| format!("{package} was not installed: {error}"))?;
    let manifest: Value = serde_json::from_slice(&bytes)
        .map_err(|error| format!("the package.json of {package} cannot be read: {error}"))?;
    let version = manifest["version"].as_str().unwrap_or("unknown").to_owned();
    let bin = program_of(&manifest, package).ok_or_else(|| format!("{package} has no program to run"))?;
    Ok((version, bin))
}

/// The program `npx` would run: the only one, else the one named like the package, else the first.
fn program_of(manifest: &Value, package: &str) -> Option<String> {
    let plain = package.rsplit('/').next().unwrap_or(package);
    match &manifest["bin"] {
        Value::String(_) => Some(plain.to_owned()),
        Value::Object(all) if all.contains_key(plain) => Some(plain.to_owned()),
        Value::Object(all) => all.keys().next().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_program_of_a_package_is_the_one_npx_would_run() {
        let bin = |bin: Value| program_of(&json!({"bin": bin}), "@scope/tool");
        assert_eq!(bin(json!("dist/index.js")).as_deref(), Some("tool"));
        assert_eq!(bin(json!({"other": "a", "tool": "b"})).as_deref(), Some("tool"));
        assert_eq!(bin(json!({"mcp-server-x": "a"})).as_deref(), Some("mcp-server-x"));
        assert_eq!(bin(json!(null)), None);
    }
}
