//! The endpoint that looks at the machine before it answers.

use super::shown;
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::endpoint::{Answer, Ask};
use crate::providers;
use svc_sys::pressure;

/// `GET /api/capacity`.
pub fn capacity(_: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let (provider, role) = (ask.request.query("provider"), ask.request.query("role"));
    if let Some(unknown) = provider.filter(|id| providers::by_id(id).is_none()) {
        let text = format!("provider {unknown:?} is unknown; GET /api/providers lists those that there are");
        return Err(Problem::bad_request("validation_failed", text));
    }
    let machine = pressure::look();
    Ok(Answer::Reply(Reply::ok(&shown::capacity(ask.state, ask.now, &machine, provider, role))))
}
