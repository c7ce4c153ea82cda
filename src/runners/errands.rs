//! What is still to be done on other machines for agents that work there no more: to end what a kill has not
//! reached, and to take away what an agent has left whose record is gone.
//!
//! ```text
//! left there, or its record removed ──▶ an errand, kept over restarts ──▶ order ──▶ done
//!                                            ▲                              │
//!     a line stands, a check went well, ─────┘◀──────not reached────────────┘
//!     or [`AGAIN`] while something may run there
//! ```
//! **Invariant:** what is ended is of a life that is over, and no other one's; a tree goes only when all of
//! it is here, see `worker_errands.rs`.

use super::Runner;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, State as All, Timer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use svc_base::sorted::Gather;

#[cfg(test)]
#[path = "errands_tests.rs"]
mod tests;

/// Errands at most; of more the oldest that only tidies is given up, with a warning.
pub const MAX_ERRANDS: usize = 1_000;
/// Errands of one order.
pub const MAX_AT_ONCE: usize = 50;
/// Lives of one errand, the newest; of an older one its keeper there ends what runs.
const MAX_LIVES: usize = 8;
/// Between two tries while something may run there.
const AGAIN: Duration = Duration::from_secs(5);
/// Beyond the time after which the keeper there has ended it for want of a daemon.
const BEYOND: Duration = Duration::from_secs(120);

/// What is to be done on a machine for one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Errand {
    /// The runner's name.
    pub runner: String,
    pub lineage: LineageId,
    /// The lives of which something may run there.
    pub ends: Vec<AgentId>,
    /// Whether its record is gone, and what it has left is to go.
    pub tidies: bool,
    /// Until then it is tried again by itself.
    pub until: Time,
}

/// An agent that has worked on a machine, where its tree is.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, svc_base::recorded::Recorded,
)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    pub lineage: LineageId,
    pub runner: String,
}

/// What is to be done on one machine now.
#[derive(Debug)]
pub struct Order {
    pub runner: Arc<Runner>,
    pub errands: Vec<Arc<Errand>>,
}

/// What came of an order.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Report {
    pub runner: String,
    /// What was ordered.
    pub errands: Vec<Arc<Errand>>,
    /// Those that are done; or why that machine was not reached.
    pub outcome: Result<Vec<Done>, String>,
}

/// An errand that is done.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Done {
    pub lineage: LineageId,
    /// Runs that were ended there.
    pub ended: u64,
    /// Why something stays there that was to go.
    pub left: Option<String>,
}

/// Something may run on a runner's machine of this life, which is over here; for so long, unless it is ended.
pub fn left_there(
    all: &mut All,
    cx: &mut Context,
    runner: &str,
    (lineage, life): (LineageId, AgentId),
    runs_for: Duration,
) {
    let until = cx.now + runs_for + BEYOND;
    edit(all, cx, runner, lineage, |errand| {
        errand.ends.push(life);
        let surplus = errand.ends.len().saturating_sub(MAX_LIVES);
        errand.ends.drain(..surplus);
        errand.until = errand.until.max(until);
    });
}

/// Changes the errand for an agent on a machine, or makes one, and has it tried at once.
fn edit(all: &mut All, cx: &mut Context, runner: &str, lineage: LineageId, change: impl FnOnce(&mut Errand)) {
    if all.runners.find(runner).is_err() {
        return;
    }
    let errands = &mut Arc::make_mut(&mut all.runners).errands;
    let known = errands.iter_mut().find(|errand| errand.runner == runner && errand.lineage == lineage);
    if let Some(errand) = known {
        change(Arc::make_mut(errand));
    } else {
        let (runner, ends) = (runner.to_owned(), Vec::new());
        let mut errand = Errand { runner, lineage, ends, tidies: false, until: Time(0) };
        change(&mut errand);
        errands.push(Arc::new(errand));
    }
    if errands.len() > MAX_ERRANDS {
        let oldest = errands.iter().position(|errand| errand.ends.is_empty()).unwrap_or_default();
        let gone = errands.remove(oldest);
        cx.push(Effect::Warn(format!(
            "runner {}: {MAX_ERRANDS} errands wait, and that is the limit: what agent {} has left there stays",
            gone.runner, gone.lineage
        )));
    }
    cx.push(Effect::Put(Document::Runners, Durability::Soon));
    set_off(all, cx, runner);
}

/// Has what waits for this machine done, where nobody is about it already.
pub fn set_off(all: &mut All, cx: &mut Context, runner: &str) {
    let waiting = all.runners.errands.iter().filter(|errand| errand.runner == runner);
    let errands: Vec<Arc<Errand>> = waiting.take(MAX_AT_ONCE).cloned().collect();
    let Ok(known) = all.runners.find(runner).cloned() else { return };
    if errands.is_empty() || all.health.stopping || all.runners.under_way.contains(runner) {
        return;
    }
    Arc::make_mut(&mut all.runners).under_way.insert(runner.to_owned());
    cx.push(Effect::Runners(Order { runner: known, errands }));
}

/// An order is done, or its machine was not reached.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    let Report { runner, errands: sent, outcome } = report;
    Arc::make_mut(&mut all.runners).under_way.remove(&runner);
    let done = outcome.unwrap_or_default();
    for one in &done {
        let Some(sent) = sent.iter().find(|errand| errand.lineage == one.lineage) else { continue };
        strike(all, sent);
        let told = json!({"name": runner, "lineageId": one.lineage, "ended": one.ended, "left": one.left});
        if one.ended > 0 {
            cx.audit("runner.end", &told);
        }
        if sent.tidies {
            cx.audit("runner.tidy", &told);
        }
    }
    if done.is_empty() {
        return watch(all, cx.now);
    }
    cx.push(Effect::Put(Document::Runners, Durability::Soon));
    set_off(all, cx, &runner);
}

/// What was ordered is done; what has come to it since is not.
fn strike(all: &mut All, sent: &Errand) {
    let errands = &mut Arc::make_mut(&mut all.runners).errands;
    for errand in errands.iter_mut().filter(|one| one.runner == sent.runner && one.lineage == sent.lineage) {
        let errand = Arc::make_mut(errand);
        errand.ends.retain(|life| !sent.ends.contains(life));
        errand.tidies &= !sent.tidies;
    }
    errands.retain(|errand| errand.tidies || !errand.ends.is_empty());
}

fn is_urgent(errand: &Errand, now: Time) -> bool {
    !errand.ends.is_empty() && errand.until > now
}

/// While something may run there it is tried again without anybody at hand.
fn watch(all: &mut All, now: Time) {
    let is_waited_for = all.runners.errands.iter().any(|errand| is_urgent(errand, now));
    if is_waited_for && !all.timers.is_set(Timer::Errands) {
        Arc::make_mut(&mut all.timers).set(Timer::Errands, now + AGAIN);
    }
}

/// It is time to try again.
pub fn due(all: &mut All, cx: &mut Context) {
    let urgent = all.runners.errands.iter().filter(|errand| is_urgent(errand, cx.now));
    let runners: BTreeSet<String> = urgent.map(|errand| errand.runner.clone()).gather();
    for runner in &runners {
        set_off(all, cx, runner);
    }
}

/// The daemon has started: what an earlier one has left undone is tried, on each machine once.
pub fn go_on(all: &mut All, cx: &mut Context) {
    let there = all.agents.iter().filter_map(|agent| Some((agent.lineage_id, agent.runner.clone()?)));
    let there: Vec<(LineageId, String)> = there.collect();
    for (lineage, runner) in there {
        note(all, cx, lineage, &runner);
    }
    let runners: BTreeSet<String> = all.runners.errands.iter().map(|errand| errand.runner.clone()).gather();
    for runner in &runners {
        set_off(all, cx, runner);
    }
}

/// Notes that an agent has a tree on a machine.
fn note(all: &mut All, cx: &mut Context, lineage: LineageId, runner: &str) {
    let work = Work { lineage, runner: runner.to_owned() };
    if all.runners.known.contains_key(runner) && !all.runners.works.contains(&work) {
        Arc::make_mut(&mut all.runners).works.insert(work);
        cx.push(Effect::Put(Document::Runners, Durability::Soon));
    }
}

/// Something has happened to an agent: a line to its machine may stand, or its record is gone.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Started(id) | Moment::TurnEnded(id) | Moment::Ended(id) => {
            let Some(agent) = all.agents.get(id) else { return };
            let Some(runner) = agent.runner.clone() else { return };
            note(all, cx, agent.lineage_id, &runner);
            set_off(all, cx, &runner);
        }
        Moment::Removed(_, lineage) => {
            let works = all.runners.works.iter().filter(|work| work.lineage == lineage);
            let works: Vec<Work> = works.cloned().collect();
            for work in works {
                Arc::make_mut(&mut all.runners).works.remove(&work);
                edit(all, cx, &work.runner, lineage, |errand| errand.tidies = true);
            }
        }
        _ => {}
    }
}
