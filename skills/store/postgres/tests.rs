//! The contract on a real `PostgreSQL`, and what is particular to it: migrations, backups, the shared limit,
//! a server that goes away.

use super::*;
use crate::store::contract::{self, client, draft};
use cluster::Cluster;
use serde_json::json;
use std::sync::Arc;

#[allow(dead_code, reason = "the integration tests use another part")]
#[path = "../../../tests/support/postgres.rs"]
mod cluster;

#[test]
fn decisions_5_the_contract_suite_passes_on_postgres() {
    let Some(cluster) = Cluster::start() else { return };
    contract::all(&|| Arc::new(Postgres::open(&cluster.database().1).unwrap()));
}

#[test]
fn decisions_5_what_was_written_is_there_after_opening_again_and_a_newer_database_is_refused() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let key = {
        let store = Postgres::open(&url).unwrap();
        store.create(draft("Kept", &json!({})), Time(1)).unwrap();
        store.client_key()
    };
    let store = Postgres::open(&url).unwrap();
    assert_eq!(store.changes_since(0).unwrap().skills[0].id, "kept");
    assert_eq!(store.client_key(), key, "clients keep their hashes, in all instances");
    for sql in ["UPDATE events SET kind = 'x'", "DELETE FROM events", "TRUNCATE events"] {
        let caught = format!(
            "DO $$ BEGIN {sql}; RAISE EXCEPTION 'done'; EXCEPTION WHEN raise_exception THEN \
             ASSERT sqlerrm = 'events are append-only', sqlerrm; END $$"
        );
        cluster.psql(&name, &["--command", &caught]);
    }
    cluster.psql(&name, &["--command", "UPDATE meta SET number = 99 WHERE key = 'version'"]);
    let error = Postgres::open(&url).err().unwrap().to_string();
    assert!(error.contains("version 99"), "{error}");
    assert!(Postgres::open("postgresql://nobody@%2Fnonexistent/x").is_err());
    assert!(Postgres::open("nonsense").is_err());
}

#[test]
fn decisions_4_a_backup_is_whole_while_writes_go_on_and_restores_by_psql() {
    let Some(cluster) = Cluster::start() else { return };
    let store = Postgres::open(&cluster.database().1).unwrap();
    store.take_in(crate::seed::all().unwrap(), Time(1)).unwrap();
    let file = std::env::temp_dir().join(format!("svc-postgres-backup-{}.sql", std::process::id()));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..50 {
                let hard = json!({"content": "a\t\\.\n\\.\nb\\N"});
                store.create(draft("Going On", &hard), Time(1)).unwrap();
            }
        });
        store.backup(&file).unwrap();
        writer.join().unwrap();
    });
    store.backup(&file).unwrap();
    let (name, url) = cluster.database();
    cluster.psql(&name, &["--single-transaction", "--file", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let restored = Postgres::open(&url).unwrap();
    assert_eq!(restored.changes_since(0).unwrap(), store.changes_since(0).unwrap());
    assert_eq!(restored.client_key(), store.client_key());
    restored.create(draft("Further", &json!({})), Time(2)).unwrap();
}

#[test]
fn must_do_2_the_public_limit_is_shared_by_all_instances() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, url) = cluster.database();
    let stores = [Postgres::open(&url).unwrap(), Postgres::open(&url).unwrap()];
    let passed = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..16)
            .map(|n| {
                let store = &stores[n % 2];
                scope.spawn(move || {
                    let verdicts = (0..5).map(|_| store.count_request(client(1), 60).unwrap().unwrap());
                    verdicts.filter(|verdict| verdict.passes).count()
                })
            })
            .collect();
        askers.into_iter().map(|asker| asker.join().unwrap()).sum::<usize>()
    });
    assert_eq!(passed, 60, "of 80 at once");
    for store in &stores {
        let verdict = store.count_request(client(1), 60).unwrap().unwrap();
        assert_eq!((verdict.passes, verdict.remaining), (false, 0));
        assert!((1..=60_000).contains(&verdict.reset_ms), "{verdict:?}");
    }
    assert_eq!(stores[0].count_request(client(2), 60).unwrap().unwrap().remaining, 59, "another client");
    stores[0].prune(Time(1)).unwrap();
    assert!(!stores[1].count_request(client(1), 60).unwrap().unwrap().passes, "what holds is not forgotten");
}

#[test]
fn a_window_of_the_shared_limit_moves_on() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let store = Postgres::open(&url).unwrap();
    for _ in 0..2 {
        assert!(store.count_request(client(1), 2).unwrap().unwrap().passes);
    }
    assert!(!store.count_request(client(1), 2).unwrap().unwrap().passes);
    let older = |index: u8, ms: u32| {
        let sql = format!("UPDATE request_windows SET times[{index}] = times[{index}] - {ms}");
        cluster.psql(&name, &["--command", &sql]);
    };
    older(1, 60_000);
    let verdict = store.count_request(client(1), 2).unwrap().unwrap();
    assert!(verdict.passes, "the first has left the window, the second has not");
    assert!(!store.count_request(client(1), 2).unwrap().unwrap().passes);
    older(1, 60_000);
    older(2, 60_000);
    store.prune(Time(1)).unwrap();
    assert_eq!(cluster.psql(&name, &["--command", "SELECT count(*) FROM request_windows"]), "0");
}

#[test]
fn a_server_that_goes_away_is_503_and_comes_back() {
    let Some(cluster) = Cluster::start() else { return };
    let store = Postgres::open(&cluster.database().1).unwrap();
    store.create(draft("Before", &json!({})), Time(1)).unwrap();
    cluster.crash();
    let error = store.create(draft("Meanwhile", &json!({})), Time(2)).unwrap_err();
    assert_eq!(svc::api::Problem::from(error).status, 503);
    assert!(store.generation().is_err() && store.health().is_err());
    cluster.resume();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while store.create(draft("After", &json!({})), Time(3)).is_err() {
        assert!(std::time::Instant::now() < deadline, "it does not come back");
    }
    let skills = store.changes_since(0).unwrap().skills;
    let ids: Vec<&str> = skills.iter().map(|skill| skill.id.as_str()).collect();
    assert_eq!(ids, ["before", "after"], "what failed has left nothing");
    assert_eq!(store.health().unwrap(), None);
}
