//! What a run is told from outside: a bounded queue that never makes anybody wait, and the two bells that
//! wake the run's thread wherever it waits.

use super::millis;
use crate::providers::Ruling;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use svc_keeper::client::{Waker, Writer};
use svc_keeper::protocol::ToKeeper;

/// Bytes of orders that may wait.
const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Orders that may wait.
const QUEUE_ORDERS_MAX: usize = 4096;

/// An order to the thread of a run.
#[derive(Debug)]
pub(super) enum Order {
    /// A message for the agent, to be put into the protocol's words.
    Say { message_id: u64, text: String },
    /// A person's answer to what its program asked.
    Decide { question: String, ruling: Ruling },
    /// Leave the turn.
    Interrupt,
    /// Let the program end.
    Finish,
    /// What holds for it from now on, see [`ToKeeper::Settings`].
    Settings(Settings),
    /// What the state knew at this checkpoint is on disk.
    Settled(u64),
}

/// What holds for a run, see [`ToKeeper::Settings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long it may go on without a daemon.
    pub orphan: Duration,
    /// Bytes of memory above which it is ended; 0 for no ceiling.
    pub ceiling: u64,
    /// Whether it is to stand still.
    pub frozen: bool,
}

impl Order {
    fn bytes(&self) -> usize {
        match self {
            Self::Say { text, .. } => text.len(),
            Self::Decide { question, ruling } => question.len() + ruling.reason.len(),
            Self::Interrupt | Self::Finish | Self::Settings(_) | Self::Settled(_) => 0,
        }
    }
}

/// The orders of one run.
pub(super) struct Orders {
    queue: Mutex<Queue>,
    is_stopping: AtomicBool,
    is_leaving: AtomicBool,
    bell: (Sender<()>, Receiver<()>),
}

#[derive(Default)]
struct Queue {
    orders: VecDeque<Order>,
    bytes: usize,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Default for Orders {
    fn default() -> Self {
        Self {
            queue: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            bell: bounded(1),
        }
    }
}

impl Orders {
    /// `false` when the run is over, or too much waits already.
    pub fn push(&self, order: Order) -> bool {
        let mut queue = self.lock();
        let bytes = queue.bytes + order.bytes();
        if queue.is_closed || queue.orders.len() >= QUEUE_ORDERS_MAX || bytes > QUEUE_BYTES_MAX {
            return false;
        }
        queue.bytes = bytes;
        queue.orders.push_back(order);
        self.ring(&queue);
        true
    }

    /// The next one.
    pub fn pop(&self) -> Option<Order> {
        let mut queue = self.lock();
        let order = queue.orders.pop_front()?;
        queue.bytes -= order.bytes();
        Some(order)
    }

    /// Orders the end of everything; never blocks.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.ring(&self.lock());
    }

    /// Whether the end was ordered.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Orders the thread to leave the run to the next daemon.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
        self.ring(&self.lock());
    }

    /// Whether the run is to be left to the next daemon.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Nothing more is taken; what still waits is given back.
    pub fn close(&self) -> VecDeque<Order> {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.waker = None;
        queue.bytes = 0;
        std::mem::take(&mut queue.orders)
    }

    /// Rings this one, too, from now on.
    pub fn wake_by(&self, waker: Waker) {
        let mut queue = self.lock();
        // For what came before.
        waker.wake();
        queue.waker = Some(waker);
    }

    /// Rings for every order, for a thread that waits on a channel.
    pub fn bell(&self) -> &Receiver<()> {
        &self.bell.1
    }

    fn ring(&self, queue: &Queue) {
        // A bell that rings already is enough.
        let _ = self.bell.0.try_send(());
        if let Some(waker) = &queue.waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the keeper to end the run, once, when that was ordered.
pub(super) fn tell_stop(orders: &Orders, writer: Option<&Arc<Writer>>, is_told: &mut bool, grace: Duration) {
    if *is_told || !orders.is_stopping() {
        return;
    }
    *is_told = true;
    let grace_ms = millis(grace);
    if let Some(writer) = writer
        && let Err(error) = writer.send(&ToKeeper::Stop { grace_ms })
    {
        // Its reader sees the same, and ends what is left.
        log::warn!("a keeper does not take the order to stop: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_orders_that_nobody_takes_are_refused_and_none_after_the_end() {
        let orders = Orders::default();
        let say = |bytes: usize| Order::Say { message_id: 1, text: "x".repeat(bytes) };
        assert!(orders.push(say(QUEUE_BYTES_MAX)));
        assert!(!orders.push(say(1)), "16 MiB wait already");
        assert!(orders.push(Order::Interrupt), "what weighs nothing still goes");
        assert!(matches!(orders.pop(), Some(Order::Say { .. })));
        assert!(orders.push(say(1)));
        while orders.push(Order::Finish) {}
        assert_eq!(orders.close().len(), QUEUE_ORDERS_MAX);
        assert!(!orders.push(Order::Interrupt));
        assert!(orders.pop().is_none());
    }
}
