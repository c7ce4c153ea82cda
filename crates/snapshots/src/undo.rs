//! What was whose, and the way back: the changes of several turns of one agent, put together by path.

use crate::diff::{Change, Entry, View};
use crate::worker_restore::{Left, Plan, Step, current, obstacle};
use std::collections::BTreeMap;
use std::io;
use svc_sys::beneath::Root;

/// A path over several turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Before the first turn that changed it.
    pub before: Option<Entry>,
    /// After the last one.
    pub after: Option<Entry>,
    /// Whether somebody else has changed it between two of them.
    pub is_broken: bool,
}

/// By path.
pub type Spans = BTreeMap<String, Span>;

/// What these turns, oldest first, have made of each path.
pub fn spans(turns: impl IntoIterator<Item = BTreeMap<String, Change>>) -> Spans {
    let mut found = Spans::new();
    for (path, Change { before, after }) in turns.into_iter().flatten() {
        match found.get_mut(&path) {
            Some(span) => {
                span.is_broken |= span.after != before;
                span.after = after;
            }
            None => {
                found.insert(path, Span { before, after, is_broken: false });
            }
        }
    }
    found
}

/// What a plan did, to be taken back.
pub fn taken_back(plan: &Plan) -> Spans {
    let span = |step: &Step| Span { before: step.from, after: step.to, is_broken: false };
    plan.iter().map(|(path, step)| (path.clone(), span(step))).collect()
}

/// How each path comes to be as it was before, and what is against it: nobody may have changed it since, and
/// what is there has to be in `now`, a snapshot that was just taken.
///
/// Errors: the store or the folder cannot be read.
pub fn plan(root: &Root, now: &mut View<'_>, spans: &Spans) -> io::Result<(Plan, Vec<Left>)> {
    let (mut plan, mut against) = (Plan::new(), Vec::new());
    for (path, Span { before, after, is_broken }) in spans {
        let mut refuse = |why: String| against.push(Left { path: path.clone(), why });
        if before == after {
            continue;
        }
        if let Some(why) = now.why_left(path) {
            refuse(format!("no snapshot holds it: {why}"));
            continue;
        }
        let there = match current(root, path) {
            Ok(there) => there,
            Err(error) => {
                refuse(error.to_string());
                continue;
            }
        };
        if there == *before {
            continue;
        }
        if there != *after {
            refuse("somebody else has changed it since".into());
        } else if *is_broken {
            refuse("somebody else has changed it between its turns".into());
        } else if now.file(path)? != there {
            refuse("no snapshot holds what is there now".into());
        } else {
            plan.insert(path.clone(), Step { from: there, to: *before });
        }
    }
    for (path, step) in &plan {
        if step.to.is_some()
            && let Some(there) = obstacle(root, &plan, path)?
        {
            against.push(Left { path: path.clone(), why: format!("{there} stands in its place") });
        }
    }
    Ok((plan, against))
}
