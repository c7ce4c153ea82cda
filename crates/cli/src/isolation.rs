//! `svc diff`, `svc merge` and `svc discard`.

use super::client::encode;
use super::commands::{Command, Group, Words, short, switch, value};
use super::render::{Style, Table, clean, one_line};
use super::session::{Outcome, Session};
use super::target::{find, path, text};
use serde_json::{Value, json};

/// Characters of a commit that people are shown.
const SHORT_COMMIT: usize = 9;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[
    Command {
        name: "diff",
        alias: "",
        group: Group::Agents,
        summary: "show what an agent has changed",
        usage: "diff TARGET [FILE] [--turn N] [--stat] [--whole]",
        words: (1, 2),
        complete: Words::Agents,
        options: &[
            value("turn", "N", "only what this turn has changed, by its snapshots"),
            switch("stat", "only the files, with lines added and removed"),
            switch("whole", "the whole folder against the last commit, whoever changed it"),
        ],
        details: "An agent with a worktree: against the commit where its branch left the project's, uncommitted work\n\
                  included. Any other: what its turns have changed, by its snapshots; where there are none, its\n\
                  folder against the last commit, whoever changed it, with what its tools wrote marked in --stat.\n\
                  --quiet prints only the names of the files.",
        run: diff,
    },
    Command {
        name: "merge",
        alias: "",
        group: Group::Agents,
        summary: "merge the worktree of an agent into the project",
        usage: "merge TARGET [-m TEXT] [--dry-run] [--remove] [--force]",
        words: (1, 1),
        complete: Words::Agents,
        options: &[
            short('m', value("message", "TEXT", "the message of the merge commit")),
            switch("dry-run", "only say what would happen"),
            switch("remove", "remove the worktree afterwards; one with uncommitted work stays"),
            switch("force", "although it runs: what it has committed so far"),
        ],
        details: "What the agent has not committed becomes a commit of its own on its branch first. The merge goes into\n\
                  the project's current branch, wholly or not at all: a conflict, or a changed file of yours in the\n\
                  way, is named and nothing is touched.",
        run: merge,
    },
    Command {
        name: "discard",
        alias: "",
        group: Group::Agents,
        summary: "remove the worktree of an agent without a merge",
        usage: "discard TARGET",
        words: (1, 1),
        complete: Words::Agents,
        options: &[],
        details: "The agent has ended. What it has not committed becomes a commit of its own on its branch first, and the\n\
                  branch stays unless all of it is merged: nothing is lost, and 'git branch -D BRANCH' deletes it.",
        run: discard,
    },
];

fn diff(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let mut query = args.words.get(1).map(|file| format!("path={}", encode(file))).unwrap_or_default();
    query += &args.query(&["turn"]);
    if args.flag("whole") {
        query += "&whole=true";
    }
    let answer = client.get(&path(&agent, &format!("/diff?{}", query.trim_start_matches('&'))))?;
    let Some(files) = out.rows(&answer, &answer["files"], "path")? else { return Ok(()) };
    if files.is_empty() {
        return out.line(&format!("{} has changed nothing{}", text(&answer, "agentName"), since(&answer)));
    }
    out.note(&summary(&answer, files.len()));
    if args.flag("stat") {
        return out.lines(&stat(&answer, files).lines(out.width, out.colour));
    }
    let paint = |line: &str| painted(&clean(line), |style, line| out.paint(style, line));
    out.lines(&text(&answer, "diff").lines().map(paint).collect::<Vec<_>>())?;
    if answer["truncated"] == true {
        out.note("the rest is left out; name a FILE to see its part");
    }
    Ok(())
}

/// What it is compared with, in a few words.
fn since(answer: &Value) -> String {
    if answer["source"] == "snapshots" {
        let turns = answer["turns"].as_array().map_or(0, Vec::len);
        return format!(" in {}", counted(turns as u64, "turn"));
    }
    let base: String = text(answer, "base").chars().take(SHORT_COMMIT).collect();
    match answer["branch"].as_str() {
        Some(branch) => format!(" on {} since {base}", clean(branch)),
        None => format!(" in its folder since {base}"),
    }
}

fn summary(answer: &Value, files: usize) -> String {
    let state = match (answer["commits"].as_u64().unwrap_or(0), answer["uncommitted"] == true) {
        _ if answer["branch"].is_null() => String::new(),
        (0, _) => ", not committed".into(),
        (commits, true) => format!(", {} and more not committed", counted(commits, "commit")),
        (commits, false) => format!(", {}", counted(commits, "commit")),
    };
    format!(
        "{}: {}, +{} -{}{}{state}",
        text(answer, "agentName"),
        counted(u64::try_from(files).unwrap_or(u64::MAX), "file"),
        answer["added"],
        answer["removed"],
        since(answer),
    )
}

/// `1 file`, `2 files`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn stat(answer: &Value, files: &[Value]) -> Table {
    let shared = answer["branch"].is_null();
    let header: &[&'static str] =
        if shared { &["CHANGE", "+", "-", "WROTE", "FILE"] } else { &["CHANGE", "+", "-", "FILE"] };
    let mut table = Table::new(header).numeric(&[1, 2]);
    for file in files {
        let lines = |name: &str| if file["binary"] == true { "bin".into() } else { file[name].to_string() };
        let name = match file["from"].as_str() {
            Some(from) => format!("{} (was {})", text(file, "path"), from),
            None => text(file, "path").to_owned(),
        };
        let mut row = vec![text(file, "status").to_owned(), lines("added"), lines("removed")];
        if shared {
            row.push(if file["written"] == true { "yes".into() } else { "-".into() });
        }
        row.push(one_line(&name));
        table.row(&row);
    }
    table
}

/// A line of a patch in its colour.
fn painted(line: &str, paint: impl Fn(Style, &str) -> String) -> String {
    let heading = ["diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "rename ", "similarity "];
    let style = match line.as_bytes().first() {
        _ if heading.iter().any(|start| line.starts_with(start)) => Style::Bold,
        Some(b'+') => Style::Green,
        Some(b'-') => Style::Red,
        Some(b'@') => Style::Cyan,
        _ => return line.to_owned(),
    };
    paint(style, line)
}

fn merge(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let agent = find(&client, &args.words[0])?;
    let mut body = json!({
        "dryRun": args.flag("dry-run"), "remove": args.flag("remove"), "force": args.flag("force"),
    });
    if let Some(message) = args.value("message") {
        body["message"] = json!(message);
    }
    let answer = client.post(&path(&agent, "/merge"), &body)?;
    if out.json {
        return out.document(&answer);
    }
    if out.quiet {
        return answer["commit"].as_str().map_or(Ok(()), |commit| out.line(commit));
    }
    told(session, &answer)
}

fn discard(session: &Session) -> Outcome {
    let out = &session.out;
    let client = session.client()?;
    let agent = find(&client, &session.args.words[0])?;
    let answer = client.post(&path(&agent, "/discard"), &json!({}))?;
    if out.json {
        return out.document(&answer);
    }
    let branch = clean(text(&answer, "branch"));
    if out.quiet {
        return out.line(&branch);
    }
    if let Some(note) = answer["note"].as_str() {
        return out.line(&clean(note));
    }
    let commit: String = text(&answer, "commit").chars().take(SHORT_COMMIT).collect();
    out.line(&format!(
        "removed the worktree {}; work that is not merged stays on {branch} ({commit}): git branch -D {branch} deletes it",
        clean(text(&answer, "worktree"))
    ))
}

fn told(session: &Session, answer: &Value) -> Outcome {
    let out = &session.out;
    let files = answer["files"].as_array().cloned().unwrap_or_default();
    let sum = |name: &str| files.iter().filter_map(|file| file[name].as_u64()).sum::<u64>();
    let what = format!("{} into {}", clean(text(answer, "branch")), clean(text(answer, "into")));
    let number = counted(u64::try_from(files.len()).unwrap_or(u64::MAX), "file");
    let counts = format!("{number}, +{} -{}", sum("added"), sum("removed"));
    let commit: String = text(answer, "commit").chars().take(SHORT_COMMIT).collect();
    if answer["dryRun"] == true && files.is_empty() {
        out.line(&format!("there is nothing to merge of {what}"))?;
    } else if answer["dryRun"] == true {
        out.line(&format!("would merge {what}: {counts}; nothing conflicts"))?;
    } else if answer["merged"] == true {
        out.line(&format!("merged {what} as {commit}: {counts}"))?;
    }
    if !files.is_empty() {
        out.lines(&stat(answer, &files).lines(out.width, out.colour))?;
    }
    if let Some(note) = answer["note"].as_str() {
        out.line(&clean(note))?;
    }
    if answer["worktreeRemoved"] == true {
        out.line(&format!("removed the worktree {}", text(answer, "worktree")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_coloured_by_its_lines() {
        let name = |line: &str| painted(line, |style, line| format!("{style:?}:{line}"));
        for (line, style) in [
            ("diff --git a/x b/x", "Bold"),
            ("+++ b/x", "Bold"),
            ("--- a/x", "Bold"),
            ("+new", "Green"),
            ("-old", "Red"),
            ("@@ -1 +1 @@", "Cyan"),
        ] {
            assert_eq!(name(line), format!("{style}:{line}"));
        }
        assert_eq!(name(" same"), " same");
    }

    #[test]
    fn the_summary_says_what_is_compared_and_what_is_committed() {
        let mut answer = json!({
            "agentName": "api-1", "branch": "svc/api-1", "base": "0123456789abcdef", "commits": 2,
            "uncommitted": true, "added": 5, "removed": 1,
        });
        let words = "api-1: 1 file, +5 -1 on svc/api-1 since 012345678, 2 commits and more not committed";
        assert_eq!(summary(&answer, 1), words);
        answer["branch"] = Value::Null;
        assert_eq!(summary(&answer, 3), "api-1: 3 files, +5 -1 in its folder since 012345678");
    }
}
