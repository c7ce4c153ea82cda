//! `svc index`: what the daemon knows of the codebase.

use super::commands::{Command, Group, switch};
use super::progress::Line;
use super::render::{Table, clean, count};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long the first scan of a project is waited for.
const FIRST_SCAN_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(150);

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "index",
    group: Group::Look,
    summary: "show what is known of the codebase",
    usage: "index [--rescan]",
    options: &[switch("rescan", "scan the project again first")],
    details: "Counts files and folders that git does not ignore, and lists the packages of npm, yarn, pnpm, lerna,\n\
                  Cargo, Go and uv workspaces. New agents are told the same.",
    run: index,
    ..Command::PLAIN
}];

/// `svc index [--rescan]`.
fn index(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client_doing("scanning the project")?;
    let mut status = if session.args.flag("rescan") {
        client.post("/api/indexer/rescan", &json!({}))?
    } else {
        client.get("/api/indexer")?
    };
    let mut line = Line::new(out, "scanning the project");
    let deadline = Instant::now() + FIRST_SCAN_LIMIT;
    while status["indexed"] != true && Instant::now() < deadline {
        line.draw("", None);
        std::thread::sleep(LOOK_INTERVAL);
        status = client.get("/api/indexer")?;
    }
    drop(line);
    let workspaces = client.get("/api/indexer/workspaces")?;
    if out.json {
        let mut whole = status;
        whole["workspaces"] = workspaces["workspaces"].clone();
        return out.document(&whole);
    }
    let list = workspaces["workspaces"].as_array().cloned().unwrap_or_default();
    if out.quiet {
        return out.lines(&list.iter().map(|workspace| clean(text(workspace, "path"))).collect::<Vec<_>>());
    }
    if status["indexed"] != true {
        let limit = FIRST_SCAN_LIMIT.as_secs();
        return Err(Failure::failed(format!(
            "the first scan has not ended within {limit} s; ask again later, or see .svc/daemon.log"
        )));
    }
    let number = |value: &Value| count(value.as_u64().unwrap_or_default());
    let stats = &status["stats"];
    out.line(&format!(
        "{} files in {} folders, {} levels deep; scanned in {} ms{}",
        number(&stats["totalFiles"]),
        number(&stats["totalDirs"]),
        stats["treeDepth"],
        status["durationMs"],
        if status["truncated"] == true { "; too large to be counted whole" } else { "" },
    ))?;
    if list.is_empty() {
        return out.line("no workspaces: the project is one package, or none");
    }
    let mut table = Table::new(&["WORKSPACE", "NAME", "TYPE", "FILES", "FOLDERS"]).numeric(&[3, 4]);
    for workspace in &list {
        table.row(&[
            clean(text(workspace, "path")),
            clean(text(workspace, "name")),
            text(workspace, "type").into(),
            number(&workspace["files"]),
            number(&workspace["dirs"]),
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}
