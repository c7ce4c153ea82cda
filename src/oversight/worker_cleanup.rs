//! The thread that deletes what the daily cleanup is to delete.

use super::cleanup::{Order, Outcome, Report};
use crate::agents::worker_log::LogStore;
use crate::core::time::Time;
use crate::isolation::worker_worktree;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use svc_base::folders::WORKTREES;
use svc_sys::process::Processes;
use svc_sys::threads::Worker;

/// Worktrees looked at in one cleanup; the rest waits for the next one.
const MAX_WORKTREES: usize = 100;
/// How names of plan artifacts begin.
const PLAN: &str = "recommended-team";

/// The running thread; it ends when this is dropped, after the step under way.
pub struct Cleaner {
    worker: Worker<Order>,
    is_closing: Arc<AtomicBool>,
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Release);
    }
}

struct Means {
    project: PathBuf,
    logs: Arc<LogStore>,
    processes: Arc<Processes>,
    is_closing: Arc<AtomicBool>,
}

impl Cleaner {
    /// Starts the thread; `report` is told of each order's outcome.
    ///
    /// Errors: no thread.
    pub fn start(
        project: PathBuf,
        logs: Arc<LogStore>,
        processes: Arc<Processes>,
        report: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let is_closing = Arc::new(AtomicBool::new(false));
        let means = Means { project, logs, processes, is_closing: Arc::clone(&is_closing) };
        // The core gives one order at a time.
        let work = move |order: Order| report(Report(means.clean(&order)));
        Ok(Self { worker: Worker::start("cleanup", 1, work)?, is_closing })
    }

    /// Has it done.
    ///
    /// Errors: the thread is behind or gone, as a report.
    pub fn order(&self, order: Order) -> Result<(), Report> {
        let errors = vec!["its thread is behind".to_owned()];
        self.worker.order(order).then_some(()).ok_or_else(|| Report(Outcome { errors, ..Outcome::default() }))
    }
}

impl Means {
    fn clean(&self, order: &Order) -> Outcome {
        let mut outcome = Outcome::default();
        match self.logs.cleanup(order.logs_before) {
            Ok(count) => outcome.logs_removed += count as u64,
            Err(error) => outcome.errors.push(format!("logs cannot be deleted: {error}")),
        }
        let folder = self.project.join(".svc");
        let older = folder.join("daemon.log.1");
        if is_older(&older, order.logs_before) && fs::remove_file(&older).is_ok() {
            outcome.logs_removed += 1;
        }
        let worktrees = self.worktrees();
        let plans = worktrees.iter().map(|(_, path)| path.join(".svc")).chain([folder]);
        for folder in plans {
            prune_plans(&folder, order.plans_before, &mut outcome);
        }
        for (relative, path) in worktrees.into_iter().take(MAX_WORKTREES) {
            if self.is_closing.load(Ordering::Acquire) {
                break;
            }
            let is_free = !order.worktrees_in_use.contains(&relative);
            if is_free && is_older(&path.join(".git"), order.worktrees_before) {
                self.remove_worktree(&relative, &mut outcome);
            }
        }
        outcome
    }

    /// All worktrees of agents: path below the project, and whole.
    fn worktrees(&self) -> Vec<(String, PathBuf)> {
        let Ok(entries) = fs::read_dir(self.project.join(WORKTREES)) else { return Vec::new() };
        let named = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            is_folder.then(|| (format!("{WORKTREES}/{name}"), entry.path()))
        });
        named.collect()
    }

    /// One that has changes or files that no commit holds stays; so does its branch unless all of it is in
    /// the project's own.
    fn remove_worktree(&self, relative: &str, outcome: &mut Outcome) {
        match worker_worktree::clear(&self.processes, &self.project, relative) {
            Ok(words) => {
                outcome.worktrees_removed += 1;
                log::info!("the worktree {relative} of a removed agent is gone; {words}");
            }
            Err(problem) => {
                outcome.worktrees_kept += 1;
                log::info!("the worktree {relative} of a removed agent stays: {problem}");
            }
        }
    }
}

fn prune_plans(folder: &Path, before: Time, outcome: &mut Outcome) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_plan = entry.file_name().to_str().is_some_and(|name| name.starts_with(PLAN));
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_plan || !is_file || !is_older(&entry.path(), before) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => outcome.plans_removed += 1,
            Err(error) => outcome.errors.push(format!("{}: {error}", entry.path().display())),
        }
    }
}

fn is_older(path: &Path, before: Time) -> bool {
    let limit = UNIX_EPOCH + Duration::from_millis(before.0);
    fs::symlink_metadata(path).and_then(|meta| meta.modified()).is_ok_and(|at| at < limit)
}
