//! `svc integrations`.

use super::client::{Client, encode};
use super::progress::Line;
use super::render::{Table, clean, one_line};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use super::trust::read_key;
use serde_json::{Value, json};
use std::time::Duration;
use svc_base::sorted;

/// Between two looks at an installation that takes long.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Columns of a description in the list of tools.
const DESCRIPTION_CHARS: usize = 120;

/// `svc integrations ..`.
pub fn integrations(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["install", id] => install(session, id),
        ["add", id, command @ ..] if !command.is_empty() => add(session, id, command),
        ["remove", id] => remove(session, id),
        ["credentials", id] => credentials(session, id),
        ["credentials", id, key] => credential(session, id, key),
        ["connect", id] => connect(session, id),
        ["tools", id] => tools(session, id),
        ["exec", id, tool] => exec(session, id, tool, "{}"),
        ["exec", id, tool, params] => exec(session, id, tool, params),
        _ => Err(Failure::usage(
            "usage: svc integrations [install ID | add ID COMMAND.. | remove ID | credentials ID [KEY] | connect ID \
             | tools ID | exec ID TOOL [JSON]]; see 'svc help integrations'",
        )),
    }
}

fn at(id: &str, rest: &str) -> String {
    format!("/api/integrations/{}{rest}", encode(id))
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/integrations")?;
    if out.json {
        return out.document(&answer);
    }
    let mut list = answer.as_array().cloned().unwrap_or_default();
    if out.quiet {
        let installed = list.iter().filter(|one| one["installed"] == true);
        return out.lines(&installed.map(|one| text(one, "id").to_owned()).collect::<Vec<_>>());
    }
    sorted::by_key(&mut list, |one| one["installed"] != true);
    let mut table =
        Table::new(&["ID", "NAME", "STATUS", "VERSION", "MISSING OR REMEDY"]).status_column(2).optional(&[1]);
    for one in &list {
        let missing = one["env"].as_array().into_iter().flatten();
        let missing: Vec<&str> = missing
            .filter(|env| env["required"] == true && env["set"] == false)
            .map(|env| text(env, "key"))
            .collect();
        let told = match text(one, "status") {
            "available" => String::new(),
            "failed" => one_line(text(one, "lastError")),
            _ => missing.join(" "),
        };
        table.row(&[
            text(one, "id").into(),
            text(one, "name").into(),
            text(one, "status").into(),
            text(one, "version").into(),
            told,
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn install(session: &Session, id: &str) -> Outcome {
    let client = session.client_doing("installing")?;
    let mut answer = client.post(&at(id, "/install"), &json!({}))?;
    let mut line = Line::new(&session.out, &format!("installing {id}"));
    while text(&answer, "status") == "installing" {
        line.draw("", None);
        std::thread::sleep(LOOK_AGAIN);
        answer = client.get(&at(id, ""))?;
    }
    drop(line);
    if answer["installed"] != true {
        return Err(Failure::failed(format!("{id} could not be installed; the daemon's log says why")));
    }
    let version = text(&answer, "version");
    let hint =
        if answer["configured"] == true { "" } else { "; set its keys with 'svc integrations credentials" };
    let hint = if hint.is_empty() { String::new() } else { format!("{hint} {id}'") };
    session.out.told(&answer, "", &format!("installed {id} {version}{hint}"))
}

fn add(session: &Session, id: &str, command: &[&str]) -> Outcome {
    let args = &session.args;
    let body = json!({
        "id": id, "command": command[0], "args": command[1..], "env": args.values("env"),
        "gatedTools": args.values("gate"),
    });
    let answer = session.client()?.post("/api/integrations", &body)?;
    session.out.told(&answer, "", &format!("added {id}"))
}

fn remove(session: &Session, id: &str) -> Outcome {
    let answer = session.client()?.call("DELETE", &at(id, ""), None)?;
    session.out.told(&answer, "", &format!("removed {id}"))
}

fn credentials(session: &Session, id: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&at(id, ""))?;
    let keys = answer["env"].as_array().cloned().unwrap_or_default();
    if out.json {
        return out.document(&answer["env"]);
    }
    if keys.is_empty() {
        return out.line(&format!("{id} needs no credentials"));
    }
    let line = |env: &Value| {
        let needed = if env["required"] == true { "required" } else { "optional" };
        format!("{} {needed}, {}", text(env, "key"), if env["set"] == true { "set" } else { "not set" })
    };
    out.lines(&keys.iter().map(line).collect::<Vec<_>>())
}

fn credential(session: &Session, id: &str, key: &str) -> Outcome {
    let client = session.client()?;
    if session.args.flag("remove") {
        let answer = client.call("DELETE", &at(id, &format!("/credentials/{}", encode(key))), None)?;
        return session.out.told(&answer, "", &format!("forgot {key} of {id}"));
    }
    let value = read_key(&format!("{id}, {key}"))?;
    let answer = client.post(&at(id, "/credentials"), &json!({"key": key, "value": value}))?;
    session.out.told(&answer, "", &format!("stored {key} of {id}: {}", text(&answer, "masked")))
}

fn connect(session: &Session, id: &str) -> Outcome {
    let answer = session.client()?.post(&at(id, "/oauth/start"), &json!({}))?;
    let url = text(&answer, "url");
    let out = &session.out;
    if out.json {
        return out.document(&answer);
    }
    out.note("open this address in a browser and consent:");
    out.line(url)
}

fn tools(session: &Session, id: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get(&at(id, "/tools"))?;
    let Some(list) = out.rows(&answer, &answer["tools"], "name")? else { return Ok(()) };
    let mut table = Table::new(&["TOOL", "APPROVAL", "DESCRIPTION"]);
    for tool in list {
        let description: String =
            one_line(text(tool, "description")).chars().take(DESCRIPTION_CHARS).collect();
        let approval = if tool["gated"] == true { "needed" } else { "-" };
        table.row(&[one_line(text(tool, "name")), approval.into(), description]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn exec(session: &Session, id: &str, tool: &str, params: &str) -> Outcome {
    let params: Value = serde_json::from_slice(params.as_bytes()).map_err(|error| {
        Failure::usage(format!("the parameters are a JSON object like '{{\"a\":1}}': {error}"))
    })?;
    let mut body = json!({"tool": tool, "params": params});
    if let Some(approval) = session.args.value("approval") {
        body["approvalId"] = approval.into();
    }
    let answer = call(&session.client()?, id, &body)?;
    let out = &session.out;
    if out.json {
        out.document(&answer)?;
    } else if answer["requiresApproval"] == true {
        let approval = text(&answer, "approvalId");
        return Err(Failure::failed(format!(
            "{tool} needs an approval: 'svc approve {approval}', then repeat this with --approval {approval}"
        )));
    } else {
        let items = answer["result"]["content"].as_array().cloned().unwrap_or_default();
        let line = |item: &Value| match item["text"].as_str() {
            Some(words) => clean(words),
            None => item.to_string(),
        };
        out.lines(&items.iter().map(line).collect::<Vec<_>>())?;
    }
    let failed = answer["requiresApproval"] == true || answer["result"]["isError"] == true;
    if failed { Err(Failure::Told(1)) } else { Ok(()) }
}

fn call(client: &Client, id: &str, body: &Value) -> Result<Value, Failure> {
    client.post(&at(id, "/exec"), body)
}
