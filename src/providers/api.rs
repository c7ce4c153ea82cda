//! `/api/providers`.

use super::{Model, Program, all};
use crate::api::{Method, Problem, Reply, Route};
use crate::routes::{Ask, Handler};
use crate::usage::prices;
use serde_json::{Value, json};

/// The routes of the providers.
pub fn routes() -> Vec<Route<Handler>> {
    vec![Route::new(
        Method::Get,
        "/api/providers",
        "Providers, whether they are installed, their models",
        Handler::Read(list),
    )]
}

/// A model with its price in US dollars per million tokens; `null` where none is published.
fn shown_model(model: &Model) -> Value {
    let mut shown = json!(model);
    shown["pricing"] = json!(prices::of_model(model.id));
    shown
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let providers: Vec<_> = all()
        .iter()
        .map(|provider| {
            let info = provider.info();
            let detection = ask.state.providers.get(info.id);
            let version = match info.program {
                Program::Itself => Some(crate::VERSION),
                Program::OnPath(..) => detection.and_then(|found| found.version.as_deref()),
            };
            json!({
                "id": info.id,
                "name": info.name,
                "installed": ask.state.providers.is_installed(info.id),
                "version": version,
                "authType": info.auth_type,
                "envKey": info.env_key,
                "hasKey": detection.is_some_and(|found| found.has_key)
                    || ask.state.credentials.has(info.id),
                "models": info.models.iter().map(shown_model).collect::<Vec<_>>(),
                "capabilities": info.capabilities,
                "installCommand": info.install_command,
            })
        })
        .collect();
    Ok(Reply::ok(&providers))
}
