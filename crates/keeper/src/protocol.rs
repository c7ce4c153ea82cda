//! What a daemon and a keeper say to each other, and what a keeper writes down of its program.
//!
//! A frame is `[length u32][kind u8][payload]`, the length in little-endian order and of the payload alone.
//! Payloads that carry bytes of a program are binary, all others JSON.

use super::bytes::{Give, Take};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use svc_base::ids::AgentId;
use svc_sys::process::Marker;

/// The version of everything in this file. A daemon and a keeper of different versions do not talk.
pub const VERSION: u32 = 1;
/// Bytes of a frame's payload.
pub const FRAME_BYTES_MAX: usize = 20 << 20;
/// Bytes of records in one frame, unless a single record is longer.
pub const RECORDS_BYTES_MAX: usize = 256 << 10;
/// Bytes that a program has printed in one record.
pub const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Bytes before a frame's payload.
pub const HEAD_BYTES: usize = 5;
/// Bytes before a record's payload.
pub(crate) const RECORD_HEAD_BYTES: usize = 13;
/// Bytes of a frame of records before the records.
pub(crate) const OFFSET_BYTES: usize = 8;

const START: u8 = 1;
const WRITE: u8 = 2;
const ORDER: u8 = 3;
const RECORDS: u8 = 4;
const ANSWER: u8 = 5;

const OUT: u8 = 1;
const ERR: u8 = 2;
const EVENT: u8 = 3;

/// Bytes that are no frame or no record of this version, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the protocol of the keeper is broken: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for std::io::Error {
    fn from(error: Malformed) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error.to_string())
    }
}

/// What a keeper is to start, and how it is to keep it.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// What a later daemon must show.
    pub token: String,
    /// The folder of this run, absolute; it exists.
    pub run_dir: PathBuf,
    pub program: OsString,
    pub args: Vec<OsString>,
    /// The whole environment but for the marker.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    /// Whether the program's standard input is a pipe; otherwise it is `/dev/null`.
    pub stdin: bool,
    pub marker: Marker,
    /// Between TERM and KILL when no daemon says how long.
    pub stop_grace_ms: u64,
    /// How long the program may go on without a daemon; 0 ends it at once.
    pub orphan_ms: u64,
    /// How far the run stands back behind what else wants the processor, 0 to 19 as for `nice`.
    pub nice: u32,
    /// Bytes of memory above which the run is ended; 0 for no ceiling.
    pub ceiling: u64,
}

/// Without what may be secret.
impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run_dir, program, marker, .. } = self;
        write!(f, "Order {{ run_dir: {run_dir:?}, program: {program:?}, marker: {marker:?}, .. }}")
    }
}

/// An act of the daemon that a write carries out. It is told to the next daemon until it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The offset up to which records had been taken in when it was done.
    pub after: u64,
    pub what: serde_json::Value,
}

/// From the daemon to the keeper. What serde skips has a frame of its own, all else is JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToKeeper {
    /// The first frame to a new keeper. It greets, too, from offset 0.
    #[serde(skip)]
    Start(Order),
    /// The first frame on every other connection.
    Hello { version: u32, token: String, from: u64 },
    /// Bytes for the program's standard input; `close` closes that behind them. A `seq` that is not higher
    /// than the last one is ignored.
    #[serde(skip)]
    Write { seq: u64, note: Option<Note>, bytes: Vec<u8>, close: bool },
    /// End the program and everything it has started.
    Stop { grace_ms: u64 },
    /// Records that end at or before `offset`, and notes up to `seq`, are not needed again.
    Taken { offset: u64, seq: u64 },
    /// How long the program may go on without a daemon, and bytes of memory above which the run is ended: 0
    /// for no ceiling, `None` for the one that there is. Whether all of it is to stand still, for as long as
    /// this daemon is there and nothing of it is being ended.
    Settings {
        orphan_ms: u64,
        ceiling: Option<u64>,
        /// A daemon of before knows nothing of it.
        #[serde(default)]
        frozen: bool,
    },
    /// The run is over, and everything is taken: the keeper goes.
    Forget,
}

/// What greets a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    pub version: u32,
    /// The keeper's own.
    pub pid: u32,
    pub start_ticks: u64,
    /// The offset of the first record that is still there.
    pub first: u64,
    /// The offset behind the last record.
    pub end: u64,
    /// The highest `seq` of a write that has arrived; 0 for none.
    pub last_seq: u64,
    /// Notes that were not taken, with the `seq` of their writes.
    pub notes: Vec<(u64, Note)>,
}

/// From the keeper to the daemon. What serde skips has a frame of its own, all else is JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromKeeper {
    Welcome(Welcome),
    /// The keeper does not talk to this daemon.
    Refused {
        why: String,
    },
    /// Whole records, the first of which starts at `offset`.
    #[serde(skip)]
    Records {
        offset: u64,
        bytes: Vec<u8>,
    },
}

impl ToKeeper {
    /// The frame.
    ///
    /// Errors: it would be too long.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::Start(order) => frame(START, |out| put_order(order, out)),
            Self::Write { seq, note, bytes, close } => frame(WRITE, |out| {
                out.u64(*seq)?;
                out.bool(*close)?;
                out.bytes(&note.as_ref().map(json).unwrap_or_default())?;
                out.extend_from_slice(bytes);
                Ok(())
            }),
            order => json_frame(ORDER, order),
        }
    }

    /// What a frame of this kind says.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Self, Malformed> {
        match kind {
            START => Ok(Self::Start(take_order(payload)?)),
            WRITE => {
                let mut from = Take(payload);
                let (seq, close, note) = (from.u64()?, from.bool()?, from.bytes()?);
                let note = if note.is_empty() { None } else { Some(from_json(note)?) };
                Ok(Self::Write { seq, note, bytes: from.0.to_vec(), close })
            }
            ORDER => from_json(payload),
            _ => Err(Malformed("no such order")),
        }
    }
}

impl FromKeeper {
    /// The frame.
    ///
    /// Errors: it would be too long.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::Records { offset, bytes } => frame(RECORDS, |out| {
                out.u64(*offset)?;
                out.extend_from_slice(bytes);
                Ok(())
            }),
            answer => json_frame(ANSWER, answer),
        }
    }

    /// What a frame of this kind says.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Self, Malformed> {
        match kind {
            RECORDS => {
                let (offset, bytes) = take_records(kind, payload)?;
                Ok(Self::Records { offset, bytes: bytes.to_vec() })
            }
            ANSWER => from_json(payload),
            _ => Err(Malformed("no such answer")),
        }
    }
}

/// What stands before `length` bytes of records in their frame.
pub(crate) fn records_head(offset: u64, length: usize) -> Result<Vec<u8>, Malformed> {
    let mut head = Vec::with_capacity(HEAD_BYTES + OFFSET_BYTES);
    head.u32_of(length + OFFSET_BYTES)?;
    head.push(RECORDS);
    head.u64(offset)?;
    Ok(head)
}

/// The offset and the records of a frame, without a copy.
pub(crate) fn take_records(kind: u8, payload: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    if kind != RECORDS {
        return Err(Malformed("records were expected"));
    }
    let mut from = Take(payload);
    let offset = from.u64()?;
    let whole: usize = records(from.0).last().map_or(0, |(end, ..)| usize::try_from(end).unwrap_or(0));
    if whole == from.0.len() { Ok((offset, from.0)) } else { Err(Malformed("a record is not whole")) }
}

fn frame(kind: u8, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), Malformed>) -> Result<Vec<u8>, Malformed> {
    let mut out = vec![0; HEAD_BYTES];
    fill(&mut out)?;
    let length = out.len() - HEAD_BYTES;
    if length > FRAME_BYTES_MAX {
        return Err(Malformed("a frame would be too long"));
    }
    out[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    out[4] = kind;
    Ok(out)
}

fn json_frame(kind: u8, value: &impl Serialize) -> Result<Vec<u8>, Malformed> {
    frame(kind, |out| {
        out.extend_from_slice(&json(value));
        Ok(())
    })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them cannot fail; an empty payload would be refused on the other side.
    serde_json::to_vec(value).unwrap_or_default()
}

fn from_json<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(payload).map_err(|_| Malformed("a payload is not what its kind says"))
}

fn put_order(order: &Order, out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.u32(VERSION)?;
    out.bytes(order.token.as_bytes())?;
    out.os(order.run_dir.as_os_str())?;
    out.os(&order.program)?;
    out.u32_of(order.args.len())?;
    order.args.iter().try_for_each(|arg| out.os(arg))?;
    out.u32_of(order.env.len())?;
    order.env.iter().try_for_each(|(name, value)| out.os(name).and_then(|()| out.os(value)))?;
    out.os(order.cwd.as_os_str())?;
    out.bool(order.stdin)?;
    out.u32(order.marker.agent.0)?;
    out.os(order.marker.project_dir.as_os_str())?;
    out.u64(order.stop_grace_ms)?;
    out.u64(order.orphan_ms)?;
    out.u32(order.nice)?;
    out.u64(order.ceiling)
}

fn take_order(payload: &[u8]) -> Result<Order, Malformed> {
    let mut from = Take(payload);
    if from.u32()? != VERSION {
        return Err(Malformed("an order of another version"));
    }
    let token = String::from_utf8(from.bytes()?.to_vec()).map_err(|_| Malformed("the token is no text"))?;
    let (run_dir, program) = (from.os()?.into(), from.os()?);
    let args = (0..from.u32()?).map(|_| from.os()).collect::<Result<_, _>>()?;
    let env = (0..from.u32()?).map(|_| Ok((from.os()?, from.os()?))).collect::<Result<_, _>>()?;
    let (cwd, stdin) = (from.os()?.into(), from.bool()?);
    let marker = Marker { agent: AgentId(from.u32()?), project_dir: from.os()?.into() };
    let (stop_grace_ms, orphan_ms, nice, ceiling) = (from.u64()?, from.u64()?, from.u32()?, from.u64()?);
    from.end()?;
    Ok(Order {
        token,
        run_dir,
        program,
        args,
        env,
        cwd,
        stdin,
        marker,
        stop_grace_ms,
        orphan_ms,
        nice,
        ceiling,
    })
}

/// Why a keeper has ended its run by itself: it held more memory than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// Bytes that it held.
    pub held: u64,
    /// Bytes that it may.
    pub ceiling: u64,
}

/// What a keeper writes down. `[length u32][kind u8][ms since 1970 u64][payload]`, the length of the payload
/// alone; what the program has printed stands there as it is, all else as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Record<'a> {
    /// The program runs.
    Started { pid: u32, start_ticks: u64 },
    /// It could not be started; nothing follows.
    StartFailed { error: String },
    /// What it has printed, as it was read.
    #[serde(skip)]
    Out(&'a [u8]),
    /// What it has complained, as it was read.
    #[serde(skip)]
    Err(&'a [u8]),
    /// All bytes of a write with a note are in the program's pipe.
    Written { seq: u64 },
    /// A write did not reach the program.
    Lost { seq: u64 },
    /// The program has not read its input for so long; told once, until it reads again.
    Stuck { seconds: u64 },
    /// Always the last. `signalled`: it was ended from outside, by an order or for want of a daemon; `over`:
    /// because of its memory.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        signalled: bool,
        leaked: u32,
        killed: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        over: Option<Over>,
    },
}

impl Record<'_> {
    /// Appends the record to `out`.
    ///
    /// Errors: it would be too long.
    pub fn put(&self, time: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Record::Out(bytes) => put_record(OUT, time, bytes, out),
            Record::Err(bytes) => put_record(ERR, time, bytes, out),
            event => put_record(EVENT, time, &json(event), out),
        }
    }
}

fn put_record(kind: u8, time: u64, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.u32_of(payload.len())?;
    out.push(kind);
    out.u64(time)?;
    out.extend_from_slice(payload);
    Ok(())
}

/// The length of the record at the start of `bytes`, head and payload; `None` when its head is not all there.
pub(crate) fn record_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.get(..RECORD_HEAD_BYTES)?;
    let payload = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    Some(RECORD_HEAD_BYTES + usize::try_from(payload).ok()?)
}

/// Reads records one by one; see [`records`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    end: u64,
}

/// The records in `bytes`: the offset behind each, counted from the start of `bytes`, its time in
/// milliseconds since 1970, and the record. It ends where no whole record follows.
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { rest: bytes, end: 0 }
}

impl<'a> Iterator for Records<'a> {
    type Item = (u64, u64, Record<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let length = record_length(self.rest)?;
        let (whole, rest) = self.rest.split_at_checked(length)?;
        let (head, payload) = whole.split_at(RECORD_HEAD_BYTES);
        let time = Take(&head[HEAD_BYTES..]).u64().ok()?;
        let record = match head[4] {
            OUT => Record::Out(payload),
            ERR => Record::Err(payload),
            EVENT => from_json(payload).ok()?,
            _ => return None,
        };
        self.rest = rest;
        self.end += u64::try_from(length).ok()?;
        Some((self.end, time, record))
    }
}

#[cfg(test)]
mod tests;
