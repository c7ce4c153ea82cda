//! `svc peers`.

use super::client::encode;
use super::commands::{Command, Group, Words, value};
use super::render::{Table, age_of, clean};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use serde_json::json;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "peers",
    alias: "",
    group: Group::Look,
    summary: "pair with other daemons and look at their agents",
    usage: "peers [add URL | confirm ID [CODE] | reject ID | remove PEER | agents PEER]",
    words: (0, 3),
    complete: Words::OneOf(&["add", "confirm", "reject", "remove", "agents"]),
    options: &[value(
        "token-file",
        "FILE",
        "add: the other daemon's .svc/token, where it listens beyond its machine; it is not kept",
    )],
    details: "'add' shows a code of six digits; 'svc peers' on the other side shows it, too. Compare them, then\n\
              confirm on both sides. A peer may look at your agents, and change nothing.",
    run: peers,
}];

fn peers(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => list(session),
        ["add", url] => add(session, url),
        ["confirm", id] => confirm(session, id, None),
        ["confirm", id, code] => confirm(session, id, Some(code)),
        ["reject", id] => gone(session, &format!("/api/federation/pair/{}", encode(id)), "rejected"),
        ["remove", id] => gone(session, &format!("/api/federation/peers/{}", encode(id)), "removed"),
        ["agents", id] => agents(session, id),
        _ => Err(Failure::usage(
            "svc peers takes nothing, or add URL, confirm ID, reject ID, remove PEER or agents PEER; see 'svc help peers'",
        )),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/federation/peers")?;
    let Some(peers) = out.rows(&answer, &answer["peers"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["ID", "NAME", "URL", "SINCE", "CODE"]);
    for pairing in answer["pairings"].as_array().into_iter().flatten() {
        table.row(&[
            clean(text(pairing, "id")),
            clean(text(pairing, "name")),
            clean(text(pairing, "url")),
            "to confirm".into(),
            pairing["code"].as_str().map_or_else(|| "-".into(), spaced),
        ]);
    }
    for peer in peers {
        table.row(&[
            clean(text(peer, "id")),
            clean(text(peer, "name")),
            clean(text(peer, "url")),
            age_of(text(peer, "pairedAt"), now()),
            "-".into(),
        ]);
    }
    out.table(&table, "no peers; 'svc peers add URL' begins a pairing")
}

/// `123 456`.
fn spaced(code: &str) -> String {
    let (head, tail) = code.split_at_checked(3).unwrap_or((code, ""));
    format!("{} {}", clean(head), clean(tail))
}

fn add(session: &Session, url: &str) -> Outcome {
    let out = &session.out;
    let mut body = json!({"url": url});
    // A token never stands on a command line.
    if let Some(file) = session.args.value("token-file") {
        let token = std::fs::read_to_string(file)
            .map_err(|error| Failure::failed(format!("{file} cannot be read: {error}")))?;
        body["token"] = json!(token.trim());
    }
    let pairing = session.client()?.post("/api/federation/peers", &body)?;
    let id = text(&pairing, "id");
    out.told(
        &pairing,
        id,
        &format!(
            "code {}: if 'svc peers' shows the same at {} ({}), run 'svc peers confirm {id}' on both sides",
            spaced(text(&pairing, "code")),
            clean(text(&pairing, "name")),
            clean(text(&pairing, "url")),
        ),
    )
}

fn confirm(session: &Session, id: &str, code: Option<&str>) -> Outcome {
    let out = &session.out;
    let body = code.map_or_else(|| json!({}), |code| json!({"code": code}));
    let peer = session.client()?.post(&format!("/api/federation/pair/{}/confirm", encode(id)), &body)?;
    let id = text(&peer, "id");
    out.told(
        &peer,
        id,
        &format!("{} ({id}) is a peer; 'svc peers agents {id}' shows its agents", clean(text(&peer, "name"))),
    )
}

fn gone(session: &Session, path: &str, done: &str) -> Outcome {
    let answer = session.client()?.call("DELETE", path, None)?;
    session.out.said(&answer, &format!("{} is {done}", clean(text(&answer, "id"))))
}

fn agents(session: &Session, peer: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&format!("/api/federation/peers/{}/agents", encode(peer)))?;
    if out.json {
        return out.document(&answer);
    }
    let mut table = Table::new(&["ID", "NAME", "ROLE", "STATUS", "PROVIDER", "TOKENS"]).numeric(&[5]);
    for agent in answer["agents"].as_array().into_iter().flatten() {
        table.row(&[
            clean(text(agent, "id")),
            clean(text(agent, "name")),
            clean(text(agent, "role")),
            clean(text(agent, "status")),
            clean(text(agent, "provider")),
            agent["tokensUsed"].to_string(),
        ]);
    }
    out.table(&table, "it has no agents")
}
