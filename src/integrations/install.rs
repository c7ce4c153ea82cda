//! Installing, adding and removing integrations.
//!
//! A package of the catalogue is installed into `.svc/integrations/<id>/` by npm on a thread; whoever asked
//! waits up to [`PATIENCE`] and is then told that it goes on. An operator's own command needs no
//! installation.

use super::catalogue::{self, Definition};
use super::{Installed, MAX_CUSTOM, Order, edit, life, record, save, secrets, tell_status};
use crate::api::{Problem, Reply};
use crate::approvals;
use crate::core::{Actor, CallId, Context, Effect, State as All, Timer};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Who asked for an installation gets its outcome if it comes within this time, else 202.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An installation that is under way.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Installing {
    waiting: Vec<CallId>,
    args: Vec<String>,
    actor: Actor,
}

/// What is to be installed.
#[derive(Debug)]
pub struct InstallOrder {
    pub id: String,
    pub package: String,
    /// Its version, or `latest`.
    pub version: String,
}

/// What was installed.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub struct Package {
    /// Its program, relative to the project.
    pub program: String,
    /// Its exact version.
    pub version: String,
}

/// Installs an integration of the catalogue: 200 with the record, at once when it is installed already.
/// `None`: the answer comes with a later event.
///
/// Errors: 404 for an unknown id, 409 while it is being removed.
pub fn install(
    all: &mut All,
    cx: &mut Context,
    call: CallId,
    id: &str,
    version: Option<String>,
) -> Result<Option<Reply>, Problem> {
    let definition = all.integrations.definition(id).ok_or_else(|| unknown(id))?;
    if all.integrations.is_installed(id) {
        return Ok(Some(Reply::ok(&record(all, definition))));
    }
    if all.integrations.removing.contains_key(id) {
        return Err(Problem::new(409, "busy", format!("integration {id} is being removed; try again then")));
    }
    let Some((package, args)) = definition.package() else { return Err(unknown(id)) };
    let version = version.or_else(|| definition.version.clone()).unwrap_or_else(|| "latest".into());
    let order = InstallOrder { id: id.to_owned(), package: package.to_owned(), version };
    let args = args.to_vec();
    Arc::make_mut(&mut all.timers).set(Timer::IntegrationInstall(call), cx.now + PATIENCE);
    if let Some(installing) = edit(all).installing.get_mut(id) {
        installing.waiting.push(call);
        return Ok(None);
    }
    let installing = Installing { waiting: vec![call], args, actor: cx.actor.clone() };
    edit(all).installing.insert(id.to_owned(), installing);
    cx.push(Effect::Integrations(Order::Install(Box::new(order))));
    tell_status(all, cx, id);
    Ok(None)
}

/// Somebody has waited long enough for an installation to be told that it goes on: 202.
pub fn patience(all: &mut All, cx: &mut Context, call: CallId) {
    let found = edit(all).installing.iter_mut().find(|(_, installing)| installing.waiting.contains(&call));
    let Some((id, installing)) = found else { return };
    installing.waiting.retain(|other| *other != call);
    let body = json!({
        "id": id,
        "status": "installing",
        "message": "it goes on; the event integration:status and GET /api/integrations tell when it is over",
    });
    cx.reply(call, Reply::json(202, &body));
}

/// The thread is done.
pub fn installed(all: &mut All, cx: &mut Context, id: &str, result: Result<super::Package, String>) {
    let Some(installing) = edit(all).installing.remove(id) else { return };
    cx.actor = installing.actor;
    let reply = match result {
        Ok(package) => {
            let one = Installed {
                id: id.to_owned(),
                definition: None,
                program: package.program,
                args: installing.args,
                version: Some(package.version),
                installed_at: cx.now,
            };
            cx.audit("integration.install", &json!({"integrationId": id, "version": one.version}));
            edit(all).installed.insert(id.to_owned(), Arc::new(one));
            save(cx);
            match catalogue::find(id) {
                Some(definition) => Reply::ok(&record(all, definition)),
                None => unknown(id).into(),
            }
        }
        Err(error) => {
            cx.push(Effect::Warn(format!("integration {id} could not be installed: {error}")));
            Problem::new(502, "install_failed", format!("integration {id} could not be installed: {error}"))
                .into()
        }
    };
    for call in installing.waiting {
        Arc::make_mut(&mut all.timers).clear(Timer::IntegrationInstall(call));
        cx.reply(call, reply.clone());
    }
    tell_status(all, cx, id);
}

/// Adds an integration of the operator's own: 201 with the record.
///
/// Errors: 409 for an id in use, 409 `capacity`.
pub fn add(all: &mut All, cx: &mut Context, definition: &Definition) -> Result<Reply, Problem> {
    let id = definition.id.clone();
    let is_known = all.integrations.definition(&id).is_some() || all.integrations.removing.contains_key(&id);
    if is_known {
        let text = format!("integration {id} exists already; choose another id, or remove that one first");
        return Err(Problem::new(409, "exists", text));
    }
    let count = all.integrations.installed.values().filter(|one| one.definition.is_some()).count();
    if count >= MAX_CUSTOM {
        let text = format!("{count} integrations were added and {MAX_CUSTOM} is the limit; remove one first");
        return Err(Problem::new(409, "capacity", text));
    }
    cx.audit("integration.add", &json!({"integrationId": id, "command": definition.command}));
    let one = Installed {
        id: id.clone(),
        program: definition.command.clone(),
        args: definition.args.clone(),
        version: None,
        installed_at: cx.now,
        definition: Some(definition.clone()),
    };
    edit(all).installed.insert(id.clone(), Arc::new(one));
    save(cx);
    tell_status(all, cx, &id);
    Ok(Reply::json(201, &record(all, definition)).with_header("Location", format!("/api/integrations/{id}")))
}

/// Stops and forgets an integration, its credentials too; the answer comes when its files are gone.
///
/// Errors: 404 when it is not installed, 409 while it is being installed.
pub fn remove(all: &mut All, cx: &mut Context, call: CallId, id: &str) -> Result<(), Problem> {
    if let Some(waiting) = edit(all).removing.get_mut(id) {
        waiting.push(call);
        return Ok(());
    }
    if all.integrations.installing.contains_key(id) {
        return Err(Problem::new(
            409,
            "busy",
            format!("integration {id} is being installed; try again then"),
        ));
    }
    if !all.integrations.is_installed(id) {
        let text = format!("integration {id:?} is not installed; GET /api/integrations lists what is");
        return Err(Problem::not_found(text));
    }
    life::stop(all, cx, id, "it was removed");
    secrets::remove_all(all, cx, id);
    approvals::rules::forget_integration(all, cx, id);
    let state = edit(all);
    state.installed.remove(id);
    state.removing.insert(id.to_owned(), vec![call]);
    cx.audit("integration.remove", &json!({"integrationId": id}));
    save(cx);
    cx.push(Effect::Integrations(Order::Remove(id.to_owned())));
    tell_status(all, cx, id);
    Ok(())
}

/// Its server and its files are gone.
pub fn removed(all: &mut All, cx: &mut Context, id: &str, result: &Result<(), String>) {
    let state = edit(all);
    let Some(waiting) = state.removing.remove(id) else { return };
    // What comes under this id later is another integration: it begins with no crash.
    state.servers.remove(id);
    state.tool_names.remove(id);
    state.destructive.remove(id);
    state.windows.remove(id);
    if let Err(error) = result {
        cx.push(Effect::Warn(format!("files of integration {id} could not be removed: {error}")));
    }
    save(cx);
    for call in waiting {
        cx.reply(call, Reply::ok(&json!({"ok": true, "id": id})));
    }
}

pub(super) fn unknown(id: &str) -> Problem {
    Problem::not_found(format!("no integration has the id {id:?}; GET /api/integrations lists them"))
}
