//! `svc agents`, `svc spawn`, `svc kill`.

use super::args::split_command;
use super::client::{CallError, Client};
use super::render::{Table, age_of, count, one_line, percent};
use super::session::{Failure, Outcome, Session, complain, now};
use super::target::{agents, is_live, path, resolve, state, text};
use super::{logs, wait};
use serde_json::{Map, Value, json};
use std::io::Read;
use std::path::Path;
use svc_base::sorted;
use svc_base::time::Time;

/// Agents that are being ended at the same time.
const KILLS_AT_ONCE: usize = 16;

/// `svc agents`.
pub fn list(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let client = session.client()?;
    let mut agents = agents(&client)?;
    let all = agents.len();
    if args.flag("live") {
        agents.retain(is_live);
    }
    if out.json {
        return out.document(&Value::Array(agents));
    }
    // Who lives stands first, then who came last: the order in which people look for them.
    sorted::by(&mut agents, |a, b| {
        is_live(b).cmp(&is_live(a)).then_with(|| text(b, "spawnedAt").cmp(text(a, "spawnedAt")))
    });
    if args.flag("names") || out.quiet {
        let member = if args.flag("names") { "name" } else { "id" };
        return out.lines(&agents.iter().map(|agent| text(agent, member).to_owned()).collect::<Vec<_>>());
    }
    if agents.is_empty() && all > 0 {
        return out.line(&format!("none is live; 'svc agents' lists {all} that have ended"));
    }
    if agents.is_empty() {
        return out.line("no agents; start one with 'svc spawn ROLE PROMPT'");
    }
    out.lines(&table(&agents, now()).lines(out.width, out.colour))
}

/// The table of agents.
fn table(agents: &[Value], now: Time) -> Table {
    let header = ["NAME", "ID", "STATUS", "PROVIDER", "MODEL", "TOKENS", "CTX", "AGE", "DOING"];
    let mut table = Table::new(&header).numeric(&[5, 6, 7]).status_column(2).optional(&[4, 3, 1, 7]);
    for agent in agents {
        let doing = if is_live(agent) && !text(agent, "currentActivity").is_empty() {
            text(agent, "currentActivity")
        } else {
            text(agent, "statusReason")
        };
        table.row(&[
            text(agent, "name").into(),
            text(agent, "id").into(),
            state(agent).into(),
            text(agent, "provider").into(),
            agent["actualModel"].as_str().unwrap_or_else(|| text(agent, "model")).into(),
            count(agent["tokensUsed"].as_u64().unwrap_or(0)),
            percent(agent["contextUsage"].as_f64().unwrap_or(0.0)),
            age_of(text(agent, "spawnedAt"), now),
            doing.into(),
        ]);
    }
    table
}

/// `svc spawn`.
pub fn spawn(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let prompt = words_or_stdin(session, 1)?;
    let client = session.client()?;
    let mut body = args.given(&[
        "provider",
        "model",
        "name",
        "permission",
        "effort",
        "isolation",
        "priority",
        "account",
        "runner",
        "schedule",
        "on-limit",
    ]);
    body.insert("role".into(), json!(args.words[0]));
    if !prompt.is_empty() {
        body.insert("prompt".into(), json!(prompt));
    }
    if args.value("schedule").is_some() {
        body.insert("timezone".into(), json!(super::schedules::timezone(None)));
    }
    for (option, field) in [("scope", "scope"), ("skill", "skills"), ("integration", "integrations")] {
        let values = args.values(option);
        if !values.is_empty() {
            body.insert(field.into(), json!(values));
        }
    }
    if let Some(dir) = args.value("dir") {
        let project = client.address().project.as_deref().map(Path::to_path_buf);
        body.insert("workingDir".into(), json!(inside(project.as_deref(), dir)));
    }
    if let Some(command) = args.value("command") {
        body.insert("command".into(), json!(split_command(command)?));
    }
    if let Some(env) = environment(&args.values("env"), &args.values("pass-env"))? {
        body.insert("env".into(), env);
    }
    if let Some(team) = args.value("team") {
        body.insert("teamId".into(), json!(team_id(&client, team)?));
    }
    let agent = client.post("/api/agents", &Value::Object(body))?;
    if let Some(placed) = agent["placed"].as_str() {
        out.note(&super::render::clean(placed));
    }
    for overlap in agent["overlaps"].as_array().into_iter().flatten() {
        out.note(&overlap_in_words(overlap));
    }
    let stays = args.flag("follow") || args.flag("wait");
    started(session, &agent, stays)?;
    if args.flag("follow") {
        logs::follow(&client, out, &agent, logs::Start::Beginning, false)?;
    }
    if stays { wait::until_ended(session, &client, std::slice::from_ref(&agent), None) } else { Ok(()) }
}

/// `its scope overlaps that of frontend-1: web/**, and src/** with src/api/*`.
fn overlap_in_words(overlap: &Value) -> String {
    let pairs = overlap["globs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let pairs: Vec<String> = pairs
        .iter()
        .map(|pair| match (text(pair, "own"), text(pair, "theirs")) {
            (own, theirs) if own == theirs => own.to_owned(),
            (own, theirs) => format!("{own} with {theirs}"),
        })
        .collect();
    one_line(&format!("its scope overlaps that of {}: {}", text(overlap, "agentName"), pairs.join(", ")))
}

/// The field `env` of a spawn.
fn environment(set: &[&str], pass: &[&str]) -> Result<Option<Value>, Failure> {
    let mut values = Map::new();
    for word in set {
        let Some((name, value)) = word.split_once('=') else {
            return Err(Failure::usage(format!("--env takes NAME=VALUE, not '{word}'")));
        };
        values.insert(name.into(), json!(value));
    }
    let is_plain = values.is_empty() && pass.is_empty();
    Ok((!is_plain).then(|| json!({"pass": pass, "set": values})))
}

/// Says which agent was started; when the command stays, its own output is what standard output is for.
pub fn started(session: &Session, agent: &Value, stays: bool) -> Outcome {
    let out = &session.out;
    let (name, id) = (text(agent, "name"), text(agent, "id"));
    if stays {
        out.note(&format!("started {name} ({id})"));
        return Ok(());
    }
    let (provider, model) = (text(agent, "provider"), text(agent, "model"));
    out.told(
        agent,
        id,
        &format!("started {name} ({id}), {provider} {model}; follow it with 'svc logs -f {name}'"),
    )
}

/// The words from `from` on as one text, or standard input when they are a single `-`.
pub fn words_or_stdin(session: &Session, from: usize) -> Result<String, Failure> {
    if session.args.words.len() != from + 1 || session.args.words[from] != "-" {
        return Ok(session.args.text_from(from));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::failed(format!("standard input cannot be read as text: {error}")))?;
    Ok(text.trim_end().to_owned())
}

/// A folder as the API wants it: relative to the project. An absolute path inside the project is shortened;
/// everything else goes to the daemon, which knows the rule.
fn inside(project: Option<&Path>, dir: &str) -> String {
    let absolute = project.filter(|_| Path::new(dir).is_absolute());
    let shortened = absolute.and_then(|project| Path::new(dir).strip_prefix(project).ok());
    shortened.and_then(Path::to_str).unwrap_or(dir).to_owned()
}

fn team_id(client: &Client, team: &str) -> Result<String, Failure> {
    let answer = client.get("/api/teams")?;
    let teams = answer["teams"].as_array().cloned().unwrap_or_default();
    let found = teams.iter().find(|record| text(record, "id") == team || text(record, "name") == team);
    found.map(|record| text(record, "id").to_owned()).ok_or_else(|| {
        let names: Vec<&str> = teams.iter().map(|record| text(record, "name")).collect();
        Failure::failed(format!("there is no team '{team}'; there are {}", names.join(", ")))
    })
}

/// `svc kill`.
pub fn kill(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let everything = args.flag("all");
    if everything != args.words.is_empty() {
        return Err(Failure::usage("'svc kill' takes either agents or --all; see 'svc help kill'"));
    }
    if everything && let Some(id) = session.caller() {
        return Err(Failure::failed(format!(
            "agent {id} may not end all agents, itself among them; name the ones that you started"
        )));
    }
    let client = session.client()?;
    let agents = agents(&client)?;
    let mut targets: Vec<&Value> = Vec::new();
    if everything {
        targets.extend(agents.iter().filter(|agent| is_live(agent)));
    }
    for word in &args.words {
        let agent = resolve(&agents, word)?;
        if !targets.iter().any(|target| text(target, "id") == text(agent, "id")) {
            targets.push(agent);
        }
    }
    let mut answers = Vec::new();
    let mut failed = false;
    let mut printed = Ok(());
    for (agent, result) in delete_all(&client, &targets) {
        match result {
            Ok(answer) => {
                answers.push(answer);
                if !out.json && printed.is_ok() {
                    printed = out.line(&killed(session, agent));
                }
            }
            Err(error) => {
                let Failure::Say { message, .. } = client.explain(error) else { continue };
                complain(&format!("{}: {message}", text(agent, "name")));
                failed = true;
            }
        }
    }
    printed?;
    if out.json {
        let single = !everything && args.words.len() == 1 && answers.len() == 1;
        out.document(&if single { answers.remove(0) } else { Value::Array(answers) })?;
    } else if everything && agents.iter().all(|agent| !is_live(agent)) {
        out.note("no agent was running");
    }
    if failed { Err(Failure::Told(1)) } else { Ok(()) }
}

/// Ends agents side by side, as each may take the 5 s that it has to end by itself.
fn delete_all<'a>(client: &Client, targets: &[&'a Value]) -> Vec<(&'a Value, Result<Value, CallError>)> {
    let mut results = Vec::new();
    for some in targets.chunks(KILLS_AT_ONCE) {
        std::thread::scope(|scope| {
            let delete =
                |agent: &'a Value| scope.spawn(move || client.try_call("DELETE", &path(agent, ""), None));
            let calls: Vec<_> = some.iter().map(|agent| (*agent, delete(agent))).collect();
            results.extend(calls.into_iter().map(|(agent, call)| {
                let panicked = |_| Err(CallError::Other("the call panicked".into()));
                (agent, call.join().unwrap_or_else(panicked))
            }));
        });
    }
    results
}

fn killed(session: &Session, agent: &Value) -> String {
    let (name, id) = (text(agent, "name"), text(agent, "id"));
    if session.out.quiet {
        return id.to_owned();
    }
    if is_live(agent) {
        format!("killed {name} ({id})")
    } else {
        format!("removed {name} ({id}), which was {} already", state(agent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_of_scopes_is_told_in_words() {
        let globs = json!([{"own": "web/**", "theirs": "web/**"}, {"own": "src/**", "theirs": "src/api/*"}]);
        let overlap = json!({"agentId": "0941bbb1", "agentName": "frontend-1", "globs": globs});
        let words = "its scope overlaps that of frontend-1: web/**, src/** with src/api/*";
        assert_eq!(overlap_in_words(&overlap), words);
        let forged = json!({"agentName": "a\nsvc: done", "globs": [{"own": "b\u{1b}[2J", "theirs": "c"}]});
        let told = overlap_in_words(&forged);
        assert!(!told.contains(['\n', '\u{1b}']), "{told:?}");
    }

    #[test]
    fn working_directories_become_relative_to_the_project() {
        let project = Some(Path::new("/p/q"));
        assert_eq!(inside(project, "/p/q/web/ui"), "web/ui");
        assert_eq!(inside(project, "/p/other"), "/p/other");
        assert_eq!(inside(project, "web"), "web");
        assert_eq!(inside(None, "/p/q"), "/p/q");
    }

    #[test]
    fn the_table_shows_the_activity_of_the_living_and_the_reason_of_the_ended() {
        let record = |state: &str| {
            json!({"name": "a-1", "id": "0000000a", "status": "active", "state": state, "provider": "script",
                "model": "builder", "tokensUsed": 12400, "contextUsage": 0.42,
                "spawnedAt": "1970-01-01T00:00:00.000Z", "currentActivity": "Write \
                     x.rs", "statusReason": "exit code 3"})
        };
        let lines = table(&[record("running"), record("crashed")], Time(180_000)).lines(None, false);
        let cells: Vec<&str> = lines[1].split_whitespace().collect();
        let expected =
            ["a-1", "0000000a", "running", "script", "builder", "12.4k", "42%", "3m", "Write", "x.rs"];
        assert_eq!(cells, expected);
        assert!(lines[2].ends_with("exit code 3"), "{}", lines[2]);
    }
}
