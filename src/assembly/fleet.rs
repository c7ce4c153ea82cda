//! What this daemon tells the other projects of its user, and what it reads of them: one small file each,
//! `NAME.told` beside its place in the registry. What stands there, and what follows from it, is said in
//! [`crate::fleet`].
//!
//! **Invariant:** whoever lets an agent in while little memory is left does so alone: it holds a lock, which
//! ends with its process, from before it reads what the others need until its own need can be read.

use super::host::{Core, Host};
use crate::accounts::{self, DEFAULT};
use crate::core::time::Time;
use crate::core::{Event, State};
use crate::credentials;
use crate::endpoint::Ask;
use crate::fleet::{Budget, Needs, Others, Project, Report, Spent, Told, VERSION, Window};
use crate::governor::Fellows;
use crate::providers;
use crate::settings;
use crate::usage;
use std::any::Any;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use svc_sys::clock;
use svc_sys::registry::{Registry, user_folder};

/// Another project that lets somebody in has done so by then; one that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Days begin at midnight UTC.
const DAY_MS: u64 = 86_400_000;
/// What was heard is good for so long when somebody wishes something.
const FRESH: Duration = Duration::from_millis(100);
const MIB: u64 = 1 << 20;

/// This daemon's side. Without a place in the registry it reads, and tells nothing.
#[derive(Debug, Clone)]
pub struct Fleet {
    registry: Option<Registry>,
    /// Of this project; empty without a place.
    name: String,
    told: Option<Told>,
    /// Why what is to be told was not; of all clones.
    trouble: Arc<Mutex<Option<String>>>,
}

impl Fleet {
    /// That of the project of this name.
    pub fn new(name: &str) -> Self {
        Self { registry: Registry::of_user(), name: name.to_owned(), told: None, trouble: Arc::default() }
    }

    /// Reads what the others have told.
    pub fn others(&self, state: &State, now: Time) -> Others {
        let mut others = Others { budget: budget(), ..Others::default() };
        if self.name.is_empty() {
            others.trouble =
                Some("this project has no place in the list of 'svc ps', see its log".to_owned());
        }
        let listed = self.registry.as_ref().map(|registry| (registry, registry.list()));
        let (registry, entries) = match listed {
            Some((registry, Ok(entries))) => (registry, entries),
            Some((registry, Err(error))) => {
                others.trouble = Some(format!("{}: {error}", registry.folder().display()));
                return others;
            }
            None => return others,
        };
        for entry in entries.into_iter().filter(|entry| entry.name != self.name) {
            let told = read(registry, &entry.name, state, now).unwrap_or_else(|why| {
                others.trouble = Some(format!(
                    "what {} has spent today is not known ({why}): start its daemon again, or forget the project \
                     with 'svc ps --forget {}'",
                    entry.name, entry.name
                ));
                None
            });
            others.projects.push(Project { name: entry.name, is_running: entry.is_running, told });
        }
        let own = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        others.trouble = others.trouble.or(own);
        others
    }

    /// Writes what the others are to know, where that is not what they know already.
    fn write(&mut self, told: Told) {
        let Some(registry) = self.registry.as_ref().filter(|_| !self.name.is_empty()) else { return };
        let before = self.told.as_ref();
        if before == Some(&told) {
            return;
        }
        // What was spent and what providers said outlives a power cut; what is needed does not.
        let lasts = before.is_none_or(|before| before.spent != told.spent || before.windows != told.windows);
        let written = serde_json::to_vec(&told).map_err(io::Error::other);
        let done = written.and_then(|bytes| registry.tell(&self.name, &bytes, lasts));
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match done {
            Ok(()) => (self.told, *trouble) = (Some(told), None),
            Err(error) => {
                let text = format!("what this project spends cannot be told to the others: {error}");
                if trouble.as_ref() != Some(&text) {
                    log::warn!("{text}");
                }
                *trouble = Some(text);
            }
        }
    }
}

impl Fellows for Fleet {
    fn hear(&mut self, core: &Core, is_asked: bool) {
        hear(self, core, &core.snapshot(), clock::now(), is_asked);
    }

    fn tell(&mut self, core: &Core) {
        self.write(own(&core.snapshot(), clock::now()));
    }

    fn alone(&mut self) -> Option<Box<dyn Any>> {
        match &self.registry {
            Some(registry) => registry.alone(PATIENCE).ok().map(|lock| Box::new(lock) as Box<dyn Any>),
            // Nobody else is known to anybody.
            None => Some(Box::new(())),
        }
    }
}

/// Has the core know what the others have told. Where nobody `is_asked`, what it knows already wakes nobody.
fn hear(fleet: &Fleet, core: &Core, state: &State, now: Time, is_asked: bool) {
    let others = fleet.others(state, now);
    if *state.fleet.others() != others {
        core.control(Event::Fleet(Report::Heard(Arc::new(others))));
    } else if is_asked {
        core.control(Event::Fleet(Report::Same));
    }
}

/// The same before somebody's wish.
pub fn hear_before(host: &Host, ask: &Ask) {
    if ask.state.fleet.is_older_than(FRESH, ask.now) {
        hear_now(host, ask);
    }
}

/// The same before an agent is wished for: a daemon that has started just now is known as well.
pub fn hear_now(host: &Host, ask: &Ask) {
    hear(&host.fleet, &host.core, ask.state, ask.now, true);
}

/// What all projects may cost in a day, by the user's own settings as they stand now.
fn budget() -> Budget {
    let Some(path) = user_folder().map(|folder| folder.join("config.json")) else { return Budget::None };
    let text = match svc_sys::regular::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Budget::None,
        Err(error) => return Budget::Unknown(format!("{}: {error}", path.display())),
    };
    match settings::budget_over_all(&text) {
        Ok(usd) => usd.map_or(Budget::None, Budget::Usd),
        Err(why) => Budget::Unknown(format!("{}: {why}", path.display())),
    }
}

/// What a project has told; of windows, those of accounts that this one has, too.
fn read(registry: &Registry, name: &str, state: &State, now: Time) -> Result<Option<Told>, String> {
    let Some(bytes) = registry.told(name).map_err(|error| error.to_string())? else { return Ok(None) };
    let mut told: Told = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if told.version != VERSION {
        return Err(format!("it is written in version {}, and this one reads {VERSION}", told.version));
    }
    if !told.spent.usd.is_finite() {
        return Err("it has no figure".to_owned());
    }
    if told.spent.day < now.0 / DAY_MS {
        told.spent = Spent::default();
    }
    told.windows = told.windows.into_iter().filter_map(|window| here(state, window)).collect();
    Ok(Some(told))
}

/// A window with the name that its account has in this project.
fn here(state: &State, window: Window) -> Option<Window> {
    let own = state.accounts.iter().filter(|account| account.provider == window.provider);
    let names = [DEFAULT].into_iter().chain(own.map(|account| account.name.as_str()));
    let name = names
        .filter(|name| login(state, &window.provider, name).as_ref() == Some(&window.login))
        .last()?
        .to_owned();
    Some(Window { login: name, ..window })
}

/// Which login an account is, in words that are the same in all projects which use it; `None` for one that is
/// this project's own: with a key of its vault, or variables that it sets.
fn login(state: &State, provider: &str, account: &str) -> Option<String> {
    let info = providers::by_id(provider)?.info();
    let named = (account != DEFAULT).then_some(account);
    let key = named.map(accounts::key_name);
    let has_key = !credentials::variables(state, provider, key.as_deref(), None).is_empty();
    if has_key || !state.settings.config().env.of(provider).set.is_empty() {
        return None;
    }
    if let Some(name) = named {
        return state.accounts.get(name)?.home.as_ref().map(|home| format!("home {home}"));
    }
    let homes = info.account_homes.iter().map(|(variable, _)| *variable).chain(["HOME"]);
    let homes = homes.filter_map(|variable| Some(format!("{variable}={}", std::env::var(variable).ok()?)));
    Some(format!("usual {}", homes.collect::<Vec<_>>().join(" ")))
}

/// What this project has to tell.
fn own(state: &State, now: Time) -> Told {
    let (under_way_usd, turn_usd) = usage::budget::under_way(state);
    let (running, in_turn, promised) = crate::governor::promised(state, now);
    let day = now.0 / DAY_MS;
    let windows = usage::quota::told(state).filter_map(|window| {
        let login = login(state, &window.provider, &window.login)?;
        Some(Window { login, ..window })
    });
    Told {
        version: VERSION,
        spent: Spent { day, usd: usage::budget::spent(state, now), warned: state.fleet.own_warned_on(day) },
        needs: Needs { under_way_usd, turn_usd, running, in_turn, promised: promised.div_ceil(MIB) * MIB },
        windows: windows.collect(),
    }
}
