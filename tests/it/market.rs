//! The daemon and a real marketplace service: install, rate, go offline, attach to agents.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::market::Market;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A call with the key that writes need; only the answer's body.
fn call(market: &Market, method: &str, path: &str, body: &Value) -> Value {
    market.write(method, &format!("/api/v1{path}"), body).json()
}

/// Installs that the market has counted.
fn offered_installs(market: &Market) -> u64 {
    call(market, "GET", "/skills/code-review", &Value::Null)["downloads"].as_u64().unwrap()
}

fn daemon_with(market: &Market) -> Daemon {
    let folder = Arc::new(Folder::new("project"));
    let config = json!({"skills": {"baseUrl": format!("http://{}/api/v1", market.address)}});
    folder.write(".svc/config.json", &config.to_string());
    Daemon::start_in(folder, &[])
}

fn daemon_without() -> Daemon {
    let folder = Arc::new(Folder::new("project"));
    folder.write(".svc/config.json", r#"{"skills": {"baseUrl": "http://127.0.0.1:9/api/v1"}}"#);
    Daemon::start_in(folder, &[])
}

fn of_id<'a>(list: &'a Value, id: &str) -> &'a Value {
    list["skills"].as_array().unwrap().iter().find(|skill| skill["id"] == id).unwrap_or(&Value::Null)
}

#[test]
fn decisions_13_registry_install_rate_update_and_the_bundled_fallback() {
    let market = Market::start(&[]);
    let daemon = daemon_with(&market);
    let live = daemon.get("/api/skills");
    assert_eq!((&live["source"], &live["total"]), (&json!("live"), &json!(21)));
    assert_eq!(of_id(&live, "code-review")["installed"], false);
    assert_eq!(daemon.get("/api/skills?search=code%20pr&category=quality")["skills"][0]["id"], "code-review");

    // It can be read before, which counts as no install.
    let read = daemon.get("/api/skills/code-review/content");
    let offered = call(&market, "GET", "/skills/code-review/content", &Value::Null);
    assert_eq!((&read["content"], &read["source"]), (&offered["content"], &json!("live")));
    assert_eq!(daemon.send("GET", "/api/skills/no-such/content", &Value::Null).0, 404);
    assert_eq!(daemon.send("GET", "/api/skills/%2e%2e/content", &Value::Null).0, 400);

    // The service's own words: call install, then GET content, then save the content locally.
    let before = offered_installs(&market);
    let (status, record) = daemon.send("POST", "/api/skills/code-review/install", &json!({}));
    assert_eq!((status, &record["source"]), (201, &json!("live")));
    let after = offered_installs(&market);
    assert_eq!(after, before + 1, "the install was counted");
    let content = call(&market, "GET", "/skills/code-review/content", &Value::Null);
    let file = daemon.project.join(".svc/skills/code-review/SKILL.md");
    let saved = fs::read_to_string(&file).unwrap();
    assert_eq!(content["content"], saved.as_str());
    assert_eq!(record["digest"], svc::market::digest(saved.as_bytes()));
    assert_eq!(
        daemon.send("POST", "/api/skills/code-review/install", &json!({})).0,
        200,
        "installed already"
    );

    let installed = daemon.get("/api/skills/installed");
    assert_eq!(installed["skills"][0]["intact"], true);
    fs::write(&file, "something else").unwrap();
    assert_eq!(daemon.get("/api/skills/installed")["skills"][0]["intact"], false, "digests are checked");
    daemon.post("/api/skills/code-review/install", &json!({}));
    assert_eq!(fs::read_to_string(&file).unwrap(), saved, "installing again repairs it");

    let rated = daemon.post("/api/skills/code-review/rate", &json!({"rating": 5}));
    assert_eq!(rated["id"], "code-review");
    assert!(rated["rating"].is_number() && rated["rating_count"].as_u64().unwrap() > 201, "{rated}");
    for bad in [
        json!({}),
        json!({"rating": 6}),
        json!({"rating": "5"}),
        json!({"rating": 4.5}),
        json!({"rating": null}),
    ] {
        assert_eq!(daemon.send("POST", "/api/skills/code-review/rate", &bad).0, 400, "{bad}");
    }
    assert_eq!(daemon.send("POST", "/api/skills/no-such-skill/install", &json!({})).0, 404);
    for bad in ["..%2f..%2fx", "A", "a--b", "%2e%2e"] {
        assert_eq!(daemon.send("POST", &format!("/api/skills/{bad}/install"), &json!({})).0, 400, "{bad}");
    }

    drop(market);
    let bundled = daemon.get("/api/skills?refresh=1");
    assert_eq!((&bundled["source"], &bundled["total"]), (&json!("bundled"), &json!(21)));
    assert!(bundled["why"].as_str().unwrap().contains("not reached"));
    assert_eq!(of_id(&bundled, "code-review")["installed"], true);
    let (status, problem) = daemon.send("POST", "/api/skills/code-review/rate", &json!({"rating": 5}));
    assert_eq!((status, &problem["code"]), (502, &json!("marketplace_unreachable")));
    let (status, _) = daemon.send("POST", "/api/skills/code-review/update", &json!({}));
    assert_eq!(status, 502, "a live text is not replaced by an embedded one");
    assert_eq!(fs::read_to_string(&file).unwrap(), saved);

    let folder = daemon.folder();
    assert_eq!(daemon.stop(), Some(0));
    let daemon = Daemon::start_in(folder, &[]);
    assert_eq!(daemon.get("/api/skills/installed")["skills"][0]["digest"], record["digest"], "it is durable");
    assert_eq!(daemon.send("DELETE", "/api/skills/code-review", &Value::Null).0, 200);
    assert!(!daemon.project.join(".svc/skills/code-review").exists());
    assert_eq!(daemon.send("DELETE", "/api/skills/code-review", &Value::Null).0, 404);
    let audit = daemon.get("/api/audit?event=skill").to_string();
    for event in ["skill.install", "skill.rate", "skill.remove"] {
        assert!(audit.contains(event), "{event} in {audit}");
    }
}

#[test]
fn skills_versioning_an_update_fetches_the_new_text() {
    let market = Market::start(&[]);
    let daemon = daemon_with(&market);
    let body = json!({
        "name": "House Rules", "description": "How this house is kept.", "category": "quality", "content": "# One",
    });
    call(&market, "POST", "/skills", &body);
    assert_eq!(
        daemon.send("POST", "/api/skills/house-rules/install", &json!({})).0,
        404,
        "a draft is not offered"
    );
    call(&market, "POST", "/skills/house-rules/publish", &json!({}));
    assert_eq!(daemon.send("POST", "/api/skills/house-rules/update", &json!({})).0, 404, "not installed");
    daemon.post("/api/skills/house-rules/install", &json!({}));
    assert_eq!(daemon.post("/api/skills/house-rules/update", &json!({}))["updated"], false);
    call(&market, "PUT", "/skills/house-rules", &json!({"content": "# Two", "version": "1.1.0"}));
    let listed = daemon.get("/api/skills?refresh=1&search=house");
    assert_eq!(of_id(&listed, "house-rules")["updateAvailable"], true);
    let updated = daemon.post("/api/skills/house-rules/update", &json!({}));
    assert_eq!((&updated["updated"], &updated["version"]), (&json!(true), &json!("1.1.0")));
    let file = daemon.project.join(".svc/skills/house-rules/SKILL.md");
    assert_eq!(fs::read_to_string(file).unwrap(), "# Two");
}

fn install_bundled(daemon: &Daemon, id: &str) {
    let (status, record) = daemon.send("POST", &format!("/api/skills/{id}/install"), &json!({}));
    assert_eq!((status, &record["source"]), (201, &json!("bundled")), "{record}");
}

fn spawn_with(daemon: &Daemon, name: &str, dir: &str, skills: &[&str]) -> String {
    let body = json!({
        "role": "dev", "name": name, "provider": "script", "model": "hang", "workingDir": dir, "skills": skills,
    });
    let id = daemon.post("/api/agents", &body)["id"].as_str().unwrap().to_owned();
    daemon.wait_state(&id, &["running"]);
    id
}

fn is_link(path: &Path) -> bool {
    path.is_symlink()
}

#[test]
fn decisions_13_an_installed_skill_is_linked_while_it_is_attached_and_a_users_folder_stays() {
    let daemon = daemon_without();
    install_bundled(&daemon, "code-review");
    install_bundled(&daemon, "feature-dev");
    let (status, problem) = daemon.send(
        "POST",
        "/api/agents",
        &json!({"role": "dev", "provider": "script", "skills": ["hookify"]}),
    );
    assert_eq!(
        (status, &problem["error"]),
        (400, &json!("skills names \"hookify\", which is not installed"))
    );

    fs::create_dir_all(daemon.project.join("web/.claude/skills/code-review")).unwrap();
    fs::write(daemon.project.join("web/.claude/skills/code-review/SKILL.md"), "the user's").unwrap();
    let one = spawn_with(&daemon, "one", "web", &["code-review", "feature-dev"]);
    let two = spawn_with(&daemon, "two", "web", &["code-review"]);
    let at = |path: &str| daemon.project.join("web").join(path);
    let shared = at(".agents/skills/code-review");
    assert!(
        is_link(&shared) && fs::read_to_string(shared.join("SKILL.md")).unwrap().contains("# Code Review")
    );
    assert!(is_link(&at(".agents/skills/feature-dev")) && is_link(&at(".claude/skills/feature-dev")));
    assert_eq!(fs::read_to_string(at(".claude/skills/code-review/SKILL.md")).unwrap(), "the user's");
    let used = daemon.get("/api/skills/installed");
    assert_eq!(of_id(&used, "code-review")["usedBy"].as_array().unwrap().len(), 2);
    assert_eq!(daemon.send("DELETE", "/api/skills/code-review", &Value::Null).0, 409);
    assert!(daemon.project.join(".svc/skills/code-review/SKILL.md").exists());

    daemon.send("DELETE", &format!("/api/agents/{one}"), &Value::Null);
    wait_for("the links of the first to go", || (!is_link(&at(".agents/skills/feature-dev"))).then_some(()));
    assert!(is_link(&shared), "another live agent uses it");
    daemon.send("DELETE", &format!("/api/agents/{two}"), &Value::Null);
    wait_for("the last link to go", || (!at(".agents").exists()).then_some(()));
    assert_eq!(fs::read_to_string(at(".claude/skills/code-review/SKILL.md")).unwrap(), "the user's");
    assert!(!at(".claude/skills/feature-dev").exists());
    assert_eq!(daemon.send("DELETE", "/api/skills/code-review", &Value::Null).0, 200);
}

#[test]
fn links_that_a_killed_daemon_left_are_removed_at_the_next_start() {
    let mut daemon = daemon_without();
    daemon.tie_agents();
    install_bundled(&daemon, "code-review");
    spawn_with(&daemon, "one", "", &["code-review"]);
    let link = daemon.project.join(".agents/skills/code-review");
    assert!(is_link(&link));
    daemon.kill();
    assert!(is_link(&link), "nobody was left to remove it");
    let daemon = Daemon::start_in(daemon.folder(), &[]);
    assert!(
        !is_link(&link)
            && !daemon.project.join(".agents").exists()
            && !daemon.project.join(".claude").exists()
    );
    assert_eq!(daemon.get("/api/skills/installed")["skills"][0]["id"], "code-review");
}

#[test]
fn a_skill_whose_file_was_changed_is_not_attached_and_nothing_is_written_through_a_link() {
    let daemon = daemon_without();
    install_bundled(&daemon, "code-review");
    install_bundled(&daemon, "feature-dev");
    fs::write(daemon.project.join(".svc/skills/code-review/SKILL.md"), "obey me").unwrap();
    let elsewhere = Folder::new("elsewhere");
    std::os::unix::fs::symlink(elsewhere.path(), daemon.project.join(".claude")).unwrap();
    spawn_with(&daemon, "one", "", &["code-review", "feature-dev"]);
    assert!(!is_link(&daemon.project.join(".agents/skills/code-review")));
    assert!(is_link(&daemon.project.join(".agents/skills/feature-dev")));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn skills_are_searched_installed_and_removed_on_the_command_line() {
    let daemon = daemon_without();
    let svc = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_svc"))
            .args(["skills", "--project"])
            .arg(&daemon.project)
            .args(words)
            .env_remove("SVC_AGENT_ID")
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert!(svc(&[]).1.starts_with("no skill is installed"));
    assert!(svc(&["search", "review"]).1.contains("code-review"));
    let (status, words) = svc(&["show", "code-review"]);
    assert!(status == Some(0) && words.contains("name: code-review"), "{words}");
    assert_eq!(daemon.get("/api/skills/code-review/content")["source"], "bundled");
    assert_eq!(svc(&["show", "no-such"]).0, Some(1));
    assert_eq!(svc(&["-q", "search"]).1.lines().count(), 21);
    assert_eq!(
        svc(&["install", "code-review"]),
        (Some(0), "code-review 1.0.0 (bundled) is installed\n".into())
    );
    assert_eq!(svc(&["-q"]).1, "code-review\n");
    let file = daemon.project.join(".svc/skills/code-review/SKILL.md");
    let read = || daemon.get("/api/skills/code-review/content");
    assert_eq!((&read()["source"], &read()["content"]), (&json!("installed"), &json!(words)));
    fs::write(&file, "told by nobody").unwrap();
    assert_eq!(read()["content"], words.as_str(), "a changed file is given to nobody");
    fs::write(&file, &words).unwrap();
    assert!(svc(&["update"]).1.contains("up to date"));
    assert_eq!(svc(&["rate", "code-review", "5"]).0, Some(1), "there is no marketplace to take it");
    assert_eq!(svc(&["rate", "code-review", "many"]).0, Some(2));
    assert_eq!(svc(&["remove", "code-review"]), (Some(0), "code-review is removed\n".into()));
    assert_eq!(svc(&["remove", "code-review"]).0, Some(1));
}
