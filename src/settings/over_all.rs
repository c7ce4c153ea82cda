//! What is said for all projects of a user at once, and stands in the user's own file alone.

use crate::api::Problem;
use serde_json::{Map, Value};

/// What no project says, for it comes from others, and agents work in it: where it would stand, what it is
/// called, and why it is the person's own to say.
const OWN: [(&str, &str, &str); 4] = [
    ("notify", "notify.command", "it names a program that is run as you"),
    ("safety.dailyBudgetAllUsd", "safety.dailyBudgetAllUsd", "it is for all projects"),
    ("push", "push", "it says what the daemon may reach inside your network"),
    ("telemetry", "telemetry", "it says who hears of what agents do"),
];

/// Errors: 400, the settings of a project say what is a person's own.
pub(super) fn check(project: &Map<String, Value>) -> Result<(), Problem> {
    let is_said = |place: &str| match place.split_once('.') {
        Some((group, key)) => project.get(group).is_some_and(|group| group.get(key).is_some()),
        None => project.contains_key(place),
    };
    let Some((_, name, why)) = OWN.iter().find(|(place, ..)| is_said(place)) else { return Ok(()) };
    let text = format!("{name} stands in your own ~/.config/svc/config.json only, not in a project's: {why}");
    Err(Problem::invalid(name, text))
}

/// What all projects together may cost in a day, in dollars, by the text of the user's own file; `None` for
/// no budget.
///
/// Errors: why it cannot be told.
pub fn budget_over_all(text: &[u8]) -> Result<Option<f64>, String> {
    let user: Map<String, Value> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let value = match user.get("safety") {
        None => return Ok(None),
        Some(Value::Object(safety)) => safety.get("dailyBudgetAllUsd").filter(|value| !value.is_null()),
        Some(_) => return Err("safety is no object".to_owned()),
    };
    let Some(value) = value else { return Ok(None) };
    super::budget(value)
        .map_or_else(|| Ok(value.as_f64()), |rule| Err(format!("safety.dailyBudgetAllUsd {rule}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_over_all_is_a_number_or_none_and_what_is_no_settings_is_neither() {
        for (text, budget) in [
            ("{}", Some(None)),
            (r#"{"safety": {}}"#, Some(None)),
            (r#"{"safety": {"dailyBudgetAllUsd": null}}"#, Some(None)),
            (r#"{"safety": {"dailyBudgetAllUsd": 2.5}}"#, Some(Some(2.5))),
            (r#"{"safety": {"dailyBudgetAllUsd": 0}}"#, None),
            (r#"{"safety": {"dailyBudgetAllUsd": "2"}}"#, None),
            (r#"{"safety": 2}"#, None),
            ("[]", None),
            ("", None),
        ] {
            assert_eq!(budget_over_all(text.as_bytes()).ok(), budget, "{text}");
        }
    }
}
