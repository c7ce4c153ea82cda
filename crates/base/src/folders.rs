//! Names in a project that mean something to more than one feature.

/// Folders that are never looked into, ignored or not: version control, our own state, installed packages.
pub const SKIPPED: [&str; 6] = [".git", ".hg", ".svn", ".jj", ".svc", "node_modules"];
/// Where agents' worktrees stand.
pub const WORKTREES: &str = ".svc/worktrees";
/// What keepers and lines of runs that are under way need.
pub const RUNS: &str = ".svc/run";
/// The project map's file name, in the project's root.
pub const MAP_FILE: &str = "SVC_PROJECT_MAP.md";
/// The decisions' file name.
pub const DECISIONS_FILE: &str = "SVC_DECISIONS.md";
