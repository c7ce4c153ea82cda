use super::*;
use crate::agents::adopt::owner;
use crate::agents::{RunOrder, SpawnRequest};
use crate::core::ids::{AgentId, LineageId};
use crate::core::{Command as Wish, Effect};
use crate::providers::{Activity, SessionStart, Tokens};
use crate::testing::{Bench, parsed};
use serde_json::{Value, json};

const USED: Tokens = Tokens { input: 100, output: 10, cache_read: 0, cache_creation: 0 };

fn adopted(n: u32, session: &str, name: &str) -> Wish {
    let request = SpawnRequest {
        role: "adopted".into(),
        name: Some(name.into()),
        provider: Some("codex".into()),
        working_dir: "sub".into(),
        prompt: "do it".into(),
        ..SpawnRequest::default()
    };
    Wish::Adoption(Command::Adopt(Box::new(Adopted {
        id: AgentId(n),
        lineage: LineageId(n + 1),
        request,
        session: session.into(),
        model: Some("gpt-6-luna".into()),
        tokens: USED,
        counted: USED,
        context_tokens: 90,
        context_window: 1000,
        turns: 3,
        files: Vec::new(),
    })))
}

fn adopt(bench: &mut Bench, wish: Wish) -> (u16, Value) {
    parsed(&bench.command(wish).unwrap())
}

#[test]
fn an_adopted_session_waits_and_goes_on_with_the_next_word_from_what_was_counted() {
    let mut bench = Bench::new();
    let (status, agent) = adopt(&mut bench, adopted(0x77, "s-1", "mine"));
    assert_eq!((status, &agent["state"], &agent["statusCode"]), (201, &json!("waiting"), &json!("adopted")));
    assert_eq!(
        (&agent["tokensUsed"], &agent["turns"], &agent["pid"]),
        (&json!(110), &json!(3), &Value::Null)
    );
    assert_eq!(bench.audited("agent.adopt").len(), 1);
    assert_eq!(bench.state.usage.total().tokens, USED);
    assert!(bench.state.usage.today_usd(bench.now).abs() < f64::EPSILON, "it was used on other days");
    bench.effects.clear();
    let (status, told) = bench.ask("POST", "/api/agents/mine/instruct", &json!({"message": "go on"}));
    assert_eq!(status, 200, "{told}");
    let start = bench.effects.iter().find_map(|effect| match effect {
        Effect::Run(_, RunOrder::Start(order)) => Some(order),
        _ => None,
    });
    let request = &start.expect("it is started").request;
    assert_eq!(request.session, SessionStart::Resume { id: "s-1".into(), counted: USED });
    assert!(request.prompt.contains("go on") && request.working_dir.ends_with("sub"), "{request:?}");
    assert_eq!(bench.get("/api/agents/mine")["tokensUsed"], 110);
}

#[test]
fn a_session_belongs_to_one_agent_and_a_name_to_one_and_places_are_counted() {
    let mut bench = Bench::new();
    assert_eq!(adopt(&mut bench, adopted(0x77, "s-1", "mine")).0, 201);
    for (wish, code) in [
        (adopted(0x88, "s-1", "other"), "session_owned"),
        (adopted(0x88, "s-2", "mine"), "name_in_use"),
        (adopted(0x77, "s-2", "other"), "id_in_use"),
    ] {
        let (status, refused) = adopt(&mut bench, wish);
        assert_eq!((status, &refused["code"]), (409, &json!(code)), "{refused}");
    }
    assert_eq!(bench.ask("PATCH", "/api/config", &json!({"maxAgents": 1})).0, 200);
    let (status, refused) = adopt(&mut bench, adopted(0x88, "s-2", "other"));
    assert_eq!((status, &refused["code"]), (409, &json!("capacity")));
}

#[test]
fn sessions_that_an_agent_has_left_stay_its_own() {
    let mut bench = Bench::new();
    let id = bench.agent("a-1");
    let told = |session: &str| Activity::Session { id: session.into(), model: None };
    bench.does(id, vec![told("s-1")]);
    let next = bench.hands_over("a-1", "go on");
    bench.does(next, vec![told("s-2")]);
    let owner =
        |bench: &Bench, session: &str| owner(&bench.state, "script", session).map(|agent| agent.name.clone());
    for session in ["s-1", "s-2"] {
        assert_eq!(owner(&bench, session).as_deref(), Some("a-1"), "{session} is not a person's own");
    }
    assert_eq!(owner(&bench, "s-3"), None);
    let (status, refused) = adopt(&mut bench, adopted(0x88, "s-1", "other"));
    assert_eq!((status, &refused["code"]), (409, &json!("session_owned")), "{refused}");
    let stored = serde_json::to_string(&bench.state.agents.stored()).unwrap();
    assert!(stored.contains("s-1") && stored.contains("s-2"), "it lasts over a restart");
}
