//! `svc prices`.

use super::commands::{Command, Group, switch};
use super::render::{Table, clean};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::Value;
use std::io::Read;

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "prices",
    group: Group::Look,
    summary: "show what models cost, or take other prices from a file",
    usage: "prices [update FILE | update --reset]",
    options: &[switch("reset", "use the built-in prices alone again")],
    words: (0, 2),
    details: "FROM is built-in, given (by such a file) or setting ('models'). A file is like 'svc prices --json':\n\
              asOf, source, and models with id, input, output, cacheRead, cacheCreation. It stands before the\n\
              built-in table, for what is used from then on. Only people change prices.",
    run: prices,
    ..Command::PLAIN
}];

/// Bytes of a file with prices; the daemon takes no more.
const MAX_FILE_BYTES: u64 = 1 << 20;

fn prices(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    let answer = match (words.as_slice(), session.args.flag("reset")) {
        ([], false) => session.client()?.get("/api/prices")?,
        (["update", file], false) => {
            let table = read(file)?;
            session.client()?.post("/api/prices", &table)?
        }
        (["update"], true) => session.client()?.call("DELETE", "/api/prices", None)?,
        _ => {
            return Err(Failure::usage(
                "usage: svc prices [update FILE | update --reset]; see 'svc help prices'",
            ));
        }
    };
    let out = &session.out;
    let Some(models) = out.rows(&answer, &answer["models"], "id")? else { return Ok(()) };
    let mut lines = Vec::new();
    if words.is_empty() {
        let header = &["MODEL", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "FROM", "AS OF"];
        let mut table = Table::new(header).numeric(&[1, 2, 3, 4]);
        let price = |value: &Value| format!("${}", value.as_f64().unwrap_or_default());
        for one in models {
            let [input, output, read, written] =
                ["input", "output", "cacheRead", "cacheCreation"].map(|name| price(&one[name]));
            let (from, as_of) = (text(one, "from").into(), clean(one["asOf"].as_str().unwrap_or("-")));
            table.row(&[clean(text(one, "id")), input, output, read, written, from, as_of]);
        }
        lines = table.lines(out.width, out.colour);
        lines.push(String::new());
    }
    lines.extend(about(&answer, models.len()));
    out.lines(&lines)
}

/// Of which day the prices are, and whose.
fn about(answer: &Value, models: usize) -> Vec<String> {
    let kind = if answer["isGiven"] == true { "given" } else { "built-in" };
    let age = answer["ageDays"].as_u64().map_or_else(String::new, |days| format!(", {days} days old"));
    let mut lines = vec![
        format!("{models} models, {}", text(answer, "unit")),
        format!("{kind} prices as of {}{age}", clean(text(answer, "asOf"))),
        clean(text(answer, "source")),
    ];
    if answer["isOlderThanBuiltIn"] == true {
        let built_in = clean(text(answer, "builtInAsOf"));
        lines.push(format!(
            "they are older than the built-in ones of {built_in}: 'svc prices update --reset' uses those"
        ));
    } else if answer["isOld"] == true {
        lines.push("they are old: 'svc prices update FILE' takes newer ones".to_owned());
    }
    lines
}

/// A file with a table of prices.
fn read(file: &str) -> Result<Value, Failure> {
    let failed = |why: String| Failure::failed(format!("{file}: {why}"));
    let mut content = String::new();
    std::fs::File::open(file)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut content))
        .map_err(|error| failed(error.to_string()))?;
    if u64::try_from(content.len()).is_ok_and(|bytes| bytes > MAX_FILE_BYTES) {
        return Err(failed(
            "a table of prices has at most 1 MiB; leave out models that are not used".to_owned(),
        ));
    }
    let table: Value = serde_json::from_slice(content.as_bytes())
        .map_err(|error| failed(format!("it is no JSON: {error}; it is to be like 'svc prices --json'")))?;
    if !table.is_object() {
        return Err(failed(
            "it is to be an object like 'svc prices --json', with asOf, source and models".to_owned(),
        ));
    }
    Ok(table)
}
