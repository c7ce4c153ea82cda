//! What is kept of a file: numbers, by which it is found and compared.

use super::{symbols, words};

/// Words of one file that are kept, the most frequent ones.
const MAX_WORDS: usize = 1_200;
/// Names of one file that are kept, the first ones.
const MAX_NAMES: usize = 1_000;
/// Bits of a word's number that count how often it stands there.
const COUNT_BITS: u32 = 6;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

/// Of one file. The default is that of a file of which the path alone is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest {
    /// Words and how often they stand there, in order.
    words: Box<[u32]>,
    /// How many words it has in all.
    pub length: u32,
    /// Keys of the names that it defines, in order, each once.
    pub defined: Box<[u32]>,
    /// Words of these names, in order, each once.
    pub defined_words: Box<[u32]>,
    /// Keys of the names that stand in it and that it does not define, in order, each once.
    pub used: Box<[u32]>,
}

impl Digest {
    /// Of a text.
    pub fn of(path: &str, text: &str) -> Self {
        let mut all = Vec::new();
        let mut used = Vec::new();
        words::each_name(text.as_bytes(), |name| {
            words::each_word(name, |key| all.push(key & !COUNT_MAX));
            // Short names are local ones.
            if name.len() >= 4 {
                used.push(words::key(name));
            }
        });
        let (mut defined, mut defined_words) = (Vec::new(), Vec::new());
        for symbol in symbols::of(path, text) {
            defined.push(words::key(symbol.name.as_bytes()));
            words::each_word(symbol.name.as_bytes(), |key| defined_words.push(key & !COUNT_MAX));
        }
        let length = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let defined = once(defined);
        let mut used = once(used).into_vec();
        used.retain(|name| defined.binary_search(name).is_err());
        used.truncate(MAX_NAMES);
        Self {
            words: counted(all),
            length,
            defined,
            defined_words: once(defined_words),
            used: used.into_boxed_slice(),
        }
    }

    /// How often a word stands in it, at most 63 times.
    pub fn count(&self, word: u32) -> u32 {
        let key = word & !COUNT_MAX;
        let at = self.words.partition_point(|known| *known < key);
        self.words.get(at).filter(|known| **known & !COUNT_MAX == key).map_or(0, |known| known & COUNT_MAX)
    }

    /// Whether a name that it defines has this word.
    pub fn defines_word(&self, word: u32) -> bool {
        self.defined_words.binary_search(&(word & !COUNT_MAX)).is_ok()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let numbers = self.words.len() + self.defined.len() + self.defined_words.len() + self.used.len();
        size_of::<Self>() + numbers * size_of::<u32>()
    }
}

fn once(mut keys: Vec<u32>) -> Box<[u32]> {
    keys.sort_unstable();
    keys.dedup();
    keys.into_boxed_slice()
}

fn counted(mut keys: Vec<u32>) -> Box<[u32]> {
    keys.sort_unstable();
    let mut words: Vec<u32> = Vec::new();
    for key in keys {
        match words.last_mut() {
            Some(last) if *last & !COUNT_MAX == key => *last += u32::from(*last & COUNT_MAX < COUNT_MAX),
            _ => words.push(key | 1),
        }
    }
    if words.len() > MAX_WORDS {
        words.sort_unstable_by_key(|word| std::cmp::Reverse(word & COUNT_MAX));
        words.truncate(MAX_WORDS);
        words.sort_unstable();
    }
    words.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_knows_words_and_names() {
        let digest = Digest::of("a.rs", "fn parse_request(input: &Input) { read_head(input) } // request");
        let key = |word: &str| words::key(word.as_bytes());
        assert_eq!(digest.count(key("request")), 2);
        assert_eq!(digest.count(key("head")), 1);
        assert_eq!(digest.count(key("missing")), 0);
        assert!(digest.defines_word(key("pars")) && !digest.defines_word(key("head")));
        assert!(digest.defined.contains(&key("parse_request")));
        assert!(digest.used.contains(&key("read_head")) && !digest.used.contains(&key("parse_request")));
    }

    #[test]
    fn counts_and_sizes_are_bounded() {
        let digest = Digest::of("a.rs", &"word ".repeat(1_000));
        assert_eq!(digest.count(words::key(b"word")), COUNT_MAX);
        // Numbers end words, so that each name has words of its own where letters stand for digits.
        let letters =
            |n: usize| n.to_string().bytes().map(|digit| char::from(digit + 49)).collect::<String>();
        let many = (1_000..10_000).map(letters).collect::<Vec<_>>().join(" ");
        let digest = Digest::of("a.rs", &many);
        assert!(digest.bytes() < 4 * (MAX_WORDS + MAX_NAMES) + size_of::<Digest>() + 8, "{}", digest.bytes());
    }
}
