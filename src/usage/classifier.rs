//! How heavy an agent's work is, judged by what it does.
//!
//! Points over the last [`WINDOW`] events: 30 to begin with; 20 more or less for what the task says
//! ([`tiers`]); 20 less while nothing is written, 12 less with one or two files written, 15 more with ten or
//! more; 10 more where at least five tools failed and three in ten did; 5 more with six or more different
//! tools. Below 20 is light, from 45 on heavy. Once the tier stands it moves only when the points are
//! [`HYSTERESIS`] beyond the border.

use super::tiers;
use crate::agents::Agent;
use crate::core::Notice;
use crate::core::{Context, State as All};
use crate::providers::{Activity, Tier};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Events looked at.
pub const WINDOW: usize = 200;
/// Events before anything is said.
pub const MIN_EVENTS: u64 = 40;
/// Events between two `classifier:update`.
pub const UPDATE_EVERY: u64 = 20;
/// Points beyond a border at which the tier moves.
pub const HYSTERESIS: i32 = 3;
/// Points from a border at which a suggestion is sure enough.
const CERTAIN: i32 = 5;
/// Below this many points work is light.
const LIGHT_BELOW: i32 = 20;
/// From this many points on work is heavy.
const HEAVY_FROM: i32 = 45;
/// Tool calls whose end is awaited, at most.
const OPEN_MAX: usize = 64;

/// One event, as far as it matters here. Names are kept as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
enum Seen {
    Other,
    Tool(u64),
    Failed,
    Wrote(u64),
}

/// What one lineage has done lately.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Work {
    window: VecDeque<Seen>,
    /// What the window holds, kept as it moves.
    holds: Holds,
    count: u64,
    /// Points for words of the task.
    words: i32,
    tier: Tier,
    /// Writes under way: call to file.
    open: BTreeMap<u64, u64>,
}

impl Work {
    /// Work of which only the task is known.
    pub fn new(task: &str) -> Self {
        let mut work = Self {
            window: VecDeque::new(),
            holds: Holds::default(),
            count: 0,
            words: points_of(task),
            tier: Tier::Medium,
            open: BTreeMap::new(),
        };
        work.tier = tier_of(work.points());
        work
    }

    /// Takes in an activity; whether it is an event.
    pub fn take(&mut self, activity: &Activity) -> bool {
        if !is_event(activity) {
            return false;
        }
        let seen = self.seen(activity);
        self.window.push_back(seen);
        self.holds.add(seen);
        if self.window.len() > WINDOW
            && let Some(oldest) = self.window.pop_front()
        {
            self.holds.remove(oldest);
        }
        self.count += 1;
        self.settle();
        true
    }

    /// Events over the lineage's whole life.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Events in the window.
    pub fn len(&self) -> usize {
        self.window.len()
    }

    /// Whether nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// The tier.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Whether enough was seen, and the points are far enough from a border, to suggest something.
    pub fn is_certain(&self) -> bool {
        let points = self.points();
        let distance = (points - LIGHT_BELOW).abs().min((points - HEAVY_FROM).abs());
        self.count >= MIN_EVENTS && distance >= CERTAIN && tier_of(points) == self.tier
    }

    /// What was seen, in a few words.
    pub fn summary(&self) -> String {
        let Holds { tools, failed, files, .. } = &self.holds;
        format!("{} files written, {tools} tools used, {failed} failures", files.len())
    }

    fn seen(&mut self, activity: &Activity) -> Seen {
        match activity {
            Activity::ToolStarted { id, name, path, writes, .. } => {
                if let Some(path) = path.as_ref().filter(|_| *writes && self.open.len() < OPEN_MAX) {
                    self.open.insert(hash(id), hash(path));
                }
                Seen::Tool(hash(name))
            }
            Activity::ToolEnded { id, error, .. } => match (self.open.remove(&hash(id)), error) {
                (_, true) => Seen::Failed,
                (Some(path), false) => Seen::Wrote(path),
                (None, false) => Seen::Other,
            },
            _ => Seen::Other,
        }
    }

    fn points(&self) -> i32 {
        let mut points = 30 + self.words;
        if self.window.is_empty() {
            return points;
        }
        let Holds { tools, failed, files, names } = &self.holds;
        points += match files.len() {
            0 => -20,
            1..=2 => -12,
            3..=9 => 0,
            _ => 15,
        };
        if *failed >= 5 && failed * 10 >= tools * 3 {
            points += 10;
        }
        if names.len() >= 6 { points + 5 } else { points }
    }

    /// Moves the tier when the points are far enough beyond its border. Before [`MIN_EVENTS`] the task alone
    /// decides.
    fn settle(&mut self) {
        if self.count < MIN_EVENTS {
            return;
        }
        let points = self.points();
        let next = tier_of(points);
        let moved = match (rank(self.tier), rank(next)) {
            (now, then) if now < then => tier_of(points - HYSTERESIS),
            (now, then) if now > then => tier_of(points + HYSTERESIS),
            _ => return,
        };
        self.tier = moved;
    }
}

/// What a window holds, so that no event has to look at all others.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
struct Holds {
    tools: usize,
    failed: usize,
    files: BTreeMap<u64, usize>,
    names: BTreeMap<u64, usize>,
}

impl Holds {
    fn add(&mut self, seen: Seen) {
        match seen {
            Seen::Tool(name) => {
                self.tools += 1;
                *self.names.entry(name).or_default() += 1;
            }
            Seen::Wrote(path) => *self.files.entry(path).or_default() += 1,
            Seen::Failed => self.failed += 1,
            Seen::Other => {}
        }
    }

    fn remove(&mut self, seen: Seen) {
        match seen {
            Seen::Tool(name) => {
                self.tools -= 1;
                take_one(&mut self.names, name);
            }
            Seen::Wrote(path) => take_one(&mut self.files, path),
            Seen::Failed => self.failed -= 1,
            Seen::Other => {}
        }
    }
}

fn take_one(counts: &mut BTreeMap<u64, usize>, key: u64) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// Whether clients see this activity as `agent:output`: that is an event.
pub fn is_event(activity: &Activity) -> bool {
    matches!(
        activity,
        Activity::Text { .. }
            | Activity::Thinking { .. }
            | Activity::ToolStarted { .. }
            | Activity::ToolEnded { .. }
            | Activity::Usage(_)
            | Activity::TurnEnded(_)
    )
}

/// The tier as it stands on the wire.
pub fn word(tier: Tier) -> &'static str {
    match tier {
        Tier::Light => "light",
        Tier::Medium => "medium",
        Tier::Heavy => "heavy",
    }
}

/// The order of the tiers.
pub fn rank(tier: Tier) -> u8 {
    match tier {
        Tier::Light => 0,
        Tier::Medium => 1,
        Tier::Heavy => 2,
    }
}

fn tier_of(points: i32) -> Tier {
    match points {
        ..LIGHT_BELOW => Tier::Light,
        HEAVY_FROM.. => Tier::Heavy,
        _ => Tier::Medium,
    }
}

/// Points for what the task says.
fn points_of(task: &str) -> i32 {
    let said = tiers::said(task, 0);
    match said.tier {
        Tier::Light => -20,
        Tier::Heavy if !said.signs.is_empty() => 20,
        _ => 0,
    }
}

/// A stable number for a name.
pub fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// An agent did something: weighs its work and tells of it.
pub fn heard(all: &mut All, cx: &mut Context, agent: &Agent, activities: &[Activity]) {
    if !activities.iter().any(is_event) {
        return;
    }
    let state = Arc::make_mut(&mut all.usage);
    let fresh = || Arc::new(Work::new(&agent.prompt));
    let work = Arc::make_mut(state.works.get_or_insert_with(agent.lineage_id, fresh));
    for activity in activities {
        let due = |count: u64| count >= MIN_EVENTS && (count - MIN_EVENTS).is_multiple_of(UPDATE_EVERY);
        if work.take(activity) && due(work.count) {
            let (agent_id, tier, event_count) = (agent.id, work.tier, work.count);
            cx.notice(Notice::ClassifierUpdate { agent_id, tier, event_count });
        }
    }
}
