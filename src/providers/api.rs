//! `/api/providers`.

use super::{Program, all};
use crate::api::{Method, Problem, Reply, Route};
use crate::routes::{Ask, Handler};
use serde_json::json;

/// The routes of the providers.
pub fn routes() -> Vec<Route<Handler>> {
    vec![Route::new(
        Method::Get,
        "/api/providers",
        "Providers, whether they are installed, their models",
        Handler::Read(list),
    )]
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
                "models": info.models,
                "capabilities": info.capabilities,
                "installCommand": info.install_command,
            })
        })
        .collect();
    Ok(Reply::ok(&providers))
}
