//! The contract on a real `PostgreSQL`, and what is particular to it: migrations, backups, the shared limit,
//! a server that goes away.

use super::*;
use crate::store::contract::{self, client, draft};
use crate::store::{ClientHash, Store};
use cluster::Cluster;
use serde_json::json;
use std::sync::Arc;
use svc_base::time::Time;

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
fn a_database_of_the_first_version_is_brought_up() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    cluster.psql(&name, &["--command", MIGRATIONS[0]]);
    cluster.psql(&name, &["--command", "INSERT INTO meta(key, number) VALUES ('version', 1)"]);
    let store = Postgres::open(&url).unwrap();
    assert_eq!(store.share_requests(&[(client(1), 1)]).unwrap(), [Elsewhere::default()]);
    let version = cluster.psql(&name, &["--command", "SELECT number FROM meta WHERE key = 'version'"]);
    assert_eq!(version, MIGRATIONS.len().to_string());
}

#[test]
fn must_do_2_instances_tell_each_other_sums_of_requests() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let stores = [(); 3].map(|()| Postgres::open(&url).unwrap());
    let counts = |store: &Postgres, told: &[(ClientHash, u32)]| -> Vec<u32> {
        store.share_requests(told).unwrap().iter().map(|elsewhere| elsewhere.count).collect()
    };
    assert_eq!(
        counts(&stores[0], &[(client(1), 5), (client(2), 1)]),
        [0, 0],
        "what is mine is not elsewhere"
    );
    assert_eq!(counts(&stores[0], &[(client(1), 2)]), [0]);
    assert_eq!(counts(&stores[1], &[(client(2), 0), (client(1), 10)]), [1, 7], "in the order of the clients");
    assert_eq!(counts(&stores[2], &[(client(1), 0), (client(3), 4)]), [17, 0]);
    let told = stores[2].share_requests(&[(client(1), 0)]).unwrap();
    assert!((58_000..=61_000).contains(&told[0].reset_ms), "{told:?}");
    assert_eq!(stores[0].share_requests(&[]).unwrap(), []);
    let rows = || cluster.psql(&name, &["--command", "SELECT count(*) FROM request_counts"]);
    let before: u32 = rows().parse().unwrap();
    stores[0].prune(Time(1)).unwrap();
    assert_eq!(rows(), before.to_string(), "what holds is not forgotten");
    // The instances' clocks do not matter, so that time goes by in the table.
    cluster.psql(&name, &["--command", "UPDATE request_counts SET second = second - 40"]);
    assert_eq!(counts(&stores[2], &[(client(1), 0)]), [17]);
    cluster.psql(&name, &["--command", "UPDATE request_counts SET second = second - 40"]);
    assert_eq!(counts(&stores[2], &[(client(1), 0)]), [0], "the window moves on");
    stores[0].prune(Time(1)).unwrap();
    assert_eq!(rows(), "0");
}

#[test]
fn a_statement_that_was_refused_leaves_the_connection_usable_and_a_broken_one_is_replaced() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, url) = cluster.database();
    let server = Server::new(&url).unwrap();
    let mut connection = Connection::default();
    connection.client(&server).unwrap();
    let code = |connection: &mut Connection, sql: &str| {
        let error = connection.opened().unwrap().query(sql, &[]).unwrap_err();
        error.code().unwrap().to_owned()
    };
    assert_eq!(code(&mut connection, "SELECT 1 / 0"), "22012");
    assert_eq!(code(&mut connection, "SELECT nonsense"), "42703");
    assert!(connection.batch("SELECT 1; nonsense").is_err());
    let row = connection
        .first("SELECT $1::text, $2::bytea, $3::bigint", &[&"ü\t\\", &&[0_u8, 9][..], &None::<i64>]);
    let row = row.unwrap().unwrap();
    assert_eq!((row.get::<String>(0).unwrap(), row.get::<Vec<u8>>(1).unwrap()), ("ü\t\\".into(), vec![0, 9]));
    assert_eq!(row.get::<Option<i64>>(2).unwrap(), None);
    for n in 0..300 {
        let row = connection.first(&format!("SELECT {n}::bigint"), &[]).unwrap().unwrap();
        assert_eq!(row.get::<i64>(0).unwrap(), n, "more statements than are kept prepared");
    }
    let refused = connection.copy_in("COPY blobs FROM STDIN", |_| Ok(()));
    assert!(refused.is_err() && !connection.is_lost(), "there is no such table");
    connection.batch("CREATE TABLE t(n bigint CHECK (n < 3))").unwrap();
    let mut lines = ["1\n", "2\n", ""].into_iter();
    let mut next = |chunk: &mut Vec<u8>| {
        chunk.extend(lines.next().unwrap().as_bytes());
        Ok(())
    };
    assert_eq!(connection.copy_in("COPY t FROM STDIN", &mut next).unwrap(), 2);
    let mut broken = Some("1\n");
    let met = connection.copy_in("COPY t FROM STDIN", |chunk| {
        chunk.extend(broken.take().ok_or(StoreError::Overloaded)?.as_bytes());
        Ok(())
    });
    assert_eq!(met, Err(StoreError::Overloaded), "what the source met, and nothing of it is kept");
    let row = connection.first("SELECT count(*) FROM t", &[]).unwrap().unwrap();
    assert_eq!(row.get::<i64>(0).unwrap(), 2);
    assert!(connection.batch("SELECT pg_terminate_backend(pg_backend_pid())").is_err());
    assert!(connection.is_lost());
    connection.client(&server).unwrap();
    connection.batch("SELECT 1").unwrap();
}

#[test]
fn connections_that_were_ended_while_they_were_idle_cost_no_answer() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let store = Postgres::open(&url).unwrap();
    for round in 0..3 {
        store.create(draft("Before", &json!({})), Time(1)).unwrap();
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = 'svc-skills'";
        assert_ne!(cluster.psql(&name, &["--command", sql]), "0");
        store.create(draft("After", &json!({})), Time(2)).unwrap();
        assert_eq!(store.changes_since(0).unwrap().skills.len(), 2 * (round + 1));
    }
}

#[test]
fn a_backup_that_fails_leaves_nothing_and_no_other_file_is_touched() {
    let Some(cluster) = Cluster::start() else { return };
    let store = Postgres::open(&cluster.database().1).unwrap();
    let folder = std::env::temp_dir().join(format!("svc-postgres-backups-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("market.partial"), "mine").unwrap();
    let names = || {
        let entries = std::fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    store.backup(&folder.join("market.sql")).unwrap();
    assert_eq!(names(), ["market.partial", "market.sql"]);
    assert_eq!(std::fs::read_to_string(folder.join("market.partial")).unwrap(), "mine");
    cluster.crash();
    store.backup(&folder.join("second.sql")).unwrap_err();
    assert_eq!(names(), ["market.partial", "market.sql"], "nothing half");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_server_that_goes_away_is_503_and_comes_back() {
    let Some(cluster) = Cluster::start() else { return };
    let store = Postgres::open(&cluster.database().1).unwrap();
    store.create(draft("Before", &json!({})), Time(1)).unwrap();
    cluster.crash();
    let error = store.create(draft("Meanwhile", &json!({})), Time(2)).unwrap_err();
    assert_eq!(svc_base::api::Problem::from(error).status, 503);
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
