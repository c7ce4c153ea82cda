//! `/api/providers`.

use super::registry::{Detection, Presence};
use super::worker;
use crate::api::{Method, Route};
use crate::core::State;
use crate::endpoint::{Access, Handler};
use crate::prices;
use crate::providers::{Info, Model, Program, all, login};
use serde_json::{Value, json};

/// The routes of the providers.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(
            Method::Get,
            "/api/providers",
            "Providers, whether they are installed, their models",
            Handler::Work(Access::Anyone, worker::list),
        )
        .query(&[("wait", "true: wait until versions and logins are known, 20 s at most")]),
        Route::new(
            Method::Get,
            "/api/providers/:id/environment",
            "Names of the variables that its agents get, and of those that are held back",
            Handler::Work(Access::OperatorOnly, worker::environment),
        )
        .replies(&[(200, "provider, passed, set, held"), (404, "no such provider")]),
    ]
}

/// A model with its price in US dollars per million tokens; `null` where none is published.
fn shown_model(state: &State, model: &Model) -> Value {
    let mut shown = json!(model);
    shown["pricing"] = json!(prices::for_model(state, model.id));
    shown
}

/// All providers as clients see them. What was `found` just now counts more than what the state knows.
pub fn shown(state: &State, found: &[Detection]) -> Vec<Value> {
    let one = |info: &'static Info| {
        let detection = found.iter().find(|detection| detection.provider == info.id);
        provider(state, info, detection.or_else(|| state.providers.get(info.id)))
    };
    all().iter().map(|provider| one(provider.info())).collect()
}

fn provider(state: &State, info: &Info, detection: Option<&Detection>) -> Value {
    let is_built_in = info.program == Program::Itself;
    let (word, version) = match detection.map(|found| &found.presence) {
        Some(Presence::Version(version)) => ("present", Some(version.as_str())),
        _ if is_built_in => ("present", None),
        Some(Presence::Present) => ("looking", None),
        Some(Presence::Absent) | None => ("absent", None),
    };
    let in_vault = state.credentials.has(info.id);
    let in_environment = detection.is_some_and(|found| found.has_key);
    let key_from = match (in_vault, in_environment) {
        (true, _) => Some("svc credentials"),
        (false, true) => Some("environment"),
        (false, false) => None,
    };
    json!({
        "id": info.id,
        "name": info.name,
        "installed": word != "absent",
        "state": word,
        "builtIn": is_built_in,
        "version": version,
        "authType": info.auth_type,
        "envKey": info.env_key,
        "hasKey": key_from.is_some(),
        "keyFrom": key_from,
        "login": detection.and_then(|found| found.login.as_ref()).map(|found| json!({
            "ok": found.is_in,
            "told": found.told,
            "remedy": if found.is_in { String::new() } else { login::remedy(info) },
        })),
        "models": info.models.iter().map(|model| shown_model(state, model)).collect::<Vec<_>>(),
        "capabilities": info.capabilities,
        "installCommand": info.install_command,
    })
}
