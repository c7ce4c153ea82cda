//! What a model costs: a price, as the table and people's settings give it.

use crate::Tokens;
use serde::{Deserialize, Serialize};

/// The prices of one model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, svc_base::recorded::Recorded)]
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

    /// What so many tokens of output cost, in US dollars.
    #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    pub fn of_output(self, tokens: u64) -> f64 {
        tokens as f64 * self.output / 1_000_000.0
    }

    /// In each kind the dearer of two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_creation: self.cache_creation.max(other.cache_creation),
        }
    }

    /// One figure to compare models by: a million tokens of input and of output.
    pub fn weight(self) -> f64 {
        self.input + self.output
    }
}
