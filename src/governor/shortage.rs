//! Whether memory is short, and how much of it idle agents are to give back.
//!
//! ```text
//!        less is free than is kept for the person, tasks wait for memory, or an agent waits for room
//! ample ───────────────────────────────────────────────────────────────────────────────────────────▶ short
//!   ▲                                                                                                   │
//!   └── half as much again is free as is kept, few tasks wait for memory, nobody waits for room of it ──┘
//! ```
//! **Invariant:** nothing is asked for that is on its way already: what those hold that are being put away
//! counts as free.

use super::{MEMORY_FULL_MOST, MEMORY_SOME_MOST, Machine, expected, memory};
use crate::core::State as All;
use crate::core::time::Time;
use crate::settings::Admit;
use std::sync::Arc;
use std::time::Duration;

/// Memory that was short for less than this is none that agents are put away for.
pub const LASTING: Duration = Duration::from_secs(3);
/// While only the kernel's figures of the last ten seconds say that it is short, one agent at a time is put
/// away, and then they are given this time to show what came of it.
pub const SETTLING: Duration = Duration::from_secs(10);

/// The machine was looked at: notes whether memory is short; `true` where it was not before.
pub(super) fn judge(all: &mut All, now: Time) -> bool {
    let was = all.governor.short_since;
    let is_short = all.governor.machine.as_deref().is_some_and(|machine| {
        machine.memory_total > 0
            && (missing(all, now, machine, was.is_some()) > 0 || waits(machine, was.is_some()))
    });
    let since = is_short.then(|| was.unwrap_or(now));
    if since != was {
        Arc::make_mut(&mut all.governor).short_since = since;
    }
    is_short && was.is_none()
}

/// How much memory idle agents are to give back now, in bytes; 0 for none.
pub fn lacking(all: &All, now: Time) -> u64 {
    let (Some(machine), Some(since)) = (all.governor.machine.as_deref(), all.governor.short_since) else {
        return 0;
    };
    if now.since(since) < LASTING {
        return 0;
    }
    let leaving = all.agents.live().filter(|agent| agent.has_process() && agent.put_away.is_some());
    let coming: u64 = leaving.filter_map(|agent| Some(all.governor.use_of(agent.id)?.now)).sum();
    let missing = missing(all, now, machine, true).saturating_sub(coming);
    if missing > 0 || !waits(machine, true) {
        return missing;
    }
    let last = all.agents.live().filter_map(|agent| Some(agent.put_away.as_ref()?.at)).max();
    u64::from(last.is_none_or(|at| now.since(at) >= SETTLING))
}

/// Whether so little is free, or tasks wait for memory so much, that less is to be done at once: what agents
/// wait for that have not begun does not count. Half as much again is to be free once somebody `is_frozen`.
pub fn pressing(all: &All, now: Time, is_frozen: bool) -> bool {
    let governor = &all.governor;
    let (Some(machine), Some(since)) = (governor.machine.as_deref(), governor.short_since) else {
        return false;
    };
    let reserve = memory(all, now, machine).reserve;
    let kept = if is_frozen { reserve.saturating_add(reserve / 2) } else { reserve };
    now.since(since) >= LASTING && (machine.memory_free < kept || waits(machine, is_frozen))
}

/// Bytes that are missing: of what is kept for the person, half as much again once it `is_short`, or of what
/// the first needs that waits for room.
fn missing(all: &All, now: Time, machine: &Machine, is_short: bool) -> u64 {
    let memory = memory(all, now, machine);
    let kept = memory.reserve.saturating_add(if is_short { memory.reserve / 2 } else { 0 });
    let waiting = all.agents.live().filter_map(|agent| Some((agent.place_in_queue()?, agent)));
    let first = waiting.min_by_key(|(place, _)| *place).map(|(_, agent)| agent);
    let needed = first.filter(|_| all.settings.config().governor.admit != Admit::Off).map_or(0, |agent| {
        let each = expected(all, now, &agent.provider, &agent.role).bytes;
        each.saturating_add(memory.reserve).saturating_add(memory.promised).saturating_add(memory.elsewhere)
    });
    kept.max(needed).saturating_sub(machine.memory_free)
}

/// Whether tasks wait for memory so much that nothing is let in; half as much is enough once it `is_short`.
fn waits(machine: &Machine, is_short: bool) -> bool {
    let part = if is_short { 2 } else { 1 };
    machine.memory_full.is_some_and(|share| share >= MEMORY_FULL_MOST / part)
        || machine.memory_some.is_some_and(|share| share >= MEMORY_SOME_MOST / part)
}
