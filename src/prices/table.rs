//! A table of prices, as `data/prices.json` is one and people give one.

use super::Price;
use crate::api::{FieldError, Problem, Validator};
use crate::core::time::Time;
use crate::providers::windows;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Models in a table; one with more is refused.
pub const MAX_MODELS: usize = 1_000;
/// Aliases in a table; one with more is refused.
pub const MAX_ALIASES: usize = 200;
/// Characters in which it says whose prices it has; with more it is refused.
pub const MAX_SOURCE_CHARS: usize = 2_000;
/// Characters of a model's name.
const MAX_NAME_CHARS: usize = 200;
/// Dollars per million tokens; more is taken for a mistake in the unit.
const MAX_USD: f64 = 10_000.0;
/// Faults that are told of one table.
const MAX_FAULTS: usize = 20;
/// The unit of every price.
pub const UNIT: &str = "US dollars per million tokens";
/// How far the day of a table may lie ahead of the clock: days begin earlier elsewhere.
const AHEAD_MS: u64 = 86_400_000;

/// The prices of one model.
const PRICES: [&str; 4] = ["input", "output", "cacheRead", "cacheCreation"];
/// What a table has; what stands behind `models` is told by `GET /api/prices` and may come back with it.
const MEMBERS: [&str; 11] = [
    "asOf",
    "source",
    "unit",
    "aliases",
    "models",
    "ageDays",
    "isOld",
    "isGiven",
    "givenAt",
    "builtInAsOf",
    "isOlderThanBuiltIn",
];
/// The same of a model.
const OF_MODEL: [&str; 7] = ["id", "input", "output", "cacheRead", "cacheCreation", "from", "asOf"];

/// Prices with their day and where they come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// The day to which the prices were checked, like 2026-11-22.
    pub as_of: String,
    /// Whose prices they are, and what they leave out.
    pub source: String,
    /// Names that programs take for a model, with that model's plain name.
    pub aliases: BTreeMap<String, String>,
    /// By plain name, see [`windows::plain_name`].
    pub models: BTreeMap<String, Price>,
}

/// The built-in table.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let built_in = serde_json::from_slice(include_bytes!("../../data/prices.json"))
            .ok()
            .and_then(|value: Map<String, Value>| Table::read(&value, None).ok());
        built_in.expect("data/prices.json is part of the program, and a test reads it")
    })
}

/// The beginning of a day like 2026-11-22.
pub(super) fn day(text: &str) -> Option<Time> {
    (text.len() == 10).then(|| Time::parse(&format!("{text}T00:00:00Z"))).flatten()
}

impl Table {
    /// The price of a model by its plain name, or by an alias of this table.
    pub fn of(&self, name: &str) -> Option<Price> {
        self.models.get(name).or_else(|| self.models.get(self.aliases.get(name)?)).copied()
    }

    /// Reads a table in the form of `data/prices.json`. `now` is the clock that its day is compared with.
    ///
    /// Errors: 400 with the first [`MAX_FAULTS`] faults, each with its field, the rule and the remedy.
    pub fn read(map: &Map<String, Value>, now: Option<Time>) -> Result<Self, Problem> {
        let mut faults = Validator::default();
        let text = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        for other in map.keys().filter(|key| !MEMBERS.contains(&key.as_str())) {
            faults.fail(
                other,
                format!("{other} is no member of a table of prices; it has {}", MEMBERS[..5].join(", ")),
            );
        }
        let (as_of, source) = (text("asOf"), text("source"));
        let begins = day(&as_of);
        faults.check(begins.is_some(), "asOf", || {
            format!("asOf must be the day to which the prices were checked, like 2026-11-22, it is {as_of:?}")
        });
        let is_ahead = begins.zip(now).is_some_and(|(day, now)| day.0 > now.0 + AHEAD_MS);
        faults.check(!is_ahead, "asOf", || {
            format!("asOf must not lie in the future, it is {as_of}; correct the year")
        });
        faults.check((1..=MAX_SOURCE_CHARS).contains(&source.chars().count()), "source", || {
            format!("source must say in 1 to {MAX_SOURCE_CHARS} characters whose prices they are")
        });
        let unit = map.get("unit").is_none_or(|unit| unit == UNIT);
        faults.check(unit, "unit", || format!("unit must be {UNIT:?}; convert the prices, or leave it out"));
        let models = models(map.get("models"), &mut faults);
        let aliases = aliases(map.get("aliases"), &models, now.is_none(), &mut faults);
        if let Err(problem) = faults.finish() {
            let mut errors = problem.errors;
            let more = errors.len().saturating_sub(MAX_FAULTS);
            errors.truncate(MAX_FAULTS);
            if more > 0 {
                let message = format!("models has {more} more faults; correct these first");
                errors.push(FieldError { field: "models".to_owned(), message });
            }
            return Err(Problem::validation(errors));
        }
        Ok(Self { as_of, source, aliases, models })
    }
}

fn models(value: Option<&Value>, faults: &mut Validator) -> BTreeMap<String, Price> {
    let mut models = BTreeMap::new();
    let rows = value.and_then(Value::as_array).filter(|rows| (1..=MAX_MODELS).contains(&rows.len()));
    let Some(rows) = rows else {
        faults.fail(
            "models",
            format!("models must list 1 to {MAX_MODELS} models, each with id and {}", PRICES.join(", ")),
        );
        return models;
    };
    for (at, row) in rows.iter().enumerate() {
        let field = format!("models[{at}]");
        let id = row["id"].as_str().unwrap_or_default();
        let name = windows::plain_name(id);
        if name.is_empty() || id.chars().count() > MAX_NAME_CHARS {
            let field = format!("{field}.id");
            let message =
                format!("{field} must name a model in 1 to {MAX_NAME_CHARS} characters, it is {}", row["id"]);
            faults.fail(&field, message);
            continue;
        }
        let members = row.as_object().into_iter().flat_map(Map::keys);
        for other in members.filter(|key| !OF_MODEL.contains(&key.as_str())) {
            let field = format!("{field}.{other}");
            faults.fail(
                &field,
                format!("{field} is no member of a price ({id}); there are {}", OF_MODEL[..5].join(", ")),
            );
        }
        let mut price = |name: &str| {
            let usd = row[name].as_f64().filter(|usd| (0.0..=MAX_USD).contains(usd));
            let field = format!("{field}.{name}");
            faults.check(usd.is_some(), &field, || {
                format!("{field} ({id}) must be 0 to {MAX_USD} {UNIT}, it is {}", row[name])
            });
            usd.unwrap_or_default()
        };
        let [input, output, cache_read, cache_creation] = PRICES.map(&mut price);
        if models.insert(name.clone(), Price { input, output, cache_read, cache_creation }).is_some() {
            let field = format!("{field}.id");
            faults
                .fail(&field, format!("{field} names {name} a second time ({id}); leave one of the two out"));
        }
    }
    models
}

/// `alone` when there is no other table in which the models of aliases may stand.
fn aliases(
    value: Option<&Value>,
    models: &BTreeMap<String, Price>,
    alone: bool,
    faults: &mut Validator,
) -> BTreeMap<String, String> {
    let Some(value) = value else { return BTreeMap::new() };
    let Some(map) = value.as_object().filter(|map| map.len() <= MAX_ALIASES) else {
        faults
            .fail("aliases", format!("aliases must map at most {MAX_ALIASES} names to models of the table"));
        return BTreeMap::new();
    };
    let mut aliases = BTreeMap::new();
    for (alias, model) in map {
        let name = windows::plain_name(model.as_str().unwrap_or_default());
        let is_known = models.contains_key(&name) || (!alone && table().models.contains_key(&name));
        faults.check(is_known, &format!("aliases.{alias}"), || {
            format!("aliases.{alias} must name a model that has a price, it is {model}; add it to models")
        });
        faults.check(alias.chars().count() <= MAX_NAME_CHARS, "aliases", || {
            format!("aliases must have at most {MAX_NAME_CHARS} characters each; shorten the name")
        });
        aliases.insert(windows::plain_name(alias), name);
    }
    aliases
}
