//! What models cost: `data/prices.json`, read once, and what people put before it.
//!
//! A price is looked up in the setting `models`, then in the table that a person has given (`svc prices
//! update FILE`), then in the built-in one. Each of these is dated; another model's price is never taken.
//!
//! **Invariant:** a table is in force only as a whole, and only when all of it was understood.

pub mod api;
mod table;
#[cfg(test)]
mod tests;

pub use crate::providers::price::Price;
pub use table::{MAX_ALIASES, MAX_MODELS, MAX_SOURCE_CHARS, Table, table};

use crate::api::Reply;
use crate::core::time::Time;
use crate::core::{CallId, Context, Document, Durability, Effect, State as All};
use crate::providers::windows;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// From this age on it is said that a table is old.
const OLD_DAYS: u64 = 90;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// The version this code writes.
pub const STORED_VERSION: u32 = 1;

/// The table that stands before the built-in one.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct State {
    given: Option<Arc<Given>>,
}

/// A table that a person has given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
pub struct Given {
    pub table: Table,
    /// When.
    pub at: Time,
}

/// `.svc/state/prices.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    pub version: u32,
    given: Option<Given>,
}

impl State {
    /// What is written to disk.
    pub fn stored(&self) -> Stored {
        Stored { version: STORED_VERSION, given: self.given.as_deref().cloned() }
    }

    /// What an earlier daemon has left.
    pub fn restore(stored: Stored) -> Self {
        Self { given: stored.given.map(Arc::new) }
    }

    fn given(&self) -> Option<&Table> {
        self.given.as_ref().map(|given| &given.table)
    }

    /// The table that is looked at first: its day and its source.
    pub fn in_force(&self) -> &Table {
        self.given().unwrap_or_else(|| table())
    }
}

/// A wish about prices.
#[derive(Debug, Clone, svc_base::recorded::Recorded)]
pub enum Command {
    /// Use these from now on.
    Update(Table),
    /// Use the built-in ones alone.
    Reset,
}

/// Handles a command.
pub fn command(all: &mut All, cx: &mut Context, call: CallId, command: Command) {
    let before = all.prices.in_force().as_of.clone();
    let given = match command {
        Command::Update(table) => {
            let (as_of, models) = (&table.as_of, table.models.len());
            let told = json!({"asOf": as_of, "source": table.source, "models": models, "before": before});
            cx.audit("prices.update", &told);
            Some(Arc::new(Given { table, at: cx.now }))
        }
        Command::Reset => {
            cx.audit("prices.reset", &json!({"before": before, "asOf": table().as_of}));
            None
        }
    };
    all.prices = Arc::new(State { given });
    cx.push(Effect::Put(Document::Prices, Durability::BeforeReply));
    cx.reply(call, Reply::ok(&shown(all, cx.now)));
}

/// The built-in price of a model under any of its spellings (see [`windows::plain_name`]). `None` when it is
/// not in the table: another model's price is never taken for it.
pub fn of_model(model: &str) -> Option<Price> {
    table().of(&windows::plain_name(model))
}

/// The price of a model under any of its spellings: a person's own setting, then the table that a person has
/// given, then the built-in one.
pub fn for_model(all: &All, model: &str) -> Option<Price> {
    found(all, model).map(|(price, _, _)| price)
}

/// The same, with where it comes from (`setting`, `given`, `built-in`), and of which day that is.
fn found<'a>(all: &'a All, model: &str) -> Option<(Price, &'static str, Option<&'a str>)> {
    let own = |name: &str| {
        let price = all.settings.config().model(name).and_then(|own| own.price)?;
        Some((price, "setting", None))
    };
    let given = || all.prices.given().map(|table| ("given", table));
    let tables = || given().into_iter().chain([("built-in", table())]);
    let known = |name: &str| {
        let of = |(from, table): (_, &'a Table)| Some((*table.models.get(name)?, from, Some(&*table.as_of)));
        tables().find_map(of)
    };
    own(model).or_else(|| {
        let name = windows::plain_name(model);
        known(&name).or_else(|| {
            let meant = tables().find_map(|(_, table)| table.aliases.get(&name))?;
            own(meant).or_else(|| known(meant))
        })
    })
}

/// The price of a model as it is shown; `null` where nobody knows one.
pub fn shown_of(all: &All, model: &str) -> Value {
    found(all, model).map_or(Value::Null, |(price, from, as_of)| {
        let mut shown = json!(price);
        shown["from"] = json!(from);
        shown["asOf"] = json!(as_of);
        shown
    })
}

/// In each kind the highest price that anybody knows: what a token costs at most of whose model no price is
/// known.
pub fn dearest(all: &All) -> Price {
    let given = all.prices.given().into_iter().flat_map(|table| table.models.values());
    let own = all.settings.config().models.values().filter_map(|own| own.as_ref()?.price.as_ref());
    given.chain(own).fold(dearest_built_in(), |dearest, price| dearest.max(*price))
}

/// The same of the built-in table alone.
pub fn dearest_built_in() -> Price {
    static DEAREST: OnceLock<Price> = OnceLock::new();
    *DEAREST.get_or_init(|| table().models.values().copied().fold(Price::NONE, Price::max))
}

/// `GET /api/prices`: every price in force, where it comes from, and how old that is.
pub fn shown(all: &All, now: Time) -> Value {
    let (state, config) = (&all.prices, all.settings.config());
    let mut prices: BTreeMap<&str, (Price, &str, Option<&str>)> = BTreeMap::new();
    let mut aliases: BTreeMap<&str, &str> = BTreeMap::new();
    for (from, table) in [("built-in", Some(table())), ("given", state.given())] {
        let Some(table) = table else { continue };
        let priced = table.models.iter().map(|(id, price)| (&**id, (*price, from, Some(&*table.as_of))));
        prices.extend(priced);
        aliases.extend(table.aliases.iter().map(|(name, id)| (&**name, &**id)));
    }
    let own =
        config.models.iter().filter_map(|(id, own)| Some((&**id, (own.as_ref()?.price?, "setting", None))));
    prices.extend(own);
    let (table, built_in) = (state.in_force(), table());
    let age = table::day(&table.as_of).map(|day| now.0.saturating_sub(day.0) / DAY_MS);
    let rows = prices.into_iter().map(|(id, (price, from, as_of))| {
        json!({
            "id": id, "input": price.input, "output": price.output, "cacheRead": price.cache_read,
            "cacheCreation": price.cache_creation, "from": from, "asOf": as_of,
        })
    });
    json!({
        "asOf": table.as_of,
        "source": table.source,
        "unit": table::UNIT,
        "ageDays": age,
        "isOld": age.is_none_or(|age| age >= OLD_DAYS),
        "isGiven": state.given.is_some(),
        "givenAt": state.given.as_ref().map(|given| given.at.to_string()),
        "builtInAsOf": built_in.as_of,
        "isOlderThanBuiltIn": table.as_of < built_in.as_of,
        "aliases": aliases,
        "models": rows.collect::<Vec<_>>(),
    })
}

/// Dollars as they are shown: a millionth is the smallest part.
pub fn rounded(dollars: f64) -> f64 {
    (dollars * 1_000_000.0).round() / 1_000_000.0
}

/// Dollars as they are shown, `None` where nobody knows what any of it cost.
pub fn known(dollars: f64, unpriced_tokens: u64) -> Option<f64> {
    (unpriced_tokens == 0 || dollars > 0.0).then(|| rounded(dollars))
}
