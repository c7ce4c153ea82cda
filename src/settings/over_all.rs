//! What is said for all projects of a user at once, and stands in the user's own file alone.

use crate::api::FieldError;
use serde_json::{Map, Value};

/// What all projects may cost is no project's to say.
pub(super) fn foreign(project: &Map<String, Value>) -> Option<FieldError> {
    project.get("safety")?.get("dailyBudgetAllUsd").map(|_| FieldError {
        field: "safety.dailyBudgetAllUsd".into(),
        message: "safety.dailyBudgetAllUsd stands in your own ~/.config/svc/config.json only, not in a \
                  project's: it is for all projects"
            .into(),
    })
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
