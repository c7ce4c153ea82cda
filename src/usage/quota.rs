//! The windows of the providers: what is used of each, when it opens, how fast it goes, and how many of the
//! running agents fit into what is left. What a provider told is measured; what follows from it is a guess,
//! and both say so.
//!
//! They outlive a restart with the ledger, and say how old they are: what nobody told anew for [`MAX_AGE`] is
//! forgotten.

use super::State;
use crate::accounts::DEFAULT;
use crate::agents::limit::{policy, window_told};
use crate::core::time::Time;
use crate::core::{Context, Document, Durability, Effect, State as All};
use crate::fleet;
use crate::providers::limit::{Kind, Limit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use svc_base::bounded;
use svc_base::sorted::Gather;

/// Windows that are known at once, of all providers; the one that was heard of longest ago goes first.
pub const MAX_WINDOWS: usize = 64;
/// A window of which nothing was told for so long is forgotten: the longest that are sold last a month, those
/// that tell figures a week.
pub const MAX_AGE: Duration = Duration::from_secs(8 * 86_400);
/// A pace is told from figures that lie at least so far apart.
pub const MEASURED_OVER: Duration = Duration::from_secs(120);
/// A window whose reset is told this much later is another one.
const ANOTHER: Duration = Duration::from_secs(600);
/// Milliseconds of an hour.
const HOUR_MS: f64 = 3_600_000.0;

/// All windows, by provider, account and the provider's word.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Windows(BTreeMap<(String, String, String), Window>);

#[derive(Debug, Clone, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
struct Window {
    used_percent: Option<f64>,
    resets_at: Option<Time>,
    closed: bool,
    heard_at: Time,
    /// The first figure of this window, and when it was told.
    first: Option<(Time, f64)>,
}

/// A window as it stands on disk.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stored(String, String, Window, #[serde(default = "usual")] String);

/// Before there were accounts there was this one.
fn usual() -> String {
    DEFAULT.to_owned()
}

impl Windows {
    /// What is to be written.
    pub fn stored(&self) -> Vec<Stored> {
        let all = self.0.iter();
        let stored = all.map(|((provider, account, name), window)| {
            Stored(provider.clone(), name.clone(), window.clone(), account.clone())
        });
        stored.collect()
    }

    /// After a start: what is too old is left out, and what was heard in the future, for the clock was set
    /// back, was heard now.
    pub fn restore(stored: Vec<Stored>, now: Time) -> Self {
        let known =
            stored.into_iter().take(MAX_WINDOWS).filter(|Stored(_, _, window, _)| !window.is_old(now));
        let taken = known.map(|Stored(provider, name, mut window, account)| {
            window.heard_at = window.heard_at.min(now);
            window.first = window.first.filter(|(since, _)| *since <= now);
            ((provider, account, name), window)
        });
        Self(taken.gather())
    }

    /// Takes in what a provider told.
    pub fn heard(&mut self, now: Time, provider: &str, account: &str, limit: &Limit) {
        if limit.kind != Kind::Window || (limit.window.is_empty() && limit.used_percent.is_none()) {
            return;
        }
        let key = (provider.to_owned(), account.to_owned(), limit.window.clone());
        bounded::make_room(&mut self.0, &key, MAX_WINDOWS, |window| window.heard_at);
        let told = limit
            .resets_at_ms
            .map(Time)
            .or_else(|| limit.resets_in_ms.map(|delay| Time(now.0.saturating_add(delay))));
        let fresh =
            || Window { used_percent: None, resets_at: None, closed: false, heard_at: now, first: None };
        let window = self.0.entry(key).or_insert_with(fresh);
        let is_another = match (window.resets_at, told) {
            (Some(known), Some(told)) => told.since(known) > ANOTHER,
            (Some(known), None) => known <= now,
            (None, _) => false,
        };
        let fell = window.used_percent.zip(limit.used_percent).is_some_and(|(was, is)| is + 1.0 < was);
        if is_another || fell {
            *window = fresh();
        }
        window.heard_at = now;
        window.closed = limit.closed;
        window.resets_at = told.or(window.resets_at);
        if let Some(used) =
            limit.used_percent.filter(|used| used.is_finite()).map(|used| used.clamp(0.0, 100.0))
        {
            window.first.get_or_insert((now, used));
            window.used_percent = Some(used);
        }
    }
}

impl Window {
    /// Percent that are left, where its provider told that of the time that lasts. One that is closed until a
    /// known moment has none left.
    fn left(&self, now: Time) -> Option<f64> {
        let is_over = self.resets_at.is_some_and(|at| at <= now) || self.is_old(now);
        let is_shut = self.closed && self.resets_at.is_some();
        let used = self.used_percent.or(is_shut.then_some(100.0)).filter(|_| !is_over)?;
        Some(if is_shut { 0.0 } else { 100.0 - used })
    }

    fn is_old(&self, now: Time) -> bool {
        now.since(self.heard_at) > MAX_AGE
    }

    /// Percent an hour, where two figures lie far enough apart.
    #[allow(clippy::cast_precision_loss, reason = "a pace for people; milliseconds are far below 2^52")]
    fn pace(&self) -> Option<f64> {
        let ((since, before), used) = (self.first?, self.used_percent?);
        let time = self.heard_at.since(since);
        (time >= MEASURED_OVER).then(|| (used - before) * HOUR_MS / time.as_millis() as f64)
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded before: figures from 0 to 100, and hours of one window"
    )]
    fn shown(&self, now: Time, (provider, account, name): (&str, &str, &str), running: usize) -> Value {
        // A window whose time has come is open again, whatever was told before.
        let is_over = self.resets_at.is_some_and(|at| at <= now);
        let used = self.used_percent.filter(|_| !is_over);
        let left = used.map(|used| 100.0 - used);
        let pace = self.pace().filter(|pace| *pace > 0.0 && !is_over);
        let full_at =
            left.zip(pace).map(|(left, pace)| Time(now.0 + (left / pace * HOUR_MS).min(1e12) as u64));
        let hours = self.resets_at.filter(|_| !is_over).map(|at| at.since(now).as_millis() as f64 / HOUR_MS);
        // Each of those that run now goes on as all of them did so far.
        let fit = left.zip(pace).zip(hours).map(|((left, pace), hours)| {
            let each = pace / running.max(1) as f64 * hours;
            if each <= 0.0 { running } else { ((left / each) as usize).min(running) }
        });
        json!({
            "provider": provider,
            "account": account,
            "window": name,
            "closed": self.closed && !is_over,
            "usedPercent": used.map(rounded),
            "leftPercent": left.map(rounded),
            "opensAt": self.resets_at.filter(|_| !is_over).map(|at| at.to_string()),
            "heardAt": self.heard_at.to_string(),
            "percentPerHour": pace.map(rounded),
            "guessed": {
                "fullAt": full_at.map(|at| at.to_string()),
                "agents": running,
                "fit": fit.filter(|_| running > 0),
            },
        })
    }
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// A provider told something of its windows.
pub fn heard(state: &mut State, cx: &mut Context, provider: &str, account: &str, limit: &Limit) {
    Arc::make_mut(&mut state.windows).heard(cx.now, provider, account, limit);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// What the providers told here, for other projects: `login` is the name of the account.
pub fn told(all: &All) -> impl Iterator<Item = fleet::Window> {
    all.usage.windows.0.iter().map(|((provider, account, name), window)| fleet::Window {
        provider: provider.clone(),
        login: account.clone(),
        name: name.clone(),
        used_percent: window.used_percent,
        resets_at: window.resets_at.map(|at| at.0),
        closed: window.closed,
        heard_at: window.heard_at.0,
    })
}

/// Takes in what the providers told in other projects that use the same login, where it is newer than what
/// was told here.
pub fn others_told(all: &mut All, cx: &mut Context) {
    let told = all.fleet.others().projects.iter().filter_map(|project| project.told.as_ref());
    let windows: Vec<fleet::Window> = told.flat_map(|told| told.windows.iter().cloned()).collect();
    for window in windows {
        // A clock that is ahead elsewhere tells nothing of the future.
        let at = Time(window.heard_at).min(cx.now);
        let key = (window.provider.clone(), window.login.clone(), window.name.clone());
        let is_known = all.usage.windows.0.get(&key).is_some_and(|known| known.heard_at >= at);
        if is_known || cx.now.since(at) > MAX_AGE {
            continue;
        }
        let limit = Limit {
            closed: window.closed,
            ..Limit::window(&window.name, window.used_percent, window.resets_at)
        };
        let usage = Arc::make_mut(&mut all.usage);
        Arc::make_mut(&mut usage.windows).heard(at, &window.provider, &window.login, &limit);
        cx.push(Effect::Put(Document::Usage, Durability::Soon));
        window_told(all, cx, &window.provider, &window.login, &limit);
    }
}

/// An account is gone, and its windows with it: one that gets its name later has its own.
pub fn forget(state: &mut State, cx: &mut Context, provider: &str, account: &str) {
    Arc::make_mut(&mut state.windows).0.retain(|(whose, of, _), _| whose != provider || of != account);
    cx.push(Effect::Put(Document::Usage, Durability::Soon));
}

/// A window of which no more is left than a person keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Scarce {
    pub window: String,
    /// Percent.
    pub left: f64,
    /// Percent that are kept.
    pub keeps: u8,
    /// When it opens, where that was told.
    pub opens: Option<Time>,
}

/// The windows of an account with a provider.
fn windows_of<'a>(
    all: &'a All,
    provider: &'a str,
    account: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Window)> {
    let of_it =
        all.usage.windows.0.iter().filter(move |((whose, of, _), _)| whose == provider && of == account);
    of_it.map(|((_, _, name), window)| (name.as_str(), window))
}

/// Thousandths that are left of the fullest window of an account, as its provider told; all of them where no
/// figure is known.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded: figures from 0 to 100")]
pub fn room(all: &All, now: Time, provider: &str, account: &str) -> u32 {
    let left = windows_of(all, provider, account).filter_map(|(_, window)| window.left(now));
    (left.fold(100.0, f64::min) * 10.0) as u32
}

/// The window of an account of which no more is left than `limits.reserve`, as the provider told; of several
/// the one that opens last. `None` where nothing is kept, and where no figure is known.
pub fn scarce(all: &All, now: Time, provider: &str, account: &str) -> Option<Scarce> {
    let keeps = all.settings.config().limits.reserve?;
    let found = windows_of(all, provider, account).filter_map(|(name, window)| {
        let left = window.left(now).filter(|left| *left <= f64::from(keeps))?;
        Some(Scarce { window: name.to_owned(), left: rounded(left), keeps, opens: window.resets_at })
    });
    // Nobody knows when: that is later than any.
    found.max_by_key(|scarce| scarce.opens.map_or(u64::MAX, |at| at.0))
}

/// What is kept of the windows, and of which providers that run agents no figure is known: `null` where
/// nothing is.
fn reserve(all: &All, now: Time) -> Value {
    let Some(keeps) = all.settings.config().limits.reserve else { return Value::Null };
    let tells = |provider: &str, account: &str| {
        windows_of(all, provider, account).any(|(_, window)| window.left(now).is_some())
    };
    let running = all.agents.live().map(|agent| (agent.provider.as_str(), agent.account_name()));
    let silent = running.filter(|(provider, account)| !tells(provider, account));
    let silent: BTreeSet<String> = silent.map(|(provider, account)| with_account(provider, account)).gather();
    json!({"percent": keeps, "withoutFigure": silent})
}

/// A provider, with its account where that is not the usual one.
fn with_account(provider: &str, account: &str) -> String {
    if account == DEFAULT { provider.to_owned() } else { format!("{provider} ({account})") }
}

/// `GET /api/quota`.
pub fn shown(all: &All, now: Time) -> Value {
    let running = |provider: &str, account: &str| {
        let runs = all.agents.live().filter(|agent| !agent.has_no_run());
        runs.filter(|agent| agent.provider == provider && agent.account_name() == account).count()
    };
    let is_there = |provider: &str, account: &str| {
        account == DEFAULT || all.accounts.get(account).is_some_and(|known| known.provider == provider)
    };
    let windows: Vec<Value> = all
        .usage
        .windows
        .0
        .iter()
        .filter(|((provider, account, _), window)| !window.is_old(now) && is_there(provider, account))
        .map(|((provider, account, name), window)| {
            window.shown(now, (provider, account, name), running(provider, account))
        })
        .collect();
    let held: Vec<Value> = all
        .agents
        .live()
        .filter_map(|agent| {
            let mut held = agent.held.as_ref()?.shown();
            held["agentId"] = json!(agent.id);
            held["name"] = json!(agent.name);
            held["onLimit"] = json!(policy(all, agent).0);
            Some(held)
        })
        .collect();
    json!({
        "windows": windows,
        "held": held,
        "onLimit": all.settings.config().on_limit,
        "reserve": reserve(all, now),
        "basis": {
            "measured": "usedPercent, leftPercent, opensAt, closed: as the provider told at heardAt; \
                         percentPerHour: between the first and the last figure of this window",
            "guessed": "fullAt, fit: if the running agents go on at that pace",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Activity;
    use crate::testing::Bench;

    const MINUTE: Duration = Duration::from_secs(60);

    fn told(used: f64, resets: Time) -> Activity {
        Activity::Limit(Limit::window("five_hour", Some(used), Some(resets.0)))
    }

    fn quota(bench: &mut Bench) -> Value {
        bench.ask("GET", "/api/quota", &Value::Null).1
    }

    #[test]
    fn a_window_is_seen_before_it_closes_and_what_is_guessed_says_so() {
        let mut bench = Bench::new();
        assert_eq!(quota(&mut bench)["windows"], json!([]));
        let ids: Vec<_> = (0..4).map(|n| bench.agent(&format!("dev-{n}"))).collect();
        let resets = bench.now + 130 * MINUTE;
        bench.does(ids[0], vec![told(20.0, resets)]);
        let first = quota(&mut bench)["windows"][0].clone();
        assert_eq!(first["opensAt"], json!(resets.to_string()));
        assert_eq!((&first["usedPercent"], &first["leftPercent"]), (&json!(20.0), &json!(80.0)));
        assert_eq!((&first["percentPerHour"], &first["guessed"]["fit"]), (&Value::Null, &Value::Null));
        bench.pass(10 * MINUTE);
        bench.does(ids[1], vec![told(30.0, resets)]);
        let then = quota(&mut bench)["windows"][0].clone();
        // 10 % in 10 minutes by four agents: 70 % are left for two hours, of which each takes 30 %.
        assert_eq!(then["percentPerHour"], json!(60.0));
        assert_eq!((&then["guessed"]["agents"], &then["guessed"]["fit"]), (&json!(4), &json!(2)), "{then:#}");
        let full = (bench.now + 70 * MINUTE).to_string();
        assert_eq!(then["guessed"]["fullAt"], json!(full));
        bench.pass(120 * MINUTE);
        let open = quota(&mut bench)["windows"][0].clone();
        assert_eq!(
            (&open["closed"], &open["usedPercent"]),
            (&json!(false), &Value::Null),
            "it is open again"
        );
        bench.does(ids[0], vec![told(1.0, resets + 300 * MINUTE)]);
        assert_eq!(quota(&mut bench)["windows"][0]["percentPerHour"], Value::Null, "another window");
    }

    #[test]
    fn an_account_that_gets_the_name_of_one_that_is_gone_has_windows_of_its_own() {
        let mut bench = Bench::with_programs();
        assert_eq!(bench.account("work", "codex", Some("/srv/work")).0, 201);
        let body = json!({"role": "dev", "name": "dev", "provider": "codex", "account": "work"});
        assert_eq!(bench.ask("POST", "/api/agents", &body).0, 201);
        let id = bench.state.agents.find("dev").unwrap().id;
        let resets = bench.now + 130 * MINUTE;
        bench.does(id, vec![told(95.0, resets)]);
        bench.exits(id, 0);
        assert_eq!(room(&bench.state, bench.now, "codex", "work"), 50);
        assert_eq!(bench.ask("DELETE", "/api/accounts/work", &Value::Null).0, 200);
        assert_eq!(bench.account("work", "codex", Some("/srv/other")).0, 201);
        assert_eq!(room(&bench.state, bench.now, "codex", "work"), 1000);
        assert_eq!(quota(&mut bench)["windows"], json!([]));
    }

    /// A restart keeps what was told, with its age; what nobody has told for long is no figure.
    #[test]
    fn windows_outlive_a_restart_and_grow_old() {
        let mut bench = Bench::new();
        let id = bench.agent("dev");
        let resets = bench.now + 300 * MINUTE;
        bench.does(id, vec![told(20.0, resets)]);
        bench.does(id, vec![Activity::Limit(Limit::window("month", Some(40.0), None))]);
        let heard = bench.now;
        bench.pass(10 * MINUTE);
        let before = quota(&mut bench)["windows"].clone();
        let restart = |bench: &mut Bench, at: Time| {
            let stored = serde_json::to_vec(&bench.state.usage.stored()).unwrap();
            bench.with(|all, _| crate::usage::restore(all, serde_json::from_slice(&stored).unwrap(), at));
        };
        let now = bench.now;
        restart(&mut bench, now);
        let after = quota(&mut bench)["windows"].clone();
        assert_eq!((&after, &after[0]["heardAt"]), (&before, &json!(heard.to_string())));
        bench.now = bench.now + MAX_AGE;
        assert_eq!(quota(&mut bench)["windows"], json!([]), "too old");
        // The clock is set back by a year: what was heard then was heard now.
        bench.now = Time(heard.0 - 365 * 86_400_000);
        let now = bench.now;
        restart(&mut bench, now);
        assert_eq!(quota(&mut bench)["windows"][0]["heardAt"], json!(now.to_string()));
    }

    #[test]
    fn limits_windows_are_bounded_and_nonsense_is_no_figure() {
        let mut windows = Windows::default();
        for n in 0..2 * MAX_WINDOWS {
            let limit = Limit::window(&format!("w{n}"), Some(f64::NAN), None);
            windows.heard(Time(1_000_000 + n as u64), "codex", DEFAULT, &limit);
        }
        assert_eq!(windows.0.len(), MAX_WINDOWS);
        assert!(windows.0.values().all(|window| window.used_percent.is_none()));
        assert!(windows.0.contains_key(&("codex".into(), usual(), format!("w{}", 2 * MAX_WINDOWS - 1))));
    }
}
