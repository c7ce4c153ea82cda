//! What an agent is told: the briefing of a new one, the handoff brief of a successor.

pub mod adaptive;
pub mod api;
pub mod brief;
pub mod briefing;
#[cfg(test)]
mod briefing_tests;
#[cfg(test)]
mod fifty_lives_tests;
#[cfg(test)]
mod handoff_tests;
pub mod learned;
#[cfg(test)]
mod lives_tests;
pub mod quality;
#[cfg(test)]
mod safe_points_tests;
pub mod triggers;
pub mod triggers_api;
#[cfg(test)]
mod triggers_tests;
pub mod worker_brief;
pub mod worker_documents;

use crate::core::{Context, State as All};
use std::sync::Arc;

/// Characters of the architecture document that agents are told.
pub const ARCHITECTURE_CHARS: usize = 5_000;
/// Where it is looked for; the first that exists is taken.
pub const ARCHITECTURE_PATHS: [&str; 3] =
    ["ARCHITECTURE.md", "docs/architecture.md", ".github/ARCHITECTURE.md"];

/// What a thread keeps ready for briefings.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    architecture: Option<Arc<Architecture>>,
    learning: learned::Learning,
}

/// The project's architecture document, as far as agents are told.
#[derive(Debug, Clone, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Architecture {
    /// One of [`ARCHITECTURE_PATHS`].
    pub path: &'static str,
    /// At most [`ARCHITECTURE_CHARS`] characters.
    pub text: Arc<str>,
    /// Whether the document is longer.
    pub cut: bool,
}

impl Architecture {
    /// A document, cut to its limit.
    pub fn new(path: &'static str, whole: &str) -> Self {
        let end = whole.char_indices().nth(ARCHITECTURE_CHARS).map(|(at, _)| at);
        let text = &whole[..end.unwrap_or(whole.len())];
        Self { path, text: text.into(), cut: end.is_some() }
    }

    /// What to say of a cut one.
    fn remark(&self) -> String {
        if self.cut { format!(" (its first {ARCHITECTURE_CHARS} characters)") } else { String::new() }
    }
}

impl State {
    /// With this document.
    pub fn new(architecture: Option<Architecture>) -> Self {
        Self { architecture: architecture.map(Arc::new), learning: learned::Learning::default() }
    }

    /// The architecture document, if the project has one.
    pub fn architecture(&self) -> Option<&Architecture> {
        self.architecture.as_deref()
    }
}

/// A fact from the thread that watches documents.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Report {
    /// The architecture document has changed, come or gone.
    Architecture(Option<Architecture>),
}

pub use learned::moment;

/// A document has changed.
pub fn report(all: &mut All, _cx: &mut Context, report: Report) {
    let Report::Architecture(architecture) = report;
    Arc::make_mut(&mut all.context).architecture = architecture.map(Arc::new);
}

/// The indexer's summary of the project for such an agent; `None` before the first scan.
fn index_summary(all: &All, task: &str, scope: &[String], dir: &str) -> Option<String> {
    Some(all.workspace.summary(task, scope, dir)).filter(|summary| !summary.is_empty())
}

/// The part of the project map that belongs to a working directory.
pub(crate) fn map_section(all: &All, working_dir: &str) -> Option<String> {
    all.journalist.map_section(working_dir)
}

/// Resources an agent holds, one line each.
fn held_locks(all: &All, agent: &crate::agents::Agent) -> Vec<String> {
    let held = all.coordination.held_by(agent.lineage_id);
    held.map(|one| format!("- {}: {} (until {})", one.name, one.resources.join(", "), one.expires_at))
        .collect()
}
