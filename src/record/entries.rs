//! How a recording reads: a segment is a header, the state, and then events and hashes, each entry as its
//! kind (one byte), its length, and its bytes.

use super::MAGIC;
use crate::core::time::Time;
use crate::core::{Event, State};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use svc_base::hex;
use svc_base::recorded::{Reader, Recorded, number};

/// The kinds of entries. A segment stands in an exported file as an entry itself.
const HEADER: u8 = b'H';
const STATE: u8 = b'S';
const EVENT: u8 = b'E';
const CHECK: u8 = b'C';
const SEGMENT: u8 = b'G';

/// Bytes of a hash that are kept.
const HASH_BYTES: usize = 8;

/// What a segment goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Begins {
    /// A daemon has started.
    Start,
    /// From the end of the segment before.
    Goes,
    /// Events were left out before it.
    Gap,
}

/// The first entry of a segment, as JSON, so that any version can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Of svc.
    pub version: String,
    /// Of the core's types: equal ones read each other's recordings.
    pub shape: String,
    pub begins: Begins,
    /// The number of its first event, from 1 in each daemon's life.
    pub seq: u64,
    /// When it was begun, in milliseconds since 1970.
    pub at: u64,
    /// Whether `Effect::Exit` was given before it.
    pub exit_sent: bool,
}

impl Header {
    /// The header of a segment that is begun here and now.
    pub fn new(begins: Begins, seq: u64, at: Time, exit_sent: bool) -> Self {
        let shape = shape();
        Self { version: crate::VERSION.into(), shape, begins, seq, at: at.0, exit_sent }
    }

    /// Whether this program reads what follows.
    pub fn is_readable(&self) -> bool {
        self.shape == shape()
    }
}

/// The shape of what this program records.
pub fn shape() -> String {
    const SHAPE: u64 = State::SHAPE.rotate_left(1) ^ Event::SHAPE;
    format!("{SHAPE:016x}")
}

/// An event with what came along.
#[derive(Debug, Recorded)]
pub struct Happened {
    pub now: Time,
    /// Its random bits.
    pub seed: [u8; 8],
    /// Whether it is a deadline of the state's own table, which it leaves.
    pub is_due: bool,
    pub event: Event,
}

/// Adds an event, without a copy of it.
pub fn told_event(to: &mut Vec<u8>, now: Time, seed: u64, is_due: bool, event: &Event) {
    entry(to, EVENT, |to| {
        now.write(to);
        seed.to_le_bytes().write(to);
        is_due.write(to);
        event.write(to);
    });
}

/// Adds an entry whose length is known when it is written.
fn entry(to: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    const ROOM: usize = 4;
    to.push(kind);
    let at = to.len();
    to.extend_from_slice(&[0; ROOM]);
    write(to);
    // An entry has 4 GiB at most: the state has to fit into memory several times.
    let length = u32::try_from(to.len() - at - ROOM).unwrap_or(u32::MAX);
    to[at..at + ROOM].copy_from_slice(&length.to_le_bytes());
}

/// A state as it stands in a recording, and its hash.
pub fn hash_of(state: &State) -> (Vec<u8>, String) {
    let mut bytes = Vec::new();
    state.write(&mut bytes);
    let hash = Sha256::digest(&bytes);
    (bytes, hex::encode(&hash[..HASH_BYTES]))
}

/// The beginning of a segment.
pub fn begun(header: &Header, state: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(state.len() + 256);
    entry(&mut bytes, HEADER, |to| to.extend(serde_json::to_vec(header).unwrap_or_default()));
    entry(&mut bytes, STATE, |to| to.extend_from_slice(state));
    bytes
}

/// Adds the hash of the state after event `seq`.
pub fn check(to: &mut Vec<u8>, seq: u64, hash: &str) {
    entry(to, CHECK, |to| {
        number(seq, to);
        to.extend_from_slice(hash.as_bytes());
    });
}

/// Segments as one file.
pub fn whole<'a>(segments: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for segment in segments {
        entry(&mut bytes, SEGMENT, |to| to.extend_from_slice(segment));
    }
    bytes
}

/// The segment as it would be without what `state` and `rest` leave out.
pub fn remade(header: &Header, state: &State, rest: &[u8]) -> Vec<u8> {
    let mut bytes = begun(header, &hash_of(state).0);
    bytes.extend_from_slice(rest);
    bytes
}

/// One entry.
#[derive(Debug)]
pub enum Entry<'a> {
    Header(Header),
    State(&'a [u8]),
    Event(&'a [u8]),
    /// The hash of the state after this event.
    Check(u64, &'a str),
}

/// A segment, of which the header was read.
#[derive(Debug)]
pub struct Segment<'a> {
    pub header: Header,
    /// The state at its beginning.
    pub state: &'a [u8],
    /// What follows, for [`take`].
    pub rest: &'a [u8],
}

fn cut<'a>(bytes: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (entry, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some((*kind, entry))
}

/// The next entry; `None` at the end, and where the rest is none: a daemon that was killed leaves half of
/// its last one.
pub fn take<'a>(bytes: &mut &'a [u8]) -> Option<Entry<'a>> {
    let (kind, entry) = cut(bytes)?;
    match kind {
        HEADER => serde_json::from_slice(entry).ok().map(Entry::Header),
        STATE => Some(Entry::State(entry)),
        EVENT => Some(Entry::Event(entry)),
        CHECK => {
            let mut reader = Reader::new(entry);
            let seq = reader.number();
            std::str::from_utf8(reader.rest()).ok().map(|hash| Entry::Check(seq, hash))
        }
        _ => None,
    }
}

/// The segments of a file.
///
/// Errors: it is no recording.
pub fn segments(file: &[u8]) -> Result<Vec<Segment<'_>>, String> {
    let mut rest =
        file.strip_prefix(MAGIC).ok_or("this is no recording of svc: 'svc record export' makes one")?;
    let mut found = Vec::new();
    while let Some((kind, mut segment)) = cut(&mut rest) {
        if kind != SEGMENT {
            return Err("this recording holds something that is no segment: export it again".into());
        }
        if let (Some(Entry::Header(header)), Some(Entry::State(state))) =
            (take(&mut segment), take(&mut segment))
        {
            found.push(Segment { header, state, rest: segment });
        }
    }
    if found.is_empty() {
        return Err("this recording is empty: the daemon that made it recorded nothing".into());
    }
    Ok(found)
}

/// How many events a segment has.
pub fn events_of(segment: &Segment) -> u64 {
    let (mut rest, mut count) = (segment.rest, 0);
    while let Some((kind, _)) = cut(&mut rest) {
        count += u64::from(kind == EVENT);
    }
    count
}
