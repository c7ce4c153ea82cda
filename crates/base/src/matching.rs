//! Where a text answers a question best: the stretch that has most of its words, the rarer ones counting
//! more.

use super::terms::{self, Wanted};
use std::collections::HashMap;

/// Bytes within which words count as said together.
const STRETCH_BYTES: usize = 320;
/// Places of one text that are looked at.
const MAX_PLACES: usize = 512;
/// What a word counts that is the very word, its near kin, or one that means nearly the same.
const SAME: f32 = 1.0;
const KIN: f32 = 0.7;
const NEAR: f32 = 0.6;

/// A question, ready to be compared with texts.
pub struct Matcher {
    wanted: Vec<Wanted>,
    /// By key: which word of the question, by which stem, and what it counts then.
    places: HashMap<u32, Vec<(usize, u32, bool)>>,
    /// A bit for each key that is looked for, so that most words cost one look.
    filter: Vec<u64>,
    rarity: Vec<f32>,
}

/// The best stretch of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    pub score: f32,
    /// Bytes from the beginning of the text to its first and its last word.
    pub from: usize,
    pub to: usize,
    /// A bit for each word of the question that stands anywhere in the text.
    pub words: u64,
}

impl Matcher {
    /// With all words of the same weight.
    pub fn new(wanted: Vec<Wanted>) -> Self {
        let mut places: HashMap<u32, Vec<(usize, u32, bool)>> = HashMap::new();
        let mut filter = vec![0_u64; 1_024];
        for (at, word) in wanted.iter().enumerate() {
            let own = std::iter::once((word.key, word.stem, true));
            for (key, stem, is_own) in own.chain(word.near.iter().map(|(key, stem)| (*key, *stem, false))) {
                places.entry(key).or_default().push((at, stem, is_own));
                let bit = key as usize & 0xffff;
                filter[bit / 64] |= 1 << (bit % 64);
            }
        }
        let rarity = vec![1.0; wanted.len()];
        Self { wanted, places, filter, rarity }
    }

    /// The words of the question.
    pub fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// How much each word counts, in their order.
    pub fn weigh(&mut self, rarity: Vec<f32>) {
        self.rarity = rarity;
    }

    /// What a word of the question counts where only its key is known.
    pub fn weight(&self, at: usize, is_own: bool) -> f32 {
        self.rarity[at] * if is_own { SAME } else { NEAR }
    }

    /// The best stretch of `text`; `None` when it has no word of the question.
    pub fn best(&self, text: &[u8]) -> Option<Best> {
        let mut found: Vec<(usize, usize, f32)> = Vec::new();
        terms::each(text, |term| {
            let bit = term.key as usize & 0xffff;
            if self.filter[bit / 64] & (1 << (bit % 64)) == 0 || found.len() >= MAX_PLACES {
                return;
            }
            for (word, stem, is_own) in self.places.get(&term.key).map(Vec::as_slice).unwrap_or_default() {
                let weight = match (is_own, *stem == term.stem) {
                    (true, true) => SAME,
                    (true, false) => KIN,
                    (false, _) => NEAR,
                };
                found.push((term.at, *word, weight * self.rarity[*word]));
            }
        });
        self.stretch(&found)
    }

    /// The stretch of the places with the highest sum, each word counted once.
    fn stretch(&self, found: &[(usize, usize, f32)]) -> Option<Best> {
        let mut best: Option<Best> = None;
        let mut each = vec![0.0_f32; self.wanted.len()];
        let words = found.iter().fold(0, |words, (_, word, _)| words | 1 << (word % 64));
        for (begin, (from, _, _)) in found.iter().enumerate() {
            each.fill(0.0);
            let mut to = *from;
            for (at, word, weight) in &found[begin..] {
                if at.saturating_sub(*from) > STRETCH_BYTES {
                    break;
                }
                if *weight > each[*word] {
                    each[*word] = *weight;
                    to = *at;
                }
            }
            let count = each.iter().filter(|weight| **weight > 0.0).count();
            let score: f32 = each.iter().sum::<f32>() * (0.5 + 0.5 * share(count, each.len()));
            if best.is_none_or(|known| score > known.score) {
                best = Some(Best { score, from: *from, to, words });
            }
        }
        best
    }

    /// The best stretch of `text` with what stands around it, at most `chars` characters on one line.
    pub fn excerpt(&self, text: &str, chars: usize) -> String {
        let best = self.best(text.as_bytes()).unwrap_or(Best { score: 0.0, from: 0, to: 0, words: 0 });
        let best =
            Best { from: boundary(text, best.from), to: boundary(text, best.to.max(best.from)), ..best };
        let inside = best.to - best.from;
        let around = (chars.saturating_sub(inside) * 2 / 5).max(40);
        let mut from = boundary(text, best.from.saturating_sub(around));
        let mut to = boundary(text, best.to + around);
        // A line of its own is a thought of its own, where it is long enough to be one.
        if let Some(at) = text[from..best.from].rfind('\n') {
            from += at + 1;
        }
        if let Some(at) = text[best.to..to].find('\n').filter(|at| best.to + at - from > 24) {
            to = best.to + at;
        }
        let shown: Vec<&str> = text[from..to].split_whitespace().collect();
        let shown: String = shown.join(" ").chars().filter(|c| !c.is_control()).take(chars).collect();
        let before = if from > 0 { "… " } else { "" };
        let after = if to < text.trim_end().len() { " …" } else { "" };
        format!("{before}{shown}{after}")
    }
}

/// The end of the character before this byte.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[allow(clippy::cast_precision_loss, reason = "a question has some dozen words")]
fn share(count: usize, all: usize) -> f32 {
    count as f32 / all.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(question: &str) -> Matcher {
        Matcher::new(terms::wanted(question, 12))
    }

    #[test]
    fn words_that_stand_together_beat_words_that_stand_apart() {
        let matcher = matcher("rounding of prices");
        let together = matcher.best(b"The rounding of prices is half-even").unwrap();
        let apart = format!("prices {} rounding", "x y z ".repeat(100));
        let apart = matcher.best(apart.as_bytes()).unwrap();
        assert!(together.score > apart.score * 1.5, "{together:?} {apart:?}");
        assert_eq!(matcher.best(b"nothing of the kind"), None);
    }

    #[test]
    fn near_words_of_other_languages_are_found_and_count_less() {
        let matcher = matcher("backup of the database");
        let same = matcher.best(b"the database backup").unwrap().score;
        let near = matcher.best("die Sicherung der Datenbank".as_bytes()).unwrap().score;
        assert!(near > 0.0 && near < same, "{near} {same}");
    }

    #[test]
    fn odd_texts_are_shown_as_well() {
        let matcher = matcher("voucher badge users é");
        let odd = [
            "VoucherBadge",
            "userBadge voucherX",
            r"C:\users\é",
            "\\",
            r"\u12é voucher",
            "é\\",
            "vouchers\n\nbadge",
        ];
        for text in odd {
            for chars in [0, 1, 5, 50] {
                assert!(matcher.excerpt(text, chars).chars().count() <= chars + 4, "{text}");
                assert!(matcher.excerpt(&text.repeat(90), chars).chars().count() <= chars + 4, "{text}");
            }
        }
    }

    #[test]
    fn an_excerpt_shows_the_best_stretch_of_a_long_text() {
        let matcher = matcher("stale cart status");
        let text = format!(
            "{}\nstale cart: expected 412 got 409\n{}",
            "noise line\n".repeat(500),
            "more\n".repeat(99)
        );
        let shown = matcher.excerpt(&text, 200);
        assert!(shown.contains("expected 412 got 409") && shown.chars().count() <= 204, "{shown}");
        assert_eq!(matcher.excerpt("", 50), "");
        assert_eq!(
            matcher.excerpt("ü".repeat(300).as_str(), 50).chars().count(),
            22,
            "20 of them, and the mark"
        );
    }
}
