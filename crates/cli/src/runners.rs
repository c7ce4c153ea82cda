//! `svc runner`.

use super::client::encode;
use super::commands::{Command, Group, Words, value};
use super::render::{Table, clean};
use super::session::{Failure, Outcome, Session};
use super::target::text;
use serde_json::{Value, json};
use std::time::Duration;

/// A check may have to copy this program first.
const CHECK_LIMIT: Duration = Duration::from_secs(180);

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "runner",
    alias: "runners",
    group: Group::Look,
    summary: "list, add, check and remove other machines of your own",
    usage: "runner [list | add NAME KIND [DESTINATION..] [--label L].. | check NAME | remove NAME | fetch AGENT | \
            grant NAME PROVIDER [--account A] | revoke NAME PROVIDER]",
    words: (0, 8),
    complete: Words::OneOf(&["list", "add", "check", "remove", "fetch", "grant", "revoke"]),
    options: &[
        value("label", "L", "for add: a word that says what it is good for; may be repeated"),
        value("account", "A", "for grant: the key of this account, and not the provider's own"),
    ],
    details: "'ssh USER@HOST' is reached by your own ssh, with your own settings and keys, and is never asked a question: its\n\
              host key has to be known, and your key has to open it without one (ssh-agent). check copies this very\n\
              program there, to ~/.cache/svc/bin, where it is not yet, compares its SHA-256 on both sides, and tells\n\
              what that machine has. 'svc spawn --runner NAME' has an agent work there, on a copy of the last commit;\n\
              fetch brings its commits into its branch here, for 'svc diff' and 'svc merge', and of one that has ended\n\
              what it has not committed, too. remove leaves there what is there.\n\
              Of other kinds a runner is made by an engine of yours when it is first needed, and remove ends it, with\n\
              what is in it alone: 'container podman IMAGE' or 'container docker IMAGE' (with sh, git and sha256sum in\n\
              it), 'slurm [PARTITION]', a job on one node, for as long as your SBATCH_* variables say, and 'kubernetes\n\
              CONTEXT IMAGE [namespace=N] [cpu=2] [memory=4Gi]', a pod made by your kubectl.\n\
              Nothing of your vault goes to a runner but what\n\
              grant names: the agents of that provider there get its key in their environment, for the life of a run, and\n\
              it stands in no file and no command line there; revoke ends that for runs to come.",

    run: runner,
}];

fn runner(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["add", name, kind, destination @ ..] => add(session, name, kind, &destination.join(" ")),
        ["check", name] => check(session, name),
        ["remove", name] => remove(session, name),
        ["fetch", agent] => fetch(session, agent),
        ["grant", name, provider] => grant(session, name, provider),
        ["revoke", name, provider] => revoke(session, name, provider),
        _ => Err(Failure::usage(
            "usage: svc runner [list | add NAME KIND [DESTINATION..] | check NAME | remove NAME | fetch AGENT | \
             grant NAME PROVIDER | revoke NAME PROVIDER]; see 'svc help runner'",
        )),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/runners")?;
    let Some(runners) = out.rows(&answer, &answer["runners"], "name")? else { return Ok(()) };
    let mut table = Table::new(&[
        "RUNNER",
        "KIND",
        "DESTINATION",
        "LABELS",
        "KEYS",
        "AGENTS",
        "COST",
        "CHECKED",
        "FOUND",
    ]);
    for one in runners {
        table.row(&[
            clean(text(one, "name")),
            clean(text(one, "kind")),
            clean(text(one, "destination")),
            labels(one),
            grants(one),
            agents(one),
            one["costUsd"].as_f64().map_or_else(|| "-".to_owned(), |cost| format!("${cost:.2}")),
            clean(one["checked"]["at"].as_str().unwrap_or("never")),
            found(one),
        ]);
    }
    out.table(&table, "no runners; 'svc runner add NAME ssh USER@HOST' adds another machine of yours")
}

fn labels(runner: &Value) -> String {
    let all: Vec<&str> =
        runner["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if all.is_empty() { "-".to_owned() } else { clean(&all.join(" ")) }
}

/// Whose keys its agents get.
fn grants(runner: &Value) -> String {
    let all = runner["grants"].as_array().into_iter().flatten();
    let words = all.map(|grant| match grant["account"].as_str() {
        Some(account) => format!("{} ({account})", text(grant, "provider")),
        None => text(grant, "provider").to_owned(),
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "-".to_owned() } else { clean(&words.join(", ")) }
}

/// How many live there, and of how many nothing is heard.
fn agents(runner: &Value) -> String {
    match runner["unreachable"].as_u64() {
        Some(silent) if silent > 0 => format!("{}, {silent} unreachable", runner["agents"]),
        _ => runner["agents"].to_string(),
    }
}

/// What the last check came to, in a few words.
fn found(runner: &Value) -> String {
    let checked = &runner["checked"];
    if let Some(error) = checked["error"].as_str() {
        return clean(error);
    }
    let facts = &checked["facts"];
    if facts.is_null() {
        return format!("svc runner check {}", clean(text(runner, "name")));
    }
    let processors = facts["processors"].as_u64().unwrap_or(0);
    format!("{processors} processors, {} of {} MB free", facts["available"], facts["memory"])
}

fn add(session: &Session, name: &str, kind: &str, destination: &str) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let mut body = json!({"name": name, "kind": kind, "destination": destination});
    let labels = args.values("label");
    if !labels.is_empty() {
        body["labels"] = json!(labels);
    }
    let answer = session.client()?.post("/api/runners", &body)?;
    let name = clean(text(&answer, "name"));
    out.told(&answer, &name, &format!("added {name}; 'svc runner check {name}' looks whether it can be used"))
}

fn check(session: &Session, name: &str) -> Outcome {
    let out = &session.out;
    let client = session.client()?.within(CHECK_LIMIT).doing("asking that machine");
    let answer = client.call("POST", &format!("/api/runners/{}/check", encode(name)), None)?;
    let error = answer["checked"]["error"].as_str();
    if out.json {
        out.document(&answer)?;
        return error.map_or(Ok(()), |_| Err(Failure::failed(format!("{} cannot be used", clean(name)))));
    }
    if let Some(error) = error {
        return Err(Failure::failed(clean(error)));
    }
    if out.quiet {
        return out.line(&clean(text(&answer, "name")));
    }
    out.lines(&told(&answer))
}

/// What a check has found, line by line.
fn told(runner: &Value) -> Vec<String> {
    let (checked, facts) = (&runner["checked"], &runner["checked"]["facts"]);
    let copied = if checked["copied"] == true { "copied there" } else { "there already" };
    let program = clean(text(facts, "program"));
    vec![
        format!(
            "{} answered in {} ms: {}",
            clean(text(runner, "name")),
            checked["tookMs"],
            clean(text(runner, "destination"))
        ),
        format!("  svc      {}, {copied}; SHA-256 {program}", clean(text(facts, "version"))),
        format!("  kernel   {}, {}", clean(text(facts, "kernel")), clean(text(facts, "arch"))),
        format!(
            "  room     {} processors, {} of {} MB of memory free",
            facts["processors"], facts["available"], facts["memory"]
        ),
        match facts["noRoom"].as_str() {
            None => "  cage     rooms can be made there".to_owned(),
            Some(why) => format!("  cage     no rooms there: {}", clean(why)),
        },
        format!("  git      {}", clean(facts["git"].as_str().unwrap_or("none: install it there"))),
    ]
}

fn remove(session: &Session, name: &str) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.call("DELETE", &format!("/api/runners/{}", encode(name)), None)?;
    if out.json {
        return out.document(&answer);
    }
    out.line(&format!(
        "removed {}; on a machine that ssh reaches what is in ~/.cache/svc stays",
        clean(name)
    ))?;
    if let Some(left) = answer["left"].as_str() {
        out.note(&clean(left));
    }
    Ok(())
}

fn grant(session: &Session, name: &str, provider: &str) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let mut body = json!({"provider": provider});
    if let Some(account) = args.value("account") {
        body["account"] = json!(account);
    }
    let answer = session.client()?.post(&format!("/api/runners/{}/grants", encode(name)), &body)?;
    let (name, provider) = (clean(name), clean(provider));
    let words = format!(
        "agents of {provider} on {name} get its key from their next run on; \
         svc runner revoke {name} {provider} ends that"
    );
    out.said(&answer, &words)
}

fn revoke(session: &Session, name: &str, provider: &str) -> Outcome {
    let out = &session.out;
    let path = format!("/api/runners/{}/grants/{}", encode(name), encode(provider));
    let answer = session.client()?.call("DELETE", &path, None)?;
    let (name, provider) = (clean(name), clean(provider));
    out.said(
        &answer,
        &format!("agents of {provider} on {name} get no key any more; those that run have it to their end"),
    )
}

fn fetch(session: &Session, agent: &str) -> Outcome {
    let out = &session.out;
    let client = session.client()?.within(CHECK_LIMIT).doing("bringing its commits");
    let answer = client.call("POST", &format!("/api/agents/{}/fetch", encode(agent)), None)?;
    if out.json {
        return out.document(&answer);
    }
    let (name, branch) = (clean(text(&answer, "agentName")), clean(text(&answer, "branch")));
    out.line(&format!(
        "{} commits of {name} came into {branch}; look at them: svc diff {name}",
        answer["commits"]
    ))?;
    if answer["uncommitted"] == true {
        out.note("more is on that machine that it has not committed; it comes along once it has ended");
    }
    Ok(())
}
