//! The daily cleanup of a real daemon with real files: one that is overdue comes at the start.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes a file look as if it was last written so long ago.
fn age(path: &Path, age: Duration) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

fn git(folder: &Path, args: &[&str]) {
    let settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(settings).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
}

fn worktree(folder: &Folder, name: &str, since: Duration) {
    let (branch, path) = (format!("svc/{name}"), format!(".svc/worktrees/{name}"));
    git(folder.path(), &["worktree", "add", "--quiet", "-b", &branch, &path]);
    age(&folder.path().join(&path).join(".git"), since);
}

fn outcome_of(daemon: &Daemon) -> Value {
    wait_for("the cleanup", || {
        let outcome = daemon.get("/api/status")["cleanup"]["outcome"].clone();
        let any = outcome
            .as_object()
            .is_some_and(|fields| fields.values().any(|count| *count != 0 && *count != json!([])));
        any.then_some(outcome)
    })
}

#[test]
fn limits_daily_cleanup_deletes_old_logs_and_plans_trims_the_audit_log_and_removes_clean_worktrees() {
    let folder = Arc::new(Folder::new("cleanup"));
    git(folder.path(), &["init", "--quiet"]);
    folder.write("a.txt", "a");
    folder.write(".gitignore", ".svc\n");
    git(folder.path(), &["add", "."]);
    git(folder.path(), &["commit", "--quiet", "-m", "first"]);
    folder.write(".svc/.gitignore", "*\n");
    let at = |path: &str| folder.path().join(path);
    for (lineage, days) in [("000000aa", 8), ("000000bb", 6)] {
        let path = format!(".svc/logs/{lineage}/000000000001.jsonl");
        folder.write(&path, "{}\n");
        age(&at(&path), DAY * days);
    }
    for (plan, hours) in
        [("recommended-team.json", 25), ("recommended-team.old.json", 25), ("recommended-team-2.json", 23)]
    {
        folder.write(&format!(".svc/{plan}"), "{}");
        age(&at(&format!(".svc/{plan}")), Duration::from_secs(hours * 3600));
    }
    let entry = r#"{"ts":"2026-01-01T00:00:00.000Z","event":"old","actor":"daemon"}"#;
    let entries = format!("{entry}\n").repeat(1_500);
    folder.write(".svc/audit.jsonl", &entries);
    worktree(&folder, "clean", DAY * 2);
    worktree(&folder, "young", Duration::ZERO);
    worktree(&folder, "changed", DAY * 2);
    folder.write(".svc/worktrees/changed/new.txt", "not committed");
    worktree(&folder, "ahead", DAY * 2);
    folder.write(".svc/worktrees/ahead/b.txt", "b");
    git(&at(".svc/worktrees/ahead"), &["add", "."]);
    git(&at(".svc/worktrees/ahead"), &["commit", "--quiet", "-m", "work"]);

    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    let outcome = outcome_of(&daemon);
    let wanted = json!({
        "logsRemoved": 1, "plansRemoved": 2, "worktreesRemoved": 2, "worktreesKept": 1, "errors": [],
    });
    assert_eq!(outcome, wanted, "{}", daemon.log());
    assert!(!at(".svc/logs/000000aa").exists() && at(".svc/logs/000000bb").exists());
    assert!(!at(".svc/recommended-team.json").exists() && at(".svc/recommended-team-2.json").exists());
    assert!(!at(".svc/worktrees/clean").exists() && !at(".svc/worktrees/ahead").exists());
    assert!(at(".svc/worktrees/young").exists() && at(".svc/worktrees/changed/new.txt").exists());
    let branches =
        Command::new("git").args(["branch", "--list", "svc/*"]).current_dir(folder.path()).output().unwrap();
    let branches = String::from_utf8(branches.stdout).unwrap();
    assert!(
        branches.contains("svc/ahead") && !branches.contains("svc/clean"),
        "work stays on its branch: {branches}"
    );
    let lines = || fs::read_to_string(at(".svc/audit.jsonl")).unwrap().lines().count();
    wait_for("the audit log to be trimmed to the last 1000 entries", || (lines() == 1_000).then_some(()));
    assert_eq!(daemon.get("/api/audit?limit=1")["entries"][0]["event"], "cleanup.daily");

    assert!(daemon.get("/api/status")["cleanup"]["nextRun"].is_string());
    wait_for("the record", || at(".svc/state/cleanup.json").exists().then_some(()));
    folder.write(".svc/recommended-team.json", "{}");
    age(&at(".svc/recommended-team.json"), DAY * 2);
    assert_eq!(daemon.stop(), Some(0));
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    assert_eq!(daemon.get("/api/status")["cleanup"]["outcome"], wanted, "a restart is no new day");
    assert!(at(".svc/recommended-team.json").exists());
}
