//! The accounts of agents whose records are gone. They never change again, so each is summed up and encoded
//! once, however often it is asked for or written.

use super::Sum;
use super::ledger::Account;
use super::report;
use crate::core::ids::LineageId;
use serde::ser::{Error, Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

/// Accounts of removed agents kept one by one; beyond that the oldest are joined.
pub const MAX_GONE: usize = 100;

/// Models of which it is told what joined accounts used; what others used is told together.
pub const MAX_MODELS: usize = 50;

/// An account that is closed.
#[derive(Debug, svc_base::recorded::Recorded)]
pub struct Closed {
    pub lineage: LineageId,
    pub account: Arc<Account>,
    /// What each team has of it.
    pub teams: BTreeMap<Arc<str>, Sum>,
    #[recorded(skip)]
    shown: OnceLock<Box<RawValue>>,
    #[recorded(skip)]
    stored: OnceLock<Box<RawValue>>,
}

impl Closed {
    fn new(lineage: LineageId, account: Arc<Account>) -> Self {
        let mut teams: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
        for row in account.rows() {
            let team = teams.entry(Arc::clone(&row.team)).or_default();
            team.add(row.tokens, row.cost_usd(), row.unpriced());
        }
        for team in teams.values_mut() {
            team.sessions = 1;
        }
        Self { lineage, account, teams, shown: OnceLock::new(), stored: OnceLock::new() }
    }

    /// Its entry in the ledger on disk.
    pub fn stored(&self) -> Result<&RawValue, serde_json::Error> {
        kept(&self.stored, || serde_json::value::to_raw_value(&(self.lineage, &self.account)))
    }
}

/// As `GET /api/tokens/summary` shows it.
impl Serialize for Closed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let account = &self.account;
        let last = account.rows().last();
        let (model, team) = (last.map(|row| &*row.model), last.map(|row| &*row.team));
        let shown =
            || serde_json::value::to_raw_value(&report::shown_account(self.lineage, account, model, team));
        kept(&self.shown, shown).map_err(S::Error::custom)?.serialize(serializer)
    }
}

fn kept(
    cell: &OnceLock<Box<RawValue>>,
    make: impl FnOnce() -> Result<Box<RawValue>, serde_json::Error>,
) -> Result<&RawValue, serde_json::Error> {
    if let Some(known) = cell.get() {
        return Ok(known);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// The closed accounts: the last ones by themselves, those before them by team.
#[derive(Debug, Clone, Default, svc_base::recorded::Recorded)]
pub struct Gone {
    /// By their last use, the oldest first.
    last: VecDeque<Arc<Closed>>,
    earlier: BTreeMap<Arc<str>, Sum>,
    /// The same by model; [`report::EARLIER`] has those beyond [`MAX_MODELS`] and what was joined before
    /// models were told.
    earlier_models: BTreeMap<Arc<str>, Sum>,
    /// All that both come to.
    total: Sum,
}

impl Gone {
    /// The closed accounts of an earlier daemon, and what it had joined.
    pub fn restore(
        earlier: BTreeMap<Arc<str>, Sum>,
        mut earlier_models: BTreeMap<Arc<str>, Sum>,
        accounts: Vec<(LineageId, Arc<Account>)>,
    ) -> Self {
        let mut total = Sum::default();
        for sum in earlier.values() {
            total.add(sum.tokens, sum.cost_usd, sum.unpriced);
        }
        if earlier_models.is_empty() && !earlier.is_empty() {
            earlier_models.insert(report::EARLIER.into(), total);
        }
        let mut gone = Self { last: VecDeque::new(), earlier, earlier_models, total };
        for (lineage, account) in accounts {
            gone.close(lineage, account);
        }
        gone
    }

    /// Takes an account over.
    pub fn close(&mut self, lineage: LineageId, account: Arc<Account>) {
        self.total.add(account.tokens(), account.cost_usd(), account.unpriced());
        let at = self.last.partition_point(|known| known.account.last_used <= account.last_used);
        self.last.insert(at, Arc::new(Closed::new(lineage, account)));
        while self.last.len() > MAX_GONE {
            let Some(oldest) = self.last.pop_front() else { return };
            for row in oldest.account.rows() {
                let name = if self.earlier_models.len() < MAX_MODELS
                    || self.earlier_models.contains_key(&row.model)
                {
                    Arc::clone(&row.model)
                } else {
                    report::EARLIER.into()
                };
                let model = self.earlier_models.entry(name).or_default();
                model.add(row.tokens, row.cost_usd(), row.unpriced());
            }
            for (team, sum) in &oldest.teams {
                let joined = self.earlier.entry(Arc::clone(team)).or_default();
                joined.add(sum.tokens, sum.cost_usd, sum.unpriced);
                joined.sessions += sum.sessions;
            }
        }
    }

    /// The last ones.
    pub fn last(&self) -> impl DoubleEndedIterator<Item = &Arc<Closed>> {
        self.last.iter()
    }

    /// The account of a lineage, while it is kept by itself.
    pub fn account(&self, lineage: LineageId) -> Option<&Arc<Account>> {
        self.last.iter().rev().find(|closed| closed.lineage == lineage).map(|closed| &closed.account)
    }

    /// What was joined, by team.
    pub fn earlier(&self) -> &BTreeMap<Arc<str>, Sum> {
        &self.earlier
    }

    /// The same, by model.
    pub fn earlier_models(&self) -> &BTreeMap<Arc<str>, Sum> {
        &self.earlier_models
    }

    /// All of it.
    pub fn total(&self) -> Sum {
        self.total
    }
}

/// Dollars and tokens of the joined ones, as the summary shows them; `None` while there are none.
pub fn shown_earlier(gone: &Gone) -> Option<(u64, serde_json::Value)> {
    let mut joined = Sum::default();
    for part in gone.earlier.values() {
        joined.add(part.tokens, part.cost_usd, part.unpriced);
        joined.sessions += part.sessions;
    }
    let used = joined.tokens.total();
    let shown = json!({
        "id": report::EARLIER, "used": used, "model": null, "name": "earlier agents", "tokens": joined.tokens,
        "costUsd": report::cost(joined.cost_usd, joined.unpriced), "unpricedTokens": joined.unpriced,
        "removed": true,
    });
    (joined.sessions > 0).then_some((used, shown))
}
