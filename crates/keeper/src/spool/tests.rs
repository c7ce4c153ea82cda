use super::*;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn limits() -> Limits {
    Limits {
        memory_bytes: 1000,
        memory_bytes_max: 200_000,
        spill_bytes: 4000,
        spool_bytes_max: 300_000,
        ..Limits::default()
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("svc-spool-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Checks a spool against the whole story, from the offset `first` on.
fn check(spool: &Spool, whole: &[u8], starts: &[u64], first: u64, dice: &mut Dice) {
    assert_eq!((spool.first(), spool.end()), (first, whole.len() as u64));
    let mut at = first;
    let mut found = Vec::new();
    while at < spool.end() {
        let read = spool.read(at, usize::try_from(dice.roll(3000)).unwrap(), &mut found).unwrap();
        assert!(read > 0);
        at += read as u64;
        assert!(starts.binary_search(&at).is_ok() || at == spool.end(), "whole records");
    }
    assert_eq!(found, &whole[usize::try_from(first).unwrap()..]);
    assert_eq!(spool.read(at, 100, &mut found).unwrap(), 0);
    let some = first + dice.roll(spool.end() - first + 2);
    assert_eq!(spool.is_start(some), starts.binary_search(&some).is_ok() || some == spool.end(), "{some}");
}

#[test]
fn a_spool_tells_what_was_put_in_whatever_was_taken_meanwhile() {
    for seed in 1..=20 {
        let place = folder(&format!("story-{seed}"));
        let now = Instant::now();
        let mut spool = Spool::new(limits(), place.clone());
        let (mut whole, mut starts, mut first) = (Vec::new(), Vec::new(), 0);
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        for step in 0..400 {
            if dice.roll(4) > 0 {
                let bytes =
                    vec![u8::try_from(dice.roll(256)).unwrap(); usize::try_from(dice.roll(900)).unwrap()];
                starts.push(whole.len() as u64);
                Record::Out(&bytes).put(step, &mut whole).unwrap();
                spool.push(&Record::Out(&bytes), step, now);
            } else if !starts.is_empty() {
                // Often in the middle of a record, sometimes behind the end.
                let offset = first + dice.roll(whole.len() as u64 - first + 50);
                spool.taken(offset);
                let known = starts.iter().copied().chain([whole.len() as u64]);
                first = known.filter(|start| *start <= offset).max().unwrap_or(0).max(first);
            }
            check(&spool, &whole, &starts, first, &mut dice);
            assert!(spool.in_memory() <= limits().memory_bytes);
        }
        assert_eq!(names(&place), 0);
        spool.taken(u64::MAX);
        assert!(spool.files.is_empty() && spool.memory.is_empty());
        std::fs::remove_dir(place).unwrap();
    }
}

#[test]
fn little_is_kept_in_memory_alone() {
    // A folder that is not there: any file would fail.
    let mut spool = Spool::new(Limits::default(), "/nowhere".into());
    for _ in 0..100 {
        spool.push(&Record::Out(&[0; 2000]), 0, Instant::now());
    }
    assert!(spool.files.is_empty() && spool.retry().is_none());
}

#[test]
fn a_disk_that_refuses_is_tried_again_and_nothing_is_lost() {
    let place = folder("disk");
    std::fs::remove_dir(&place).unwrap();
    let mut spool = Spool::new(Limits { memory_bytes_max: 100_000, ..limits() }, place.clone());
    let now = Instant::now();
    let mut count = 0;
    while !spool.is_full() {
        spool.push(&Record::Out(&[1; 100]), 0, now);
        count += 1;
    }
    assert!(spool.in_memory() > 1000 && spool.in_memory() <= 100_000);
    let retry = spool.retry().unwrap();
    std::fs::create_dir(&place).unwrap();
    spool.make_room(retry.checked_sub(Duration::from_millis(1)).unwrap());
    assert!(spool.is_full(), "not before its time");
    spool.make_room(retry);
    assert!(!spool.is_full() && spool.retry().is_none());
    let mut found = Vec::new();
    while spool.read(found.len() as u64, 5000, &mut found).unwrap() > 0 {}
    assert_eq!(super::super::protocol::records(&found).count(), count);
    std::fs::remove_dir(place).unwrap();
}

#[test]
fn a_disk_that_refused_is_forgotten_when_memory_has_room_again() {
    let mut spool = Spool::new(limits(), "/nowhere".into());
    let now = Instant::now();
    spool.push(&Record::Out(&[0; 2000]), 0, now);
    assert!(spool.retry().is_some());
    spool.taken(spool.end());
    spool.make_room(now);
    assert!(spool.retry().is_none(), "nobody waits for it");
}

#[test]
fn a_spool_is_full_at_its_bound_and_has_room_once_something_is_taken() {
    let place = folder("full");
    let mut spool = Spool::new(limits(), place.clone());
    while !spool.is_full() {
        spool.push(&Record::Err(&[2; 1000]), 0, Instant::now());
    }
    assert!(spool.end() <= 300_000 && spool.end() + READ_ROOM as u64 + 1100 > 300_000, "{}", spool.end());
    spool.taken(10_000);
    assert!(!spool.is_full());
    std::fs::remove_dir(place).unwrap();
}
