//! Whether a write that a person has rejected was undone: svc changes no file by itself, it looks and says.

use crate::agents::Agent;
use crate::approvals::ApprovalId;
use crate::core::ids::{AgentId, LineageId};
use crate::core::notice::{Notice, Unresolved};
use crate::core::time::Time;
use crate::core::{Context, State as All};
use serde_json::json;
use std::sync::Arc;
use svc_base::bounded;

/// Rejected writes watched; the oldest goes first.
const MAX_WATCHED: usize = 100;

/// A rejected write.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Undo {
    pub lineage: LineageId,
    approval: ApprovalId,
    file: String,
    rejected_at: Time,
    /// Whether to look now.
    check: bool,
    /// Whether it was told that it is still in place.
    told: bool,
}

/// A person has rejected a write that is done. Its agent is told to undo it; one that has ended is not woken.
pub fn rejected(all: &mut All, cx: &mut Context, approval: ApprovalId, agent: &Agent, file: &str) {
    let check = !agent.status.is_live();
    let undo = &mut Arc::make_mut(&mut all.ownership).undo;
    let (lineage, file, rejected_at) = (agent.lineage_id, file.to_owned(), cx.now);
    bounded::push(undo, Undo { lineage, approval, file, rejected_at, check, told: false }, MAX_WATCHED);
    if check {
        super::commands::look_at(all, cx.now);
    }
}

/// A turn or the run of an agent is over: what it was told to undo is looked at.
pub fn pause(all: &mut All, cx: &mut Context, id: AgentId) {
    let Some(lineage) = all.agents.get(id).map(|agent| agent.lineage_id) else { return };
    if all.ownership.undo.iter().any(|undo| undo.lineage == lineage) {
        for undo in Arc::make_mut(&mut all.ownership).undo.iter_mut().filter(|undo| undo.lineage == lineage) {
            undo.check = true;
        }
        super::commands::look_at(all, cx.now);
    }
}

/// The files to be looked at now.
pub fn files(all: &All) -> Vec<String> {
    all.ownership.undo.iter().filter(|undo| undo.check).map(|undo| undo.file.clone()).collect()
}

/// Files were looked at: when each was changed last, `None` when it is gone.
pub fn looked(all: &mut All, cx: &mut Context, files: &[(String, Option<Time>)]) {
    for (file, changed) in files {
        let fits = |undo: &&Undo| undo.check && undo.file == *file;
        let watched: Vec<Undo> = all.ownership.undo.iter().filter(fits).cloned().collect();
        for undo in watched {
            let in_place = changed.is_some_and(|at| at <= undo.rejected_at);
            say(all, cx, &undo, in_place);
        }
    }
}

fn say(all: &mut All, cx: &mut Context, undo: &Undo, in_place: bool) {
    let state = Arc::make_mut(&mut all.ownership);
    let id = undo.approval.to_string();
    for conflict in state.conflicts.iter_mut().filter(|one| one.approval_id.as_ref() == Some(&id)) {
        Arc::make_mut(conflict).after_rejection = Some(if in_place { "in place" } else { "changed" });
    }
    if !in_place {
        state.undo.retain(|known| known.approval != undo.approval);
        cx.audit("ownership.undone", &json!({"approvalId": id, "filePath": undo.file}));
        return;
    }
    for known in state.undo.iter_mut().filter(|known| known.approval == undo.approval) {
        (known.check, known.told) = (false, true);
    }
    if undo.told {
        return;
    }
    let name = all.agents.by_lineage(undo.lineage).map(|agent| agent.name.clone());
    let (file_path, approval_id) = (undo.file.clone(), undo.approval);
    cx.notice(Notice::ConflictUnresolved { data: Unresolved { agent_name: name, file_path, approval_id } });
    cx.audit("ownership.in_place", &json!({"approvalId": id, "filePath": undo.file}));
    cx.push(crate::core::Effect::Warn(format!(
        "{} is still as it was when a person rejected the write (approval {id}); svc diff or git shows the change",
        undo.file
    )));
}
