//! What agents and roles have shown themselves to be good at, and which files they work on.

use crate::agents;
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::providers::Activity;
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use svc_base::bounded;
use svc_base::chunked::ChunkedMap;
use svc_base::sorted::{self, Gather};

/// Agent profiles kept; the one without news for longest goes first.
pub const MAX_PROFILES: usize = 1000;
/// Profiles of agents whose records are gone, among them; what they have shown stays counted in their roles.
pub const MAX_GONE: usize = 100;
/// Roles kept; further ones are not counted.
pub const MAX_ROLES: usize = 200;
/// Files counted per profile; the least touched makes room.
pub const MAX_FILES: usize = 200;
/// Files of a role that are shown.
pub const TOP_FILES: usize = 20;

/// All profiles.
#[derive(Debug, Clone, Default, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Specializations {
    #[serde(serialize_with = "by_lineage", deserialize_with = "of_lineages")]
    agents: ChunkedMap<LineageId, Arc<Profile>>,
    roles: BTreeMap<String, Arc<RoleProfile>>,
}

/// As an object.
fn by_lineage<S: Serializer>(
    agents: &ChunkedMap<LineageId, Arc<Profile>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(agents.iter())
}

fn of_lineages<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ChunkedMap<LineageId, Arc<Profile>>, D::Error> {
    let agents = BTreeMap::<LineageId, Arc<Profile>>::deserialize(deserializer)?;
    Ok(agents.into_iter().collect())
}

/// One lineage.
#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
struct Profile {
    agent_id: AgentId,
    agent_name: String,
    role: String,
    counts: Counts,
    preferred_threshold: Option<f64>,
    /// Milliseconds since 1970.
    updated: u64,
    /// How it was shown last, with this default threshold.
    #[serde(skip)]
    #[recorded(skip)]
    shown: OnceLock<(f64, Box<RawValue>)>,
}

/// One role of this project.
#[derive(Debug, Clone, Default, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
struct RoleProfile {
    counts: Counts,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
struct Counts {
    sessions: u64,
    scored_sessions: u64,
    score_sum: f64,
    files: BTreeMap<String, u32>,
}

impl Counts {
    /// The average score; `None` before the first scored session.
    #[allow(clippy::cast_precision_loss, reason = "sessions are counted in thousands at most")]
    fn average(&self) -> Option<f64> {
        let average = self.score_sum / self.scored_sessions as f64;
        (self.scored_sessions > 0).then(|| (average * 10.0).round() / 10.0)
    }

    fn touch(&mut self, path: &str) {
        bounded::make_room(&mut self.files, path, MAX_FILES, |count| *count);
        let count = self.files.entry(path.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    fn top(&self) -> Vec<(&str, u32)> {
        let mut files: Vec<_> = self.files.iter().map(|(path, count)| (path.as_str(), *count)).collect();
        sorted::by(&mut files, |a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        files.truncate(TOP_FILES);
        files
    }
}

impl Profile {
    fn told(&self, lineage: LineageId, default_threshold: f64) -> Value {
        json!({
            "agentId": self.agent_id,
            "lineageId": lineage,
            "agentName": self.agent_name,
            "role": self.role,
            "sessionCount": self.counts.sessions,
            "avgQualityScore": self.counts.average(),
            "fileTouches": self.counts.files,
            "preferredThreshold": self.preferred_threshold.unwrap_or(default_threshold),
        })
    }

    /// As told: encoded once for as long as it stays as it is.
    fn encoded(&self, lineage: LineageId, default_threshold: f64) -> Option<Cow<'_, RawValue>> {
        let is_same = |known: f64| known.to_bits() == default_threshold.to_bits();
        if let Some((_, known)) = self.shown.get().filter(|(threshold, _)| is_same(*threshold)) {
            return Some(Cow::Borrowed(known));
        }
        let encoded = serde_json::value::to_raw_value(&self.told(lineage, default_threshold)).ok()?;
        // Another reader may have been first, or the threshold is a new one: this answer is as good.
        let _ = self.shown.set((default_threshold, encoded.clone()));
        Some(Cow::Owned(encoded))
    }
}

/// `GET /api/memory/specializations`.
#[derive(Serialize)]
pub struct Shown<'a> {
    #[serde(rename = "perAgent")]
    agents: BTreeMap<String, Cow<'a, RawValue>>,
    #[serde(rename = "perProjectRole")]
    roles: BTreeMap<&'a str, Value>,
}

impl Specializations {
    /// The files this role changes most, most first.
    pub fn top_files(&self, role: &str) -> Vec<(&str, u32)> {
        self.roles.get(role).map(|profile| profile.counts.top()).unwrap_or_default()
    }

    /// `GET /api/memory/specializations`.
    pub fn shown(&self, default_threshold: f64) -> Shown<'_> {
        let agents = self
            .agents
            .iter()
            .filter_map(|(id, profile)| {
                Some((profile.agent_id.to_string(), profile.encoded(*id, default_threshold)?))
            })
            .gather();
        let roles = self
            .roles
            .iter()
            .map(|(role, profile)| {
                let top: BTreeMap<_, _> = profile.counts.top().into_iter().gather();
                let shown = json!({
                    "sessionCount": profile.counts.sessions,
                    "avgQualityScore": profile.counts.average(),
                    "topFileChurn": top,
                });
                (role.as_str(), shown)
            })
            .gather();
        Shown { agents, roles }
    }

    /// One lineage's profile.
    pub fn agent(&self, lineage: LineageId, default_threshold: f64) -> Option<Value> {
        Some(self.agents.get(&lineage)?.told(lineage, default_threshold))
    }

    /// Forgets the profiles of agents that are not `known` any more, but for the last [`MAX_GONE`].
    pub(super) fn forget(&mut self, known: &agents::State) -> bool {
        if self.agents.len() <= MAX_GONE {
            return false;
        }
        let known: BTreeSet<LineageId> = known.iter().map(|agent| agent.lineage_id).gather();
        let gone = self.agents.iter().filter(|(lineage, _)| !known.contains(lineage));
        let mut gone: Vec<_> = gone.map(|(lineage, profile)| (profile.updated, *lineage)).collect();
        let surplus = gone.len().saturating_sub(MAX_GONE);
        sorted::up(&mut gone);
        for (_, lineage) in gone.into_iter().take(surplus) {
            self.agents.remove(&lineage);
        }
        surplus > 0
    }

    /// The lineage that had this id in one of its lives.
    pub fn lineage_of(&self, id: AgentId) -> Option<LineageId> {
        self.agents.iter().find(|(_, profile)| profile.agent_id == id).map(|(lineage, _)| *lineage)
    }

    fn profile(&mut self, agent: &crate::agents::Agent, now: u64) -> &mut Profile {
        if !self.agents.contains_key(&agent.lineage_id) && self.agents.len() >= MAX_PROFILES {
            let oldest = self.agents.iter().min_by_key(|(_, profile)| profile.updated).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                self.agents.remove(&oldest);
            }
        }
        let profile = self.agents.get_or_insert_with(agent.lineage_id, || {
            Arc::new(Profile {
                agent_id: agent.id,
                agent_name: agent.name.clone(),
                role: agent.role.clone(),
                counts: Counts::default(),
                preferred_threshold: None,
                updated: now,
                shown: OnceLock::new(),
            })
        });
        let profile = Arc::make_mut(profile);
        profile.shown = OnceLock::new();
        profile.agent_id = agent.id;
        profile.agent_name.clone_from(&agent.name);
        profile.updated = now;
        profile
    }

    fn role(&mut self, role: &str) -> Option<&mut RoleProfile> {
        if !self.roles.contains_key(role) && self.roles.len() >= MAX_ROLES {
            return None;
        }
        Some(Arc::make_mut(self.roles.entry(role.to_owned()).or_default()))
    }

    /// Applies `change` to the agent's counts and to those of its role.
    fn count(&mut self, agent: &crate::agents::Agent, now: u64, change: impl Fn(&mut Counts)) {
        change(&mut self.profile(agent, now).counts);
        if let Some(role) = self.role(&agent.role) {
            change(&mut role.counts);
        }
    }
}

/// A process life that has begun is a session. Of agents whose records are gone the last are remembered.
pub fn told(all: &mut All, cx: &mut Context, moment: &Moment) {
    let id = match *moment {
        Moment::Started(id) => id,
        Moment::Removed(..) => {
            if all.memory.specializations.agents.len() <= MAX_GONE {
                return;
            }
            let memory = Arc::make_mut(&mut all.memory);
            if Arc::make_mut(&mut memory.specializations).forget(&all.agents) {
                cx.push(Effect::Put(Document::Specializations, Durability::Soon));
            }
            return;
        }
        _ => return,
    };
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let memory = Arc::make_mut(&mut all.memory);
    Arc::make_mut(&mut memory.specializations).count(&agent, cx.now.0, |counts| counts.sessions += 1);
    cx.push(Effect::Put(Document::Specializations, Durability::Soon));
}

/// Counts the files an agent touches; for its role, those it writes.
pub fn heard(all: &mut All, cx: &mut Context, id: AgentId, activities: &[Activity]) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let touched = agents::touched(&agent, activities);
    if touched.is_empty() {
        return;
    }
    let project = Arc::clone(&all.project);
    let memory = Arc::make_mut(&mut all.memory);
    let specializations = Arc::make_mut(&mut memory.specializations);
    for file in touched {
        let path = agent.project_path(&project.dir, &file.path);
        specializations.profile(&agent, cx.now.0).counts.touch(&path);
        if file.writes
            && let Some(role) = specializations.role(&agent.role)
        {
            role.counts.touch(&path);
        }
    }
    cx.push(Effect::Put(Document::Specializations, Durability::Soon));
}

/// A session's quality was scored, 0 to 100; `threshold` is the rotation threshold that suits the agent. To
/// be called by whoever scores sessions, once for each.
pub fn session_scored(all: &mut All, cx: &mut Context, id: AgentId, score: f64, threshold: Option<f64>) {
    let Some(agent) = all.agents.get(id).cloned() else { return };
    let memory = Arc::make_mut(&mut all.memory);
    let specializations = Arc::make_mut(&mut memory.specializations);
    specializations.count(&agent, cx.now.0, |counts| {
        counts.scored_sessions += 1;
        counts.score_sum += score.clamp(0.0, 100.0);
    });
    if threshold.is_some() {
        specializations.profile(&agent, cx.now.0).preferred_threshold = threshold;
    }
    cx.push(Effect::Put(Document::Specializations, Durability::Soon));
}
