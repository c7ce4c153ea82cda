//! The index of the codebase: what it holds, which workspaces a project declares, and what agents are told.
//! Pure: the walk over the disk is in `worker_index.rs`.

mod detect;

pub use detect::detect;

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;
use svc_base::sorted;
use svc_base::{relevance, scopes};

/// Files whose presence in a folder is remembered, by bit. The first [`MANIFESTS`] decide about workspaces,
/// the next [`IGNORE_FILES`] about what is ignored; all but the ignore files are told to agents when the
/// root has them.
pub const MARKED: [&str; 26] = [
    "package.json",
    "pnpm-workspace.yaml",
    "lerna.json",
    "Cargo.toml",
    "go.work",
    "go.mod",
    "pyproject.toml",
    "yarn.lock",
    ".gitignore",
    ".ignore",
    "README.md",
    "ARCHITECTURE.md",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "CONTRIBUTING.md",
    "Makefile",
    "justfile",
    "Dockerfile",
    "docker-compose.yml",
    "compose.yaml",
    "tsconfig.json",
    "CMakeLists.txt",
    "pom.xml",
    "build.gradle",
    "requirements.txt",
];
/// See [`MARKED`].
pub const MANIFESTS: usize = 8;
/// The bits of the manifests.
const MANIFEST_BITS: u32 = (1 << MANIFESTS) - 1;
/// See [`MARKED`].
pub const IGNORE_FILES: std::ops::Range<usize> = 8..10;
/// The bits of the ignore files.
pub const IGNORE_BITS: u32 = (1 << IGNORE_FILES.end) - (1 << IGNORE_FILES.start);
/// Workspaces recorded at most.
pub const MAX_WORKSPACES: usize = 1_000;
/// Workspaces named in a summary.
const SUMMARY_WORKSPACES: usize = 25;
/// Characters of one name in a summary.
const SUMMARY_NAME_CHARS: usize = 80;

/// What a folder holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folder {
    /// Files directly in it.
    pub files: u32,
    /// Which of [`MARKED`] are in it, by bit.
    pub marks: u32,
    /// When names in it changed last, in nanoseconds since 1970, as the disk tells; 0 when that cannot be
    /// relied on.
    pub changed_ns: i64,
}

impl Folder {
    /// Whether it holds this file, which must be one of [`MARKED`].
    pub fn has(&self, name: &str) -> bool {
        MARKED.iter().position(|marked| *marked == name).is_some_and(|bit| self.marks & (1 << bit) != 0)
    }
}

/// The folders of a project by path relative to its root, which is the empty text.
pub type Folders = BTreeMap<Box<str>, Folder>;

/// A part of the project that its build tool treats as a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
pub struct Workspace {
    /// Relative to the project's root.
    pub path: String,
    /// From its manifest, else its folder's name.
    pub name: String,
    /// What declares it, for example `npm-workspaces`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub files: u64,
    /// Folders below it.
    pub dirs: u64,
}

/// Counts of the whole project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Files that are not ignored.
    pub total_files: u64,
    /// Folders below the root.
    pub total_dirs: u64,
    /// The deepest folder's level below the root.
    pub tree_depth: u64,
}

/// The index, as `.svc/codebase-index.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    pub version: u32,
    /// The name of the root's folder.
    pub project_name: String,
    /// When the scan began, in epoch milliseconds.
    pub last_index_time: u64,
    /// How long it took.
    pub duration_ms: u64,
    pub stats: Stats,
    pub workspaces: Vec<Workspace>,
    /// Files at the root that a newcomer should know.
    pub key_files: Vec<String>,
    /// Whether the project is larger than an index holds.
    pub truncated: bool,
}

/// Format of the index.
pub const VERSION: u32 = 1;

/// Counts over all folders.
pub fn stats(folders: &Folders) -> Stats {
    let mut stats = Stats::default();
    for (path, folder) in folders {
        stats.total_files += u64::from(folder.files);
        if !path.is_empty() {
            stats.total_dirs += 1;
            let slashes = memchr::memchr_iter(b'/', path.as_bytes()).count();
            stats.tree_depth = stats.tree_depth.max(1 + slashes as u64);
        }
    }
    stats
}

/// The marked files of the root, in the order of [`MARKED`], those for people first.
pub fn key_files(folders: &Folders) -> Vec<String> {
    let Some(root) = folders.get("") else { return Vec::new() };
    let present = |name: &&&str| root.has(name);
    let told = MARKED[IGNORE_FILES.end..].iter().chain(&MARKED[..MANIFESTS]);
    told.filter(present).map(|name| (*name).to_owned()).collect()
}

/// All folders below `path`, without itself.
pub fn below<'a>(folders: &'a Folders, path: &str) -> impl Iterator<Item = (&'a str, &'a Folder)> {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let range = folders.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
    range
        .map(|(inner, folder)| (&**inner, folder))
        .skip_while(|(inner, _)| inner.is_empty())
        .take_while(move |(inner, _)| inner.starts_with(&prefix))
}

/// Counts of everything at and below `path`.
fn counts(folders: &Folders, path: &str) -> (u64, u64) {
    let own = folders.get(path).map_or(0, |folder| u64::from(folder.files));
    below(folders, path)
        .fold((own, 0), |(files, dirs), (_, folder)| (files + u64::from(folder.files), dirs + 1))
}

/// What an agent is to do, for which some packages matter more than others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Focus<'a> {
    pub task: &'a str,
    /// Globs of what it owns.
    pub scope: &'a [String],
    /// Where it works, relative to the project; empty is the root.
    pub dir: &'a str,
}

/// Packages in the order in which an agent wants to hear of them: those that it works in or owns something
/// of, those whose path or name shares rare words with its task, the largest of the others.
fn ranked<'a>(workspaces: &'a [Workspace], focus: &Focus) -> Vec<&'a Workspace> {
    let mut places = scopes::folders(focus.scope);
    places.push(focus.dir.to_owned());
    places.retain(|place| !place.is_empty());
    let texts: Vec<String> = workspaces.iter().map(|one| format!("{} {}", one.path, one.name)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut scores = vec![0.0; workspaces.len()];
    for (at, score) in relevance::rank(focus.task, &texts) {
        scores[at] = score;
    }
    let is_own = |one: &Workspace| {
        let touches =
            |place: &String| scopes::is_below(place, &one.path) || scopes::is_below(&one.path, place);
        !one.path.is_empty() && places.iter().any(touches)
    };
    let mut ranked: Vec<(bool, f64, &Workspace)> =
        workspaces.iter().zip(scores).map(|(one, score)| (is_own(one), score, one)).collect();
    sorted::by(&mut ranked, |a, b| {
        let by_files = || b.2.files.cmp(&a.2.files).then_with(|| a.2.path.cmp(&b.2.path));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then_with(by_files)
    });
    ranked.into_iter().map(|(_, _, one)| one).collect()
}

/// What a new agent is told of the project: name, counts, the packages that matter for its task, key files.
/// Names come from the disk, so they are cut and freed of control characters.
pub fn summary(index: &Index, focus: &Focus) -> String {
    let Stats { total_files, total_dirs, tree_depth } = index.stats;
    let mut text = format!(
        "Project {}: {total_files} files in {total_dirs} folders, {tree_depth} levels deep.\n",
        tame(&index.project_name)
    );
    if !index.workspaces.is_empty() {
        let _ = writeln!(text, "Workspaces ({}), the nearest to your task first:", index.workspaces.len());
        for workspace in ranked(&index.workspaces, focus).into_iter().take(SUMMARY_WORKSPACES) {
            let Workspace { path, name, kind, files, dirs } = workspace;
            let _ =
                writeln!(text, "- {} ({}, {kind}): {files} files, {dirs} folders", tame(path), tame(name));
        }
        let more = index.workspaces.len().saturating_sub(SUMMARY_WORKSPACES);
        if more > 0 {
            let _ = writeln!(text, "- and {more} more; GET /api/indexer/workspaces lists them");
        }
    }
    if !index.key_files.is_empty() {
        let _ = writeln!(text, "Key files: {}", index.key_files.join(", "));
    }
    text
}

fn tame(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(SUMMARY_NAME_CHARS).collect()
}
