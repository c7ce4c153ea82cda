//! What goes into the next round of the store, and when that is.

use super::{Inbox, MAX_LOG_LINES, REMOVALS_AT_ONCE, Round, Shared};
use crate::core::{Document, Timer};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::PoisonError;
use std::time::Instant;
use svc_base::sorted::Gather;

impl Inbox {
    /// Has a document written by then; whether that is sooner than the thread knows. Output has the same few
    /// put again and again: nobody is woken for what is due already.
    pub(super) fn put(&mut self, document: Document, by: Instant) -> bool {
        self.removals.remove(&document);
        self.later.remove(&document);
        match self.due.entry(document) {
            Entry::Vacant(due) => {
                due.insert(by);
                true
            }
            Entry::Occupied(mut due) => {
                let is_sooner = by < *due.get();
                if is_sooner {
                    due.insert(by);
                }
                is_sooner
            }
        }
    }

    /// What is not on disk, and from which round on it will be.
    pub(super) fn needs(&self) -> BTreeMap<Document, u64> {
        let writing = self.writing.iter().map(|document| (*document, self.round));
        let due = self.due.keys().chain(self.later.keys()).map(|document| (*document, self.round + 1));
        // Of one that is being written and was put again since, the later counts.
        writing.chain(due).gather()
    }

    /// These are on disk as they were when the round was taken.
    pub(super) fn written(&mut self, documents: &[Document]) {
        let round = self.round;
        for document in documents {
            for settling in &mut self.settling {
                settling.needs.retain(|needed, from| needed != document || *from > round);
            }
        }
    }

    /// Has a document written by then, not along with others; whether the thread does not know it.
    pub(super) fn put_later(&mut self, document: Document, by: Instant) -> bool {
        self.removals.remove(&document);
        let is_new = !self.due.contains_key(&document) && !self.later.contains_key(&document);
        if is_new {
            self.later.insert(document, by);
        }
        is_new
    }
}

/// Waits until something is due; while callers of the last round come back, for so many and so long.
pub(super) fn next_round(shared: &Shared, gathering: Option<(usize, Instant)>) -> Round {
    let mut inbox = shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        let urgent = inbox.closing
            || !inbox.waiting.is_empty()
            || !inbox.answers_after_lines.is_empty()
            || !inbox.logs.is_empty()
            || !inbox.lines.is_empty() && inbox.lines_again.is_none_or(|due| due <= now)
            || !inbox.trims.is_empty()
            || !inbox.removals.is_empty()
            || inbox.settling.iter().any(|one| one.needs.is_empty())
            || inbox.stored.iter().any(|(due, _)| *due <= now)
            || inbox.due.values().chain(inbox.later.values()).any(|due| *due <= now);
        let more = gathering.filter(|(callers, until)| {
            (1..*callers).contains(&inbox.waiting.len()) && now < *until && !inbox.closing
        });
        if let Some((_, until)) = more {
            inbox = shared
                .wake
                .wait_timeout(inbox, until - now)
                .map_or_else(|e| e.into_inner().0, |(inbox, _)| inbox);
            continue;
        }
        if urgent {
            return take(&mut inbox, now);
        }
        let deadlines =
            inbox.due.values().chain(inbox.later.values()).chain(inbox.stored.iter().map(|(due, _)| due));
        let deadlines = deadlines.chain(&inbox.lines_again);
        let earliest = deadlines.min().map(|due| due.saturating_duration_since(now));
        inbox = match earliest {
            Some(wait) => {
                shared.wake.wait_timeout(inbox, wait).map_or_else(|e| e.into_inner().0, |(inbox, _)| inbox)
            }
            None => shared.wake.wait(inbox).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// Takes what is due; with callers waiting, everything that is due soon goes along in the same commit, but
/// not what grows with the history, unless the disk has refused it.
pub(super) fn take(inbox: &mut Inbox, now: Instant) -> Round {
    let is_due = |(due, _): &(Instant, Timer)| *due <= now;
    let all = inbox.closing || !inbox.waiting.is_empty() || inbox.stored.iter().any(is_due);
    let goes_along = |document: &Document| {
        inbox.closing || all && (!document.is_counted() || inbox.refused.contains(document))
    };
    let goes = |(document, due): (&Document, &Instant)| *due <= now || goes_along(document);
    let is_over = |due: &Instant| inbox.closing || *due <= now;
    // One that the disk has refused is due again in a moment; no record is to be there before it.
    let has_records = inbox.due.get_key_value(&Document::Agents).is_some_and(goes)
        || inbox.later.get(&Document::Agents).is_some_and(is_over);
    let has_any = has_records || inbox.due.iter().any(goes) || inbox.later.values().any(is_over);
    let goes_before = |document: &Document| {
        has_records && document.goes_before_records() || has_any && document.goes_before_all()
    };
    let documents: Vec<Document> = inbox
        .due
        .iter()
        .filter(|(document, due)| goes((document, due)) || goes_before(document))
        .map(|(document, _)| *document)
        .collect();
    let later: Vec<Document> =
        inbox.later.iter().filter(|(_, due)| is_over(due)).map(|(document, _)| *document).collect();
    let documents: Vec<Document> = documents.into_iter().chain(later.iter().copied()).collect();
    for document in &documents {
        inbox.due.remove(document);
        inbox.later.remove(document);
        inbox.refused.remove(document);
    }
    inbox.round += 1;
    inbox.writing = documents.iter().copied().gather();
    inbox.lines_again = None;
    if std::mem::take(&mut inbox.logs_dropped) > 0 {
        log::warn!("more than {MAX_LOG_LINES} log lines waited for the disk: some were dropped");
    }
    let mut removals = std::mem::take(&mut inbox.removals);
    if let Some(later) = removals.iter().nth(REMOVALS_AT_ONCE).copied() {
        inbox.removals = removals.split_off(&later);
    }
    Round {
        state: inbox.state.clone(),
        documents,
        removals,
        waiting: std::mem::take(&mut inbox.waiting),
        stored: if all { std::mem::take(&mut inbox.stored) } else { Vec::new() },
        answers_after_lines: std::mem::take(&mut inbox.answers_after_lines),
        logs: std::mem::take(&mut inbox.logs),
        lines: std::mem::take(&mut inbox.lines),
        trims: std::mem::take(&mut inbox.trims),
        is_late: !later.is_empty(),
        closing: inbox.closing,
    }
}
