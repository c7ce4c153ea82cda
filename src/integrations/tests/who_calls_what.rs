//! Which calls run at all: those of attached integrations, and of tools that nobody calls destructive.

use super::*;
use crate::agents::SpawnRequest;
use crate::core::ids::{AgentId, UNKNOWN_AGENT};

/// An agent to which `hub` is attached.
pub(super) fn attached(rig: &mut Rig, name: &str) -> AgentId {
    let request = SpawnRequest {
        role: "dev".into(),
        name: Some(name.into()),
        provider: Some("script".into()),
        integrations: vec!["hub".into()],
        ..SpawnRequest::default()
    };
    rig.bench.agent_like(request)
}

#[test]
fn an_agent_calls_only_what_is_attached_to_it() {
    let mut rig = Rig::new();
    let (own, other) = (attached(&mut rig, "own"), rig.bench.agent("other"));
    let call = |rig: &mut Rig, actor: Actor| {
        rig.bench.actor = actor;
        let call = rig.exec("send");
        rig.reply(call).unwrap()
    };
    for (actor, code) in
        [(Actor::Agent(other), "not_attached"), (Actor::Agent(UNKNOWN_AGENT), "agent_may_not")]
    {
        let (status, body) = call(&mut rig, actor);
        assert_eq!((status, &body["code"]), (403, &json!(code)), "{body}");
    }
    assert_eq!(call(&mut rig, Actor::Agent(own)).0, 202);
    assert_eq!(call(&mut rig, Actor::Operator).0, 202, "a person calls what is installed");
}

#[test]
fn a_tool_that_its_server_calls_destructive_is_gated_from_its_first_call_on() {
    let mut rig = Rig::new();
    edit(&mut rig.bench.state).destructive.clear();
    let tools = json!([
        {"name": "transfer_money", "annotations": {"destructiveHint": true}},
        {"name": "look", "annotations": {"readOnlyHint": true, "destructiveHint": true}},
        {"name": "plain"},
    ]);
    let first = rig.exec("Transfer Money");
    assert_eq!(rig.orders(), ["start 1"]);
    rig.ready(RunId(1));
    assert_eq!(rig.orders(), ["ask 1 for tools"], "its server is asked about its tools before anything else");
    rig.report(Report::Answered(RunId(1), first, Ok(tools)));
    assert_eq!(rig.reply(first).unwrap().0, 202);
    assert_eq!(rig.orders(), Vec::<String>::new(), "nothing was called");
    let second = rig.exec("transfer_money");
    assert_eq!(rig.reply(second).unwrap().0, 202);
    for tool in ["look", "plain"] {
        rig.exec(tool);
        assert_eq!(rig.orders(), [format!("ask 1 {tool}")]);
    }
    // What cannot be listed cannot be called: nobody knows what it does.
    edit(&mut rig.bench.state).destructive.clear();
    let third = rig.exec("plain");
    rig.orders();
    rig.report(Report::Answered(RunId(1), third, Err("no such method".into())));
    assert_eq!(rig.reply(third).unwrap().1["code"], "server_error");
    assert_eq!(rig.events().last().map(String::as_str), Some("integration.exec.failed"));
}
