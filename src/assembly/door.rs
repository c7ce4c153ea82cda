//! This daemon among all of its user: its place in the registry, and the one door to all projects.
//!
//! The door is an address that stays: 127.0.0.1 and the port of the setting `door`. The first daemon that can
//! bind it accepts there; a request below `/p/NAME/` takes its connection along to the daemon of that
//! project. Those who do not hold the door hold a connection to who does, and try when that ends.
//!
//! **Invariant:** a connection is given to, and taken from, processes of this user alone that come from no
//! agent; and one that is taken has come in at the door, from this machine.

use crate::api::{Method, Problem, Reply};
use crate::console::worker_projects;
use crate::core::Project;
use crate::core::time::Time;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use svc_sys::hand_over::{self, AHEAD_BYTES_MAX, PATIENCE};
use svc_sys::http::{Ends, Framing, Head, Way};
use svc_sys::process::{Origin, origin};
use svc_sys::registry::{self, Facts, Registry, Seat};

mod keeper;

pub use keeper::Door;

/// What stands before a project's name in a path.
const PREFIX: &str = "/p/";
/// Segments of a path that a project's name takes, with what stands before it.
const PREFIX_SEGMENTS: usize = 2;
/// A connection comes.
const CONNECTION: u8 = b'c';
/// There is a new holder of the door.
const LOOK: u8 = b'n';
/// Whoever asks wants the door's socket for its own address.
const ASK: u8 = b'y';
/// Here it is.
const GIVEN: u8 = b'l';
/// A start asks so often for a socket that is on its way from one daemon to another.
const ASKS: u32 = 10;
const BETWEEN_ASKS: Duration = Duration::from_millis(50);

/// What a daemon knows of the door.
#[derive(Debug)]
pub struct Desk {
    registry: Registry,
    /// Of this project.
    name: String,
    project: PathBuf,
    /// Where this daemon itself listens.
    own: SocketAddr,
    /// The door's port; 0 where this daemon knows of none.
    port: u16,
    /// Whether it takes the door where nobody has it.
    takes: bool,
    /// Whether somebody holds the door, as far as is known here.
    is_open: AtomicBool,
}

/// Takes this project's place in the registry. A daemon without one works all the same, and only its own
/// address leads to it.
pub fn join(project: &Path, since: Time) -> Option<Seat> {
    let registry = Registry::of_user()?;
    let facts =
        Facts { project: project.to_owned(), url: String::new(), pid: std::process::id(), since: since.0 };
    match registry.join(facts) {
        Ok(seat) => Some(seat),
        Err(error) => {
            log::warn!("'svc ps' does not list this project: {}: {error}", registry.folder().display());
            None
        }
    }
}

/// Tells others where this daemon listens.
pub fn tell(seat: Option<&mut Seat>, project: &Project) {
    let Some(seat) = seat else { return };
    if let Err(error) = seat.tell_url(&project.url()) {
        log::warn!("'svc ps' does not tell where this daemon listens: {error}");
    }
}

/// The door's socket, from a daemon that holds it for all and has an address of its own, for one whose own
/// address this is to be.
pub fn ask_for(project: &Path, port: u16) -> Option<TcpListener> {
    let registry = Registry::of_user().filter(|_| port != 0)?;
    let is_taken = || TcpStream::connect_timeout(&at_door(port), PATIENCE).is_ok();
    for ask in 0..ASKS {
        if ask > 0 {
            std::thread::sleep(BETWEEN_ASKS);
        }
        if let Ok(holder) = hand_over::connect(registry.folder(), &door_file(port)) {
            return asked(&holder, project, port);
        }
        // Nobody holds it, or somebody is about to.
        let others = registry.list().unwrap_or_default();
        if !others.iter().any(|entry| entry.is_running && entry.facts.pid != std::process::id())
            || !is_taken()
        {
            return None;
        }
    }
    None
}

fn asked(holder: &UnixStream, project: &Path, port: u16) -> Option<TcpListener> {
    check(holder, project).ok()?;
    std::io::Write::write_all(&mut &*holder, &[ASK]).ok()?;
    let (answer, socket) = hand_over::receive(holder).ok()?;
    let listener = TcpListener::from(socket.filter(|_| answer == GIVEN)?);
    (listener.local_addr().ok()? == at_door(port)).then_some(listener)
}

/// Refuses whoever is not this user's, or comes from an agent.
fn check(over: &UnixStream, project: &Path) -> std::io::Result<()> {
    let pid = hand_over::own_peer(over)?;
    if lets_in(pid, || origin(pid, project)) {
        Ok(())
    } else {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
}

/// Whether the process of this id at the other end is one to talk to. Linux tells 0 of a process that is in
/// none of this daemon's process namespaces, as in a container: what it comes from cannot be told. Other
/// systems tell nobody's.
fn lets_in(pid: u32, origin: impl FnOnce() -> Origin) -> bool {
    if pid == 0 {
        return cfg!(not(target_os = "linux"));
    }
    matches!(origin(), Origin::Daemon | Origin::Outside)
}

/// The file of the socket on which the holder of the door listens; no project's name begins with a dot.
fn door_file(port: u16) -> String {
    format!(".door-{port}")
}

fn own_file(name: &str) -> String {
    format!("{name}.sock")
}

fn at_door(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Desk {
    /// That of a daemon which listens at `own`, and which `takes` the door at `port` where nobody has it.
    pub fn new(project: &Project, own: SocketAddr, port: u16, takes: bool) -> Option<Self> {
        let registry = Registry::of_user().filter(|_| !project.name.is_empty())?;
        let (name, project) = (project.name.clone(), project.dir.clone());
        Some(Self {
            registry,
            name,
            project,
            own,
            port,
            takes: takes && port != 0,
            is_open: AtomicBool::new(false),
        })
    }

    /// This project's address at the door, without a slash at the end; `None` while no door is known.
    pub fn url(&self) -> Option<String> {
        let is_open = self.is_open.load(Ordering::Relaxed);
        is_open.then(|| format!("http://{}{PREFIX}{}", at_door(self.port), self.name))
    }

    /// Whose a request is.
    ///
    /// Errors: 404, 421.
    pub fn way(&self, head: &mut Head, ends: &Ends) -> Result<Way, Problem> {
        let is_own = ends.local == self.own;
        let is_door = self.port != 0 && ends.local == at_door(self.port);
        let reads = matches!(head.method, Method::Get | Method::Head) && head.framing == Framing::None;
        if head.path.starts_with(PREFIX) {
            return self.below(head, is_door, reads);
        }
        let is_front = head.path == "/" && is_door && reads && head.header("upgrade").is_none();
        // With one project the old address is the door to it.
        if is_own && (!is_front || self.others() == 0) {
            return Ok(Way::Here);
        }
        if is_front {
            return Ok(Way::Answer(self.page()));
        }
        let text =
            "this is the door to all projects: what you ask for stands below /p/NAME/; /p/ lists the names";
        Err(Problem::new(421, "name_the_project", text))
    }

    fn below(&self, head: &mut Head, is_door: bool, reads: bool) -> Result<Way, Problem> {
        let rest = head.path.strip_prefix(PREFIX).unwrap_or_default();
        let (name, has_more) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
        if has_more && name == self.name {
            head.enter(PREFIX_SEGMENTS);
            return Ok(Way::Here);
        }
        if !is_door {
            return Err(Problem::not_found(format!("there is no {}; the door leads to projects", head.path)));
        }
        if reads && head.path == PREFIX {
            return Ok(Way::Answer(self.page()));
        }
        if reads && !has_more && registry::is_name(name) {
            let there = format!("{PREFIX}{name}/");
            let reply = Reply { status: 308, ..Reply::no_content() }.with_header("Location", there);
            return Ok(Way::Answer(reply));
        }
        if has_more && registry::is_name(name) {
            return Ok(Way::Pass(name.to_owned()));
        }
        Err(Problem::not_found(format!("there is no {}; /p/ lists the projects", head.path)))
    }

    fn others(&self) -> usize {
        let all = self.registry.list().unwrap_or_default();
        all.iter().filter(|entry| entry.is_running && entry.name != self.name).count()
    }

    fn page(&self) -> Reply {
        worker_projects::page(&self.name, &self.registry.list().unwrap_or_default())
    }

    /// Gives a connection to the daemon of another project.
    ///
    /// Errors: 404, 431, 503, 504; nobody else will answer then.
    pub fn pass(&self, to: &str, stream: &TcpStream, bytes: &[u8]) -> Result<(), Problem> {
        let Some(entry) = self.registry.find(to) else {
            return Err(Problem::new(
                404,
                "no_such_project",
                format!("there is no project {to}; see 'svc ps'"),
            ));
        };
        if !entry.is_running {
            let text = format!(
                "the daemon of {to} is stopped; start it with 'svc start --background' in its folder"
            );
            return Err(Problem::new(503, "project_stopped", text));
        }
        if bytes.len() > AHEAD_BYTES_MAX {
            let text =
                format!("more than {AHEAD_BYTES_MAX} bytes came at once; send the body behind its head");
            return Err(Problem::new(431, "head_too_large", text));
        }
        let give = || -> std::io::Result<()> {
            let over = hand_over::connect(self.registry.folder(), &own_file(to))?;
            self.check(&over)?;
            hand_over::give(&over, CONNECTION, stream.as_fd(), bytes)
        };
        give().map_err(|error| {
            log::warn!("a connection could not be given to the daemon of {to}: {error}");
            let text = format!("the daemon of {to} does not take this connection: {error}; see 'svc ps'");
            Problem::new(504, "project_silent", text)
        })
    }

    fn check(&self, over: &UnixStream) -> std::io::Result<()> {
        check(over, &self.project)
    }

    /// A connection that has come in at the door; `None` for everything else.
    fn connection(&self, socket: OwnedFd) -> Option<TcpStream> {
        let stream = TcpStream::from(socket);
        let is_ours = self.port != 0 && stream.local_addr().ok()? == at_door(self.port);
        (is_ours && stream.peer_addr().ok()?.ip().is_loopback()).then_some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::AgentId;

    #[test]
    fn whose_process_cannot_be_told_is_not_let_in() {
        let never = || -> Origin { panic!("there is no such process to ask for") };
        assert_eq!(lets_in(0, never), cfg!(not(target_os = "linux")));
        for (origin, is_let_in) in [
            (Origin::Daemon, true),
            (Origin::Outside, true),
            (Origin::Inside, false),
            (Origin::Agent("00000001".parse::<AgentId>().unwrap()), false),
        ] {
            assert_eq!(lets_in(7, || origin), is_let_in, "{origin:?}");
        }
    }
}
