//! The thread of the door: takes connections, keeps the door or watches over who does.

use super::{ASK, CONNECTION, Desk, GIVEN, LOOK, at_door, door_file, own_file};
use std::io::{self, ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use svc_sys::hand_over;
use svc_sys::http::{Handle, Listening};
use svc_sys::registry::PROJECTS_MAX;
use svc_sys::sockets::Poll;
use svc_sys::threads::Thread;

const STACK_BYTES: usize = 256 << 10;
/// Who holds the door may need this long to say so after it has bound it.
const SETTLES: Duration = Duration::from_secs(1);
/// Between two looks meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A daemon's side of the door. Dropping it leaves the door to others.
#[derive(Debug)]
pub struct Door {
    _stop: UnixStream,
    _thread: Thread,
}

impl Door {
    /// As [`Door::start`]; a daemon without it works all the same, at its own address.
    pub fn open(desk: Arc<Desk>, server: Handle) -> Option<Self> {
        Self::start(desk, server)
            .inspect_err(|error| log::warn!("the door does not lead to this project: {error}"))
            .ok()
    }

    /// Takes connections for this daemon from now on.
    ///
    /// Errors: its socket cannot be made.
    fn start(desk: Arc<Desk>, server: Handle) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let own = hand_over::listen(desk.registry.folder(), &own_file(&desk.name))?;
        let place = if desk.takes { Place::looking() } else { Place::Away };
        let keeper = Keeper { desk, server, own, place };
        let thread = Thread::with_stack("door", STACK_BYTES, move || keeper.run(&stopped))?;
        Ok(Self { _stop: stop, _thread: thread })
    }
}

/// Where this daemon stands.
enum Place {
    /// Somebody has the door who does not say so, or nobody is to take it: until there is news.
    Away,
    /// To find out, until then.
    Looking { until: Instant },
    /// It keeps the door.
    Keeps(Kept),
    /// Another one does, whose end ends this.
    Watches(UnixStream),
}

impl Place {
    fn looking() -> Self {
        Self::Looking { until: Instant::now() + SETTLES }
    }
}

/// The door.
struct Kept {
    /// Absent where the daemon's own address is the door.
    listening: Option<Listening>,
    /// On which others come to watch.
    watched: UnixListener,
    /// Those who do.
    watchers: Vec<UnixStream>,
}

struct Keeper {
    desk: Arc<Desk>,
    server: Handle,
    own: UnixListener,
    place: Place,
}

impl Keeper {
    fn run(mut self, stopped: &UnixStream) {
        loop {
            let limit = self.look();
            let is_open = matches!(self.place, Place::Keeps(_) | Place::Watches(_));
            self.desk.is_open.store(is_open, Ordering::Relaxed);
            let mut poll = Poll::default();
            let stop = poll.add(stopped.as_fd(), true, false);
            let own = poll.add(self.own.as_fd(), true, false);
            match &self.place {
                Place::Keeps(kept) => {
                    poll.add(kept.watched.as_fd(), true, false);
                    for watcher in &kept.watchers {
                        poll.add(watcher.as_fd(), true, false);
                    }
                }
                Place::Watches(holder) => {
                    poll.add(holder.as_fd(), true, false);
                }
                Place::Away | Place::Looking { .. } => {}
            }
            if let Err(error) = poll.wait(limit) {
                log::error!(
                    "the door's thread cannot wait: {error}; only its own address leads to this project"
                );
                return;
            }
            if poll.is_ready(stop) {
                return;
            }
            if poll.is_ready(own) {
                self.receive();
            }
            self.news(&poll, own + 1);
        }
    }

    /// Takes the door or finds who has it; how long to wait before the next look.
    fn look(&mut self) -> Option<Duration> {
        let Place::Looking { until } = self.place else { return None };
        match self.found() {
            Ok(Some(place)) => {
                self.place = place;
                None
            }
            Ok(None) if Instant::now() < until => Some(LOOK_AGAIN),
            Ok(None) => {
                log::info!("port {} is another program's: there is no door", self.desk.port);
                self.place = Place::Away;
                None
            }
            Err(error) => {
                log::warn!("this daemon cannot keep the door: {error}");
                self.place = Place::Away;
                None
            }
        }
    }

    fn found(&self) -> io::Result<Option<Place>> {
        let (desk, folder) = (&self.desk, self.desk.registry.folder());
        let address = at_door(desk.port);
        let listening = if desk.own == address {
            None
        } else {
            match TcpListener::bind(address) {
                Ok(listener) => Some(self.server.listen(listener)?),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    let holder = hand_over::connect(folder, &door_file(desk.port));
                    let holder = holder.and_then(|holder| desk.check(&holder).map(|()| holder));
                    return Ok(holder.ok().map(Place::Watches));
                }
                Err(error) => return Err(error),
            }
        };
        let watched = hand_over::listen(folder, &door_file(desk.port))?;
        log::info!("the door to all projects is http://{address}/");
        self.tell_others();
        Ok(Some(Place::Keeps(Kept { listening, watched, watchers: Vec::new() })))
    }

    /// Others may have found somebody there who did not answer.
    fn tell_others(&self) {
        for other in self.desk.registry.list().unwrap_or_default() {
            if other.is_running && other.name != self.desk.name {
                // One that is silent looks when it can.
                let _ = hand_over::connect(self.desk.registry.folder(), &own_file(&other.name))
                    .and_then(|over| io::Write::write_all(&mut &over, &[LOOK]));
            }
        }
    }

    /// One who has come to this daemon's own socket.
    fn receive(&mut self) {
        let Ok((over, _)) = self.own.accept() else { return };
        let taken = || -> io::Result<Option<(std::net::TcpStream, Vec<u8>)>> {
            over.set_nonblocking(false)?;
            self.desk.check(&over)?;
            match hand_over::receive(&over)? {
                (CONNECTION, Some(socket)) => {
                    let stream = self.desk.connection(socket).ok_or(ErrorKind::InvalidData)?;
                    Ok(Some((stream, hand_over::take(&over)?)))
                }
                (LOOK, None) => Ok(None),
                _ => Err(ErrorKind::InvalidData.into()),
            }
        };
        match taken() {
            Ok(Some((stream, ahead))) => self.server.adopt(stream, ahead),
            Ok(None) if self.desk.takes && matches!(self.place, Place::Away) => {
                self.place = Place::looking();
            }
            Ok(None) => {}
            Err(error) => log::warn!("what came to the door was not taken: {error}"),
        }
    }

    /// What has come to those behind the first places of a wait.
    fn news(&mut self, poll: &Poll, first: usize) {
        match &mut self.place {
            Place::Away | Place::Looking { .. } => {}
            Place::Watches(_) => {
                if poll.is_ready(first) {
                    self.place = Place::looking();
                }
            }
            Place::Keeps(kept) => {
                let asks = kept.hear(poll, first);
                if poll.is_ready(first) {
                    kept.welcome(&self.desk);
                }
                if let Some(asker) = asks {
                    self.yield_to(&asker);
                }
            }
        }
    }

    /// Gives the door's socket to a daemon whose own address it is to be.
    fn yield_to(&mut self, asker: &UnixStream) {
        let Place::Keeps(kept) = &mut self.place else { return };
        // The door is this daemon's own address, which it keeps.
        let Some(listening) = kept.listening.take() else { return };
        let listener = match listening.give_up() {
            Ok(listener) => listener,
            Err(error) => {
                log::warn!("the door's socket cannot be given away: {error}");
                self.place = Place::looking();
                return;
            }
        };
        if hand_over::send(asker, GIVEN, listener.as_fd()).is_ok() {
            log::info!("another daemon has the door now, as its own address");
            self.place = Place::looking();
        } else {
            kept.listening = self.server.listen(listener).ok();
        }
    }
}

impl Kept {
    /// Somebody comes to watch.
    fn welcome(&mut self, desk: &Desk) {
        let Ok((watcher, _)) = self.watched.accept() else { return };
        // One that is turned away finds no door, and looks when it is told to.
        if self.watchers.len() < PROJECTS_MAX
            && desk.check(&watcher).is_ok()
            && watcher.set_nonblocking(true).is_ok()
        {
            self.watchers.push(watcher);
        }
    }

    /// Lets those go who are gone; one who asks for the door's socket is taken out.
    fn hear(&mut self, poll: &Poll, first: usize) -> Option<UnixStream> {
        let mut asks = None;
        let mut place = first;
        for mut watcher in std::mem::take(&mut self.watchers) {
            place += 1;
            if !poll.is_ready(place) {
                self.watchers.push(watcher);
                continue;
            }
            let mut byte = [0];
            if matches!(watcher.read(&mut byte), Ok(1)) && byte[0] == ASK && asks.is_none() {
                asks = Some(watcher);
            }
        }
        asks
    }
}
