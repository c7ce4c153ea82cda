//! The map of the code: its thread, which lives while it is asked for, and `GET /api/map`.
//!
//! Made at the first question and brought up to date at each: an agent gets it as the files are when it
//! starts. A project whose agents start seldom holds nothing of it in memory.

use crate::api::{Problem, Reply, Validator};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use svc_map::{Map, Order, Wish};
use svc_sys::threads::Thread;

/// Questions that wait at once; with more, agents start without a map.
const MAX_WAITING: usize = 16;
/// The start of an agent waits so long for the map; the first one of a large project takes longer.
const START_WAIT: Duration = Duration::from_millis(500);
/// Whoever asks on purpose waits longer.
const ASK_WAIT: Duration = Duration::from_secs(20);
/// Unasked for so long, the map is let go.
const IDLE: Duration = Duration::from_secs(600);
/// Characters of a task.
const MAX_TASK_CHARS: usize = 2_000;
/// Characters of an answer, unless told, and at most.
const DEFAULT_CHARS: usize = 8_000;
const MAX_CHARS: usize = 40_000;

type Question = Box<dyn FnOnce(&Map) + Send>;

/// Asks the map of a project.
pub struct Mapper {
    project: PathBuf,
    running: Mutex<Option<(Sender<Question>, Thread)>>,
    stopping: Arc<AtomicBool>,
}

impl Mapper {
    /// Of this folder; nothing is read yet.
    pub fn new(project: PathBuf) -> Self {
        Self { project, running: Mutex::default(), stopping: Arc::default() }
    }

    /// Ends a look that is under way, and refuses further questions.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Puts into a message what its agent should know of the files, if the map is ready soon.
    pub fn tell(&self, order: &Order, message: &mut String) {
        let wanted = order.clone();
        if let Some(text) = self.ask(START_WAIT, move |map| wanted.text(map)).flatten() {
            order.put(&text, message);
        }
    }

    /// Asks the map as it is now; `None` where it is not ready in time.
    fn ask<T: Send + 'static>(
        &self,
        wait: Duration,
        question: impl FnOnce(&Map) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = bounded(1);
        // Nobody may wait for it any more.
        let question: Question = Box::new(move |map| drop(answer.try_send(question(map))));
        self.send(question)?;
        answered.recv_timeout(wait).ok()
    }

    fn send(&self, question: Question) -> Option<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopping.load(Ordering::Relaxed) {
            return None;
        }
        if running.as_ref().is_none_or(|(_, thread)| thread.is_finished()) {
            let (sender, questions) = bounded(MAX_WAITING);
            let (map, stop) = (Map::new(self.project.clone()), Arc::clone(&self.stopping));
            let thread = Thread::spawn("map", move || keep(map, &questions, &stop)).ok()?;
            *running = Some((sender, thread));
        }
        let (sender, _) = running.as_ref()?;
        sender.try_send(question).ok()
    }
}

/// Answers until nobody asks any more.
fn keep(mut map: Map, questions: &Receiver<Question>, stop: &AtomicBool) {
    while let Ok(question) = questions.recv_timeout(IDLE) {
        if let Err(error) = map.refresh(stop) {
            log::warn!("the files cannot be looked at for a map: {error}");
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        question(&map);
        // Those that came meanwhile mean the same files.
        questions.try_iter().for_each(|question| question(&map));
    }
}

/// `GET /api/map`.
pub fn answer(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let task = ask.request.query("task").unwrap_or_default().trim().to_owned();
    let told = ask.request.query("chars").filter(|text| !text.is_empty());
    let mut validator = Validator::default();
    let chars = task.chars().count();
    validator.check((1..=MAX_TASK_CHARS).contains(&chars), "task", || {
        format!("task must have 1 to {MAX_TASK_CHARS} characters, it has {chars}; say what is to be done")
    });
    let room = validator.whole_number("chars", told, DEFAULT_CHARS, MAX_CHARS);
    validator.finish()?;
    let asked = task.clone();
    let answer = host.map.ask(ASK_WAIT, move |map| {
        let wish = Wish { task: &asked, ..Wish::default() };
        (map.text(&wish, room), map.is_cut)
    });
    let Some((text, is_cut)) = answer else {
        let text = "the map of the code is still being made; ask again in a while";
        return Err(Problem::new(503, "not_ready", text));
    };
    Ok(Answer::Reply(Reply::ok(&json!({"task": task, "text": text, "truncated": is_cut}))))
}
