//! The integrations bridge against real Model Context Protocol servers from npm and `PyPI`, pinned
//! (`tests/real/setup-mcp` installs them into `target/real-mcp`). None of them needs a network for what is
//! tested.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::mcp::{exec, record, text, tool_names};
use crate::support::real::absent;
use crate::support::wait::wait_for;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Where servers are installed.
fn installation() -> PathBuf {
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/target/real-mcp").into();
    PathBuf::from(std::env::var_os("SVC_REAL_MCP_DIR").unwrap_or_else(default))
}

/// The program of a server; says so when it is not installed.
///
/// Panics where `SVC_REAL_CLIS=require`.
fn program(name: &str, program: &str) -> Option<String> {
    let folder = installation().join(name);
    let folders = [folder.join("node_modules/.bin"), folder.join("bin")];
    let is_installed = folder.join("installed").is_file();
    let found = folders.iter().map(|folder| folder.join(program)).find(|path| is_installed && path.exists());
    if let Some(path) = found {
        return Some(path.to_str().unwrap().to_owned());
    }
    absent(&format!("the MCP server {name}"), "setup-mcp");
    None
}

/// A daemon with one integration of this server.
fn daemon_with(id: &str, program: &str) -> Daemon {
    let daemon = Daemon::start();
    let body = json!({"id": id, "command": program, "env": [{"key": "MEMORY_FILE_PATH", "required": false}]});
    assert_eq!(daemon.send("POST", "/api/integrations", &body).0, 201);
    daemon
}

#[test]
fn real_everything_changes_its_list_asks_for_roots_and_sends_all_kinds_of_content() {
    let Some(path) = program("everything", "mcp-server-everything") else { return };
    let daemon = daemon_with("hub", &path);
    // It changes its list of tools right after the handshake, several times.
    wait_for("the tool that comes with roots", || {
        tool_names(&daemon, "hub").contains(&"get-roots-list".to_owned()).then_some(())
    });
    assert_eq!(record(&daemon, "hub")["protocolVersion"], "2025-06-18");
    assert!(text(&daemon, "hub", "echo", &json!({"message": "grüße"})).contains("grüße"));
    let roots = text(&daemon, "hub", "get-roots-list", &json!({}));
    assert!(roots.contains(&format!("file://{}", daemon.project.display())), "{roots}");
    let (status, body) = exec(&daemon, "hub", "get-tiny-image", &json!({}));
    assert_eq!(status, 200);
    let kinds: Vec<_> =
        body["result"]["content"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert!(kinds.contains(&&json!("image")), "{kinds:?}");
    let (status, body) = exec(&daemon, "hub", "get-sum", &json!({"a": "no number"}));
    assert_eq!((status, &body["result"]["isError"]), (200, &json!(true)), "wrong arguments: {body}");
    let names = tool_names(&daemon, "hub");
    for offered in ["trigger-sampling-request", "trigger-elicitation-request"] {
        assert!(!names.contains(&offered.to_owned()), "what we do not declare is not offered");
    }
    assert_eq!(daemon.stop(), Some(0));
}

#[test]
fn real_everything_takes_a_long_operation_with_progress() {
    let Some(path) = program("everything", "mcp-server-everything") else { return };
    let daemon = daemon_with("hub", &path);
    let params = json!({"duration": 2, "steps": 4});
    let said = text(&daemon, "hub", "trigger-long-running-operation", &params);
    assert!(said.to_lowercase().contains("completed"), "{said}");
}

#[test]
fn real_filesystem_is_bound_to_the_project_by_roots() {
    let Some(path) = program("filesystem", "mcp-server-filesystem") else { return };
    let daemon = daemon_with("files", &path);
    let inside = daemon.project.join("hello.txt");
    fs::write(&inside, "inside\n").unwrap();
    let read =
        |path: &Path| exec(&daemon, "files", "read_text_file", &json!({"path": path.to_str().unwrap()}));
    // It asks for the roots after the handshake; until it has them every path is denied.
    wait_for("the server to know the project", || {
        let (status, body) = read(&inside);
        assert_eq!(status, 200, "{body}");
        (body["result"]["isError"] != true).then_some(())
    });
    assert_eq!(read(&inside).1["result"]["content"][0]["text"], "inside\n");
    let (status, body) = read(Path::new("/etc/hostname"));
    assert_eq!((status, &body["result"]["isError"]), (200, &json!(true)), "{body}");
}

#[test]
fn real_filesystem_keeps_to_the_folders_of_its_arguments_and_asks_before_it_writes() {
    let Some(path) = program("filesystem", "mcp-server-filesystem") else { return };
    let daemon = Daemon::start();
    let shelf = Folder::new("shelf");
    shelf.write("book.txt", "on the shelf\n");
    fs::write(daemon.project.join("secret.txt"), "in the project\n").unwrap();
    let (link, at) = (shelf.path().join("way-out"), |folder: &Path, name: &str| json!(folder.join(name)));
    std::os::unix::fs::symlink(&daemon.project, &link).unwrap();
    let body = json!({"id": "shelf", "command": path, "args": [shelf.path()]});
    assert_eq!(daemon.send("POST", "/api/integrations", &body).0, 201);
    let read = |path: &serde_json::Value| {
        let (status, body) = exec(&daemon, "shelf", "read_text_file", &json!({"path": path}));
        assert_eq!(status, 200, "{body}");
        let text = body["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        (body["result"]["isError"] == true, text)
    };
    assert_eq!(read(&at(shelf.path(), "book.txt")), (false, "on the shelf\n".to_owned()));
    // The project is not sent to it as a root, for roots would take the place of its arguments.
    for outside in [at(&daemon.project, "secret.txt"), at(&link, "secret.txt"), json!("/etc/hostname")] {
        let (refused, text) = read(&outside);
        assert!(refused && text.contains("Access denied"), "{outside}: {text}");
    }

    // Its server calls a write destructive: a person is asked, wherever it goes.
    for (file, done) in [(shelf.path().join("new.txt"), true), (daemon.project.join("new.txt"), false)] {
        let params = json!({"path": file, "content": "x"});
        let (status, body) = exec(&daemon, "shelf", "write_file", &params);
        assert_eq!((status, &body["requiresApproval"]), (202, &json!(true)), "{body}");
        assert!(!file.exists(), "nothing runs before the answer");
        let id = body["approvalId"].as_str().unwrap();
        daemon.post(&format!("/api/approvals/{id}/approve"), &json!({}));
        let again = json!({"tool": "write_file", "params": params, "approvalId": id});
        let (status, body) = daemon.send("POST", "/api/integrations/shelf/exec", &again);
        assert_eq!((status, body["result"]["isError"] != true, file.exists()), (200, done, done), "{body}");
    }
}

#[test]
fn real_memory_keeps_a_graph() {
    let Some(path) = program("memory", "mcp-server-memory") else { return };
    let daemon = daemon_with("memory", &path);
    let file = daemon.project.join("memory.jsonl");
    let body = json!({"key": "MEMORY_FILE_PATH", "value": file.to_str().unwrap()});
    assert_eq!(daemon.send("POST", "/api/integrations/memory/credentials", &body).0, 200);
    let entity = json!({"name": "svc", "entityType": "daemon", "observations": ["is local"]});
    let (status, body) = exec(&daemon, "memory", "create_entities", &json!({"entities": [entity]}));
    assert_eq!((status, body["result"]["isError"] == true), (200, false), "{body}");
    let graph = text(&daemon, "memory", "read_graph", &json!({}));
    assert!(graph.contains("is local"), "{graph}");
    assert!(file.is_file(), "its variable reached it");
}

#[test]
fn real_time_and_git_from_pypi_are_called() {
    if let Some(path) = program("time", "mcp-server-time") {
        let daemon = daemon_with("time", &path);
        let said = text(&daemon, "time", "get_current_time", &json!({"timezone": "Europe/Berlin"}));
        assert!(said.contains("Europe/Berlin"), "{said}");
        let (status, body) = exec(&daemon, "time", "nonsense", &json!({}));
        assert!(status == 400 || body["result"]["isError"] == true, "{status} {body}");
    }
    if let Some(path) = program("git", "mcp-server-git") {
        let daemon = daemon_with("git", &path);
        let git = |args: &[&str]| {
            let done = Command::new("git").args(args).current_dir(&daemon.project).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        git(&["init", "--quiet"]);
        let said =
            text(&daemon, "git", "git_status", &json!({"repo_path": daemon.project.to_str().unwrap()}));
        assert!(said.contains("No commits yet"), "{said}");
    }
}

#[test]
fn real_github_speaks_2024_11_05_and_its_create_issue_is_gated_but_not_its_search() {
    if program("github", "mcp-server-github").is_none() {
        return;
    }
    let daemon = Daemon::start();
    let (status, body) = daemon.send("POST", "/api/integrations/github/install", &json!({}));
    if status == 502 && std::env::var_os("SVC_REAL_CLIS").is_none() {
        return eprintln!("SKIPPED: npm could not install the catalogue's github here: {body}");
    }
    assert_eq!(
        (status, &body["installed"], &body["version"]),
        (200, &json!(true), &json!("2025.4.8")),
        "{body}"
    );
    assert!(daemon.project.join(".svc/integrations/github/node_modules/.bin/mcp-server-github").exists());
    let tools = daemon.get("/api/integrations/github/tools");
    let gated: Vec<&str> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| tool["gated"] == true)
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let mut sorted = gated;
    sorted.sort_unstable();
    assert_eq!(sorted, ["create_issue", "create_or_update_file", "create_pull_request", "push_files"]);
    assert_eq!(record(&daemon, "github")["protocolVersion"], "2024-11-05");
    let issue = json!({"owner": "o", "repo": "r", "title": "t"});
    let (status, body) = exec(&daemon, "github", "create_issue", &issue);
    assert_eq!((status, &body["requiresApproval"]), (202, &json!(true)), "{body}");
    let (status, body) = exec(&daemon, "github", "search_repositories", &json!({"query": "svc"}));
    assert_ne!(status, 202, "{body}");
    assert_eq!(record(&daemon, "github")["failed"], false);
    let (status, _) = daemon.send("DELETE", "/api/integrations/github", &json!(null));
    assert_eq!((status, daemon.project.join(".svc/integrations/github").exists()), (200, false));
}

/// The interpreter of the conformance suite: it needs Node.js 22 or later.
fn node22() -> Option<String> {
    let version = Command::new("node").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    let major: u32 = text.trim().trim_start_matches('v').split('.').next()?.parse().ok()?;
    if major >= 22 { Some("node".to_owned()) } else { program("conformance", "node") }
}

#[test]
fn issue_4_the_public_conformance_suites_client_scenarios_pass() {
    let (Some(remote), Some(suite)) =
        (program("remote", "mcp-remote"), program("conformance", "conformance"))
    else {
        return;
    };
    let Some(node) = node22() else { return eprintln!("SKIPPED: no Node.js 22 for the conformance suite") };
    // The bridge to HTTP keeps files in its home.
    let folder = Arc::new(Folder::new("project"));
    let home = folder.path().to_str().unwrap().to_owned();
    let daemon = Daemon::start_in(folder, &[("HOME", &home)]);
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/mcp_driver.py");
    let command = format!("python3 {driver} {} {remote}", daemon.url);
    for scenario in ["initialize", "tools_call", "sse-retry"] {
        let done = Command::new(&node)
            .args([&suite, "client", "--command", &command, "--scenario", scenario])
            .current_dir(&daemon.project)
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("0 failed"), "{scenario}: {said}");
    }
}
