//! Which words stand where in a segment: for each word the blocks of lines that have it, one byte a block.
//!
//! ```text
//! "svcword1"  covered u64  blocks u32  words u32   little-endian, as all numbers
//! blocks x u32   where each block begins in the segment
//! 257 x u32      how many words have a key whose first byte is smaller than this one
//! words x u32    the keys, in order
//! words x u32    where the blocks of each end among those that follow
//! bytes          numbers of blocks
//! ```
//!
//! A file that is missing, cut or damaged is none: the segment is read as it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use svc_base::terms;

const MAGIC: &[u8; 8] = b"svcword1";
/// A segment has at most so many blocks, none smaller than this.
const BLOCKS_MAX: u64 = 256;
const BLOCK_BYTES: u64 = 32 * 1024;
const HEAD_BYTES: u64 = 24;
const FAN: u64 = 257;

/// Writes the words of the first `upto` bytes of a segment, all of them whole lines.
///
/// Errors: the system's words; nothing has changed then.
pub(super) fn build(segment: &Path, words: &Path, upto: u64) -> io::Result<()> {
    let block_bytes = upto.div_ceil(BLOCKS_MAX).max(BLOCK_BYTES);
    let mut reader = BufReader::with_capacity(1 << 18, File::open(segment)?).take(upto);
    let mut line = Vec::new();
    let (mut starts, mut places): (Vec<u32>, Vec<u64>) = (Vec::new(), Vec::new());
    let (mut keys, mut begin, mut at) = (Vec::new(), 0, 0);
    let too_large =
        |_| io::Error::new(io::ErrorKind::InvalidData, "a segment of more than 4 GiB has no index");
    loop {
        line.clear();
        let count = reader.read_until(b'\n', &mut line)? as u64;
        if count == 0 || at - begin >= block_bytes {
            close_block(&mut keys, starts.len(), &mut places);
            starts.push(u32::try_from(begin).map_err(too_large)?);
            begin = at;
        }
        if count == 0 {
            break;
        }
        terms::each(&line, |term| keys.push(term.key));
        at += count;
    }
    places.sort_unstable();
    let bytes = encode(at, &starts, &places);
    let new = words.with_extension("words.new");
    std::fs::write(&new, bytes)?;
    std::fs::rename(&new, words)
}

/// A block is over: its words, each once.
fn close_block(keys: &mut Vec<u32>, block: usize, places: &mut Vec<u64>) {
    keys.sort_unstable();
    keys.dedup();
    places.extend(keys.drain(..).map(|key| (u64::from(key) << 8) | block as u64));
}

fn encode(covered: u64, starts: &[u32], places: &[u64]) -> Vec<u8> {
    let (mut keys, mut ends, mut blocks): (Vec<u32>, Vec<u32>, Vec<u8>) = (vec![], vec![], vec![]);
    let mut fan = vec![0_u32; 257];
    for place in places {
        let key = u32::try_from(place >> 8).unwrap_or(u32::MAX);
        if keys.last() != Some(&key) {
            keys.push(key);
            ends.push(0);
            fan[(key >> 24) as usize + 1] += 1;
        }
        blocks.push(u8::try_from(place & 0xff).unwrap_or(0));
        if let Some(end) = ends.last_mut() {
            *end = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        }
    }
    for at in 1..fan.len() {
        fan[at] += fan[at - 1];
    }
    let mut bytes = Vec::with_capacity(blocks.len() + keys.len() * 8 + 4_096);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&covered.to_le_bytes());
    let count = |list: &[u32]| u32::try_from(list.len()).unwrap_or(u32::MAX).to_le_bytes();
    bytes.extend_from_slice(&count(starts));
    bytes.extend_from_slice(&count(&keys));
    for list in [starts, &fan, &keys, &ends] {
        for number in list {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    bytes.extend_from_slice(&blocks);
    bytes
}

/// The words of a segment.
pub(super) struct Words {
    file: File,
    /// How many bytes of the segment it knows.
    pub covered: u64,
    /// Where its blocks begin.
    pub starts: Vec<u32>,
    fan: Vec<u32>,
}

impl Words {
    /// Opens an index; `None` where there is none that can be used.
    pub fn open(path: &Path, segment_bytes: u64) -> Option<Self> {
        let file = File::open(path).ok()?;
        let length = file.metadata().ok()?.len();
        let mut head = [0_u8; 24];
        file.read_exact_at(&mut head, 0).ok()?;
        let covered = u64::from_le_bytes(head[8..16].try_into().ok()?);
        let count = |at: usize| head[at..at + 4].try_into().ok().map(u32::from_le_bytes);
        let (blocks, words) = (count(16)?, count(20)?);
        let fixed = HEAD_BYTES + 4 * (u64::from(blocks) + FAN + 2 * u64::from(words));
        if &head[..8] != MAGIC
            || covered > segment_bytes
            || u64::from(blocks) > BLOCKS_MAX + 1
            || length < fixed
        {
            return None;
        }
        let starts = numbers(&file, HEAD_BYTES, u64::from(blocks)).ok()?;
        let fan = numbers(&file, HEAD_BYTES + 4 * u64::from(blocks), FAN).ok()?;
        let is_true = fan[256] == words
            && fan.is_sorted()
            && starts.is_sorted_by(|a, b| a < b)
            && starts.last().is_none_or(|last| u64::from(*last) <= covered);
        is_true.then_some(Self { file, covered, starts, fan })
    }

    /// The numbers of the blocks that have a word.
    ///
    /// Errors: the system's words.
    pub fn blocks_with(&self, key: u32) -> io::Result<Vec<u8>> {
        let page = (key >> 24) as usize;
        let (from, to) = (u64::from(self.fan[page]), u64::from(self.fan[page + 1]));
        let keys_at = HEAD_BYTES + 4 * (self.starts.len() as u64 + FAN);
        let keys = numbers(&self.file, keys_at + 4 * from, to - from)?;
        let Ok(at) = keys.binary_search(&key) else { return Ok(Vec::new()) };
        let words = u64::from(self.fan[256]);
        let word = from + at as u64;
        let ends_at = keys_at + 4 * words;
        let (begin, end) = if word == 0 {
            (0, numbers(&self.file, ends_at, 1)?[0])
        } else {
            let both = numbers(&self.file, ends_at + 4 * (word - 1), 2)?;
            (both[0], both[1])
        };
        let count = u64::from(end.saturating_sub(begin)).min(BLOCKS_MAX + 1);
        let mut blocks = vec![0; usize::try_from(count).unwrap_or(0)];
        self.file.read_exact_at(&mut blocks, ends_at + 4 * words + u64::from(begin))?;
        blocks.retain(|block| usize::from(*block) < self.starts.len());
        Ok(blocks)
    }

    /// Where a block begins and ends.
    pub fn block(&self, number: usize) -> (u64, u64) {
        let end = self.starts.get(number + 1).map_or(self.covered, |next| u64::from(*next));
        (u64::from(self.starts[number]), end)
    }
}

fn numbers(file: &File, at: u64, count: u64) -> io::Result<Vec<u32>> {
    let mut bytes = vec![0; usize::try_from(count * 4).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    let (numbers, _) = bytes.as_chunks::<4>();
    Ok(numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}
