//! Several instances of the marketplace service on one real `PostgreSQL` database.

use crate::support::folder::Folder;
use crate::support::market::{Answer, Market, command};
use crate::support::postgres::Cluster;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const SKILLS: &str = "/api/v1/skills";
/// Promised for a write to show in the other instances.
const SHOWS_WITHIN: Duration = Duration::from_millis(250);

fn new(name: &str) -> Value {
    json!({"name": name, "description": "Made for a test.", "category": "quality", "content": "# Text\n"})
}

fn at(id: &str, rest: &str) -> String {
    format!("{SKILLS}/{id}{rest}")
}

/// An instance without a file of its own.
fn instance(url: &str, env: &[(&str, &str)]) -> Market {
    let folder = Arc::new(Folder::new("instance"));
    // The file stands on the usual command line, and would go before the variable.
    let given = command(&folder, env);
    let mut command = std::process::Command::new(given.get_program());
    for (name, value) in given.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("DATABASE_URL", url).args(["serve", "--addr", "127.0.0.1:0"]);
    Market::from_command(command, folder)
}

#[test]
fn must_do_2_a_write_through_one_shows_in_the_others_within_250_ms() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, url) = cluster.database();
    let (one, other) = (instance(&url, &[]), instance(&url, &[]));
    assert_eq!(other.get(SKILLS).json()["total"], 21, "both have taken the seeds in, once");
    let mut delays: Vec<Duration> = (0..11)
        .map(|n| {
            let id = one.publish(&format!("Shared {n}"));
            let written = Instant::now();
            assert_eq!(one.get(&at(&id, "")).status, 200, "at once where it was written");
            let published = || {
                let answer = other.get(&at(&id, ""));
                (answer.status == 200 && answer.json()["status"] == "published").then_some(())
            };
            while published().is_none() {
                assert!(written.elapsed() < Duration::from_secs(20), "{id} never shows");
            }
            written.elapsed()
        })
        .collect();
    delays.sort_unstable();
    eprintln!("a write shows in the other instance after {delays:?}");
    assert!(delays[delays.len() / 2] <= SHOWS_WITHIN, "{delays:?}");
    // The rest is for a loaded test machine.
    assert!(delays[delays.len() - 1] < SHOWS_WITHIN * 8, "{delays:?}");
}

#[test]
fn must_do_2_names_ratings_and_installs_stay_unique_across_instances() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, url) = cluster.database();
    let markets = [instance(&url, &[]), instance(&url, &[])];
    let id = markets[0].publish("Busy");
    wait_for("both to know it", || (markets[1].get(&at(&id, "/content")).status == 200).then_some(()));
    let counted: Vec<(u64, BTreeSet<String>)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..32_u8)
            .map(|n| {
                let (markets, id) = (&markets, &id);
                scope.spawn(move || {
                    // Each client asks both instances at about the same time.
                    let market = &markets[usize::from(n % 2)];
                    let from = format!("X-Forwarded-For: 198.51.100.{}", n / 2);
                    let install = market.send("POST", &at(id, "/install"), &[&from], "");
                    assert_eq!(install.status, 200, "{}", install.text);
                    let rating = json!({"rating": n / 2 % 5 + 1}).to_string();
                    let rated = market.send("POST", &at(id, "/rate"), &[&from], &rating);
                    assert_eq!(rated.status, 200, "{}", rated.text);
                    let made = (0..3).map(|_| {
                        let answer = market.write("POST", SKILLS, &new("Same Name"));
                        answer.json()["id"].as_str().unwrap().to_owned()
                    });
                    (u64::from(install.json()["counted"] == true), made.collect())
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(counted.iter().map(|(counted, _)| counted).sum::<u64>(), 16);
    let ids: BTreeSet<&String> = counted.iter().flat_map(|(_, ids)| ids).collect();
    assert_eq!(ids.len(), 96, "no id twice");
    assert!(ids.contains(&"same-name".to_owned()) && ids.contains(&"same-name-96".to_owned()));
    for market in &markets {
        wait_for("the counters", || {
            let skill = market.get(&at(&id, "")).json();
            (skill["downloads"] == 16 && skill["ratingCount"] == 16).then_some(())
        });
    }
}

#[test]
fn must_do_2_the_public_limit_is_one_for_all_instances() {
    /// What an instance may let pass before it tells the others: a tenth.
    const UNTOLD: u32 = 6;
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let markets = [(); 2].map(|()| instance(&url, &[("SKILLS_PUBLIC_RPM", "60")]));
    let ask = |n: usize, from: &str| -> Answer {
        markets[n % 2].send("GET", &at("hookify", ""), &[&format!("X-Forwarded-For: {from}")], "")
    };
    let left = |answer: &Answer| -> u32 {
        let header = answer.header("ratelimit").unwrap();
        header.split("r=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap()
    };
    let mut passed = 0;
    for n in 0..80 {
        let answer = ask(n, "198.51.100.1");
        passed += u32::from(answer.status == 200);
        let exact = 60_u32.saturating_sub(u32::try_from(n).unwrap() + 1);
        assert!(left(&answer) <= exact + 2 * UNTOLD, "{} left after {n}", left(&answer));
    }
    assert!((60..=60 + 2 * UNTOLD).contains(&passed), "{passed} of 80");
    for n in 0..6 {
        let refused = ask(n, "198.51.100.1");
        assert_eq!(refused.status, 429);
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&after), "{after}");
        assert_eq!(ask(n, "198.51.100.2").status, 200, "another client");
    }
    for _ in 0..5 {
        ask(0, "198.51.100.3");
    }
    wait_for("what is less than a tenth to be told, too", || {
        let sql = "SELECT count(*) FROM (SELECT sum(count) FROM request_counts GROUP BY client) AS clients(of) \
                   WHERE of = 5";
        (cluster.psql(&name, &["--command", sql]) == "1").then_some(())
    });
    // The sixth of them asks the other instance, unless the round of that second does so just then.
    let most = 2 * UNTOLD;
    let told: Vec<u32> = (0..most).map(|_| left(&ask(1, "198.51.100.3"))).collect();
    assert_eq!((told[0], told.last()), (59, Some(&(60 - most - 5))), "{told:?}");
}

#[test]
fn public_reads_are_counted_in_memory_and_only_their_sums_are_written() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let market = instance(&url, &[("SKILLS_PUBLIC_RPM", "1000")]);
    let sql = |sql: &str| cluster.psql(&name, &["--command", sql]);
    sql("CREATE TABLE written(n bigint); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO written VALUES (NEW.count); RETURN NEW; END'; \
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON request_counts FOR EACH ROW EXECUTE FUNCTION note()");
    let began = Instant::now();
    for _ in 0..90 {
        assert_eq!(market.get(&at("hookify", "")).status, 200);
    }
    wait_for("all of them to be told", || {
        (sql("SELECT sum(count) FROM request_counts") == "90").then_some(())
    });
    let seconds = began.elapsed().as_secs();
    let written: u64 = sql("SELECT count(*) FROM written").parse().unwrap();
    assert!((1..=seconds + 2).contains(&written) && written < 45, "{written} in {seconds} s");
}

#[test]
fn a_database_that_goes_away_is_503_for_writes_while_reads_go_on_and_it_recovers() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, url) = cluster.database();
    let markets = [(); 2].map(|()| instance(&url, &[("SKILLS_PUBLIC_RPM", "1000")]));
    let kept = markets[0].publish("Kept");
    cluster.crash();
    for market in &markets {
        let refused = market.write("POST", SKILLS, &new("Meanwhile"));
        assert_eq!(refused.status, 503, "{}", refused.text);
        assert!(refused.header("retry-after").is_some());
        assert_eq!(market.send("POST", &at("hookify", "/install"), &[], "").status, 503);
        assert_eq!(market.get("/healthz").status, 503);
        let asked = Instant::now();
        assert_eq!(market.get(SKILLS).status, 200, "reads go on");
        assert!(asked.elapsed() < Duration::from_secs(2), "and do not wait for the database");
    }
    cluster.resume();
    for (n, market) in markets.iter().enumerate() {
        wait_for("writes to be taken again", || {
            (market.write("POST", SKILLS, &new(&format!("After {n}"))).status == 201).then_some(())
        });
        assert_eq!(market.get("/healthz").status, 200);
        wait_for("the other one's write", || (market.get(&at("after-0", "")).status == 200).then_some(()));
        assert_eq!(market.get(&at(&kept, "")).json()["status"], "published");
        assert_eq!(market.get(&at("meanwhile", "")).status, 404);
    }
}

/// What writers were told, and what they were not told.
#[derive(Default)]
struct Told {
    created: BTreeSet<String>,
    installs: u64,
    /// Installs whose answer never came: each may or may not have been taken.
    unanswered: u64,
    /// Answers of 503, and none at all.
    failed: u64,
}

#[test]
fn must_do_5_crashes_of_instance_and_database_lose_and_double_no_acknowledged_write() {
    let Some(cluster) = Cluster::start() else { return };
    let (name, url) = cluster.database();
    let steady = instance(&url, &[]);
    steady.publish("Busy");
    let mut told = Told::default();
    let generation = || -> u64 {
        let sql = "SELECT number FROM meta WHERE key = 'generation'";
        cluster.psql(&name, &["--command", sql]).parse().unwrap()
    };
    for round in 0..4_u8 {
        let before = generation();
        let mut killed = instance(&url, &[]);
        wait_for("it to know the skill", || (killed.get(&at("busy", "")).status == 200).then_some(()));
        let writers: Vec<Told> = thread::scope(|scope| {
            let run = |n: u8| {
                let market = if n.is_multiple_of(2) { &steady } else { &killed };
                scope.spawn(move || write(market, round, n))
            };
            let writers: Vec<_> = (0..32).map(run).collect();
            wait_for("some writes", || (generation() >= before + 5).then_some(()));
            if round % 2 == 0 {
                cluster.crash();
                cluster.resume();
            } else {
                let pid = killed.pid().to_string();
                std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        killed.kill();
        for one in writers {
            for id in one.created {
                assert!(told.created.insert(id.clone()), "{id} was given twice");
            }
            told.installs += one.installs;
            told.unanswered += one.unanswered;
            told.failed += one.failed;
        }
    }
    let stored = cluster.psql(&name, &["--command", "SELECT count(*) FROM skills WHERE status = 'draft'"]);
    wait_for("the service to follow", || {
        let total = steady.get("/api/v1/skills?status=draft&limit=1").json()["total"].to_string();
        (total == stored).then_some(())
    });
    for id in &told.created {
        assert_eq!(steady.get(&at(id, "")).status, 200, "{id} was acknowledged");
    }
    // What the killed instance counted last, too, without having said so.
    let windows = cluster.psql(&name, &["--command", "SELECT count(*) FROM installs"]);
    let downloads = wait_for("a counter to be what its records say", || {
        let downloads = steady.get(&at("busy", "")).json()["downloads"].as_u64().unwrap();
        (downloads.to_string() == windows).then_some(downloads)
    });
    assert!(downloads >= told.installs, "{downloads} of {} acknowledged", told.installs);
    assert!(downloads <= told.installs + told.unanswered, "{downloads} of {}", told.installs);
    eprintln!("{} created, {downloads} installs, {} writes failed", told.created.len(), told.failed);
    assert!(told.failed > 0, "the crashes came between writes");
}

/// Creates and installs as clients of its own, a while.
fn write(market: &Market, round: u8, n: u8) -> Told {
    let key = format!("Authorization: Bearer {}", crate::support::market::KEY);
    let mut told = Told::default();
    for step in 0..24_u8 {
        let from = format!("X-Forwarded-For: 10.{round}.{n}.{step}");
        let answer = if step % 2 == 0 {
            market.try_send("POST", SKILLS, &[&key], &new("Same Name").to_string())
        } else {
            market.try_send("POST", &at("busy", "/install"), &[&from], "")
        };
        let Some(answer) = answer.filter(|answer| answer.json() != Value::Null) else {
            told.unanswered += u64::from(step % 2 == 1);
            told.failed += 1;
            continue;
        };
        match answer.status {
            201 => drop(told.created.insert(answer.json()["id"].as_str().unwrap().to_owned())),
            200 => told.installs += u64::from(answer.json()["counted"] == true),
            503 => told.failed += 1,
            other => panic!("{other}: {}", answer.text),
        }
    }
    told
}
