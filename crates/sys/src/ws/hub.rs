//! The hub thread: numbers, frames and distributes.

use super::pace::{self, Patience};
use super::queue::{Frames, Full, Queue};
use super::ring::{Entry, Ring};
use super::{MAX_CLIENTS, close_frame, ping_frame, text_frame};
use crate::clock;
use crate::threads::Thread;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use svc_base::packed::Packed;

/// Messages on their way to the hub. Output is bounded by credits and the rest by callers, so this is not
/// reached in practice; at it a message is dropped, and every client is told to resync. Senders that look
/// at once may exceed it by their number. A bounded channel would hold the room of all of them from the
/// start: over a megabyte.
const INBOX: usize = 16_384;
/// Every client is pinged this often.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// A whole `state` of so many bytes keeps the next one back for a second: with hundreds of records a client
/// that takes no `state:delta` would get megabytes a second otherwise.
const STATE_BYTES_PER_SECOND: u64 = 1 << 20;

type Encode = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// What the hub takes.
pub enum HubMessage {
    /// A message: its type, and its JSON object without the closing brace.
    Publish(&'static str, Arc<[u8]>),
    /// A message for these clients alone, whatever types they filter: its JSON object without the closing
    /// brace. It is not kept for replay.
    To(Vec<u64>, Arc<[u8]>),
    /// Output of a run.
    Output {
        /// `agent:output` messages, in order: JSON objects without their closing brace.
        frames: Packed,
        /// Dropped when the hub has taken the frames.
        credit: Box<dyn Send>,
    },
    /// The registry has changed. Each form is encoded only if a client wants it.
    State {
        /// The whole registry.
        full: Encode,
        delta: Encode,
    },
    /// At the end, write what clients may have missed there, for the next daemon.
    KeepIn(PathBuf),
    Join(Client),
    /// A client is gone.
    Leave(u64),
    Stop,
}

impl HubMessage {
    /// A message of this type.
    pub fn publish(kind: &'static str, body: Arc<[u8]>) -> Self {
        Self::Publish(kind, body)
    }
}

/// A client, as the hub sees it.
pub struct Client {
    /// Unique.
    pub id: u64,
    /// What waits for it.
    pub queue: Arc<Queue>,
    /// Message types it wants; empty wants all.
    pub types: Vec<String>,
    /// The last message it has seen, if it says so.
    pub since: Option<u64>,
    /// Whether it takes `state:delta` instead of repeated `state`.
    pub delta: bool,
}

impl Client {
    fn wants(&self, kind: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|wanted| wanted == kind)
    }
}

/// Counters of the hub.
#[derive(Debug, Default)]
pub struct HubStats {
    pub clients: AtomicUsize,
    pub messages: AtomicU64,
    /// Clients cut off because they did not keep up.
    pub slow_closed: AtomicU64,
}

/// The door to the hub, for any thread.
#[derive(Clone)]
pub struct HubHandle {
    sender: Sender<HubMessage>,
    pub stats: Arc<HubStats>,
    next_id: Arc<AtomicU64>,
    /// Set when a message had to be dropped.
    lost: Arc<AtomicBool>,
    /// Set when the hub ends: from then on it waits for nobody.
    stopping: Arc<AtomicBool>,
}

impl HubHandle {
    /// Hands a message over. Never blocks.
    pub fn send(&self, message: HubMessage) {
        if self.stopping.load(Ordering::Relaxed) {
            return;
        }
        if self.sender.len() >= INBOX || self.sender.send(message).is_err() {
            log::error!("the WebSocket hub does not keep up: a message was dropped");
            self.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Takes a place for a client; `None` when all are taken.
    pub fn reserve(&self) -> Option<u64> {
        let taken = self.stats.clients.fetch_add(1, Ordering::Relaxed);
        if taken >= MAX_CLIENTS {
            self.stats.clients.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives the place back.
    pub fn release(&self, id: u64) {
        self.stats.clients.fetch_sub(1, Ordering::Relaxed);
        self.send(HubMessage::Leave(id));
    }

    /// Name, help, kind and value of each counter.
    pub fn counters(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let stats = &self.stats;
        vec![
            (
                "websocket_clients",
                "WebSocket clients now",
                "gauge",
                stats.clients.load(Ordering::Relaxed) as u64,
            ),
            (
                "websocket_messages_total",
                "Messages pushed",
                "counter",
                stats.messages.load(Ordering::Relaxed),
            ),
            (
                "websocket_slow_closed_total",
                "Clients cut off because they did not keep up",
                "counter",
                stats.slow_closed.load(Ordering::Relaxed),
            ),
        ]
    }
}

/// The hub. Dropping it closes every client with 1001.
pub struct Hub {
    handle: HubHandle,
    _thread: Thread,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.handle.stopping.store(true, Ordering::Relaxed);
        let _ = self.handle.sender.send(HubMessage::Stop);
    }
}

impl Hub {
    /// Starts the thread. The first message gets `seq + 1`, or goes on where an earlier daemon has left its
    /// messages in the file `kept`; `snapshot` encodes the whole registry as a `state` message without its
    /// closing brace.
    pub fn start(
        seq: u64,
        kept: Option<&Path>,
        snapshot: impl Fn() -> Vec<u8> + Send + 'static,
    ) -> io::Result<Self> {
        let (seq, ring) = kept.and_then(Ring::take_over).unwrap_or_else(|| (seq, Ring::new(seq)));
        let (sender, inbox) = unbounded();
        let stats = Arc::new(HubStats::default());
        let lost = Arc::new(AtomicBool::new(false));
        let stopping = Arc::new(AtomicBool::new(false));
        let handle = HubHandle {
            sender,
            stats: Arc::clone(&stats),
            next_id: Arc::default(),
            lost: Arc::clone(&lost),
            stopping: Arc::clone(&stopping),
        };
        let mut body = Body {
            inbox,
            stats,
            seq,
            ring,
            kept_in: None,
            clients: BTreeMap::new(),
            snapshot: Box::new(snapshot),
            lost,
            stopping,
            held: None,
            next_full: Instant::now(),
        };
        let thread = Thread::spawn("hub", move || body.run())?;
        Ok(Self { handle, _thread: thread })
    }

    /// The door to it.
    pub fn handle(&self) -> HubHandle {
        self.handle.clone()
    }

    /// Hands a message over. Never blocks.
    pub fn send(&self, message: HubMessage) {
        self.handle.send(message);
    }
}

struct Member {
    client: Client,
    patience: Patience,
}

struct Body {
    inbox: Receiver<HubMessage>,
    stats: Arc<HubStats>,
    seq: u64,
    ring: Ring,
    kept_in: Option<PathBuf>,
    clients: BTreeMap<u64, Member>,
    snapshot: Box<dyn Fn() -> Vec<u8> + Send>,
    lost: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
    /// The latest whole registry, when it is too soon to send it.
    held: Option<Encode>,
    /// Not before this is the next whole registry sent.
    next_full: Instant,
}

/// Messages numbered and framed.
struct Numbered {
    first: u64,
    starts: Vec<usize>,
    frames: Frames,
}

impl Body {
    fn run(&mut self) {
        // With nobody to be pinged it sleeps until something is told.
        let mut next_ping: Option<Instant> = None;
        loop {
            let next_full = self.held.as_ref().map(|_| self.next_full);
            let message = match next_ping.into_iter().chain(next_full).min() {
                Some(deadline) => self.inbox.recv_deadline(deadline),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(HubMessage::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if next_ping.take_if(|at| Instant::now() >= *at).is_some() {
                let ping = Frames { bytes: Arc::new(ping_frame()), messages: 1 };
                self.distribute(&ping, |_| true);
            }
            if self.clients.is_empty() {
                next_ping = None;
            } else {
                next_ping.get_or_insert_with(|| Instant::now() + PING_INTERVAL);
            }
            if let Some(full) = self.held.take_if(|_| Instant::now() >= self.next_full) {
                self.seq += 1;
                self.stats.messages.fetch_add(1, Ordering::Relaxed);
                self.whole_state(full);
            }
        }
        if let Some(path) = &self.kept_in
            && let Err(error) = self.ring.save(self.seq, path)
        {
            log::warn!("clients that come back get no messages that they have missed: {error}");
        }
        for member in self.clients.values() {
            member.client.queue.close(close_frame(1001, "the daemon is stopping"), false);
        }
    }

    fn handle(&mut self, message: HubMessage) {
        // Before the next message is numbered, so that clients learn of the gap in its place.
        if self.lost.swap(false, Ordering::Relaxed) {
            self.resync();
        }
        match message {
            HubMessage::Publish(kind, body) => self.publish(kind, std::iter::once(&*body), body.len()),
            HubMessage::To(clients, body) => {
                let Numbered { frames, .. } = self.number(std::iter::once(&*body), body.len());
                self.distribute(&frames, |client| clients.contains(&client.id));
            }
            HubMessage::Output { frames, credit } => {
                self.publish("agent:output", frames.iter(), frames.bytes());
                // Only now may the run send more.
                drop(credit);
                self.pace();
            }
            HubMessage::State { full, delta } => self.state(full, delta),
            HubMessage::KeepIn(path) => self.kept_in = Some(path),
            HubMessage::Join(client) => self.join(client),
            HubMessage::Leave(id) => {
                self.clients.remove(&id);
            }
            HubMessage::Stop => {}
        }
    }

    /// Something was dropped on its way here: clients are told, and get the whole registry.
    fn resync(&mut self) {
        self.seq += 1;
        let ts = clock::now().to_string();
        // Both carry one number: the registry is part of the news that something is missing.
        for body in [br#"{"type":"resync""#.to_vec(), (self.snapshot)()] {
            self.distribute(&one(&body, self.seq, &ts), |_| true);
        }
        // Nobody can be given what is missing.
        self.ring = Ring::new(self.seq);
    }

    fn publish<'a>(
        &mut self,
        kind: &'static str,
        bodies: impl ExactSizeIterator<Item = &'a [u8]>,
        length: usize,
    ) {
        if bodies.len() == 0 {
            return;
        }
        let Numbered { first, starts, frames } = self.number(bodies, length);
        self.distribute(&frames, |client| client.wants(kind));
        self.ring.push(Entry { kind: kind.into(), first, starts, frames });
    }

    /// Gives messages of so many bytes together their numbers and frames them: the one copy that is made of
    /// them, into room that fits.
    fn number<'a>(&mut self, bodies: impl ExactSizeIterator<Item = &'a [u8]>, length: usize) -> Numbered {
        let (first, messages) = (self.seq + 1, bodies.len());
        let ts = clock::now().to_string();
        let mut bytes = Vec::with_capacity(length + messages * FRAME_BYTES);
        let mut starts = Vec::with_capacity(messages);
        for body in bodies {
            self.seq += 1;
            starts.push(bytes.len());
            finish(body, self.seq, &ts, &mut bytes);
        }
        self.stats.messages.fetch_add(messages as u64, Ordering::Relaxed);
        Numbered { first, starts, frames: Frames { bytes: Arc::new(bytes), messages } }
    }

    /// `state` and `state:delta` share one number, unless the whole registry is large and was sent just now:
    /// then it comes later, as it is by then. They are not kept for replay: whoever comes back gets the whole
    /// registry anyway.
    fn state(&mut self, full: Encode, delta: Encode) {
        self.seq += 1;
        self.stats.messages.fetch_add(1, Ordering::Relaxed);
        self.send_registry(delta, |client| {
            client.delta && (client.wants("state:delta") || client.wants("state"))
        });
        if Instant::now() < self.next_full {
            self.held = Some(full);
        } else {
            self.held = None;
            self.whole_state(full);
        }
    }

    fn whole_state(&mut self, full: Encode) {
        let length = self.send_registry(full, |client| !client.delta && client.wants("state"));
        let micros = (length as u64).saturating_mul(1_000_000) / STATE_BYTES_PER_SECOND;
        self.next_full = Instant::now() + Duration::from_micros(micros);
    }

    /// Encodes and sends one form of the registry, if somebody wants it; its length in bytes.
    fn send_registry(&mut self, encode: Encode, wanted: impl Fn(&Client) -> bool) -> usize {
        // Encoding hundreds of records costs milliseconds: not for nobody.
        if !self.clients.values().any(|member| wanted(&member.client)) {
            return 0;
        }
        let frames = one(&encode(), self.seq, &clock::now().to_string());
        self.distribute(&frames, wanted);
        frames.bytes.len()
    }

    /// What was missed, then the whole registry.
    fn join(&mut self, client: Client) {
        let ts = clock::now().to_string();
        let mut first = Vec::new();
        if let Some(since) = client.since {
            match self.ring.after(since).filter(|_| since <= self.seq) {
                Some(missed) => first.extend(missed.filter(|(kind, _)| client.wants(kind)).map(|(_, f)| f)),
                None => first.push(one(br#"{"type":"resync""#, self.seq, &ts)),
            }
        }
        first.push(one(&(self.snapshot)(), self.seq, &ts));
        // Listed first: all of this is one step of one thread, so that no message comes in between.
        let queue = Arc::clone(&client.queue);
        self.clients.insert(client.id, Member { client, patience: Patience::default() });
        for frames in first {
            if queue.push(frames).is_err() {
                // More was missed than a queue holds.
                queue.close(close_frame(1013, "too much was missed; connect without since"), true);
            }
        }
    }

    fn distribute(&mut self, frames: &Frames, wants: impl Fn(&Client) -> bool) {
        // A full queue closes this client alone; to wait for it would make everybody as slow.
        let mut slow = Vec::new();
        for (id, member) in &self.clients {
            if wants(&member.client) && member.client.queue.push(frames.clone()) == Err(Full) {
                slow.push(*id);
            }
        }
        for id in slow {
            if let Some(member) = self.clients.remove(&id) {
                self.stats.slow_closed.fetch_add(1, Ordering::Relaxed);
                member.client.queue.close(close_frame(1013, "you do not keep up with the messages"), true);
            }
        }
    }

    /// Waits for clients that are behind but read.
    fn pace(&mut self) {
        let members = self.clients.values_mut().map(|member| (&*member.client.queue, &mut member.patience));
        pace::wait(members, pace::WINDOW, &self.stopping);
    }
}

/// What a message takes beyond its body at most: a frame's head, its number and its time.
const FRAME_BYTES: usize = 80;

/// Completes an open object with `seq` and `ts`, and adds it as a frame.
fn finish(body: &[u8], seq: u64, ts: &str, out: &mut Vec<u8>) {
    let seq = seq.to_string();
    text_frame(&[body, b",\"seq\":", seq.as_bytes(), b",\"ts\":\"", ts.as_bytes(), b"\"}"], out);
}

/// One message as a frame of its own.
fn one(body: &[u8], seq: u64, ts: &str) -> Frames {
    let mut bytes = Vec::with_capacity(body.len() + FRAME_BYTES);
    finish(body, seq, ts, &mut bytes);
    Frames { bytes: Arc::new(bytes), messages: 1 }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Work;
    use super::*;

    /// What the client's writer would write, from a thread of its own.
    fn written(queue: &Arc<Queue>) -> Receiver<Vec<u8>> {
        let (sender, texts) = unbounded();
        let queue = Arc::clone(queue);
        std::thread::spawn(move || {
            while let Work::Write(bytes, messages) = queue.next() {
                queue.written(messages, bytes.len());
                sender.send(bytes).unwrap();
            }
        });
        texts
    }

    #[test]
    fn decisions_3_a_large_state_is_sent_less_often_and_never_skipped_at_the_end() {
        let hub = Hub::start(0, None, || br#"{"type":"state","n":0"#.to_vec()).unwrap();
        let queue = Arc::new(Queue::default());
        let texts = written(&queue);
        let client =
            Client { id: 1, queue: Arc::clone(&queue), types: Vec::new(), since: None, delta: false };
        hub.send(HubMessage::Join(client));
        let padding = "x".repeat(200 << 10);
        for n in 1..=20 {
            let body = format!(r#"{{"type":"state","padding":"{padding}","n":{n}"#).into_bytes();
            hub.send(HubMessage::State { full: Box::new(|| body), delta: Box::new(Vec::new) });
        }
        let (mut states, mut last) = (0, Vec::new());
        while !String::from_utf8_lossy(&last).contains(r#""n":20,"#) {
            last = texts.recv_timeout(Duration::from_secs(30)).expect("the last state comes");
            states += last.windows(16).filter(|part| part == br#"{"type":"state","#).count();
        }
        assert!(states < 10, "{states} of 20 states of 200 KiB at once");
        drop(hub);
    }
}
