//! Memory as it stands on disk.

use super::chain::{ChainEntry, Chains};
use super::specializations::Specializations;
use super::{Constraint, Discovery, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version this code writes, of all four files.
pub const VERSION: u32 = 1;

/// One file of memory below `.svc/memory/`: its format version and its content.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored<T> {
    pub version: u32,
    #[serde(flatten)]
    pub content: T,
}

/// `constraints.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoredConstraints {
    /// Oldest first.
    pub constraints: Vec<Constraint>,
}

/// `discoveries.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoredDiscoveries {
    /// Oldest first.
    pub discoveries: Vec<Discovery>,
}

/// `handoff-chains.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoredChains {
    /// Per role, oldest first.
    pub roles: BTreeMap<String, Vec<Arc<ChainEntry>>>,
}

impl<T> Stored<T> {
    fn new(content: T) -> Self {
        Self { version: VERSION, content }
    }
}

impl State {
    /// `constraints.json`.
    pub fn stored_constraints(&self) -> Stored<StoredConstraints> {
        Stored::new(StoredConstraints { constraints: self.constraints.clone() })
    }

    /// `discoveries.json`.
    pub fn stored_discoveries(&self) -> Stored<StoredDiscoveries> {
        Stored::new(StoredDiscoveries { discoveries: self.discoveries.iter().cloned().collect() })
    }

    /// `handoff-chains.json`.
    pub fn stored_chains(&self) -> Stored<StoredChains> {
        Stored::new(StoredChains { roles: self.chains.stored() })
    }

    /// `specializations.json`.
    pub fn stored_specializations(&self) -> Stored<Arc<Specializations>> {
        Stored::new(Arc::clone(&self.specializations))
    }

    /// Memory after a start.
    pub fn restore(
        constraints: StoredConstraints,
        discoveries: StoredDiscoveries,
        chains: StoredChains,
        specializations: Specializations,
    ) -> Self {
        Self {
            constraints: constraints.constraints,
            discoveries: Arc::new(discoveries.discoveries.into()),
            told: Arc::default(),
            chains: Arc::new(Chains::restore(chains.roles)),
            specializations: Arc::new(specializations),
        }
    }

    /// Of agents without a record remembers the last alone.
    #[must_use]
    pub fn forget_gone(mut self, agents: &crate::agents::State) -> Self {
        Arc::make_mut(&mut self.specializations).forget(agents);
        self
    }

    /// What agents and roles have shown.
    pub fn specializations(&self) -> &Specializations {
        &self.specializations
    }
}

pub use super::specializations::Specializations as StoredSpecializations;
