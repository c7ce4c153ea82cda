//! kill -9 in a loop under 32 concurrent writers: what was acknowledged is there, once.

use crate::support::folder::Folder;
use crate::support::market::Market;
use crate::support::wait::wait_for;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

const ROUNDS: u32 = 8;
const WRITERS: u32 = 32;
/// Acknowledged writes of one round before the kill.
const WRITES: u64 = 500;

/// What was acknowledged over all rounds.
#[derive(Default)]
struct Acknowledged {
    created: BTreeSet<String>,
    installed: BTreeSet<u32>,
    rated: BTreeMap<u32, u64>,
    /// The last rating sent to a connection that broke: it may or may not have been taken.
    open_ratings: BTreeMap<u32, BTreeSet<u64>>,
}

/// One writer: creates, installs and rates as clients of its own, until the service is gone.
fn write(
    market: &Market,
    n: u32,
    round: u32,
    done: &Mutex<Acknowledged>,
    count: &AtomicU64,
    over: &AtomicBool,
) {
    for step in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let ip = format!("X-Forwarded-For: 10.{round}.{n}.{}", step % 200);
        let client = (round << 16) | (n << 8) | (step % 200);
        let rating = u64::from((client.wrapping_mul(7) + step) % 5 + 1);
        let key = format!("Authorization: Bearer {}", crate::support::market::KEY);
        let body = json!({"name": "Same Name", "description": "Made for a test.", "category": "quality"});
        let rate = json!({"rating": rating}).to_string();
        let answer = match step % 3 {
            0 => market.try_send("POST", "/api/v1/skills", &[&key], &body.to_string()),
            1 => market.try_send("POST", "/api/v1/skills/busy/install", &[&ip], ""),
            _ => market.try_send("POST", "/api/v1/skills/busy/rate", &[&ip], &rate),
        };
        let mut done = done.lock().unwrap();
        // An answer that was cut short is none.
        let whole = answer.filter(|answer| answer.json() != Value::Null);
        let Some(answer) = whole else {
            if step % 3 == 2 {
                done.open_ratings.entry(client).or_default().insert(rating);
            }
            return;
        };
        assert!([200, 201].contains(&answer.status), "{}", answer.text);
        match step % 3 {
            0 => {
                let id = answer.json()["id"].as_str().unwrap().to_owned();
                assert!(done.created.insert(id.clone()), "{id} was given twice");
            }
            1 => drop(done.installed.insert(client)),
            _ => drop(done.rated.insert(client, rating)),
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn must_show_concurrent_32_writers_lose_nothing_and_double_nothing_under_kill_nine() {
    let folder = Arc::new(Folder::new("kill-nine"));
    let done = Mutex::new(Acknowledged::default());
    let mut attempts = 0;
    let mut market = Market::start_in(Arc::clone(&folder), &[]);
    market.publish("Busy");
    for round in 0..ROUNDS {
        let (count, over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for n in 0..WRITERS {
                let (market, done, count, over) = (&market, &done, &count, &over);
                scope.spawn(move || write(market, n, round, done, count, over));
            }
            wait_for("enough writes", || (count.load(Ordering::Relaxed) >= WRITES).then_some(()));
            let pid = market.pid().to_string();
            std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
            over.store(true, Ordering::Relaxed);
        });
        attempts += WRITERS;
        market.kill();
        market = Market::start_in(Arc::clone(&folder), &[]);
        check(&market, &done.lock().unwrap(), u64::from(attempts));
    }
    assert!(market.ok(&["check"]).contains("sound"));
}

/// At most one write per writer and round was under way unanswered at the kill.
fn check(market: &Market, done: &Acknowledged, under_way: u64) {
    for id in &done.created {
        assert_eq!(
            market.get(&format!("/api/v1/skills/{id}")).status,
            200,
            "{id} was acknowledged and is lost"
        );
    }
    let drafts = market.get("/api/v1/skills?status=draft&limit=1").json()["total"].as_u64().unwrap();
    let created = done.created.len() as u64;
    assert!((created..=created + under_way).contains(&drafts), "{created} acknowledged, {drafts} there");
    let busy = market.get("/api/v1/skills/busy").json();
    let downloads = busy["downloads"].as_u64().unwrap();
    let installed = done.installed.len() as u64;
    assert!(
        (installed..=installed + under_way).contains(&downloads),
        "{installed} counted, {downloads} there"
    );
    let raters = busy["ratingCount"].as_u64().unwrap();
    let rated = done.rated.len() as u64;
    assert!((rated..=rated + under_way).contains(&raters), "{rated} rated, {raters} there");
    check_average(&busy, done, raters);
}

/// With every open rating known to be in or out by count, the average must be one that the ratings can give.
fn check_average(busy: &Value, done: &Acknowledged, raters: u64) {
    let settled = done.rated.iter().filter(|(client, _)| !done.open_ratings.contains_key(client));
    let (mut low, mut high) = settled.fold((0, 0), |(low, high), (_, rating)| (low + rating, high + rating));
    let settled = done.rated.keys().filter(|client| !done.open_ratings.contains_key(client)).count() as u64;
    let open = raters - settled;
    low += open;
    high += 5 * open;
    let average = busy["rating"].as_f64().unwrap();
    #[allow(clippy::cast_precision_loss, reason = "a few thousand ratings")]
    let (low, high) = (low as f64 / raters as f64, high as f64 / raters as f64);
    assert!((low - 0.01..=high + 0.01).contains(&average), "{average} is not in {low} to {high}");
}
