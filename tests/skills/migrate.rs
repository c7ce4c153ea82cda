//! `svc-skills migrate`: a market that has everything, moved from `SQLite` to a real `PostgreSQL`.

use crate::support::folder::Folder;
use crate::support::market::{ADMIN, KEY, Market};
use crate::support::postgres::Cluster;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Arc;
use svc_base::hex;

const SKILLS: &str = "/api/v1/skills";
/// What is hard to carry over as text.
const HARD: &str = "# Hard\n\ta\\tb \\N \\. \\x41 'q' \"d\" $1 \r\n\\.\nü 🇩🇪 \u{2028}end\\";

fn at(id: &str, rest: &str) -> String {
    format!("{SKILLS}/{id}{rest}")
}

/// A market with a skill in every state, with history, ratings, installs, reviews, authors, events and sales.
fn filled() -> Market {
    let market = Market::start(&[]);
    let create = |name: &str, more: &Value| -> String {
        let mut body =
            json!({"name": name, "description": "Made for a test.", "category": "quality", "content": HARD});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        let made = market.write("POST", SKILLS, &body);
        assert_eq!(made.status, 201, "{}", made.text);
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let ada = json!({"author": "Ada", "authorProfile": {"github": "ada", "bio": "a \\N b\\t"}, "tags": ["a b", "über"]});
    let sold = json!({"price": 9.99, "author": "Ada", "authorProfile": {"github": "ada"}});
    create("Draft", &ada);
    for (name, decision) in [("Waiting", None), ("Rejected", Some("reject")), ("Sold", Some("approve"))] {
        let id = create(name, &sold);
        market.write("POST", &at(&id, "/publish"), &Value::Null);
        if let Some(decision) = decision {
            let body = json!({"decision": decision, "note": "because of \\N \\t"}).to_string();
            let header = format!("Authorization: Bearer {ADMIN}");
            let done = market.send("POST", &at(&id, "/review"), &[&header], &body);
            assert_eq!(done.status, 200, "{}", done.text);
        }
    }
    for name in ["Free", "Unlisted"] {
        let id = create(name, &json!({"icon": "🇩🇪", "roles": ["backend"]}));
        market.write("POST", &at(&id, "/publish"), &Value::Null);
    }
    for n in 0..3 {
        let edit = json!({"content": format!("# Edition {n}\n{HARD}"), "version": format!("1.{n}")});
        assert_eq!(market.write("PUT", &at("free", ""), &edit).status, 200);
    }
    for n in 1..=5 {
        let from = format!("X-Forwarded-For: 192.0.2.{n}");
        market.send("POST", &at("free", "/rate"), &[&from], &json!({"rating": n}).to_string());
        assert_eq!(market.send("POST", &at("free", "/install"), &[&from], "").json()["counted"], true);
    }
    market.write("DELETE", &at("unlisted", ""), &Value::Null);
    let author = json!({"displayName": "Ada L.", "portfolio": "https://ada.example", "username": "ada"});
    assert_eq!(market.write("PUT", "/api/v1/authors/gh-ada", &author).status, 200);
    market.ok(&["verify", "sold", "creator"]);
    market.ok(&["feature", "free", "on"]);
    sell(&Connection::open(market.path("skills.db")).unwrap());
    market
}

/// What nothing sells yet, and more rows than are told of at once.
fn sell(old: &Connection) {
    old.execute_batch(
        "INSERT INTO purchases VALUES ('p1', 'sold', 'buyer', 999, 2000, 800, 199, 'paid', 'pay', 'ref-1', 5);
         INSERT INTO payouts VALUES ('o1', 'gh-ada', 800, 'sent', 'pay', 'ref-2', 6);
         INSERT INTO ledger VALUES (3, 't1', 'connector:pay', -999, 'p1', NULL, 5),
             (4, 't1', 'creator:gh-ada', 800, 'p1', NULL, 5), (9, 't1', 'platform', 199, 'p1', NULL, 5),
             (10, 't2', 'creator:gh-ada', -800, NULL, 'o1', 6),
             (11, 't2', 'connector:pay', 800, NULL, 'o1', 6);
         INSERT INTO entitlements VALUES ('sold', 'buyer', 'p1', 5, NULL), ('sold', 'other', 'p1', 5, 7);
         WITH RECURSIVE days(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM days WHERE n < 20500)
         INSERT INTO install_daily SELECT 'free', -n, 1 FROM days;
         UPDATE skills SET downloads = downloads + 20500 WHERE id = 'free';",
    )
    .unwrap();
}

fn migrate(market: &Market, url: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-skills"));
    command.env_remove("DATABASE_URL").args(["migrate", "--to", url, "--from"]);
    command.arg(market.path("skills.db")).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// All rows of a database by table: each value as digits, text and bytes in hexadecimal.
type Rows = BTreeMap<String, Vec<String>>;

fn rows_of_sqlite(market: &Market) -> (Rows, BTreeMap<String, Vec<String>>) {
    let old = Connection::open(market.path("skills.db")).unwrap();
    let mut tables =
        old.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'meta'").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let (mut all, mut columns_of) = (Rows::new(), BTreeMap::new());
    for table in tables {
        let mut statement = old.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let count = columns.len();
        let mut found = statement.query([]).unwrap();
        let rows = all.entry(table.clone()).or_default();
        while let Some(row) = found.next().unwrap() {
            let values = (0..count).map(|place| match row.get_ref(place).unwrap() {
                ValueRef::Null => "none".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => hex::encode(bytes),
                ValueRef::Real(_) => panic!("{table} has a fraction"),
            });
            rows.push(values.collect::<Vec<_>>().join("|"));
        }
        rows.sort();
        columns_of.insert(table, columns);
    }
    (all, columns_of)
}

fn rows_of_postgres(cluster: &Cluster, database: &str, columns_of: &BTreeMap<String, Vec<String>>) -> Rows {
    let psql = |sql: &str| cluster.psql(database, &["--command", sql]);
    let mut all = Rows::new();
    for (table, columns) in columns_of {
        let values: Vec<String> = columns
            .iter()
            .map(|column| {
                let kind = psql(&format!(
                    "SELECT data_type FROM information_schema.columns \
                     WHERE table_name = '{table}' AND column_name = '{column}'"
                ));
                let value = match kind.as_str() {
                    "text" => format!("encode(convert_to({column}, 'UTF8'), 'hex')"),
                    "bytea" => format!("encode({column}, 'hex')"),
                    "bigint" => format!("{column}::text"),
                    "boolean" => format!("{column}::int::text"),
                    other => panic!("{table}.{column} is {other:?}"),
                };
                format!("coalesce({value}, 'none')")
            })
            .collect();
        let text = psql(&format!("SELECT {} FROM {table}", values.join(" || '|' || ")));
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        rows.sort();
        all.insert(table.clone(), rows);
    }
    all
}

fn on_postgres(url: &str) -> Market {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-skills"));
    command.env("DATABASE_URL", url).env("SKILLS_API_KEY", KEY).env("SKILLS_ADMIN_KEY", ADMIN);
    command.env("SKILLS_PUBLIC_RPM", "0").args(["serve", "--addr", "127.0.0.1:0"]);
    Market::from_command(command, Arc::new(Folder::new("moved")))
}

#[test]
fn everything_moves_row_for_row_and_the_service_goes_on_there() {
    let Some(cluster) = Cluster::start() else { return };
    let market = filled();
    let old_list = market.write("GET", "/api/v1/skills?status=all&limit=200", &Value::Null).json();
    let (database, url) = cluster.database();
    let output = migrate(&market, &url);
    let told = said(&output);
    assert!(output.status.success(), "{told}");
    for words in
        ["20501  install_daily\n", "20000 install_daily so far", "5  ratings\n", "5  ledger\n", "compared"]
    {
        assert!(told.contains(words), "{words:?} in {told}");
    }
    let (old, columns_of) = rows_of_sqlite(&market);
    assert_eq!(old.len(), 13, "{:?}", old.keys());
    assert!(old.values().all(|rows| !rows.is_empty()), "every table has some");
    let new = rows_of_postgres(&cluster, &database, &columns_of);
    for (table, rows) in &old {
        assert!(rows == &new[table], "{table} differs");
    }
    let meta =
        |key: &str, sql: &str| cluster.psql(&database, &["--command", &format!("{sql} WHERE key = '{key}'")]);
    let db = Connection::open(market.path("skills.db")).unwrap();
    let (generation, key): (i64, Vec<u8>) = db
        .query_row(
            "SELECT (SELECT value FROM meta WHERE key = 'generation'), (SELECT value FROM meta WHERE key = 'client_key')",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(meta("generation", "SELECT number FROM meta"), generation.to_string());
    assert_eq!(meta("client_key", "SELECT encode(bytes, 'hex') FROM meta"), hex::encode(&key));

    let moved = on_postgres(&url);
    let new_list = moved.write("GET", "/api/v1/skills?status=all&limit=200", &Value::Null).json();
    assert_eq!(new_list["total"], old_list["total"]);
    goes_on(&moved);
    let last = cluster.psql(&database, &["--command", "SELECT min(seq), max(seq), count(*) FROM events"]);
    let numbers: Vec<usize> = last.split('|').map(|number| number.parse().unwrap()).collect();
    assert!(numbers[2] > old["events"].len() && numbers[1] >= numbers[2], "numbered on: {last}");
    let check =
        Command::new(env!("CARGO_BIN_EXE_svc-skills")).env("DATABASE_URL", &url).arg("check").output();
    assert!(check.unwrap().status.success());
}

/// Uses all that numbers on or remembers.
fn goes_on(moved: &Market) {
    assert_eq!(moved.get(&at("free", "/content")).json()["content"], format!("# Edition 2\n{HARD}"));
    let free = moved.get(&at("free", "")).json();
    assert_eq!(
        (&free["ratingCount"], &free["downloads"], &free["featured"]),
        (&json!(5), &json!(20505), &json!(true))
    );
    let known = "X-Forwarded-For: 192.0.2.1";
    let again = moved.send("POST", &at("free", "/rate"), &[known], &json!({"rating": 5}).to_string());
    assert_eq!(again.json()["rating_count"], 5, "a rater is known again: {}", again.text);
    assert_eq!(moved.send("POST", &at("free", "/install"), &[known], "").json()["counted"], false);
    assert_eq!(moved.get("/api/v1/authors/gh-ada").json()["portfolio"], "https://ada.example");
    let header = format!("Authorization: Bearer {ADMIN}");
    let body = json!({"decision": "approve", "note": ""}).to_string();
    let approved = moved.send("POST", &at("waiting", "/review"), &[&header], &body);
    assert_eq!(approved.status, 200, "{}", approved.text);
    let again = moved.write("POST", &at("rejected", "/publish"), &Value::Null).json();
    assert_eq!(again["status"], "review", "what was rejected stays so");
    assert_eq!(moved.publish("Draft"), "draft-2", "ids stay taken");
    let edit = json!({"content": "# New\n"});
    assert_eq!(moved.write("PUT", &at("free", ""), &edit).status, 200);
}

#[test]
fn what_cannot_move_as_a_whole_does_not_move_at_all() {
    let Some(cluster) = Cluster::start() else { return };
    let market = filled();
    let (database, url) = cluster.database();
    let refused = |word: &str| {
        let output = migrate(&market, &url);
        let told = said(&output);
        assert!(output.status.code() == Some(1) && told.contains(word), "{word}: {told}");
    };
    let db = Connection::open(market.path("skills.db")).unwrap();
    let change = |sql: &str| db.execute_batch(sql).unwrap();

    change("UPDATE skills SET rating_sum = rating_sum + 1 WHERE id = 'free'");
    refused("skills.db: it is damaged");
    change("UPDATE skills SET rating_sum = rating_sum - 1 WHERE id = 'free'");
    change("UPDATE purchases SET buyer = 'nul' || char(0) WHERE id = 'p1'");
    refused("buyer of \"p1\" in purchases holds what PostgreSQL cannot keep");
    let counted = "SELECT (SELECT count(*) FROM skills) + (SELECT count(*) FROM events)";
    assert_eq!(cluster.psql(&database, &["--command", counted]), "0", "none of what went before it");
    change("UPDATE purchases SET buyer = 'buyer' WHERE id = 'p1'");
    change("UPDATE ledger SET cents = cents + 1 WHERE seq = 3");
    refused("the ledger does not balance in transactions t1");
    change("UPDATE ledger SET cents = cents - 1 WHERE seq = 3");
    change("CREATE TABLE more(n)");
    refused("a table more that cannot be moved");
    change("DROP TABLE more");
    change("BEGIN IMMEDIATE");
    refused("end its service first");
    change("ROLLBACK");
    assert_eq!(cluster.psql(&database, &["--command", counted]), "0");

    let output = migrate(&market, &url);
    assert!(output.status.success(), "{}", said(&output));
    refused("the new database: it is not empty");
    let (old, columns_of) = rows_of_sqlite(&market);
    assert!(old == rows_of_postgres(&cluster, &database, &columns_of), "as it was");
}

#[test]
fn wrong_words_are_told() {
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc-skills"));
        let output = command.env_remove("DATABASE_URL").args(words).output().unwrap();
        (output.status.code(), said(&output))
    };
    let (code, told) = run(&["migrate"]);
    assert!(code == Some(2) && told.contains("--from FILE"), "{told}");
    let (code, told) = run(&["migrate", "--from", "x.db"]);
    assert!(code == Some(2) && told.contains("DATABASE_URL"), "{told}");
    let (code, told) = run(&["check", "--from", "x.db"]);
    assert!(code == Some(2) && told.contains("belong to migrate"), "{told}");
    let (code, told) =
        run(&["migrate", "--from", "nothing.db", "--to", "postgresql://a:hidden@127.0.0.1:1/d"]);
    assert!(code == Some(1) && told.contains("nothing.db") && !told.contains("hidden"), "{told}");
    let (code, told) = run(&["migrate", "--help"]);
    assert!(code == Some(0) && told.contains("End the service"), "{told}");
}
