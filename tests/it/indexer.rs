//! The codebase indexer (specification: "Codebase indexer"; decisions §13, Indexer).

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use svc::core::time::Time;
use svc::workspace::index::Stats;
use svc::workspace::worker_index::Indexer;

fn monorepo() -> Arc<Folder> {
    let folder = Arc::new(Folder::new("indexed"));
    folder.write("package.json", r#"{"name": "root", "workspaces": ["packages/*"]}"#);
    folder.write("README.md", "hello");
    folder.write(".gitignore", "dist/\n*.log\n");
    folder.write("packages/a/package.json", r#"{"name": "@demo/a"}"#);
    folder.write("packages/a/src/main.js", "");
    folder.write("packages/a/dist/out.js", "");
    folder.write("packages/b/package.json", "{}");
    folder.write("packages/b/noise.log", "");
    folder.write("node_modules/x/package.json", "{}");
    folder
}

fn indexed(daemon: &Daemon) -> Value {
    wait_for("the first scan", || Some(daemon.get("/api/indexer")).filter(|status| status["indexed"] == true))
}

#[test]
fn spec_indexer_status_workspaces_rescan_and_the_stored_file() {
    let daemon = Daemon::start_in(monorepo(), &[]);
    let status = indexed(&daemon);
    assert_eq!(status["workspaceCount"], 2);
    assert!(status["lastIndexTime"].as_u64().unwrap() > 1_700_000_000_000);
    // package.json, README.md, .gitignore, and two manifests and main.js below packages.
    assert_eq!(status["stats"], json!({"totalFiles": 6, "totalDirs": 4, "treeDepth": 3}));
    let workspaces = daemon.get("/api/indexer/workspaces");
    assert_eq!(
        workspaces["workspaces"],
        json!([
            {"path": "packages/a", "name": "@demo/a", "type": "npm-workspaces", "files": 2, "dirs": 1},
            {"path": "packages/b", "name": "b", "type": "npm-workspaces", "files": 1, "dirs": 0},
        ])
    );
    let stored = fs::read_to_string(daemon.project.join(".svc/codebase-index.json")).unwrap();
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["workspaces"], workspaces["workspaces"]);
    assert_eq!(stored["keyFiles"], json!(["README.md", "package.json"]));

    fs::create_dir_all(daemon.project.join("packages/c")).unwrap();
    fs::write(daemon.project.join("packages/c/package.json"), "{}").unwrap();
    let rescanned = daemon.post("/api/indexer/rescan", &json!({}));
    assert_eq!((&rescanned["workspaceCount"], &rescanned["stats"]["totalFiles"]), (&json!(3), &json!(7)));
    assert_eq!(daemon.get("/api/indexer"), rescanned);
}

#[test]
fn decisions_13_indexed_is_false_before_the_first_scan() {
    let state = svc::workspace::State::default();
    let status = state.index_status();
    assert_eq!((&status["indexed"], &status["workspaceCount"]), (&json!(false), &json!(0)));
    assert_eq!(state.summary("", &[], ""), "");
}

fn now() -> Time {
    svc_sys::clock::now()
}

/// A scan by an indexer that knows nothing yet.
fn fresh(project: &Path) -> Stats {
    Indexer::new(project.to_path_buf()).scan(now()).unwrap().stats
}

/// What is changed, and how.
type Step = (&'static str, fn(&Path));

/// Makes every folder look as if nothing had changed in it for an hour, so that only real changes show.
fn age(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.file_type().unwrap().is_dir()) {
        age(&entry.path());
    }
    let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    fs::File::open(folder).unwrap().set_modified(earlier).unwrap();
}

/// Whatever is changed between two scans, the rescan says what a first scan would say.
#[test]
fn decisions_13_an_incremental_rescan_equals_a_first_scan() {
    let folder = monorepo();
    let project = folder.path();
    let indexer = Indexer::new(project.to_path_buf());
    let steps: [Step; 9] = [
        ("nothing", |_| ()),
        ("a new file", |p| fs::write(p.join("packages/a/src/new.js"), "").unwrap()),
        ("an ignored file", |p| fs::write(p.join("packages/a/src/x.log"), "").unwrap()),
        ("a new tree", |p| {
            fs::create_dir_all(p.join("fresh/one/two")).unwrap();
            fs::write(p.join("fresh/one/two/file"), "").unwrap();
        }),
        ("a tree gone", |p| fs::remove_dir_all(p.join("packages/b")).unwrap()),
        ("a folder renamed", |p| fs::rename(p.join("fresh/one"), p.join("fresh/other")).unwrap()),
        ("a folder that is a file now", |p| {
            fs::remove_dir_all(p.join("fresh/other")).unwrap();
            fs::write(p.join("fresh/other"), "").unwrap();
        }),
        ("an ignore file changed", |p| fs::write(p.join(".gitignore"), "*.log\n").unwrap()),
        ("an ignore file made", |p| fs::write(p.join("packages/a/.gitignore"), "src\n").unwrap()),
    ];
    for (what, step) in steps {
        age(project);
        indexer.scan(now()).unwrap();
        step(project);
        assert_eq!(indexer.scan(now()).unwrap().stats, fresh(project), "after {what}");
    }
}

/// Changes made right after a scan, within the disk's tick of time, are not missed.
#[test]
fn a_change_within_the_clocks_tick_is_seen() {
    let folder = Folder::new("tick");
    let indexer = Indexer::new(folder.path().to_path_buf());
    for n in 1..200 {
        fs::write(folder.path().join(format!("f{n}")), "").unwrap();
        assert_eq!(indexer.scan(now()).unwrap().stats.total_files, n);
    }
}

#[test]
fn hidden_files_count_and_version_control_does_not() {
    let folder = Folder::new("hidden");
    for name in [".git/objects/x", ".github/ci.yml", "a/.git/y", ".env", "vendor/node_modules/p/package.json"]
    {
        folder.write(name, "");
    }
    let stats = fresh(folder.path());
    assert_eq!((stats.total_files, stats.total_dirs, stats.tree_depth), (2, 3, 1));
}

#[test]
fn svc_index_tells_the_same_as_the_api() {
    let daemon = Daemon::start_in(monorepo(), &[]);
    indexed(&daemon);
    let svc = |args: &[&str]| {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(args)
            .args(["--url", &daemon.url])
            .env_remove("SVC_AGENT_ID")
            .output()
            .unwrap();
        assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    };
    let text = svc(&["index"]);
    assert!(text.starts_with("6 files in 4 folders, 3 levels deep"), "{text}");
    assert!(
        text.contains("packages/a") && text.contains("@demo/a") && text.contains("npm-workspaces"),
        "{text}"
    );
    assert_eq!(svc(&["index", "-q"]), "packages/a\npackages/b\n");
    fs::write(daemon.project.join("new.txt"), "").unwrap();
    let json: Value = serde_json::from_str(&svc(&["index", "--rescan", "--json"])).unwrap();
    assert_eq!(
        (&json["stats"]["totalFiles"], &json["workspaces"][0]["name"]),
        (&json!(7), &json!("@demo/a"))
    );
}
