//! Recordings against the promises of the recorder. That every event and every state of all pure tests comes
//! out of a recording as it went in is held by [`Again`], which their bench uses.

use super::entries::{begun, check};
use super::worker_tape::{Tape, export};
use super::{Begins, Entry, Happened, Header, MAGIC, events_of, hash_of, segments, take, told_event, whole};
use crate::assembly::replay::{Part, play, wordless};
use crate::assembly::step::step;
use crate::core::time::Time;
use crate::core::{Event, State, Timer};
use crate::testing::Bench;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use svc_base::recorded::{Reader, Recorded};

/// An event and the state before it, from a recording.
pub struct Again {
    state: State,
    happened: Happened,
}

/// Of states above so many bytes one in sixteen is looked at: some tests fill them to their limits.
const LARGE_BYTES: usize = 64 << 10;

impl Again {
    /// Both, written and read again.
    pub fn of(state: &State, now: Time, seed: u64, event: &Event) -> Option<Self> {
        let (bytes, _) = hash_of(state);
        if bytes.len() > LARGE_BYTES && !seed.is_multiple_of(16) {
            return None;
        }
        let mut reader = Reader::new(&bytes);
        let state = State::read(&mut reader);
        assert!(reader.finish(), "the state is read as it was written");
        let mut bytes = Vec::new();
        told_event(&mut bytes, now, seed, false, event);
        let mut rest = bytes.as_slice();
        let Some(Entry::Event(bytes)) = take(&mut rest) else { panic!("no event") };
        let mut reader = Reader::new(bytes);
        let happened = Happened::read(&mut reader);
        assert!(reader.finish(), "the event is read as it was written");
        Some(Self { state, happened })
    }

    /// What it came to is what the event comes to when it is played.
    pub fn comes_to(mut self, real: &State) {
        let Happened { now, seed, event, .. } = self.happened;
        let name = format!("{event:?}");
        step(&mut self.state, &mut false, now, u64::from_le_bytes(seed), event);
        assert_eq!(
            hash_of(&self.state).1,
            hash_of(real).1,
            "{name:.300}: played again it comes to another state"
        );
    }
}

/// A folder for one test, removed with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("svc-record-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NOW: Time = Time(1_767_225_600_000);

/// A daemon's life on tape: so many events, with a turn after each.
fn life(place: &Place, max_bytes: u64, events: u64) -> (State, Value) {
    let (mut tape, recorder) = Tape::start(&place.0, max_bytes).unwrap();
    let (mut state, mut exit_sent) = (State::default(), false);
    for n in 0..events {
        let (now, event) = (NOW + std::time::Duration::from_millis(n), wrong(n));
        tape.take(&state, exit_sent, now, n, false, &event);
        step(&mut state, &mut exit_sent, now, n, event);
        tape.turn_over(&state);
    }
    tape.end(&state);
    (state, recorder.shown())
}

/// An event whose place in the state is seen: the state holds the last of them.
fn wrong(n: u64) -> Event {
    Event::Storage(Some(format!("{n} {}", "x".repeat(1000))))
}

fn sum(file: &[u8]) -> Value {
    play(file, Part::new(1, "").unwrap(), &mut |_| true).unwrap()
}

#[test]
fn a_life_is_played_to_the_state_that_it_came_to() {
    let place = Place::new("life");
    let (state, told) = life(&place, 64 << 20, 50);
    let sum = sum(&export(&place.0).unwrap());
    assert_eq!((&sum["events"], &sum["hash"]), (&json!(50), &json!(hash_of(&state).1)), "{told}");
    assert_eq!((&sum["hashes"]["compared"], &sum["hashes"]["equal"]), (&json!(1), &json!(1)));
    assert_eq!((&sum["parts"], &told["lost"], &told["events"]), (&Value::Null, &json!(0), &json!(50)));
}

#[test]
fn the_ring_keeps_its_size_and_what_is_left_of_it_is_played() {
    let place = Place::new("ring");
    let (state, told) = life(&place, 200_000, 2000);
    let file = export(&place.0).unwrap();
    assert!(file.len() < 210_000, "{} bytes: {told}", file.len());
    let first = segments(&file).unwrap()[0].header.clone();
    assert!(first.begins == Begins::Goes && first.seq > 1, "the oldest is gone: {first:?}");
    let sum = sum(&file);
    assert_eq!((&sum["parts"], &sum["hash"]), (&Value::Null, &json!(hash_of(&state).1)));
    let joints = segments(&file).unwrap().len() as u64 - 1;
    assert!(joints >= 3, "{joints}");
    assert_eq!(sum["hashes"]["equal"], joints + 1, "each segment goes on from the one before");
}

#[test]
fn a_replay_that_comes_to_something_else_says_where() {
    let mut state = State::default();
    let mut file = Vec::new();
    let (mut rest, mut exit_sent) = (Vec::new(), false);
    for n in 1..=3 {
        told_event(&mut rest, NOW, n, false, &wrong(n));
        step(&mut state, &mut exit_sent, NOW, n, wrong(n));
        let hash = if n == 2 { "0000000000000000".to_owned() } else { hash_of(&state).1 };
        check(&mut rest, n, &hash);
    }
    let header = Header::new(Begins::Start, 1, NOW, false);
    let mut segment = begun(&header, &hash_of(&State::default()).0);
    segment.extend(&rest);
    file.extend(whole([segment.as_slice()].into_iter()));
    let found = sum(&file);
    assert_eq!((&found["parts"]["after"], &found["parts"]["by"]), (&json!(1), &json!(2)), "{found}");
    assert_eq!(found["hashes"], json!({"compared": 3, "equal": 2, "lastEqual": 3}));
    // Another version: its types read something else.
    let other = Header { shape: "0".into(), version: "9.9.9".into(), ..header };
    let mut foreign = begun(&other, &[]);
    foreign.extend(&rest);
    let both = whole([segment.as_slice(), foreign.as_slice()].into_iter());
    let found = sum(&both);
    assert_eq!(found["unread"]["after"], 3, "{found}");
    assert!(found["unread"]["why"].as_str().unwrap().contains("svc 9.9.9"), "{found}");
    let nothing = play(&whole([foreign.as_slice()].into_iter()), Part::new(1, "").unwrap(), &mut |_| true);
    assert!(nothing.unwrap_err().contains("svc 9.9.9"));
}

#[test]
fn a_file_that_is_cut_or_broken_anywhere_is_played_up_to_there_or_refused_and_never_panics() {
    let place = Place::new("cut");
    life(&place, 64 << 20, 3);
    let file = export(&place.0).unwrap();
    for end in 0..file.len() {
        let _ = play(&file[..end], Part::new(1, "").unwrap(), &mut |_| true);
        let mut wrong = file.clone();
        wrong[end] ^= 0x55;
        let _ = play(&wrong, Part::new(1, "").unwrap(), &mut |_| true);
        let _ = wordless(&wrong);
    }
    assert!(
        play(b"something", Part::new(1, "").unwrap(), &mut |_| true).unwrap_err().contains("no recording")
    );
    assert!(play(MAGIC, Part::new(1, "").unwrap(), &mut |_| true).unwrap_err().contains("empty"));
    // The last segment of a daemon that was killed ends in half an entry.
    let segment =
        fs::read(fs::read_dir(place.0.join("record")).unwrap().next().unwrap().unwrap().path()).unwrap();
    let half = whole([&segment[..segment.len() - 700]].into_iter());
    assert_eq!(events_of(&segments(&half).unwrap()[0]), 2);
    assert_eq!(sum(&half)["events"], 2);
}

#[test]
fn a_part_is_told_by_number_or_time_and_stops_there() {
    let place = Place::new("part");
    life(&place, 64 << 20, 20);
    let file = export(&place.0).unwrap();
    let told = |from: u64, until: &str| {
        let mut told = Vec::new();
        let sum = play(&file, Part::new(from, until).unwrap(), &mut |event| {
            told.push(event["n"].as_u64().unwrap());
            true
        });
        (told, sum.unwrap())
    };
    let (numbers, sum) = told(5, "7");
    assert_eq!((numbers, &sum["last"]), (vec![5, 6, 7], &json!(7)));
    let words = sum["state"]["storageError"].as_str().unwrap();
    assert!(words.starts_with("6 "), "the state after event 7: {words:.20}");
    let (numbers, _) = told(1, &(NOW + std::time::Duration::from_millis(2)).to_string());
    assert_eq!(numbers, [1, 2, 3]);
    assert!(Part::new(1, "yesterday").unwrap_err().contains("until must be the number of an event"));
}

#[test]
fn what_the_disk_does_not_follow_is_left_out_and_the_core_does_not_wait() {
    let (mut tape, recorder) = Tape::stuck();
    let state = State::default();
    let large = || Event::Storage(Some("x".repeat(1 << 20)));
    for n in 0..20 {
        tape.take(&state, false, NOW, n, false, &large());
        tape.turn_over(&state);
    }
    let told = recorder.shown();
    assert!(told["lost"].as_u64().unwrap() >= 15 && told["events"].as_u64().unwrap() <= 5, "{told}");
    // The disk has taken what waited: it goes on with a state of its own.
    let before = recorder.taken();
    assert!(before.iter().any(|(begins, seq)| (*begins, *seq) == (Begins::Start, 1)), "{before:?}");
    tape.take(&state, false, NOW, 20, false, &Event::Timer(Timer::Journalist));
    tape.turn_over(&state);
    assert_eq!(recorder.taken(), [(Begins::Gap, 21)]);
}

#[test]
fn a_disk_that_refuses_is_told_and_costs_nothing_else() {
    let place = Place::new("refused");
    let (mut tape, recorder) = Tape::start(&place.0, 64 << 20).unwrap();
    fs::remove_dir_all(place.0.join("record")).unwrap();
    let state = State::default();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while recorder.shown()["trouble"].is_null() {
        assert!(std::time::Instant::now() < until, "the trouble is told");
        tape.take(&state, false, NOW, 0, false, &wrong(1));
        tape.turn_over(&state);
        std::thread::yield_now();
    }
    assert_eq!(recorder.shown()["recording"], false);
    tape.end(&state);
}

#[test]
fn without_words_nobody_reads_what_was_said_and_the_hashes_are_its_own() {
    let mut bench = Bench::new();
    let id = bench.agent("dev-1");
    let begin = bench.state.clone();
    let said = crate::providers::Activity::Text { text: "the secret plan of the company".into() };
    let batch = crate::agents::report::Batch {
        activities: vec![said],
        frames: crate::agents::report::Packed::default(),
        upto: 1,
        credit: crate::agents::report::Credit::free(),
    };
    let event = Event::Run(id, crate::agents::report::RunReport::Output(batch));
    let mut rest = Vec::new();
    told_event(&mut rest, NOW, 7, false, &event);
    let mut state = begin.clone();
    step(&mut state, &mut false, NOW, 7, event);
    check(&mut rest, 1, &hash_of(&state).1);
    let mut segment = begun(&Header::new(Begins::Start, 1, NOW, false), &hash_of(&begin).0);
    segment.extend(rest);
    let file = whole([segment.as_slice()].into_iter());
    let without = wordless(&file).unwrap();
    let holds = |file: &[u8], word: &str| file.windows(word.len()).any(|part| part == word.as_bytes());
    assert!(holds(&file, "secret plan") && !holds(&without, "secret") && !holds(&without, "company"));
    assert!(holds(&without, "dev-1"));
    let sum = sum(&without);
    assert_eq!((&sum["parts"], &sum["hashes"]["equal"]), (&Value::Null, &json!(1)), "{sum}");
    assert_eq!(sum["state"]["agents"][0]["currentActivity"], "xxx xxxxxx xxxx xx xxx xxxxxxx");
}
