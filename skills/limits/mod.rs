//! How often a client may ask: an exact sliding window per client.
//!
//! Where several instances share the limit, each counts in memory and tells the others sums: of all clients
//! every second, of one client when a tenth of the limit has passed here untold.
//!
//! **Invariant:** in any window of 60 s at most `limit` requests of one client pass, files of an index that
//! it has fetched aside; where several instances share it, at most a tenth of it more for each of them.
//! Memory is bounded.

pub mod bulk;
pub mod client;

use bulk::Bulk;
use client::Client;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use svc_sys::threads::lock;

/// Length of the window.
pub const WINDOW: Duration = Duration::from_secs(60);
const WINDOW_MS: u32 = 60_000;
/// Requests per window unless configured.
pub const PUBLIC_RPM: u32 = 60;
/// Clients remembered; further ones share one bucket until others are forgotten.
pub const CLIENTS: usize = 100_000;
/// An instance tells what has passed at the latest when it is this part of the limit.
const UNTOLD_PART: u32 = 10;
/// A client whom all instances together refuse is not asked for anew sooner than this, so that a flood stays
/// away from the database.
const CLOSED_AT_LEAST_MS: u32 = 250;
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

/// What the limiter says, and whether the other instances are to be asked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// As far as it is known here.
    pub verdict: Verdict,
    /// Whether it is time to tell the others what has passed here. A refusal is then provisional: the request
    /// was not counted and is to be asked about again.
    pub share: bool,
}

/// What the other instances have let pass of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Requests in the window.
    pub count: u32,
    /// Milliseconds until the first of them leaves it.
    pub reset_ms: u32,
}

/// Times of the requests in the window, oldest first. Milliseconds since the start of the service, wrapping:
/// two times here are never more than minutes apart.
#[derive(Debug, Default)]
struct Window {
    passed: VecDeque<u32>,
    /// As many of the last ones the other instances do not know.
    untold: u32,
    /// What passed at the other instances, as they last told.
    elsewhere: u32,
    /// Until then all instances together have let the client use the window up.
    closed_until: Option<u32>,
    bulk: Bulk,
}

impl Window {
    fn ask(&mut self, now: u32, limit: u32, shared: bool) -> Asked {
        self.forget(now);
        let own = self.count();
        if let Some(until) = self.closed_until {
            let verdict = Verdict { passes: false, remaining: 0, reset_ms: until.wrapping_sub(now) };
            return Asked { verdict, share: false };
        }
        let passes = own.saturating_add(self.elsewhere) < limit;
        if passes {
            self.passed.push_back(now);
            self.untold += u32::from(shared);
        }
        let used = self.count().saturating_add(self.elsewhere);
        let verdict =
            Verdict { passes, remaining: limit.saturating_sub(used), reset_ms: self.own_reset(now) };
        // Not at each request beyond it, where they cannot be told.
        let is_due = self.untold > 0 && self.untold.is_multiple_of(untold_most(limit));
        let share = if passes { is_due } else { own < limit };
        Asked { verdict, share: shared && share }
    }

    fn told(&mut self, now: u32, limit: u32, elsewhere: Elsewhere) {
        self.forget(now);
        self.elsewhere = elsewhere.count;
        if elsewhere.count > 0 && self.count().saturating_add(elsewhere.count) >= limit {
            let reset_ms = elsewhere.reset_ms.min(self.own_reset(now));
            self.closed_until = Some(now.wrapping_add(reset_ms.clamp(CLOSED_AT_LEAST_MS, WINDOW_MS)));
        }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.passed.len()).unwrap_or(u32::MAX)
    }

    fn own_reset(&self, now: u32) -> u32 {
        let oldest = self.passed.front().copied().unwrap_or(now);
        WINDOW_MS.saturating_sub(now.wrapping_sub(oldest))
    }

    fn forget(&mut self, now: u32) {
        while self.passed.front().is_some_and(|at| now.wrapping_sub(*at) >= WINDOW_MS) {
            self.passed.pop_front();
        }
        self.untold = self.untold.min(self.count());
        // A time ahead is at most a window away; one that lies behind wraps to far more.
        self.closed_until =
            self.closed_until.filter(|until| (1..=WINDOW_MS).contains(&until.wrapping_sub(now)));
    }

    fn is_idle(&self) -> bool {
        self.passed.is_empty() && self.closed_until.is_none()
    }
}

/// Requests that may pass untold.
fn untold_most(limit: u32) -> u32 {
    (limit / UNTOLD_PART).max(1)
}

/// All clients' windows.
pub struct Limiter {
    limit: u32,
    shared: bool,
    clients_per_shard: usize,
    shards: Vec<Mutex<HashMap<Client, Window>>>,
    overflow: Mutex<Window>,
}

impl Limiter {
    /// `limit` requests per window and client; 0 switches the limit off. `shared` says whether there may be
    /// other instances to tell.
    pub fn new(limit: u32, shared: bool) -> Self {
        Self::with_room(limit, shared, CLIENTS)
    }

    fn with_room(limit: u32, shared: bool, clients: usize) -> Self {
        Self {
            limit,
            shared,
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
    pub fn ask(&self, client: Client, now: Duration) -> Option<Asked> {
        let limit = self.limit()?;
        let now = wrapped(now);
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        if let Some(window) = shard.get_mut(&client) {
            return Some(window.ask(now, limit, self.shared));
        }
        if shard.len() < self.clients_per_shard {
            return Some(shard.entry(client).or_default().ask(now, limit, self.shared));
        }
        drop(shard);
        // Nobody's in particular, and so nothing to tell.
        Some(lock(&self.overflow).ask(now, limit, false))
    }

    /// Takes what is to be told of a client.
    pub fn take_untold(&self, client: Client) -> u32 {
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        shard.get_mut(&client).map_or(0, |window| std::mem::take(&mut window.untold))
    }

    /// Takes what is to be told of all clients.
    pub fn take_all_untold(&self) -> Vec<(Client, u32)> {
        let mut untold = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let waiting = shard.iter_mut().filter(|(_, window)| window.untold > 0);
            untold.extend(waiting.map(|(client, window)| (*client, std::mem::take(&mut window.untold))));
        }
        untold
    }

    /// Keeps what the other instances have told of a client.
    pub fn told(&self, client: Client, now: Duration, elsewhere: Elsewhere) {
        let Some(limit) = self.limit() else { return };
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        if let Some(window) = shard.get_mut(&client) {
            window.told(wrapped(now), limit, elsewhere);
        }
    }

    /// The others cannot be asked: what they said of a client holds no longer. What was to be told is not
    /// told later, for they may have heard it, and whom they hear of twice they refuse too early.
    pub fn stand_alone(&self, client: Client) {
        let mut shard = lock(&self.shards[client.spread() % SHARDS]);
        if let Some(window) = shard.get_mut(&client) {
            window.elsewhere = 0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(text: &str) -> Client {
        Client::of(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn limits_60_requests_in_any_60_s_exactly() {
        let limiter = Limiter::new(60, false);
        let one = client("10.0.0.1");
        for second in 0..60 {
            assert!(limiter.ask(one, Duration::from_secs(second / 2)).unwrap().verdict.passes);
        }
        let at = |ms| limiter.ask(one, Duration::from_millis(ms)).unwrap().verdict;
        let refused = at(59_999);
        assert_eq!((refused.passes, refused.remaining, refused.reset_ms), (false, 0, 1));
        assert!(limiter.ask(client("10.0.0.2"), Duration::from_secs(59)).unwrap().verdict.passes);
        assert!(at(60_000).passes && at(60_000).passes, "the two of second 0 have left");
        assert!(!at(60_000).passes, "those of second 1 have not");
        assert!(at(61_000).passes);
    }

    #[test]
    fn decisions_1_memory_is_bounded_and_newcomers_share_a_bucket() {
        let limiter = Limiter::with_room(2, false, SHARDS);
        for n in 0..1000_u32 {
            limiter.ask(Client::of(IpAddr::V4(n.into())), Duration::ZERO);
        }
        assert!(limiter.clients() <= SHARDS);
        assert!(
            !limiter.ask(client("10.9.9.9"), Duration::ZERO).unwrap().verdict.passes,
            "the bucket is used up"
        );
        limiter.sweep(WINDOW);
        assert_eq!(limiter.clients(), 0);
        assert!(limiter.ask(client("10.9.9.9"), WINDOW).unwrap().verdict.passes);
    }

    #[test]
    fn a_window_that_other_instances_used_up_is_closed_until_they_open_it() {
        let limiter = Limiter::new(20, true);
        let one = client("10.0.0.1");
        let at = |ms| limiter.ask(one, Duration::from_millis(ms)).unwrap();
        assert!(at(0).verdict.passes);
        limiter.told(one, Duration::from_millis(10), Elsewhere { count: 19, reset_ms: 500 });
        assert_eq!(at(11).verdict, Verdict { passes: false, remaining: 0, reset_ms: 499 });
        assert!(!at(12).share, "a flood stays away from the database");
        assert!(limiter.ask(client("10.0.0.2"), Duration::ZERO).unwrap().verdict.passes, "another client");
        let asked = at(510);
        assert!(!asked.verdict.passes && asked.share, "then they are asked again");
        limiter.told(one, Duration::from_millis(510), Elsewhere { count: 18, reset_ms: 1 });
        let asked = at(511).verdict;
        assert_eq!((asked.passes, asked.remaining), (true, 0), "the refused ones do not count");
        limiter.told(one, Duration::from_millis(511), Elsewhere { count: 18, reset_ms: 0 });
        let refused = at(512);
        assert_eq!((refused.verdict.passes, refused.verdict.reset_ms), (false, 249), "not sooner than that");
        limiter.sweep(WINDOW * 2);
        assert_eq!(limiter.clients(), 0);
    }

    #[test]
    fn sums_are_told_and_not_requests() {
        let limiter = Limiter::new(60, true);
        let one = client("10.0.0.1");
        let mut told = Vec::new();
        for n in 0..60_u64 {
            let asked = limiter.ask(one, Duration::from_millis(n)).unwrap();
            assert!(asked.verdict.passes, "{n}");
            if asked.share {
                told.push(limiter.take_untold(one));
                limiter.told(one, Duration::from_millis(n), Elsewhere::default());
            }
        }
        assert_eq!(told, [6; 10]);
        let refused = limiter.ask(one, Duration::from_millis(60)).unwrap();
        assert!(!refused.verdict.passes && !refused.share, "what passed here alone needs nobody's word");
        let two = client("10.0.0.2");
        for _ in 0..3 {
            limiter.ask(two, Duration::ZERO);
        }
        assert_eq!(limiter.take_all_untold(), [(two, 3)]);
        assert_eq!(limiter.take_all_untold(), [], "and once");
        limiter.ask(two, Duration::ZERO);
        limiter.ask(two, WINDOW + Duration::from_secs(1));
        assert_eq!(limiter.take_all_untold(), [(two, 1)], "the other has left the window");
        limiter.told(two, WINDOW * 2, Elsewhere { count: 59, reset_ms: 1 });
        limiter.stand_alone(two);
        assert_eq!(limiter.ask(two, WINDOW * 3).unwrap().verdict.remaining, 59);
        let alone = Limiter::new(60, false);
        assert!((0..60).all(|_| !alone.ask(one, Duration::ZERO).unwrap().share), "nobody to tell");
    }

    #[test]
    fn several_instances_exceed_the_limit_by_a_tenth_each_at_most() {
        const INSTANCES: usize = 4;
        let mut most = 0;
        for seed in 0..200_u64 {
            let limiters: Vec<Limiter> = (0..INSTANCES).map(|_| Limiter::new(60, true)).collect();
            let (one, mut sums) = (client("10.0.0.1"), [0_u32; INSTANCES]);
            let (mut passed, mut random) = (0, seed);
            for n in 0..1000 {
                // Knuth's generator; its high bits are the good ones.
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = usize::try_from(random >> 40).unwrap() % INSTANCES;
                let (limiter, now) = (&limiters[at], Duration::from_millis(n));
                let mut asked = limiter.ask(one, now).unwrap();
                if asked.share {
                    sums[at] += limiter.take_untold(one);
                    let count = sums.iter().sum::<u32>() - sums[at];
                    limiter.told(one, now, Elsewhere { count, reset_ms: 59_000 });
                    if !asked.verdict.passes {
                        asked = limiter.ask(one, now).unwrap();
                    }
                }
                passed += usize::from(asked.verdict.passes);
            }
            assert!(passed >= 60, "{passed} with seed {seed}");
            most = most.max(passed);
        }
        assert!(most <= 60 + 6 * INSTANCES, "{most}");
    }

    #[test]
    fn a_window_works_where_the_clock_wraps() {
        let limiter = Limiter::new(1, false);
        let wrap = Duration::from_millis(u64::from(u32::MAX));
        assert!(limiter.ask(client("10.0.0.1"), wrap).unwrap().verdict.passes);
        assert!(!limiter.ask(client("10.0.0.1"), wrap + WINDOW / 2).unwrap().verdict.passes);
        assert!(limiter.ask(client("10.0.0.1"), wrap + WINDOW).unwrap().verdict.passes);
    }
}
