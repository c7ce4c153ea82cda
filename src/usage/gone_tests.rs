//! The accounts of removed agents: few are kept by themselves, all are counted.

use super::gone::MAX_GONE;
use super::restore;
use super::tests::{balances, feed, get, sum, usage};
use crate::core::{Document, Durability, Effect};
use crate::testing::Bench;
use serde_json::{Value, json};

#[test]
fn accounts_are_bounded_and_what_is_joined_still_counts() {
    let mut bench = Bench::new();
    let extra = 5;
    for n in 0..MAX_GONE + extra {
        let id = bench.agent(&format!("a{n}"));
        feed(&mut bench, id, vec![usage(1, 0)]);
        bench.exits(id, 0);
        bench.ask("DELETE", &format!("/api/agents/a{n}"), &Value::Null);
    }
    assert_eq!(bench.state.usage.accounts().count(), 0);
    assert_eq!(bench.state.usage.gone().last().count(), MAX_GONE);
    let total = u64::try_from(MAX_GONE + extra).unwrap();
    balances(&mut bench, total);
    let summary = get(&mut bench, "/api/tokens/summary");
    let named = |name: &str| {
        let rows = summary["perAgent"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).map(|row| row["used"].as_u64().unwrap())
    };
    assert_eq!(named("earlier agents"), Some(extra as u64));
    assert_eq!((named("a4"), named("a5")), (None, Some(1)), "the oldest were joined");
    let teams = get(&mut bench, "/api/tokens/by-team");
    assert_eq!(sum(&teams["teams"], "agentCount"), total);
    restarts(&mut bench);
    balances(&mut bench, total);
    assert_eq!(get(&mut bench, "/api/tokens/summary"), summary);
    assert_eq!(get(&mut bench, "/api/tokens/by-team"), teams);
}

/// Behind the record nothing is left that could tell what its account is short of.
#[test]
fn an_account_is_closed_on_disk_before_its_record_is_said_to_be_gone() {
    let mut bench = Bench::new();
    let id = bench.agent("dev");
    feed(&mut bench, id, vec![usage(1, 0)]);
    bench.exits(id, 0);
    bench.effects.clear();
    assert_eq!(bench.ask("DELETE", "/api/agents/dev", &Value::Null).0, 200);
    let is_it = |effect: &Effect| matches!(effect, Effect::Put(Document::Usage, Durability::BeforeReply));
    assert!(bench.effects.iter().any(is_it));
}

/// Writes the ledger and reads it again.
fn restarts(bench: &mut Bench) {
    let written = serde_json::to_vec(&bench.state.usage.stored()).unwrap();
    let stored = serde_json::from_slice(&written).unwrap();
    let now = bench.now;
    bench.with(|all, _| restore(all, stored, now));
}

#[test]
fn a_ledger_with_a_thousand_accounts_of_removed_agents_is_taken_over_and_joined() {
    let mut bench = Bench::new();
    let id = bench.agent("one");
    feed(&mut bench, id, vec![usage(3, 0)]);
    let mut written = json!(bench.state.usage.stored());
    let account = written["accounts"][0].clone();
    let accounts = written["accounts"].as_array_mut().unwrap();
    for n in 1..=1_000_u64 {
        let mut account = account.clone();
        account[0] = json!(format!("{n:08x}"));
        account[1]["lastUsed"] = json!(n);
        account[1]["name"] = json!(format!("past-{n}"));
        accounts.push(account);
    }
    let stored = serde_json::from_value(written).unwrap();
    let now = bench.now;
    bench.with(|all, _| restore(all, stored, now));
    balances(&mut bench, 3 * 1_001);
    let last = bench.state.usage.gone().last().map(|closed| closed.account.name.clone());
    let last: Vec<String> = last.collect();
    assert_eq!((last.len(), last[0].as_str()), (MAX_GONE, "past-901"), "the oldest were joined");
    let teams = get(&mut bench, "/api/tokens/by-team");
    assert_eq!(sum(&teams["teams"], "agentCount"), 1_001);
    assert_eq!(json!(bench.state.usage.stored())["accounts"].as_array().unwrap().len(), MAX_GONE + 1);
}

/// One of many lives is still one agent of its team.
#[test]
fn an_agent_that_was_joined_counts_once_in_its_team() {
    let mut bench = Bench::new();
    for n in 0..=MAX_GONE {
        let name = format!("a{n}");
        let id = bench.agent(&name);
        feed(&mut bench, id, vec![usage(1, 0)]);
        let id = if n == 0 { bench.rotates(&name) } else { id };
        feed(&mut bench, id, vec![usage(1, 0)]);
        bench.exits(id, 0);
        bench.ask("DELETE", &format!("/api/agents/{name}"), &Value::Null);
    }
    let teams = get(&mut bench, "/api/tokens/by-team");
    assert_eq!(sum(&teams["teams"], "agentCount"), MAX_GONE as u64 + 1);
}
