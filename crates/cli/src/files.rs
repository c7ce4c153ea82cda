//! `svc import`: cloning a repository into the project.

use super::client::Client;
use super::commands::{Command, Group, switch, value};
use super::progress::{Line, is_shown};
use super::render::clean;
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};
use std::time::Duration;

/// The command of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "import",
    group: Group::Look,
    summary: "clone a repository into the project",
    usage: "import URL [PATH] [--team] [--team-name NAME] [--no-wait]",
    words: (1, 2),
    options: &[
        switch("team", "make a team that works in it"),
        value("team-name", "NAME", "the team's name; by default the folder's"),
        switch("no-wait", "print the import's id and return"),
    ],
    details: "https and ssh addresses; one commit deep; without hooks and prompts. PATH is new and inside the project;\n\
                  without it the repository's name is used. Agents may not import.",
    run: import,
    ..Command::PLAIN
}];

/// Between two looks at an import; the daemon also tells it over WebSocket.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// `svc import URL [PATH] [--team] [--team-name NAME] [--no-wait]`.
fn import(session: &Session) -> Outcome {
    let out = &session.out;
    let words = &session.args.words;
    let client = session.client()?;
    let mut body = json!({"url": words[0]});
    if let Some(path) = words.get(1) {
        body["path"] = json!(path);
    }
    let name = session.args.value("team-name");
    if session.args.flag("team") || name.is_some() {
        body["createTeam"] = json!(true);
    }
    if let Some(name) = name {
        body["teamName"] = json!(name);
    }
    let begun = client.post("/api/repos/import", &body)?;
    let mut import = begun.clone();
    if !session.args.flag("no-wait") {
        import = follow(session, &client, &begun)?;
    }
    if import["status"] == "failed" {
        return Err(Failure::failed(format!("the import failed: {}", clean(text(&import, "error")))));
    }
    if out.json {
        return out.document(&import);
    }
    if out.quiet || import["status"] == "running" {
        return out.line(text(&import, "importId"));
    }
    out.line(&format!("imported into {}", clean(text(&import, "path"))))?;
    if !text(&import, "teamId").is_empty() {
        let (name, id) = (clean(text(&import, "teamName")), text(&import, "teamId"));
        out.line(&format!("team {name} ({id}) works there; svc spawn ROLE --team {id}"))?;
    }
    let error = text(&import, "teamError");
    if !error.is_empty() {
        out.note(&format!("no team was made: {}", clean(error)));
    }
    let settings: Vec<String> = import["agentSettings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(clean)
        .collect();
    if !settings.is_empty() {
        out.note(&format!(
            "it brings settings for coding agents; read them before you start one there: {}",
            settings.join(", ")
        ));
    }
    Ok(())
}

/// Waits until an import has ended; its last record.
fn follow(session: &Session, client: &Client, begun: &Value) -> Result<Value, Failure> {
    let (mut phase, mut line) = (String::new(), Line::new(&session.out, "importing"));
    loop {
        let all = client.get("/api/repos/imports")?;
        let of_it = |import: &&Value| import["importId"] == begun["importId"];
        let found = all["imports"].as_array().into_iter().flatten().find(of_it).cloned();
        let Some(import) = found else {
            return Err(Failure::failed("the daemon has forgotten the import; was it restarted?"));
        };
        if import["status"] != "running" {
            return Ok(import);
        }
        if is_shown(&session.out) {
            let percent = import["percent"].as_u64().and_then(|percent| u8::try_from(percent).ok());
            line.draw(text(&import, "phase"), percent);
        } else if import["phase"] != phase.as_str() {
            // Where no line can be rewritten, each phase is told once.
            text(&import, "phase").clone_into(&mut phase);
            session.out.note(&clean(&phase));
        }
        std::thread::park_timeout(LOOK_INTERVAL);
    }
}
