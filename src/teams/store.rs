//! Teams, recommendation and plans as they stand on disk.

use super::phases::Plan;
use super::plan::Recommendation;
use super::{DEFAULT_TEAM, State, Team};
use crate::core::State as All;
use crate::core::time::Time;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// `.svc/state/teams.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stored {
    pub version: u32,
    pub teams: Vec<Arc<Team>>,
    /// What the last planner recommended.
    pub recommendation: Option<Arc<Recommendation>>,
    /// The last text of the recommendation's file that was looked at, as a digest.
    pub seen: Option<String>,
    /// Planned teams, oldest first.
    pub plans: Vec<Arc<Plan>>,
}

impl State {
    /// What is to be written.
    pub fn stored(&self) -> Stored {
        Stored {
            version: STORED_VERSION,
            teams: self.teams.values().cloned().collect(),
            recommendation: self.planning.recommendation.clone(),
            seen: self.planning.seen.clone(),
            plans: self.plans.clone(),
        }
    }

    /// The teams after a start.
    pub fn restore(stored: Stored, now: Time) -> Self {
        let mut state = Self::default();
        if let Some(team) = state.teams.get_mut(&DEFAULT_TEAM).map(Arc::make_mut) {
            team.created_at = now;
            team.updated_at = now;
        }
        state.teams.extend(stored.teams.into_iter().map(|team| (team.id, team)));
        state.planning.recommendation = stored.recommendation;
        state.planning.seen = stored.seen;
        state.plans = stored.plans;
        state
    }
}

/// Takes over the teams of an earlier daemon.
pub fn restore(all: &mut All, stored: Stored, now: Time) {
    all.teams = Arc::new(State::restore(stored, now));
}
