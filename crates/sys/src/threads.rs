//! Named threads that are joined when their handle is dropped.

use crossbeam_channel::{Sender, bounded};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stack of a thread that does ordinary work.
const STACK_BYTES: usize = 512 << 10;

/// What a lock guards, also behind a thread that has panicked with it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running thread. Dropping the handle waits for its end, so whatever makes it end must be dropped or told
/// first: senders stand before handles in every struct.
#[derive(Debug)]
pub struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread with the usual stack.
    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Self::with_stack(name, STACK_BYTES, body)
    }

    /// Starts a thread with a stack of its own size.
    pub fn with_stack(
        name: &str,
        stack_bytes: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let handle = Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(body)?;
        Ok(Self { handle: Some(handle) })
    }
}

impl Thread {
    /// Whether its body has ended, so that a drop does not wait.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let name = handle.thread().name().unwrap_or("a thread").to_owned();
        if handle.join().is_err() {
            log::error!("thread {name} had panicked");
        }
    }
}

/// A thread that does one order after the other. Dropping it waits until those that were given are done.
#[derive(Debug)]
pub struct Worker<T> {
    orders: Sender<T>,
    _thread: Thread,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts the thread; `waiting` orders at most may wait.
    ///
    /// Errors: no thread.
    pub fn start(name: &str, waiting: usize, mut work: impl FnMut(T) + Send + 'static) -> io::Result<Self> {
        let (orders, incoming) = bounded::<T>(waiting);
        let thread = Thread::spawn(name, move || incoming.into_iter().for_each(&mut work))?;
        Ok(Self { orders, _thread: thread })
    }

    /// Gives an order and never blocks; `false` when the thread is behind or gone.
    pub fn order(&self, order: T) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// A thread of [`Lines`].
pub struct Line<T> {
    orders: Option<Sender<T>>,
    cut: Box<dyn Fn() + Send>,
    // Behind what makes it end.
    thread: Thread,
}

impl<T: Send + 'static> Line<T> {
    /// Starts the thread; `waiting` orders at most may wait, and `cut` ends the one under way early.
    ///
    /// Errors: no thread.
    pub fn start(
        name: &str,
        stack_bytes: usize,
        waiting: usize,
        cut: impl Fn() + Send + 'static,
        mut work: impl FnMut(T) + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, incoming) = bounded::<T>(waiting);
        let thread = Thread::with_stack(name, stack_bytes, move || incoming.into_iter().for_each(&mut work))?;
        Ok(Self { orders: Some(orders), cut: Box::new(cut), thread })
    }
}

impl<T> Line<T> {
    /// Tells the thread to end, without waiting for it.
    fn end(&mut self) {
        self.orders = None;
        (self.cut)();
    }
}

impl<T> Drop for Line<T> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A thread for each key that has something to do, so that none waits for another.
pub struct Lines<K, T> {
    lines: BTreeMap<K, Line<T>>,
    /// Told to end; joined when they have, or when all are dropped.
    ending: Vec<Line<T>>,
}

impl<K, T> Default for Lines<K, T> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), ending: Vec::new() }
    }
}

impl<K: Ord, T> Lines<K, T> {
    /// Gives an order to the thread of a key, which is begun where there is none, and never waits.
    ///
    /// Errors: no thread, or too many orders wait for it.
    pub fn give(
        &mut self,
        key: K,
        order: T,
        begin: impl FnOnce(&T) -> io::Result<Line<T>>,
    ) -> Result<(), String> {
        self.ending.retain(|line| !line.thread.is_finished());
        let line = match self.lines.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                place.insert(begin(&order).map_err(|error| format!("no thread: {error}"))?)
            }
        };
        let is_given = line.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        is_given.then_some(()).ok_or_else(|| "its thread is behind".to_owned())
    }

    /// Tells the thread of a key to end, and cuts what it does, without waiting for it.
    pub fn forget(&mut self, key: &K) {
        self.ending.retain(|line| !line.thread.is_finished());
        if let Some(mut line) = self.lines.remove(key) {
            line.end();
            self.ending.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_no_other_and_one_that_is_forgotten_is_cut() {
        let (done, told) = bounded(8);
        let (cut, gate) = bounded::<()>(1);
        let hangs = |_: &u32| {
            let (gate, done) = (gate.clone(), done.clone());
            let cut = cut.clone();
            let cuts = move || {
                let _ = cut.try_send(());
            };
            Line::start("hangs", STACK_BYTES, 1, cuts, move |order| {
                let _ = gate.recv();
                done.send(order).unwrap();
            })
        };
        let mut lines = Lines::default();
        lines.give("hangs", 1_u32, hangs).unwrap();
        let given = done.clone();
        let other =
            |_: &u32| Line::start("other", STACK_BYTES, 1, || (), move |order| given.send(order).unwrap());
        lines.give("other", 2, other).unwrap();
        assert_eq!(told.recv(), Ok(2), "the other one hangs");
        // The first is under way as soon as the second may wait, and then no third may.
        let mut refused = std::iter::repeat_with(|| lines.give("hangs", 3, |_| panic!("it has a thread")));
        assert_eq!(refused.find_map(Result::err).as_deref(), Some("its thread is behind"));
        lines.forget(&"hangs");
        assert_eq!(told.recv(), Ok(1), "it is cut");
        let none = |_: &u32| Err(io::Error::other("none is left"));
        assert_eq!(lines.give("hangs", 4, none).unwrap_err(), "no thread: none is left");
    }

    #[test]
    fn a_worker_refuses_what_is_too_much_and_does_what_it_has_taken_before_it_ends() {
        let (done, told) = bounded(8);
        let (go, gate) = bounded::<()>(0);
        let worker = Worker::start("worker", 1, move |order: u32| {
            // The sender is gone at the end of the test.
            let _ = gate.recv();
            done.send(order).unwrap();
        })
        .unwrap();
        assert!(worker.order(1));
        // The first is under way as soon as the second may wait.
        while !worker.order(2) {
            std::thread::yield_now();
        }
        assert!(!worker.order(3), "one at most may wait");
        drop(go);
        drop(worker);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2]);
    }
}
