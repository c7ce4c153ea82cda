//! The tool calls of a turn that are under way: where in it nothing is cut off.

use crate::providers::Activity;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Calls that are remembered as begun; beyond them no place in the turn is safe.
const OPEN_TOOLS_MAX: usize = 256;

/// The tool calls of a turn that are under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct OpenTools {
    ids: Arc<BTreeSet<String>>,
    /// Some were begun that are not remembered.
    beyond: bool,
    /// A call has ended, and nothing else has happened since.
    between: bool,
}

impl OpenTools {
    /// Takes in what happens in a turn.
    pub fn take(&mut self, activity: &Activity) {
        match activity {
            Activity::ToolStarted { id, .. } => {
                self.between = false;
                if self.ids.len() < OPEN_TOOLS_MAX {
                    Arc::make_mut(&mut self.ids).insert(id.clone());
                } else {
                    self.beyond = true;
                }
            }
            Activity::ToolEnded { id, .. } => {
                Arc::make_mut(&mut self.ids).remove(id);
                self.between = self.ids.is_empty() && !self.beyond;
            }
            Activity::TurnStarted | Activity::TurnEnded(_) => *self = Self::default(),
            Activity::Text { .. } | Activity::Thinking { .. } | Activity::PermissionAsked { .. } => {
                self.between = false;
            }
            Activity::Session { .. }
            | Activity::Usage(_)
            | Activity::Trouble { .. }
            | Activity::Limit(_)
            | Activity::Compacted
            | Activity::Noise { .. } => {}
        }
    }

    /// Whether a call has just ended, none is under way, and the model has not answered yet.
    pub fn is_between(&self) -> bool {
        self.between
    }
}
