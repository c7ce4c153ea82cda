//! `svc acp`: the door by which an editor has an agent of the daemon behind its own panel, by the Agent
//! Client Protocol over standard input and output.
//!
//! Requests that the daemon answers at once are answered in their order by the thread that reads; a turn has
//! a thread of its own, as its answer comes when the agent is done. Standard output carries messages only.
//! The end of standard input ends the command at once; agents are the daemon's and go on.
//!
//! Source: Agent Client Protocol, version 1.

mod link;
mod methods;
mod permission;
mod seat;
mod turn;
mod updates;
mod wire;
mod words;

use super::session::{Outcome, Session};
use link::Link;
use permission::Asked;
use seat::Seat;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{Fault, Line, Wire};

/// What agents that are started for an editor are called, where the editor's settings say nothing else.
const ROLE: &str = "editor";

/// What the command line says of the agents behind the door.
#[derive(Debug, Default)]
pub struct Wish {
    /// The one agent that is behind it; else each session has one of its own.
    pub agent: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub role: String,
}

/// What all threads of the command share.
pub struct Door {
    pub wire: Wire,
    pub link: Link,
    pub wish: Wish,
    /// By the id of the session.
    seats: Mutex<BTreeMap<String, Arc<Seat>>>,
    /// Requests to the editor that wait for its answer, by their number.
    asked: Mutex<BTreeMap<u64, Asked>>,
    next_request: AtomicU64,
}

impl Door {
    /// All sessions, by their ids. Hold it for a look only: every message of the editor needs it.
    pub fn seats(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests to the editor that are open, by their numbers. Never held while something is written.
    pub fn asked(&self) -> MutexGuard<'_, BTreeMap<u64, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no request to the editor had before, from 1.
    pub fn next_request(&self) -> u64 {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }
}

/// `svc acp`.
pub fn acp(session: &Session) -> Outcome {
    let given = |name: &str| session.args.value(name).map(ToOwned::to_owned);
    let wish = Wish {
        agent: given("agent"),
        provider: given("provider"),
        model: given("model"),
        role: given("role").unwrap_or_else(|| ROLE.to_owned()),
    };
    let door = Arc::new(Door {
        wire: Wire::default(),
        link: Link::new(session.surroundings.clone()),
        wish,
        seats: Mutex::default(),
        asked: Mutex::default(),
        next_request: AtomicU64::new(1),
    });
    serve(&door, &mut io::stdin().lock());
    Ok(())
}

/// Answers until the input ends.
fn serve(door: &Arc<Door>, input: &mut impl BufRead) {
    loop {
        match wire::next_line(input) {
            Line::End => return,
            Line::TooLong => door.wire.refuse(&Value::Null, &Fault::too_long()),
            Line::Whole(line) => match serde_json::from_slice::<Value>(&line) {
                Ok(Value::Object(message)) => methods::heard(door, &Value::Object(message)),
                Ok(_) => door.wire.refuse(&Value::Null, &Fault::no_message()),
                Err(error) => door.wire.refuse(&Value::Null, &Fault::no_json(&error)),
            },
        }
    }
}
