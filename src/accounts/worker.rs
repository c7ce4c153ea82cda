//! Making the folder of an account, and asking programs who is logged in there.

use super::{Command, Report, api, environment, find, list as shown};
use crate::api::{Problem, Reply};
use crate::assembly::host::Host;
use crate::core::{Event, State};
use crate::endpoint::{Answer, Ask};
use crate::providers::environment::Extra;
use crate::providers::{self, Info};
use serde_json::json;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Others may write there: the group, and everybody.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// `GET /api/accounts`.
pub fn list(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    if ask.request.query("login") != Some("true") {
        return Ok(Answer::Reply(Reply::ok(&shown(ask.state))));
    }
    look(host, ask.state, None);
    // What was found stands in the state when the core has taken it; it goes before what is asked here.
    let mut told = shown(ask.state);
    for account in told["accounts"].as_array_mut().into_iter().flatten() {
        let found = account["name"].as_str().and_then(|name| host.programs.known_login(name));
        if let Some(login) = found {
            let ready = account["hasKey"] == true || login.is_in;
            account["ready"] = json!(ready);
            account["login"] = json!({"ok": login.is_in, "told": login.told});
        }
    }
    Ok(Answer::Reply(Reply::ok(&told)))
}

/// Asks the programs who is logged in to the accounts, of one provider with its default one or of all; what
/// they say is in the core before what is wished next.
pub fn look(host: &Host, state: &State, provider: Option<&'static Info>) {
    let wanted = asked(state, provider);
    if wanted.is_empty() {
        return;
    }
    let told = host.programs.logins_of(wanted);
    if !told.is_empty() {
        host.core.control(Event::Accounts(Report::Logins(told)));
    }
}

/// What is asked for that: nothing where there are no accounts with folders.
pub fn asked(state: &State, provider: Option<&'static Info>) -> Vec<(String, &'static Info, Extra)> {
    let fits = |one: &str| provider.is_none_or(|provider| provider.id == one);
    let named = state.accounts.iter().filter(|account| fits(&account.provider) && account.home.is_some());
    let mut wanted: Vec<_> = named
        .map(|account| {
            let extra = environment(state, &account.provider, Some(&account.name));
            (account.name.clone(), providers::info_of(&account.provider), extra)
        })
        .collect();
    if !wanted.is_empty() {
        wanted.extend(provider.map(|info| (info.id.to_owned(), info, Extra::default())));
    }
    wanted
}

/// `POST /api/accounts`: makes its folder, for its owner alone, where it is not there.
pub fn add(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let api::Wish { name, provider, home } = ask.request.read(api::wish)?;
    let home = if providers::info_of(&provider).account_homes.is_empty() {
        None
    } else {
        let wanted = match home {
            Some(home) => PathBuf::from(home),
            None => usual(host, &provider, &name)?,
        };
        Some(made(&wanted, &host.project).map_err(|fault| refusal(&wanted.to_string_lossy(), &fault))?)
    };
    Ok(Answer::Command(crate::core::Command::Accounts(Command::Add { name, provider, home })))
}

/// `PATCH /api/accounts/:name`: makes another folder where one is wished.
pub fn change(host: &Host, ask: &Ask) -> Result<Answer, Problem> {
    let name = ask.params.get("name").to_owned();
    let provider = find(ask.state, &name)?.provider.clone();
    let mut change = ask.request.read(|fields| {
        let change = api::change(fields);
        if change.home.is_some() {
            api::check_home(fields, &provider);
        }
        change
    })?;
    if let Some(home) = change.home.take() {
        change.home = Some(made(Path::new(&home), &host.project).map_err(|fault| refusal(&home, &fault))?);
    }
    Ok(Answer::Command(crate::core::Command::Accounts(Command::Change(name, change))))
}

fn refusal(home: &str, fault: &str) -> Problem {
    Problem::invalid("home", format!("home {home} cannot be used: {fault}"))
}

/// Where it is when nobody says: beside the person's settings of svc, which no room shows.
fn usual(host: &Host, provider: &str, name: &str) -> Result<PathBuf, Problem> {
    let folder = host.user_folder().filter(|folder| folder.is_absolute());
    let folder = folder
        .ok_or_else(|| refusal("", "the daemon's environment has no HOME; name a folder: --home DIR"))?;
    Ok(folder.join("accounts").join(name).join(provider))
}

/// The folder without links. One that is there must be the daemon's user's, and nobody else may write there.
fn made(home: &Path, project: &Path) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    // Before anything is made: nothing is to be left behind in a project.
    let there = home.ancestors().find_map(|place| place.canonicalize().ok());
    if there.is_some_and(|there| there.starts_with(project)) {
        return Err("it is in the project, where agents write".to_owned());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(home).map_err(told)?;
    let home = home.canonicalize().map_err(told)?;
    if home.starts_with(project) || project.starts_with(&home) {
        return Err("it is in the project or around it, where agents write".to_owned());
    }
    let own = std::env::var_os("HOME").and_then(|own| PathBuf::from(own).canonicalize().ok());
    if own.is_some_and(|own| own.starts_with(&home)) {
        return Err("it is your home folder or around it; name a folder of its own".to_owned());
    }
    let (meta, own) = (fs::metadata(&home).map_err(told)?, fs::metadata("/proc/self").map_err(told)?.uid());
    if meta.uid() != own {
        return Err(format!("it belongs to another user ({}); the daemon runs as {own}", meta.uid()));
    }
    if meta.mode() & WRITTEN_BY_OTHERS != 0 {
        return Err("others may write there; chmod 700 it first".to_owned());
    }
    home.to_str().map(str::to_owned).ok_or_else(|| "its path is no UTF-8 text".to_owned())
}
