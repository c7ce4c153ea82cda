//! Waiting for clients that are behind but read, so that a burst cuts off nobody who does. All are waited for
//! together: what a client costs the others does not grow with the number of those that do the same.

use super::queue::Queue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients that are behind are waited for this long at a time, all together.
pub const WINDOW: Duration = Duration::from_secs(1);
/// A client that is behind must take this many bytes in a [`WINDOW`] to be waited for in the next one.
const WINDOW_BYTES: u64 = 32 << 10;
/// Windows in a row, for clients that read but do not catch up.
const WINDOWS: usize = 3;
/// A client that was waited for in vain so often is not waited for again, even when it catches up between.
const MAX_FAILURES: u32 = 3;
/// After this long without one, failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How patient the hub still is with one client.
#[derive(Debug, Default)]
pub struct Patience {
    failures: u32,
    failed_at: Option<Instant>,
    /// It is behind and was waited for in vain: not again before it has caught up.
    is_over: bool,
}

impl Patience {
    fn fail(&mut self) {
        self.forget_old();
        self.failures += 1;
        self.failed_at = Some(Instant::now());
        self.is_over = true;
    }

    fn caught_up(&mut self) {
        if self.is_over {
            self.forget_old();
            self.is_over = self.failures >= MAX_FAILURES;
        }
    }

    fn forget_old(&mut self) {
        if self.failed_at.is_some_and(|at| at.elapsed() >= FORGOTTEN_AFTER) {
            self.failures = 0;
        }
    }
}

struct Behind<'a> {
    queue: &'a Queue,
    patience: &'a mut Patience,
    taken: u64,
}

/// Waits until every client keeps up that reads; [`WINDOWS`] times [`WINDOW`] at most, and one window for
/// any number of clients that read nothing. Returns early once `stopping` is set.
pub fn wait<'a>(
    clients: impl Iterator<Item = (&'a Queue, &'a mut Patience)>,
    window: Duration,
    stopping: &AtomicBool,
) {
    let mut behind: Vec<Behind> = clients
        .filter_map(|(queue, patience)| {
            if queue.keeps_up() {
                patience.caught_up();
                return None;
            }
            (!patience.is_over).then(|| Behind { taken: queue.taken(), queue, patience })
        })
        .collect();
    for _ in 0..WINDOWS {
        if behind.is_empty() || stopping.load(Ordering::Relaxed) {
            return;
        }
        let deadline = Instant::now() + window;
        for client in &behind {
            client.queue.wait_until_it_keeps_up(deadline);
        }
        behind.retain_mut(|client| {
            let before = std::mem::replace(&mut client.taken, client.queue.taken());
            let reads = client.taken - before >= WINDOW_BYTES;
            let is_behind = !client.queue.keeps_up();
            if is_behind && !reads {
                client.patience.fail();
            }
            is_behind && reads
        });
    }
    for client in behind {
        client.patience.fail();
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::{Frames, MAX_MESSAGES};
    use super::*;

    const SHORT: Duration = Duration::from_millis(100);

    fn stuck() -> Queue {
        let queue = Queue::default();
        queue.push(Frames { bytes: std::sync::Arc::new(vec![0; 10]), messages: MAX_MESSAGES }).unwrap();
        queue
    }

    fn pace(clients: &mut [(Queue, Patience)]) -> Duration {
        let begun = Instant::now();
        let all = clients.iter_mut().map(|(queue, patience)| (&*queue, patience));
        wait(all, SHORT, &AtomicBool::new(false));
        begun.elapsed()
    }

    #[test]
    fn decisions_3_forty_clients_that_do_not_read_cost_one_window_once() {
        let mut clients: Vec<_> = (0..40).map(|_| (stuck(), Patience::default())).collect();
        let first = pace(&mut clients);
        assert!(first >= SHORT && first < 10 * SHORT, "one window for all: {first:?}");
        assert!(clients.iter().all(|(_, patience)| patience.is_over));
        assert!(pace(&mut clients) < SHORT, "and none any more");
    }

    #[test]
    fn a_client_that_catches_up_and_stops_again_is_soon_not_waited_for_any_more() {
        let mut clients = [(stuck(), Patience::default())];
        for _ in 0..MAX_FAILURES {
            assert!(pace(&mut clients) >= SHORT);
            clients[0].0 = Queue::default();
            pace(&mut clients);
            clients[0].0 = stuck();
        }
        assert!(pace(&mut clients) < SHORT);
    }

    #[test]
    fn nobody_is_waited_for_at_the_end() {
        let mut patience = Patience::default();
        let queue = stuck();
        let begun = Instant::now();
        wait([(&queue, &mut patience)].into_iter(), 600 * SHORT, &AtomicBool::new(true));
        assert!(begun.elapsed() < 600 * SHORT);
    }
}
