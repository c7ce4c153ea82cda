//! `svc team`, and the table of the commands for teams, plans, schedules and toys.

use super::client::{Client, encode};
use super::commands::{ANY, Command, Group, Words, choice, short, switch, value};
use super::render::{Table, age_of, one_line};
use super::session::{Failure, Outcome, Session, now};
use super::target::text;
use super::{plan, schedules, toys};
use serde_json::{Value, json};

/// These commands, for the table of all.
pub static COMMANDS: [Command; 4] = [
    Command {
        name: "team",
        alias: "teams",
        group: Group::Together,
        summary: "save, load and rename teams of agents",
        usage: "team list | show TEAM | save NAME [AGENT..] | load TEAM | rename TEAM NAME | delete TEAM | recommended | \
                revise FILE | launch | retry [PLAN] | skip [PLAN]",
        words: (0, ANY),
        complete: Words::OneOf(&[
            "list",
            "show",
            "save",
            "load",
            "rename",
            "delete",
            "recommended",
            "revise",
            "launch",
            "retry",
            "skip",
        ]),
        options: &[
            value("team", "TEAM", "launch: the team that the agents join"),
            value(
                "runner",
                "AGENT=R",
                "save: on which machine that one is started: a runner, label:L or here",
            ),
            short('f', switch("follow", "launch: tell the phases until the plan is over")),
        ],
        details: "save keeps the configurations of the living agents, or of the named ones, each with the machine that\n\
                  it works on; --runner says another one, and may be repeated. load starts those of which no agent\n\
                  is alive. An agent of a recommended team may name a runner, too ('runner' in revise's FILE).\n\
                  launch starts what the last planner recommended, phase by phase;\n\
                  recommended shows that, and revise replaces it by a file like 'svc team recommended --json'.\n\
                  retry tries those of a blocked plan again that have failed, skip passes over what is left of\n\
                  its phase, so that the next one begins.",
        run: team,
    },
    Command {
        name: "plan",
        group: Group::Together,
        summary: "have a planner recommend a team for a task",
        usage: "plan TASK.. | - [--launch]",
        words: (1, ANY),
        options: &[
            value("provider", "ID", "which coding agent plans; see 'svc providers'"),
            value("model", "ID", "its model"),
            choice("permission", "MODE", &["auto", "full"], "what planner and builders may do unasked"),
            value("team", "TEAM", "the team that planner and builders join, by name or id"),
            switch("launch", "start the recommended team at once, and follow it until it is done"),
        ],
        details: "Prints what the planner does, then the team that it recommends; 'svc team launch' starts that.",
        run: plan::plan,
        ..Command::PLAIN
    },
    Command {
        name: "schedule",
        alias: "schedules",
        group: Group::Together,
        summary: "start agents by the clock",
        usage: "schedule list | show S | add CRON ROLE [PROMPT.. | -] | run S | enable S | disable S | delete S",
        words: (0, ANY),
        complete: Words::OneOf(&["list", "show", "add", "run", "enable", "disable", "delete"]),
        options: &[
            value("name", "NAME", "the name of the schedule (ROLE)"),
            value("timezone", "ZONE", "an IANA name such as Europe/Berlin (this machine's)"),
            value("max-concurrent", "N", "agents of it alive at once (1)"),
            choice("catch-up", "WHAT", &["skip", "once"], "what becomes of times that were missed"),
            value("provider", "ID", "which coding agent runs it"),
            value("model", "ID", "its model"),
            value("scope", "GLOB", "files it owns; may be repeated"),
            choice("permission", "MODE", &["auto", "full"], "what it may do unasked"),
            value("team", "TEAM", "the team its agents join"),
            value("runner", "NAME", "work on another machine of yours: one of 'svc runners', or label:L"),
        ],
        details: "CRON is quoted: minute hour day-of-month month day-of-week, for example '30 6 * * mon-fri'.",
        run: schedules::schedule,
    },
    Command {
        name: "toys",
        alias: "toy",
        group: Group::Together,
        summary: "play with a public API",
        usage: "toys [list | show ID | launch ID [IDEA..]]",
        words: (0, ANY),
        complete: Words::OneOf(&["list", "show", "launch"]),
        options: &[
            choice(
                "category",
                "WORD",
                &["space", "weather", "finance", "fun", "maps", "data"],
                "list: only these",
            ),
            switch("key", "launch: ask for the API key, or read it from standard input"),
            value("provider", "ID", "launch: which coding agent plans"),
            value("model", "ID", "launch: its model"),
        ],
        details: "launch makes a team and starts a planner. Without an idea the planner chooses what to build.",
        run: toys::toys,
    },
];

/// `svc team`.
pub fn team(session: &Session) -> Outcome {
    let words: Vec<&str> = session.args.words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["list"] => list(session),
        ["show", team] => show(session, team),
        ["save", name, agents @ ..] => save(session, name, agents),
        ["load", team] => load(session, team),
        ["rename", team, name] => rename(session, team, name),
        ["delete", team] => delete(session, team),
        ["recommended"] => plan::recommended(session),
        ["revise", file] => plan::revise(session, file),
        ["launch"] => launch(session),
        [deed @ ("retry" | "skip")] => plan::steer(session, deed, None),
        [deed @ ("retry" | "skip"), plan] => plan::steer(session, deed, Some(plan)),
        _ => Err(Failure::usage(
            "usage: svc team list | show | save | load | rename | delete | recommended | revise | launch | \
             retry | skip; see 'svc help team'",
        )),
    }
}

fn list(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/teams")?;
    let Some(teams) = out.rows(&answer, &answer["teams"], "id")? else { return Ok(()) };
    let mut table = Table::new(&["NAME", "ID", "SAVED", "ALIVE", "AGE", "DEFAULT"]).numeric(&[2, 3, 4]);
    for team in teams {
        let size = |member: &str| team[member].as_array().map_or(0, Vec::len).to_string();
        table.row(&[
            one_line(text(team, "name")),
            text(team, "id").into(),
            size("agents"),
            size("members"),
            age_of(text(team, "createdAt"), now()),
            if team["isDefault"] == true { "yes".into() } else { String::new() },
        ]);
    }
    out.lines(&table.lines(out.width, out.colour))
}

fn show(session: &Session, team: &str) -> Outcome {
    let out = &session.out;
    let team = session.client()?.get(&path(team, ""))?;
    if out.json {
        return out.document(&team);
    }
    let agents = team["agents"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.table(&configurations(agents), "nothing is saved in this team; 'svc team save' does that")
}

/// Saved or recommended agents.
pub fn configurations(agents: &[Value]) -> Table {
    let is_far = agents.iter().any(|agent| !text(agent, "runner").is_empty());
    let names = ["NAME", "ROLE", "PHASE", "PROVIDER", "RUNNER", "SCOPE", "TASK"];
    let shown: Vec<&str> = names.into_iter().filter(|name| is_far || *name != "RUNNER").collect();
    let mut table = Table::new(&shown).numeric(&[2]);
    for agent in agents {
        let scope: Vec<&str> =
            agent["scope"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let phase = agent["phase"].as_u64().map(|phase| phase.to_string()).unwrap_or_default();
        let mut row = vec![text(agent, "name").into(), text(agent, "role").into(), phase];
        row.push(text(agent, "provider").into());
        if is_far {
            row.push(text(agent, "runner").into());
        }
        row.extend([one_line(&scope.join(" ")), one_line(text(agent, "prompt"))]);
        table.row(&row);
    }
    table
}

/// The path of a team's endpoint.
fn path(team: &str, rest: &str) -> String {
    format!("/api/teams/{}{rest}", encode(team))
}

fn save(session: &Session, name: &str, agents: &[&str]) -> Outcome {
    let mut body = json!({"name": name});
    if !agents.is_empty() {
        body["agents"] = json!(agents);
    }
    for given in session.args.values("runner") {
        let Some((agent, runner)) = given.split_once('=').filter(|(agent, _)| !agent.is_empty()) else {
            return Err(Failure::usage(format!("--runner is AGENT=RUNNER, not '{given}'")));
        };
        body["runners"][agent] = json!(runner);
    }
    let team = session.client()?.post("/api/teams", &body)?;
    let saved = team["agents"].as_array().map_or(0, Vec::len);
    let (name, s) = (text(&team, "name"), if saved == 1 { "" } else { "s" });
    let line = format!("saved {name} with {saved} agent{s}; 'svc team load {name}' starts what is not alive");
    session.out.told(&team, text(&team, "id"), &line)
}

fn load(session: &Session, team: &str) -> Outcome {
    let answer = session.client()?.post(&path(team, "/load"), &json!({}))?;
    started(session, &answer, "the agents of this team are all alive")
}

/// Tells which agents were started and which were not; exit code 1 when one was not.
fn started(session: &Session, answer: &Value, nothing: &str) -> Outcome {
    let out = &session.out;
    let agents = answer["agents"].as_array().cloned().unwrap_or_default();
    let failed = answer["failed"].as_array().cloned().unwrap_or_default();
    if out.json {
        out.document(answer)?;
    } else {
        for agent in &agents {
            let (name, id) = (text(agent, "name"), text(agent, "id"));
            out.line(&if out.quiet { id.to_owned() } else { format!("started {name} ({id})") })?;
        }
        if agents.is_empty() && failed.is_empty() {
            out.note(nothing);
        }
    }
    for failure in &failed {
        let who =
            if text(failure, "name").is_empty() { text(failure, "role") } else { text(failure, "name") };
        super::session::complain(&format!("{who}: {}", one_line(text(failure, "error"))));
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Told(1)) }
}

fn rename(session: &Session, team: &str, name: &str) -> Outcome {
    let answer = session.client()?.call("PATCH", &path(team, ""), Some(&json!({"name": name})))?;
    session.out.told(&answer, text(&answer, "id"), &format!("renamed {team} to {}", text(&answer, "name")))
}

fn delete(session: &Session, team: &str) -> Outcome {
    let answer = session.client()?.call("DELETE", &path(team, ""), None)?;
    session.out.told(
        &answer,
        text(&answer, "id"),
        &format!("deleted {team}; its agents are in the default team"),
    )
}

/// `svc team launch`.
fn launch(session: &Session) -> Outcome {
    let client = session.client()?;
    launch_recommended(session, &client, session.args.flag("follow"))
}

/// Starts the recommended team, and follows its phases if wished.
pub fn launch_recommended(session: &Session, client: &Client, follow: bool) -> Outcome {
    let mut body = json!({});
    if let Some(team) = session.args.value("team") {
        body["teamId"] = json!(team);
    }
    let answer = client.post("/api/recommended-team/launch", &body)?;
    let outcome = started(session, &answer, "nothing was started");
    if follow { plan::follow(session, client, text(&answer, "planId")) } else { outcome }
}
