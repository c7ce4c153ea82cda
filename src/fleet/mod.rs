//! What the other projects of this user have told: what they have spent today, what they need of the machine,
//! and what their providers said of the windows. The rules that go by it stand where those of this project
//! do: in the budget, the governor and the windows.
//!
//! A thread reads it before somebody is started and while agents run (`assembly/fleet.rs`).
//!
//! **Invariant:** what was spent counts whether its daemon runs or not; what is needed counts as long as its
//! daemon runs, and no longer.
//! **Invariant:** where a budget over all projects is set, or cannot be known, and what one of them has spent
//! is not known, nothing new starts.

#[cfg(test)]
mod tests;

use crate::core::time::Time;
use crate::core::{Context, Moment, State as All};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The version of [`Told`] that this code writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// What a project tells the others, in the file beside its place in the registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    pub version: u32,
    pub spent: Spent,
    pub needs: Needs,
    #[serde(default)]
    pub windows: Vec<Window>,
}

/// What a project has spent on one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    /// Days since 1970, in UTC.
    pub day: u64,
    /// Dollars, with what is estimated and what tokens without a price cost at most.
    pub usd: f64,
    /// The share of the budget over all, in percent, that people were told.
    #[serde(default)]
    pub warned: u8,
}

/// What the agents of a project still need while its daemon runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Needs {
    /// Dollars of the calls under way.
    pub under_way_usd: f64,
    /// Dollars of the dearest turn that is expected.
    pub turn_usd: f64,
    /// Agents with a process.
    pub running: usize,
    /// Of them inside of a turn.
    pub in_turn: usize,
    /// Bytes that they may still come to use, beside what they hold.
    pub promised: u64,
}

/// A window of a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The provider's id.
    pub provider: String,
    /// Whose windows they are: the same text in every project that uses the same login. Where it was read,
    /// the name of the account here.
    pub login: String,
    /// The provider's word for it.
    pub name: String,
    pub used_percent: Option<f64>,
    /// Milliseconds since 1970.
    pub resets_at: Option<u64>,
    pub closed: bool,
    /// Milliseconds since 1970.
    pub heard_at: u64,
}

/// What all projects together may cost in a day.
#[derive(Debug, Clone, Default, PartialEq, svc_base::recorded::Recorded)]
pub enum Budget {
    #[default]
    None,
    /// Dollars.
    Usd(f64),
    /// The user's settings cannot be read: why.
    Unknown(String),
}

/// Another project.
#[derive(Debug, Clone, PartialEq, svc_base::recorded::Recorded)]
pub struct Project {
    pub name: String,
    /// Whether its daemon runs.
    pub is_running: bool,
    /// `None` where it has told nothing yet.
    pub told: Option<Told>,
}

/// All that is known of the others.
#[derive(Debug, Clone, Default, PartialEq, svc_base::recorded::Recorded)]
pub struct Others {
    pub budget: Budget,
    pub projects: Vec<Project>,
    /// Why not all of them are known, where that is so.
    pub trouble: Option<String>,
}

/// What was heard last.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    others: Arc<Others>,
    /// When; `None` where nobody reads.
    heard_at: Option<Time>,
    /// The share of the budget over all, in percent, that people of this project were told, and on which day.
    warned: (u64, u8),
}

/// A fact from the thread that reads.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    Heard(Arc<Others>),
    /// It was read, and is what was heard before.
    Same,
}

/// Takes in what the others have told.
pub fn report(all: &mut All, cx: &mut Context, report: Report) {
    let fleet = Arc::make_mut(&mut all.fleet);
    fleet.heard_at = Some(cx.now);
    if let Report::Heard(others) = report {
        fleet.others = others;
        cx.moment(Moment::OthersTold);
    }
}

impl State {
    /// What is known when the daemon starts.
    pub fn new(others: Others, now: Time) -> Self {
        Self { others: Arc::new(others), heard_at: Some(now), ..Self::default() }
    }

    /// Whether what is known was read longer ago than this. Where nobody reads it never is.
    pub fn is_older_than(&self, age: Duration, now: Time) -> bool {
        // After the clock was set back nothing was heard in the future.
        self.heard_at.is_some_and(|at| at > now || now.since(at) > age)
    }

    /// What is known of the others.
    pub fn others(&self) -> &Others {
        &self.others
    }

    /// Whether another project's daemon runs.
    pub fn has_others(&self) -> bool {
        self.others.projects.iter().any(|project| project.is_running)
    }

    /// What the others need now, in all; of turns the dearest.
    pub fn needs(&self) -> Needs {
        let running = self.others.projects.iter().filter(|project| project.is_running);
        running.filter_map(|project| Some(project.told.as_ref()?.needs)).fold(Needs::default(), |sum, one| {
            Needs {
                under_way_usd: sum.under_way_usd + one.under_way_usd.max(0.0),
                turn_usd: sum.turn_usd.max(one.turn_usd),
                running: sum.running.saturating_add(one.running),
                in_turn: sum.in_turn.saturating_add(one.in_turn),
                promised: sum.promised.saturating_add(one.promised),
            }
        })
    }

    /// What the others have spent on a day, in dollars.
    pub fn spent_on(&self, day: u64) -> f64 {
        self.told_on(day).map(|spent| spent.usd.max(0.0)).sum::<f64>() + 0.0
    }

    /// The highest share of the budget over all, in percent, that anybody was told on a day.
    pub fn warned_on(&self, day: u64) -> u8 {
        let others = self.told_on(day).map(|spent| spent.warned);
        others.chain([self.own_warned_on(day)]).max().unwrap_or_default()
    }

    /// The same of people of this project alone.
    pub fn own_warned_on(&self, day: u64) -> u8 {
        if self.warned.0 == day { self.warned.1 } else { 0 }
    }

    /// Notes what people of this project were told.
    pub fn warn(&mut self, day: u64, percent: u8) {
        self.warned = (day, percent);
    }

    /// A clock that is ahead somewhere counts for today: what is told of a later day was spent, too.
    fn told_on(&self, day: u64) -> impl Iterator<Item = Spent> {
        let told = self.others.projects.iter().filter_map(|project| Some(project.told.as_ref()?.spent));
        told.filter(move |spent| spent.day >= day)
    }

    /// What all projects may spend in a day, in dollars; `None` for no budget.
    ///
    /// Errors: why that, or what the others have spent, is not known.
    pub fn budget(&self) -> Result<Option<f64>, String> {
        match (&self.others.budget, &self.others.trouble) {
            (Budget::None, _) => Ok(None),
            (Budget::Usd(usd), None) => Ok(Some(*usd)),
            (Budget::Unknown(why), _) | (Budget::Usd(_), Some(why)) => Err(why.clone()),
        }
    }
}
