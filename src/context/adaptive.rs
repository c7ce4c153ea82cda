//! How full a context may get before its agent is rotated: learned per provider and role.

use crate::usage::report::rounded;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use svc_base::bounded;

/// The range of a learned threshold; one that a person has set beyond it is the end of the range there.
pub const RANGE: (f64, f64) = (0.40, 0.95);
/// Sessions that must agree before a profile is converged.
pub const CONVERGED_SESSIONS: usize = 10;
/// Profiles kept; further ones stay at the setting.
pub const MAX_PROFILES: usize = 500;
/// From this score on a session raises its threshold.
const GOOD_SCORE: f64 = 70.0;
/// A session says something of a threshold only if its context came as near to it.
pub const NEAR: f64 = 0.1;
/// Below this score a session lowers its threshold.
const BAD_SCORE: f64 = 40.0;
const RAISE: f64 = 0.02;
const LOWER: f64 = -0.05;
/// A move within this is none.
const STILL: f64 = 0.01 + 1e-9;

/// What was learned, by provider and role.
pub type Profiles = BTreeMap<String, BTreeMap<String, Profile>>;

/// What was learned of one provider and role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// How far the threshold is from `rotationThreshold`: a change of that setting still shows.
    offset: f64,
    sessions: u64,
    /// The last [`CONVERGED_SESSIONS`] moves.
    moves: VecDeque<f64>,
    /// Whether the threshold has ever really moved.
    moved: bool,
}

impl Profile {
    /// The threshold, given the setting.
    pub fn threshold(&self, base: f64) -> f64 {
        rounded((base + self.offset).clamp(RANGE.0.min(base), RANGE.1.max(base)))
    }

    /// Takes in the score of a session that is over.
    pub fn session(&mut self, base: f64, score: f64) {
        let step = match score {
            GOOD_SCORE.. => RAISE,
            ..BAD_SCORE => LOWER,
            _ => 0.0,
        };
        let before = self.threshold(base);
        let after = rounded((before + step).clamp(RANGE.0.min(base), RANGE.1.max(base)));
        self.offset = rounded(after - base);
        let moved = rounded(after - before);
        self.moved |= moved.abs() > STILL;
        self.sessions += 1;
        bounded::push(&mut self.moves, moved, CONVERGED_SESSIONS);
    }

    /// Whether the threshold has found its place: ten sessions whose moves keep still or go to and fro about
    /// one place, after it has really moved. Moves that add up to more than one step lead somewhere else.
    pub fn is_converged(&self) -> bool {
        let still = self.moves.iter().all(|moved| moved.abs() <= STILL);
        let both = [1.0, -1.0].iter().all(|way| self.moves.iter().any(|moved| moved * way > STILL));
        let alternates = both && self.moves.iter().sum::<f64>().abs() <= -LOWER + STILL;
        self.moves.len() == CONVERGED_SESSIONS && self.moved && (still || alternates)
    }
}
