//! Selling, as far as the data model goes: the split of a price and the double entry behind it.
//!
//! **Invariant:** the lines of one transaction add up to zero; a split loses no cent.
#![allow(dead_code, reason = "no endpoint sells yet; the model and its rules are held by tests")]

/// The platform's share: 20 %, in hundredths of a per cent.
pub const PLATFORM_BP: u64 = 2000;
const WHOLE_BP: u64 = 10_000;

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `connector:<name>`, `creator:<author id>` or `platform`.
    pub account: String,
    /// Positive: the account is owed more. Never zero.
    pub cents: i64,
}

/// Creator's and platform's part of a price. The platform's is rounded down, the creator gets the rest.
pub fn split(price_cents: u64, platform_bp: u64) -> (u64, u64) {
    let platform = price_cents * platform_bp.min(WHOLE_BP) / WHOLE_BP;
    (price_cents - platform, platform)
}

/// The lines of a purchase: the connector holds the money, creator and platform are owed theirs.
pub fn purchase(connector: &str, author_id: &str, price_cents: u64, platform_bp: u64) -> Vec<Line> {
    let (creator, platform) = split(price_cents, platform_bp);
    lines(&[
        (format!("connector:{connector}"), -signed(price_cents)),
        (format!("creator:{author_id}"), signed(creator)),
        ("platform".into(), signed(platform)),
    ])
}

/// The lines that take a purchase back.
pub fn refund(connector: &str, author_id: &str, price_cents: u64, platform_bp: u64) -> Vec<Line> {
    let mut lines = purchase(connector, author_id, price_cents, platform_bp);
    for line in &mut lines {
        line.cents = -line.cents;
    }
    lines
}

/// The lines of a payout to a creator.
pub fn payout(connector: &str, author_id: &str, cents: u64) -> Vec<Line> {
    lines(&[
        (format!("creator:{author_id}"), -signed(cents)),
        (format!("connector:{connector}"), signed(cents)),
    ])
}

/// Whether the lines add up to zero.
pub fn balances(lines: &[Line]) -> bool {
    lines.iter().map(|line| i128::from(line.cents)).sum::<i128>() == 0
}

fn lines(parts: &[(String, i64)]) -> Vec<Line> {
    let parts = parts.iter().filter(|(_, cents)| *cents != 0);
    parts.map(|(account, cents)| Line { account: account.clone(), cents: *cents }).collect()
}

fn signed(cents: u64) -> i64 {
    i64::try_from(cents).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_the_split_is_80_to_20_and_every_transaction_balances() {
        assert_eq!(split(1000, PLATFORM_BP), (800, 200));
        for price in 1..=9999 {
            let (creator, platform) = split(price, PLATFORM_BP);
            assert_eq!(creator + platform, price);
            for lines in
                [purchase("pay", "gh-ada", price, PLATFORM_BP), refund("pay", "gh-ada", price, PLATFORM_BP)]
            {
                assert!(balances(&lines) && lines.iter().all(|line| line.cents != 0), "{lines:?}");
            }
            assert!(balances(&payout("pay", "gh-ada", price)));
        }
        let mut broken = purchase("pay", "gh-ada", 500, PLATFORM_BP);
        broken[0].cents += 1;
        assert!(!balances(&broken));
    }
}
