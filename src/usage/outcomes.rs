//! What came of work here, by the task and the tier of the model that did it, and which tier a new task needs
//! by that: the rule of [`tiers`] first, moved where similar tasks say otherwise.
//!
//! **Invariant:** a lighter tier than the rule's is taken only where at least [`LIGHTER_BY`] similar tasks
//! that looked as heavy by the rule went well with it, and none failed.
//! **Invariant:** bounded by [`MAX_OUTCOMES`]; the oldest goes.

use super::classifier::{hash, rank, word};
use super::{model_of, tiers};
use crate::agents::{Agent, Status};
use crate::context::brief;
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Actor, Context, Document, Durability, Effect, Moment, State as All};
use crate::providers::{self, Activity, Tier, windows};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use svc_base::bounded;
use svc_base::chunked::ChunkedMap;
use svc_base::fence::one_line;
use svc_base::sorted::{self, Gather};
use svc_base::terms::{self, Wanted};

/// Outcomes that are kept.
pub const MAX_OUTCOMES: usize = 300;
/// Characters kept of a task.
pub const TASK_CHARS: usize = 300;
/// Folders kept of one.
const MAX_PLACES: usize = 8;
/// Words of a task that are compared.
const MAX_WORDS: usize = 32;
/// From this likeness on tasks are similar; 1 is the same.
const SIMILAR: f64 = 0.25;
/// What a shared folder adds to it.
const SAME_PLACE: f64 = 0.1;
/// Similar ones that are looked at, the most alike.
const NEAREST: usize = 5;
/// Similar tasks that must have gone well with a lighter tier before it is taken.
pub const LIGHTER_BY: usize = 2;
/// Checks under way that are remembered of one agent.
const MAX_CHECKS: usize = 16;
/// Characters of a task as a reason quotes it.
const QUOTED_CHARS: usize = 60;
/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// What came of the work of a lineage with a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "lowercase")]
pub enum Came {
    /// It ended by itself, and nobody said that it was wrong.
    Well,
    /// The last check that it ran had failed.
    Red,
    /// A person has corrected it.
    Corrected,
    /// It was replaced because its work got worse.
    Worse,
    /// It was given a stronger model.
    Replaced,
}

impl Came {
    fn words(self) -> &'static str {
        match self {
            Self::Well => "ended well",
            Self::Red => "ended with a failed check",
            Self::Corrected => "was corrected",
            Self::Worse => "got worse and was replaced",
            Self::Replaced => "was given a stronger model",
        }
    }
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Whose; `None` of what was taken in from elsewhere.
    pub lineage: Option<LineageId>,
    pub at: Time,
    /// At most [`TASK_CHARS`] characters, in one line.
    pub task: String,
    /// Folders that it wrote in.
    pub places: Vec<String>,
    pub tier: Tier,
    pub came: Came,
}

/// What is known of a lineage at work.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
struct Open {
    tier: Tier,
    /// Calls of checks under way.
    checks: BTreeSet<u64>,
    red: bool,
    came: Option<Came>,
}

impl Open {
    fn new(tier: Tier) -> Self {
        Self { tier, checks: BTreeSet::new(), red: false, came: None }
    }
}

/// What came of work here. Who is at work is not kept over a restart.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    known: Arc<VecDeque<Outcome>>,
    open: ChunkedMap<LineageId, Arc<Open>>,
}

/// `.svc/state/outcomes.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    outcomes: Vec<Outcome>,
}

impl State {
    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, outcomes: self.known.iter().cloned().collect() }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        let from = stored.outcomes.len().saturating_sub(MAX_OUTCOMES);
        Self { known: Arc::new(stored.outcomes.into_iter().skip(from).collect()), ..Self::default() }
    }

    /// What is known, the oldest first.
    pub fn known(&self) -> &VecDeque<Outcome> {
        &self.known
    }
}

/// Which tier a task needs, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub tier: Tier,
    /// For people.
    pub reason: String,
    /// The most similar ones that were looked at, with their likeness.
    pub similar: Vec<(Outcome, f64)>,
}

/// Judges a task by its words, its folders and what came of similar ones.
pub fn judge<'a>(known: impl Iterator<Item = &'a Outcome>, task: &str, places: &[String]) -> Verdict {
    let said = tiers::said(task, places.len());
    let similar = nearest(known, task, places);
    let (mut tier, mut why) = (said.tier, None);
    while let Some(failed) = refuted(&similar, tier) {
        why = Some(failed);
        let Some(heavier) = heavier(tier) else { break };
        tier = heavier;
    }
    if why.is_none()
        && let Some(lighter) = lighter(tier)
        && let Some(shown) = shown(&similar, said.tier, lighter)
    {
        (tier, why) = (lighter, Some(shown));
    }
    let reason = match why {
        Some(why) if tier != said.tier => format!("{}, but {why}", said.reason()),
        Some(why) => format!("{}, and {why}", said.reason()),
        None => said.reason(),
    };
    Verdict { tier, reason, similar: similar.into_iter().map(|(one, like)| (one.clone(), like)).collect() }
}

/// Whether similar tasks failed with this tier or a heavier one, more than went well with it or a lighter.
fn refuted(similar: &[(&Outcome, f64)], tier: Tier) -> Option<String> {
    let failed = |(one, _): &&(&Outcome, f64)| one.came != Came::Well && rank(one.tier) >= rank(tier);
    let well = |(one, _): &&(&Outcome, f64)| one.came == Came::Well && rank(one.tier) <= rank(tier);
    let sum = |of: &dyn Fn(&&(&Outcome, f64)) -> bool| {
        similar.iter().filter(of).map(|(_, likeness)| likeness).sum::<f64>()
    };
    let (first, _) = similar.iter().find(failed)?;
    (sum(&failed) > sum(&well))
        .then(|| format!("{} {} with a {} model", quoted(&first.task), first.came.words(), word(first.tier)))
}

/// Whether enough similar tasks went well with this tier or a lighter one, and none failed. What looks easier
/// by its words proves nothing of what looks harder.
fn shown(similar: &[(&Outcome, f64)], looks: Tier, tier: Tier) -> Option<String> {
    let is_well = |(one, _): &&(&Outcome, f64)| {
        let looked = tiers::said(&one.task, one.places.len()).tier;
        one.came == Came::Well && rank(one.tier) <= rank(tier) && rank(looked) >= rank(looks)
    };
    let failed = |(one, _): &(&Outcome, f64)| one.came != Came::Well && rank(one.tier) >= rank(tier);
    let well: Vec<&(&Outcome, f64)> = similar.iter().filter(is_well).collect();
    let (first, _) = well.first()?;
    (well.len() >= LIGHTER_BY && !similar.iter().any(failed)).then(|| {
        let more = well.len() - 1;
        format!("{} and {more} more like it ended well with a {} model", quoted(&first.task), word(tier))
    })
}

fn quoted(task: &str) -> String {
    match task.char_indices().nth(QUOTED_CHARS) {
        Some((at, _)) => format!("\"{}…\"", &task[..at]),
        None => format!("\"{task}\""),
    }
}

fn heavier(tier: Tier) -> Option<Tier> {
    match tier {
        Tier::Light => Some(Tier::Medium),
        Tier::Medium => Some(Tier::Heavy),
        Tier::Heavy => None,
    }
}

fn lighter(tier: Tier) -> Option<Tier> {
    match tier {
        Tier::Light => None,
        Tier::Medium => Some(Tier::Light),
        Tier::Heavy => Some(Tier::Medium),
    }
}

/// The most similar ones: shared words count by how rare they are here, near ones half.
#[allow(clippy::cast_precision_loss, reason = "a few hundred")]
fn nearest<'a>(
    known: impl Iterator<Item = &'a Outcome>,
    task: &str,
    places: &[String],
) -> Vec<(&'a Outcome, f64)> {
    let own = terms::wanted(task, MAX_WORDS);
    let others: Vec<(&Outcome, Vec<Wanted>)> =
        known.map(|one| (one, terms::wanted(&one.task, MAX_WORDS))).collect();
    let mut often: BTreeMap<u32, usize> = BTreeMap::new();
    for word in others.iter().flat_map(|(_, words)| words) {
        *often.entry(word.stem).or_default() += 1;
    }
    let weight = |word: &Wanted| {
        let seen = often.get(&word.stem).copied().unwrap_or_default();
        (1.0 + others.len() as f64 / (1.0 + seen as f64)).ln().powi(2)
    };
    let whole = |words: &[Wanted]| words.iter().map(weight).sum::<f64>().max(f64::MIN_POSITIVE);
    let own_whole = whole(&own);
    let mut alike: Vec<(&Outcome, f64)> = others
        .iter()
        .map(|(one, words)| {
            let shared: f64 = own.iter().map(|word| shares(word, words) * weight(word)).sum();
            let same_place =
                one.places.iter().any(|place| places.iter().any(|other| is_within(other, place)));
            let likeness = shared / (own_whole * whole(words)).sqrt();
            (*one, if same_place && likeness > 0.0 { likeness + SAME_PLACE } else { likeness })
        })
        .filter(|(_, likeness)| *likeness >= SIMILAR)
        .collect();
    sorted::by(&mut alike, |(_, a), (_, b)| b.total_cmp(a));
    alike.truncate(NEAREST);
    alike
}

fn shares(word: &Wanted, words: &[Wanted]) -> f64 {
    let is_same = |other: &Wanted| other.stem == word.stem;
    let is_near = |other: &Wanted| {
        other.key == word.key || word.near.iter().any(|(key, stem)| (*key, *stem) == (other.key, other.stem))
    };
    match (words.iter().any(is_same), words.iter().any(is_near)) {
        (true, _) => 1.0,
        (false, true) => 0.5,
        (false, false) => 0.0,
    }
}

/// Whether one of two folders lies in the other.
fn is_within(a: &str, b: &str) -> bool {
    let below = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    !a.is_empty() && !b.is_empty() && (below(a, b) || below(b, a))
}

/// The folders that a new agent is about: its scope and where it works.
pub fn places_of(agent: &Agent) -> Vec<String> {
    let begins = |glob: &String| {
        let plain = glob.split(['*', '?', '[', '{']).next().unwrap_or_default();
        plain.trim_matches('/').to_owned()
    };
    let own = [agent.working_dir.trim_matches(['.', '/']).to_owned()];
    let all: BTreeSet<String> = agent.scope.iter().map(begins).chain(own).gather();
    all.into_iter().filter(|place| !place.is_empty()).take(MAX_PLACES).collect()
}

/// The folders of files that it has written.
fn written_by(agent: &Agent, root: &str) -> Vec<String> {
    let folder = |path: &str| {
        let path = brief::relative(path, root);
        path.rsplit_once('/').map(|(folder, _)| folder.to_owned())
    };
    let written = agent.files.iter().filter(|(_, touch)| touch.writes > 0);
    let folders: BTreeSet<String> = written.filter_map(|(path, _)| folder(path)).gather();
    folders.into_iter().take(MAX_PLACES).collect()
}

/// The tier of the model that an agent runs, where it is one of the listed ones.
fn tier_of(all: &All, agent: &Agent) -> Option<Tier> {
    let info = providers::by_id(&agent.provider)?.info();
    let running = windows::plain_name(&model_of(all, agent));
    info.models.iter().find(|model| windows::plain_name(model.id) == running).map(|model| model.tier)
}

fn opened<'a>(all: &'a mut All, agent: &Agent) -> Option<&'a mut Open> {
    let lineage = agent.lineage_id;
    let known = all.outcomes.open.get(&lineage).is_some();
    let tier = if known { Tier::Medium } else { tier_of(all, agent)? };
    let open = &mut Arc::make_mut(&mut all.outcomes).open;
    Some(Arc::make_mut(open.get_or_insert_with(lineage, || Arc::new(Open::new(tier)))))
}

/// An agent did something: how its last check ended is remembered.
pub fn heard(all: &mut All, _: &mut Context, id: AgentId, activities: &[Activity]) {
    let begins =
        |activity: &Activity| matches!(activity, Activity::ToolStarted { input, .. } if is_check(input));
    let ends = |activity: &Activity| matches!(activity, Activity::ToolEnded { .. });
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let known = all.outcomes.open.get(&agent.lineage_id);
    let awaits = known.is_some_and(|open| !open.checks.is_empty());
    if !activities.iter().any(|activity| begins(activity) || (awaits && ends(activity))) {
        return;
    }
    let Some(open) = opened(all, &agent) else { return };
    for activity in activities {
        match activity {
            Activity::ToolStarted { id, input, .. } if is_check(input) && open.checks.len() < MAX_CHECKS => {
                open.checks.insert(hash(id));
            }
            Activity::ToolEnded { id, error, output } if open.checks.remove(&hash(id)) => {
                open.red = *error || brief::failing_line_of_success(output).is_some();
            }
            _ => {}
        }
    }
}

/// Whether a call of a tool is one of a test, a build or a lint.
fn is_check(input: &Value) -> bool {
    const CHECKS: &str = " test tests check clippy lint tsc pytest jest vitest rspec phpunit build compile mypy ruff \
        eslint ctest nextest verify ";
    let Some(command) = input["command"].as_str() else { return false };
    let mut words = command.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 2);
    words.any(|word| CHECKS.contains(&format!(" {} ", word.to_ascii_lowercase())))
}

/// A person has said something to an agent that has worked already: a correction counts against its tier.
pub fn told(all: &mut All, cx: &mut Context, agent: &Agent, message: &str) {
    // What the daemon passes on is no person's word: it may come from a stranger.
    let is_person = matches!(cx.actor, Actor::Operator | Actor::Chat(_));
    if !is_person || agent.turns == 0 || !corrects(message) {
        return;
    }
    let Some(open) = opened(all, agent) else { return };
    open.came = open.came.or(Some(Came::Corrected));
    let tier = open.tier;
    if all.outcomes.known.iter().any(|one| one.lineage == Some(agent.lineage_id) && one.tier == tier) {
        note(all, cx, agent, tier, Came::Corrected);
    }
}

/// Whether a message says that what was done is wrong.
fn corrects(message: &str) -> bool {
    const BEGINS: [&str; 6] = ["no,", "no.", "nope", "nein", "non,", "wrong"];
    const SAYS: [&str; 20] = [
        "is wrong",
        "was wrong",
        "not what i",
        "incorrect",
        "still fails",
        "still failing",
        "still broken",
        "still wrong",
        "still not",
        "doesn't work",
        "does not work",
        "didn't work",
        "you broke",
        "revert that",
        "undo that",
        "ist falsch",
        "geht nicht",
        "funktioniert nicht",
        "ne marche pas",
        "no funciona",
    ];
    let lower = one_line(message).to_lowercase().replace('’', "'");
    BEGINS.iter().any(|begin| lower.starts_with(begin)) || SAYS.iter().any(|words| lower.contains(words))
}

/// Something happened to an agent.
pub fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    match *moment {
        Moment::Started(id) => started(all, cx, id),
        Moment::Rotated { new: id, .. } => {
            let last = all.agents.rotations().entries.iter().rev().find(|entry| entry.new == id);
            let is_worse = last.is_some_and(|entry| entry.reason == "quality_degradation");
            let Some(agent) = all.agents.get(id).cloned().filter(|_| is_worse) else { return };
            if let Some(open) = opened(all, &agent) {
                open.came = open.came.or(Some(Came::Worse));
            }
        }
        Moment::Ended(id) => {
            let Some(agent) = all.agents.get(id).cloned() else { return };
            if agent.status != Status::Completed {
                return;
            }
            let Some(open) = opened(all, &agent) else { return };
            let ended = if open.red { Came::Red } else { Came::Well };
            let (tier, came) = (open.tier, open.came.unwrap_or(ended));
            note(all, cx, &agent, tier, came);
        }
        Moment::Removed(_, lineage) if all.outcomes.open.get(&lineage).is_some() => {
            Arc::make_mut(&mut all.outcomes).open.remove(&lineage);
        }
        _ => {}
    }
}

/// A life of it runs: with a stronger model than the one before, that one did not do.
fn started(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let Some(now) = tier_of(all, &agent) else { return };
    let Some(open) = opened(all, &agent) else { return };
    let before = open.tier;
    if before != now {
        *open = Open::new(now);
        if rank(now) > rank(before) {
            note(all, cx, &agent, before, Came::Replaced);
        }
    }
}

/// Keeps what came of it; what was wrong once with a tier stays so.
fn note(all: &mut All, cx: &mut Context, agent: &Agent, tier: Tier, came: Came) {
    let task: String = one_line(&agent.prompt).chars().take(TASK_CHARS).collect();
    if task.is_empty() {
        return;
    }
    let places = written_by(agent, &brief::root_of(all, agent));
    let known = Arc::make_mut(&mut Arc::make_mut(&mut all.outcomes).known);
    let is_same = |one: &Outcome| one.lineage == Some(agent.lineage_id) && one.tier == tier;
    let earlier = known.iter().position(is_same).and_then(|at| known.remove(at));
    let came = earlier.map(|one| one.came).filter(|earlier| *earlier != Came::Well).unwrap_or(came);
    let outcome = Outcome { lineage: Some(agent.lineage_id), at: cx.now, task, places, tier, came };
    bounded::push(known, outcome, MAX_OUTCOMES);
    cx.push(Effect::Put(Document::Outcomes, Durability::Soon));
}

/// How many outcomes are known, by tier.
pub fn counted(all: &All) -> Value {
    let count = |tier: Tier, well: bool| {
        let is_one = |one: &&Outcome| one.tier == tier && (one.came == Came::Well) == well;
        all.outcomes.known.iter().filter(is_one).count()
    };
    let tiers = [Tier::Light, Tier::Medium, Tier::Heavy];
    let rows =
        tiers.map(|tier| (word(tier), json!({"well": count(tier, true), "notWell": count(tier, false)})));
    json!(rows.into_iter().collect::<BTreeMap<_, _>>())
}

/// A verdict as it is shown.
pub fn shown_verdict(verdict: &Verdict) -> Value {
    let similar = verdict.similar.iter().map(|(one, likeness)| {
        json!({
            "task": one.task, "tier": one.tier, "came": one.came, "at": one.at.to_string(),
            "likeness": (likeness * 100.0).round() / 100.0,
        })
    });
    json!({
        "suggestedTier": verdict.tier,
        "reason": verdict.reason,
        "similar": similar.collect::<Vec<_>>(),
    })
}
