//! The audit log: what `GET /api/audit` asks for, and which entries answer it. Entries are written with
//! [`Context::audit`](crate::core::Context::audit).

use crate::api::{Problem, Request, Validator};
use crate::core::time::Time;
use crate::core::{Effect, Journal};
use serde_json::Value;

/// Entries that the daily cleanup keeps.
pub const KEPT_ENTRIES: usize = 1_000;
/// Entries of one answer unless the caller says otherwise.
const DEFAULT_LIMIT: usize = 100;
/// Entries of one answer at most.
const MAX_LIMIT: usize = 1_000;
/// Characters of an event's name.
const MAX_EVENT_CHARS: usize = 100;

/// The parameters of `GET /api/audit`.
pub const QUERY: &[(&str, &str)] = &[
    ("limit", "entries at most; 100, up to 1000"),
    ("before", "only entries older than this RFC 3339 time"),
    ("event", "only this event, for example agent.spawn, or all of an area, for example agent"),
];

/// Which entries are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// How many at most.
    pub limit: usize,
    /// Older than this.
    pub before: Option<Time>,
    /// Of this event, or of this area.
    pub event: Option<String>,
}

impl Query {
    /// Reads the query string; every fault is named.
    pub fn parse(request: &Request) -> Result<Self, Problem> {
        let mut validator = Validator::default();
        let limit = validator.whole_number("limit", request.query("limit"), DEFAULT_LIMIT, MAX_LIMIT);
        let mut query = Self { limit, before: None, event: None };
        if let Some(text) = request.query("before").filter(|text| !text.is_empty()) {
            query.before = Time::parse(text);
            validator.check(query.before.is_some(), "before", || {
                format!("before must be a time like 2026-01-31T12:00:00Z, it is {text:?}")
            });
        }
        query.event = request.query("event").filter(|text| !text.is_empty()).map(ToOwned::to_owned);
        let length = query.event.as_ref().map_or(0, |text| text.chars().count());
        validator.check(length <= MAX_EVENT_CHARS, "event", || {
            format!("event must have at most {MAX_EVENT_CHARS} characters, it has {length}")
        });
        validator.finish()?;
        Ok(query)
    }

    /// The newest entries that fit, newest first, and whether there are more. A line that is no entry (the
    /// power went while it was written) is passed over.
    pub fn pick<'a>(&self, lines_newest_first: impl Iterator<Item = &'a str>) -> (Vec<Value>, bool) {
        let mut entries = Vec::new();
        for line in lines_newest_first {
            let Ok(entry) = serde_json::from_slice::<Value>(line.as_bytes()) else { continue };
            if !self.fits(&entry) {
                continue;
            }
            if entries.len() == self.limit {
                return (entries, true);
            }
            entries.push(entry);
        }
        (entries, false)
    }

    fn fits(&self, entry: &Value) -> bool {
        let word = |name: &str| entry[name].as_str().unwrap_or_default();
        let in_time = self.before.is_none_or(|before| Time::parse(word("ts")).is_some_and(|at| at < before));
        let is_meant = self.event.as_ref().is_none_or(|wanted| {
            word("event")
                .strip_prefix(wanted.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        in_time && is_meant && entry.is_object()
    }
}

/// Cuts the audit log to its last [`KEPT_ENTRIES`]: for the daily cleanup.
pub fn trim(cx: &mut crate::core::Context) {
    cx.push(Effect::Trim(Journal::Audit, KEPT_ENTRIES));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"ts":"2026-01-01T00:00:00.000Z","event":"agent.spawn","actor":"operator"}
{"ts":"2026-01-01T00:00:01.000Z","event":"agent.patch","actor":"operator"}
not json
{"ts":"2026-01-01T00:00:02.000Z","event":"agents.other","actor":"agent:000000ab"}
{"ts":"2026-01-01T00:00:03.000Z","event":"agent.spawn","actor":"daemon"}
{"ts":"2026-01-0"#;

    fn pick(limit: usize, before: Option<&str>, event: Option<&str>) -> (Vec<u64>, bool) {
        let before = before.map(|text| Time::parse(text).unwrap());
        let query = Query { limit, before, event: event.map(ToOwned::to_owned) };
        let (entries, more) = query.pick(LINES.lines().rev());
        let second = |entry: &Value| Time::parse(entry["ts"].as_str().unwrap()).unwrap().0 / 1000 % 60;
        (entries.iter().map(second).collect(), more)
    }

    #[test]
    fn decisions_13_audit_is_newest_first_with_limit_before_and_event() {
        assert_eq!(pick(100, None, None), (vec![3, 2, 1, 0], false), "a torn line is passed over");
        assert_eq!(pick(2, None, None), (vec![3, 2], true));
        assert_eq!(pick(4, None, None), (vec![3, 2, 1, 0], false));
        assert_eq!(pick(100, Some("2026-01-01T00:00:02Z"), None), (vec![1, 0], false));
        assert_eq!(pick(100, None, Some("agent.spawn")), (vec![3, 0], false));
        assert_eq!(pick(1, Some("2026-01-01T00:00:03Z"), Some("agent")), (vec![1], true));
        assert_eq!(pick(100, None, Some("agent.sp")), (vec![], false));
    }
}
