//! "Did you mean": the word of a list that is nearest to one that was mistyped.

/// Bytes of a word beyond which nothing is near: candidates are short, and looking costs their product.
const LONGEST: usize = 64;

/// The candidate that differs in the fewest characters, whatever their case, if it is near enough to be
/// meant.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .filter(|candidate| !candidate.is_empty())
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance of two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let next = (diagonal + usize::from(from != *to)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_whatever_its_case_and_nothing_that_is_far() {
        let words = || ["maxAgents", "port", "host", ""].into_iter();
        for (word, wanted) in [
            ("maxagents", Some("maxAgents")),
            ("maxAgent", Some("maxAgents")),
            ("prot", Some("port")),
            ("", None),
            ("xyzzy", None),
        ] {
            assert_eq!(nearest(word, words()), wanted, "{word}");
        }
        assert_eq!(nearest(&"p".repeat(1 << 20), words()), None);
    }
}
