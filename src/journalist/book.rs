//! The notes: what is kept of the agents' activities, by workspace.

use crate::agents::Agent;
use crate::core::ids::LineageId;
use crate::core::time::{Time, rfc3339};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use svc_base::bounded;
use svc_base::fence::one_line;

/// Workspaces kept; the one without news for longest goes first.
pub const MAX_WORKSPACES: usize = 50;
/// Agents of one workspace; as above.
pub const MAX_AGENTS: usize = 60;
/// Files of one workspace; as above.
pub const MAX_FILES: usize = 400;
/// Failures, and questions, of one workspace; the oldest goes first.
pub const MAX_NOTES: usize = 30;
/// Decisions of the project; the oldest goes first.
pub const MAX_DECISIONS: usize = 300;
/// Characters of a note.
const NOTE_CHARS: usize = 300;

/// All notes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Book {
    /// By working directory; the empty one is the project's root.
    pub workspaces: BTreeMap<String, Arc<Workspace>>,
    /// Oldest first.
    pub decisions: VecDeque<Note>,
}

/// What happened in one working directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase", default)]
pub struct Workspace {
    pub agents: BTreeMap<LineageId, AgentNote>,
    pub files: BTreeMap<String, FileNote>,
    /// Not followed by a success of the same command yet.
    pub failures: VecDeque<Note>,
    pub questions: VecDeque<Note>,
}

/// An agent, as it was when it last did something that changes its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct AgentNote {
    pub name: String,
    pub role: String,
    pub status: String,
    pub task: String,
    /// The end of its last turn.
    pub words: String,
    #[serde(with = "rfc3339")]
    pub at: Time,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct FileNote {
    pub writes: u32,
    pub last_by: String,
    #[serde(with = "rfc3339")]
    pub at: Time,
}

/// Something said or met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    pub agent: String,
    pub workspace: String,
    pub text: String,
    #[serde(with = "rfc3339")]
    pub at: Time,
}

impl Note {
    /// A note of `agent` in one line.
    pub fn new(agent: &Agent, text: &str, at: Time) -> Self {
        let workspace = agent.working_dir.clone();
        Self { agent: agent.name.clone(), workspace, text: shortened(text), at }
    }
}

impl Book {
    /// The workspace of a working directory, made when there is none.
    pub fn workspace(&mut self, dir: &str) -> &mut Workspace {
        bounded::make_room(&mut self.workspaces, dir, MAX_WORKSPACES, |workspace| workspace.last());
        Arc::make_mut(self.workspaces.entry(dir.to_owned()).or_default())
    }

    /// Notes where an agent is in its life.
    pub fn agent(&mut self, agent: &Agent, now: Time) {
        let agents = &mut self.workspace(&agent.working_dir).agents;
        bounded::make_room(agents, &agent.lineage_id, MAX_AGENTS, |note| note.at);
        let status = if agent.status.is_live() {
            "at work".to_owned()
        } else {
            format!("{:?}", agent.status).to_lowercase()
        };
        let words = agent.last_turn.as_ref().map(|turn| shortened(&turn.text)).unwrap_or_default();
        let before = agents.get(&agent.lineage_id);
        let same = before
            .is_some_and(|note| note.status == status && note.words == words && note.name == agent.name);
        if same {
            return;
        }
        let note = AgentNote {
            name: agent.name.clone(),
            role: agent.role.clone(),
            status,
            task: shortened(&agent.prompt),
            words,
            at: now,
        };
        agents.insert(agent.lineage_id, note);
    }

    /// Notes a decision unless it is known.
    pub fn decision(&mut self, note: Note) {
        if self.decisions.iter().all(|known| known.text != note.text || known.workspace != note.workspace) {
            bounded::push(&mut self.decisions, note, MAX_DECISIONS);
        }
    }
}

impl Workspace {
    fn last(&self) -> Time {
        let agents = self.agents.values().map(|note| note.at);
        agents.chain(self.files.values().map(|note| note.at)).max().unwrap_or_default()
    }

    /// A file was written.
    pub fn written(&mut self, path: &str, by: &str, now: Time) {
        bounded::make_room(&mut self.files, path, MAX_FILES, |note| note.at);
        let note = self.files.entry(path.to_owned()).or_insert(FileNote {
            writes: 0,
            last_by: String::new(),
            at: now,
        });
        note.writes = note.writes.saturating_add(1);
        by.clone_into(&mut note.last_by);
        note.at = now;
    }

    /// Something failed; a repetition moves to the end.
    pub fn failed(&mut self, note: Note) {
        self.failures.retain(|known| known.text != note.text);
        bounded::push(&mut self.failures, note, MAX_NOTES);
    }

    /// The same thing has succeeded: what stood of it is over.
    pub fn succeeded(&mut self, what: &str) {
        let what = format!("{}:", shortened(what));
        self.failures.retain(|known| !known.text.starts_with(&what));
    }

    /// A question was asked that nobody has answered.
    pub fn asked(&mut self, note: Note) {
        if self.questions.iter().all(|known| known.text != note.text) {
            bounded::push(&mut self.questions, note, MAX_NOTES);
        }
    }
}

/// One line of at most [`NOTE_CHARS`] characters.
pub fn shortened(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(NOTE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
