//! The daemon behind the door. It may be restarted, or killed and started again, while an editor is open:
//! where it is, and what proves this person, is found anew after every call that failed.

use super::super::client::{CallError, Client, Surroundings};
use super::super::session::Failure;
use super::wire::Fault;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a turn waits for a daemon that is gone; another one goes on with its agents meanwhile.
pub const DAEMON_PATIENCE: Duration = Duration::from_secs(120);

/// Why a call failed.
#[derive(Debug)]
pub enum Broken {
    /// Nobody answered: the same call may be made again.
    Gone(String),
    /// The daemon said no.
    Refused { status: u16, words: String },
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Gone(words) | Broken::Refused { words, .. } => Self::failed(words),
        }
    }
}

/// The way to the daemon.
pub struct Link {
    surroundings: Surroundings,
    client: Mutex<Option<Arc<Client>>>,
}

impl Link {
    pub fn new(surroundings: Surroundings) -> Self {
        Self { surroundings, client: Mutex::default() }
    }

    /// Reads; [`Broken::Gone`] whenever no whole answer came, as reading may be repeated.
    pub fn get(&self, path: &str) -> Result<Value, Broken> {
        self.call("GET", path, None)
    }

    /// Changes something; [`Broken::Gone`] only where it cannot have been done.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Broken> {
        self.call("POST", path, Some(body))
    }

    /// Ends the run of an agent.
    pub fn end(&self, path: &str) -> Result<Value, Broken> {
        self.call("DELETE", path, None)
    }

    /// The approvals that wait for a person.
    pub fn pending(&self) -> Result<Vec<Value>, Broken> {
        let mut answer = self.get("/api/approvals")?;
        Ok(match answer["pending"].take() {
            Value::Array(pending) => pending,
            _ => Vec::new(),
        })
    }

    /// Decides an approval.
    pub fn decide(&self, id: &str, allow: bool, reason: &str) -> Result<Value, Broken> {
        let verb = if allow { "approve" } else { "reject" };
        let body = if reason.is_empty() { json!({}) } else { json!({"reason": reason}) };
        self.post(&format!("/api/approvals/{}/{verb}", super::super::client::encode(id)), &body)
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Broken> {
        let client = self.client().map_err(|failure| Broken::Gone(words(failure)))?;
        let error = match client.try_call(method, path, body) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // What changes something may have been done before the connection broke.
        let is_repeatable = method == "GET";
        let (is_gone, status) = match &error {
            CallError::NothingListens => (true, 0),
            CallError::Other(_) => (is_repeatable, 0),
            CallError::Refused { status, .. } => (*status == 503, *status),
        };
        let words = words(client.explain(error));
        Err(if is_gone { Broken::Gone(words) } else { Broken::Refused { status, words } })
    }

    fn client(&self) -> Result<Arc<Client>, Failure> {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*kept {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Client::new(self.surroundings.find()?)?);
        *kept = Some(Arc::clone(&client));
        Ok(client)
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::Say { message, .. } => message,
        Failure::Told(_) | Failure::ClosedPipe => "the daemon cannot be asked".to_owned(),
    }
}
