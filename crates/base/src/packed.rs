//! Texts one behind the other in one piece of memory: made on one thread and thrown away on another, they
//! cost one allocation together and not one each.

/// Texts in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Packed {
    /// None yet, with room for as much as `other` holds.
    pub fn with_room_of(other: &Self) -> Self {
        Self { bytes: Vec::with_capacity(other.bytes.len()), ends: Vec::with_capacity(other.ends.len()) }
    }

    /// Lets `write` add bytes; they are a further text if it says so, and nothing if not.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.bytes.len();
        if write(&mut self.bytes) {
            self.ends.push(self.bytes.len());
        } else {
            self.bytes.truncate(start);
        }
    }

    /// The texts, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let start = |at: usize| if at == 0 { 0 } else { self.ends[at - 1] };
        self.ends.iter().enumerate().map(move |(at, end)| &self.bytes[start(at)..*end])
    }

    /// Bytes of all texts together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_added_and_what_was_taken_back_is_gone() {
        let mut texts = Packed::default();
        assert_eq!((texts.iter().len(), texts.bytes()), (0, 0));
        for (text, stays) in [("one", true), ("not", false), ("", true), ("two", true), ("no", false)] {
            texts.add(|bytes| {
                bytes.extend_from_slice(text.as_bytes());
                stays
            });
        }
        assert_eq!(texts.iter().collect::<Vec<_>>(), [&b"one"[..], b"", b"two"]);
        assert_eq!((texts.iter().len(), texts.bytes()), (3, 6));
    }
}
