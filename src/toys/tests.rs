//! Each test names the line of the specification that it holds.

use super::*;
use crate::testing::Bench;
use serde_json::Value;

fn sealed() -> Sealed {
    serde_json::from_str("\"00ff00ff\"").unwrap()
}

fn launch(bench: &mut Bench, id: &str, key: Option<Sealed>, starter: Option<&str>) -> (u16, Value) {
    let launch = Launch {
        toy: find(id).unwrap(),
        key,
        starter: starter.map(ToOwned::to_owned),
        provider: Some("script".into()),
        model: None,
    };
    let command = crate::core::Command::Toys(Command::Launch(Box::new(launch)));
    let reply = bench.command(command).unwrap();
    (reply.status, serde_json::from_slice(reply.body.bytes()).unwrap())
}

fn prompt_of(bench: &Bench, body: &Value) -> String {
    bench.state.agents.find(body["agent"]["id"].as_str().unwrap()).unwrap().prompt.to_string()
}

#[test]
fn toys_have_the_fields_of_the_specification_and_four_starters() {
    assert_eq!(all().len(), 10);
    for toy in all() {
        assert!(CATEGORIES.contains(&toy.category.as_str()), "{}", toy.id);
        assert_eq!(toy.starters.len(), 4, "{}", toy.id);
        assert!(toy.docs_url.starts_with("https://") && toy.base_url.starts_with("https://"), "{}", toy.id);
        assert_eq!(toy.needs_key(), toy.key_header.is_some(), "{}", toy.id);
        assert!(
            !toy.description.is_empty() && ["beginner", "intermediate"].contains(&toy.difficulty.as_str())
        );
        assert!(credentials::check_name(&toy.credential()).is_ok());
    }
}

#[test]
fn get_toys_filters_by_category_and_get_one_is_404_if_unknown() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask("GET", "/api/toys", &Value::Null).1.as_array().unwrap().len(), 10);
    let (_, fun) = bench.ask("GET", "/api/toys?category=fun", &Value::Null);
    let ids: Vec<&str> = fun.as_array().unwrap().iter().map(|toy| toy["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["pokeapi", "open-trivia-db", "the-dog-api"]);
    assert_eq!(bench.ask("GET", "/api/toys?category=nonsense", &Value::Null).0, 400);
    let (status, toy) = bench.ask("GET", "/api/toys/nasa-apod", &Value::Null);
    assert_eq!(
        (status, &toy["docsUrl"], &toy["auth"]),
        (200, &json!("https://api.nasa.gov"), &json!("api-key"))
    );
    assert_eq!(bench.ask("GET", "/api/toys/nothing", &Value::Null).0, 404);
}

#[test]
fn launch_creates_a_team_and_spawns_a_planner() {
    let mut bench = Bench::new();
    let (status, body) = launch(&mut bench, "pokeapi", None, None);
    assert_eq!((status, &body["toyId"], &body["team"]["name"]), (200, &json!("pokeapi"), &json!("PokeAPI")));
    assert_eq!((&body["agent"]["role"], &body["agent"]["status"]), (&json!("planner"), &json!("active")));
    assert_eq!(body["agent"]["teamId"], body["team"]["id"]);
    assert_eq!(bench.notices("team:created").len(), 1);
    assert!(prompt_of(&bench, &body).contains("First choose what to build"));
    let (_, again) = launch(&mut bench, "pokeapi", None, Some("a quiz"));
    assert_eq!(again["team"]["name"], "PokeAPI 2");
    let prompt = prompt_of(&bench, &again);
    assert!(prompt.contains("Build this: a quiz") && !prompt.contains("First choose"), "{prompt}");
}

#[test]
fn launch_is_400_when_a_key_is_required_but_absent_and_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let (status, body) = launch(&mut bench, "nasa-apod", None, None);
    assert_eq!((status, &body["errors"][0]["field"]), (400, &json!("apiKey")));
    bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1}));
    bench.agent("other");
    assert_eq!(launch(&mut bench, "nasa-apod", Some(sealed()), None).0, 409);
    assert_eq!(bench.state.teams.iter().count(), 1);
    assert!(!bench.state.credentials.has("toy/nasa-apod"));
}

#[test]
fn the_key_goes_to_the_vault_and_the_agents_environment_never_into_a_prompt() {
    let mut bench = Bench::new();
    let (status, body) = launch(&mut bench, "nasa-apod", Some(sealed()), None);
    assert_eq!(status, 200, "{body}");
    assert!(prompt_of(&bench, &body).contains("NASA_APOD_API_KEY"));
    let mut starts = bench.effects.iter().filter_map(|effect| match effect {
        crate::core::Effect::Run(_, agents::RunOrder::Start(order)) => Some(order),
        _ => None,
    });
    let order = starts.next_back().unwrap();
    let expected = credentials::SecretVariable {
        variable: "NASA_APOD_API_KEY".into(),
        token: None,
        name: "toy/nasa-apod".into(),
        sealed: sealed(),
    };
    assert_eq!(order.secrets, [expected]);
    assert!(!order.request.prompt.contains("00ff"));
    // An agent of another team does not get it.
    let other = bench.agent("other");
    let other = bench.state.agents.get(other).unwrap();
    assert_eq!(credentials::variables(&bench.state, &other.provider, None, other.team_id.as_deref()), []);
    // A key that was given once counts.
    assert_eq!(launch(&mut bench, "nasa-apod", None, None).0, 200);
}
