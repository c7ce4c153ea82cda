//! The weighted average of ratings.
//!
//! **Invariant:** whole numbers only, so that every store and every instance shows the same figure.

use crate::model::Skill;
use svc_base::api::{Problem, Request, Validator};

/// Lowest and highest rating.
pub const RANGE: std::ops::RangeInclusive<u64> = 1..=5;

/// `(seedRating * seedCount + sum) / (seedCount + n)` in hundredths, rounded half up; 0 without raters.
pub fn average(skill: &Skill) -> u64 {
    let raters = raters(skill);
    if raters == 0 {
        return 0;
    }
    let total = skill.seed_rating * skill.seed_rating_count + 100 * skill.rating_sum;
    (2 * total + raters) / (2 * raters)
}

/// Unique raters, the seed's included.
pub fn raters(skill: &Skill) -> u64 {
    skill.seed_rating_count + skill.rating_count
}

/// The rating in a request's body.
pub fn parse(request: &Request) -> Result<u64, Problem> {
    let body = request.object()?;
    let mut validator = Validator::default();
    let value = body.get("rating");
    let rating = value.and_then(whole).filter(|rating| RANGE.contains(rating));
    validator.check(rating.is_some(), "rating", || match value {
        None => "rating is required and must be a whole number from 1 to 5".into(),
        Some(value) => format!("rating must be a whole number from 1 to 5, it is {}", shortened(value)),
    });
    validator.finish()?;
    Ok(rating.unwrap_or_default())
}

/// A whole number, also one that is written with zeros behind the point: `5.0` is an integer in JSON Schema,
/// which the description of the API is written in.
fn whole(value: &serde_json::Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| RANGE.into_iter().find(|n| value.as_f64() == u32::try_from(*n).ok().map(f64::from)))
}

/// A value as it may stand in a message: not at full length.
fn shortened(value: &serde_json::Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::store::contract::skill;

    #[test]
    fn decisions_3_weighted_average_with_two_decimals() {
        let with = |seed_rating, seed_rating_count, rating_sum, rating_count| {
            average(&Skill { seed_rating, seed_rating_count, rating_sum, rating_count, ..skill("a") })
        };
        assert_eq!(with(0, 0, 0, 0), 0);
        assert_eq!(with(0, 0, 9, 2), 450);
        assert_eq!(with(0, 0, 5, 3), 167, "rounded half up");
        assert_eq!(with(480, 124, 1, 1), 477, "(4.8 * 124 + 1) / 125 = 4.7696");
    }
}
