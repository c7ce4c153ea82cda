//! The service's log: lines on standard error, level by `SVC_LOG`.

use log::{LevelFilter, Log, Metadata, Record};
use std::io::{self, Write};
use svc_sys::clock::now;

struct Lines;

/// Starts logging; `SVC_LOG` is `error`, `warn`, `info` (the default), `debug`, `trace` or `off`.
pub fn start() {
    let level = std::env::var("SVC_LOG").ok().and_then(|text| text.parse().ok()).unwrap_or(LevelFilter::Info);
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // Other crates tell their trouble, but not their day.
        metadata.level() <= log::Level::Warn || metadata.target().starts_with("svc")
    }

    fn log(&self, record: &Record) {
        if self.enabled(record.metadata()) {
            // Nobody is left to tell when this fails.
            let _ = writeln!(io::stderr(), "{} {:5} {}", now(), record.level(), record.args());
        }
    }

    fn flush(&self) {}
}
