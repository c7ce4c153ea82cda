//! One daemon per project: the lock file, and the file that tells the port.

use crate::core::Project;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A command that looks at the lock is through after this.
const LOOKED_AT: Duration = Duration::from_millis(50);

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
        // `svc stop` and `svc doctor` look at the lock for a moment; that is no other daemon.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            std::thread::sleep(LOOKED_AT);
        }
        match file.try_lock() {
            Ok(()) => Ok(Self { file, port_file: folder.join("daemon.port") }),
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                let told: Value = serde_json::from_str(&text).unwrap_or_default();
                Err(LockError::Held(format!("pid {} on port {}", told["pid"], told["port"])))
            }
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
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
