//! The thread that exports spans. Whatever its collector does, nobody waits for it.

use super::span::{Span, request};
use super::{Order, Report};
use crate::credentials::{Sealed, Vault};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::Value;
use std::cell::Cell;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use svc_base::outgoing::retry_after;
use svc_sys::clock;
use svc_sys::http::client;
use svc_sys::threads::Thread;

/// Spans that wait at most; further ones are dropped, and counted.
pub const MAX_QUEUED: usize = 2_048;
/// Spans of one request at most.
const BATCH: usize = 512;
/// After the first span, others are waited for so long.
const GATHER: Duration = Duration::from_secs(1);
/// After each failure that may pass, the same is tried again after so long; then its spans are dropped.
const RETRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// The longest time that an endpoint may ask to be left alone.
const MAX_ASKED: Duration = Duration::from_secs(5 * 60);
/// One request in all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The daemon's end waits so long for what is still to be exported.
const FLUSH: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read.
const ANSWER_BYTES: u64 = 4 << 10;
/// Characters of an error that are kept.
const MAX_ERROR_CHARS: usize = 300;
/// Bytes of a word in a head line's value from which on it may be a secret of its own.
const MIN_SECRET_BYTES: usize = 8;
/// Stack of the thread: TLS and JSON need more than a line of text.
const STACK_BYTES: usize = 1 << 20;

/// Where outcomes go.
type Tell = Arc<dyn Fn(Report) + Send + Sync>;

/// The thread, once there is something to export; it ends when this is dropped.
pub struct Exporter {
    vault: Arc<Vault>,
    tell: Tell,
    running: Option<Running>,
}

struct Running {
    orders: Option<Sender<Order>>,
    queued: Arc<AtomicUsize>,
    agent: ureq::Agent,
    /// Its other end goes with the thread's work.
    done: Receiver<()>,
    /// Its drop ends waits between tries.
    stop: Option<Sender<()>>,
    _thread: Thread,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.orders = None;
        self.stop = None;
        // Ends with the thread's work, or with the time for it.
        let _ = self.done.recv_timeout(FLUSH);
        self.agent.clone().shutdown();
    }
}

impl Exporter {
    /// Nothing runs yet; outcomes are told to `tell`.
    pub fn new(vault: Arc<Vault>, tell: impl Fn(Report) + Send + Sync + 'static) -> Self {
        Self { vault, tell: Arc::new(tell), running: None }
    }

    /// Has spans exported, and never waits.
    ///
    /// Errors: too many wait, or there is no thread; they are dropped.
    pub fn order(&mut self, order: Order) -> Result<(), Report> {
        let count = order.spans.len();
        let dropped = |error| Report { dropped: count as u64, error: Some(error), ..Report::default() };
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::start(Arc::clone(&self.vault), Arc::clone(&self.tell))
                .map_err(|error| dropped(format!("no thread: {error}")))?,
        };
        let is_given = self.running.insert(running).give(order);
        is_given.then_some(()).ok_or_else(|| {
            dropped(format!("{MAX_QUEUED} spans wait already: the endpoint is slower than the agents"))
        })
    }
}

impl Running {
    fn start(vault: Arc<Vault>, tell: Tell) -> io::Result<Self> {
        let agent: ureq::Agent = client::strict()
            .timeout_global(Some(TIMEOUT))
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let (orders, incoming) = bounded::<Order>(MAX_QUEUED);
        let (finished, done) = bounded::<()>(0);
        let (stop, stopped) = bounded::<()>(0);
        let queued = Arc::new(AtomicUsize::new(0));
        let not_before = Cell::new(Instant::now());
        let line = Line { agent: agent.clone(), vault, queued: Arc::clone(&queued), stopped, not_before };
        let thread = Thread::with_stack("telemetry", STACK_BYTES, move || {
            line.run(&incoming, &*tell);
            drop(finished);
        })?;
        Ok(Self { orders: Some(orders), queued, agent, done, stop: Some(stop), _thread: thread })
    }

    /// Whether there is room for it.
    fn give(&self, order: Order) -> bool {
        let count = order.spans.len();
        let waiting = self.queued.fetch_add(count, Ordering::AcqRel);
        let fits = waiting + count <= MAX_QUEUED;
        let is_given = fits && self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        if !is_given {
            self.queued.fetch_sub(count, Ordering::AcqRel);
        }
        is_given
    }
}

/// What goes to one place in one request.
struct Batch {
    endpoint: String,
    headers: Vec<(String, String, Sealed)>,
    project: String,
    spans: Vec<Span>,
}

impl Batch {
    fn of(order: Order) -> Self {
        let Order { endpoint, headers, project, spans } = order;
        Self { endpoint, headers, project, spans }
    }

    fn takes(&self, order: &Order) -> bool {
        let fits = self.spans.len() + order.spans.len() <= BATCH;
        fits && self.endpoint == order.endpoint && self.headers == order.headers
    }
}

/// The text without the value of a head line, whole or by its words: of `Bearer KEY` the key alone, too.
fn blotted(text: &str, value: &str) -> String {
    let words = value.split([' ', ',', '=', ';', '"']).filter(|word| word.len() >= MIN_SECRET_BYTES);
    std::iter::once(value)
        .chain(words)
        .filter(|secret| !secret.is_empty())
        .fold(text.to_owned(), |text, secret| text.replace(secret, "****"))
}

/// Why a request failed.
struct Failure {
    why: String,
    /// It may pass.
    may_pass: bool,
    /// The endpoint asks to be left alone for so long.
    after: Option<Duration>,
}

struct Line {
    agent: ureq::Agent,
    vault: Arc<Vault>,
    queued: Arc<AtomicUsize>,
    stopped: Receiver<()>,
    /// What the endpoint has asked for holds for whatever comes next.
    not_before: Cell<Instant>,
}

impl Line {
    fn run(&self, incoming: &Receiver<Order>, tell: &dyn Fn(Report)) {
        let mut kept = None;
        while let Some(first) = kept.take().or_else(|| incoming.recv().ok()) {
            let mut batch = Batch::of(first);
            let until = Instant::now() + GATHER;
            while let Ok(order) = incoming.recv_deadline(until) {
                if !batch.takes(&order) {
                    kept = Some(order);
                    break;
                }
                batch.spans.extend(order.spans);
            }
            let report = self.export(&batch);
            self.queued.fetch_sub(batch.spans.len(), Ordering::AcqRel);
            tell(report);
        }
    }

    fn export(&self, batch: &Batch) -> Report {
        let count = batch.spans.len() as u64;
        let mut waits = RETRIES.iter();
        loop {
            let left = self.not_before.get().saturating_duration_since(Instant::now());
            if !self.rests(left) {
                let error = Some("the endpoint has asked for more time than the daemon has left".to_owned());
                return Report { dropped: count, error, ..Report::default() };
            }
            let failure = match self.post(batch) {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    let error =
                        (rejected > 0).then(|| format!("the endpoint rejected {rejected} of {count} spans"));
                    return Report { exported: count - rejected, rejected, error, ..Report::default() };
                }
                Err(failure) => failure,
            };
            if let Some(after) = failure.after {
                self.not_before.set(Instant::now() + after.min(MAX_ASKED));
            }
            let error = Some(failure.why.chars().take(MAX_ERROR_CHARS).collect());
            if !failure.may_pass {
                return Report { rejected: count, error, ..Report::default() };
            }
            if !waits.next().is_some_and(|wait| self.rests(*wait)) {
                return Report { dropped: count, error, ..Report::default() };
            }
        }
    }

    /// Waits; `false` when the daemon ends meanwhile.
    fn rests(&self, wait: Duration) -> bool {
        wait.is_zero() || self.stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }

    /// Posts once; how many spans the endpoint did not want.
    fn post(&self, batch: &Batch) -> Result<u64, Failure> {
        let failed = |why: String| Failure { why, may_pass: true, after: None };
        let url = match batch.endpoint.trim_end_matches('/') {
            whole if whole.ends_with("/v1/traces") => whole.to_owned(),
            base => format!("{base}/v1/traces"),
        };
        let mut post = self.agent.post(&url).header("content-type", "application/json");
        if url.starts_with("http://") {
            // No proxy gets to see what stays on this machine.
            post = post.config().proxy(None).build();
        }
        let mut secrets = Vec::new();
        for (header, name, sealed) in &batch.headers {
            let value =
                self.vault.open(name, sealed).map_err(|why| Failure { why, may_pass: false, after: None })?;
            post = post.header(header.as_str(), value.expose());
            secrets.push(value);
        }
        // An endpoint may say back what it was told.
        let clean = |why: String| secrets.iter().fold(why, |why, secret| blotted(&why, secret.expose()));
        let body = request(&batch.project, crate::VERSION, &batch.spans).to_string();
        let mut response = post.send(body).map_err(|error| failed(clean(error.to_string())))?;
        let status = response.status().as_u16();
        let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let after = after.and_then(|said| retry_after(said, clock::now()));
        let mut said = Vec::new();
        // What cannot be read says nothing.
        let _ = response.body_mut().as_reader().take(ANSWER_BYTES).read_to_end(&mut said);
        if (200..300).contains(&status) {
            let answer: Value = serde_json::from_slice(&said).unwrap_or_default();
            let rejected = &answer["partialSuccess"]["rejectedSpans"];
            let count = rejected.as_u64().or_else(|| rejected.as_str().and_then(|text| text.parse().ok()));
            return Ok(count.unwrap_or_default());
        }
        let said = svc_base::untrusted::untrusted_line(String::from_utf8_lossy(&said).trim());
        let why = clean(format!("status {status}: {said}"));
        Err(Failure { why, may_pass: matches!(status, 429 | 502 | 503 | 504), after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::time::Time;
    use crate::telemetry::span::Place;
    use std::io::Write;
    use std::net::TcpListener;

    fn order(endpoint: &str, count: usize) -> Order {
        let place = Place { trace: [1; 16], span: [1; 8], parent: None };
        let (start, end, attributes) = (Time(1), Time(2), Vec::new());
        let span = Span { place, name: "x".into(), is_client: false, start, end, attributes, error: None };
        let (endpoint, project, spans) = (endpoint.into(), "p".into(), vec![span; count]);
        Order { endpoint, headers: Vec::new(), project, spans }
    }

    #[test]
    fn of_a_flood_no_more_waits_than_is_said_and_the_rest_is_told_as_dropped() {
        // It takes connections, and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", silent.local_addr().unwrap());
        let folder = std::env::temp_dir().join(format!("svc-telemetry-{}", std::process::id()));
        let vault = Arc::new(Vault::open_in(&folder, None).unwrap());
        let mut exporter = Exporter::new(vault, |_| ());
        let mut dropped = 0;
        for _ in 0..40 {
            if let Err(report) = exporter.order(order(&endpoint, 100)) {
                assert!(report.error.unwrap().contains("2048 spans wait"));
                dropped += report.dropped;
            }
        }
        assert_eq!(dropped, 2_000, "40 times 100, and room for 20 of them");
        let began = Instant::now();
        drop(exporter);
        assert!(began.elapsed() < FLUSH + TIMEOUT, "{:?}", began.elapsed());
    }

    #[test]
    fn an_endpoint_that_asks_for_time_is_left_alone_for_so_long() {
        let endpoint = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", endpoint.local_addr().unwrap());
        let folder = std::env::temp_dir().join(format!("svc-telemetry-asks-{}", std::process::id()));
        let vault = Arc::new(Vault::open_in(&folder, None).unwrap());
        let (told, reports) = bounded(4);
        let mut exporter = Exporter::new(vault, move |report| told.send(report).unwrap());
        exporter.order(order(&url, 3)).unwrap();
        let mut came = Vec::new();
        for answer in ["503 x\r\nRetry-After: 3\r\nContent-Length: 0", "200 x\r\nContent-Length: 2"] {
            let (mut stream, _) = endpoint.accept().unwrap();
            came.push(Instant::now());
            let mut bytes = [0; 1 << 14];
            assert!(stream.read(&mut bytes).unwrap() > 0);
            write!(stream, "HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n{{}}").unwrap();
        }
        assert!(came[1] - came[0] >= Duration::from_secs(3), "{:?}", came[1] - came[0]);
        let report = reports.recv().unwrap();
        assert_eq!((report.exported, report.dropped), (3, 0));
    }

    #[test]
    fn what_an_endpoint_says_back_of_a_head_line_is_blotted_out() {
        let value = "Bearer 0123456789abcdef";
        assert_eq!(blotted("no: Bearer 0123456789abcdef", value), "no: ****");
        assert_eq!(blotted("bad key 0123456789abcdef for Bearer", value), "bad key **** for Bearer");
        assert_eq!(blotted("key=0123456789abcdef?", "api-key=0123456789abcdef"), "key=****?");
        assert_eq!(blotted("nothing", ""), "nothing");
    }
}
