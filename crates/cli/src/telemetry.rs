//! `svc telemetry`.

use super::commands::{Command, Group};
use super::render::{age_of, clean};
use super::session::{Outcome, Session, now};
use super::target::text;
use serde_json::Value;

/// The commands of this file.
pub(super) static COMMANDS: &[Command] = &[Command {
    name: "telemetry",
    group: Group::Look,
    summary: "show what became of the spans for OpenTelemetry",
    usage: "telemetry",
    details: "telemetry.endpoint in your own ~/.config/svc/config.json turns it on, at the next start; the value of a\n\
              head line that it wants is a key: 'svc credentials set telemetry/authorization'.",
    run: telemetry,
    ..Command::PLAIN
}];

fn telemetry(session: &Session) -> Outcome {
    let out = &session.out;
    let answer = session.client()?.get("/api/telemetry")?;
    if out.json {
        return out.document(&answer);
    }
    let Some(endpoint) = answer["endpoint"].as_str() else {
        return out.line("off; telemetry.endpoint in your own ~/.config/svc/config.json turns it on");
    };
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    if out.quiet {
        return out.line(&number("dropped").to_string());
    }
    let heads: Vec<&str> =
        answer["headers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let heads = if heads.is_empty() { "none".to_owned() } else { clean(&heads.join(", ")) };
    let content = if answer["content"] == true { "with" } else { "without" };
    out.line(&format!("spans go to {}, {content} content; head lines: {heads}", clean(endpoint)))?;
    out.line(&format!(
        "{} exported, {} dropped, {} rejected; {} turns are open",
        number("exported"),
        number("dropped"),
        number("rejected"),
        number("openTurns")
    ))?;
    let error = text(&answer, "lastError");
    if error.is_empty() {
        return Ok(());
    }
    out.line(&format!("{} ago: {}", age_of(text(&answer, "lastErrorAt"), now()), clean(error)))
}
