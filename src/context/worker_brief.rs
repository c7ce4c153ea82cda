//! Reading a log for a handoff brief, and showing the brief an agent would leave: I/O, on a job's or a
//! connection's thread.

use super::brief::{self, Facts};
use crate::agents::report::{LogEntry, LogRecord};
use crate::agents::worker_log::{LogStore, Query, Since};
use crate::api::{Problem, Reply};
use crate::core::ids::LineageId;
use crate::providers::Activity;
use crate::routes::{Answer, Ask};
use crate::runtime::host::Host;
use serde_json::json;
use std::io;

/// Bytes of a tool's output that a brief looks at.
const OUTPUT_BYTES: usize = 4 << 10;
/// How far back the user's messages are looked for, in steps of [`brief::RECORDS_READ`] records.
const STEPS_BACK: u64 = 50;

/// The last records of a log, and before them the entries with the user's last messages, however old.
///
/// Errors: the system's words.
pub fn read(logs: &LogStore, lineage: LineageId, task: &str) -> io::Result<Vec<LogRecord>> {
    let first = Query { tail: Some(brief::RECORDS_READ), ..Query::default() };
    let mut records = Vec::new();
    pages(logs, lineage, first, |record| records.push(shortened(record)))?;
    let spoken = |records: &[LogRecord]| {
        records.iter().filter(|record| brief::is_user_message(&record.entry, task)).count()
    };
    let mut begin = records.first().map_or(0, |record| record.n);
    let mut found = spoken(&records);
    for _ in 0..STEPS_BACK {
        if begin <= 1 || found >= brief::USER_MESSAGES {
            break;
        }
        let from = begin.saturating_sub(brief::RECORDS_READ).max(1);
        let mut older = Vec::new();
        let since = Query { since: Some(Since::Number(from - 1)), ..Query::default() };
        pages(logs, lineage, since, |record| {
            if record.n < begin && brief::is_user_message(&record.entry, task) {
                older.push(record);
            }
        })?;
        found += older.len();
        older.append(&mut records);
        records = older;
        begin = from;
    }
    Ok(records)
}

/// Gives every record from `query` on to `take`, page by page.
fn pages(
    logs: &LogStore,
    lineage: LineageId,
    query: Query,
    mut take: impl FnMut(LogRecord),
) -> io::Result<()> {
    let mut query = query;
    loop {
        let page = logs.read(lineage, query)?;
        page.entries.into_iter().for_each(&mut take);
        let Some(next) = page.next else { return Ok(()) };
        query = Query { since: Some(Since::Number(next)), ..Query::default() };
    }
}

/// The record with its tool's output cut: a thousand of them are held at once.
fn shortened(mut record: LogRecord) -> LogRecord {
    if let LogEntry::Activity(Activity::ToolEnded { output, .. }) = &mut record.entry
        && output.len() > OUTPUT_BYTES
    {
        let mut end = OUTPUT_BYTES;
        while !output.is_char_boundary(end) {
            end -= 1;
        }
        output.truncate(end);
    }
    record
}

/// `GET /api/agents/:id/brief`: the brief it would leave now, and what would not be in it. Changes nothing.
pub fn preview(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(ask.params.get("id"))?;
    let records = read(&host.logs, agent.lineage_id, &agent.prompt)
        .map_err(|error| Problem::new(500, "log_unreadable", format!("the log cannot be read: {error}")))?;
    let facts = Facts::of(ask.state, agent, "manual");
    let built = brief::build_with_losses(&facts, &records);
    Ok(Answer::Reply(Reply::ok(&json!({
        "agentId": agent.id,
        "agentName": agent.name,
        "brief": built.text,
        "chars": built.text.chars().count(),
        "maxChars": brief::MAX_CHARS,
        "leftOut": built.losses,
        "moreLeftOut": built.more_losses,
        "recordsRead": records.len(),
        "instructions": agent.queue.iter().map(|message| &message.text).collect::<Vec<_>>(),
    }))))
}
