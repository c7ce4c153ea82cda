//! Reading a log for a handoff brief, and showing the brief an agent would leave: I/O, on a job's or a
//! connection's thread.

use super::brief::{self, Built, Facts, Reader};
use super::learned;
use crate::agents::worker_log::{LogStore, Query, Since};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::ids::LineageId;
use crate::core::time::Time;
use crate::endpoint::{Answer, Ask};
use crate::memory::Learned;
use serde_json::json;
use std::io;

/// The brief of a lineage, out of the last [`brief::RECORDS_READ`] records of its log, and how many were
/// read. The log is read page by page and never held as a whole.
///
/// Errors: the system's words.
pub fn build(logs: &LogStore, lineage: LineageId, facts: &Facts) -> io::Result<(Built, u64)> {
    let (reader, read) = read(logs, lineage, facts, brief::RECORDS_READ, None)?;
    Ok((reader.build(), read))
}

/// The same of what was on record before this time.
///
/// Errors: the system's words.
pub fn build_until(logs: &LogStore, lineage: LineageId, facts: &Facts, until: Time) -> io::Result<Built> {
    let query = Query { since: Some(Since::Time(until)), limit: Some(1), ..Query::default() };
    let end = logs.read(lineage, query)?.entries.first().map(|record| record.n);
    Ok(read(logs, lineage, facts, brief::RECORDS_READ, end)?.0.build())
}

/// What the end of a lineage's log teaches others, oldest first.
///
/// Errors: the system's words.
pub fn learn(logs: &LogStore, lineage: LineageId, facts: &Facts) -> io::Result<Vec<Learned>> {
    let (reader, _) = read(logs, lineage, facts, learned::RECORDS_READ, None)?;
    Ok(learned::chosen(reader.learned()))
}

/// The last so many records, or those before the one of number `end`.
fn read<'a>(
    logs: &LogStore,
    lineage: LineageId,
    facts: &'a Facts,
    last: u64,
    end: Option<u64>,
) -> io::Result<(Reader<'a>, u64)> {
    let mut reader = Reader::new(facts);
    let mut query = match end {
        Some(end) => {
            let before = Since::Number(end.saturating_sub(last + 1));
            Query { since: Some(before), ..Query::default() }
        }
        None => Query { tail: Some(last), ..Query::default() },
    };
    let mut read = 0_u64;
    loop {
        let page = logs.read(lineage, query)?;
        if let Some(first) = page.entries.first().filter(|first| read == 0 && first.n > 1) {
            reader.skipped(first.n - 1);
        }
        for record in &page.entries {
            if end.is_some_and(|end| record.n >= end) {
                return Ok((reader, read));
            }
            reader.take(record);
            read += 1;
        }
        let Some(next) = page.next else { return Ok((reader, read)) };
        query = Query { since: Some(Since::Number(next)), ..Query::default() };
    }
}

/// `GET /api/agents/:id/brief`: the brief it would leave now, and what would not be in it. Changes nothing.
pub fn preview(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let agent = ask.state.agents.find(ask.params.get("id"))?;
    let facts = Facts::of(ask.state, agent, "manual");
    let (built, read) = build(&host.logs, agent.lineage_id, &facts)
        .map_err(|error| Problem::new(500, "log_unreadable", format!("the log cannot be read: {error}")))?;
    Ok(Answer::Reply(Reply::ok(&json!({
        "agentId": agent.id,
        "agentName": agent.name,
        "brief": built.text,
        "chars": built.text.chars().count(),
        "maxChars": brief::MAX_CHARS,
        "leftOut": built.losses,
        "moreLeftOut": built.more_losses,
        "recordsRead": read,
        "instructions": agent.queue.iter().map(|message| &message.text).collect::<Vec<_>>(),
    }))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::report::LogEntry;
    use crate::core::ids::AgentId;
    use crate::providers::Activity;
    use serde_json::json;

    fn command(logs: &LogStore, n: u64, output: &str) {
        let started = Activity::ToolStarted {
            id: n.to_string(),
            name: "Bash".into(),
            input: json!({"command": format!("try-{n}")}),
            path: None,
            writes: false,
        };
        let error = !output.is_empty();
        let ended = Activity::ToolEnded { id: n.to_string(), error, output: output.into() };
        for activity in [started, ended] {
            logs.append(LineageId(1), AgentId(1), Time(1), &LogEntry::Activity(activity)).unwrap();
        }
    }

    /// What was tried thousands of records ago is told to the successor, or stands in the loss report.
    #[test]
    fn issue_5_facts_from_the_beginning_of_a_long_log_are_in_the_brief_or_in_the_loss_report() {
        let folder = std::env::temp_dir().join(format!("svc-long-log-{}", std::process::id()));
        let logs = LogStore::open(&folder).unwrap();
        command(&logs, 0, "the server refuses version 3");
        for n in 1..2_500 {
            command(&logs, n, "");
        }
        let facts = Facts { name: "backend-1".into(), task: "Build it".into(), ..Facts::default() };
        let (built, read) = build(&logs, LineageId(1), &facts).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, 5_000);
        assert!(built.text.contains("- `try-0`: the server refuses version 3"), "{}", built.text);
        for n in 0..2_500 {
            let word = format!("`try-{n}`");
            let told =
                built.text.contains(&word) || built.losses.iter().any(|loss| loss.text.contains(&word));
            assert!(told, "{word} is in neither");
        }
    }

    #[test]
    fn records_that_are_too_old_to_be_read_are_a_loss() {
        let facts = Facts::default();
        let mut reader = Reader::new(&facts);
        reader.skipped(7);
        let built = reader.build();
        assert!(built.text.contains("1 older or longer entries were left out"));
        assert!(built.losses[0].text.contains("first 7 records"));
    }
}
