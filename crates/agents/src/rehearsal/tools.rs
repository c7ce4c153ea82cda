//! The tools of a rehearsed agent, with real effects inside its working directory.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use svc_providers::native::cut;
use svc_sys::rehearsal_signals::kill_group;

/// What a tool returns is cut to this, as in `Activity::ToolEnded`.
const OUTPUT_LIMIT_BYTES: usize = 64 * 1024;
/// How often a condition is looked at while it is waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The place of `path` inside `root`, which need not exist yet. No `..`, no absolute path, and no link on
/// the way that leads out.
///
/// Errors: a sentence that names the path.
pub fn inside(root: &Path, path: &str) -> Result<PathBuf, String> {
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let leads_out = || format!("{path}: leads out of the working directory");
    let mut place = root.clone();
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => continue,
            Component::Normal(name) => place.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(leads_out()),
        }
        if place.is_symlink() {
            // A link to nothing is refused too: writing through it would create a file elsewhere.
            place = place.canonicalize().map_err(|error| format!("{path}: {error}"))?;
            if !place.starts_with(&root) {
                return Err(leads_out());
            }
        }
    }
    Ok(place)
}

/// The text of a file, cut to [`OUTPUT_LIMIT_BYTES`].
pub fn read(root: &Path, path: &str) -> Result<String, String> {
    Ok(shown(&first_bytes(&inside(root, path)?, path, OUTPUT_LIMIT_BYTES as u64)?))
}

/// The first bytes of a file, so many at most.
pub fn first_bytes(place: &Path, path: &str, most: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{path}: {error}");
    // A pipe or a device might never end.
    if !fs::metadata(place).map_err(failed)?.is_file() {
        return Err(format!("{path}: is not a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(place).map_err(failed)?.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Writes the file at a place that [`inside`] gave, and the folders it stands in.
pub fn write(place: &Path, path: &str, text: &str) -> Result<String, String> {
    let folder = place.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(place, text)).map_err(|error| format!("{path}: {error}"))?;
    Ok(format!("wrote {} bytes to {path}", text.len()))
}

/// Waits until the file exists.
pub fn wait_for_file(root: &Path, path: &str, timeout: Duration) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    loop {
        if inside(root, path)?.exists() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("{path}: did not appear within {} ms", timeout.as_millis()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Runs a command line with `/bin/sh`, standard input empty. `Ok` is what it printed, `Err` that and how it
/// failed. At the time-out it is killed with all of its group.
pub fn run(root: &Path, command: &str, timeout: Duration) -> Result<String, String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("/bin/sh: {error}"))?;
    let group = child.id();
    let readers = [drain(child.stdout.take()), drain(child.stderr.take())];
    let ended = wait(&mut child, &readers, Instant::now() + timeout);
    if ended.is_none() {
        kill_group(group);
    }
    let status = child.wait().map_err(|error| format!("/bin/sh: {error}"))?;
    // After the kill only a process that has left the group can still hold the pipe; it is not waited for.
    let grace = Instant::now() + Duration::from_secs(1);
    let mut output = Vec::new();
    for reader in readers {
        while !reader.is_finished() && Instant::now() < grace {
            thread::sleep(POLL_INTERVAL);
        }
        if reader.is_finished() {
            output.extend(reader.join().unwrap_or_default());
        }
    }
    let output = shown(&output);
    match ended {
        Some(()) if status.success() => Ok(output),
        Some(()) => Err(format!("{output}[{status}]")),
        None => Err(format!("{output}[killed after {} ms]", timeout.as_millis())),
    }
}

/// Waits until the child has ended and closed its output; `None` at the deadline.
fn wait(child: &mut Child, readers: &[JoinHandle<Vec<u8>>], deadline: Instant) -> Option<()> {
    loop {
        let gone = !matches!(child.try_wait(), Ok(None));
        if gone && readers.iter().all(JoinHandle::is_finished) {
            return Some(());
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Reads all there is, so that the writer never blocks, and keeps what is shown.
fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        let Some(mut pipe) = pipe else { return kept };
        let mut chunk = [0; 8 * 1024];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => return kept,
                Ok(count) => {
                    let room = OUTPUT_LIMIT_BYTES - kept.len();
                    kept.extend_from_slice(&chunk[..count.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return kept,
            }
        }
    })
}

/// Bytes as a text of at most [`OUTPUT_LIMIT_BYTES`].
fn shown(bytes: &[u8]) -> String {
    cut(&String::from_utf8_lossy(bytes), OUTPUT_LIMIT_BYTES).to_owned()
}
