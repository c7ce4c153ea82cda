//! Launching a toy seals its key before the core hears of it.

use super::{Command, Launch, api, find};
use crate::api::Problem;
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};

/// `POST /api/toys/:id/launch`.
pub fn launch(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let toy = find(ask.params.get("id"))?;
    let wanted = ask.request.read(api::wanted)?;
    let key = wanted.key.map(|key| host.vault.seal(&toy.credential(), &key)).transpose()?;
    let (starter, provider, model) = (wanted.starter, wanted.provider, wanted.model);
    let launch = Launch { toy, key, starter, provider, model };
    Ok(Answer::Command(Command::Launch(Box::new(launch)).into()))
}
