//! Which providers are there: found on the `PATH`, at once and again whenever somebody asks, never per
//! request; their versions and logins follow, each when its program has told it.

use crate::core::State as All;
use crate::providers::login::Login;
use crate::providers::{Program, all};
use std::collections::BTreeMap;
use std::sync::Arc;
use svc_base::sorted::Gather;

/// Whether a program is there.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub enum Presence {
    /// Not on the `PATH`.
    Absent,
    /// There; its version is still to be told.
    Present,
    /// There, in this version; `unknown` when it would not tell.
    Version(String),
}

/// What was found of one provider.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Detection {
    pub provider: &'static str,
    /// Whether its program is there.
    pub presence: Presence,
    /// Whether the variable with its API key is set in the daemon's environment.
    pub has_key: bool,
    /// Whether somebody is logged in to it; `None` while that is not known.
    pub login: Option<Login>,
}

impl Detection {
    /// A provider whose program is there in this version.
    pub fn installed(provider: &'static str, version: &str) -> Self {
        Self { provider, presence: Presence::Version(version.to_owned()), has_key: false, login: None }
    }
}

/// The findings.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    found: BTreeMap<&'static str, Detection>,
    is_known: bool,
}

impl State {
    /// What was found before anything else began.
    pub fn new(found: Vec<Detection>) -> Self {
        let found = found.into_iter().map(|detection| (detection.provider, detection)).gather();
        Self { found, is_known: false }
    }

    /// Whether the provider can be run.
    pub fn is_installed(&self, id: &str) -> bool {
        let built_in =
            crate::providers::by_id(id).is_some_and(|provider| provider.info().program == Program::Itself);
        built_in || self.found.get(id).is_some_and(|detection| detection.presence != Presence::Absent)
    }

    /// Whether anything was reported since the start.
    pub fn is_known(&self) -> bool {
        self.is_known
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

/// Takes what was found of some providers; `true` for the first report since the start.
pub fn detected(state: &mut All, found: Vec<Detection>) -> bool {
    let providers = Arc::make_mut(&mut state.providers);
    let is_first = !std::mem::replace(&mut providers.is_known, true);
    providers.found.extend(found.into_iter().map(|detection| (detection.provider, detection)));
    is_first
}
