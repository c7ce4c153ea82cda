//! How often a client may ask: an exact sliding window per client.
//!
//! **Invariant:** in any window of 60 s at most `limit` requests of one client pass, files of an index that
//! it has fetched aside; memory is bounded.

pub mod bulk;
pub mod client;

use bulk::Bulk;
use client::Client;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Length of the window.
pub const WINDOW: Duration = Duration::from_secs(60);
const WINDOW_MS: u32 = 60_000;
/// Requests per window unless configured.
pub const PUBLIC_RPM: u32 = 60;
/// Clients remembered; further ones share one bucket until others are forgotten.
pub const CLIENTS: usize = 100_000;
/// Clients are spread over as many maps, each with a lock of its own.
const SHARDS: usize = 16;

/// What the limiter says of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may pass.
    pub passes: bool,
    /// Requests left in the window.
    pub remaining: u32,
    /// Milliseconds until the oldest request leaves the window.
    pub reset_ms: u32,
}

/// Times of the requests in the window, oldest first. Milliseconds since the start of the service, wrapping:
/// two times here are never more than minutes apart.
#[derive(Debug, Default)]
struct Window {
    passed: VecDeque<u32>,
    /// Until then other instances have let the client use the window up.
    closed_until: Option<u32>,
    bulk: Bulk,
}

impl Window {
    fn ask(&mut self, now: u32, limit: u32) -> Verdict {
        self.forget(now);
        if let Some(until) = self.closed_until {
            return Verdict { passes: false, remaining: 0, reset_ms: until.wrapping_sub(now) };
        }
        let passes = self.passed.len() < limit as usize;
        if passes {
            self.passed.push_back(now);
        }
        let used = u32::try_from(self.passed.len()).unwrap_or(limit);
        let oldest = self.passed.front().copied().unwrap_or(now);
        let reset_ms = WINDOW_MS.saturating_sub(now.wrapping_sub(oldest));
        Verdict { passes, remaining: limit.saturating_sub(used), reset_ms }
    }

    fn forget(&mut self, now: u32) {
        while self.passed.front().is_some_and(|at| now.wrapping_sub(*at) >= WINDOW_MS) {
            self.passed.pop_front();
        }
        // A time ahead is at most a window away; one that lies behind wraps to far more.
        self.closed_until =
            self.closed_until.filter(|until| (1..=WINDOW_MS).contains(&until.wrapping_sub(now)));
    }

    fn is_idle(&self) -> bool {
        self.passed.is_empty() && self.closed_until.is_none()
    }
}

/// All clients' windows.
pub struct Limiter {
    limit: u32,
    clients_per_shard: usize,
    shards: Vec<Mutex<HashMap<Client, Window>>>,
    overflow: Mutex<Window>,
}

impl Limiter {
    /// `limit` requests per window and client; 0 switches the limit off.
    pub fn new(limit: u32) -> Self {
        Self::with_room(limit, CLIENTS)
    }

    fn with_room(limit: u32, clients: usize) -> Self {
        Self {
            limit,
            clients_per_shard: clients / SHARDS,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            overflow: Mutex::default(),
        }
    }

    /// The configured number; `None` when switched off.
    pub fn limit(&self) -> Option<u32> {
        (self.limit > 0).then_some(self.limit)
    }

    /// Counts one request of a client, `now` after the start of the service. `None` without a limit.
    pub fn ask(&self, client: Client, now: Duration) -> Option<Verdict> {
        let limit = self.limit()?;
        let now = wrapped(now);
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        if let Some(window) = shard.get_mut(&client) {
            return Some(window.ask(now, limit));
        }
        if shard.len() < self.clients_per_shard {
            return Some(shard.entry(client).or_default().ask(now, limit));
        }
        drop(shard);
        Some(lock(&self.overflow).ask(now, limit))
    }

    /// The last request passed here, but not with all instances together: takes it back, and lets no other
    /// one of the client pass for as long as they said, so that a flood stays away from the database.
    pub fn close(&self, client: Client, now: Duration, reset_ms: u32) {
        let now = wrapped(now);
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        if let Some(window) = shard.get_mut(&client) {
            window.passed.pop_back();
            window.closed_until = Some(now.wrapping_add(reset_ms.min(WINDOW_MS)));
        } else {
            drop(shard);
            lock(&self.overflow).passed.pop_back();
        }
    }

    /// Opens the files of an index to a client whose request for it was counted. Clients in the shared bucket
    /// get none.
    pub fn grant(&self, client: Client, now: Duration, files: u32) {
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        if let Some(window) = shard.get_mut(&client) {
            window.bulk.grant(wrapped(now), files);
        }
    }

    /// Takes one file of an index; whether it was open to the client, so that it does not count.
    pub fn takes_file(&self, client: Client, now: Duration) -> bool {
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        shard.get_mut(&client).is_some_and(|window| window.bulk.take(wrapped(now)))
    }

    /// Forgets clients without a request in the window. To be called about once per window.
    pub fn sweep(&self, now: Duration) {
        let now = wrapped(now);
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.retain(|_, window| {
                window.forget(now);
                !window.is_idle()
            });
            shard.shrink_to_fit();
        }
        lock(&self.overflow).forget(now);
    }

    /// Clients remembered now.
    pub fn clients(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }
}

fn wrapped(since_start: Duration) -> u32 {
    // The low 32 bits are wanted, see `Window`.
    #[allow(clippy::cast_possible_truncation, reason = "times wrap after 49 days, on purpose")]
    let wrapped = since_start.as_millis() as u32;
    wrapped
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(text: &str) -> Client {
        Client::of(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn limits_60_requests_in_any_60_s_exactly() {
        let limiter = Limiter::new(60);
        let one = client("10.0.0.1");
        for second in 0..60 {
            assert!(limiter.ask(one, Duration::from_secs(second / 2)).unwrap().passes);
        }
        let at = |ms| limiter.ask(one, Duration::from_millis(ms)).unwrap();
        let refused = at(59_999);
        assert_eq!((refused.passes, refused.remaining, refused.reset_ms), (false, 0, 1));
        assert!(limiter.ask(client("10.0.0.2"), Duration::from_secs(59)).unwrap().passes);
        assert!(at(60_000).passes && at(60_000).passes, "the two of second 0 have left");
        assert!(!at(60_000).passes, "those of second 1 have not");
        assert!(at(61_000).passes);
    }

    #[test]
    fn decisions_1_memory_is_bounded_and_newcomers_share_a_bucket() {
        let limiter = Limiter::with_room(2, SHARDS);
        for n in 0..1000_u32 {
            limiter.ask(Client::of(IpAddr::V4(n.into())), Duration::ZERO);
        }
        assert!(limiter.clients() <= SHARDS);
        assert!(!limiter.ask(client("10.9.9.9"), Duration::ZERO).unwrap().passes, "the bucket is used up");
        limiter.sweep(WINDOW);
        assert_eq!(limiter.clients(), 0);
        assert!(limiter.ask(client("10.9.9.9"), WINDOW).unwrap().passes);
    }

    #[test]
    fn a_window_that_other_instances_used_up_is_closed_until_they_open_it() {
        let limiter = Limiter::new(2);
        let one = client("10.0.0.1");
        let at = |ms| limiter.ask(one, Duration::from_millis(ms)).unwrap();
        assert!(at(0).passes);
        assert!(at(10).passes);
        limiter.close(one, Duration::from_millis(10), 500);
        assert_eq!(at(11), Verdict { passes: false, remaining: 0, reset_ms: 499 });
        assert!(limiter.ask(client("10.0.0.2"), Duration::ZERO).unwrap().passes, "another client");
        assert!(at(510).passes, "the refused one does not count");
        assert!(!at(511).passes);
        limiter.close(one, Duration::from_millis(511), 0);
        limiter.sweep(WINDOW * 2);
        assert_eq!(limiter.clients(), 0);
    }

    #[test]
    fn a_window_works_where_the_clock_wraps() {
        let limiter = Limiter::new(1);
        let wrap = Duration::from_millis(u64::from(u32::MAX));
        assert!(limiter.ask(client("10.0.0.1"), wrap).unwrap().passes);
        assert!(!limiter.ask(client("10.0.0.1"), wrap + WINDOW / 2).unwrap().passes);
        assert!(limiter.ask(client("10.0.0.1"), wrap + WINDOW).unwrap().passes);
    }
}
