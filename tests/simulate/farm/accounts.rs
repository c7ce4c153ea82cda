//! Accounts of a provider: which a person has named for whom, and of which a limit was told, kept outside of
//! the daemon. Nobody works with the login of another, and what is told of one account moves nobody of
//! another.

use super::invariants::{Rule, ensure};
use super::machine::{Machine, Plant};
use super::promises::Claim;
use crate::support::dice::Dice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use svc::accounts::{self, AUTO, Command, DEFAULT, key_name};
use svc::agents::{Agent, StartOrder, Status};
use svc::core::ids::LineageId;
use svc::core::time::Time;
use svc::core::{Actor, Command as Wish, State};
use svc::credentials;
use svc::providers::Activity;

/// The provider that has several: each is a key alone.
pub const PROVIDER: &str = "ollama";
const NAMES: [&str; 3] = ["day", "night", "spare"];
/// The dice of this file are thrown beside those of a step, which fall as they would without it.
const SALT: u64 = 0x5bd1_e995_9e37_79b9;

/// Whose login somebody is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    /// This one.
    One(String),
    /// One of these, and then that for good.
    OneOf(Vec<String>),
    /// That of who has started it.
    OfMaker(LineageId),
}

/// All that is known of them.
#[derive(Default)]
pub struct Accounts {
    /// By the names of agents, which are given once.
    named: BTreeMap<String, Named>,
    /// Those of which some program was ever told a limit, and until when that holds for certain. Who is
    /// removed and added again is another one.
    told: BTreeMap<Added, Time>,
}

/// An account and when it was added.
type Added = (String, Time);

fn added(state: &State, name: &str) -> Option<Added> {
    state.accounts.get(name).map(|account| (name.to_owned(), account.added_at))
}

fn is_played(agent: &Agent) -> bool {
    agent.provider == PROVIDER
}

/// The accounts that somebody can be started with: enabled, and with a key.
fn usable(state: &State) -> Vec<String> {
    let names = NAMES.iter().filter(|name| accounts::check(state, PROVIDER, Some(name)).is_ok());
    names.map(|name| (*name).to_owned()).collect()
}

/// See [`Accounts::roomiest`].
fn roomiest_but(state: &State, is_told: impl Fn(&Added) -> bool) -> Vec<String> {
    let usable = usable(state);
    let live = |name: &String| {
        let uses = |agent: &&std::sync::Arc<Agent>| is_played(agent) && agent.account_name() == *name;
        state.agents.live().filter(uses).count()
    };
    let is_open = |name: &&String| added(state, name).is_some_and(|added| !is_told(&added));
    let open: Vec<String> = usable.iter().filter(is_open).cloned().collect();
    let Some(fewest) = open.iter().map(live).min() else { return usable };
    open.into_iter().filter(|name| live(name) == fewest).collect()
}

impl Accounts {
    /// Those that `auto` may take: of the usable ones of which no limit was ever told those with the fewest
    /// agents, as all of their windows is left; where there are none, any.
    fn roomiest(&self, state: &State, now: Time) -> Vec<String> {
        // Each of the doubtful ones may be known, or not.
        let added: Vec<Added> = NAMES.iter().filter_map(|name| added(state, name)).collect();
        let doubtful: Vec<&Added> =
            added.iter().filter(|one| self.told.get(one).is_some_and(|until| *until <= now)).collect();
        let known = |set: usize, one: &Added| match doubtful.iter().position(|is| *is == one) {
            Some(at) => set >> at & 1 > 0,
            None => self.told.contains_key(one),
        };
        (0..1 << doubtful.len()).flat_map(|set| roomiest_but(state, |one| known(set, one))).collect()
    }

    /// A daemon starts: what the one before was told is written soon, and promised to nobody.
    pub fn doubts(&mut self) {
        self.told.values_mut().for_each(|until| *until = Time(0));
    }

    /// A program of this account prints something.
    pub fn printed(&mut self, state: &State, agent: &Agent, activity: &Activity) {
        if let Activity::Limit(limit) = activity
            && is_played(agent)
        {
            let until = Time(limit.resets_at_ms.unwrap_or_default());
            self.told.extend(added(state, agent.account_name()).map(|added| (added, until)));
        }
    }
}

impl Machine {
    fn dice_of_accounts(&self) -> Dice {
        Dice::seeded(self.core.seed() ^ SALT)
    }

    /// Somebody is to be started: mostly of the provider with accounts.
    pub fn plays_account(&mut self, actor: &Actor, body: &mut Value) {
        let mut dice = self.dice_of_accounts();
        if dice.below(3) == 0 {
            return;
        }
        // What was changed just now waits for the disk, and holds for whoever asks behind it.
        let is_changing = *actor == Actor::Operator && self.tends_accounts(&mut dice);
        self.serial += 1;
        let name = format!("of-account-{}", self.serial);
        (body["provider"], body["name"]) = (json!(PROVIDER), json!(name));
        let maker = actor.agent().and_then(|id| self.core.state.agents.get(id));
        let named = match maker {
            Some(maker) if is_played(maker) => Named::OfMaker(maker.lineage_id),
            Some(_) => Named::One(DEFAULT.to_owned()),
            None => {
                let wanted = dice.pick(&[DEFAULT, AUTO, AUTO, AUTO, "day", "night"]).unwrap();
                body["account"] = json!(wanted);
                let roomiest = self.accounts.roomiest(&self.core.state, self.core.now);
                match wanted {
                    AUTO if !roomiest.is_empty() && !is_changing => Named::OneOf(roomiest),
                    AUTO => {
                        Named::OneOf([DEFAULT].iter().chain(&NAMES).map(|name| (*name).to_owned()).collect())
                    }
                    wanted => Named::One(wanted.to_owned()),
                }
            }
        };
        match &named {
            Named::One(one) if self.plant == Plant::SwapsAccounts && one == "day" => {
                body["account"] = json!("night");
            }
            Named::OneOf(some) if self.plant == Plant::TakesAnyAccount => {
                let other = usable(&self.core.state).into_iter().find(|one| !some.contains(one));
                body["account"] = json!(other.as_deref().unwrap_or(AUTO));
            }
            _ => {}
        }
        self.accounts.named.insert(name, named);
    }

    /// A person adds those that are not there, with a key each, and disables or removes one now and then.
    /// Whether anything is to change.
    fn tends_accounts(&mut self, dice: &mut Dice) -> bool {
        let person = Actor::Operator;
        let mut is_changing = false;
        for name in NAMES.map(str::to_owned) {
            if self.core.state.accounts.get(&name).is_none() {
                let add = Command::Add { name: name.clone(), provider: PROVIDER.to_owned(), home: None };
                self.command(&person, Wish::Accounts(add), Claim::Change);
                is_changing = true;
            }
            if !self.core.state.credentials.has(&key_name(&name)) {
                let sealed = serde_json::from_str("\"00ff00ff\"").unwrap();
                let put = credentials::Command::Put { name: key_name(&name), sealed, masked: String::new() };
                self.command(&person, Wish::Credentials(put), Claim::Change);
                is_changing = true;
            }
        }
        let name = dice.pick(&NAMES).unwrap().to_owned();
        let is_off = self.core.state.accounts.get(&name).is_some_and(|account| account.is_off);
        if is_off || dice.below(5) == 0 {
            let change = accounts::Change { enabled: Some(is_off), ..accounts::Change::default() };
            self.command(&person, Wish::Accounts(Command::Change(name, change)), Claim::Change);
            is_changing = true;
        } else if dice.below(8) == 0 {
            self.command(&person, Wish::Accounts(Command::Remove(name)), Claim::Change);
            is_changing = true;
        }
        is_changing
    }

    /// A process is ordered: with the account that was named for its agent, and with no key of another.
    /// The account is settled when the wish is on disk, by the state `before` that where it starts at once.
    pub fn check_account(&mut self, agent: &Agent, start: &StartOrder, before: &State) {
        let (name, own) = (&agent.name, agent.account_name());
        let keys: Vec<&str> = start.secrets.iter().map(|secret| secret.name.as_str()).collect();
        let wanted = agent.account.as_deref().map(key_name);
        let is_own = |key: &&str| !key.starts_with("account/") || Some(*key) == wanted.as_deref();
        let said = || format!("{name} of account {own} gets the keys {keys:?}");
        ensure(Rule::OwnAccount, keys.iter().all(is_own), said);
        let by_then = self.accounts.roomiest(before, self.core.now);
        let Some(named) = self.accounts.named.get_mut(name) else { return };
        let state = &self.core.state;
        match named {
            Named::One(one) => {
                ensure(Rule::OwnAccount, one == own, || format!("{name} was to have {one}, and has {own}"));
            }
            Named::OneOf(some) => {
                let is_one = some.iter().chain(&by_then).any(|one| one == own);
                let said = || format!("{name} was to have the roomiest of {some:?}, and has {own}");
                ensure(Rule::RoomiestAccount, is_one, said);
                self.seen.count("accounts that were chosen for somebody");
                *named = Named::One(own.to_owned());
            }
            Named::OfMaker(maker) => {
                let makers = state.agents.by_lineage(*maker).map(|maker| maker.account_name().to_owned());
                let is_same = makers.as_deref().is_none_or(|one| one == own);
                let said = || format!("{name} was to have its maker's {makers:?}, and has {own}");
                ensure(Rule::OwnAccount, is_same, said);
                *named = Named::One(own.to_owned());
            }
        }
        if wanted.is_some() {
            self.seen.count("starts with an account");
        }
    }

    /// Whoever is held is so for its own account, and what a program tells moves nobody of another account.
    pub fn check_holds(&self, before: &State, by: Option<&Agent>) {
        let state = &self.core.state;
        for agent in state.agents.live().filter(|agent| agent.status == Status::Limited) {
            let Some(held) = &agent.held else { continue };
            let (name, own) = (&agent.name, agent.account_name());
            let is_own = held.account == own && held.provider == agent.provider;
            let said = || format!("{name} of {own} is held for {} of {}", held.account, held.provider);
            ensure(Rule::LimitOfAccount, is_own, said);
            let Some(by) = by.filter(|by| by.provider != agent.provider || by.account_name() != own) else {
                continue;
            };
            let was = before.agents.get(agent.id).and_then(|was| was.held.as_ref());
            let stays =
                was.is_some_and(|was| (was.resets_at, was.next_try) == (held.resets_at, held.next_try));
            let said = || format!("{} of another account moves {name} of {own}", by.name);
            ensure(Rule::LimitOfAccount, stays, said);
        }
    }
}
