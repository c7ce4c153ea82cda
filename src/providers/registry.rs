//! Which providers are installed. Detected once after start, by a thread, never per request.

use super::{Program, all};
use crate::core::State as All;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What detection found of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    /// Provider id.
    pub provider: &'static str,
    /// Its version, or `None` when it is not installed.
    pub version: Option<String>,
    /// Whether the variable with its API key is set in the daemon's environment.
    pub has_key: bool,
}

/// The findings.
#[derive(Debug, Clone, Default)]
pub struct State {
    found: BTreeMap<&'static str, Detection>,
}

impl State {
    /// Whether the provider can be run.
    pub fn is_installed(&self, id: &str) -> bool {
        let built_in = super::by_id(id).is_some_and(|provider| provider.info().program == Program::Itself);
        built_in || self.found.get(id).is_some_and(|detection| detection.version.is_some())
    }

    /// Whether detection has finished.
    pub fn is_known(&self) -> bool {
        !self.found.is_empty()
    }

    /// Installed providers.
    pub fn installed_ids(&self) -> impl Iterator<Item = &'static str> + '_ {
        all().iter().map(|provider| provider.info().id).filter(|id| self.is_installed(id))
    }

    /// What was found of `id`.
    pub fn get(&self, id: &str) -> Option<&Detection> {
        self.found.get(id)
    }
}

/// Detection has finished.
pub fn detected(state: &mut All, found: Vec<Detection>) {
    let found = found.into_iter().map(|detection| (detection.provider, detection)).collect();
    state.providers = Arc::new(State { found });
}
