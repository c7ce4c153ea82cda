//! Whose agents `svc top` shows: those of one daemon, or of all that run.
//!
//! Of all, ids and names have their project before them, `shop/backend-1`: no two of them are the same, and
//! what a key asks for goes to the daemon that it is about.

use super::view::Look;
use super::watch;
use crate::client::Client;
use crate::projects;
use crate::session::{Failure, now};
use crate::target::text;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use svc_sys::registry::{Entry, Facts};

/// A daemon that says nothing for so long is left out of a look.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Daemons that are asked.
pub enum Fleet {
    One(Arc<Client>),
    All(Mutex<Clients>),
}

/// By the name of the project: a client of its daemon as long as that is the same.
pub type Clients = BTreeMap<String, (Facts, Arc<Client>)>;

impl Fleet {
    /// One daemon.
    pub fn one(client: Client) -> Self {
        Self::One(Arc::new(client))
    }

    /// All that run, whoever comes and goes.
    pub fn all() -> Self {
        Self::All(Mutex::default())
    }

    /// Agents, and what waits for a decision.
    pub fn look(&self) -> Result<Look, Failure> {
        let clients = match self {
            Self::One(client) => return watch::look(client),
            Self::All(clients) => clients,
        };
        let mut running = projects::all()?;
        running.retain(|entry| entry.is_running);
        let mut known = clients.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, (facts, _)| running.iter().any(|one| one.name == *name && one.facts == *facts));
        for entry in &running {
            if !known.contains_key(&entry.name)
                && let Some(client) = projects::client_of(entry, ANSWER_LIMIT)
            {
                known.insert(entry.name.clone(), (entry.facts.clone(), Arc::new(client)));
            }
        }
        let asked: BTreeMap<String, Arc<Client>> =
            known.iter().map(|(name, (_, client))| (name.clone(), Arc::clone(client))).collect();
        drop(known);
        let looks = projects::each(&running, |entry: &Entry| {
            let look = asked.get(&entry.name).and_then(|client| watch::look(client).ok());
            (entry.name.clone(), look)
        });
        let mut all = Look { at: now(), ..Look::default() };
        for (name, look) in looks {
            match look {
                Some(look) => add(&mut all, &name, look),
                None => all.silent.push(name),
            }
        }
        Ok(all)
    }

    /// The daemon that an id is about, and the id there.
    pub fn of(&self, id: &str) -> Result<(Arc<Client>, String), Failure> {
        match self {
            Self::One(client) => Ok((Arc::clone(client), id.to_owned())),
            Self::All(clients) => {
                let (name, own) = id.split_once('/').unwrap_or_default();
                let known = clients.lock().unwrap_or_else(PoisonError::into_inner);
                let client = known.get(name).map(|(_, client)| Arc::clone(client));
                let gone = || Failure::failed(format!("the daemon of {name} is not there any more"));
                Ok((client.ok_or_else(gone)?, own.to_owned()))
            }
        }
    }
}

/// Adds what one daemon shows.
fn add(all: &mut Look, project: &str, look: Look) {
    let name = |records: Vec<Value>, members: &'static [&'static str]| {
        records.into_iter().map(move |mut record| {
            for member in members {
                record[*member] = format!("{project}/{}", text(&record, member)).into();
            }
            record["project"] = project.into();
            record
        })
    };
    all.agents.extend(name(look.agents, &["id", "name"]));
    all.approvals.extend(name(look.approvals, &["id", "agentName"]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_two_projects_call_alike_is_told_apart() {
        let mut all = Look::default();
        for project in ["shop", "blog"] {
            let agents = vec![json!({"id": "3fa90001", "name": "backend-1"})];
            let approvals = vec![json!({"id": "apr-1", "agentName": "backend-1"})];
            add(&mut all, project, Look { agents, approvals, ..Look::default() });
        }
        let words = |records: &[Value], member: &str| -> Vec<String> {
            records.iter().map(|record| text(record, member).to_owned()).collect()
        };
        assert_eq!(words(&all.agents, "id"), ["shop/3fa90001", "blog/3fa90001"]);
        assert_eq!(words(&all.agents, "name"), ["shop/backend-1", "blog/backend-1"]);
        assert_eq!(words(&all.approvals, "id"), ["shop/apr-1", "blog/apr-1"]);
        assert_eq!(words(&all.approvals, "project"), ["shop", "blog"]);
        let nobody = Fleet::all();
        assert!(nobody.of("shop/3fa90001").is_err() && nobody.of("3fa90001").is_err());
    }
}
