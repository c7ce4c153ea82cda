//! Accepting connections, giving each a thread, and taking all of it down.

use super::connection::Connection;
use super::stats::{Stats, add};
use super::write::encode;
use super::{Bound, Config, Ends, Service};
use crate::threads::Thread;
use crate::tls::Front;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use svc_base::api::{Problem, Reply};

const CONNECTION_STACK_BYTES: usize = 512 << 10;
/// A thread without a connection waits this long for the next one.
const IDLE_THREAD: Duration = Duration::from_secs(5);
/// After a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// What is read of the request of one who is turned away.
const TURNED_AWAY_BYTES: usize = 4096;

/// A running server. [`Server::stop`] or a drop ends it.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    accept: Option<Thread>,
}

/// What all connections share.
pub struct Shared {
    pub config: Config,
    pub service: Arc<dyn Service>,
    pub stats: Arc<Stats>,
    /// What stands before each connection that is accepted.
    front: Option<Front>,
    open: Mutex<HashMap<u64, Open>>,
    all_closed: Condvar,
    stopping: AtomicBool,
    hand_over: (Sender<Accepted>, Receiver<Accepted>),
    next_id: AtomicU64,
}

/// What a connection waits for its client to do, those that go first at the cap first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waits {
    /// To send a request.
    ForHead,
    /// To send the rest of one.
    ForBody,
    /// To take the reply.
    ToBeRead,
    /// Nothing: it is being answered, or a WebSocket.
    No,
}

/// An open connection, as the accept thread sees it.
struct Open {
    stream: TcpStream,
    waits: (Waits, Instant),
}

struct Accepted {
    id: u64,
    stream: TcpStream,
    ends: Ends,
    /// Read of it already.
    ahead: Vec<u8>,
}

/// Lets others bring connections to a server.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

/// A further socket on which a server accepts. Dropping it ends that; what was accepted goes on.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accept: Option<Thread>,
}

impl Server {
    /// Starts serving on a bound socket.
    pub fn start(bound: Bound, config: Config, service: Arc<dyn Service>) -> io::Result<Self> {
        Self::start_behind(None, bound, config, service)
    }

    /// As [`Server::start`], for those who speak TLS. Connections that others bring do not.
    pub fn start_behind(
        front: Option<Front>,
        bound: Bound,
        config: Config,
        service: Arc<dyn Service>,
    ) -> io::Result<Self> {
        let Bound { listener, address } = bound;
        let shared = Arc::new(Shared {
            config,
            service,
            stats: Arc::default(),
            front,
            open: Mutex::default(),
            all_closed: Condvar::new(),
            stopping: AtomicBool::new(false),
            // A rendezvous: a connection goes to a waiting thread, or a new one is made.
            hand_over: bounded(0),
            next_id: AtomicU64::new(1),
        });
        let theirs = Arc::clone(&shared);
        let never = AtomicBool::new(false);
        let accept = Thread::spawn("accept", move || accept_loop(&theirs, &listener, &never))?;
        Ok(Self { shared, address, accept: Some(accept) })
    }

    /// For those who bring connections.
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its counters.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.shared.stats)
    }

    /// Ends all connections there are, those of WebSocket clients included, whatever they are at.
    pub fn hang_up(&self) {
        self.shared.shut(Shutdown::Both);
    }

    /// Stops accepting, lets requests under way finish for `grace`, then closes everything.
    pub fn stop(mut self, grace: Duration) {
        self.close(grace);
    }

    fn close(&mut self, grace: Duration) {
        let Some(accept) = self.accept.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accept thread; if even that fails it wakes with the next connection.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        drop(accept);
        self.shared.shut(Shutdown::Read);
        self.shared.wait_closed(grace);
        self.shared.shut(Shutdown::Both);
        self.shared.wait_closed(grace);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close(Duration::from_secs(1));
    }
}

impl Shared {
    /// Whether the server is being stopped.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Notes what of its client a connection waits for: it may be evicted meanwhile.
    pub fn waits(&self, id: u64, what: Waits) {
        if let Some(open) = self.open().get_mut(&id) {
            open.waits = (what, Instant::now());
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self, how: Shutdown) {
        for open in self.open().values() {
            // One that is closed already needs no closing.
            let _ = open.stream.shutdown(how);
        }
    }

    fn wait_closed(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut open = self.open();
        while !open.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            open =
                self.all_closed.wait_timeout(open, left).map_or_else(|e| e.into_inner().0, |(open, _)| open);
        }
    }

    /// Makes room at the cap: the connection goes that has waited longest for a head, or else for the rest of
    /// a request, or else for its reply to be taken.
    fn evict(&self) -> bool {
        let mut open = self.open();
        let waiting = open.iter().filter(|(_, open)| open.waits.0 != Waits::No);
        let longest = waiting.map(|(id, open)| (open.waits, *id)).min().map(|(_, id)| id);
        let Some(evicted) = longest.and_then(|id| open.remove(&id)) else { return false };
        let _ = evicted.stream.shutdown(Shutdown::Both);
        self.stats.open.fetch_sub(1, Ordering::Relaxed);
        add(&self.stats.refused);
        true
    }

    fn closed(&self, id: u64) {
        let mut open = self.open();
        if open.remove(&id).is_some() {
            self.stats.open.fetch_sub(1, Ordering::Relaxed);
        }
        if open.is_empty() {
            self.all_closed.notify_all();
        }
    }

    fn serve(&self, accepted: Accepted) {
        let Accepted { id, stream, ends, ahead } = accepted;
        Connection { stream, ends, shared: self, id }.serve(ahead);
        self.closed(id);
    }
}

impl Handle {
    /// Serves a connection that somebody else has accepted, and of which `ahead` was read.
    pub fn adopt(&self, stream: TcpStream, ahead: Vec<u8>) {
        if !self.shared.is_stopping()
            && let Ok(peer) = stream.peer_addr()
        {
            welcome(&self.shared, stream, peer, ahead, None);
        }
    }

    /// Accepts on this socket, too.
    ///
    /// Errors: no thread, no descriptor.
    pub fn listen(&self, listener: TcpListener) -> io::Result<Listening> {
        let (address, theirs) = (listener.local_addr()?, listener.try_clone()?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, over) = (Arc::clone(&self.shared), Arc::clone(&is_over));
        let accept = Thread::spawn("accept-door", move || accept_loop(&shared, &theirs, &over))?;
        Ok(Listening { listener, address, is_over, accept: Some(accept) })
    }
}

impl Listening {
    /// Accepts no more, and gives the socket back, which is open all the while.
    pub fn give_up(mut self) -> io::Result<TcpListener> {
        self.end();
        self.listener.try_clone()
    }

    fn end(&mut self) {
        let Some(accept) = self.accept.take() else { return };
        self.is_over.store(true, Ordering::SeqCst);
        // As in `Server::close`.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        drop(accept);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept_loop(shared: &Arc<Shared>, listener: &TcpListener, is_over: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if shared.is_stopping() {
            return;
        }
        match accepted {
            Ok((stream, peer)) => welcome(shared, stream, peer, Vec::new(), shared.front.as_ref()),
            Err(error) => {
                log::warn!("a connection could not be accepted: {error}");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
        // Who came meanwhile was let in: it need not be the one that wakes us.
        if is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn welcome(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr, ahead: Vec<u8>, front: Option<&Front>) {
    let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
    add(&shared.stats.accepted);
    let _ = stream.set_nodelay(true);
    // One that is gone already needs no answer.
    let Ok(local) = stream.local_addr() else { return };
    let ends = Ends { peer, local, holder: Arc::default() };
    let stream = match front {
        None => stream,
        Some(front) => match front.before(stream) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return add(&shared.stats.refused),
            Err(error) => return log::warn!("no TLS for a connection: {error}"),
        },
    };
    admit(shared, Accepted { id, stream, ends, ahead });
}

/// Gives a connection a thread, or tells it why not.
fn admit(shared: &Arc<Shared>, accepted: Accepted) {
    let limits = &shared.config.limits;
    let open = shared.open().len();
    if open >= limits.connections.saturating_sub(limits.reserve) && !shared.evict() {
        // All are being answered. The last slots are for those whom the others cannot shut out.
        let reserved = open < limits.connections && shared.service.may_use_reserve(&accepted.ends);
        if !reserved {
            add(&shared.stats.refused);
            return turn_away(shared, &accepted.stream);
        }
    }
    let Ok(copy) = accepted.stream.try_clone() else { return turn_away(shared, &accepted.stream) };
    shared.open().insert(accepted.id, Open { stream: copy, waits: (Waits::ForHead, Instant::now()) });
    shared.stats.open.fetch_add(1, Ordering::Relaxed);
    let Err(unsent) = shared.hand_over.0.try_send(accepted) else { return };
    let accepted = unsent.into_inner();
    let id = accepted.id;
    let theirs = Arc::clone(shared);
    let started = thread::Builder::new()
        .name("http".into())
        .stack_size(CONNECTION_STACK_BYTES)
        .spawn(move || connection_thread(&theirs, accepted));
    if let Err(error) = started {
        log::warn!("no thread for a connection: {error}");
        shared.closed(id);
    }
}

fn connection_thread(shared: &Shared, first: Accepted) {
    let mut next = Some(first);
    while let Some(accepted) = next {
        shared.serve(accepted);
        next = if shared.is_stopping() { None } else { shared.hand_over.1.recv_timeout(IDLE_THREAD).ok() };
    }
}

fn turn_away(shared: &Shared, mut stream: &TcpStream) {
    let limit = shared.open().len();
    let problem = Problem::new(503, "too_many_connections", format!("{limit} connections are open already"))
        .with_header("Retry-After", "1");
    let reply = Reply::from(problem);
    let (bytes, _) = encode(&reply, None, false, &shared.config);
    shared.stats.answered(503);
    // A fresh socket's buffer takes these few bytes at once.
    let _ = stream.set_write_timeout(Some(ACCEPT_PAUSE)).and_then(|()| stream.write_all(&bytes));
    // What has come of the request is taken: closed with it unread, the connection is reset, and the client
    // may never see the reply. What comes later is not waited for, for others want to be accepted.
    let _ = stream.shutdown(Shutdown::Write).and_then(|()| stream.set_nonblocking(true));
    let _ = stream.read(&mut [0; TURNED_AWAY_BYTES]);
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Policy, Port, bind};
    use super::*;
    use svc_base::api::{Method, Request};

    const LIMIT: Duration = Duration::from_secs(20);

    /// Answers when it is told to, and knows callers or not.
    struct Slow {
        asked: Sender<()>,
        go_on: Receiver<()>,
        knows: Arc<AtomicBool>,
    }

    impl Service for Slow {
        fn body_limit(&self, _: &Method, _: &[String]) -> usize {
            0
        }

        fn may_use_reserve(&self, _: &Ends) -> bool {
            self.knows.load(Ordering::SeqCst)
        }

        fn handle(&self, _: &Request) -> Reply {
            let _ = self.asked.send(());
            // Disconnected where the test is over.
            let _ = self.go_on.recv_timeout(LIMIT);
            Reply::from(Problem::new(418, "teapot", "short and stout"))
        }
    }

    /// The reply. The request of one who is turned away may come after the end, which is then a reset.
    fn answer(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_last_connections_are_kept_for_callers_that_the_service_knows() {
        let (asked, is_asked) = bounded(16);
        let (let_go, go_on) = bounded(16);
        let knows = Arc::new(AtomicBool::new(false));
        let bound = bind("127.0.0.1", Port::Named(0), Duration::ZERO).unwrap();
        let address = bound.address;
        let limits = Limits { connections: 6, reserve: 2, ..Limits::default() };
        let config = Config { limits, policy: Policy::local(address.ip()), server: "test" };
        let service = Slow { asked, go_on, knows: Arc::clone(&knows) };
        let server = Server::start(bound, config, Arc::new(service)).unwrap();
        let ask = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            // One that is turned away may be closed already.
            let _ = write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream
        };
        let taken = || {
            let stream = ask();
            is_asked.recv_timeout(LIMIT).unwrap();
            stream
        };
        let mut held: Vec<TcpStream> = (0..4).map(|_| taken()).collect();
        let refused = answer(ask());
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("too_many_connections"), "{refused}");
        knows.store(true, Ordering::SeqCst);
        held.extend((0..2).map(|_| taken()));
        let refused = answer(ask());
        assert!(refused.starts_with("HTTP/1.1 503"), "the reserve is used up: {refused}");
        drop(let_go);
        for stream in held {
            assert!(answer(stream).starts_with("HTTP/1.1 418"), "who was let in is answered");
        }
        server.stop(LIMIT);
    }
}
