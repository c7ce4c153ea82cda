use super::{LEFT_OUT, to_be_stored};
use crate::agents::SpawnRequest;
use crate::assembly::documents::encode;
use crate::assembly::routes::table;
use crate::core::ids::WebhookId;
use crate::core::{Command, Context, Document, Durability, Effect, Event};
use crate::credentials::Sealed;
use crate::endpoint::Handler;
use crate::testing::Bench;
use crate::{agents, approvals, comments, credentials, gateways, inlets, integrations, teams, webhooks};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Routes that are not in [`cases`], and why.
const OTHERS: [(&str, &str); 15] = [
    ("POST /api/agents/:id/query", "asks a model; nothing of it lasts"),
    ("POST /api/agents/:id/rotate", "is answered when the successor runs"),
    ("POST /api/agents/:id/move", "is answered when it has arrived; see the tests of moves"),
    ("POST /api/gateways/:id/connect", "waits for its platform; see the tests of gateways"),
    ("POST /api/integrations/:id/exec", "waits for the disk in its own way; see the tests of integrations"),
    ("POST /api/integrations/:id/install", "is answered when its files are there"),
    ("POST /api/journalist/cycle", "is answered when its documents are written"),
    ("POST /api/pm/review", "is answered when the review is there"),
    ("POST /api/hooks/write", "answers whether an agent may write"),
    ("POST /api/shutdown", "ends the daemon"),
    ("DELETE /api/federation/peers/:id", "see the_disk_refuses_what_becomes_of_a_pairing"),
    ("DELETE /api/federation/pair/:id", "pairings do not last"),
    ("POST /api/federation/pair/:id/reveal", "pairings do not last"),
    ("GET /api/integrations/:id/tools", "asks a server; nothing of it lasts"),
    ("GET /api/integrations/oauth/callback", "is answered when the tokens are there"),
];

fn sealed() -> Sealed {
    serde_json::from_str("\"00ff00ff\"").unwrap()
}

/// A daemon with one of everything.
struct World {
    bench: Bench,
    approval: String,
    gateway: String,
    rule: String,
    /// A rule about approvals.
    may: String,
    /// A plan of which a member has crashed for good.
    plan: String,
}

fn world() -> World {
    let mut bench = Bench::new();
    let mut made = |method: &str, path: &str, body: Value| {
        let (status, made) = bench.ask(method, path, &body);
        assert!(status < 300, "{method} {path}: {made}");
        made
    };
    let agent = json!({"role": "dev", "provider": "script", "prompt": "x"});
    made("POST", "/api/schedules", json!({"name": "tidy", "cron": "0 0 * * *", "agent": agent}));
    made(
        "POST",
        "/api/schedules",
        json!({"name": "off", "cron": "0 0 * * *", "agent": agent, "enabled": false}),
    );
    made("POST", "/api/teams", json!({"name": "crew"}));
    made("POST", "/api/prices", prices("old"));
    let rule = made("POST", "/api/memory/constraints", json!({"text": "Use tabs"}))["hash"].clone();
    let gateway = made("POST", "/api/gateways", json!({"type": "telegram", "chatId": "7"}))["id"].clone();
    made("POST", "/api/integrations", json!({"id": "hub", "command": "hub-server", "env": ["HUB_KEY"]}));
    made(
        "POST",
        "/api/coordination/declare",
        json!({"agentId": "me", "operation": "o", "resources": ["db"]}),
    );
    let (rule, gateway) = (word(&rule), word(&gateway));
    let (target, key) = (gateway.clone(), "bot_token".to_owned());
    bench.command(Command::Gateways(gateways::Command::SetCredential { target, key, sealed: sealed() }));
    assert!(bench.wish("POST", &format!("/api/gateways/{gateway}/connect"), &Value::Null).is_none());
    let id = gateway.parse().unwrap();
    let run = bench.state.gateways.get(id).unwrap().run;
    bench.apply(Event::Gateways(gateways::Report::Connected { gateway: id, run, bot: "bot".into() }));
    bench.command(put_key("codex"));
    assert_eq!(bench.account("work", "codex", Some("/srv/work")).0, 201);
    let box_ = json!({"name": "box", "kind": "ssh", "destination": "me@box"});
    assert_eq!(bench.ask("POST", "/api/runners", &box_).0, 201);
    bench.command(put_key("gemini"));
    assert_eq!(bench.ask("POST", "/api/runners/box/grants", &json!({"provider": "gemini"})).0, 200);
    let (id, key, masked) = ("hub".into(), "HUB_KEY".into(), "k".into());
    let set = integrations::Command::SetCredential { id, key, sealed: sealed(), masked };
    bench.command(Command::Integrations(set));
    let ended = bench.agent("ended");
    bench.exits(ended, 0);
    let one = bench.agent("one");
    bench.agent("wanted");
    bench.ask("POST", "/api/agents/wanted/attach", &json!({}));
    let new = approvals::NewApproval { agent: Some(one), action: approvals::Action::question("may I?") };
    let (approval, _) = bench.with(|all, cx| approvals::request(all, cx, new)).unwrap();
    let quote = "let a = 1;".to_owned();
    let (path, text) = ("src/a.rs".to_owned(), "why?".to_owned());
    let new =
        comments::New { agent: one, path, line: 1, last_line: 1, side: comments::Side::New, quote, text };
    bench.command(Command::Comments(comments::Command::Add(Box::new(new))));
    let body = json!({"say": "allow", "file": "src/a.rs", "for": "project"});
    let may = word(&bench.post("/api/rules", &body)["rule"]["id"]);
    webhooks_of(&mut bench);
    let plan = plan_of(&mut bench);
    World { bench, approval: approval.to_string(), gateway, rule, may, plan }
}

/// A recommended team that was not launched, and the id of a plan that is blocked.
fn plan_of(bench: &mut Bench) -> String {
    let planner = bench.agent("planner-1");
    let file = r#"{"agents": [{"role": "api", "prompt": "go"}]}"#.to_owned();
    let file = Some(Ok((file.clone(), file)));
    bench.apply(Event::Teams(teams::Report { planner, file }));
    let agents = json!([{"role": "dev", "name": "crashes", "provider": "script", "prompt": "x"}]);
    let body = json!({ "agents": agents });
    let (agents, _) = teams::plan::parse(body.as_object().unwrap(), teams::plan::From::Caller).unwrap();
    let launch = teams::phases::Launch { agents: Some(agents), ..teams::phases::Launch::default() };
    bench.command(Command::Teams(teams::Command::Launch(Box::new(launch))));
    for _ in 0..2 {
        let id = bench.state.agents.find("crashes").unwrap().id;
        bench.exits(id, 3);
    }
    let plan = &bench.state.teams.plans()[0];
    assert!(matches!(plan.phase, teams::phases::Phase::Blocked { .. }), "{plan:?}");
    plan.id.to_string()
}

/// One that is told of everything, and one that has given up a message.
fn webhooks_of(bench: &mut Bench) {
    for (id, name, events) in [(WebhookId(1), "hook", "*"), (WebhookId(2), "gone", "plan:done")] {
        let wish = webhooks::Wish {
            name: Some(name.into()),
            url: Some("https://example.org".into()),
            events: Some(vec![events.into()]),
            enabled: None,
        };
        bench.command(Command::Webhooks(webhooks::Command::Create(id, Box::new(wish), sealed())));
    }
    let does = Some(inlets::Does::Message("one".into()));
    let wish = inlets::Wish { name: Some("in".into()), does, ..inlets::Wish::default() };
    bench.command(Command::Inlets(inlets::Command::Create(WebhookId(3), Box::new(wish), sealed())));
    bench.post("/api/webhooks/gone/test", &Value::Null);
    let message = bench.effects.iter().find_map(|effect| match effect {
        Effect::Webhooks(webhooks::Order::Send(sending)) => Some(sending.message.clone()),
        _ => None,
    });
    let refusal = webhooks::Refusal { why: "status 410".into(), after: None, is_gone: true };
    let tried =
        webhooks::Report::Tried { webhook: WebhookId(2), message: message.unwrap(), outcome: Err(refusal) };
    bench.apply(Event::Webhooks(tried));
}

fn prices(source: &str) -> Value {
    let model = json!({"id": "a", "input": 1, "output": 1, "cacheRead": 1, "cacheCreation": 1});
    json!({"asOf": "1970-01-01", "source": source, "models": [model]})
}

fn word(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn put_key(name: &str) -> Command {
    let put = credentials::Command::Put { name: name.into(), sealed: sealed(), masked: "k".into() };
    Command::Credentials(put)
}

/// Every request that changes something that lasts: its route, its path below `/api`, its body.
fn cases(world: &World) -> Vec<(&'static str, String, Value)> {
    let agent = json!({"role": "dev", "provider": "script", "prompt": "x"});
    let (approval, gateway) = (&world.approval, &world.gateway);
    let say = json!({"message": "hello", "deliver": "idle"});
    let decided = json!({"id": approval, "decision": "approve"});
    let runner = json!({"name": "other", "kind": "ssh", "destination": "me@other"});
    let lock = json!({"agentId": "other", "operation": "o", "resources": ["x"]});
    let found = json!({"agentId": "one", "role": "dev", "trigger": "t", "fix": "f", "outcome": "success"});
    let none = Value::Null;
    let cases = vec![
        ("POST /api/agents/:id/instruct", "agents/one/instruct".into(), say),
        ("POST /api/agents/:id/comments/send", "agents/one/comments/send".into(), json!({})),
        ("PATCH /api/agents/:id/comments/:comment", "agents/one/comments/1".into(), json!({"done": true})),
        ("DELETE /api/agents/:id/comments/:comment", "agents/one/comments/1".into(), none.clone()),
        ("POST /api/agents/:id/attach", "agents/one/attach".into(), json!({})),
        ("DELETE /api/agents/:id/attach", "agents/wanted/attach".into(), none.clone()),
        ("POST /api/agents/:id/resume", "agents/ended/resume".into(), none.clone()),
        ("PATCH /api/agents/:id", "agents/one".into(), json!({"effort": "high"})),
        ("DELETE /api/agents/:id", "agents/ended".into(), none.clone()),
        ("POST /api/approvals", "approvals".into(), decided),
        ("POST /api/approvals/:id/approve", format!("approvals/{approval}/approve"), none.clone()),
        ("POST /api/approvals/:id/reject", format!("approvals/{approval}/reject"), none.clone()),
        ("POST /api/questions", "questions".into(), json!({"question": "why?"})),
        ("POST /api/rules", "rules".into(), json!({"say": "never", "file": "b", "for": "project"})),
        ("DELETE /api/rules/:id", format!("rules/{}", world.may), none.clone()),
        ("POST /api/coordination/declare", "coordination/declare".into(), lock),
        ("POST /api/coordination/complete", "coordination/complete".into(), json!({"agentId": "me"})),
        ("DELETE /api/credentials/:provider", "credentials/codex".into(), none.clone()),
        ("DELETE /api/accounts/:name", "accounts/work".into(), none.clone()),
        ("POST /api/runners", "runners".into(), runner),
        ("POST /api/runners/:name/grants", "runners/box/grants".into(), json!({"provider": "codex"})),
        ("DELETE /api/runners/:name/grants/:provider", "runners/box/grants/gemini".into(), none.clone()),
        ("POST /api/gateways", "gateways".into(), json!({"type": "slack"})),
        ("PATCH /api/gateways/:id", format!("gateways/{gateway}"), json!({"chatId": "8"})),
        ("DELETE /api/gateways/:id", format!("gateways/{gateway}"), none.clone()),
        ("PATCH /api/inlets/:id", "inlets/in".into(), json!({"enabled": false})),
        ("DELETE /api/inlets/:id", "inlets/in".into(), none.clone()),
        ("PATCH /api/webhooks/:id", "webhooks/hook".into(), json!({"events": ["plan:done"]})),
        ("DELETE /api/webhooks/:id", "webhooks/hook".into(), none.clone()),
        ("POST /api/webhooks/:id/test", "webhooks/hook/test".into(), none.clone()),
        ("POST /api/webhooks/:id/resend", "webhooks/gone/resend".into(), none.clone()),
        ("POST /api/gateways/:id/disconnect", format!("gateways/{gateway}/disconnect"), none.clone()),
        (
            "DELETE /api/gateways/:id/credentials/:key",
            format!("gateways/{gateway}/credentials/bot_token"),
            none.clone(),
        ),
        ("POST /api/integrations", "integrations".into(), json!({"id": "new", "command": "c", "env": []})),
        ("DELETE /api/integrations/:id", "integrations/hub".into(), none.clone()),
        (
            "DELETE /api/integrations/:id/credentials/:key",
            "integrations/hub/credentials/HUB_KEY".into(),
            none.clone(),
        ),
        ("POST /api/memory/constraints", "memory/constraints".into(), json!({"text": "No tabs"})),
        ("DELETE /api/memory/constraints/:hash", format!("memory/constraints/{}", world.rule), none.clone()),
        ("POST /api/memory/discoveries", "memory/discoveries".into(), found),
        ("POST /api/schedules", "schedules".into(), json!({"cron": "1 1 * * *", "agent": agent})),
        ("PATCH /api/schedules/:id", "schedules/tidy".into(), json!({"cron": "2 2 * * *"})),
        ("DELETE /api/schedules/:id", "schedules/tidy".into(), none.clone()),
        ("POST /api/schedules/:id/run", "schedules/tidy/run".into(), none.clone()),
        ("POST /api/schedules/:id/enable", "schedules/off/enable".into(), none.clone()),
        ("POST /api/schedules/:id/disable", "schedules/tidy/disable".into(), none.clone()),
        ("POST /api/prices", "prices".into(), prices("new")),
        ("DELETE /api/prices", "prices".into(), none.clone()),
        ("PATCH /api/config", "config".into(), json!({"maxAgents": 33})),
        ("POST /api/teams", "teams".into(), json!({"name": "other"})),
        ("PATCH /api/teams/:name", "teams/crew".into(), json!({"name": "renamed"})),
        ("DELETE /api/teams/:name", "teams/crew".into(), none),
    ];
    [cases, plan_cases(world)].concat()
}

fn plan_cases(world: &World) -> Vec<(&'static str, String, Value)> {
    vec![
        ("POST /api/plans/:id/retry", format!("plans/{}/retry", world.plan), json!({"phase": 1})),
        ("POST /api/plans/:id/skip", format!("plans/{}/skip", world.plan), json!({"phase": 1})),
        (
            "PATCH /api/recommended-team",
            "recommended-team".into(),
            json!({"agents": [{"role": "web", "prompt": "x"}]}),
        ),
    ]
}

/// What the state says, and what of it is written.
fn shown(bench: &Bench) -> String {
    format!("{:?}", bench.state)
}

/// Nothing is told or ordered of what the disk refuses.
fn assert_only_tried(effects: &[Effect], what: &str) {
    let is_quiet = |effect: &Effect| {
        matches!(effect, Effect::Put(..) | Effect::Append(..) | Effect::Remove(_) | Effect::Log(..))
    };
    let quiet = |effect: &&Effect| !is_quiet(effect);
    let loud: Vec<_> = effects.iter().filter(quiet).collect();
    assert!(loud.is_empty(), "{what}: {loud:?}");
}

#[test]
fn whatever_the_disk_refuses_is_not_in_force() {
    for at in 0..cases(&world()).len() {
        let mut world = world();
        let (route, path, body) = cases(&world).swap_remove(at);
        let (method, _) = route.split_once(' ').unwrap();
        let path = format!("/api/{path}");
        let bench = &mut world.bench;
        let before = shown(bench);
        bench.effects.clear();
        bench.disk = Some(Err("no space left".into()));
        let (status, answer) = bench.wish(method, &path, &body).expect(route);
        assert_eq!((status, &answer["code"]), (503, &json!("storage_unavailable")), "{route}: {answer}");
        assert_eq!(answer["inForce"], false, "{route}");
        assert!(shown(bench) == before, "{route} has left something");
        assert_only_tried(&bench.effects, route);
        bench.disk = Some(Ok(()));
        let answer = bench.wish(method, &path, &body);
        assert!(answer.as_ref().is_none_or(|(status, _)| *status < 300), "{route}: {answer:?}");
        assert!(shown(bench) != before, "{route} changes something once there is room");
    }
}

#[test]
fn commands_of_workers_that_the_disk_refuses_are_not_in_force() {
    let spawn =
        SpawnRequest { role: "dev".into(), provider: Some("script".into()), ..SpawnRequest::default() };
    for command in [Command::Agents(agents::Command::Spawn(Box::new(spawn))), put_key("claude-code")] {
        let mut bench = world().bench;
        let before = shown(&bench);
        bench.effects.clear();
        bench.disk = Some(Err("no space left".into()));
        let reply = bench.command(command.clone()).unwrap();
        assert_eq!(reply.status, 503, "{command:?}");
        assert!(shown(&bench) == before, "{command:?}");
        assert_only_tried(&bench.effects, "a command");
        bench.disk = Some(Ok(()));
        assert!(bench.command(command).unwrap().status < 300);
    }
}

#[test]
fn every_route_that_changes_something_is_looked_at() {
    let known: BTreeSet<String> = cases(&world()).iter().map(|(route, ..)| (*route).to_owned()).collect();
    let others: BTreeSet<String> = OTHERS.iter().map(|(route, _)| (*route).to_owned()).collect();
    let table = table();
    let writes = table.routes().iter().filter(|route| matches!(route.handler, Handler::Write(..)));
    let missing: Vec<String> = writes
        .map(|route| format!("{} {}", route.method, route.path))
        .filter(|route| !known.contains(route) && !others.contains(route))
        .collect();
    assert!(missing.is_empty(), "neither a case nor an exception: {missing:?}");
    let routes: BTreeSet<String> =
        table.routes().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let unknown: Vec<_> = others.iter().chain(&known).filter(|route| !routes.contains(*route)).collect();
    assert!(unknown.is_empty(), "no such routes: {unknown:?}");
}

/// Two changes wait; one is refused, the other is not, and something else has happened in between.
#[test]
fn a_refused_change_leaves_what_happened_meanwhile() {
    let mut world = world();
    let bench = &mut world.bench;
    bench.disk = None;
    let team = |name: &str| json!({"name": name});
    assert!(bench.wish("POST", "/api/teams", &team("first")).is_none(), "it waits for the disk");
    assert!(bench.wish("POST", "/api/teams", &team("second")).is_none());
    let calls: Vec<_> = bench.state.unwritten.iter().map(|change| change.call).collect();
    let names = |text: &[u8]| {
        let stored: Value = serde_json::from_slice(text).unwrap();
        stored["teams"].to_string()
    };
    let written = names(&encode(Document::Teams, &bench.state).unwrap().unwrap());
    assert!(written.contains("first") && written.contains("second"), "both are on their way: {written}");
    let crew = bench.state.teams.find("crew").unwrap().id;
    bench.with(|all, _| assert!(all.teams.find("first").is_err(), "{crew} alone is shown"));
    let one = bench.state.agents.find("one").unwrap().id;
    bench.exits(one, 0);
    let refused = bench.apply(Event::OnDisk(calls[0], Err("no space left".into()))).unwrap();
    let granted = bench.apply(Event::OnDisk(calls[1], Ok(()))).unwrap();
    assert_eq!((refused.status, granted.status), (503, 201));
    assert!(bench.state.teams.find("first").is_err() && bench.state.teams.find("second").is_ok());
    assert!(!bench.state.agents.get(one).unwrap().status.is_live(), "what happened meanwhile stays");
    let written = names(&encode(Document::Teams, &bench.state).unwrap().unwrap());
    assert!(!written.contains("first") && written.contains("second"), "{written}");
    assert_eq!(bench.audited("change.withdrawn").len(), 1);
}

/// An account is chosen by the state as it is when the disk has the wish; where that is another one than was
/// written, it is written again before anybody is told.
#[test]
fn what_came_to_something_else_before_it_was_written_is_answered_when_that_is_on_disk() {
    let mut bench = Bench::with_programs();
    assert_eq!(bench.account("work", "codex", Some("/srv/work")).0, 201);
    bench.disk = None;
    for name in ["a", "b"] {
        let body = json!({"role": "dev", "name": name, "provider": "codex", "account": "auto"});
        assert!(bench.wish("POST", "/api/agents", &body).is_none(), "it waits for the disk");
    }
    let calls: Vec<_> = bench.state.unwritten.iter().map(|change| change.call).collect();
    let mut on_disk = |at: usize| {
        let mut cx = Context::new(bench.now, 7);
        let event = Event::OnDisk(calls[at], Ok(()));
        crate::assembly::apply::apply(&mut bench.state, &mut cx, event);
        let is_put =
            |effect: &Effect| matches!(effect, Effect::Put(Document::Agents, Durability::BeforeReply));
        let is_reply = |effect: &&Effect| matches!(effect, Effect::Reply(..) | Effect::ReplyStored(..));
        let reply = cx.effects().iter().find(is_reply).unwrap();
        (cx.effects().iter().any(is_put), matches!(reply, Effect::ReplyStored(..)))
    };
    let (first, second) = (on_disk(0), on_disk(1));
    let account = |name: &str| bench.state.agents.find(name).unwrap().account_name();
    assert_eq!((account("a"), account("b")), ("default", "work"), "both were tried with the first");
    assert_eq!(first, (false, true), "it is there already");
    assert_eq!(second, (true, false), "its account is to be on the disk before the answer");
}

/// The record of a resumed agent lets go of its waiting words when it runs: the log has them before it is
/// stored as on its way.
#[test]
fn words_are_in_the_log_before_the_document_that_no_longer_holds_them() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    let words = json!({"message": "said before", "deliver": "rotation"});
    assert_eq!(bench.ask("POST", "/api/agents/one/instruct", &words).0, 200);
    bench.apply(Event::Terminate);
    bench.exits(id, 0);
    bench.with(|all, _| std::sync::Arc::make_mut(&mut all.health).stopping = false);
    let tells = |effect: &Effect, words: &str| matches!(effect, Effect::Log(_, _, entry) if format!("{entry:?}").contains(words));
    let said = |effect: &Effect| tells(effect, "said before");
    let logged = |bench: &Bench| bench.effects.iter().filter(|effect| said(effect)).count();
    for disk in [Err("no space left".to_owned()), Ok(())] {
        bench.effects.clear();
        bench.disk = None;
        assert!(bench.wish("POST", "/api/agents/one/resume", &Value::Null).is_none(), "it waits");
        let put = |effect: &Effect| matches!(effect, Effect::Put(Document::Agents, _));
        let written = bench.effects.iter().position(put).unwrap();
        assert!(bench.effects[..written].iter().any(said), "{:?}", bench.effects);
        let call = bench.state.unwritten[0].call;
        bench.apply(Event::OnDisk(call, disk.clone()));
        assert_eq!(logged(&bench), 1, "once, not again when it is in force");
        let is_told = bench.effects.iter().any(|effect| tells(effect, "came to nothing"));
        assert_eq!(is_told, disk.is_err());
        let queue = &bench.state.agents.find("one").unwrap().queue;
        let waits = queue.iter().filter(|message| !message.in_prompt).count();
        assert_eq!(waits, usize::from(disk.is_err()), "a refused resume leaves them waiting");
    }
}

/// While the first of two changes waits, what is written has no room for the second; then the disk refuses
/// the first. The second must not be in force, for it was never written.
#[test]
fn what_was_left_out_of_what_was_written_is_not_in_force() {
    let mut bench = Bench::new();
    bench.disk = None;
    let lock = |who: &str| json!({"agentId": who, "operation": "o", "resources": ["db"]});
    for who in ["a", "b"] {
        assert!(bench.wish("POST", "/api/coordination/declare", &lock(who)).is_none());
    }
    let calls: Vec<_> = bench.state.unwritten.iter().map(|change| change.call).collect();
    let (_, left_out) = to_be_stored(&bench.state);
    assert_eq!(left_out.into_iter().collect::<Vec<_>>(), [calls[1]]);
    let refused = bench.apply(Event::OnDisk(calls[0], Err("no space left".into()))).unwrap();
    let left = bench.apply(Event::OnDisk(calls[1], Err(LEFT_OUT.into()))).unwrap();
    assert_eq!((refused.status, left.status), (503, 503));
    assert_eq!(bench.state.coordination.iter().count(), 0);
}

/// What was left out, and is not granted by the state as it has become either, is judged and answered once.
#[test]
fn what_was_left_out_and_comes_to_nothing_is_answered_once() {
    let mut bench = Bench::new();
    bench.disk = None;
    let lock = |who: &str| json!({"agentId": who, "operation": "o", "resources": ["db"]});
    for who in ["a", "b"] {
        assert!(bench.wish("POST", "/api/coordination/declare", &lock(who)).is_none());
    }
    let calls: Vec<_> = bench.state.unwritten.iter().map(|change| change.call).collect();
    let granted = bench.apply(Event::OnDisk(calls[0], Ok(()))).unwrap();
    let left = bench.apply(Event::OnDisk(calls[1], Err(LEFT_OUT.into()))).unwrap();
    assert_eq!((granted.status, left.status), (200, 423));
}

/// What was wished first is granted first; the other is judged by the state as it has become.
#[test]
fn of_two_changes_that_exclude_each_other_one_is_granted() {
    let mut bench = Bench::new();
    bench.disk = None;
    let lock = |who: &str| json!({"agentId": who, "operation": "o", "resources": ["db"]});
    for who in ["a", "b"] {
        assert!(bench.wish("POST", "/api/coordination/declare", &lock(who)).is_none());
    }
    let calls: Vec<_> = bench.state.unwritten.iter().map(|change| change.call).collect();
    let statuses = calls.into_iter().map(|call| bench.apply(Event::OnDisk(call, Ok(()))).unwrap().status);
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 423]);
    let written = encode(Document::Locks, &bench.state).unwrap().unwrap();
    let written = String::from_utf8(written).unwrap();
    assert!(written.contains("\"a\"") && !written.contains("\"b\""), "{written}");
}

#[test]
fn an_agent_is_ended_whatever_the_disk_says() {
    let mut world = world();
    let bench = &mut world.bench;
    bench.disk = Some(Err("no space left".into()));
    bench.effects.clear();
    assert!(
        bench.wish("DELETE", "/api/agents/one", &Value::Null).is_none(),
        "it is answered when it has ended"
    );
    let stops = |effect: &Effect| matches!(effect, Effect::Run(_, agents::RunOrder::Stop));
    assert!(bench.effects.iter().any(stops));
}

/// A daemon that ends waits for what is on its way, so that nothing is in force that nobody was told of.
#[test]
fn the_end_waits_for_changes_on_their_way() {
    let mut bench = Bench::new();
    bench.disk = None;
    assert!(bench.wish("POST", "/api/teams", &json!({"name": "late"})).is_none());
    let call = bench.state.unwritten[0].call;
    let exits = |bench: &Bench| bench.effects.iter().any(|effect| matches!(effect, Effect::Exit));
    bench.apply(Event::Terminate);
    assert!(!exits(&bench));
    let reply = bench.apply(Event::OnDisk(call, Ok(()))).unwrap();
    assert_eq!(reply.status, 503, "the daemon is stopping");
    assert!(exits(&bench));
    let written = encode(Document::Teams, &bench.state).unwrap().unwrap();
    assert!(!String::from_utf8(written).unwrap().contains("late"));
}

#[test]
fn the_disk_refuses_what_becomes_of_a_pairing() {
    let mut bench = Bench::new();
    let peers = json!({"version": 1, "peers": [{
        "id": "ab", "name": "other", "url": "http://127.0.0.1:1", "publicKey": "00".repeat(32),
        "pairedAt": "2026-01-01T00:00:00.000Z",
    }]});
    let stored = serde_json::from_value(peers).unwrap();
    bench.state.federation = std::sync::Arc::new(crate::federation::State::restore(stored));
    let before = shown(&bench);
    bench.disk = Some(Err("no space left".into()));
    assert_eq!(bench.ask("DELETE", "/api/federation/peers/other", &Value::Null).0, 503);
    assert!(shown(&bench) == before);
    bench.disk = Some(Ok(()));
    assert_eq!(bench.ask("DELETE", "/api/federation/peers/other", &Value::Null).0, 200);
}
