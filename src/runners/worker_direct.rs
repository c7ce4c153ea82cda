//! A way to a runner through the connection that stands already which takes two round trips to the first
//! word, where a command takes three: ssh sends what is said to a command only when its reply is there. So
//! `svc __far doors`, what runs on the standing connection, listens at a socket there, and ssh leads one here
//! to it.
//!
//! Where it does not come to stand (a machine may forbid it), a line is a command as ever.

use super::SUB_COMMAND;
use super::kind::Line;
use super::worker_host::client;
use super::worker_open::home;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use svc_sys::process::{Captured, Processes};

/// How long the standing connection may take to be told; it is a process of this machine.
const TOLD_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of what it says to that.
const SAID_BYTES: usize = 4 << 10;
/// Lines at once; one more is a command.
const LINES_MAX: usize = 128;
/// After a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of a socket's path.
const PATH_BYTES_MAX: usize = 100;
/// How the names of these sockets begin.
const NAME: &str = "doors-";

/// The socket there that has this number.
fn there(home: &Path, number: &str) -> PathBuf {
    home.join(".local/state/svc/runners").join(format!("{NAME}{number}"))
}

/// Leads a socket here to the one there, by a connection of ssh's whose own socket is `standing`. Whether
/// somebody listens there shows with the first line.
pub(super) fn lead(processes: &Processes, standing: &Path, home: &str, number: &str) -> Option<PathBuf> {
    let (here, there) = (standing.with_extension("d"), there(Path::new(home), number));
    let (from, to) = (here.to_str()?, there.to_str()?);
    // ssh reads more into a colon.
    let is_plain = |path: &str| path.len() <= PATH_BYTES_MAX && !path.contains(':');
    if !is_plain(from) || !is_plain(to) {
        return None;
    }
    // Without a file of settings: what it says of other ports is not to be led along.
    let way = format!("{from}:{to}");
    let words = ["-F", "none", "-S", standing.to_str()?, "-O", "forward", "-L", &way, "--", "runner"];
    let asked = client(&Line::new("ssh", &words));
    let said = processes.capture(&asked, b"", TOLD_LIMIT, SAID_BYTES).ok();
    said.as_ref().is_some_and(Captured::is_success).then_some(here)
}

/// `svc __far doors NUMBER`: starts `svc __far open` for each that comes, as long as its own input lasts.
pub(super) fn main(number: &str) -> Result<(), String> {
    let path = there(&home()?, number);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let folder = path.parent().unwrap_or(&path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    tidy(folder);
    // It is this user's alone before anybody can know of it.
    let hidden = path.with_extension("new");
    let listener = UnixListener::bind(&hidden).map_err(failed)?;
    let shown = fs::set_permissions(&hidden, Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&hidden, &path))
        .map_err(failed);
    shown.inspect_err(|_| {
        let _ = fs::remove_file(&hidden);
    })?;
    let accepting = thread::Builder::new().name("doors".into()).spawn(move || accept(&listener));
    let _running = accepting.map_err(failed)?;
    // What is said to it means nothing but that somebody is there.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    fs::remove_file(&path).map_err(failed)
}

/// Lines end by themselves, and not with this process.
fn accept(listener: &UnixListener) {
    let mut lines: Vec<Child> = Vec::new();
    for line in listener.incoming() {
        lines.retain_mut(|line| matches!(line.try_wait(), Ok(None)));
        let Ok(line) = line else {
            // It waits still, and the next try would fail as fast.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if lines.len() < LINES_MAX {
            // One that cannot be started is tried again as a command.
            lines.extend(open(line).ok());
        }
    }
}

fn open(line: UnixStream) -> io::Result<Child> {
    let output = OwnedFd::from(line.try_clone()?);
    Command::new(std::env::current_exe()?)
        .args([SUB_COMMAND, "open"])
        .stdin(Stdio::from(OwnedFd::from(line)))
        .stdout(Stdio::from(output))
        .stderr(Stdio::null())
        .spawn()
}

/// Removes the sockets of those that had no time to.
fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(NAME));
        let refused = || {
            UnixStream::connect(entry.path())
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_one && refused() {
            // It may have been removed meanwhile.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_to_which_nobody_listens_any_more_go_and_others_stay() {
        let folder = std::env::temp_dir().join(format!("svc-doors-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let name = |name: &str| folder.join(name);
        drop(UnixListener::bind(name("doors-gone")).unwrap());
        drop(UnixListener::bind(name("other")).unwrap());
        let _listens = UnixListener::bind(name("doors-there")).unwrap();
        tidy(&folder);
        let left = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["doors-there", "other"]);
    }
}
