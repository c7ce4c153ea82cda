//! A session of an editor: the agent that is behind it, and what is under way.
//!
//! An agent is started by the first prompt, which is its task: a panel that was only opened costs nothing.
//! Its name is the id of the session, by which a later door finds it again.

use super::super::client::encode;
use super::super::target::text;
use super::wire::Fault;
use super::{Door, Wish};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions of one door; a further one is refused.
pub const MAX_SESSIONS: usize = 256;

/// What changes in a session.
#[derive(Debug, Default)]
pub struct Inner {
    /// The id of the agent, once there is one. Those of its earlier lives lead to it.
    pub agent: Option<String>,
    /// A turn is under way.
    is_busy: bool,
    /// The question that the next prompt answers.
    pub question: Option<String>,
    /// Approvals that the editor has been asked for; those that are decided are forgotten.
    pub asked: BTreeSet<String>,
}

/// See the module.
#[derive(Debug)]
pub struct Seat {
    pub id: String,
    /// Where the agent works, absolute.
    pub folder: PathBuf,
    /// The same, relative to the project.
    below: String,
    inner: Mutex<Inner>,
    is_cancelled: AtomicBool,
}

impl Seat {
    /// What changes. Never held while the daemon is asked or something is written.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a turn; not while there is one.
    pub fn begin(&self) -> Result<(), Fault> {
        let mut inner = self.lock();
        if inner.is_busy {
            let words = "a prompt of this session is under way; wait for its answer, or send session/cancel";
            return Err(Fault::request(words));
        }
        inner.is_busy = true;
        self.is_cancelled.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Whether a turn is under way, from [`Self::begin`] to [`Self::end`].
    pub fn is_busy(&self) -> bool {
        self.lock().is_busy
    }

    /// The turn is over: the next one may begin.
    pub fn end(&self) {
        self.lock().is_busy = false;
    }

    /// The editor wants the turn to end; its thread sees that at its next look.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    /// Whether the editor has said so since the turn began.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }

    /// What starts its agent.
    pub fn spawn_body(&self, wish: &Wish, prompt: &str) -> Value {
        let mut body = json!({"role": wish.role, "name": self.id, "prompt": prompt});
        for (field, value) in [("provider", &wish.provider), ("model", &wish.model)] {
            if let Some(value) = value {
                body[field] = value.as_str().into();
            }
        }
        if !self.below.is_empty() {
            body["workingDir"] = self.below.as_str().into();
        }
        body
    }
}

/// The path of an agent's endpoint.
pub fn path(agent: &str, rest: &str) -> String {
    format!("/api/agents/{}{rest}", encode(agent))
}

/// A new session: of the one agent behind the door, or of one that is still to be started.
pub fn open(door: &Door, cwd: &Value) -> Result<Arc<Seat>, Fault> {
    let (folder, below) = folder(door, cwd)?;
    let (id, agent) = match &door.wish.agent {
        Some(name) => {
            let record = door.link.get(&path(name, ""))?;
            let id = text(&record, "id").to_owned();
            (id.clone(), Some(id))
        }
        // The upper half is as random as the lower one.
        None => (format!("{}-{:08x}", door.wish.role, svc_sys::clock::random() >> 32), None),
    };
    take(door, id, folder, below, agent)
}

/// A session with an agent that is there.
///
/// Errors: there is none of this id or name, or another one is behind the door.
pub fn load(door: &Door, id: &str, cwd: &Value) -> Result<(Arc<Seat>, Value), Fault> {
    let (folder, below) = folder(door, cwd)?;
    let missing =
        |words: &str| Fault::missing(format!("sessionId: {words}; 'svc agents' lists those there are"));
    let record = match door.link.get(&path(id, "")) {
        Err(super::link::Broken::Refused { status: 404, .. }) => Err(missing("there is no such agent")),
        answer => Ok(answer?),
    }?;
    let agent = text(&record, "id").to_owned();
    if let Some(only) = &door.wish.agent
        && ![text(&record, "name"), &agent].contains(&only.as_str())
    {
        return Err(missing("another agent is behind this door, which was started with --agent"));
    }
    Ok((take(door, id.to_owned(), folder, below, Some(agent))?, record))
}

fn take(
    door: &Door,
    id: String,
    folder: PathBuf,
    below: String,
    agent: Option<String>,
) -> Result<Arc<Seat>, Fault> {
    let mut seats = door.seats();
    if let Some(seat) = seats.get(&id) {
        if agent.is_some() {
            seat.lock().agent = agent;
        }
        return Ok(Arc::clone(seat));
    }
    if seats.len() >= MAX_SESSIONS {
        let words = format!("there are {MAX_SESSIONS} sessions already; restart the agent in the editor");
        return Err(Fault::failed(words));
    }
    let inner = Mutex::new(Inner { agent, ..Inner::default() });
    let is_cancelled = AtomicBool::new(false);
    let seat = Arc::new(Seat { id: id.clone(), folder, below, inner, is_cancelled });
    seats.insert(id, Arc::clone(&seat));
    Ok(seat)
}

/// The folder of a session, and the way to it from the project's.
fn folder(door: &Door, cwd: &Value) -> Result<(PathBuf, String), Fault> {
    let given = cwd.as_str().unwrap_or_default();
    let status = door.link.get("/api/status")?;
    let project = Path::new(text(&status, "projectDir"));
    if !Path::new(given).is_absolute() {
        return Err(Fault::parameter("cwd: must be an absolute path; send the folder that is open"));
    }
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let (folder, project) = (whole(Path::new(given)), whole(project));
    match folder.strip_prefix(&project).map(Path::to_str) {
        Ok(Some(below)) if folder.is_dir() => Ok((folder.clone(), below.to_owned())),
        Ok(_) => {
            Err(Fault::parameter("cwd: must be a folder that is there, with a name of UTF-8; create it"))
        }
        Err(_) => Err(Fault::parameter(format!(
            "cwd: must be the project of the daemon or below it, which is {}; open that folder, or start a daemon \
             in yours with 'svc start --background'",
            project.display()
        ))),
    }
}
