//! The contract on `SQLite`, and what is particular to it: files, migrations, a full disk, the ledger's
//! tables.

use super::*;
use crate::authoring::moves::Move;
use crate::installs;
use crate::ledger;
use crate::store::Store;
use crate::store::contract::{self, client, draft};
use rusqlite::params;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use svc_base::time::Time;

/// A database of its own in a folder of its own.
struct Place(PathBuf);

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Place {
    fn new() -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("svc-skills-store-{}-{n}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("skills.db")
    }

    fn open(&self) -> Sqlite {
        Sqlite::open(&self.file(), Opening::OrMake).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is not the test's message.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn decisions_5_the_contract_suite_passes_on_sqlite() {
    let places = Mutex::new(Vec::new());
    contract::all(&|| {
        let place = Place::new();
        let store = Arc::new(place.open());
        places.lock().unwrap().push(place);
        store
    });
}

#[test]
fn decisions_5_pragmas_are_set_on_every_connection() {
    let place = Place::new();
    let store = place.open();
    let pragma = |connection: &Connection, name: &str| {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap()
    };
    store
        .read(|connection| {
            assert_eq!(pragma(connection, "synchronous"), 2);
            assert_eq!(pragma(connection, "foreign_keys"), 1);
            assert_eq!(pragma(connection, "busy_timeout"), 5000);
            let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            assert_eq!(mode, "wal");
            let strict: i64 = connection.query_row(
                "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table' \
                 AND name NOT LIKE 'sqlite_%' AND strict = 0",
                [],
                |row| row.get(0),
            )?;
            assert_eq!(strict, 0, "every table is STRICT");
            Ok(())
        })
        .unwrap();
}

#[test]
fn decisions_5_what_was_written_is_there_after_opening_again_and_a_newer_database_is_refused() {
    let place = Place::new();
    let key = {
        let store = place.open();
        store.create(draft("Kept", &json!({})), Time(1)).unwrap();
        store.client_key()
    };
    let store = place.open();
    assert_eq!(store.changes_since(0).unwrap().skills[0].id, "kept");
    assert_eq!(store.client_key(), key, "clients keep their hashes");
    drop(store);
    let connection = Connection::open(place.file()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = Sqlite::open(&place.file(), Opening::Existing).err().unwrap().to_string();
    assert!(error.contains("version 99"), "{error}");
    fs::write(place.0.join("text.db"), "this is not a database, but long enough to look at").unwrap();
    assert!(Sqlite::open(&place.0.join("text.db"), Opening::OrMake).is_err());
}

#[test]
fn must_show_a_full_disk_gives_503_and_recovers() {
    let place = Place::new();
    let store = place.open();
    let id = store.create(draft("First", &json!({})), Time(1)).unwrap().value.id;
    store.transition(&id, Move::Publish, Time(1)).unwrap();
    store.limit_pages(1);
    let big = "x".repeat(50_000);
    let mut refused = 0;
    for n in 0..20 {
        match store.create(draft("Big", &json!({"content": format!("{n}{big}")})), Time(2)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(svc_base::api::Problem::from(error).status, 503);
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "the limit was reached");
    assert!(store.health().unwrap().is_some(), "health tells it");
    let before = store.changes_since(0).unwrap().skills.len();
    store.limit_pages(1_000_000);
    store.install(&id, client(1), Time(3)).unwrap();
    store.create(draft("Big", &json!({"content": big})), Time(4)).unwrap();
    assert_eq!(store.changes_since(0).unwrap().skills.len(), before + 1);
    assert_eq!(store.health().unwrap(), None, "it has recovered");
}

#[test]
fn decisions_1_a_writer_that_cannot_write_is_503_with_retry_after() {
    for error in
        [StoreError::Overloaded, StoreError::Full(String::new()), StoreError::Unavailable("x".into())]
    {
        let problem = svc_base::api::Problem::from(error);
        assert_eq!((problem.status, problem.headers[0].0), (503, "Retry-After"));
    }
}

#[test]
fn one_refused_write_of_a_batch_does_not_touch_the_others() {
    let place = Place::new();
    let store = place.open();
    std::thread::scope(|scope| {
        for n in 0..64_u8 {
            let store = &store;
            scope.spawn(move || {
                if n % 2 == 0 {
                    store.create(draft("Batch", &json!({})), Time(1)).unwrap();
                } else {
                    assert_eq!(contract::refused(store.install("nobody", client(n), Time(1))), 404);
                }
            });
        }
    });
    assert_eq!(store.changes_since(0).unwrap().skills.len(), 32);
}

#[test]
fn decisions_4_a_backup_is_whole_while_writes_go_on() {
    let place = Place::new();
    let store = place.open();
    let copy = place.0.join("copy.db");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..50 {
                store.create(draft("Going On", &json!({})), Time(1)).unwrap();
            }
        });
        store.backup(&copy).unwrap();
        writer.join().unwrap();
    });
    store.backup(&copy).unwrap();
    let copied = Sqlite::open(&copy, Opening::Existing).unwrap();
    assert_eq!(copied.changes_since(0).unwrap(), store.changes_since(0).unwrap());
    let connection = Connection::open(&copy).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&copy).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "nobody else reads it");
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn a_backup_never_replaces_a_database_that_is_in_use_and_leaves_nothing_half() {
    let place = Place::new();
    let store = place.open();
    store.create(draft("Kept", &json!({})), Time(1)).unwrap();
    let link = place.0.join("link.db");
    std::os::unix::fs::symlink(place.file(), &link).unwrap();
    let hard = place.0.join("hard.db");
    fs::hard_link(place.file(), &hard).unwrap();
    let other = place.0.join("other.db");
    let _other = Sqlite::open(&other, Opening::OrMake).unwrap();
    for target in [place.file(), link, hard, place.0.join("skills.db-wal"), other] {
        let before = fs::read(&target).unwrap();
        let error = store.backup(&target).unwrap_err().to_string();
        assert!(error.contains("another name"), "{error}");
        assert_eq!(fs::read(&target).unwrap(), before, "{}", target.display());
    }
    fs::create_dir(place.0.join("folder")).unwrap();
    assert!(store.backup(&place.0.join("folder")).is_err());
    assert!(store.backup(&place.0.join("nowhere/copy.db")).is_err());
    let names: Vec<_> = fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let partial = names.iter().find(|name| name.to_string_lossy().contains("partial"));
    assert_eq!(partial, None);
    store.backup(&place.0.join("copy.db")).unwrap();
}

#[test]
fn a_database_that_was_removed_or_replaced_takes_no_writes_until_it_is_back() {
    let place = Place::new();
    let store = place.open();
    store.create(draft("Kept", &json!({})), Time(1)).unwrap();
    let away = place.0.join("away.db");
    fs::rename(place.file(), &away).unwrap();
    assert!(store.health().unwrap().unwrap().contains("removed or replaced"));
    let refused = svc_base::api::Problem::from(store.create(draft("Lost", &json!({})), Time(2)).unwrap_err());
    assert_eq!(refused.status, 503, "nothing is acknowledged that is lost");
    assert!(!place.file().exists(), "and no empty database takes its place");
    fs::write(place.file(), "").unwrap();
    assert!(store.create(draft("Lost", &json!({})), Time(2)).is_err());
    fs::rename(&away, place.file()).unwrap();
    store.create(draft("Again", &json!({})), Time(3)).unwrap();
    assert_eq!(store.health().unwrap(), None);
}

#[test]
fn only_who_may_make_a_database_makes_one_and_a_foreign_one_is_left_alone() {
    let place = Place::new();
    let refused = |file: &str, opening| {
        let error = Sqlite::open(&place.0.join(file), opening).err().unwrap().to_string();
        assert!(error.len() < 300, "short enough to read: {error}");
        error
    };
    assert!(refused("typo.db", Opening::Existing).contains("there is no database"));
    assert!(!place.0.join("typo.db").exists());
    fs::write(place.0.join("empty.db"), "").unwrap();
    assert!(refused("empty.db", Opening::Existing).contains("there is no database"));
    let foreign = Connection::open(place.0.join("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE authors(id); INSERT INTO authors VALUES (1)").unwrap();
    for version in [0, 1] {
        foreign.pragma_update(None, "user_version", version).unwrap();
        assert!(refused("foreign.db", Opening::OrMake).contains("another program"), "version {version}");
    }
    let tables: i64 = foreign.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1, "nothing was added");
    fs::write(place.0.join("text.db"), "no database ".repeat(100)).unwrap();
    assert!(refused("text.db", Opening::OrMake).contains("restore a backup"));
}

#[test]
fn every_kind_of_damage_is_found() {
    let damages = [
        ("DELETE FROM authors", "author record is missing"),
        ("DELETE FROM blobs", "content is missing"),
        ("DELETE FROM skill_versions", "history is missing"),
        ("DELETE FROM skill_versions WHERE seq = 1", "history has gaps"),
        ("DELETE FROM skill_versions WHERE seq = 2", "does not end in their content"),
        ("UPDATE skills SET rating_sum = 25, rating_count = 5", "not the sum of their ratings"),
        ("DELETE FROM ratings", "not the sum of their ratings"),
        ("UPDATE skills SET downloads = 0", "fewer downloads"),
        ("UPDATE skills SET author_id = 'nobody'", "names a row of authors that is missing"),
        ("DROP INDEX skills_author; CREATE INDEX skills_author ON skills(name)", ""),
    ];
    for (damage, told) in damages {
        let place = Place::new();
        let store = place.open();
        let id = store.create(draft("Sound", &json!({})), Time(1)).unwrap().value.id;
        let edit = json!({"content": "# Two\n"});
        store.update(&id, crate::authoring::parse_edit(edit.as_object().unwrap()).unwrap(), Time(2)).unwrap();
        store.transition(&id, Move::Publish, Time(2)).unwrap();
        store.install(&id, client(1), Time(3)).unwrap();
        store.rate(&id, client(1), 4, Time(3)).unwrap();
        assert_eq!(store.flaws().unwrap(), Vec::<String>::new());
        let connection = Connection::open(place.file()).unwrap();
        connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
        connection.execute_batch(damage).unwrap();
        let flaws = store.flaws().unwrap().join("; ");
        assert!(flaws.contains(told) && flaws.is_empty() == told.is_empty(), "{damage}: {flaws}");
    }
}

#[test]
fn install_windows_of_a_clock_that_was_ahead_are_forgotten() {
    let place = Place::new();
    let store = place.open();
    let id = store.create(draft("Ahead", &json!({})), Time(1)).unwrap().value.id;
    store.transition(&id, Move::Publish, Time(1)).unwrap();
    let year = 365 * 24 * installs::WINDOW_MS;
    assert!(store.install(&id, client(1), Time(year)).unwrap().value.counted);
    assert!(store.install(&id, client(1), Time(10)).unwrap().value.counted, "the future holds nobody back");
    assert!(!store.install(&id, client(1), Time(20)).unwrap().value.counted);
    store.install(&id, client(2), Time(year)).unwrap();
    assert_eq!(store.prune(Time(30)).unwrap(), 1, "the one that lies a year ahead");
}

#[test]
fn decisions_5_events_are_append_only_and_every_digest_is_kept() {
    let place = Place::new();
    let store = place.open();
    store.create(draft("Story", &json!({})), Time(1)).unwrap();
    for n in 0..3 {
        let body = json!({"content": format!("# {n}\n")});
        let edit = crate::authoring::parse_edit(body.as_object().unwrap()).unwrap();
        store.update("story", edit, Time(2)).unwrap();
    }
    let connection = Connection::open(place.file()).unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM skill_versions WHERE skill_id = 'story'"), 4);
    assert_eq!(count("SELECT count(*) FROM blobs"), 4);
    assert_eq!(count("SELECT count(*) FROM events"), 4);
    for sql in ["UPDATE events SET kind = 'x'", "DELETE FROM events"] {
        assert!(connection.execute(sql, []).unwrap_err().to_string().contains("append-only"));
    }
}

#[test]
fn planned_the_double_entry_balances_and_a_broken_one_is_found() {
    let place = Place::new();
    let store = place.open();
    let id = store.create(draft("Sold", &json!({"price": 10})), Time(1)).unwrap().value.id;
    let connection = Connection::open(place.file()).unwrap();
    let (creator, platform) = ledger::split(1000, ledger::PLATFORM_BP);
    connection
        .execute(
            "INSERT INTO purchases(id, skill_id, buyer, price_cents, creator_cents, platform_cents, state, \
             connector, connector_ref, created_at) VALUES ('p1', ?1, 'b', 1000, ?2, ?3, 'paid', 'pay', 'r1', 1)",
            params![id, rows::int(creator), rows::int(platform)],
        )
        .unwrap();
    let share: i64 = connection.query_row("SELECT platform_bp FROM purchases", [], |row| row.get(0)).unwrap();
    assert_eq!(share, 2000, "80/20 unless told otherwise");
    let add = |transaction: &str, lines: &[ledger::Line]| {
        for line in lines {
            connection
                .execute(
                    "INSERT INTO ledger(transaction_id, account, cents, purchase_id, created_at) \
                     VALUES (?1, ?2, ?3, 'p1', 1)",
                    params![transaction, line.account, line.cents],
                )
                .unwrap();
        }
    };
    add("buy", &ledger::purchase("pay", "gh-ada", 1000, ledger::PLATFORM_BP));
    add("back", &ledger::refund("pay", "gh-ada", 1000, ledger::PLATFORM_BP));
    add("out", &ledger::payout("pay", "gh-ada", 800));
    assert_eq!(store.unbalanced_transactions().unwrap(), Vec::<String>::new());
    add("broken", &ledger::purchase("pay", "gh-ada", 500, ledger::PLATFORM_BP)[..2]);
    assert_eq!(store.unbalanced_transactions().unwrap(), ["broken"]);
    let wrong = connection.execute("UPDATE purchases SET creator_cents = 900", []);
    assert!(wrong.is_err(), "the parts of a price add up to it");
}
