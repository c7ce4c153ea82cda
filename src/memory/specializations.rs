//! What agents and roles have shown themselves to be good at, and which files they work on.

use crate::agents;
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Context, Document, Durability, Effect, Moment, State as All};
use crate::providers::Activity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Agent profiles kept; the one without news for longest goes first.
pub const MAX_PROFILES: usize = 1000;
/// Roles kept; further ones are not counted.
pub const MAX_ROLES: usize = 200;
/// Files counted per profile; the least touched makes room.
pub const MAX_FILES: usize = 200;
/// Files of a role that are shown.
pub const TOP_FILES: usize = 20;

/// All profiles.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Specializations {
    agents: BTreeMap<LineageId, Arc<Profile>>,
    roles: BTreeMap<String, Arc<RoleProfile>>,
}

/// One lineage.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    agent_id: AgentId,
    agent_name: String,
    role: String,
    counts: Counts,
    preferred_threshold: Option<f64>,
    /// Milliseconds since 1970.
    updated: u64,
}

/// One role of this project.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RoleProfile {
    counts: Counts,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
        if !self.files.contains_key(path) && self.files.len() >= MAX_FILES {
            let least = self.files.iter().min_by_key(|(_, count)| **count).map(|(path, _)| path.clone());
            if let Some(least) = least {
                self.files.remove(&least);
            }
        }
        let count = self.files.entry(path.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    fn top(&self) -> Vec<(&str, u32)> {
        let mut files: Vec<_> = self.files.iter().map(|(path, count)| (path.as_str(), *count)).collect();
        files.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        files.truncate(TOP_FILES);
        files
    }
}

impl Specializations {
    /// The files this role changes most, most first.
    pub fn top_files(&self, role: &str) -> Vec<(&str, u32)> {
        self.roles.get(role).map(|profile| profile.counts.top()).unwrap_or_default()
    }

    /// `GET /api/memory/specializations`.
    pub fn shown(&self, default_threshold: f64) -> Value {
        let agents: BTreeMap<String, Value> = self
            .agents
            .iter()
            .filter_map(|(id, profile)| {
                Some((profile.agent_id.to_string(), self.agent(*id, default_threshold)?))
            })
            .collect();
        let roles: BTreeMap<&str, Value> = self
            .roles
            .iter()
            .map(|(role, profile)| {
                let top: BTreeMap<_, _> = profile.counts.top().into_iter().collect();
                let shown = json!({
                    "sessionCount": profile.counts.sessions,
                    "avgQualityScore": profile.counts.average(),
                    "topFileChurn": top,
                });
                (role.as_str(), shown)
            })
            .collect();
        json!({"perAgent": agents, "perProjectRole": roles})
    }

    /// One lineage's profile.
    pub fn agent(&self, lineage: LineageId, default_threshold: f64) -> Option<Value> {
        let profile = self.agents.get(&lineage)?;
        Some(json!({
            "agentId": profile.agent_id,
            "lineageId": lineage,
            "agentName": profile.agent_name,
            "role": profile.role,
            "sessionCount": profile.counts.sessions,
            "avgQualityScore": profile.counts.average(),
            "fileTouches": profile.counts.files,
            "preferredThreshold": profile.preferred_threshold.unwrap_or(default_threshold),
        }))
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
        let profile = self.agents.entry(agent.lineage_id).or_insert_with(|| {
            Arc::new(Profile {
                agent_id: agent.id,
                agent_name: agent.name.clone(),
                role: agent.role.clone(),
                counts: Counts::default(),
                preferred_threshold: None,
                updated: now,
            })
        });
        let profile = Arc::make_mut(profile);
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

/// A process life that has begun is a session.
pub fn told(all: &mut All, cx: &mut Context, moment: &Moment) {
    let Moment::Started(id) = *moment else { return };
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
