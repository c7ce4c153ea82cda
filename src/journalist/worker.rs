//! The thread that writes the journalist's documents into the project's root.

use super::Report;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use svc_sys::files::replace;
use svc_sys::threads::Worker;

/// Orders that may wait. The core gives one at a time.
const WAITING_ORDERS: usize = 4;

/// Documents to be written.
#[derive(Debug, Clone)]
pub struct Order {
    /// File names in the project's root, and their whole contents.
    pub files: Vec<(&'static str, Arc<str>)>,
}

/// The running thread; it ends when this is dropped.
pub struct Writer(Worker<Order>);

impl Writer {
    /// Starts the thread; `report` is told of each order's outcome.
    ///
    /// Errors: no thread.
    pub fn start(project: PathBuf, report: impl Fn(Report) + Send + 'static) -> io::Result<Self> {
        let work = move |order: Order| {
            let written = write(&project, &order).map_err(|error| error.to_string());
            report(Report::Written(written));
        };
        Ok(Self(Worker::start("journalist", WAITING_ORDERS, work)?))
    }

    /// Has documents written.
    ///
    /// Errors: the thread is behind or gone, as a report.
    pub fn order(&self, order: Order) -> Result<(), Report> {
        let refused = || Report::Written(Err("its thread is behind".to_owned()));
        self.0.order(order).then_some(()).ok_or_else(refused)
    }
}

/// Replaces each file at once: a reader sees the old or the new one. An empty document is not written.
fn write(project: &Path, order: &Order) -> io::Result<()> {
    for (name, text) in order.files.iter().filter(|(_, text)| !text.is_empty()) {
        replace(&project.join(name), text.as_bytes())?;
    }
    File::open(project)?.sync_all()
}
