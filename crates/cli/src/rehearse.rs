//! `svc rehearse`: a scripted team of three at work, on a real daemon with real processes, without a model.

use super::client::Client;
use super::control::{Background, running, shut_down, start_in_background};
use super::logs::{POLL, Reader, Start, describe};
use super::render::{Style, Table, count, text_width};
use super::session::{Failure, Out, Outcome, Session};
use super::target::{agents, is_live, latest, lineage, state, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The team: role, scenario (which is the `script` provider's model), task, colour of its name.
const TEAM: [(&str, &str, &str, Style); 3] = [
    ("planner", "planner", "Plan the work of the team.", Style::Cyan),
    ("builder", "builder", "Build what the planner planned.", Style::Green),
    ("reviewer", "reviewer", "Review what the builder built.", Style::Magenta),
];
/// The scripts take seconds; a rehearsal that takes longer has gone wrong.
const REHEARSAL_LIMIT: Duration = Duration::from_secs(300);

/// `svc rehearse`.
pub fn rehearse(session: &Session) -> Outcome {
    let (out, args) = (&session.out, &session.args);
    let port = args.value("port").map(|text| {
        let wrong = || Failure::usage(format!("--port is a number from 0 to 65535, not '{text}'"));
        text.parse::<u16>().map_err(|_| wrong())
    });
    let port = port.transpose()?;
    let keep = args.flag("keep");
    if args.flag("url") {
        let client = session.client()?;
        let next = format!("svc agents --url {}", client.address().url);
        return perform(&client, out, |_| vec![next]);
    }
    let given = session.surroundings.project.clone().unwrap_or_else(|| "demo".into());
    let dir = session.surroundings.folder.join(&given);
    let is_new = !dir.exists();
    let project_dir = demo_project(&dir)?;
    let (daemon, started) = if let Some(daemon) = running(&project_dir) {
        (daemon, false)
    } else {
        let options = Background { project_dir, port, host: None, own_session: keep };
        (start_in_background(&options, &|words| out.note(words))?, true)
    };
    let client = Client::new(daemon.address)?;
    say(out, &format!("daemon   {} for {}", client.address().url, given.display()))?;
    let ends = started && !keep;
    let result = perform(&client, out, |name| next_commands(&given, ends, name));
    let stopped = if ends { shut_down(&client).map(|_| ()) } else { Ok(()) };
    if is_new {
        let name = given.display();
        say(out, &format!("The folder {name} was made for it; forget all of it with\n  rm -r {name}"))?;
    }
    result.and(stopped)
}

/// The folder of the rehearsal, made when it is not there.
fn demo_project(dir: &Path) -> Result<PathBuf, Failure> {
    let made = std::fs::create_dir_all(dir).and_then(|()| std::fs::canonicalize(dir));
    made.map_err(|error| {
        Failure::failed(format!("{} cannot be made: {error}; choose with --project", dir.display()))
    })
}

fn next_commands(project: &Path, ended: bool, name: &str) -> Vec<String> {
    let project = project.display();
    let start = ended.then(|| format!("svc start --background --project {project}"));
    let logs = format!("svc logs {name}");
    let rest = ["svc agents", &logs, "svc open"].map(|command| format!("{command} --project {project}"));
    start.into_iter().chain(rest).collect()
}

fn say(out: &Out, line: &str) -> Outcome {
    if out.json || out.quiet { Ok(()) } else { out.line(line) }
}

/// One member of the team.
struct Member {
    id: String,
    name: String,
    lineage: String,
    style: Style,
    reader: Reader,
    written: BTreeSet<String>,
    /// Files of tool calls that have begun to write and have not ended.
    writing: BTreeMap<String, String>,
}

/// Spawns the team, shows its output, waits for its end and sums up. `next` tells the commands that look
/// further, given the name of an agent.
fn perform(client: &Client, out: &Out, next: impl FnOnce(&str) -> Vec<String>) -> Outcome {
    let mut team = Vec::new();
    for (role, model, prompt, style) in TEAM {
        let body = json!({"role": role, "provider": "script", "model": model, "prompt": prompt});
        let agent = client.post("/api/agents", &body)?;
        say(out, &format!("spawned  {} ({})", text(&agent, "name"), text(&agent, "id")))?;
        team.push(Member {
            id: text(&agent, "id").into(),
            name: text(&agent, "name").into(),
            lineage: lineage(&agent).into(),
            style,
            reader: Reader::new(&agent, Start::Beginning),
            written: BTreeSet::new(),
            writing: BTreeMap::new(),
        });
    }
    say(out, "")?;
    stream(client, out, &mut team)?;
    let all = agents(client)?;
    let ended: Vec<(&Member, &Value)> =
        team.iter().filter_map(|member| Some((member, latest(&all, &member.lineage)?))).collect();
    summary(out, &ended)?;
    say(out, "")?;
    say(out, "Look further with")?;
    let shown = ended.iter().max_by_key(|(member, _)| member.written.len());
    for command in next(shown.map_or("NAME", |(member, _)| &member.name)) {
        say(out, &format!("  {command}"))?;
    }
    let good = ended.len() == team.len() && ended.iter().all(|(_, agent)| state(agent) == "completed");
    if good { Ok(()) } else { Err(Failure::Told(1)) }
}

fn stream(client: &Client, out: &Out, team: &mut [Member]) -> Outcome {
    let width = team.iter().map(|member| text_width(&member.name)).max().unwrap_or(0);
    let deadline = Instant::now() + REHEARSAL_LIMIT;
    loop {
        // Looked at before the logs are read, so that nothing written before the end is missed.
        let all = agents(client)?;
        let living = team.iter().any(|member| latest(&all, &member.lineage).is_some_and(is_live));
        let mut quiet = true;
        for member in team.iter_mut() {
            for entry in member.reader.read(client)? {
                quiet = false;
                member.note(&entry);
                show(out, member, &entry, width)?;
            }
        }
        if quiet && !living {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let names: Vec<&str> = team.iter().map(|member| member.name.as_str()).collect();
            let limit = REHEARSAL_LIMIT.as_secs();
            let names = names.join(", ");
            return Err(Failure::failed(format!("the rehearsal has not ended within {limit} s ({names})")));
        }
        if quiet {
            std::thread::sleep(POLL);
        }
    }
}

fn show(out: &Out, member: &Member, entry: &Value, width: usize) -> Outcome {
    let Some(shown) = describe(entry) else { return Ok(()) };
    let pad = " ".repeat(width.saturating_sub(text_width(&member.name)));
    let prefix = format!("{}{pad}", out.paint(member.style, &member.name));
    for line in shown.text.lines() {
        let line = shown.style.map_or_else(|| line.to_owned(), |style| out.paint(style, line));
        say(out, &format!("{prefix} | {line}"))?;
    }
    Ok(())
}

impl Member {
    /// Counts the files whose writing succeeded.
    fn note(&mut self, entry: &Value) {
        let call = text(entry, "id");
        match text(entry, "type") {
            "tool-started" if entry["writes"] == true => {
                if let Some(path) = entry["path"].as_str() {
                    self.writing.insert(call.into(), path.into());
                }
            }
            "tool-ended" => {
                let path = self.writing.remove(call);
                self.written.extend(path.filter(|_| entry["error"] != true));
            }
            _ => {}
        }
    }
}

fn summary(out: &Out, ended: &[(&Member, &Value)]) -> Outcome {
    if out.json {
        let list: Vec<Value> = ended
            .iter()
            .map(|(member, agent)| json!({"agent": agent, "filesWritten": member.written}))
            .collect();
        return out.document(&json!({"agents": list}));
    }
    if out.quiet {
        return out.lines(&ended.iter().map(|(member, _)| member.id.clone()).collect::<Vec<_>>());
    }
    let header = ["AGENT", "STATUS", "TURNS", "TOKENS", "FILES WRITTEN"];
    let mut table = Table::new(&header).numeric(&[2, 3]).status_column(1);
    for (member, agent) in ended {
        let files: Vec<&str> = member.written.iter().map(String::as_str).collect();
        table.row(&[
            member.name.clone(),
            state(agent).into(),
            agent["turns"].as_u64().unwrap_or(0).to_string(),
            count(agent["tokensUsed"].as_u64().unwrap_or(0)),
            if files.is_empty() { "-".into() } else { files.join(" ") },
        ]);
    }
    out.line("")?;
    out.lines(&table.lines(out.width, out.colour))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_that_succeeded_count_as_written() {
        let agent = json!({"id": "0000000a"});
        let mut member = Member {
            id: String::new(),
            name: String::new(),
            lineage: String::new(),
            style: Style::Bold,
            reader: Reader::new(&agent, Start::Beginning),
            written: BTreeSet::new(),
            writing: BTreeMap::new(),
        };
        let mut call = |id: &str, path: &str, writes: bool, error: bool| {
            member.note(&json!({"type": "tool-started", "id": id, "path": path, "writes": writes}));
            member.note(&json!({"type": "tool-ended", "id": id, "error": error}));
        };
        call("1", "a.rs", true, false);
        call("2", "b.rs", true, true);
        call("3", "c.rs", false, false);
        call("4", "a.rs", true, false);
        assert_eq!(member.written.into_iter().collect::<Vec<_>>(), ["a.rs"]);
    }
}
