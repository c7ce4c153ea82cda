//! What models cost: `data/prices.json`, read once.

pub use crate::providers::price::Price;
use crate::providers::windows;
use crate::settings::Config;
use serde::Deserialize;
use std::sync::OnceLock;

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
