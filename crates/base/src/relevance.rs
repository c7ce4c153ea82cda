//! Which texts matter to a task: BM25 (Robertson and Zaragoza, 2009) over the words of the texts. Pure,
//! without an index: the stores hold at most a thousand short texts.

use crate::sorted::{self, Gather};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::LazyLock;

/// Saturation of repeated words, as is customary.
const K1: f64 = 1.2;
/// How much longer texts are discounted, as is customary.
const B: f64 = 0.75;
/// Words of a query that are looked at: a task may have 200 000 characters.
const MAX_QUERY_WORDS: usize = 2_000;

/// Words that say nothing of a task's subject: English function words, and what nearly every task and
/// finding says.
const STOP_WORDS: &str = "a about above add after again all also an and any are as at be because been before being but by \
    can change code could create did do does doing done each edit else error every fail few file find \
    fix for from function get give given had has have he her here him his how i if implement in into \
    is issue it its job just know let like line look made make many may me module more most must my \
    need needs new no nor not now of off old on once one only or other our out over please problem \
    project pull push put read run same say see set she should so some src such sure svc take task \
    than that the their them then there these they thing this those to too two under up update us use \
    using very want was way we well were what when where which while who why will with without work \
    works write would yes you your";

static STOPS: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());

/// The words of `text` that can tell something, stemmed, in order.
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for chunk in text.split(|c: char| !c.is_alphanumeric()).filter(|chunk| !chunk.is_empty()) {
        let parts = split_camel_case(chunk);
        if parts.len() > 1 {
            push_word(chunk, &mut found);
        }
        for part in parts {
            push_word(part, &mut found);
        }
    }
    found
}

fn push_word(word: &str, found: &mut Vec<String>) {
    let lower = word.to_lowercase();
    let stem = stem(&lower);
    let silent = |word: &str| STOPS.contains(word);
    if stem.chars().count() > 1 && !silent(&lower) && !silent(stem) {
        found.push(stem.to_owned());
    }
}

/// `parseHttpRequest` is `parse`, `Http`, `Request`.
fn split_camel_case(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut before = ' ';
    for (at, c) in word.char_indices() {
        if c.is_uppercase() && before.is_lowercase() {
            parts.push(&word[begin..at]);
            begin = at;
        }
        before = c;
    }
    parts.push(&word[begin..]);
    parts
}

/// Cuts the commonest English endings, so that `caching`, `caches` and `cache` are one word.
pub fn stem(word: &str) -> &str {
    const ENDINGS: [&str; 5] = ["ings", "ing", "ies", "ed", "s"];
    const SHORTEST_STEM: usize = 4;
    let cut = ENDINGS.iter().find_map(|ending| {
        word.strip_suffix(ending).filter(|rest| rest.chars().count() + 1 >= SHORTEST_STEM)
    });
    let cut = cut.filter(|rest| !(word.ends_with("ss") && rest.len() + 1 == word.len())).unwrap_or(word);
    cut.strip_suffix('e').filter(|rest| rest.chars().count() + 1 >= SHORTEST_STEM).unwrap_or(cut)
}

/// The texts that share a telling word with `query`: index and score, best first; equals keep the later
/// text first.
pub fn rank(query: &str, texts: &[&str]) -> Vec<(usize, f64)> {
    let query: BTreeSet<String> = words(query).into_iter().take(MAX_QUERY_WORDS).gather();
    let counted: Vec<(BTreeMap<String, usize>, usize)> = texts.iter().map(|text| count(text)).collect();
    let total: usize = counted.iter().map(|(_, length)| length).sum();
    let mean = as_f64(total) / as_f64(counted.len().max(1));
    let mut scores = vec![0.0_f64; texts.len()];
    for word in &query {
        let holders = counted.iter().filter(|(words, _)| words.contains_key(word)).count();
        let rarity = (as_f64(counted.len() - holders) + 0.5) / (as_f64(holders) + 0.5);
        let weight = rarity.ln_1p();
        for (score, (words, length)) in scores.iter_mut().zip(&counted) {
            let Some(times) = words.get(word) else { continue };
            let times = as_f64(*times);
            let long = 1.0 - B + B * as_f64(*length) / mean.max(1.0);
            *score += weight * times * (K1 + 1.0) / (times + K1 * long);
        }
    }
    let mut ranked: Vec<(usize, f64)> =
        scores.into_iter().enumerate().filter(|(_, score)| *score > 0.0).collect();
    sorted::by(&mut ranked, |a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    ranked
}

fn count(text: &str) -> (BTreeMap<String, usize>, usize) {
    let words = words(text);
    let length = words.len();
    let mut counted = BTreeMap::new();
    for word in words {
        *counted.entry(word).or_default() += 1;
    }
    (counted, length)
}

#[allow(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lower_case_stemmed_and_telling() {
        assert_eq!(words("The Caching caches a cache"), ["cach", "cach", "cach"]);
        assert_eq!(words("fix parseHttp in src/net.rs"), ["parsehttp", "pars", "http", "net", "rs"]);
        assert_eq!(words("Classes, libraries; x"), ["class", "librar"]);
        assert!(words("please fix all the errors in this file").is_empty());
    }

    #[test]
    fn the_text_that_shares_the_rarer_words_comes_first_and_strangers_never() {
        let texts = [
            "login fails with 500: set SESSION_SECRET",
            "the database migration hangs: close other sessions first",
            "the linter wants two blanks",
        ];
        let ranked = rank("Repair the login session handling", &texts);
        assert_eq!(ranked.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1]);
        assert!(rank("Draw an icon", &texts).is_empty());
        assert!(rank("", &texts).is_empty());
        assert!(rank("login", &[]).is_empty());
    }

    #[test]
    fn a_long_text_does_not_win_by_its_length() {
        let long = format!("cache {}", "alpha beta gamma delta ".repeat(30));
        let ranked = rank("cache", &[long.as_str(), "cache misses"]);
        assert_eq!(ranked[0].0, 1);
    }
}
