//! Which files an agent has touched. A call that names a file counts when its result says that it went well:
//! what a person, a provider or the file system refused was not written.

use super::record::Agent;
use crate::providers::Activity;
use std::collections::BTreeMap;

/// Calls under way that are remembered for one life; files of further ones are not counted.
const MAX_OPEN: usize = 256;

/// The calls under way of one life that name a file: path, and whether they write it.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct OpenFiles(BTreeMap<String, (String, bool)>);

/// A file that a call has read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// As the agent named it.
    pub path: String,
    /// Whether it was written.
    pub writes: bool,
}

impl OpenFiles {
    /// Takes in an activity; the file of a call that has ended well.
    pub fn take(&mut self, activity: &Activity) -> Option<Touched> {
        match activity {
            Activity::ToolStarted { id, path: Some(path), writes, .. } => {
                if self.0.len() < MAX_OPEN {
                    self.0.insert(id.clone(), (path.clone(), *writes));
                }
                None
            }
            Activity::ToolEnded { id, error, .. } => {
                let (path, writes) = self.0.remove(id)?;
                (!error).then_some(Touched { path, writes })
            }
            _ => None,
        }
    }
}

/// The files that `agent` has touched with these activities, which its record has not taken in yet.
pub fn touched(agent: &Agent, activities: &[Activity]) -> Vec<Touched> {
    if !activities.iter().any(|activity| matches!(activity, Activity::ToolEnded { .. })) {
        return Vec::new();
    }
    let mut open = agent.open_files.clone();
    activities.iter().filter_map(|activity| open.take(activity)).collect()
}
