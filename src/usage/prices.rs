//! What models cost: `data/prices.json`, read once.

use crate::providers::{Tokens, windows};
use crate::settings::Config;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The prices of one model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// Fresh input.
    pub input: f64,
    /// Output, reasoning included.
    pub output: f64,
    /// Input read from the cache.
    pub cache_read: f64,
    /// Input written to the cache.
    pub cache_creation: f64,
}

/// The price table and where it comes from.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Table {
    /// The day to which the prices were checked.
    pub as_of: String,
    /// Whose prices they are, and what they leave out.
    pub source: String,
    models: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    id: String,
    #[serde(flatten)]
    price: Price,
}

impl Price {
    /// What a scripted agent costs, which asks no model.
    pub const NONE: Self = Self { input: 0.0, output: 0.0, cache_read: 0.0, cache_creation: 0.0 };

    /// What `tokens` cost, in US dollars.
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn of(self, tokens: Tokens) -> f64 {
        let dollars = |count: u64, price: f64| count as f64 * price / 1_000_000.0;
        dollars(tokens.input, self.input)
            + dollars(tokens.output, self.output)
            + dollars(tokens.cache_read, self.cache_read)
            + dollars(tokens.cache_creation, self.cache_creation)
    }

    /// One figure to compare models by: a million tokens of input and of output.
    pub fn weight(self) -> f64 {
        self.input + self.output
    }
}

/// The table.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        serde_json::from_str(include_str!("../../data/prices.json"))
            .expect("data/prices.json is part of the program, and a test reads it")
    })
}

/// The price of a model under any of its spellings (see [`windows::plain_name`]). `None` when it is not in
/// the table: another model's price is never taken for it.
pub fn of_model(model: &str) -> Option<Price> {
    let name = windows::plain_name(model);
    table().models.iter().find(|entry| entry.id == name).map(|entry| entry.price)
}

/// The price of a model: a person's own setting before the table.
pub fn for_model(config: &Config, model: &str) -> Option<Price> {
    let own = config.model(model).and_then(|own| own.price);
    own.or_else(|| of_model(model))
}

/// Dollars as they are shown: a millionth is the smallest part.
pub fn rounded(dollars: f64) -> f64 {
    (dollars * 1_000_000.0).round() / 1_000_000.0
}
