//! The console's side that knows the daemon: links, and the sessions that they begin.

use super::api::{given_code, only_seen};
use super::worker_sessions::CODE_LIFE;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::actor::Holder;
use crate::endpoint::{Answer, Ask};
use serde_json::json;
use std::time::Instant;

/// The handler of `POST /api/console/codes`.
pub fn new_code(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let only_seen = ask.request.read(only_seen)?;
    let code = host.console.code(only_seen, Instant::now()).map_err(|error| no_randomness(&error))?;
    // Where this project stands among others, or its own address.
    let door = host.desk.as_ref().and_then(|desk| desk.url());
    let link = format!("{}/#code={code}", door.unwrap_or_else(|| ask.state.project.url()));
    let reply = json!({"code": code, "link": link, "expiresInSeconds": CODE_LIFE.as_secs()});
    Ok(Answer::Reply(Reply::json(201, &reply)))
}

/// The handler of `POST /api/console/session`.
pub fn begin(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let code = ask.request.read(given_code)?;
    // Who calls was asked of the kernel before this handler ran.
    let is_seen = ask.request.caller.get() == Some(&Holder::Outside);
    let opened = host.console.redeem(&code, ask.request, is_seen, Instant::now());
    let Some(halves) = opened.map_err(|error| no_randomness(&error))? else {
        let text = "the link is used up or too old; 'svc open' makes a new one";
        return Err(Problem::new(403, "code_not_good", text));
    };
    log::info!("a session of the console has begun");
    Ok(Answer::Reply(Reply::ok(&json!({"key": halves.key})).with_header("Set-Cookie", halves.cookie)))
}

/// The handler of `DELETE /api/console/sessions`.
pub fn forget(host: &Host, _ask: &Ask) -> Result<Answer, Problem> {
    let ended = host.console.forget();
    log::info!("{ended} sessions of the console were ended");
    Ok(Answer::Reply(Reply::ok(&json!({"ended": ended}))))
}

fn no_randomness(error: &std::io::Error) -> Problem {
    Problem::new(503, "no_randomness", error.to_string())
}
