//! `svc logs`: an agent's log, as it stands or as it grows.
//!
//! Following asks for the entries after the last one seen, a few times a second: simple, and nothing is lost
//! when the connection breaks in between.

use super::client::{CallError, Client, encode};
use super::render::{Style, clean, dollars, one_line, parse_duration};
use super::session::{Failure, Out, Outcome, Session, now};
use super::target::{find, is_live, path, text};
use serde_json::Value;
use std::time::Duration;
use svc_base::time::Time;

/// Between two looks at a log that grows.
pub const POLL: Duration = Duration::from_millis(250);
/// Columns of a tool's argument or output in the log for people.
const SUMMARY_CHARS: usize = 200;

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// With the first entry.
    Beginning,
    /// With the last so many entries; the daemon decides when `None`.
    Tail(Option<u64>),
    /// After this RFC 3339 time, or this number of a record.
    Since(String),
}

/// `svc logs TARGET`.
pub fn logs(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let start = start(args.value("tail"), args.value("since"), now())?;
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let timestamps = args.flag("timestamps");
    if args.flag("follow") {
        return follow(&client, out, &agent, start, timestamps);
    }
    let mut reader = Reader::new(&agent, start);
    if out.json {
        return out.document(&reader.document(&client)?);
    }
    loop {
        let entries = reader.read(&client)?;
        if entries.is_empty() {
            return Ok(());
        }
        print(out, &entries, timestamps)?;
        if !reader.pages {
            return Ok(());
        }
    }
}

fn start(tail: Option<&str>, since: Option<&str>, now: Time) -> Result<Start, Failure> {
    match (tail, since) {
        (Some(_), Some(_)) => Err(Failure::usage("give --tail or --since, not both")),
        (Some(tail), None) => match tail.parse() {
            Ok(n) if n > 0 => Ok(Start::Tail(Some(n))),
            _ => Err(Failure::usage(format!("--tail is a number from 1, not '{tail}'"))),
        },
        (None, Some(since)) => {
            let length =
                parse_duration(since).map(|length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
            if since.bytes().all(|byte| byte.is_ascii_digit()) && !since.is_empty() {
                return Ok(Start::Since(since.to_owned()));
            }
            let time = length.map(|length| Time(now.0.saturating_sub(length))).or_else(|| Time::parse(since));
            time.map(|time| Start::Since(time.to_string())).ok_or_else(|| {
                Failure::usage(format!("--since is like 10m, 2h, 2026-01-31T12:00:00Z or 812, not '{since}'"))
            })
        }
        (None, None) => Ok(Start::Tail(None)),
    }
}

/// Prints entries until the agent (and, after a rotation, its successor) has ended and its log is read.
pub fn follow(client: &Client, out: &Out, agent: &Value, start: Start, timestamps: bool) -> Outcome {
    let mut reader = Reader::new(agent, start);
    loop {
        // The order matters: what an agent wrote before it was seen to have ended is in the log by then.
        let ended = match client.try_call("GET", &path(agent, ""), None) {
            Ok(record) => !is_live(&record),
            Err(CallError::Refused { status: 404, .. }) => return Ok(()),
            Err(error) => return Err(client.explain(error)),
        };
        let entries = reader.read(client)?;
        let quiet = entries.is_empty();
        print(out, &entries, timestamps)?;
        if quiet && ended {
            return Ok(());
        }
        if quiet {
            std::thread::sleep(POLL);
        }
    }
}

fn print(out: &Out, entries: &[Value], timestamps: bool) -> Outcome {
    for entry in entries {
        if out.json {
            out.line(&entry.to_string())?;
            continue;
        }
        let Some(shown) = describe(entry) else { continue };
        for line in shown.text.lines() {
            let line = shown.style.map_or_else(|| line.to_owned(), |style| out.paint(style, line));
            out.line(&if timestamps {
                format!("{} {line}", out.paint(Style::Dim, text(entry, "ts")))
            } else {
                line
            })?;
        }
    }
    Ok(())
}

/// Reads a log forwards, entry numbers being its bookmark.
pub struct Reader {
    path: String,
    query: String,
    last: u64,
    /// Whether there may be more than one call brings: not for a tail.
    pages: bool,
}

impl Reader {
    /// A reader of this agent's log.
    pub fn new(agent: &Value, start: Start) -> Self {
        let pages = !matches!(start, Start::Tail(_));
        let query = match start {
            Start::Beginning => "?since=0".into(),
            Start::Tail(None) => String::new(),
            Start::Tail(Some(n)) => format!("?tail={n}"),
            Start::Since(time) => format!("?since={}", encode(&time)),
        };
        Self { path: path(agent, "/log"), query, last: 0, pages }
    }

    /// The next entries; none when there are no more yet.
    pub fn read(&mut self, client: &Client) -> Result<Vec<Value>, Failure> {
        let mut answer = client.get(&format!("{}{}", self.path, self.query))?;
        let Value::Array(mut entries) = answer["entries"].take() else {
            return Err(Failure::failed(
                "the log has no entries member: is this an svc daemon of this version?",
            ));
        };
        let number = |entry: &Value| entry["n"].as_u64().unwrap_or(0);
        entries.retain(|entry| number(entry) > self.last);
        self.last = entries.iter().map(number).max().unwrap_or(0).max(self.last);
        if self.last > 0 {
            self.query = format!("?since={}", self.last);
        }
        Ok(entries)
    }

    /// All entries as one document of the API's shape.
    fn document(&mut self, client: &Client) -> Result<Value, Failure> {
        let mut all = Vec::new();
        loop {
            let entries = self.read(client)?;
            let done = entries.is_empty() || !self.pages;
            all.extend(entries);
            if done {
                return Ok(serde_json::json!({"entries": all, "next": self.last}));
            }
        }
    }
}

/// A log entry for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    /// One line or several, of characters that neither steer nor hide.
    pub text: String,
    pub style: Option<Style>,
}

/// What people see of an entry (the shapes are `agents::report::LogRecord`'s); `None` for bookkeeping.
pub fn describe(entry: &Value) -> Option<Shown> {
    let words = clean(text(entry, "text"));
    let (text, style) = match text(entry, "type") {
        "text" => (words, None),
        "thinking" | "noise" => (words, Some(Style::Dim)),
        "user" => (marked('>', &words), Some(Style::Bold)),
        "life" => (marked('-', &words), Some(Style::Dim)),
        "trouble" => (marked('!', &words), Some(Style::Yellow)),
        "compacted" => ("- context compacted by the provider".into(), Some(Style::Dim)),
        "tool-started" => (tool(entry), Some(Style::Cyan)),
        "tool-ended" if entry["error"] == true => {
            (format!("  failed: {}", summary(text(entry, "output"))), Some(Style::Red))
        }
        "turn-ended" => turn_end(entry),
        _ => return None,
    };
    (!text.trim().is_empty()).then(|| Shown { text: text.trim_end().to_owned(), style })
}

fn marked(mark: char, words: &str) -> String {
    words.lines().map(|line| format!("{mark} {line}")).collect::<Vec<_>>().join("\n")
}

fn summary(text: &str) -> String {
    super::render::cut(&one_line(text), SUMMARY_CHARS)
}

/// `* Write src/a.rs`: the tool and the argument that says most.
fn tool(entry: &Value) -> String {
    let input = &entry["input"];
    let told = ["command", "file_path", "path", "pattern", "query", "url", "description"]
        .iter()
        .find_map(|name| input[*name].as_str());
    let argument = match (entry["path"].as_str(), told, input) {
        (Some(path), _, _) => summary(path),
        (None, Some(told), _) => summary(told),
        (None, None, Value::Null) => String::new(),
        (None, None, input) => summary(&input.to_string()),
    };
    format!("* {} {argument}", one_line(text(entry, "name")))
}

fn turn_end(entry: &Value) -> (String, Option<Style>) {
    if entry["isError"] == true {
        let error = match text(entry, "error") {
            "" => text(entry, "text"),
            error => error,
        };
        return (format!("- turn failed: {}", summary(error)), Some(Style::Red));
    }
    let mut parts = vec!["- turn ended".to_owned()];
    if let Some(millis) = entry["durationMs"].as_u64() {
        parts.push(format!("{}.{} s", millis / 1000, millis % 1000 / 100));
    }
    if let Some(cost) = entry["costUsd"].as_f64() {
        parts.push(dollars(cost));
    }
    if let Some(denied) = entry["denied"].as_array().filter(|denied| !denied.is_empty()) {
        parts.push(format!("{} tools refused", denied.len()));
    }
    (parts.join(", "), Some(Style::Dim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use svc_providers::{Activity, TurnEnd, Usage};

    /// What people see of a record with this entry.
    fn shown(entry: impl serde::Serialize) -> Option<String> {
        let mut record = json!(entry);
        record["n"] = json!(1);
        record["ts"] = json!(Time(0));
        record["agentId"] = json!("00000001");
        describe(&record).map(|shown| shown.text)
    }

    fn tool_started(name: &str, input: Value, path: Option<&str>) -> Option<String> {
        let (id, path) = (String::new(), path.map(ToOwned::to_owned));
        shown(Activity::ToolStarted { id, name: name.into(), input, path, writes: false })
    }

    #[test]
    fn the_log_for_people_tells_what_matters_of_every_kind_of_entry() {
        let text = |text: &str| Activity::Text { text: text.into() };
        assert_eq!(shown(text("a\x1b[2J\nb\n")).as_deref(), Some("a\\u{1b}[2J\nb"));
        assert_eq!(shown(text(" \n")), None);
        assert_eq!(
            tool_started("Edit", json!({"x": 1}), Some("src/a.rs")).as_deref(),
            Some("* Edit src/a.rs")
        );
        assert_eq!(
            tool_started("Bash", json!({"command": "ls\n -l"}), None).as_deref(),
            Some("* Bash ls -l")
        );
        assert_eq!(tool_started("X", json!({"n": 1}), None).as_deref(), Some("* X {\"n\":1}"));
        assert_eq!(tool_started("X", Value::Null, None).as_deref(), Some("* X"));
        let ended = |error| Activity::ToolEnded { id: String::new(), error, output: "no such file\n".into() };
        assert_eq!(shown(ended(true)).as_deref(), Some("  failed: no such file"));
        assert_eq!(shown(ended(false)), None);
        assert_eq!(shown(Activity::Usage(Usage::default())), None);
        let end = TurnEnd { duration_ms: Some(1250), cost_usd: Some(0.5), ..TurnEnd::default() };
        assert_eq!(shown(Activity::TurnEnded(end)).as_deref(), Some("- turn ended, 1.2 s, $0.50"));
        let failed = TurnEnd { is_error: true, error: "out of credit".into(), ..TurnEnd::default() };
        assert_eq!(shown(Activity::TurnEnded(failed)).as_deref(), Some("- turn failed: out of credit"));
        assert_eq!(shown(json!({"type": "user", "text": "one\ntwo"})).as_deref(), Some("> one\n> two"));
        assert_eq!(shown(json!({"type": "life", "text": "started"})).as_deref(), Some("- started"));
    }

    #[test]
    fn since_takes_a_length_or_a_time_and_tail_a_number() {
        let now = Time(3_600_000);
        let since = |text: &str| Start::Since(text.into());
        assert_eq!(start(None, Some("10m"), now), Ok(since("1970-01-01T00:50:00.000Z")));
        assert_eq!(start(None, Some("9d"), now), Ok(since("1970-01-01T00:00:00.000Z")));
        assert_eq!(start(None, Some("2026-01-31T12:00:00Z"), now), Ok(since("2026-01-31T12:00:00.000Z")));
        assert_eq!(start(Some("5"), None, now), Ok(Start::Tail(Some(5))));
        assert_eq!(start(None, None, now), Ok(Start::Tail(None)));
        for (tail, since) in
            [(Some("0"), None), (Some("x"), None), (None, Some("then")), (Some("1"), Some("1s"))]
        {
            assert!(
                matches!(start(tail, since, now), Err(Failure::Say { code: 2, .. })),
                "{tail:?} {since:?}"
            );
        }
    }
}
