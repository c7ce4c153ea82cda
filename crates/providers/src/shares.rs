//! What each model of a session has used, where its program tells that: a smaller one is asked for titles and
//! summaries, and sub-agents run models of their own.
//!
//! **Invariant:** the parts and the rest add up to the whole that was to be parted, whatever was told.

use crate::wire::{CostMeter, Meter};
use crate::{Tokens, TokensDelta, Usage, windows};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Models of one session that are told apart; what further ones use counts with the main one.
pub const MODELS_MAX: usize = 32;

/// What is known of the models of a session, by their plain names.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    of: BTreeMap<String, Share>,
    /// The model of the session itself.
    main: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    /// As it was told first.
    name: String,
    meter: Meter,
    cost: CostMeter,
}

/// What a program tells of one model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figure {
    /// In any spelling.
    pub name: String,
    /// All that this session has used.
    pub total: Tokens,
    /// What that has cost, in dollars.
    pub total_usd: Option<f64>,
    /// Of it what came since the last such figures.
    pub turn: Option<(Tokens, Option<f64>)>,
}

impl Shares {
    /// Notes what was counted ahead of the program's own figures. Whether there is room for that model.
    pub fn provisional(&mut self, model: &str, tokens: Tokens) -> bool {
        let known = self.share(model).map(|share| share.meter.provisional(tokens));
        known.is_some()
    }

    /// Takes out of `whole` what other models than `main` have used, each as a usage of its own. With
    /// `is_first` of a continued session only what the figures say came since counts.
    pub fn part(&mut self, main: &str, figures: &[Figure], is_first: bool, whole: &mut Usage) -> Vec<Usage> {
        let figures = joined(figures);
        let own = windows::plain_name(main);
        self.choose(&own, &figures);
        let mut parts = Vec::new();
        for (plain, figure) in &figures {
            let Some(share) = self.share(&figure.name) else { continue };
            let (delta, cost_usd) = share.take(figure, is_first);
            if *plain != self.main {
                parts.push(Usage { model: Some(figure.name.clone()), delta, cost_usd, ..Usage::default() });
            }
        }
        // Counted ahead, and then told by nobody: it was another model's.
        for (plain, share) in &mut self.of {
            if figures.contains_key(plain) {
                continue;
            }
            let (model, delta) = (Some(share.name.clone()), share.meter.take_back());
            if *plain != self.main && *plain != own {
                parts.push(Usage { model, delta, ..Usage::default() });
            }
        }
        parts.retain(|part| !part.delta.is_zero() || part.cost_usd.is_some_and(|cost| cost > 0.0));
        for part in &parts {
            whole.delta = whole.delta - part.delta;
        }
        let others: f64 = parts.iter().filter_map(|part| part.cost_usd).sum();
        match &mut whole.cost_usd {
            // A millionth more is the sums' own.
            Some(cost) if others <= *cost + 1e-6 => *cost = (*cost - others).max(0.0),
            _ => parts.iter_mut().for_each(|part| part.cost_usd = None),
        }
        parts
    }

    /// The session's model by its name, else what was taken for it before, else the one with the most tokens.
    /// Among names of the same maker it is missing where it was not used.
    fn choose(&mut self, own: &str, figures: &BTreeMap<String, Figure>) {
        let is_makers = |name: &str| name.starts_with("claude");
        let is_unused = is_makers(own) && figures.keys().all(|name| is_makers(name));
        if figures.contains_key(own) || is_unused {
            own.clone_into(&mut self.main);
        } else if !figures.contains_key(&self.main) {
            let most = figures.iter().max_by_key(|(_, figure)| figure.total.total());
            self.main = most.map(|(plain, _)| plain.clone()).unwrap_or_default();
        }
    }

    fn share(&mut self, model: &str) -> Option<&mut Share> {
        let plain = windows::plain_name(model);
        if self.of.len() >= MODELS_MAX && !self.of.contains_key(&plain) {
            return None;
        }
        let fresh = || Share { name: model.to_owned(), meter: Meter::default(), cost: CostMeter::new(false) };
        Some(self.of.entry(plain).or_insert_with(fresh))
    }
}

impl Share {
    fn take(&mut self, figure: &Figure, is_first: bool) -> (TokensDelta, Option<f64>) {
        if is_first {
            self.cost = CostMeter::new(true);
            let Some((turn, _)) = figure.turn else {
                // Nobody says what of it is new: all may have been counted before.
                self.meter = Meter::starting_at(figure.total);
                self.cost.total(figure.total_usd);
                return (TokensDelta::default(), None);
            };
            self.meter.start_before(figure.total, turn);
        }
        let cost_usd = self.cost.total(figure.total_usd);
        let told = figure.turn.and_then(|(_, cost_usd)| cost_usd);
        (self.meter.total(figure.total), told.or(cost_usd))
    }
}

/// The figures by plain names: those of one model in two spellings together.
fn joined(figures: &[Figure]) -> BTreeMap<String, Figure> {
    let mut by_name: BTreeMap<String, Figure> = BTreeMap::new();
    for figure in figures {
        let known = by_name
            .entry(windows::plain_name(&figure.name))
            .and_modify(|known| known.join(figure))
            .or_insert_with(|| figure.clone());
        debug_assert!(known.total.total() >= figure.total.total(), "sums do not shrink");
    }
    by_name
}

impl Figure {
    fn join(&mut self, other: &Self) {
        let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        self.total = self.total + other.total;
        self.total_usd = sum(self.total_usd, other.total_usd);
        self.turn = match (self.turn, other.turn) {
            (Some((a, usd)), Some((b, other_usd))) => Some((a + b, sum(usd, other_usd))),
            (turn, other) => turn.or(other),
        };
    }
}
