//! Orders to start, and which of them a keeper has begun, kept outside of the daemon: what the disk knows of
//! is carried out once, by this daemon or the next.

use super::invariants::{Rule, ensure};
use super::keepers::Kept;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use svc::agents::Status;
use svc::core::State;
use svc::core::ids::AgentId;

/// A life that was ordered.
struct Life {
    prompt: String,
    /// What the disk had of it when a daemon came back. A wish that waited for the disk is judged again when
    /// it is there, by what has happened meanwhile: its briefing may have other words then, written later.
    on_disk: Option<String>,
    /// A keeper has begun it, and what it has left says so.
    has_begun: bool,
}

/// All of them.
#[derive(Default)]
pub struct Starts {
    lives: BTreeMap<AgentId, Life>,
    /// What this daemon has to order because the last one did not come to it.
    again: BTreeSet<AgentId>,
}

impl Starts {
    /// Whether this is an order that an earlier daemon had given.
    pub fn is_again(&self, id: AgentId) -> bool {
        self.again.contains(&id)
    }

    /// A process is ordered. Whether it was before.
    pub fn ordered(&mut self, id: AgentId, prompt: &str) -> bool {
        let was_ordered = self.again.remove(&id);
        if let Some(life) = self.lives.get(&id) {
            let said = || format!("a keeper has begun {id}, and its start is ordered again");
            ensure(Rule::StartsOnce, !life.has_begun, said);
            let said = || format!("{id} is ordered again with other words");
            let is_known = life.prompt == prompt || life.on_disk.as_deref() == Some(prompt);
            ensure(Rule::StartsOnce, is_known, said);
        }
        self.lives.insert(id, Life { prompt: prompt.to_owned(), on_disk: None, has_begun: false });
        was_ordered
    }

    /// A keeper has begun this.
    pub fn begun(&mut self, id: AgentId) {
        if let Some(life) = self.lives.get_mut(&id) {
            life.has_begun = true;
        }
    }

    /// Whether a keeper has begun it, as the machine knows.
    pub fn has_begun(&self, id: AgentId) -> bool {
        self.lives.get(&id).is_some_and(|life| life.has_begun)
    }

    /// The power has gone: of some of those that had just begun nothing is left.
    pub fn lose(&mut self, mut is_lost: impl FnMut() -> bool) {
        for life in self.lives.values_mut().filter(|life| life.has_begun) {
            life.has_begun = !is_lost();
        }
    }

    /// The daemon has come back: what it finds was to be started, and no keeper has begun.
    pub fn restarted(&mut self, stored: Option<&Value>, state: &State, kept: &BTreeMap<AgentId, Kept>) {
        self.lives.retain(|id, _| state.agents.get(*id).is_some());
        self.again.clear();
        for was in stored.and_then(|stored| stored["agents"].as_array()).into_iter().flatten() {
            let id = was["id"].as_str().and_then(|id| id.parse::<AgentId>().ok()).unwrap();
            let is_lost = state.agents.get(id).is_some_and(|agent| agent.status == Status::Interrupted);
            // A rotation may be asked for before its program runs. What has told of itself has begun,
            // whatever its keeper has left.
            let is_ordered = was["status"] == "starting" || was["status"] == "rotating";
            let is_new = is_ordered && was["pid"].is_null() && was["heard"].as_u64() <= Some(0);
            if is_new && is_lost && !kept.contains_key(&id) && !self.has_begun(id) {
                self.again.insert(id);
                if let Some(life) = self.lives.get_mut(&id) {
                    life.on_disk = was["opening"]["prompt"].as_str().map(str::to_owned);
                }
            }
        }
    }

    /// The daemon knows its programs: everything that it was to order was ordered.
    pub fn check_all_ordered(&self) {
        let again = &self.again;
        let said = || format!("{again:?} were to be started by an earlier daemon, and nobody does");
        ensure(Rule::StartsOnce, again.is_empty(), said);
    }
}
