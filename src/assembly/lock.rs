//! One daemon per project: the lock file, and the file that tells the port.

use crate::core::Project;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A command that looks at the lock is through after this.
const LOOKED_AT: Duration = Duration::from_millis(50);
/// A daemon that was killed while it began to start a program has left it the lock until that program really
/// starts, which takes a while where much runs.
const LEFT_BEHIND: Duration = Duration::from_secs(5);
/// Between two looks whether the lock is free.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The lock of a project. Held as long as it lives; the kernel frees it whatever happens to the process.
#[derive(Debug)]
pub struct Lock {
    file: File,
    port_file: PathBuf,
}

/// Why the lock could not be had.
#[derive(Debug)]
pub enum LockError {
    /// Another daemon has it: what it wrote about itself.
    Held(String),
    /// The file cannot be used.
    Io(io::Error),
}

impl Lock {
    /// Takes the lock of the state folder `.svc`.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join("daemon.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Io)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file, port_file: folder.join("daemon.port") }),
                Err(TryLockError::Error(error)) => return Err(LockError::Io(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            let holder = holder(&mut file);
            // `svc stop` and `svc doctor` look at the lock for a moment; that is no other daemon.
            let patience = if is_gone(&holder["pid"]) { LEFT_BEHIND } else { LOOKED_AT };
            if began.elapsed() >= patience {
                let whose = format!("pid {} on port {}", holder["pid"], holder["port"]);
                return Err(LockError::Held(whose));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Whether the daemon before us ended without cleaning up.
    pub fn left_unclean(&self) -> bool {
        self.port_file.exists()
    }

    /// Tells others where we are: pid and port in the lock file, the port in the port file.
    pub fn publish(&mut self, project: &Project) -> io::Result<()> {
        let Project { pid, host, port, .. } = project;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(json!({"pid": pid, "host": host, "port": port}).to_string().as_bytes())?;
        // A port alone means 127.0.0.1; another of our own addresses, such as ::1, has to be told.
        let usual = host.parse() == Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let text = match (usual, host.contains(':')) {
            (true, _) => format!("{port}\n"),
            (false, true) => format!("[{host}]:{port}\n"),
            (false, false) => format!("{host}:{port}\n"),
        };
        svc_sys::files::replace(&self.port_file, text.as_bytes())
    }

    /// The daemon ends in good order.
    pub fn release(self) {
        let removed = fs::remove_file(&self.port_file);
        if let Err(error) = removed.or_else(svc_sys::files::missing_is_fine) {
            log::warn!("the port file could not be removed: {error}");
        }
    }
}

/// What the last daemon that had the lock has written about itself.
fn holder(file: &mut File) -> Value {
    let mut text = String::new();
    // What cannot be read tells nothing.
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    serde_json::from_slice(text.as_bytes()).unwrap_or_default()
}

/// Whether no process has this id any more, as far as this system tells.
fn is_gone(pid: &Value) -> bool {
    let processes = Path::new("/proc");
    pid.is_u64() && processes.join("self").exists() && !processes.join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A folder with the lock file of a daemon of this process id.
    fn folder(name: &str, pid: u32) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("svc-lock-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("daemon.lock"), json!({"pid": pid, "port": 1}).to_string()).unwrap();
        folder
    }

    /// Another program has the lock, and its standard input keeps it there.
    fn held(folder: &Path, keep: &str) -> std::process::Child {
        let script = format!("exec 9<>daemon.lock; flock 9; echo held; {keep}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut word = [0; 5];
        child.stdout.take().unwrap().read_exact(&mut word).unwrap();
        child
    }

    #[test]
    fn what_a_killed_daemon_has_left_behind_is_waited_for() {
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let folder = folder("left", gone.id());
        let mut child = held(&folder, "sleep 0.4");
        let lock = Lock::take(&folder);
        assert!(lock.is_ok(), "{lock:?}");
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_daemon_that_lives_has_its_lock() {
        let folder = folder("lives", std::process::id());
        let mut child = held(&folder, "read line");
        let Err(LockError::Held(whose)) = Lock::take(&folder) else { panic!("it was given away") };
        assert_eq!(whose, format!("pid {} on port 1", std::process::id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
