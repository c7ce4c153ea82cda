//! Frames out of a stream of bytes, as they arrive.

use super::protocol::{HEAD_BYTES, Malformed};
use std::io::{self, Read};
use std::ops::Range;

/// Room that is kept while nothing waits in it.
const KEPT_BYTES: usize = 64 << 10;

/// What has been read of a stream, and not been understood yet.
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes read at once.
    chunk: usize,
}

impl Frames {
    /// Reads so many bytes at once.
    pub fn new(chunk: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, end: 0, chunk }
    }

    /// Reads once. 0 is the end of the stream.
    pub fn fill(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.make_room();
        let count = stream.read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }

    /// The next whole frame: its kind, and where its payload is, see [`Frames::payload`]. `None` when more
    /// is to be read first.
    ///
    /// Errors: the frame's payload is longer than `limit`.
    pub fn next(&mut self, limit: usize) -> Result<Option<(u8, Range<usize>)>, Malformed> {
        let Some(length) = self.length() else { return Ok(None) };
        if length > limit {
            return Err(Malformed("a frame is too long"));
        }
        let payload = self.start + HEAD_BYTES..self.start + HEAD_BYTES + length;
        if payload.end > self.end {
            return Ok(None);
        }
        let kind = self.buffer[self.start + HEAD_BYTES - 1];
        self.start = payload.end;
        Ok(Some((kind, payload)))
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// Whether [`Frames::next`] has something to tell without another read.
    pub fn is_ready(&self) -> bool {
        self.length().is_some_and(|length| self.start + HEAD_BYTES + length <= self.end)
    }

    /// Valid until more is read.
    pub fn payload(&self, place: Range<usize>) -> &[u8] {
        self.buffer.get(place).unwrap_or_default()
    }

    fn length(&self) -> Option<usize> {
        let head = self.buffer[self.start..self.end].first_chunk::<HEAD_BYTES>()?;
        usize::try_from(u32::from_le_bytes([head[0], head[1], head[2], head[3]])).ok()
    }

    /// For one more read at least. The caller has refused a frame that is too long, so what is begun may have
    /// all the room it needs.
    fn make_room(&mut self) {
        let begun = self.length().map_or(0, |length| HEAD_BYTES + length);
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let wanted = begun.max(self.end + self.chunk);
        if self.end == 0 && self.buffer.len() > KEPT_BYTES.max(wanted) {
            self.buffer = Vec::new();
        }
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            Read::read(&mut self.0, &mut buffer[..length])
        }
    }

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        out.push(kind);
        out.extend(payload);
        out
    }

    #[test]
    fn frames_are_found_however_they_arrive() {
        let sent = [frame(1, b"one"), frame(2, b""), frame(3, &[7; 3000])].concat();
        for chunk in [1, 5, 100, 10_000] {
            let mut stream = Drip(&sent);
            let mut frames = Frames::new(chunk);
            let mut found = Vec::new();
            while frames.fill(&mut stream).unwrap() > 0 {
                while let Some((kind, place)) = frames.next(4000).unwrap() {
                    found.push((kind, frames.payload(place).to_vec()));
                }
            }
            assert_eq!(found, [(1, b"one".to_vec()), (2, Vec::new()), (3, vec![7; 3000])], "{chunk}");
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_by_its_head() {
        let sent = frame(1, &[0; 11]);
        let mut frames = Frames::new(64);
        frames.fill(&mut &sent[..HEAD_BYTES]).unwrap();
        assert!(frames.next(10).is_err());
        assert_eq!(frames.next(11), Ok(None));
    }

    #[test]
    fn room_for_a_long_frame_is_given_back() {
        let long = frame(1, &vec![0; 1 << 20]);
        let mut stream = &long[..];
        let mut frames = Frames::new(1024);
        while frames.next(2 << 20).unwrap().is_none() {
            frames.fill(&mut stream).unwrap();
        }
        frames.fill(&mut &b"x"[..]).unwrap();
        assert!(frames.buffer.capacity() <= KEPT_BYTES, "{}", frames.buffer.capacity());
    }
}
