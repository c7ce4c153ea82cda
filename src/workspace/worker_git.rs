//! What git says of the project: status and diff.

use super::path::ProjectPath;
use super::worker_files::locate;
use super::worker_files::root;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::isolation::worker_git::Git;
use crate::isolation::worker_worktree::SAFE_DIFF;
use serde_json::{Value, json};

/// Bytes of a diff that are shown; more is cut and said.
const MAX_DIFF_BYTES: usize = 1 << 20;
/// Changed files told at most.
const MAX_FILES: usize = 5_000;

/// `GET /api/files/git-status`.
pub fn status(host: &Host, _ask: &Ask) -> Result<Answer, Problem> {
    let args = [
        "status",
        "--porcelain=v2",
        "-z",
        "--branch",
        "--untracked-files=all",
        "--ignore-submodules=dirty",
        "--",
        ".",
    ];
    let said = Git::new(host, host.project.clone()).try_run(&args)?;
    if !said.is_success() {
        let body = json!({"repository": false, "branch": null, "files": [], "truncated": false});
        return Ok(Answer::Reply(Reply::ok(&body)));
    }
    let (branch, mut files) = parse_status(&String::from_utf8_lossy(&said.stdout));
    let truncated = said.truncated || files.len() > MAX_FILES;
    files.truncate(MAX_FILES);
    let body = json!({"repository": true, "branch": branch, "files": files, "truncated": truncated});
    Ok(Answer::Reply(Reply::ok(&body)))
}

/// Reads `git status --porcelain=v2 -z --branch`: the branch, and each changed file.
pub fn parse_status(text: &str) -> (Option<String>, Vec<Value>) {
    let (mut branch, mut files) = (None, Vec::new());
    let mut records = text.split('\0');
    while let Some(record) = records.next() {
        let Some((kind, rest)) = record.split_once(' ') else { continue };
        // The path is the last field and may hold spaces.
        let field = |count: usize| rest.splitn(count, ' ').last().unwrap_or_default();
        let letters = || rest.split(' ').next().unwrap_or_default();
        match kind {
            "#" => {
                if let Some(name) = rest.strip_prefix("branch.head ") {
                    branch = Some(name.to_owned()).filter(|name| name != "(detached)");
                }
            }
            "1" => files.push(file(field(8), letters(), None)),
            "2" => files.push(file(field(9), letters(), records.next())),
            "u" => files.push(file(field(10), letters(), None)),
            "?" => files.push(file(rest, "??", None)),
            _ => {}
        }
    }
    (branch, files)
}

fn file(path: &str, letters: &str, from: Option<&str>) -> Value {
    let mut both = letters.chars();
    let (index, worktree) = (both.next().unwrap_or('.'), both.next().unwrap_or('.'));
    let word = match (index, worktree) {
        ('?', _) => "untracked",
        ('U', _) | (_, 'U') | ('A', 'A') | ('D', 'D') => "conflicted",
        ('R', _) | (_, 'R') => "renamed",
        ('D', _) | (_, 'D') => "deleted",
        ('A', _) | (_, 'A') => "added",
        _ => "modified",
    };
    let mut entry = json!({
        "path": path, "status": word, "index": index.to_string(), "worktree": worktree.to_string(),
    });
    if let Some(from) = from {
        entry["from"] = json!(from);
    }
    entry
}

/// `GET /api/files/git-diff`.
pub fn diff(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let path = ProjectPath::parse(ask.request.query("path").unwrap_or_default())?;
    if !path.is_root() {
        // A removed file has a diff too; what is there must not lie outside.
        match locate(&root(host)?, &path) {
            Err(problem) if problem.status != 404 => return Err(problem),
            _ => {}
        }
    }
    // A literal path: no pattern, no option.
    let literal = format!(":(literal){path}");
    let wanted = if path.is_root() { "." } else { literal.as_str() };
    let mut args = vec!["diff"];
    args.extend(SAFE_DIFF);
    args.extend(["--no-color", "--relative", "HEAD", "--", wanted]);
    let mut said = Git::new(host, host.project.clone()).try_run(&args)?;
    let truncated = said.truncated || said.stdout.len() > MAX_DIFF_BYTES;
    said.stdout.truncate(MAX_DIFF_BYTES);
    if !said.is_success() {
        let words = String::from_utf8_lossy(&said.stderr).trim().to_owned();
        return Err(Problem::new(409, "not_a_repository", format!("git has no diff to show here: {words}")));
    }
    Ok(Answer::Reply(Reply::ok(&json!({
        "path": path.as_str(), "diff": String::from_utf8_lossy(&said.stdout), "truncated": truncated,
    }))))
}
