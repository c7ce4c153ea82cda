//! Prices: what is known under which name, and what people put in its place.

use super::*;
use crate::api::Method;
use crate::endpoint::{Access, Handler};
use crate::testing::Bench;

fn price(id: &str, input: f64) -> Value {
    json!({"id": id, "input": input, "output": 2, "cacheRead": 0, "cacheCreation": 0.5})
}

fn given(models: &Value) -> Value {
    json!({"asOf": "1970-01-01", "source": "our contract", "models": models})
}

fn input(bench: &Bench, model: &str) -> Option<f64> {
    for_model(&bench.state, model).map(|price| price.input)
}

#[test]
fn a_given_table_stands_before_the_built_in_one_at_once_and_after_a_restart_until_it_is_taken_back() {
    let mut bench = Bench::new();
    let mut table =
        given(&json!([price("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 1.0), price("nova-9", 7.0)]));
    table["aliases"] = json!({"opus": "nova-9", "cheap": "gpt-6-luna"});
    let (status, body) = bench.ask("POST", "/api/prices", &table);
    assert_eq!((status, &body["asOf"], &body["source"]), (200, &json!("1970-01-01"), &json!("our contract")));
    assert_eq!((&body["isGiven"], &body["isOlderThanBuiltIn"]), (&json!(true), &json!(true)));
    let row =
        |id: &str| body["models"].as_array().unwrap().iter().find(|row| row["id"] == id).cloned().unwrap();
    assert_eq!((&row("nova-9")["from"], &row("nova-9")["asOf"]), (&json!("given"), &json!("1970-01-01")));
    assert_eq!(
        (&row("gpt-6-luna")["from"], &row("gpt-6-luna")["asOf"]),
        (&json!("built-in"), &json!(super::table().as_of))
    );
    let check = |bench: &Bench| {
        assert_eq!(input(bench, "claude-sonnet-4-5@20250929"), Some(1.0), "as Vertex AI spells it");
        assert_eq!(input(bench, "anthropic/claude-sonnet-4.5"), Some(1.0), "as OpenRouter does");
        assert_eq!(input(bench, "claude-opus-4-1"), Some(15.0), "what it lacks is built in");
        assert_eq!(input(bench, "opus"), Some(7.0), "its alias stands before the built-in one");
        assert_eq!(input(bench, "cheap"), Some(0.1), "an alias of a built-in model");
        assert_eq!(input(bench, "nobodys-model-7"), None, "never another model's price");
    };
    check(&bench);
    let stored = serde_json::to_vec(&bench.state.prices.stored()).unwrap();
    let mut later = Bench::new();
    let restored = State::restore(serde_json::from_slice(&stored).unwrap());
    later.with(|all, _| all.prices = Arc::new(restored));
    check(&later);
    bench.ask(
        "PATCH",
        "/api/config",
        &json!({"models": {"nova-9": {"price": {
        "input": 3, "output": 1, "cacheRead": 1, "cacheCreation": 1}}}}),
    );
    assert_eq!(input(&bench, "nova-9"), Some(3.0), "a person's own setting stands before all");
    assert_eq!(input(&bench, "opus"), Some(3.0), "under an alias, too");
    let (status, body) = bench.ask("DELETE", "/api/prices", &Value::Null);
    assert_eq!((status, &body["isGiven"], &body["asOf"]), (200, &json!(false), &json!(super::table().as_of)));
    assert_eq!((input(&bench, "claude-sonnet-4-5"), input(&bench, "cheap")), (Some(3.0), None));
}

#[test]
fn what_get_tells_can_be_given_back() {
    let mut bench = Bench::new();
    let (_, told) = bench.ask("GET", "/api/prices", &Value::Null);
    bench.now = Time::parse("2027-05-01T00:00:00Z").unwrap();
    let (status, body) = bench.ask("POST", "/api/prices", &told);
    assert_eq!((status, body["models"][0]["from"].as_str()), (200, Some("given")), "{body}");
    assert_eq!(body["isOld"], true, "after 90 days it is said");
}

#[test]
fn a_wrong_table_is_refused_whole_and_each_fault_names_its_field() {
    let mut bench = Bench::new();
    let with = |name: &str, value: Value| {
        let mut table = given(&json!([price("a", 1.0)]));
        table[name] = value;
        table
    };
    let many: Vec<Value> = (0..=MAX_MODELS).map(|n| price(&format!("m{n}"), 1.0)).collect();
    for (wrong, field, words) in [
        (json!({"models": [price("a", 1.0)], "source": "x"}), "asOf", "like 2026-11-22"),
        (with("asOf", json!("soon")), "asOf", "like 2026-11-22"),
        (with("asOf", json!("2999-01-01")), "asOf", "in the future"),
        (with("source", json!("")), "source", "whose prices"),
        (with("unit", json!("cents")), "unit", "convert"),
        (with("more", json!(1)), "more", "is no member"),
        (with("models", json!([])), "models", "1 to 1000 models"),
        (with("models", json!(many)), "models", "1 to 1000 models"),
        (
            with("models", json!([price("a", 1.0), {"id": "b", "input": 1}])),
            "models[1].output",
            "(b) must be 0 to 10000",
        ),
        (with("models", json!([price("a", -1.0)])), "models[0].input", "(a) must be 0 to 10000"),
        (with("models", json!([price("", 1.0)])), "models[0].id", "must name a model"),
        (
            with("models", json!([price("x/A", 1.0), price("a-20250101", 2.0)])),
            "models[1].id",
            "a second time",
        ),
        (
            with(
                "models",
                json!([{"id": "a", "input": 1, "output": 1, "cacheRead": 1, "cacheCreation": 1,
            "cacheWrite": 1}]),
            ),
            "models[0].cacheWrite",
            "is no member",
        ),
        (with("aliases", json!({"best": "nobodys"})), "aliases.best", "add it to models"),
        (with("aliases", json!([])), "aliases", "must map"),
    ] {
        let (status, body) = bench.ask("POST", "/api/prices", &wrong);
        let error = &body["errors"][0];
        assert_eq!((status, error["field"].as_str()), (400, Some(field)), "{body}");
        assert!(error["message"].as_str().unwrap().contains(words), "{body}");
        assert!(bench.state.prices.given.is_none(), "none of it is in force");
    }
    let faults: Vec<Value> = (0..50).map(|n| json!({"id": format!("m{n}")})).collect();
    let (_, body) = bench.ask("POST", "/api/prices", &with("models", json!(faults)));
    let errors = body["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 21, "as many as anybody reads");
    assert!(errors[20]["message"].as_str().unwrap().contains("180 more faults"), "{}", errors[20]);
}

#[test]
fn only_people_change_prices_and_it_is_recorded() {
    for route in api::routes() {
        let for_people = matches!(route.handler, Handler::Write(Access::OperatorOnly, _));
        assert_eq!(for_people, route.method != Method::Get, "{} {}", route.method, route.path);
    }
    let mut bench = Bench::new();
    bench.ask("POST", "/api/prices", &given(&json!([price("a", 1.0)])));
    let recorded = |bench: &Bench, event: &str| {
        let mut journal = bench.effects.iter().filter_map(|effect| match effect {
            Effect::Append(_, line) => Some(String::from_utf8_lossy(line).into_owned()),
            _ => None,
        });
        journal
            .any(|line| line.contains(event) && line.contains("our contract") == (event == "prices.update"))
    };
    assert!(recorded(&bench, "prices.update"));
    bench.ask("DELETE", "/api/prices", &Value::Null);
    assert!(recorded(&bench, "prices.reset"));
}

#[test]
fn the_dearest_price_is_that_of_all_tables_and_settings() {
    let mut bench = Bench::new();
    assert_eq!(dearest(&bench.state), dearest_built_in());
    bench.ask("POST", "/api/prices", &given(&json!([price("gold", 400.0)])));
    assert_eq!(
        (dearest(&bench.state).input, dearest(&bench.state).output),
        (400.0, dearest_built_in().output)
    );
    bench.ask(
        "PATCH",
        "/api/config",
        &json!({"models": {"diamond": {"price": {
        "input": 1, "output": 900, "cacheRead": 1, "cacheCreation": 1}}}}),
    );
    assert_eq!((dearest(&bench.state).input, dearest(&bench.state).output), (400.0, 900.0));
}
