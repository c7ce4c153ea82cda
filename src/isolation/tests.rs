//! What git prints, read; what the core does with a merge that is done.

use super::*;
use crate::agents::SpawnRequest;
use crate::core::Command as Wish;
use crate::testing::Bench;
use std::time::Duration;

#[test]
fn changes_are_read_with_their_lines_renames_and_binary_files() {
    let names = "M\0src/a.rs\0A\0new file.txt\0D\0old\0R087\0was\0is\0T\0link\0";
    let numbers = "3\t1\tsrc/a.rs\x005\t0\tnew file.txt\x000\t9\told\x002\t2\t\0was\0is\0-\t-\tlink\0";
    let told: Vec<_> = parse_changes(names, numbers)
        .into_iter()
        .map(|c| (c.path, c.status, c.from, c.added, c.removed, c.binary))
        .collect();
    let path = |text: &str| text.to_owned();
    assert_eq!(
        told,
        [
            (path("src/a.rs"), "modified", None, 3, 1, false),
            (path("new file.txt"), "added", None, 5, 0, false),
            (path("old"), "deleted", None, 0, 9, false),
            (path("is"), "renamed", Some(path("was")), 2, 2, false),
            (path("link"), "retyped", None, 0, 0, true),
        ]
    );
    assert_eq!(parse_changes("", ""), []);
    assert_eq!(parse_changes("M", "x"), [], "what is cut is left out");
}

#[test]
fn a_status_tells_what_is_staged_and_both_names_of_a_rename() {
    let text = " M a b\0M  staged\0?? new\0R  is\0was\0";
    let files = [("a b", false), ("staged", true), ("new", false), ("is", true), ("was", true)];
    assert_eq!(parse_status(text), files.map(|(path, staged)| (path.to_owned(), staged)));
}

/// A running agent with a worktree.
fn isolated(bench: &mut Bench) -> AgentId {
    let request = SpawnRequest {
        role: "dev".into(),
        name: Some("iso".into()),
        provider: Some("script".into()),
        isolation: crate::agents::Isolation::Worktree,
        worktree: Some(".svc/worktrees/dev-1".into()),
        ..SpawnRequest::default()
    };
    bench.command(Wish::Agents(agents::Command::Spawn(Box::new(request))));
    bench.state.agents.find("iso").unwrap().id
}

fn merged(bench: &mut Bench, agent: AgentId, commit: Option<&str>, removes: bool) -> Value {
    let change = |n: usize| Change { path: format!("f{n}"), status: "added", ..Change::default() };
    let merged = Merged {
        agent,
        commit: commit.map(Into::into),
        branch: "svc/dev-1".into(),
        into: "main".into(),
        files: (0..30).map(change).collect(),
        removes,
        reply: json!({"merged": commit.is_some()}),
    };
    let reply = bench.command(Wish::Isolation(Command::Merged(Box::new(merged)))).unwrap();
    assert_eq!(reply.status, 200);
    serde_json::from_slice(reply.body.bytes()).unwrap()
}

#[test]
fn a_merge_is_told_and_audited_once_with_a_bounded_list_of_files() {
    let mut bench = Bench::new();
    let agent = isolated(&mut bench);
    merged(&mut bench, agent, None, false);
    assert!(bench.notices("agent:merged").is_empty() && bench.audited("agent.merge").is_empty());
    merged(&mut bench, agent, Some("c0ffee"), false);
    let told = bench.notices("agent:merged");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["agentName"], "iso");
    assert_eq!((&told[0]["commit"], &told[0]["fileCount"]), (&json!("c0ffee"), &json!(30)));
    assert_eq!(told[0]["files"].as_array().unwrap().len(), MAX_NAMED_FILES);
    let entry = &bench.audited("agent.merge")[0];
    assert_eq!((&entry["actor"], &entry["into"]), (&json!("operator"), &json!("main")));
}

#[test]
fn a_worktree_is_let_go_only_when_its_agent_has_ended() {
    let mut bench = Bench::new();
    let agent = isolated(&mut bench);
    let reply = merged(&mut bench, agent, Some("c0ffee"), true);
    assert_eq!(reply["worktreeRemoved"], false, "{reply}");
    assert!(bench.state.agents.get(agent).unwrap().worktree.is_some());
    bench.apply(crate::core::Event::Run(
        agent,
        crate::agents::report::RunReport::Started { pid: 1, start_ticks: 1 },
    ));
    bench.exits(agent, 0);
    bench.pass(Duration::from_secs(1));
    let reply = merged(&mut bench, agent, Some("c0ffee"), true);
    assert_eq!(reply["worktreeRemoved"], true, "{reply}");
    let record = bench.state.agents.get(agent).unwrap();
    assert_eq!((record.worktree.as_deref(), record.isolation), (None, crate::agents::Isolation::Shared));
    assert_eq!(bench.audited("agent.worktree_removed").len(), 1);
}

#[test]
fn only_a_person_merges() {
    let table = crate::assembly::routes::table();
    let route = table.routes().iter().find(|route| route.path == "/api/agents/:id/merge").unwrap();
    let handler = format!("{:?}", route.handler);
    assert!(handler.starts_with("Work(OperatorOnly"), "{handler}");
}
