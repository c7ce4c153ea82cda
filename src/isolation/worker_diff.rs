//! What an agent has changed, by file and as a patch.

use super::changes::Change;
use super::worker_git::{Git, words};
use super::worker_worktree::{EXCLUDED, OwnIndex, Place, SAFE_DIFF, add, changes};
use crate::agents::Agent;
use crate::api::{Problem, Validator};
use crate::assembly::host::Host;
use crate::endpoint::Ask;
use serde_json::{Value, json};

/// Bytes of a patch shown; a longer one is cut and says so.
const MAX_PATCH_BYTES: usize = 1 << 20;
/// Changed files told at most.
const MAX_FILES: usize = 5_000;
/// What a folder without a commit is compared with.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Unchanged lines around each change, when nothing is said of them.
const CONTEXT: u32 = 3;
/// The most of them: all of a file whose diff is shown at all.
const MAX_CONTEXT: u32 = 1_000_000;

/// What of a diff is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Only this file or folder; all where it is empty.
    pub path: &'a str,
    /// Unchanged lines around each change.
    pub context: u32,
}

impl<'a> Look<'a> {
    /// What a request asks for.
    ///
    /// Errors: 400.
    pub fn asked(ask: &'a Ask) -> Result<Self, Problem> {
        let path = ask.request.query("path").unwrap_or_default();
        let said = ask.request.query("context");
        let context = said.map_or(Some(CONTEXT), |text| text.parse().ok());
        let mut validator = Validator::default();
        let leads_out = path.starts_with('/') || path.split('/').any(|part| part == "..");
        validator.check(!leads_out, "path", || "path must be relative, without ..".to_owned());
        validator.check(context.is_some_and(|lines| lines <= MAX_CONTEXT), "context", || {
            format!("context must be a number from 0 to {MAX_CONTEXT}, it is {:?}", said.unwrap_or_default())
        });
        validator.finish()?;
        Ok(Self { path, context: context.unwrap_or(CONTEXT) })
    }
}

/// What is compared with what.
struct Comparison {
    git: Git,
    base: String,
    /// Told of a worktree only.
    branch: Option<String>,
    /// Commits of the agent that the project's branch does not hold.
    commits: u64,
    /// Whether something is in no commit yet.
    uncommitted: bool,
}

/// What a worktree holds against its base, or a folder against its last commit.
///
/// Errors: 409 where git has nothing to compare with.
pub fn diff(host: &Host, agent: &Agent, look: Look) -> Result<Value, Problem> {
    let path = look.path;
    let compared = if agent.worktree.is_some() { in_worktree(host, agent)? } else { in_folder(host, agent)? };
    // New files are to be seen too, and the real index is the agent's.
    let (_index, git) = OwnIndex::of(&compared.git)?;
    // Files that cannot be read are shown as git sees them.
    add(&git, &["--intent-to-add", "--ignore-errors"])?;
    let literal = format!(":(literal){path}");
    let mut paths = vec![if path.is_empty() { "." } else { literal.as_str() }];
    paths.extend(EXCLUDED);
    let mut files = changes(&git, &["--relative", &compared.base], &paths)?;
    let mut args = vec!["diff"];
    args.extend(SAFE_DIFF);
    let context = format!("--unified={}", look.context);
    args.extend(["--no-color", "-M", "--relative", &context, &compared.base, "--"]);
    args.extend(&paths);
    let patch = git.try_run(&args)?;
    let mut text = patch.stdout;
    let truncated = patch.truncated || text.len() > MAX_PATCH_BYTES || files.len() > MAX_FILES;
    text.truncate(MAX_PATCH_BYTES);
    files.truncate(MAX_FILES);
    Ok(shown(agent, &compared, &files, &String::from_utf8_lossy(&text), truncated))
}

/// What a worktree holds against the commit where its branch has left the project's.
fn in_worktree(host: &Host, agent: &Agent) -> Result<Comparison, Problem> {
    let place = Place::open(host, agent)?;
    let head = place.project.commit("HEAD")?.unwrap_or_else(|| EMPTY_TREE.into());
    let base = place.tree.ask(&["merge-base", &head, "HEAD"])?.unwrap_or_else(|| "HEAD".into());
    let commits = place.tree.run(&["rev-list", "--count", &format!("{base}..HEAD")])?;
    let uncommitted = !place.uncommitted()?.is_empty();
    let commits = commits.parse().unwrap_or_default();
    Ok(Comparison { git: place.tree, base, branch: Some(place.branch), commits, uncommitted })
}

/// What the working directory holds against the last commit, whoever did it.
fn in_folder(host: &Host, agent: &Agent) -> Result<Comparison, Problem> {
    let git = Git::new(host, host.project.join(&agent.working_dir));
    let inside = git.try_run(&["rev-parse", "--is-inside-work-tree"])?;
    if !inside.is_success() {
        let text = format!("git has no diff to show here: {}", words(&inside));
        return Err(Problem::new(409, "not_a_repository", text));
    }
    let base = git.commit("HEAD")?.unwrap_or_else(|| EMPTY_TREE.into());
    Ok(Comparison { git, base, branch: None, commits: 0, uncommitted: true })
}

fn shown(agent: &Agent, compared: &Comparison, files: &[Change], patch: &str, truncated: bool) -> Value {
    let wrote = |change: &Change| {
        let whole = match agent.working_dir.trim_matches('/') {
            "" | "." => change.path.clone(),
            folder => format!("{folder}/{}", change.path),
        };
        let counts = agent.files.get(&whole).or_else(|| agent.files.get(&change.path));
        counts.is_some_and(|touch| touch.writes > 0)
    };
    let list: Vec<Value> = files
        .iter()
        .map(|change| {
            let mut entry = json!(change);
            entry["written"] = json!(wrote(change));
            entry
        })
        .collect();
    json!({
        "agentId": agent.id,
        "agentName": agent.name,
        "isolation": agent.isolation,
        "source": if compared.branch.is_some() { "base" } else { "head" },
        "base": compared.base,
        "branch": compared.branch,
        "commits": compared.commits,
        "uncommitted": compared.uncommitted && !files.is_empty(),
        "files": list,
        "added": files.iter().map(|change| change.added).sum::<u64>(),
        "removed": files.iter().map(|change| change.removed).sum::<u64>(),
        "diff": patch,
        "truncated": truncated,
    })
}
