//! The bridge without a process: wishes and facts in, replies, orders and audit entries out.

use super::*;
use crate::assembly::apply::apply;
use crate::core::Event;
use crate::testing::Bench;
use std::time::Duration;

mod who_calls_what;
use who_calls_what::attached;

/// A core with an integration `hub` of the operator's own whose tool `send` is gated.
struct Rig {
    bench: Bench,
    last_call: u64,
    /// Effects looked at so far.
    seen: usize,
    /// What the disk says to whoever waits for it; `None` while it is slow.
    disk: Option<std::result::Result<(), String>>,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self { bench: Bench::new(), last_call: 1000, seen: 0, disk: Some(Ok(())) };
        let body = json!({"id": "hub", "command": "hub-server", "env": [], "gatedTools": ["send"]});
        let (status, record) = rig.bench.ask("POST", "/api/integrations", &body);
        assert_eq!(status, 201, "{record}");
        // Its tools were listed before, and it calls none of them destructive.
        edit(&mut rig.bench.state).destructive.insert("hub".into(), Arc::default());
        rig
    }

    fn event(&mut self, event: Event) {
        let actor = self.bench.actor.clone();
        let before = self.bench.effects.len();
        self.bench.with(|all, cx| {
            apply(all, cx, event);
            cx.actor = actor;
        });
        let awaits = |effect: &Effect| if let Effect::AwaitDisk(call) = effect { Some(*call) } else { None };
        let awaited: Vec<CallId> = self.bench.effects[before..].iter().filter_map(awaits).collect();
        for call in awaited {
            if let Some(outcome) = self.disk.clone() {
                self.event(Event::OnDisk(call, outcome));
            }
        }
    }

    fn wish(&mut self, command: Command) -> CallId {
        self.last_call += 1;
        let call = CallId(self.last_call);
        let actor = self.bench.actor.clone();
        self.event(Event::Call(call, actor, crate::core::Command::Integrations(command)));
        call
    }

    fn exec_of(&mut self, id: &str, tool: &str, params: Value, approval: Option<&str>) -> CallId {
        self.wish(Command::Exec(Box::new(exec::Request {
            id: id.into(),
            tool: tool.into(),
            params: Arc::new(params),
            approval_id: approval.map(ToOwned::to_owned),
            agent: None,
        })))
    }

    fn exec(&mut self, tool: &str) -> CallId {
        self.exec_of("hub", tool, json!({"n": 1}), None)
    }

    fn report(&mut self, report: Report) {
        self.event(Event::Integrations(report));
    }

    fn ready(&mut self, run: RunId) {
        self.report(Report::Ready(run, "2025-06-18".into(), "hub 1".into()));
    }

    fn pass(&mut self, length: Duration) {
        let until = self.bench.now + length;
        while let Some((at, _)) = self.bench.state.timers.next().filter(|(at, _)| *at <= until) {
            self.bench.now = self.bench.now.max(at);
            let now = self.bench.now;
            if let Some(timer) = Arc::make_mut(&mut self.bench.state.timers).take_due(now) {
                self.event(Event::Timer(timer));
            }
        }
        self.bench.now = until;
    }

    /// Status and body of the one reply to a call; `None` while it waits.
    fn reply(&self, call: CallId) -> Option<(u16, Value)> {
        let mut replies = self.bench.effects.iter().filter_map(|effect| match effect {
            Effect::Reply(to, reply) | Effect::ReplyStored(to, reply) if *to == call => Some(reply.http()),
            _ => None,
        });
        let reply = replies.next()?;
        assert!(replies.next().is_none(), "two replies to one call");
        Some((reply.status, serde_json::from_slice(reply.body.bytes()).unwrap_or_default()))
    }

    /// The orders given since the last look, as text.
    fn orders(&mut self) -> Vec<String> {
        let new = &self.bench.effects[self.seen..];
        self.seen = self.bench.effects.len();
        new.iter()
            .filter_map(|effect| if let Effect::Integrations(order) = effect { Some(order) } else { None })
            .map(|order| match order {
                Order::Start(run, _) => format!("start {}", run.0),
                Order::Ask(run, _, Ask::Tool { name, .. }) => format!("ask {} {name}", run.0),
                Order::Ask(run, _, Ask::Tools) => format!("ask {} for tools", run.0),
                Order::Cancel(run, _) => format!("cancel {}", run.0),
                Order::Stop(run) => format!("stop {}", run.0),
                Order::Install(order) => format!("install {}@{}", order.package, order.version),
                Order::Exchange(..) => "exchange".to_owned(),
                Order::Remove(id) => format!("remove {id}"),
            })
            .collect()
    }

    fn events(&self) -> Vec<String> {
        let entry = |effect: &Effect| match effect {
            Effect::Append(_, line) => serde_json::from_slice::<Value>(line).ok(),
            _ => None,
        };
        let all = self.bench.effects.iter().filter_map(entry);
        let name = |entry: Value| entry["event"].as_str().unwrap_or_default().to_owned();
        all.map(name).filter(|name| name.starts_with("integration.exec")).collect()
    }

    fn record(&mut self) -> Value {
        let (status, record) = self.bench.ask("GET", "/api/integrations/hub", &Value::Null);
        assert_eq!(status, 200);
        record
    }
}

const RESULT: &str = "fine";

fn result() -> Result<Value, String> {
    Ok(json!({"content": [{"type": "text", "text": RESULT}]}))
}

#[test]
fn exec_first_call_starts_the_server_and_concurrent_ones_join() {
    let mut rig = Rig::new();
    let first = rig.exec("echo");
    let second = rig.exec("echo");
    let tools = rig.wish(Command::Tools("hub".into()));
    assert_eq!(rig.orders(), ["start 1"], "exactly one start");
    rig.ready(RunId(1));
    assert_eq!(rig.orders(), ["ask 1 echo", "ask 1 echo", "ask 1 for tools"]);
    assert_eq!(rig.reply(first), None);
    rig.report(Report::Answered(RunId(1), second, result()));
    rig.report(Report::Answered(RunId(1), first, Ok(json!({"isError": true, "content": []}))));
    let list = json!([{"name": "send"}, {"name": "echo"}]);
    rig.report(Report::Answered(RunId(1), tools, Ok(list)));
    let body = json!({"result": {"content": [{"type": "text", "text": RESULT}]}});
    assert_eq!(rig.reply(second), Some((200, body)));
    let is_error = json!({"result": {"isError": true, "content": []}});
    assert_eq!(rig.reply(first), Some((200, is_error)), "decisions 11: isError is 200 as it is");
    let (_, tools) = rig.reply(tools).unwrap();
    assert_eq!(tools, json!({"tools": [{"name": "send", "gated": true}, {"name": "echo", "gated": false}]}));
    assert_eq!(rig.events(), ["integration.exec", "integration.exec"], "listing tools is not audited");
}

#[test]
fn exec_validation_comes_first_and_names_everything() {
    let mut rig = Rig::new();
    let bench = &mut rig.bench;
    let (status, body) = bench.ask("POST", "/api/integrations/hub/exec", &json!({"tool": 5, "params": []}));
    assert_eq!((status, body["errors"].as_array().map(Vec::len)), (400, Some(2)), "{body}");
    for id in ["github", "nonsense"] {
        let (status, body) =
            bench.ask("POST", &format!("/api/integrations/{id}/exec"), &json!({"tool": "x"}));
        assert_eq!((status, &body["code"]), (400, &json!("not_installed")), "{body}");
        assert!(body["error"].as_str().unwrap().contains(id));
        let (status, _) = bench.ask("GET", &format!("/api/integrations/{id}/tools"), &Value::Null);
        assert_eq!(status, 400);
    }
    for bad in [json!({}), json!({"tool": ""}), json!({"tool": "x", "approvalId": 1})] {
        assert_eq!(bench.ask("POST", "/api/integrations/hub/exec", &bad).0, 400, "{bad}");
    }
    assert!(rig.events().is_empty(), "a call that is not valid counts nowhere");
}

#[test]
fn exec_the_rate_limit_comes_before_the_gate_and_counts_every_validated_call() {
    let mut rig = Rig::new();
    for n in 0..30 {
        let call = rig.exec_of("hub", "send", json!({"n": n}), None);
        assert_eq!(rig.reply(call).unwrap().0, 202);
    }
    let call = rig.exec("send");
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!(status, 429);
    assert_eq!(body["error"], "Rate limit exceeded (30/min) for hub");
    assert_eq!(rig.events().last().unwrap(), "integration.exec.rate_limited");
    rig.pass(Duration::from_mins(1));
    let call = rig.exec("send");
    assert_eq!(rig.reply(call).unwrap().0, 202);
}

/// Approves or rejects a request and gives its id.
fn decided(rig: &mut Rig, decision: &str) -> String {
    let call = rig.exec("send");
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!((status, &body["requiresApproval"]), (202, &json!(true)), "{body}");
    assert!(body["message"].is_string());
    let id = body["approvalId"].as_str().unwrap().to_owned();
    let (status, _) = rig.bench.ask("POST", "/api/approvals", &json!({"id": id, "decision": decision}));
    assert_eq!(status, 200);
    id
}

#[test]
fn exec_a_gated_call_approved_once_runs_once() {
    let mut rig = Rig::new();
    let id = decided(&mut rig, "approve");
    assert!(rig.orders().is_empty(), "nothing runs before the decision");
    let other = rig.exec_of("hub", "send", json!({"n": 2}), Some(&id));
    let (status, body) = rig.reply(other).unwrap();
    assert_eq!((status, &body["code"]), (403, &json!("approval_mismatch")));
    let (first, second) = (
        rig.exec_of("hub", "send", json!({"n": 1}), Some(&id)),
        rig.exec_of("hub", "send", json!({"n": 1}), Some(&id)),
    );
    assert_eq!(rig.orders(), ["start 1"]);
    rig.ready(RunId(1));
    assert_eq!(rig.orders(), ["ask 1 send"], "one runs");
    let (status, body) = rig.reply(second).unwrap();
    assert_eq!((status, &body["code"]), (403, &json!("approval_used")));
    rig.report(Report::Answered(RunId(1), first, result()));
    assert_eq!(rig.reply(first).unwrap().0, 200);
    assert_eq!(rig.events(), ["integration.exec.blocked", "integration.exec"]);
}

#[test]
fn a_gated_call_runs_only_when_the_use_of_its_approval_is_on_disk() {
    let mut rig = Rig::new();
    let id = decided(&mut rig, "approve");
    rig.disk = None;
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    let write = |effect: &Effect| {
        matches!(effect, Effect::Put(Document::Approvals, Durability::BeforeReply) | Effect::AwaitDisk(_))
    };
    let order: Vec<bool> = rig.bench.effects.iter().filter(|e| write(e)).map(is_wait).collect();
    assert_eq!(order.last(), Some(&true), "it waits for what was put before");
    assert!(rig.orders().is_empty() && rig.reply(call).is_none(), "a crash here loses the call, not the use");
    let stored = serde_json::to_value(rig.bench.state.approvals.stored()).unwrap();
    assert!(stored["approvals"][0]["usedAt"].is_number(), "what is written says that it is used: {stored}");
    rig.event(Event::OnDisk(call, Ok(())));
    assert_eq!(rig.orders(), ["start 1"]);
    rig.event(Event::OnDisk(CallId(77), Ok(())));
    assert!(rig.orders().is_empty(), "a call that nobody knows");
}

fn is_wait(effect: &Effect) -> bool {
    matches!(effect, Effect::AwaitDisk(_))
}

#[test]
fn a_full_disk_refuses_a_gated_call_and_leaves_its_approval_good() {
    let mut rig = Rig::new();
    let id = decided(&mut rig, "approve");
    rig.disk = Some(Err("no space left".into()));
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!((status, &body["code"]), (503, &json!("storage_unavailable")));
    assert!(rig.orders().is_empty());
    rig.disk = Some(Ok(()));
    rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    assert_eq!(rig.orders(), ["start 1"], "once there is room, it runs");
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    assert_eq!(rig.reply(call).unwrap().1["code"], "approval_used");
}

#[test]
fn exec_rejected_is_403_unknown_is_404_and_pending_stays_202() {
    let mut rig = Rig::new();
    let id = decided(&mut rig, "reject");
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!((status, &body["code"]), (403, &json!("approval_rejected")));
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some("apr-00000000"));
    assert_eq!(rig.reply(call).unwrap().0, 404);
    let call = rig.exec("send");
    let (_, pending) = rig.reply(call).unwrap();
    let id = pending["approvalId"].as_str().unwrap().to_owned();
    let again = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    let (status, body) = rig.reply(again).unwrap();
    assert_eq!((status, &body["approvalId"], &body["status"]), (202, &json!(id), &json!("pending")));
    assert!(rig.orders().is_empty());
}

#[test]
fn exec_a_server_error_is_400_and_audited() {
    let mut rig = Rig::new();
    let call = rig.exec("echo");
    rig.ready(RunId(1));
    rig.report(Report::Answered(RunId(1), call, Err("fetch failed (-32603)".into())));
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!(status, 400);
    assert_eq!(body["error"], "integration hub: fetch failed (-32603)");
    assert_eq!(rig.events(), ["integration.exec.failed"]);
}

#[test]
fn limits_a_call_fails_after_30_s_and_its_late_reply_reaches_nobody() {
    let mut rig = Rig::new();
    let call = rig.exec("slow");
    rig.ready(RunId(1));
    rig.orders();
    rig.pass(Duration::from_millis(29_999));
    assert_eq!(rig.reply(call), None);
    rig.pass(Duration::from_millis(1));
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!((status, &body["code"]), (400, &json!("server_timeout")));
    assert_eq!(rig.orders(), ["cancel 1"]);
    rig.report(Report::Answered(RunId(1), call, result()));
    assert_eq!(rig.reply(call).unwrap().0, 400);
    assert_eq!(rig.events(), ["integration.exec.failed"], "the late answer is no success");
    assert!(rig.record()["running"].as_bool().unwrap(), "the server goes on");
}

#[test]
fn states_no_calls_for_ten_minutes_stop_the_server_and_the_next_call_starts_it() {
    let mut rig = Rig::new();
    let call = rig.exec("echo");
    rig.ready(RunId(1));
    rig.pass(Duration::from_secs(20));
    rig.report(Report::Answered(RunId(1), call, result()));
    rig.orders();
    rig.pass(Duration::from_millis(599_999));
    assert!(rig.orders().is_empty());
    rig.pass(Duration::from_millis(1));
    assert_eq!(rig.orders(), ["stop 1"]);
    let next = rig.exec("echo");
    assert!(rig.orders().is_empty(), "the old process is to be gone first");
    rig.report(Report::Exited(RunId(1), "it exited with code 0".into()));
    assert_eq!(rig.orders(), ["start 2"]);
    assert_eq!(rig.record()["lastError"], Value::Null, "an ordered end is no crash");
    rig.ready(RunId(2));
    rig.report(Report::Answered(RunId(2), next, result()));
    assert_eq!(rig.reply(next).unwrap().0, 200);
}

#[test]
fn states_three_crashes_in_a_row_fail_the_server_until_restart() {
    let mut rig = Rig::new();
    let crash = |rig: &mut Rig, run: u64| {
        let call = rig.exec("echo");
        assert_eq!(rig.orders(), [format!("start {run}")]);
        rig.ready(RunId(run));
        rig.report(Report::Exited(RunId(run), "it exited with code 0".into()));
        let (status, body) = rig.reply(call).unwrap();
        assert_eq!((status, &body["code"]), (400, &json!("server_crashed")), "{body}");
        rig.orders();
    };
    crash(&mut rig, 1);
    crash(&mut rig, 2);
    // A successful call resets the count; a list of tools does not.
    let (tools, call) = (rig.wish(Command::Tools("hub".into())), rig.exec("echo"));
    rig.ready(RunId(3));
    rig.report(Report::Answered(RunId(3), tools, Ok(json!([]))));
    rig.report(Report::Answered(RunId(3), call, result()));
    rig.report(Report::Exited(RunId(3), "signal 9 ended it".into()));
    rig.orders();
    assert_eq!(rig.record()["failed"], false);
    crash(&mut rig, 4);
    crash(&mut rig, 5);
    assert_eq!((&rig.record()["failed"], &rig.record()["status"]), (&json!(true), &json!("failed")));
    let call = rig.exec("echo");
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!((status, &body["code"]), (400, &json!("server_failed")), "{body}");
    assert!(rig.orders().is_empty());
    rig.pass(Duration::from_hours(10));
    let (status, _) = rig.bench.ask("GET", "/api/integrations/hub/tools", &Value::Null);
    assert_eq!(status, 400, "stays failed");
    let stored: Stored = serde_json::from_value(json!(rig.bench.state.integrations.stored())).unwrap();
    rig.bench.state.integrations = Arc::new(State::restore(stored));
    rig.exec("echo");
    assert_eq!(rig.orders(), ["start 1"], "the daemon was restarted");
}

#[test]
fn states_a_server_that_never_answers_initialize_is_ended_after_30_s_and_counts_as_a_crash() {
    let mut rig = Rig::new();
    for run in 1..=3 {
        let call = rig.exec("echo");
        assert_eq!(rig.orders(), [format!("start {run}")]);
        rig.pass(Duration::from_secs(30));
        let (status, body) = rig.reply(call).unwrap();
        assert_eq!((status, &body["code"]), (400, &json!("server_timeout")));
        assert_eq!(rig.orders(), [format!("stop {run}")]);
        rig.ready(RunId(run));
        assert_eq!(rig.record()["running"], false, "too late");
        rig.report(Report::Exited(RunId(run), "signal 15 ended it".into()));
    }
    assert_eq!(rig.record()["failed"], true);
}

#[test]
fn a_failed_server_does_not_use_an_approval_up() {
    let mut rig = Rig::new();
    let id = decided(&mut rig, "approve");
    for run in 1..=3 {
        rig.exec("echo");
        rig.report(Report::Exited(RunId(run), "no such file".into()));
    }
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    assert_eq!(rig.reply(call).unwrap().1["code"], "server_failed");
    let stored: Stored = serde_json::from_value(json!(rig.bench.state.integrations.stored())).unwrap();
    rig.bench.state.integrations = Arc::new(State::restore(stored));
    let call = rig.exec_of("hub", "send", json!({"n": 1}), Some(&id));
    assert_eq!(rig.reply(call), None, "it is on its way");
}

#[test]
fn decisions_4_an_agent_may_not_call_as_another() {
    let mut rig = Rig::new();
    let (a, b) = (attached(&mut rig, "a"), rig.bench.agent("b"));
    rig.bench.actor = Actor::Agent(a);
    let as_agent = |rig: &mut Rig, agent: Option<String>| {
        let request = exec::Request {
            id: "hub".into(),
            tool: "send".into(),
            params: Arc::new(json!({})),
            approval_id: None,
            agent,
        };
        let call = rig.wish(Command::Exec(Box::new(request)));
        rig.reply(call).unwrap()
    };
    for other in [b.to_string(), "b".into(), "nobody".into()] {
        let (status, body) = as_agent(&mut rig, Some(other));
        assert_eq!((status, &body["code"]), (403, &json!("agent_may_not")));
    }
    for own in [None, Some(a.to_string()), Some("a".into())] {
        assert_eq!(as_agent(&mut rig, own).0, 202);
    }
    let blocked = rig.bench.audited("integration.exec.blocked");
    assert!(blocked.iter().all(|entry| entry["agentId"] == json!(a)), "{blocked:?}");
    let (_, approvals) = rig.bench.ask("GET", "/api/approvals", &Value::Null);
    assert_eq!(approvals["pending"].as_array().map(Vec::len), Some(1), "folded");
    assert_eq!(approvals["pending"][0]["agentId"], json!(a));
}

#[test]
fn audit_entries_have_the_parameters_cut_to_200_characters() {
    let mut rig = Rig::new();
    let text = "ü".repeat(1000);
    rig.exec_of("hub", "send", json!({"text": text}), None);
    let entry = &rig.bench.audited("integration.exec.blocked")[0];
    assert_eq!(entry["params"].as_str().unwrap().chars().count(), 200);
    assert_eq!((&entry["integrationId"], &entry["tool"]), (&json!("hub"), &json!("send")));
}

#[test]
fn decisions_11_install_waits_for_npm_and_records_the_pinned_command() {
    let mut rig = Rig::new();
    let first = rig.wish(Command::Install("github".into(), None));
    let second = rig.wish(Command::Install("github".into(), None));
    assert_eq!(rig.orders(), ["install @modelcontextprotocol/server-github@2025.4.8"], "once");
    let (status, body) = rig.bench.ask("GET", "/api/integrations/github", &Value::Null);
    assert_eq!((status, &body["installed"], &body["installing"]), (200, &json!(false), &json!(true)));
    rig.pass(Duration::from_mins(1));
    for call in [first, second] {
        assert_eq!(rig.reply(call).unwrap().0, 202, "it takes long");
    }
    let third = rig.wish(Command::Install("github".into(), None));
    let program = ".svc/integrations/github/node_modules/.bin/mcp-server-github";
    let package = Package { program: program.into(), version: "2025.4.8".into() };
    rig.report(Report::Installed("github".into(), Ok(package)));
    let (status, body) = rig.reply(third).unwrap();
    assert_eq!((status, &body["installed"], &body["version"]), (200, &json!(true), &json!("2025.4.8")));
    assert_eq!(body["configured"], false, "its token is required");
    assert_eq!(rig.bench.audited("integration.install").len(), 1);
    rig.exec_of("github", "search_repositories", json!({}), None);
    let start = rig.bench.effects.iter().find_map(|effect| match effect {
        Effect::Integrations(Order::Start(_, spec)) => Some(spec),
        _ => None,
    });
    assert_eq!(start.unwrap().program, program);
    let again = rig.wish(Command::Install("github".into(), None));
    assert_eq!(rig.reply(again).unwrap().0, 200, "installed already");
    let unknown = rig.wish(Command::Install("nonsense".into(), None));
    assert_eq!(rig.reply(unknown).unwrap().0, 404);
}

#[test]
fn decisions_11_a_failed_installation_is_told_with_npms_words() {
    let mut rig = Rig::new();
    let call = rig.wish(Command::Install("gmail".into(), Some("1.0.0".into())));
    assert_eq!(rig.orders(), ["install @gongrzhe/server-gmail-autoauth-mcp@1.0.0"]);
    rig.report(Report::Installed("gmail".into(), Err("npm says: 404".into())));
    let (status, body) = rig.reply(call).unwrap();
    assert_eq!((status, &body["code"]), (502, &json!("install_failed")));
    assert!(body["error"].as_str().unwrap().contains("npm says: 404"));
    assert!(!rig.bench.state.integrations.is_installed("gmail"));
}

#[test]
fn decisions_11_delete_stops_the_server_and_forgets_the_integration() {
    let mut rig = Rig::new();
    let call = rig.exec("echo");
    rig.ready(RunId(1));
    rig.orders();
    let remove = rig.wish(Command::Remove("hub".into()));
    assert_eq!(rig.orders(), ["stop 1", "remove hub"]);
    assert_eq!(rig.reply(call).unwrap().0, 400);
    assert_eq!(rig.reply(remove), None);
    let late = rig.exec("echo");
    assert_eq!(rig.reply(late).unwrap().1["code"], "not_installed");
    rig.report(Report::Exited(RunId(1), "it exited with code 0".into()));
    rig.report(Report::Removed("hub".into(), Ok(())));
    assert_eq!(rig.reply(remove), Some((200, json!({"ok": true, "id": "hub"}))));
    let (status, _) = rig.bench.ask("GET", "/api/integrations/hub", &Value::Null);
    assert_eq!(status, 404);
    let unknown = rig.wish(Command::Remove("hub".into()));
    assert_eq!(rig.reply(unknown).unwrap().0, 404);
}

#[test]
fn decisions_11_custom_integrations_are_checked_field_by_field() {
    let mut rig = Rig::new();
    let bad = json!({"id": "A b", "args": "x", "env": [{"key": "K", "value": "v"}], "gatedTools": [1]});
    let (status, body) = rig.bench.ask("POST", "/api/integrations", &bad);
    assert_eq!(status, 400);
    let fields: Vec<_> = body["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    assert_eq!(json!(fields), json!(["id", "command", "env", "args", "gatedTools"]));
    for key in ["SVC_AGENT_ID", "LD_PRELOAD", "PATH", "A-B", ""] {
        let body = json!({"id": "x", "command": "y", "env": [key]});
        assert_eq!(rig.bench.ask("POST", "/api/integrations", &body).0, 400, "{key}");
    }
    let body = json!({"id": "github", "command": "x"});
    assert_eq!(rig.bench.ask("POST", "/api/integrations", &body).0, 409);
    let (status, list) = rig.bench.ask("GET", "/api/integrations", &Value::Null);
    assert_eq!((status, list.as_array().map(Vec::len)), (200, Some(32)));
    let hub = &list[31];
    assert_eq!(
        (&hub["id"], &hub["custom"], &hub["gatedTools"]),
        (&json!("hub"), &json!(true), &json!(["send"]))
    );
    for field in ["installed", "configured", "running", "failed"] {
        assert!(hub[field].is_boolean(), "{field}");
    }
}

#[test]
fn calls_that_wait_are_bounded() {
    let mut rig = Rig::new();
    for _ in 0..MAX_CALLS {
        rig.wish(Command::Tools("hub".into()));
    }
    let call = rig.wish(Command::Tools("hub".into()));
    assert_eq!(rig.reply(call).unwrap().0, 503);
    rig.report(Report::Exited(RunId(1), "gone".into()));
    let replies = rig.bench.effects.iter().filter(|effect| matches!(effect, Effect::Reply(..))).count();
    assert_eq!(replies, MAX_CALLS + 1, "each call has its reply");
    assert!(rig.bench.state.integrations.calls.is_empty());
}
