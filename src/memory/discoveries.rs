//! What worked: told by agents and people, or seen in their logs by rules.
//!
//! **Invariant:** what says nearly the same as a known one folds into it, and counts there; what says
//! otherwise of the same is kept, and each of the two names the other.
//! **Invariant:** at the cap the least useful goes, and of equals the oldest.

use super::{MAX_DISCOVERIES, relevance};
use crate::agents::Status;
use crate::api::{Problem, Reply};
use crate::core::ids::{AgentId, LineageId};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, Moment, Notice, State as All};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use svc_base::fence::one_line;
use svc_base::sorted::Gather;

/// Texts that share this part of their words say nearly the same.
const NEAR_PERCENT: usize = 80;
/// The latest, which have had no time yet to be of use: they do not go at the cap.
const NEW: usize = 100;
/// Agents whose discoveries are remembered until they end.
const MAX_TOLD: usize = 1_000;
/// Characters of a trigger.
pub const MAX_TRIGGER_CHARS: usize = 300;
/// Characters of a fix.
pub const MAX_FIX_CHARS: usize = 500;
/// Words that turn the sense of a sentence round.
const TURNS: [&str; 9] = ["not", "no", "never", "don", "avoid", "without", "instead", "nicht", "kein"];

/// Something that worked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Discovery {
    /// When it was told first, RFC 3339.
    pub ts: String,
    /// Who found it, if told.
    pub agent_id: Option<String>,
    pub role: String,
    pub trigger: Arc<str>,
    pub fix: Arc<str>,
    /// Always `success`.
    pub outcome: String,
    /// Seen in a log by rules, and told by nobody.
    #[serde(default)]
    pub mined: bool,
    /// How often it was met again: told by others, or seen in logs.
    #[serde(default)]
    pub again: u32,
    /// When it was met last, RFC 3339; empty in files of earlier versions.
    #[serde(default)]
    pub last_seen: String,
    /// Agents that were told of it at their start, and that have ended.
    #[serde(default)]
    pub told: u32,
    /// Those of them that ended well.
    #[serde(default)]
    pub ended_well: u32,
    /// Another fix that was told for the same, the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<Arc<str>>,
    #[serde(skip)]
    #[recorded(skip)]
    gist: Known,
}

/// What a discovery says, found out once.
#[derive(Debug, Clone, Default)]
struct Known(OnceLock<Arc<Gists>>);

/// It follows from the texts.
impl PartialEq for Known {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Known {}

#[derive(Debug)]
struct Gists {
    trigger: Gist,
    whole: Gist,
}

impl Gists {
    fn of(trigger: &str, fix: &str) -> Self {
        Self { trigger: Gist::of(trigger), whole: Gist::of(&format!("{trigger} -> {fix}")) }
    }
}

impl Discovery {
    fn gists(&self) -> &Gists {
        self.gist.0.get_or_init(|| Arc::new(Gists::of(&self.trigger, &self.fix)))
    }

    /// The line in which new agents are told of it.
    pub fn line(&self) -> String {
        let who = self.agent_id.as_deref().unwrap_or("a person");
        let day = self.ts.get(..10).unwrap_or_default();
        let log = if self.mined { "the log of " } else { "" };
        let mut line = format!("- {} ({log}{who}, {day}", self.role);
        if self.again > 0 {
            let _ = write!(line, ", met {} times", self.again.saturating_add(1));
        }
        let _ = write!(line, "): {} -> {}", one_line(&self.trigger), one_line(&self.fix));
        if let Some(otherwise) = &self.otherwise {
            let _ = write!(line, " (of the same was said: {})", one_line(otherwise));
        }
        line
    }

    /// What it is worth: met again and of use counts for it, told in vain against it.
    fn worth(&self) -> i64 {
        let own = if self.mined { 0 } else { 2 };
        own + 2 * i64::from(self.again) + 2 * i64::from(self.ended_well) - i64::from(self.told)
    }
}

/// A discovery on its way in; each field checked on its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct NewDiscovery {
    /// As told.
    pub agent_id: Option<String>,
    /// As told.
    pub role: Option<String>,
    /// Trimmed, not empty.
    pub trigger: String,
    /// Trimmed, not empty.
    pub fix: String,
    /// `success` is stored, anything else is not.
    pub outcome: String,
}

/// What a log shows: something failed, and then it went well.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Learned {
    /// What failed and how, at most [`MAX_TRIGGER_CHARS`] characters.
    pub trigger: String,
    /// What was done then, at most [`MAX_FIX_CHARS`] characters.
    pub fix: String,
    /// When it went well.
    pub at: Time,
}

/// What agents were told of at their start, by trigger and fix.
pub(super) type Told = BTreeMap<LineageId, Vec<(Arc<str>, Arc<str>)>>;

/// The telling words of a text but for its numbers: by them two texts speak of one thing.
pub(super) fn subject(text: &str) -> BTreeSet<String> {
    let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit());
    relevance::words(text).into_iter().filter(|word| !is_number(word)).gather()
}

/// Whether two texts share at least [`NEAR_PERCENT`] of their words.
pub(super) fn is_near(a: &BTreeSet<String>, b: &BTreeSet<String>) -> bool {
    let (fewer, more) = if a.len() < b.len() { (a, b) } else { (b, a) };
    if fewer.is_empty() || fewer.len() * 100 < more.len() * NEAR_PERCENT {
        return false;
    }
    let shared = fewer.intersection(more).count();
    shared * 100 >= (a.len() + b.len() - shared) * NEAR_PERCENT
}

/// A text by what it says: its subject, and what makes another statement of it.
#[derive(Debug)]
struct Gist {
    subject: BTreeSet<String>,
    /// Numbers, and words that turn the sense round.
    exact: BTreeSet<String>,
}

impl Gist {
    fn of(text: &str) -> Self {
        let lower = text.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let is_exact = |word: &&str| TURNS.contains(word) || word.bytes().any(|byte| byte.is_ascii_digit());
        Self { subject: subject(text), exact: words.filter(is_exact).map(str::to_owned).gather() }
    }

    fn says(&self, other: &Self) -> bool {
        self.exact == other.exact && is_near(&self.subject, &other.subject)
    }
}

/// What became of a discovery.
enum Added {
    /// It is a new one; of the same was said this.
    New(Option<Arc<str>>),
    /// It is known, in these words.
    Known(Arc<str>, Arc<str>),
}

/// Who has found what.
struct Found<'a> {
    agent_id: Option<String>,
    role: String,
    trigger: &'a str,
    fix: &'a str,
    mined: bool,
    at: Time,
}

/// `POST /api/memory/discoveries`.
///
/// Errors: 403 `agent_may_not` for an agent that speaks for another.
pub(super) fn add(all: &mut All, cx: &mut Context, new: &NewDiscovery) -> Result<Reply, Problem> {
    let (agent_id, role) = finder(all, cx, new)?;
    if new.outcome != "success" {
        return Ok(Reply::ok(&json!({"added": false, "reason": "only successes are stored"})));
    }
    let (trigger, fix) = (new.trigger.as_str(), new.fix.as_str());
    let found =
        Found { agent_id: agent_id.clone(), role: role.clone(), trigger, fix, mined: false, at: cx.now };
    let otherwise = match put(all, cx, found) {
        Added::Known(known, its) => {
            let mut body = json!({"added": false, "reason": "duplicate"});
            if (&*known, &*its) != (trigger, fix) {
                body["known"] = json!({"trigger": known, "fix": its});
            }
            return Ok(Reply::ok(&body));
        }
        Added::New(otherwise) => otherwise,
    };
    cx.audit("memory.discovery.add", &json!({"agentId": agent_id, "role": role, "trigger": trigger}));
    cx.notice(Notice::DiscoveryAdded { agent_id, role });
    cx.push(Effect::Put(Document::Discoveries, Durability::BeforeReply));
    let mut body = json!({"added": true});
    if let Some(otherwise) = otherwise {
        body["otherwise"] = json!(otherwise);
    }
    Ok(Reply::json(201, &body))
}

/// Keeps what the log of an agent's life shows.
pub fn mined(all: &mut All, cx: &mut Context, id: AgentId, learned: &[Learned]) {
    let Some(role) = all.agents.get(id).map(|agent| agent.role.clone()) else { return };
    for Learned { trigger, fix, at } in learned {
        let agent_id = Some(id.to_string());
        let found = Found { agent_id, role: role.clone(), trigger, fix, mined: true, at: *at };
        if let Added::New(_) = put(all, cx, found) {
            cx.notice(Notice::DiscoveryAdded { agent_id: Some(id.to_string()), role: role.clone() });
            cx.push(Effect::Put(Document::Discoveries, Durability::Soon));
        }
    }
}

/// Folds it into a known one, or keeps it.
fn put(all: &mut All, cx: &mut Context, found: Found) -> Added {
    let memory = Arc::make_mut(&mut all.memory);
    let discoveries = Arc::make_mut(&mut memory.discoveries);
    let gists = Gists::of(found.trigger, found.fix);
    let is_same = |known: &Discovery| (&*known.trigger, &*known.fix) == (found.trigger, found.fix);
    let same = discoveries
        .iter()
        .position(is_same)
        .or_else(|| discoveries.iter().position(|known| gists.whole.says(&known.gists().whole)));
    if let Some(known) = same.and_then(|at| discoveries.get_mut(at)) {
        // The same log may be read more than once, and one voice counts once.
        let at = found.at.to_string();
        let is_news = if found.mined { at > known.last_seen } else { known.agent_id != found.agent_id };
        if is_news {
            known.again = known.again.saturating_add(1);
            known.last_seen = at.max(std::mem::take(&mut known.last_seen));
            // What is told counts for more than what was seen.
            known.mined &= found.mined;
            cx.push(Effect::Put(Document::Discoveries, Durability::Soon));
        }
        return Added::Known(Arc::clone(&known.trigger), Arc::clone(&known.fix));
    }
    let fix: Arc<str> = found.fix.into();
    // What rules saw is no statement: two ways may both have helped.
    let otherwise =
        (!found.mined).then(|| contradicted(discoveries, &gists.trigger, found.trigger, &fix)).flatten();
    make_room(discoveries);
    discoveries.push_back(Discovery {
        ts: cx.now.to_string(),
        agent_id: found.agent_id,
        role: found.role,
        trigger: found.trigger.into(),
        fix,
        outcome: "success".into(),
        mined: found.mined,
        again: 0,
        last_seen: found.at.to_string(),
        told: 0,
        ended_well: 0,
        otherwise: otherwise.clone(),
        gist: Known(Arc::new(gists).into()),
    });
    Added::New(otherwise)
}

/// The latest that has another fix for the same; it is told of this one.
fn contradicted(
    discoveries: &mut VecDeque<Discovery>,
    gist: &Gist,
    trigger: &str,
    fix: &Arc<str>,
) -> Option<Arc<str>> {
    let says = |known: &Discovery| *known.trigger == *trigger || gist.says(&known.gists().trigger);
    let other = discoveries.iter_mut().rev().find(|known| !known.mined && says(known))?;
    other.otherwise = Some(Arc::clone(fix));
    Some(Arc::clone(&other.fix))
}

fn make_room(discoveries: &mut VecDeque<Discovery>) {
    while discoveries.len() >= MAX_DISCOVERIES {
        let old = discoveries.len().saturating_sub(NEW);
        let least = discoveries.iter().take(old).enumerate().min_by_key(|(at, one)| (one.worth(), *at));
        let Some((at, _)) = least else { return };
        discoveries.remove(at);
    }
}

/// Who found it. A process of an agent speaks for that agent alone; its id and role are filled in.
fn finder(all: &All, cx: &Context, new: &NewDiscovery) -> Result<(Option<String>, String), Problem> {
    let unknown = || "unknown".to_owned();
    let Some(caller) = cx.actor.agent() else {
        return Ok((new.agent_id.clone(), new.role.clone().unwrap_or_else(unknown)));
    };
    let own = all.agents.find(&caller.to_string()).ok();
    let meant = new.agent_id.as_deref().map(|target| all.agents.find(target).map(|agent| agent.lineage_id));
    if let Some(meant) = meant
        && meant.ok() != own.map(|agent| agent.lineage_id)
    {
        let text = format!("agentId {:?} is not the caller's: agent {caller} calls", new.agent_id);
        return Err(Problem::new(403, "agent_may_not", text));
    }
    let role = new.role.clone().or_else(|| own.map(|agent| agent.role.clone()));
    Ok((Some(caller.to_string()), role.unwrap_or_else(unknown)))
}

/// A new agent starts with this first message: which discoveries it tells is remembered until it ends, but
/// not over a restart of the daemon.
pub fn told_in(all: &mut All, lineage: LineageId, message: &str) {
    let lines: HashSet<&str> = message.lines().filter(|line| line.starts_with("- ")).collect();
    let told = |found: &&Discovery| lines.contains(found.line().as_str());
    let pair = |found: &Discovery| (Arc::clone(&found.trigger), Arc::clone(&found.fix));
    let pairs: Vec<_> = all.memory.discoveries().filter(told).map(pair).collect();
    if pairs.is_empty() || all.memory.told.len() >= MAX_TOLD {
        return;
    }
    Arc::make_mut(&mut Arc::make_mut(&mut all.memory).told).insert(lineage, pairs);
}

/// An agent has ended: what it was told of was of use, or not.
pub(super) fn moment(all: &mut All, cx: &mut Context, moment: &Moment) {
    let (lineage, has_ended_well) = match *moment {
        Moment::Ended(id) => {
            let Some(agent) = all.agents.get(id) else { return };
            (agent.lineage_id, agent.status == Status::Completed)
        }
        Moment::Removed(_, lineage) => (lineage, false),
        _ => return,
    };
    if !all.memory.told.contains_key(&lineage) {
        return;
    }
    let memory = Arc::make_mut(&mut all.memory);
    let told = Arc::make_mut(&mut memory.told).remove(&lineage).unwrap_or_default();
    let is_one =
        |found: &Discovery| told.iter().any(|(trigger, fix)| (trigger, fix) == (&found.trigger, &found.fix));
    for found in Arc::make_mut(&mut memory.discoveries).iter_mut().filter(|found| is_one(found)) {
        found.told = found.told.saturating_add(1);
        found.ended_well = found.ended_well.saturating_add(u32::from(has_ended_well));
    }
    cx.push(Effect::Put(Document::Discoveries, Durability::Soon));
}
