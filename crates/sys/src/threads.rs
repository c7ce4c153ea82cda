//! Named threads that are joined when their handle is dropped.

use crossbeam_channel::{Sender, bounded};
use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack of a thread that does ordinary work.
const STACK_BYTES: usize = 512 << 10;

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

#[cfg(test)]
mod tests {
    use super::*;

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
