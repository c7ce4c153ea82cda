//! Watching files for WebSocket clients: `{"type":"watch","path":"src/main.rs"}` has the client told of every
//! change of that file, or of any direct entry of that folder, until it says `unwatch` or goes.
//!
//! The system is asked to watch folders only, so that a file that is replaced or not yet there is watched
//! too.

use super::path::ProjectPath;
use super::worker_files::{TEMPORARY_PREFIX, locate, refusal};
use crate::api::Problem;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use svc_sys::beneath::Root;
use svc_sys::clock;
use svc_sys::threads::{Thread, lock};
use svc_sys::ws::{HubHandle, HubMessage, Listener};

/// Paths one client may watch.
pub const MAX_WATCHES_PER_CLIENT: usize = 256;
/// Paths all clients together may watch.
pub const MAX_WATCHES: usize = 4_096;
/// A change is told this long after the last one of the same file.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// A file that never rests is told this often.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);
/// Changed files that wait to be told; above this all are told at once.
const MAX_PENDING: usize = 4_096;
/// Changes on their way from the system; above this everything watched counts as changed.
const MAX_EVENTS: usize = 8_192;

/// Watches on behalf of clients. The system's watcher and the thread start with the first watch.
pub struct Watcher {
    project: PathBuf,
    hub: HubHandle,
    table: Arc<Mutex<Table>>,
    engine: Mutex<Option<Engine>>,
}

/// Fields in the order in which they end.
struct Engine {
    notify: RecommendedWatcher,
    _thread: Thread,
}

/// One path a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Watch {
    /// Where it really is.
    real: ProjectPath,
    /// The folder the system watches for it.
    folder: String,
    is_folder: bool,
}

#[derive(Default)]
struct Table {
    /// By client, then by the path as it asked.
    watches: BTreeMap<u64, BTreeMap<String, Watch>>,
}

impl Table {
    fn count(&self) -> usize {
        self.watches.values().map(BTreeMap::len).sum()
    }

    fn uses(&self, folder: &str) -> bool {
        self.watches.values().flat_map(BTreeMap::values).any(|watch| watch.folder == folder)
    }

    /// Who is to be told of a change at `changed`, under which name. `None` is a change somewhere.
    fn interested(&self, changed: Option<&ProjectPath>) -> BTreeMap<String, Vec<u64>> {
        let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (client, watches) in &self.watches {
            for (asked, watch) in watches {
                let name = match changed {
                    None => asked.clone(),
                    Some(path) if *path == watch.real => asked.clone(),
                    Some(path) if watch.is_folder && path.split().0 == watch.real.as_str() => {
                        ProjectPath::found(asked).join(path.split().1).as_str().to_owned()
                    }
                    Some(_) => continue,
                };
                told.entry(name).or_default().push(*client);
            }
        }
        told
    }
}

impl Listener for Watcher {
    fn heard(&self, client: u64, message: &Value) -> Option<Value> {
        let kind = message["type"].as_str()?;
        if kind != "watch" && kind != "unwatch" {
            return None;
        }
        let Some(path) = message["path"].as_str() else {
            return Some(failed(None, &Problem::bad_request("validation_failed", "path must be a string")));
        };
        let outcome = ProjectPath::parse(path).and_then(|path| {
            if kind == "watch" { self.watch(client, &path) } else { self.unwatch(client, &path) }
                .map(|()| path)
        });
        let word = if kind == "watch" { "watching" } else { "unwatched" };
        Some(match outcome {
            Ok(path) => json!({"type": word, "path": path.as_str()}),
            Err(problem) => failed(Some(path), &problem),
        })
    }

    fn gone(&self, client: u64) {
        let mut engine = lock(&self.engine);
        let watches = lock(&self.table).watches.remove(&client).unwrap_or_default();
        for watch in watches.into_values() {
            self.release(engine.as_mut(), &watch.folder);
        }
    }
}

fn failed(path: Option<&str>, problem: &Problem) -> Value {
    json!({"type": "watch:failed", "path": path, "error": problem.error, "code": problem.code})
}

impl Watcher {
    /// Nothing is watched yet. `project` is absolute and without links.
    pub fn new(project: PathBuf, hub: HubHandle) -> Self {
        Self { project, hub, table: Arc::default(), engine: Mutex::new(None) }
    }

    fn watch(&self, client: u64, path: &ProjectPath) -> Result<(), Problem> {
        let watch = self.look(path)?;
        let mut engine = lock(&self.engine);
        let is_new = {
            let mut table = lock(&self.table);
            let all = table.count();
            let is_new = !table.uses(&watch.folder);
            let own = table.watches.entry(client).or_default();
            if !own.contains_key(path.as_str()) && (own.len() >= MAX_WATCHES_PER_CLIENT || all >= MAX_WATCHES)
            {
                let text =
                    format!("a client may watch {MAX_WATCHES_PER_CLIENT} paths, all together {MAX_WATCHES}");
                return Err(Problem::new(429, "too_many_watches", text));
            }
            own.insert(path.as_str().to_owned(), watch.clone());
            is_new
        };
        if !is_new {
            return Ok(());
        }
        let begun = match engine.as_mut() {
            Some(_) => Ok(()),
            None => self.start().map(|started| *engine = Some(started)),
        };
        let folder = self.project.join(&watch.folder);
        let added = begun.and_then(|()| match engine.as_mut() {
            Some(engine) => {
                engine.notify.watch(&folder, RecursiveMode::NonRecursive).map_err(|e| e.to_string())
            }
            None => Ok(()),
        });
        added.map_err(|error| {
            lock(&self.table).watches.entry(client).or_default().remove(path.as_str());
            let text = format!(
                "{:?} cannot be watched: {error}; fs.inotify.max_user_watches may be too low",
                path.as_str()
            );
            Problem::new(503, "watch_failed", text)
        })
    }

    /// Where a path really is. A file that is not there yet is looked for in its folder.
    fn look(&self, path: &ProjectPath) -> Result<Watch, Problem> {
        let said = |error: std::io::Error| refusal(&error, path);
        let root = Root::open(&self.project).map_err(said)?;
        let real = match locate(&root, path) {
            Ok(real) => real,
            Err(problem) if problem.status == 404 => {
                let (folder, name) = path.split();
                locate(&root, &ProjectPath::found(folder))?.join(name)
            }
            Err(problem) => return Err(problem),
        };
        let is_folder = root.look(real.as_str()).is_ok_and(|meta| meta.is_dir());
        let folder = if is_folder { real.as_str() } else { real.split().0 }.to_owned();
        Ok(Watch { real, folder, is_folder })
    }

    fn unwatch(&self, client: u64, path: &ProjectPath) -> Result<(), Problem> {
        let mut engine = lock(&self.engine);
        let removed = lock(&self.table).watches.get_mut(&client).and_then(|own| own.remove(path.as_str()));
        let Some(watch) = removed else {
            return Err(Problem::not_found(format!("you do not watch {:?}", path.as_str())));
        };
        self.release(engine.as_mut(), &watch.folder);
        Ok(())
    }

    /// Has the system forget a folder that nobody needs any more.
    fn release(&self, engine: Option<&mut Engine>, folder: &str) {
        if let Some(engine) = engine
            && !lock(&self.table).uses(folder)
        {
            // A folder that is gone is forgotten already.
            let _ = engine.notify.unwatch(&self.project.join(folder));
        }
    }

    fn start(&self) -> Result<Engine, String> {
        let (sender, events) = bounded(MAX_EVENTS);
        let lost = Arc::new(AtomicBool::new(false));
        let mut teller = Teller {
            project: self.project.clone(),
            hub: self.hub.clone(),
            table: Arc::clone(&self.table),
            lost: Arc::clone(&lost),
            pending: HashMap::new(),
        };
        let notify = notify::recommended_watcher(move |event| take(event, &sender, &lost))
            .map_err(|e| e.to_string())?;
        let thread = Thread::spawn("watcher", move || teller.run(&events)).map_err(|e| e.to_string())?;
        Ok(Engine { notify, _thread: thread })
    }
}

/// Runs on the system watcher's thread, which must never wait: whoever adds a watch waits for it.
fn take(event: notify::Result<Event>, sender: &Sender<PathBuf>, lost: &AtomicBool) {
    let Ok(event) = event else { return lost.store(true, Ordering::Relaxed) };
    if event.need_rescan() {
        lost.store(true, Ordering::Relaxed);
    }
    if matches!(event.kind, EventKind::Access(_)) {
        return;
    }
    for path in event.paths {
        if sender.try_send(path).is_err() {
            lost.store(true, Ordering::Relaxed);
        }
    }
}

/// The thread that waits until a file rests, and then tells its clients.
struct Teller {
    project: PathBuf,
    hub: HubHandle,
    table: Arc<Mutex<Table>>,
    lost: Arc<AtomicBool>,
    /// Changed files: since when, and when last.
    pending: HashMap<ProjectPath, (Instant, Instant)>,
}

impl Teller {
    fn run(&mut self, events: &Receiver<PathBuf>) {
        loop {
            let next = self.pending.values().map(due).min();
            let heard = match next {
                Some(due) => events.recv_deadline(due),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match heard {
                Ok(path) => self.changed(&path),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.lost.swap(false, Ordering::Relaxed) {
                self.tell(None);
            }
            let now = Instant::now();
            let all = self.pending.len() >= MAX_PENDING;
            let resting = self.pending.iter().filter(|(_, times)| all || due(times) <= now);
            let resting: Vec<ProjectPath> = resting.map(|(path, _)| path.clone()).collect();
            for path in resting {
                self.pending.remove(&path);
                self.tell(Some(&path));
            }
        }
    }

    fn changed(&mut self, path: &Path) {
        let Some(relative) = path.strip_prefix(&self.project).ok().and_then(Path::to_str) else { return };
        let path = ProjectPath::found(relative);
        if path.split().1.starts_with(TEMPORARY_PREFIX) || path.check_readable().is_err() {
            return;
        }
        let now = Instant::now();
        self.pending.entry(path).or_insert((now, now)).1 = now;
    }

    fn tell(&self, changed: Option<&ProjectPath>) {
        let told = lock(&self.table).interested(changed);
        for (path, clients) in told {
            let mut body = json!({"type": "file:changed", "path": path, "timestamp": clock::now().0})
                .to_string()
                .into_bytes();
            // The hub adds its number and closes the object.
            body.pop();
            self.hub.send(HubMessage::To(clients, body.into()));
        }
    }
}

fn due((since, last): &(Instant, Instant)) -> Instant {
    (*last + DEBOUNCE).min(*since + LONGEST_SILENCE)
}
