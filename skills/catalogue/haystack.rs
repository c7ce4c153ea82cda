//! The searched texts of all skills as one piece of memory, so that a search is one pass instead of
//! thousands.
//!
//! **Invariant:** text `n` is that of entry `n`; no text holds [`END`], so no match reaches over two of them.

use memchr::memmem::Finder;

/// Stands after each text; a control character, which neither names nor descriptions nor tags may hold.
const END: char = '\0';

/// All texts, one after the other.
#[derive(Debug, Default)]
pub struct Haystack {
    all: String,
    /// Where each text ends, the separator not included.
    ends: Vec<usize>,
}

impl Haystack {
    /// Of texts in the order of their entries.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Self {
        let mut haystack = Self::default();
        haystack.all.reserve_exact(texts.clone().map(|text| text.len() + 1).sum());
        for text in texts {
            haystack.all.push_str(text);
            haystack.ends.push(haystack.all.len());
            haystack.all.push(END);
        }
        haystack
    }

    /// For each text whether it holds all words.
    pub fn holding(&self, words: &[String]) -> Vec<bool> {
        let mut found = vec![false; self.ends.len()];
        // The longest one is in the fewest texts and passes over the most bytes at a time.
        let Some(longest) = words.iter().max_by_key(|word| word.len()) else {
            found.fill(true);
            return found;
        };
        if words.iter().any(|word| word.contains(END)) {
            return found;
        }
        let finder = Finder::new(longest.as_bytes());
        let others: Vec<&String> = words.iter().filter(|word| *word != longest).collect();
        let mut from = 0;
        while let Some(at) = self.all.as_bytes().get(from..).and_then(|rest| finder.find(rest)) {
            let index = self.ends.partition_point(|end| *end <= from + at);
            let Some(end) = self.ends.get(index) else { break };
            let begin = index.checked_sub(1).map_or(0, |before| self.ends[before] + END.len_utf8());
            let text = &self.all[begin..*end];
            found[index] = others.iter().all(|word| text.contains(word.as_str()));
            from = end + END.len_utf8();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(texts: &[&str], search: &str) -> Vec<bool> {
        let words: Vec<String> = search.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
        Haystack::of(texts.iter().copied()).holding(&words)
    }

    #[test]
    fn decisions_3_all_words_must_be_in_one_text() {
        let texts = ["tidy tests", "", "tests of reviews", "größe", "tidy"];
        assert_eq!(holding(&texts, "test"), [true, false, true, false, false]);
        assert_eq!(holding(&texts, "tests rev"), [false, false, true, false, false]);
        assert_eq!(holding(&texts, "tidy tests of"), [false; 5], "no match over two texts");
        assert_eq!(holding(&texts, "öß"), [false, false, false, true, false]);
        assert_eq!(holding(&texts, "tidy"), [true, false, false, false, true], "the last one, too");
        assert_eq!(holding(&texts, ""), [true; 5]);
        assert_eq!(holding(&texts, "tests\0"), [false; 5], "the separator is in no text");
        assert_eq!(holding(&[], "tests"), [false; 0]);
    }

    #[test]
    fn one_pass_finds_what_looking_at_each_text_finds() {
        let mut random = 0x9e37_79b9_u64;
        let mut next = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % (n as u64)).unwrap()
        };
        for _ in 0..300 {
            let mut word = |letters: usize| -> String {
                (0..next(letters)).map(|_| ['a', 'b', 'ä', ' '][next(4)]).collect()
            };
            let texts: Vec<String> = (0..20).map(|_| word(12)).collect();
            let words: Vec<String> =
                (0..2).map(|_| word(4).replace(' ', "")).filter(|word| !word.is_empty()).collect();
            let expected: Vec<bool> =
                texts.iter().map(|text| words.iter().all(|word| text.contains(word.as_str()))).collect();
            let found = Haystack::of(texts.iter().map(String::as_str)).holding(&words);
            assert_eq!(found, expected, "{words:?} in {texts:?}");
        }
    }
}
