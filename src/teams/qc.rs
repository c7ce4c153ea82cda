//! Quality control is announced when enough agents work at the same time.

use crate::core::Notice;
use crate::core::{Context, State as All};
use std::sync::Arc;

/// What the name of a quality control agent begins with.
pub const NAME_PREFIX: &str = "qc-";

/// Counts the live agents that are not quality control; says so each time they rise to the threshold.
pub fn count(all: &mut All, cx: &mut Context) {
    let now = all.agents.live().filter(|agent| !agent.name.starts_with(NAME_PREFIX)).count();
    if now == all.teams.builders {
        return;
    }
    let teams = Arc::make_mut(&mut all.teams);
    let before = std::mem::replace(&mut teams.builders, now);
    let threshold = all.settings.config().qc_threshold;
    if before < threshold && now >= threshold {
        cx.notice(Notice::QcActivated { agent_count: now });
    }
}
