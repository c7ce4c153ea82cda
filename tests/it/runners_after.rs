//! What is done on another machine while nobody is at hand: agents that the clock starts there. Real sshd in
//! network namespaces.

use crate::runners::{Host, add, agent, check, counted, repository, said, wait_finished};
use serde_json::{Value, json};

#[test]
fn the_clock_starts_agents_on_another_machine_each_on_a_branch_of_its_own() {
    let Some(host) = Host::start() else { return };
    let daemon = host.daemon(repository(2, 5));
    add(&daemon, "box", "box");
    assert_eq!(check(&daemon, "box")["error"], Value::Null);
    let body = json!({"name": "nightly", "cron": "0 0 1 1 *", "agent": {"role": "dev", "provider": "script",
        "model": "counts", "prompt": "count", "runner": "box"}});
    daemon.post("/api/schedules", &body);
    let mut trees = Vec::new();
    for _ in 0..2 {
        let run = daemon.post("/api/schedules/nightly/run", &json!({}));
        let id = run["agentId"].as_str().unwrap().to_owned();
        wait_finished(&daemon, &id);
        assert_eq!(said(&daemon, &id), counted(2));
        let fetched = daemon.post(&format!("/api/agents/{id}/fetch"), &Value::Null);
        assert_eq!(fetched["commits"], 1, "{fetched:#}");
        trees.push(agent(&daemon, &id)["worktree"].as_str().unwrap().to_owned());
    }
    assert_ne!(trees[0], trees[1]);
    assert!(trees.iter().all(|tree| daemon.project.join(tree).join(".git").exists()), "{trees:?}");
}
