//! What is noted of each snapshot, a line each, and the turns that these lines tell of. Pure.

use serde::{Deserialize, Serialize};
use svc_snapshots::Id;

/// What a line tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Before a turn.
    Begin,
    /// Behind it.
    End,
    /// Before its work was merged.
    Merge,
    /// Before turns were undone, which they were.
    Undo,
    /// Before that was taken back, which it was.
    Redo,
}

/// Where a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snap {
    pub commit: Id,
    pub files: Id,
    pub meta: Id,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The number of the snapshot, from 1.
    pub n: u64,
    pub kind: Kind,
    /// The turn, from 1; the first of them for an undo.
    pub turn: u64,
    /// When, in epoch milliseconds.
    pub at: u64,
    /// The folder below the project; empty for the project itself.
    #[serde(default)]
    pub folder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap: Option<Snap>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// The turn had begun before its beginning was kept.
    #[serde(default)]
    pub late: bool,
    /// An undo's last turn; the undo that a redo takes back.
    #[serde(default)]
    pub of: u64,
    /// Files in it; for an undo, those put back.
    #[serde(default)]
    pub files: u64,
    /// What was left out of it.
    #[serde(default)]
    pub left: u64,
    /// How long it took, in milliseconds.
    #[serde(default)]
    pub ms: u64,
}

/// A turn as its lines tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub begin: Line,
    pub end: Option<Line>,
    /// What follows where its end was not seen: the beginning of the next one.
    pub next: Option<Line>,
    /// The undo by which it is undone.
    pub undone: Option<u64>,
}

impl Turn {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.begin.turn
    }

    /// From where to where; none when one of the two is missing.
    pub fn snaps(&self) -> Option<(Snap, Snap)> {
        let end = self.end.as_ref().or(self.next.as_ref())?;
        Some((self.begin.snap?, end.snap?))
    }

    /// Whether its beginning and its end were seen as they were, so that nobody else can have changed
    /// anything but inside of it.
    pub fn is_sharp(&self) -> bool {
        self.end.is_some() && !self.begin.late
    }

    /// Why it cannot be undone.
    pub fn why_not(&self) -> Option<String> {
        let of = |line: Option<&Line>| line.and_then(|line| line.missed.clone());
        let missed = of(Some(&self.begin)).or_else(|| of(self.end.as_ref()));
        let missed = missed.or_else(|| of(self.next.as_ref()));
        match (self.snaps(), missed) {
            (Some(_), _) => None,
            (None, Some(why)) => Some(why),
            (None, None) => Some("its end was not seen yet".into()),
        }
    }

    /// From when to when it may have changed something, in epoch milliseconds.
    fn time(&self) -> (u64, u64) {
        let end = self.end.as_ref().or(self.next.as_ref());
        (self.begin.at, end.map_or(u64::MAX, |line| line.at))
    }
}

/// The turns of an agent, oldest first.
pub fn turns(lines: &[Line]) -> Vec<Turn> {
    let mut found: Vec<Turn> = Vec::new();
    for line in lines {
        match line.kind {
            Kind::Begin => {
                if let Some(last) = found.last_mut().filter(|last| last.end.is_none()) {
                    last.next = Some(line.clone());
                }
                found.push(Turn { begin: line.clone(), end: None, next: None, undone: None });
            }
            Kind::End => {
                if let Some(last) = found.last_mut().filter(|last| last.number() == line.turn) {
                    last.end = Some(line.clone());
                }
            }
            Kind::Merge => {}
            Kind::Undo => {
                let range = line.turn..=line.of;
                for turn in found.iter_mut().filter(|turn| range.contains(&turn.number())) {
                    turn.undone = turn.undone.or(Some(line.n));
                }
            }
            Kind::Redo => {
                for turn in found.iter_mut().filter(|turn| turn.undone == Some(line.of)) {
                    turn.undone = None;
                }
            }
        }
    }
    found
}

/// The undo that is to be taken back next.
pub fn to_redo(lines: &[Line]) -> Option<&Line> {
    let is_back = |undo: &Line| lines.iter().any(|line| line.kind == Kind::Redo && line.of == undo.n);
    lines.iter().rfind(|line| line.kind == Kind::Undo && !is_back(line))
}

/// Whether nobody of `others` was inside a turn in the same folder meanwhile, so that what has changed is
/// this one's.
pub fn is_alone(turn: &Turn, others: &[Turn]) -> bool {
    let (from, to) = turn.time();
    !others.iter().any(|other| {
        let (began, ended) = other.time();
        other.begin.folder == turn.begin.folder && began <= to && from <= ended
    })
}
