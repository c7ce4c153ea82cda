//! What waits to be sent through one gateway.
//!
//! The core puts in and never waits. Order is kept, but for approvals: they overtake notices, of which a
//! platform's limits may hold up many. When the queue is full, the oldest notice goes, and is counted; if
//! there is none, the oldest answer; an approval goes last, and is sent again when the connection is made
//! anew.

use super::{Message, Outgoing, Place, Why};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use svc_sys::threads::lock;

/// Messages that wait at most.
pub const MAX_QUEUED: usize = 200;

/// The ranks of what goes first and last when there is no room.
const NOTICE: u8 = 0;
const APPROVAL: u8 = 3;

/// Something to be sent.
#[derive(Debug)]
pub enum Item {
    Send(Box<Outgoing>),
    /// A change of one.
    Edit(Place, Box<Message>),
}

impl Item {
    /// The lower, the sooner it goes when there is no room.
    fn rank(&self) -> u8 {
        match self {
            Self::Send(outgoing) => match outgoing.why {
                Why::Notice => NOTICE,
                Why::Answer => 1,
                Why::Approval(_) => APPROVAL,
            },
            Self::Edit(..) => 2,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    items: VecDeque<Item>,
    dropped: u64,
    closed: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    wake: Condvar,
}

impl Queue {
    /// Puts something in; never waits.
    pub fn push(&self, item: Item) {
        let mut inner = lock(&self.inner);
        let at = match item.rank() {
            // Before the first notice and not at the front: answers, and older approvals, keep their turn.
            APPROVAL => inner.items.iter().position(|waiting| waiting.rank() == NOTICE),
            _ => None,
        };
        let at = at.unwrap_or(inner.items.len());
        inner.items.insert(at, item);
        if inner.items.len() > MAX_QUEUED {
            // The newcomer is among them: a notice does not push out an approval.
            let least = inner.items.iter().enumerate().min_by_key(|(at, item)| (item.rank(), *at));
            if let Some(at) = least.map(|(at, _)| at) {
                inner.items.remove(at);
                inner.dropped += 1;
            }
        }
        drop(inner);
        self.wake.notify_one();
    }

    /// Takes the oldest, and how many were dropped since the last time; waits for one. `None` when it is
    /// over.
    pub fn pop(&self) -> Option<(Item, u64)> {
        let mut inner = lock(&self.inner);
        loop {
            // Before what waits: nothing is left to send it through.
            if inner.closed {
                return None;
            }
            if let Some(item) = inner.items.pop_front() {
                return Some((item, std::mem::take(&mut inner.dropped)));
            }
            inner = self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// It is over.
    pub fn close(&self) {
        lock(&self.inner).closed = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approvals::ApprovalId;
    use crate::gateways::message::Text;
    use crate::gateways::{GatewayId, Kind};

    fn item(n: usize, why: Why) -> Item {
        Item::Send(Box::new(Outgoing {
            gateway: GatewayId { kind: Kind::Slack, number: 1 },
            chat: n.to_string(),
            message: Text::from("x").into(),
            reply_to: String::new(),
            why,
            key: String::new(),
            again: false,
        }))
    }

    fn all(queue: &Queue) -> (Vec<usize>, u64) {
        let mut chats = Vec::new();
        let mut dropped = 0;
        while !lock(&queue.inner).items.is_empty() {
            let (item, lost) = queue.pop().expect("there is one");
            dropped += lost;
            if let Item::Send(outgoing) = item {
                chats.push(outgoing.chat.parse().expect("a number"));
            }
        }
        (chats, dropped)
    }

    #[test]
    fn a_full_queue_drops_the_oldest_notices_and_counts_them() {
        let queue = Queue::default();
        for n in 0..MAX_QUEUED + 10 {
            queue.push(item(n, Why::Notice));
        }
        let (chats, dropped) = all(&queue);
        assert_eq!((chats.len(), chats[0], dropped), (MAX_QUEUED, 10, 10));
    }

    #[test]
    fn specification_approvals_do_not_wait_for_notices() {
        let queue = Queue::default();
        queue.push(item(0, Why::Answer));
        queue.push(item(1, Why::Notice));
        queue.push(item(2, Why::Notice));
        queue.push(item(3, Why::Approval(ApprovalId(1))));
        queue.push(item(4, Why::Answer));
        queue.push(item(5, Why::Approval(ApprovalId(2))));
        assert_eq!(all(&queue), (vec![0, 3, 5, 1, 2, 4], 0));
    }

    #[test]
    fn approvals_and_answers_outlive_notices() {
        let queue = Queue::default();
        queue.push(item(0, Why::Approval(ApprovalId(1))));
        queue.push(item(1, Why::Answer));
        for n in 2..2 * MAX_QUEUED {
            queue.push(item(n, Why::Notice));
        }
        let (chats, _) = all(&queue);
        assert_eq!(chats[..2], [0, 1]);
        assert_eq!(chats.len(), MAX_QUEUED);
    }
}
