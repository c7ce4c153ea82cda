//! The daemon's own log: to standard error and to `.svc/daemon.log`, level by `SVC_LOG`.

use super::clock;
use log::{LevelFilter, Log, Metadata, Record};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The log is renamed to `daemon.log.1` above this size; one earlier file is kept.
const ROTATE_BYTES: u64 = 5_000_000;

struct Logger {
    path: PathBuf,
    file: Mutex<Option<(File, u64)>>,
    stderr_is_log: bool,
}

/// Starts logging; `SVC_LOG` is `error`, `warn`, `info` (the default), `debug`, `trace` or `off`.
pub fn start(folder: &Path, stderr_is_log: bool) {
    let level = std::env::var("SVC_LOG").ok().and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::Info);
    let logger = Logger { path: folder.join("daemon.log"), file: Mutex::new(None), stderr_is_log };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Other crates tell their trouble, but not their day.
        metadata.level() <= log::Level::Warn || metadata.target().starts_with("svc")
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = format!("{} {:5} {}\n", clock::now(), record.level(), record.args());
        // Nobody is left to tell when these fail.
        let _ = io::stderr().write_all(line.as_bytes());
        if !self.stderr_is_log {
            let _ = self.append(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

impl Logger {
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut file, mut size) = match slot.take() {
            Some(open) => open,
            None => self.open()?,
        };
        if size > ROTATE_BYTES {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            (file, size) = self.open()?;
        }
        file.write_all(line)?;
        *slot = Some((file, size + line.len() as u64));
        Ok(())
    }

    fn open(&self) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }
}
