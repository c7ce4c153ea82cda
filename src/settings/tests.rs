use super::*;

fn with(project: &Value) -> Result<State, Problem> {
    State::new(Map::new(), project.as_object().cloned().unwrap_or_default())
}

#[test]
fn decisions_13_every_key_has_its_default() {
    let state = State::default();
    let config = state.config();
    assert_eq!((config.port, config.max_agents), (31415, 10));
    assert!((config.rotation_threshold - 0.75).abs() < f64::EPSILON);
    assert!(config.auto_rotation);
    assert_eq!((config.qc_threshold, config.journalist_interval), (4, 120));
    assert_eq!(config.safety.token_ceiling_per_agent, 5_000_000);
    assert_eq!(config.safety.daily_budget_usd, None);
    assert_eq!(config.safety.role_multipliers.get("planner"), Some(&10.0));
}

#[test]
fn decisions_13_config_checks_types_and_ranges_and_names_every_fault() {
    let problem = with(&json!({
        "port": -1, "maxAgents": "many", "rotationThreshold": 0.1, "host": "0.0.0.0",
        "safety": {"tokenCeilingPerAgent": 0, "nonsense": 1}, "unknown": true, "journalist": 5,
    }))
    .unwrap_err();
    let mut fields: Vec<_> = problem.errors.iter().map(|e| e.field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "host",
            "journalist",
            "maxAgents",
            "port",
            "rotationThreshold",
            "safety.nonsense",
            "safety.tokenCeilingPerAgent",
            "unknown",
        ]
    );
}

#[test]
fn a_daily_budget_of_0_is_refused_with_both_things_it_may_mean() {
    for (budget, fits) in [("null", true), ("0.5", true), ("0", false), ("-1", false), ("\"5\"", false)] {
        let project =
            serde_json::from_str(&format!("{{\"safety\": {{\"dailyBudgetUsd\": {budget}}}}}")).unwrap();
        assert_eq!(with(&project).is_ok(), fits, "{budget}");
    }
    let problem = with(&json!({"safety": {"dailyBudgetUsd": 0}})).unwrap_err();
    let wanted =
        "safety.dailyBudgetUsd must be a number above 0 and up to 1000000, or null for no budget, it is 0";
    assert_eq!(problem.errors[0].message, wanted);
}

#[test]
fn the_projects_settings_win_over_the_users_key_by_key() {
    let user = json!({"maxAgents": 3, "safety": {"dailyBudgetUsd": 5.0}});
    let project = json!({"maxAgents": 7, "safety": {"tokenCeilingPerAgent": 9000}});
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let state = State::new(object(&user), object(&project)).unwrap();
    assert_eq!(state.config().max_agents, 7);
    assert_eq!(state.config().safety.daily_budget_usd, Some(5.0));
    assert_eq!(state.config().safety.token_ceiling_per_agent, 9000);
    assert_eq!(state.config().safety.role_multipliers.len(), 4);
}
