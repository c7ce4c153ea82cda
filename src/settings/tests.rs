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
        "port": -1, "maxAgents": "many", "rotationThreshold": 1.5, "host": "0.0.0.0",
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
fn every_setting_is_described_and_nothing_else_is() {
    fn leaves(prefix: &str, value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) if keys::find(prefix).is_none() => {
                for (name, value) in map {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    leaves(&format!("{prefix}{dot}{name}"), value, into);
                }
            }
            _ => into.push(prefix.to_owned()),
        }
    }
    let mut defined = Vec::new();
    leaves("", &Value::Object(defaults()), &mut defined);
    let mut described: Vec<String> = keys::KEYS.iter().map(|key| key.key.to_owned()).collect();
    defined.sort();
    described.sort();
    assert_eq!(described, defined, "src/settings/keys.rs describes each setting");
}

#[test]
fn the_ranges_in_words_are_those_of_the_rules() {
    let numbers = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        let words = words.map(|word| word.trim_matches('.').to_owned());
        words.filter(|word| !word.is_empty()).collect()
    };
    let mut compared = 0;
    for key in keys::KEYS {
        // Nothing takes this value.
        let wrong = key.key.rsplit('.').fold(json!({"": []}), |inner, part| json!({part: inner}));
        let problem = with(&wrong).unwrap_err();
        let rule = problem.errors[0].message.split(", it is ").next().unwrap().to_owned();
        let told = numbers(key.takes);
        for number in numbers(rule.trim_start_matches(key.key)) {
            assert!(told.contains(&number), "{rule}, and it is described as {:?}", key.takes);
            compared += 1;
        }
    }
    assert!(compared > 15, "only {compared} numbers were compared");
}

#[test]
fn an_unknown_key_is_told_with_the_one_that_may_be_meant() {
    for (project, wanted) in [
        (
            json!({"maxagents": 3}),
            "maxagents is not a setting, did you mean maxAgents?; GET /api/config lists them",
        ),
        (
            json!({"dailyBudgetUsd": 3}),
            "dailyBudgetUsd is not a setting, did you mean safety.dailyBudgetUsd?; GET /api/config lists them",
        ),
        (
            json!({"safety": {"dailyBudget": 3}}),
            "safety.dailyBudget is not a setting, did you mean safety.dailyBudgetUsd?; GET /api/config lists them",
        ),
        (json!({"xyzzy": 3}), "xyzzy is not a setting; GET /api/config lists them"),
    ] {
        assert_eq!(with(&project).unwrap_err().errors[0].message, wanted);
    }
}

#[test]
fn daemon_rotation_threshold_may_be_any_useful_fraction() {
    for threshold in [0.05, 0.3, 0.75, 1.0] {
        assert!(with(&json!({"rotationThreshold": threshold})).is_ok(), "{threshold}");
        let learned = crate::context::adaptive::Profile::default().threshold(threshold);
        assert!((learned - threshold).abs() < 1e-9, "{threshold} is rotated at, not {learned}");
    }
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

#[test]
fn a_change_that_the_disk_refuses_is_not_in_force() {
    let mut bench = crate::testing::Bench::new();
    let patch = |bench: &mut crate::testing::Bench, max: u64| {
        bench.ask("PATCH", "/api/config", &json!({"maxAgents": max}))
    };
    assert_eq!(patch(&mut bench, 20).0, 200);
    bench.disk = Some(Err("no space left".into()));
    let (status, body) = patch(&mut bench, 30);
    assert_eq!((status, &body["code"]), (503, &json!("storage_unavailable")), "{body}");
    assert_eq!(bench.ask("GET", "/api/config", &Value::Null).1["maxAgents"], 20);
    assert_eq!(bench.state.settings.config().max_agents, 20);
    assert_eq!(bench.state.settings.stored()["maxAgents"], 20, "what is tried again is the old one");
    assert_eq!(bench.audited("change.withdrawn").len(), 1);
    bench.disk = Some(Ok(()));
    assert_eq!(patch(&mut bench, 40).1["maxAgents"], 40);
}

#[test]
fn spec_removed_velocity_settings_have_no_effect_and_are_no_fault() {
    let old =
        json!({"safety": {"velocityWindowSeconds": 60, "velocityTokenThreshold": 1, "dailyBudgetUsd": 3.0}});
    let state = with(&old).expect("a file of an earlier release starts the daemon");
    assert_eq!(state.config().safety.daily_budget_usd, Some(3.0), "what stands beside them holds");
    assert_eq!(state.shown()["safety"].get("velocityWindowSeconds"), None);
    let problem = with(&json!({"safety": {"velocityUnknown": 1}})).unwrap_err();
    assert_eq!(problem.errors[0].field, "safety.velocityUnknown", "any other unknown key is a fault still");

    let mut bench = crate::testing::Bench::new();
    let (status, _) = bench.ask("PATCH", "/api/config", &json!({"safety": {"velocityTokenThreshold": 5}}));
    assert_eq!(status, 200);
    assert!(!bench.state.settings.stored().contains_key("velocityTokenThreshold"));
}

#[test]
fn routing_is_off_until_a_person_turns_it_on() {
    assert_eq!(State::default().config().routing, Routing::Off);
    assert_eq!(with(&json!({"routing": "on"})).unwrap().config().routing, Routing::On);
    assert_eq!(with(&json!({"routing": true})).unwrap_err().errors[0].field, "routing");
}

#[test]
fn a_person_may_tell_window_and_price_of_a_model_under_any_spelling() {
    let price = json!({"input": 1.0, "output": 2.0, "cacheRead": 0.0, "cacheCreation": 0.5});
    let state = with(&json!({"models": {"my-model": {"contextWindow": 32_768, "price": price}, "x": null}}));
    let state = state.unwrap();
    let own = state.config().model("vendor/my-model").expect("known");
    assert_eq!(own.context_window, Some(32_768));
    assert_eq!(own.price.map(|price| price.output), Some(2.0));
    assert_eq!(state.config().model("x"), None, "taken back");
    for wrong in [
        json!({"m": {"contextWindow": 0}}),
        json!({"m": {"price": {"input": 1.0}}}),
        json!({"m": {"cost": 1}}),
        json!({"m": 5}),
        json!([]),
    ] {
        assert!(with(&json!({"models": wrong})).is_err(), "{wrong}");
    }
}

#[test]
fn the_command_of_notices_is_a_bounded_list_in_the_persons_own_file_alone() {
    let of = |command: Value| {
        let user = json!({"notify": {"command": command}});
        State::new(user.as_object().unwrap().clone(), Map::new())
    };
    for good in [json!([]), json!(["a"]), json!(["/bin/a b", "", "{title}"])] {
        assert!(of(good.clone()).is_ok(), "{good}");
    }
    let long = "x".repeat(notify::MAX_ARG_CHARS + 1);
    let many = vec!["x"; notify::MAX_ARGS + 1];
    let bad = [json!("a b"), json!([""]), json!([1]), json!(["a", null]), json!([long]), json!(many)];
    for bad in bad {
        assert!(of(bad.clone()).is_err(), "{bad}");
    }
    let project = json!({"notify": {"command": ["sh", "-c", "true"]}});
    let refused = State::new(Map::new(), project.as_object().unwrap().clone()).unwrap_err();
    assert_eq!(refused.errors[0].field, "notify.command");
}

#[test]
fn push_services_are_bounded_lists_of_hosts_in_the_persons_own_file_alone() {
    let of = |push: Value| State::new(json!({"push": push}).as_object().unwrap().clone(), Map::new());
    for good in [
        json!({"hosts": []}),
        json!({"hosts": ["push.example.org", "10.0.0.1", "fd00::1", "localhost"]}),
        json!({"certificate": "/etc/push.pem", "contact": "mailto:me@example.org"}),
        json!({"certificate": null, "contact": "https://example.org/me"}),
    ] {
        assert!(of(good.clone()).is_ok(), "{good}");
    }
    for bad in [
        json!({"hosts": "a"}),
        json!({"hosts": ["https://a"]}),
        json!({"own": ["a:1"]}),
        json!({"own": ["a/b"]}),
        json!({"own": [""]}),
        json!({"own": ["*.example.org"]}),
        json!({"own": vec!["a"; 17]}),
        json!({"certificate": "push.pem"}),
        json!({"contact": "me"}),
        json!({"contact": "mailto:me@a\"b"}),
        json!({"more": 1}),
    ] {
        assert!(of(bad.clone()).is_err(), "{bad}");
    }
    let project = json!({"push": {"own": ["localhost"]}});
    let refused = State::new(Map::new(), project.as_object().unwrap().clone()).unwrap_err();
    assert_eq!(refused.errors[0].field, "push");
    let state = of(json!({"hosts": ["a.example"], "own": ["b.example"]})).unwrap();
    let allows = |host, port| state.config().push.allows(host, port).is_ok();
    assert!(allows("A.example", 443) && allows("b.example", 8443));
    assert!(!allows("a.example", 8443) && !allows("c.example", 443));
}
