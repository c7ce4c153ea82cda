//! The thread that looks which files of owners have changed. It asks the kernel for each file's time of
//! change, which no program can set, and so needs no watch that stands all the time.

use super::commands::{Change, Looked, Order};
use super::scopes::is_below;
use crate::core::time::Time;
use crate::runtime::clock;
use crate::runtime::threads::Thread;
use crate::workspace::index::SKIPPED;
use crossbeam_channel::{Sender, TrySendError, bounded};
use ignore::WalkBuilder;
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Orders that may wait. The core gives one at a time.
const WAITING_ORDERS: usize = 2;
/// Files looked at in one go; of further ones nothing is known, and that is told.
const MAX_FILES: usize = 200_000;
/// Changes told of one look; further ones are counted.
const MAX_CHANGES: usize = 512;

/// The running thread; it ends when this is dropped.
pub struct Looker {
    orders: Sender<Order>,
    _thread: Thread,
}

impl Looker {
    /// Starts the thread; `report` is told what each order has found. `project` is absolute.
    ///
    /// Errors: no thread.
    pub fn start(project: PathBuf, report: impl Fn(Looked) + Send + 'static) -> io::Result<Self> {
        let (orders, incoming) = bounded::<Order>(WAITING_ORDERS);
        let thread = Thread::spawn("ownership", move || {
            let mut before = None;
            for order in incoming {
                report(look(&project, &order, &mut before));
            }
        })?;
        Ok(Self { orders, _thread: thread })
    }

    /// Has the project looked at; `false` when the thread is behind or gone.
    pub fn order(&self, order: Order) -> bool {
        match self.orders.try_send(order) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// What the last look saw, so that the next one finds what is gone.
struct Before {
    roots: Vec<String>,
    names: HashSet<String>,
    ended: Time,
}

fn look(project: &Path, order: &Order, before: &mut Option<Before>) -> Looked {
    let began = clock::now();
    let mut seen = Seen { since: order.since, names: HashSet::new(), changes: Vec::new() };
    let mut is_cut = false;
    for root in &order.roots {
        for (name, meta) in files(project, root) {
            if seen.names.len() >= MAX_FILES {
                is_cut = true;
                break;
            }
            seen.file(name, &meta);
        }
    }
    let ended = clock::now();
    if let Some(before) = before.as_ref().filter(|_| !is_cut) {
        seen.missing(project, order, before, ended);
    }
    let Seen { names, mut changes, .. } = seen;
    changes.sort_by(|a, b| b.to.cmp(&a.to).then_with(|| a.path.cmp(&b.path)));
    let more = changes.len().saturating_sub(MAX_CHANGES);
    changes.truncate(MAX_CHANGES);
    *before = (!is_cut).then(|| Before { roots: order.roots.clone(), names, ended });
    let state = |path: &String| (path.clone(), metadata(project, path).map(|meta| changed_at(&meta)));
    Looked { began, ended, changes, more, is_cut, files: order.files.iter().map(state).collect() }
}

/// What a look has seen so far.
struct Seen {
    since: Time,
    names: HashSet<String>,
    changes: Vec<Change>,
}

impl Seen {
    fn file(&mut self, name: String, meta: &Metadata) {
        let at = changed_at(meta);
        if at >= self.since {
            self.changes.push(Change { path: name.clone(), from: at, to: at, gone: false });
        }
        self.names.insert(name);
    }

    /// What was there at the last look, lies where this one has looked, and was not met: it is gone, or
    /// somebody has had it ignored since.
    fn missing(&mut self, project: &Path, order: &Order, before: &Before, ended: Time) {
        let below = |name: &str, roots: &[String]| roots.iter().any(|root| is_below(name, root));
        let missing: Vec<String> = before.names.difference(&self.names).cloned().collect();
        for name in missing.into_iter().filter(|name| below(name, &order.roots) && below(name, &before.roots))
        {
            match metadata(project, &name) {
                Some(meta) => self.file(name, &meta),
                None => self.changes.push(Change { path: name, from: before.ended, to: ended, gone: true }),
            }
        }
    }
}

/// The files below `root` that the project's own `.gitignore` files do not name, and these themselves: a file
/// that hides the others must not hide itself.
fn files(project: &Path, root: &str) -> impl Iterator<Item = (String, Metadata)> {
    let walk = WalkBuilder::new(project.join(root))
        .hidden(false)
        .require_git(false)
        .ignore(false)
        .git_global(false)
        .git_exclude(false)
        .filter_entry(|entry| {
            let name = entry.file_name().to_str();
            entry.depth() == 0 || !name.is_some_and(|name| SKIPPED.contains(&name))
        })
        .build();
    let project = project.to_path_buf();
    walk.flatten().filter_map(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let path = if is_folder { entry.path().join(".gitignore") } else { entry.into_path() };
        let name = path.strip_prefix(&project).ok()?.to_str()?.to_owned();
        // A link counts itself, not what it leads to.
        Some((name, fs::symlink_metadata(&path).ok()?))
    })
}

fn metadata(project: &Path, path: &str) -> Option<Metadata> {
    fs::symlink_metadata(project.join(path)).ok()
}

fn changed_at(meta: &Metadata) -> Time {
    let milliseconds = meta.ctime().saturating_mul(1_000).saturating_add(meta.ctime_nsec() / 1_000_000);
    Time(u64::try_from(milliseconds).unwrap_or_default())
}
