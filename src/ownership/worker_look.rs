//! The thread that looks which files of owners have changed. It asks the kernel for each file's time of
//! change, which no program can set, and so needs no watch that stands all the time.
//!
//! What is gone leaves no time: it is missed by comparing with what was there. So the files are looked at
//! before a program starts, which waits for that, and again when one is given its next turn.

use super::commands::{Change, LOOK_SHARE, Looked, Order, PAUSE, Report};
use crate::core::time::Time;
use crossbeam_channel::{Sender, bounded};
use ignore::WalkBuilder;
use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use svc_base::folders::SKIPPED;
use svc_base::scopes::is_below;
use svc_base::sorted;
use svc_sys::clock;
use svc_sys::threads::Worker;

/// Orders that may wait: one of the core, which gives one at a time, and those of programs that start.
const WAITING_ORDERS: usize = 4;
/// A program that starts waits for a look so long at most.
const BASELINE_PATIENCE: Duration = Duration::from_secs(1);
/// Files looked at in one go; of further ones nothing is known, and that is told.
const MAX_FILES: usize = 200_000;
/// Changes told of one look; further ones are counted.
const MAX_CHANGES: usize = 512;

/// What is to be done.
enum Task {
    /// Tell what has changed.
    Look(Order),
    /// Remember which files are below these folders. Whoever waits hears of it by the end of the channel.
    Baseline(Vec<String>, Option<Sender<()>>),
}

/// The running thread; it ends when this is dropped.
pub struct Looker(Worker<Task>);

impl Looker {
    /// Starts the thread; `report` is told what each order has found. `project` is absolute.
    ///
    /// Errors: no thread.
    pub fn start(project: PathBuf, report: impl Fn(Report) + Send + 'static) -> io::Result<Self> {
        let mut memory = Memory::default();
        let work = move |task| match task {
            Task::Look(order) => report(Some(look(&project, &order, &mut memory))),
            Task::Baseline(roots, awaited) => {
                if awaited.is_some() || clock::now() >= memory.rests_until {
                    memory.remember(&project, &roots);
                }
            }
        };
        Ok(Self(Worker::start("ownership", WAITING_ORDERS, work)?))
    }

    /// Has the project looked at.
    ///
    /// Errors: the thread is behind or gone, as a report.
    pub fn order(&self, order: Order) -> Result<(), Report> {
        self.0.order(Task::Look(order)).then_some(()).ok_or(None)
    }

    /// Has the files below these folders remembered before a program starts: what waits for that.
    pub fn before_start(&self, roots: Vec<String>) -> impl FnOnce() + Send + use<> {
        let (done, wait) = bounded(0);
        // Where the thread is behind, a look that is as good has just been ordered.
        let is_ordered = self.0.order(Task::Baseline(roots, Some(done)));
        move || {
            if is_ordered {
                // Too many files to wait for, or seen: both are no reason not to start.
                let _ = wait.recv_timeout(BASELINE_PATIENCE);
            }
        }
    }

    /// Has them remembered soon, if the last look is not too young: a turn begins.
    pub fn before_turn(&self, roots: Vec<String>) {
        self.0.order(Task::Baseline(roots, None));
    }
}

/// What was seen, so that the next look finds what is gone.
#[derive(Default)]
struct Memory {
    /// The files that were there, and when they were seen last.
    names: HashMap<String, Time>,
    /// Before this time nothing is looked at that can wait.
    rests_until: Time,
}

impl Memory {
    /// Adds what is there below `roots`. What is known and is not there any more stays, to be told by the
    /// next look.
    fn remember(&mut self, project: &Path, roots: &[String]) {
        let began = clock::now();
        for (name, _) in roots.iter().flat_map(|root| files(project, root)) {
            if self.names.len() >= MAX_FILES {
                break;
            }
            self.names.insert(name, clock::now());
        }
        self.rest(began);
    }

    fn rest(&mut self, began: Time) {
        let ended = clock::now();
        self.rests_until = ended + PAUSE.max(ended.since(began).saturating_mul(LOOK_SHARE));
    }
}

fn look(project: &Path, order: &Order, memory: &mut Memory) -> Looked {
    let began = clock::now();
    let mut seen = Seen { since: order.since, names: HashMap::new(), changes: Vec::new() };
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
    if !is_cut {
        seen.missing(project, order, memory, ended);
    }
    let Seen { names, mut changes, .. } = seen;
    sorted::by(&mut changes, |a, b| b.to.cmp(&a.to).then_with(|| a.path.cmp(&b.path)));
    let more = changes.len().saturating_sub(MAX_CHANGES);
    changes.truncate(MAX_CHANGES);
    memory.names = if is_cut { HashMap::new() } else { names };
    memory.rest(began);
    let state = |path: &String| (path.clone(), metadata(project, path).map(|meta| changed_at(&meta)));
    Looked { began, ended, changes, more, is_cut, files: order.files.iter().map(state).collect() }
}

/// What a look has seen so far.
struct Seen {
    since: Time,
    names: HashMap<String, Time>,
    changes: Vec<Change>,
}

impl Seen {
    fn file(&mut self, name: String, meta: &Metadata) {
        let at = changed_at(meta);
        if at >= self.since {
            self.changes.push(Change { path: name.clone(), from: at, to: at, gone: false });
        }
        self.names.insert(name, clock::now());
    }

    /// What was there before, lies where this look has looked, and was not met: it is gone, or somebody has
    /// had it ignored since.
    fn missing(&mut self, project: &Path, order: &Order, memory: &Memory, ended: Time) {
        let is_below = |name: &str| order.roots.iter().any(|root| is_below(name, root));
        let is_missing = |name: &String| !self.names.contains_key(name) && is_below(name);
        let missing: Vec<(String, Time)> = memory
            .names
            .iter()
            .filter(|(name, _)| is_missing(name))
            .map(|(name, at)| (name.clone(), *at))
            .collect();
        for (name, seen) in missing {
            match metadata(project, &name) {
                Some(meta) => self.file(name, &meta),
                None => self.changes.push(Change { path: name, from: seen, to: ended, gone: true }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_removes_in_its_first_moment_is_told() {
        let folder = std::env::temp_dir().join(format!("svc-look-{}", std::process::id()));
        fs::create_dir_all(folder.join("api")).unwrap();
        for name in ["a", "b"] {
            fs::write(folder.join("api").join(name), "x").unwrap();
        }
        let (tell, told) = bounded(4);
        let looker = Looker::start(folder.clone(), move |looked| tell.send(looked).unwrap()).unwrap();
        let start = looker.before_start(vec!["api".into()]);
        start();
        fs::remove_file(folder.join("api/a")).unwrap();
        // Another program starts meanwhile: what was there is not forgotten for that.
        looker.before_start(vec!["api".into()])();
        let order = Order { roots: vec!["api".into()], since: clock::now(), files: Vec::new() };
        looker.order(order).unwrap();
        let looked = told.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
        let gone: Vec<_> = looked.changes.iter().filter(|change| change.gone).map(|c| &*c.path).collect();
        assert_eq!(gone, ["api/a"]);
        drop(looker);
        fs::remove_dir_all(&folder).unwrap();
    }
}
