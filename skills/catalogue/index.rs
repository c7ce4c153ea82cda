//! What a search finds, and how well: an inverted index over the words of all skills.
//!
//! A word of a search fits a skill when it stands anywhere in its texts (as the specification has it), when
//! it has the same stem as a word there, or, where no skill fits otherwise, when it differs from one there
//! by a slip of the finger. All words have to fit. Names weigh more than tags, tags more than descriptions,
//! whole words more than parts.
//!
//! **Invariant:** whoever holds all words of a search as parts of name, description and tags is found.
//!
//! The index is made by the first search that needs it. Skills that have changed since are looked at one by
//! one; when they are many, the index is made anew.

use super::entry::Entry;
use super::shelf::Shelf;
use memchr::memmem::Finder;
use std::collections::HashMap;
use std::sync::Arc;
use svc_base::relevance::stem;

/// Stands between two terms; white space is in none.
const BETWEEN: char = '\n';
/// Skills changed since the index was made that are looked at one by one.
pub const MAX_CHANGED: usize = 256;
/// A shorter word of a search is taken as it is written.
const SHORTEST_TYPO: usize = 4;
/// From this length on two slips are forgiven.
const LONG_WORD: usize = 8;
/// A word that is much longer than what people write is no word to repair.
const LONGEST_TYPO: usize = 32;

/// No word that differs from one of [`LONGEST_TYPO`] by the slips that are forgiven is longer.
const LONGEST_SLIP: usize = LONGEST_TYPO + 2;

/// Where a term stands. The discriminant is what it is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Name = 0,
    Tag = 1,
    /// Id, author or role: what is not in the specification's three texts.
    Other = 2,
    Description = 3,
}

/// How a word fits a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Whole = 0,
    Stem = 1,
    Begin = 2,
    Part = 3,
    Typo = 4,
}

/// What a term in a field is worth, by [`Fit`] and [`Field`]. Parts of ids and authors' names are nothing:
/// they would fit by chance.
const WORTH: [[u16; 4]; 5] =
    [[100, 60, 40, 30], [80, 50, 30, 24], [70, 40, 24, 16], [40, 24, 0, 8], [20, 12, 0, 5]];
/// A name that is the search, word for word.
const WHOLE_NAME: u16 = 1_000;

impl Fit {
    fn worth(self, field: Field) -> u16 {
        WORTH[self as usize][field as usize]
    }
}

const FIELDS: [Field; 4] = [Field::Name, Field::Tag, Field::Other, Field::Description];
/// Bits of a posting that name the field.
const FIELD_BITS: u32 = 2;

/// A word of a skill: up to white space.
#[derive(Debug)]
struct Term {
    /// Where it begins among all terms.
    begin: u32,
    /// Where its postings begin; the next term's end them.
    postings: u32,
}

/// The words of all skills, and where each stands.
#[derive(Debug, Default)]
pub struct Index {
    /// All terms, a [`BETWEEN`] after each.
    all: String,
    terms: Vec<Term>,
    /// Entry and field of each standing of a term: `entry << FIELD_BITS | field`.
    postings: Vec<u32>,
    /// For each stem of letters and digits within a term: the terms.
    stems: HashMap<Box<str>, Vec<u32>>,
    /// For each word with a letter within a term: its letters, the word and the terms.
    plain: Vec<(u32, Box<str>, Vec<u32>)>,
}

impl Index {
    /// Of all entries.
    pub fn of(entries: &Shelf<Arc<Entry>>) -> Self {
        let mut known: HashMap<&str, u32> = HashMap::new();
        let mut names: Vec<&str> = Vec::new();
        let mut standings: Vec<(u32, u32)> = Vec::new();
        for (at, entry) in (0u32..).zip(entries.iter()) {
            for (field, text) in entry.texts() {
                for word in text.split_whitespace() {
                    let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
                    let term = *known.entry(word).or_insert(next);
                    if term == next {
                        names.push(word);
                    }
                    standings.push((term, at << FIELD_BITS | field as u32));
                }
            }
        }
        standings.sort_unstable();
        standings.dedup();
        let mut index = Self { postings: Vec::with_capacity(standings.len()), ..Self::default() };
        let mut rest = standings.as_slice();
        let mut plain: HashMap<&str, Vec<u32>> = HashMap::new();
        for (number, name) in (0u32..).zip(&names) {
            let count = rest.partition_point(|(term, _)| *term == number);
            let (own, others) = rest.split_at(count);
            rest = others;
            let place = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
            index.terms.push(Term { begin: place(index.all.len()), postings: place(index.postings.len()) });
            index.postings.extend(own.iter().map(|(_, posting)| posting));
            index.all.push_str(name);
            index.all.push(BETWEEN);
            for word in words(name) {
                add(index.stems.entry(stem(word).into()).or_default(), number);
                if is_repairable(word) {
                    add(plain.entry(word).or_default(), number);
                }
            }
        }
        index.plain = plain.into_iter().map(|(word, terms)| (letters(word), word.into(), terms)).collect();
        index
    }

    /// Adds to `best` what each entry is worth for one word: the most that any of its terms is.
    pub fn weigh(&self, word: &str, repaired: bool, best: &mut [u16]) {
        if word.is_empty() || word.contains(BETWEEN) {
            return;
        }
        if repaired {
            for term in self.slips(word) {
                self.raise(term, Fit::Typo, best);
            }
            return;
        }
        let finder = Finder::new(word.as_bytes());
        let (mut from, mut number) = (0, 0);
        while let Some(at) = self.all.as_bytes().get(from..).and_then(|rest| finder.find(rest)) {
            let place = from + at;
            number = self.term_at(place, number);
            let (begin, end) = self.range(number);
            let fit = match (place == begin, place + word.len() == end) {
                (true, true) => Fit::Whole,
                (true, false) => Fit::Begin,
                _ => Fit::Part,
            };
            self.raise(u32::try_from(number).unwrap_or(u32::MAX), fit, best);
            // One fit a term is enough; on to the next term.
            from = end + BETWEEN.len_utf8();
        }
        // A term such as `rust-web` holds whole words that stand neither at its begin nor at its end.
        for term in self.stems.get(stem(word)).into_iter().flatten() {
            let (begin, end) = self.range(*term as usize);
            let is_whole = words(&self.all[begin..end]).any(|part| part == word);
            self.raise(*term, if is_whole { Fit::Whole } else { Fit::Stem }, best);
        }
    }

    /// The terms with a word that differs by a slip of the finger.
    fn slips(&self, word: &str) -> impl Iterator<Item = u32> {
        let most = forgiven(word);
        let own = letters(word);
        // One slip changes at most two of the letters that occur.
        let near = move |theirs: u32| (theirs ^ own).count_ones() <= 2 * u32::try_from(most).unwrap_or(0);
        // The letters come first: they rule out nearly all without a table of distances.
        let fits = self.plain.iter().filter(move |(theirs, candidate, _)| {
            most > 0 && near(*theirs) && is_slip(word, candidate, most)
        });
        fits.flat_map(|(_, _, terms)| terms.iter().copied())
    }

    /// The term that this place is in; it is `from` or one behind it, most often near.
    fn term_at(&self, place: usize, from: usize) -> usize {
        let begins_before = |term: &Term| term.begin as usize <= place;
        let (mut known, mut step) = (from, 1);
        while self.terms.get(known + step).is_some_and(begins_before) {
            known += step;
            step *= 2;
        }
        let end = self.terms.len().min(known + step);
        known + self.terms[known + 1..end].partition_point(begins_before)
    }

    fn range(&self, number: usize) -> (usize, usize) {
        let begin = self.terms[number].begin as usize;
        let next = self.terms.get(number + 1).map_or(self.all.len(), |term| term.begin as usize);
        (begin, next - BETWEEN.len_utf8())
    }

    fn raise(&self, term: u32, fit: Fit, best: &mut [u16]) {
        let number = term as usize;
        let from = self.terms[number].postings as usize;
        let to = self.terms.get(number + 1).map_or(self.postings.len(), |term| term.postings as usize);
        for posting in &self.postings[from..to] {
            let field = FIELDS[(posting & ((1 << FIELD_BITS) - 1)) as usize];
            let worth = &mut best[(posting >> FIELD_BITS) as usize];
            *worth = (*worth).max(fit.worth(field));
        }
    }
}

/// Numbers come in their order, the same one more than once.
fn add(terms: &mut Vec<u32>, number: u32) {
    if terms.last() != Some(&number) {
        terms.push(number);
    }
}

/// What one entry is worth for one word, without the index; 0 when it does not fit.
pub fn weigh_one(entry: &Entry, word: &str, repaired: bool) -> u16 {
    let (wanted, most) = (stem(word), forgiven(word));
    let fit = |term: &str| {
        if repaired {
            return words(term).any(|part| is_slip(word, part, most)).then_some(Fit::Typo);
        }
        if words(term).any(|part| part == word) || term == word {
            return Some(Fit::Whole);
        }
        let is_stem = words(term).any(|part| stem(part) == wanted);
        is_stem
            .then_some(Fit::Stem)
            .or_else(|| term.starts_with(word).then_some(Fit::Begin))
            .or_else(|| term.contains(word).then_some(Fit::Part))
    };
    let texts = entry.texts();
    let terms =
        texts.iter().flat_map(|(field, text)| text.split_whitespace().map(move |term| (*field, term)));
    terms.filter_map(|(field, term)| Some(fit(term)?.worth(field))).max().unwrap_or_default()
}

/// What more an entry is worth whose whole name is the search.
pub fn whole_name(entry: &Entry, words: &[String]) -> u16 {
    let is_it = entry.searched_name().split_whitespace().eq(words.iter().map(String::as_str));
    if is_it { WHOLE_NAME } else { 0 }
}

/// Runs of letters and digits.
fn words(term: &str) -> impl Iterator<Item = &str> {
    term.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Which letters occur, a bit each; all others share some bits.
fn letters(word: &str) -> u32 {
    word.chars().fold(0, |bits, c| bits | 1 << (u32::from(c) & 31))
}

/// A number with another digit is another number.
fn is_repairable(word: &str) -> bool {
    word.chars().any(char::is_alphabetic)
}

/// How many slips are forgiven in a word.
fn forgiven(word: &str) -> usize {
    if !is_repairable(word) {
        return 0;
    }
    match word.chars().count() {
        0..SHORTEST_TYPO => 0,
        SHORTEST_TYPO..LONG_WORD => 1,
        LONG_WORD..=LONGEST_TYPO => 2,
        _ => 0,
    }
}

/// Whether two words differ by at most so many letters that are wrong, too many, missing or swapped with
/// their neighbour. The first letter has to be right: people rarely miss it, and most strangers fall there.
///
/// Source: optimal string alignment distance, as in Damerau (1964).
fn is_slip(word: &str, candidate: &str, most: usize) -> bool {
    if most == 0 || word.chars().next() != candidate.chars().next() || !is_repairable(candidate) {
        return false;
    }
    let (mut a, mut b) = (['\0'; LONGEST_SLIP], ['\0'; LONGEST_SLIP]);
    let (Some(a), Some(b)) = (characters(word, &mut a), characters(candidate, &mut b)) else { return false };
    if a.len().abs_diff(b.len()) > most {
        return false;
    }
    // Three rows of the table of distances, the newest first.
    let mut rows = [[0; LONGEST_SLIP + 1]; 3];
    for (cost, first) in (0..).zip(&mut rows[0]) {
        *first = cost;
    }
    for (i, x) in a.iter().enumerate() {
        rows.rotate_right(1);
        let [row, last, before] = &mut rows;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = last[j] + usize::from(x != y);
            let mut cost = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                cost = cost.min(before[j - 1] + 1);
            }
            row[j + 1] = cost;
        }
        // Costs never fall from row to row, so it cannot come right again.
        if row[..=b.len()].iter().all(|cost| *cost > most) {
            return false;
        }
    }
    rows[0][b.len()] <= most
}

/// The characters of a word, in a buffer that costs no allocation; `None` when there are too many.
fn characters<'a>(word: &str, into: &'a mut [char; LONGEST_SLIP]) -> Option<&'a [char]> {
    let mut count = 0;
    for c in word.chars() {
        *into.get_mut(count)? = c;
        count += 1;
    }
    Some(&into[..count])
}
