//! Importing repositories (specification: "Further endpoints"; decisions §13, Repos). The other end is an
//! `ssh` of the test's own, first on the daemon's PATH, that serves a repository of this machine: git,
//! transport and limits are the real ones.

use crate::support::daemon::{Daemon, next_message};
use crate::support::folder::Folder;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;

struct Place {
    daemon: Daemon,
    /// Repositories, the ssh, and a home whose git settings would run hooks.
    far: Folder,
}

/// Serves what is in the folder, records its arguments, and hangs for a repository of the name `slow`.
const SSH: &str = r#"#!/bin/sh
echo "$@" >> FAR/ssh.log
for last; do :; done
case "$last" in *slow*) echo $$ > FAR/slow.pid; exec sleep 1000;; esac
eval "set -- $last"
exec git upload-pack "FAR$2"
"#;

fn git(folder: &std::path::Path, args: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main"];
    let done = Command::new("git").args(identity).args(args).current_dir(folder).status().unwrap();
    assert!(done.success(), "git {args:?}");
}

fn executable(path: &std::path::Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

impl Place {
    fn new() -> Self {
        let far = Folder::new("far");
        let at = far.path().to_str().unwrap();
        executable(&far.path().join("bin/ssh"), &SSH.replace("FAR", at));
        let hook = format!("#!/bin/sh\ntouch {at}/hook-ran\n");
        executable(&far.path().join("home/template/hooks/post-checkout"), &hook);
        far.write("home/.gitconfig", &format!("[init]\n\ttemplateDir = {at}/home/template\n"));
        for (name, text) in [
            ("README.md", "hello"),
            (".claude/settings.json", "{}"),
            (".mcp.json", "{}"),
            ("pkg/AGENTS.md", "do"),
        ] {
            far.write(&format!("repo/{name}"), text);
        }
        let repo = far.path().join("repo");
        git(&repo, &["init", "-q"]);
        git(&repo, &["add", "-A", "-f"]);
        git(&repo, &["commit", "-qm", "first"]);
        fs::write(repo.join("README.md"), "hello again").unwrap();
        git(&repo, &["commit", "-qam", "second"]);
        let path = format!("{at}/bin:{}", std::env::var("PATH").unwrap());
        let home = format!("{at}/home");
        let daemon = Daemon::start_in(Arc::new(Folder::new("project")), &[("PATH", &path), ("HOME", &home)]);
        Self { daemon, far }
    }

    fn import(&self, body: &Value) -> (u16, Value) {
        self.daemon.send("POST", "/api/repos/import", body)
    }

    fn ended(&self, id: &Value) -> Value {
        wait_for("the import to end", || {
            let imports = self.daemon.get("/api/repos/imports");
            let import =
                imports["imports"].as_array().unwrap().iter().find(|i| i["importId"] == *id).unwrap().clone();
            (import["status"] != "running").then_some(import)
        })
    }
}

#[test]
fn decisions_13_import_is_202_with_progress_events_shallow_and_flags_agent_settings() {
    let place = Place::new();
    let mut socket = place.daemon.connect("?types=repos:import");
    assert_eq!(next_message(&mut socket)["type"], "state");
    let (status, begun) = place.import(&json!({"url": "git@git.example.test:/repo", "path": "vendor/copy"}));
    assert_eq!(status, 202, "{begun}");
    let id = begun["importId"].clone();
    assert_eq!(id.as_str().unwrap().len(), 8);
    let mut events = vec![next_message(&mut socket)];
    while events.last().unwrap()["status"] == "running" {
        events.push(next_message(&mut socket));
    }
    assert!(events.iter().all(|event| event["type"] == "repos:import" && event["importId"] == id));
    let last = events.last().unwrap();
    assert_eq!((&last["status"], &last["percent"]), (&json!("completed"), &json!(100)), "{last}");
    assert_eq!(last["agentSettings"], json!([".claude", ".mcp.json", "pkg/AGENTS.md"]));
    assert!(events.len() > 1, "progress came before the end");

    let copy = place.daemon.project.join("vendor/copy");
    assert_eq!(fs::read_to_string(copy.join("README.md")).unwrap(), "hello again");
    assert!(copy.join(".git/shallow").exists(), "one commit only");
    assert!(!copy.join(".git/hooks/post-checkout").exists() && !place.far.path().join("hook-ran").exists());
    assert!(fs::read_dir(place.daemon.project.join(".svc/imports")).unwrap().next().is_none());
    let asked = fs::read_to_string(place.far.path().join("ssh.log")).unwrap();
    assert!(asked.starts_with("-oBatchMode=yes") && asked.contains("git@git.example.test"), "{asked}");

    let again = place.import(&json!({"url": "git@git.example.test:/repo", "path": "vendor/copy"}));
    assert_eq!((again.0, again.1["code"].as_str()), (409, Some("exists")));
}

#[test]
fn decisions_13_never_into_an_existing_path_nor_out_of_the_project() {
    let place = Place::new();
    let project = &place.daemon.project;
    fs::create_dir(project.join("repo")).unwrap();
    symlink(place.far.path(), project.join("out")).unwrap();
    let url = "ssh://git@git.example.test/repo";
    // Without a path the repository's own name is the place.
    assert_eq!(place.import(&json!({"url": url})).0, 409);
    for (path, status) in [
        ("../x", 400),
        ("/tmp/x", 400),
        (".git/x", 403),
        (".svc/x", 403),
        ("out", 403),
        ("out/x", 403),
        (".", 400),
    ] {
        let (got, body) = place.import(&json!({"url": url, "path": path}));
        assert_eq!(got, status, "{path}: {body}");
    }
    for url in ["file:///etc", "http://git.example.test/x", "ext::sh -c x", "/srv/repo", "--help"] {
        assert_eq!(place.import(&json!({"url": url, "path": "new"})).0, 400, "{url}");
    }
    assert_eq!(place.import(&json!({})).1["errors"][0]["field"], "url");
    assert!(!project.join("new").exists());
    assert!(!place.far.path().join("ssh.log").exists(), "git was not even asked");
}

#[test]
fn an_import_makes_the_team_that_was_asked_for_once_it_is_in_its_place() {
    let place = Place::new();
    let url = "git@git.example.test:/repo";
    let mut socket = place.daemon.connect("?types=team:created");
    assert_eq!(next_message(&mut socket)["type"], "state");
    let wish = json!({"url": url, "path": "vendor/copy", "createTeam": true});
    let (status, begun) = place.import(&wish);
    assert_eq!((status, &begun["teamName"]), (202, &json!("copy")), "{begun}");
    let ended = place.ended(&begun["importId"]);
    assert_eq!(ended["status"], "completed", "{ended}");
    let created = next_message(&mut socket);
    assert_eq!(created["team"], json!({"id": ended["teamId"], "name": "copy"}));
    let teams = place.daemon.get("/api/teams");
    let team = teams["teams"].as_array().unwrap().iter().find(|team| team["id"] == ended["teamId"]).unwrap();
    assert_eq!((&team["name"], &team["workingDir"]), (&json!("copy"), &json!("vendor/copy")));

    let named = json!({"url": url, "path": "again", "createTeam": true, "teamName": "COPY"});
    let ended = place.ended(&place.import(&named).1["importId"]);
    let teams = place.daemon.get("/api/teams");
    let team = teams["teams"].as_array().unwrap().iter().find(|team| team["id"] == ended["teamId"]).unwrap();
    assert_eq!(team["name"], "COPY 2", "a name in use gets a number");

    let failed =
        place.import(&json!({"url": "git@git.example.test:/none", "path": "no", "createTeam": true}));
    let ended = place.ended(&failed.1["importId"]);
    assert_eq!((&ended["status"], &ended["teamId"]), (&json!("failed"), &Value::Null));
    let plain = place.ended(&place.import(&json!({"url": url, "path": "plain"})).1["importId"]);
    assert_eq!(plain["teamId"], Value::Null, "nobody asked");
    assert_eq!(place.daemon.get("/api/teams")["teams"].as_array().unwrap().len(), 3, "with the default one");
    for bad in
        [json!({"createTeam": 1}), json!({"teamName": "x"}), json!({"createTeam": true, "teamName": " "})]
    {
        let mut wish = json!({"url": url, "path": "new"});
        wish.as_object_mut().unwrap().extend(bad.as_object().unwrap().clone());
        assert_eq!(place.import(&wish).0, 400, "{bad}");
    }
}

#[test]
fn an_import_that_fails_says_why_and_leaves_nothing() {
    let place = Place::new();
    let (status, begun) = place.import(&json!({"url": "git@git.example.test:/missing", "path": "new/place"}));
    assert_eq!(status, 202);
    let import = place.ended(&begun["importId"]);
    assert_eq!(import["status"], "failed");
    assert!(import["error"].as_str().unwrap().contains("git could not clone it"), "{import}");
    assert!(!place.daemon.project.join("new").exists());
    assert!(fs::read_dir(place.daemon.project.join(".svc/imports")).unwrap().next().is_none());
    wait_for("the audit log", || {
        let audit = fs::read_to_string(place.daemon.project.join(".svc/audit.jsonl")).unwrap();
        ["\"repos.import\"", "\"repos.imported\""].iter().all(|event| audit.contains(event)).then_some(())
    });
}

#[test]
fn imports_at_once_are_bounded_and_end_with_the_daemon() {
    let place = Place::new();
    let url = "git@git.example.test:/slow";
    for path in ["one", "two"] {
        assert_eq!(place.import(&json!({"url": url, "path": path})).0, 202);
    }
    assert_eq!(place.import(&json!({"url": url, "path": "one"})).1["code"], "exists");
    assert_eq!(place.import(&json!({"url": url, "path": "three"})).1["code"], "too_many_imports");
    let pid = wait_for("ssh to hang", || {
        fs::read_to_string(place.far.path().join("slow.pid")).ok().filter(|t| t.ends_with('\n'))
    });
    assert_eq!(place.daemon.stop(), Some(0));
    assert!(
        !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(),
        "ssh has ended with the daemon"
    );
}

#[test]
fn svc_import_waits_and_warns_of_agent_settings() {
    let place = Place::new();
    let svc = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(args)
            .args(["--url", &place.daemon.url])
            .env_remove("SVC_AGENT_ID")
            .output()
            .unwrap()
    };
    let ended = svc(&["import", "git@git.example.test:/repo"]);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "imported into repo\n");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        said.contains("read them before you start one there: .claude, .mcp.json, pkg/AGENTS.md"),
        "{said}"
    );
    let again = svc(&["import", "git@git.example.test:/repo"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"));
}

#[test]
fn svc_import_makes_a_team_and_says_how_to_use_it() {
    let place = Place::new();
    let ended = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["import", "git@git.example.test:/repo", "--team-name", "far team", "--url", &place.daemon.url])
        .env_remove("SVC_AGENT_ID")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let id = place.daemon.get("/api/repos/imports")["imports"][0]["teamId"].as_str().unwrap().to_owned();
    assert_eq!(
        said,
        format!("imported into repo\nteam far team ({id}) works there; svc spawn ROLE --team {id}\n")
    );
}
