//! Words that must stand in a text as they were typed: each as a whole word, and each phrase in quotes as a
//! whole, in any case of letters. What the index knows of such words is what [`terms`] makes of them, so that
//! a search finds the same with an index and without one.

use memchr::memmem;
use svc_base::terms;

/// Words and phrases of one search.
pub const MAX_TOKENS: usize = 16;
/// A longer run of letters and digits is in no index.
const INDEXED_BYTES: usize = 48;
/// Places of one text where a word begins and is none, after which it counts as not found there.
const MAX_PLACES: usize = 10_000;
/// What JSON writes at most for one character.
const ESCAPE_BYTES: usize = 6;
/// Bytes before and behind the first word that are shown with it.
const BEFORE_BYTES: usize = 100;
const BEHIND_BYTES: usize = 260;

/// A search: all of its words and phrases must stand in a text.
#[derive(Debug, Clone)]
pub struct Exact {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone)]
struct Token {
    /// In small letters, each character as long as it was typed.
    low: String,
    /// As it was typed.
    text: String,
}

/// Bytes in small letters: a word, what is left of one without letters beyond ASCII, or a word of a script
/// that knows no small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Needle {
    pub bytes: Vec<u8>,
    /// It is all of a word: what stands beside it tells where it is only a part of a longer one.
    is_whole: bool,
}

impl Needle {
    /// Whether the word may stand at a place of a line of JSON. Where `false`, it does not; where `true`,
    /// what the line says decides.
    pub fn may_stand(&self, line: &[u8], at: usize) -> bool {
        let to = at + self.bytes.len();
        let is_inside = |from: usize| {
            let (Some(before), Some(next)) =
                (from.checked_sub(1).and_then(|at| line.get(at)), line.get(from))
            else {
                return false;
            };
            before.is_ascii_alphanumeric()
                && next.is_ascii_alphanumeric()
                && !(before.is_ascii_lowercase() && next.is_ascii_uppercase())
        };
        // The letters before it may be the end of what JSON writes for one character, such as a new line.
        let is_escaped = || line[at.saturating_sub(ESCAPE_BYTES)..at].contains(&b'\\');
        !self.is_whole || !(is_inside(to) || is_inside(at) && !is_escaped())
    }
}

/// What one run of letters is filed under: all keys of any of these lists. Empty: the index does not know it.
pub(super) type Filed = Vec<Vec<u32>>;

impl Exact {
    /// Reads words, and phrases in double quotes. `None` where there is no letter or digit in any.
    pub fn parse(words: &str) -> Option<Self> {
        let mut tokens: Vec<Token> = Vec::new();
        for (at, part) in words.split('"').enumerate() {
            // Every second part stands in quotes; a quote that is never closed ends with the text.
            let phrases: Vec<&str> =
                if at % 2 == 1 { vec![part.trim()] } else { part.split_whitespace().collect() };
            for text in phrases.into_iter().filter(|text| !text.is_empty()) {
                tokens.push(Token { low: small(text), text: text.to_owned() });
            }
        }
        tokens.truncate(MAX_TOKENS);
        tokens.iter().any(|token| token.text.contains(char::is_alphanumeric)).then_some(Self { tokens })
    }

    /// What the runs of letters and digits of all words are filed under.
    pub(super) fn filed(&self) -> Vec<Filed> {
        self.tokens.iter().flat_map(Token::runs).map(filed).filter(|lists| !lists.is_empty()).collect()
    }

    /// What stands in every line of a log that has the words, the longest first.
    pub(super) fn needles(&self) -> Vec<Needle> {
        let mut needles: Vec<Needle> = self.tokens.iter().flat_map(Token::needles).collect();
        svc_base::sorted::by_key(&mut needles, |needle| std::cmp::Reverse(needle.bytes.len()));
        needles.dedup();
        needles
    }

    /// Where the first of the words stands in a text that has all of them, in bytes.
    pub fn find(&self, text: &str) -> Option<(usize, usize)> {
        let low = small(text);
        let places: Option<Vec<(usize, usize)>> =
            self.tokens.iter().map(|token| token.place(text, &low)).collect();
        places?.into_iter().min()
    }

    /// What stands around a place, on one line.
    pub fn excerpt(text: &str, place: (usize, usize)) -> String {
        let mut from = place.0.saturating_sub(BEFORE_BYTES);
        while !text.is_char_boundary(from) {
            from -= 1;
        }
        let mut to = (place.1.min(place.0 + BEHIND_BYTES) + BEHIND_BYTES).min(text.len());
        while !text.is_char_boundary(to) {
            to -= 1;
        }
        // No half word at either end.
        if from > 0 {
            from += text[from..place.0].find(char::is_whitespace).unwrap_or(0);
        }
        if to < text.len() {
            let end = place.1.min(to);
            to = text[end..to].rfind(char::is_whitespace).map_or(to, |at| end + at);
        }
        let words: Vec<&str> = text[from..to].split_whitespace().collect();
        let shown: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
        let before = if text[..from].trim().is_empty() { "" } else { "… " };
        let behind = if text[to..].trim().is_empty() { "" } else { " …" };
        format!("{before}{shown}{behind}")
    }
}

impl Token {
    fn runs(&self) -> Vec<&str> {
        runs_of(&self.text).into_iter().map(|range| &self.text[range]).collect()
    }

    /// It stands in a line of JSON as it was typed, unless it has what JSON writes in another way.
    fn needles(&self) -> Vec<Needle> {
        let is_plain = self.low.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte));
        if is_plain {
            return vec![Needle { bytes: self.low.clone().into_bytes(), is_whole: true }];
        }
        let parts = self.runs().into_iter().filter_map(needle);
        parts.map(|bytes| Needle { bytes, is_whole: false }).collect()
    }

    fn place(&self, text: &str, low: &str) -> Option<(usize, usize)> {
        let finder = memmem::Finder::new(self.low.as_bytes());
        let mut from = 0;
        for _ in 0..MAX_PLACES {
            let at = from + finder.find(&low.as_bytes()[from..])?;
            let to = at + self.low.len();
            if self.is_whole(text, at, to) {
                return Some((at, to));
            }
            from = at + low[at..].chars().next().map_or(1, char::len_utf8);
        }
        None
    }

    /// Whether what stands there is words, not parts of them: `login` is one of `userLogin`, not of `logins`.
    fn is_whole(&self, text: &str, from: usize, to: usize) -> bool {
        let begins = border(text, from);
        let ends = border(text, to);
        match (begins, ends) {
            (Border::Hard, Border::Hard) => true,
            (Border::None, _) | (_, Border::None) => false,
            // Parts of a name are words where the name is one that the index takes apart, and takes it apart
            // as it was typed.
            _ => {
                has_parts(text, from)
                    && has_parts(text, to - 1)
                    && humps(&text[from..to]).eq(humps(&self.text))
            }
        }
    }
}

enum Border {
    Hard,
    /// Between two parts of a name: `userLogin`.
    Hump,
    None,
}

fn border(text: &str, at: usize) -> Border {
    let (Some(before), Some(next)) = (text[..at].chars().next_back(), text[at..].chars().next()) else {
        return Border::Hard;
    };
    if !before.is_alphanumeric() || !next.is_alphanumeric() || has_no_blanks(before) || has_no_blanks(next) {
        return Border::Hard;
    }
    if before.is_ascii_lowercase() && next.is_ascii_uppercase() { Border::Hump } else { Border::None }
}

/// Letters of scripts that put no blanks between words, as [`terms`] knows them.
fn has_no_blanks(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// Whether the run of letters around a byte is one whose parts are in the index.
fn has_parts(text: &str, at: usize) -> bool {
    let bytes = text.as_bytes();
    let is_run = |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    let before = bytes[..at].iter().rev().take_while(|byte| is_run(byte)).take(INDEXED_BYTES + 1);
    let behind = bytes[at..].iter().take_while(|byte| is_run(byte)).take(INDEXED_BYTES + 1);
    let run: Vec<&u8> = before.chain(behind).collect();
    run.len() <= INDEXED_BYTES && run.iter().all(|byte| byte.is_ascii())
}

/// Where parts of a name begin.
fn humps(text: &str) -> impl Iterator<Item = usize> {
    let pairs = text.as_bytes().windows(2).enumerate();
    pairs
        .filter(|(_, pair)| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
        .map(|(at, _)| at + 1)
}

/// The runs of letters and digits of a text.
fn runs_of(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, c) in text.char_indices().filter(|(_, c)| c.is_alphanumeric()) {
        match runs.last_mut().filter(|last| last.end == at) {
            Some(last) => last.end = at + c.len_utf8(),
            None => runs.push(at..at + c.len_utf8()),
        }
    }
    runs
}

fn filed(run: &str) -> Filed {
    if run.len() > INDEXED_BYTES {
        return Filed::new();
    }
    let mut keys = Vec::new();
    terms::each(run.as_bytes(), |term| keys.push(term.key));
    if keys.is_empty() {
        return Filed::new();
    }
    if run.is_ascii() && keys.len() > 1 {
        // The whole name as one word, or its parts as parts of a longer one.
        let parts = keys.split_off(1);
        return vec![keys, parts];
    }
    vec![keys]
}

fn needle(run: &str) -> Option<Vec<u8>> {
    if !run.chars().any(|c| c.is_lowercase() || c.is_uppercase()) {
        return Some(run.as_bytes().to_vec());
    }
    let plain = run.split(|c: char| !c.is_ascii()).max_by_key(|part| part.len())?;
    (!plain.is_empty()).then(|| plain.to_ascii_lowercase().into_bytes())
}

/// In small letters, each character in as many bytes as it had: a place is the same in both.
fn small(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let one = |c: char| {
        let mut low = c.to_lowercase();
        match (low.next(), low.next()) {
            (Some(low), None) if low.len_utf8() == c.len_utf8() => low,
            _ => c,
        }
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(words: &str, text: &str) -> bool {
        Exact::parse(words).is_some_and(|exact| exact.find(text).is_some())
    }

    #[test]
    fn words_are_found_as_whole_words_in_any_case_and_all_of_them() {
        assert!(finds("LOGIN page", "the page has no Login."));
        assert!(!finds("login page", "the login"));
        assert!(!finds("log", "login") && !finds("login", "logins") && !finds("ogin", "login"));
        assert!(
            finds("login", "userLogin(x)") && finds("user", "userLogin") && !finds("serlogin", "userLogin")
        );
        assert!(finds("HttpHeader", "parseHttpHeader()") && !finds("httpheader", "parseHttpHeader()"));
        assert!(finds("parsehttpheader", "parseHttpHeader()"));
        assert!(finds("src/login.js", "in src/Login.js:42") && !finds("src/login.js", "src/login.jsx"));
        assert!(finds("ÜBUNG straße", "Eine übung in der Straße"));
        assert!(finds("测试", "单元测试用例") && !finds("试测", "单元测试用例"));
        assert!(finds("--port=0", "run it with --port=0 twice") && finds("=> x", "a => x"));
    }

    #[test]
    fn a_phrase_in_quotes_stands_as_it_is() {
        assert!(finds("\"expected 412\" got", "got 409, expected 412"));
        assert!(
            !finds("\"expected 412\"", "412 was expected") && finds("\"never closed", "it is never closed")
        );
        assert!(Exact::parse(" \"\" -- =>").is_none() && Exact::parse("").is_none());
    }

    #[test]
    fn what_is_found_is_filed_where_the_index_has_it() {
        let texts = [
            "parseHttpHeader",
            "fooBar—x",
            "naïveCafé",
            "单元测试用例",
            "src/userLogin.rs",
            "a1b2C3",
            "ABC_DEF",
            "résuméUpload",
            "x—y",
            "mixed测试Text",
            "logging",
            "queries",
        ];
        let words = [
            "parse",
            "Http",
            "HttpHeader",
            "Header",
            "parsehttpheader",
            "foobar",
            "bar",
            "naïve",
            "测试",
            "用例",
            "login",
            "user",
            "userlogin",
            "a1b2c3",
            "abc_def",
            "def",
            "résumé",
            "upload",
            "x",
            "text",
            "logging",
            "queries",
            "C3",
        ];
        let mut found = 0;
        for text in texts {
            let mut known = Vec::new();
            terms::each(text.as_bytes(), |term| known.push(term.key));
            for word in words {
                let exact = Exact::parse(word).expect("a word");
                if exact.find(text).is_none() {
                    continue;
                }
                found += 1;
                let is_filed =
                    |lists: &Filed| lists.iter().any(|keys| keys.iter().all(|key| known.contains(key)));
                assert!(
                    exact.filed().iter().all(is_filed),
                    "{word} stands in {text}, and the index misses it"
                );
                let low = text.as_bytes().to_ascii_lowercase();
                let stands = |needle: &Needle| {
                    let mut places = memmem::find_iter(&low, &needle.bytes);
                    places.any(|at| needle.may_stand(text.as_bytes(), at))
                };
                assert!(exact.needles().iter().all(stands), "{word} in {text} is not seen at first sight");
            }
        }
        assert!(found >= 20, "{found} words were found");
    }

    #[test]
    fn a_place_inside_a_longer_word_is_passed_over_unless_json_wrote_what_stands_before_it() {
        let seen = |word: &str, line: &str| {
            let needles = Exact::parse(word).expect("a word").needles();
            let low = line.to_ascii_lowercase();
            memmem::find_iter(low.as_bytes(), &needles[0].bytes)
                .any(|at| needles[0].may_stand(line.as_bytes(), at))
        };
        for (word, line) in [
            ("log", r#"{"text":"log"}"#),
            ("log", r#"{"text":"a\nlog b"}"#),
            ("log", r#"{"text":"\u0007log"}"#),
            ("log", "login, log"),
            ("login", "userLogin"),
            ("--port", "x--port=1"),
            ("log", "élog"),
        ] {
            assert!(seen(word, line), "{word} in {line}");
        }
        for (word, line) in [("log", "login"), ("log", "a blog"), ("log", "analogy"), ("log", "LOGIN")] {
            assert!(!seen(word, line), "{word} in {line}");
        }
    }

    #[test]
    fn hostile_texts_cost_time_in_line_with_their_length() {
        let word = "a".repeat(400);
        let exact = Exact::parse(&word).expect("a word");
        let began = std::time::Instant::now();
        assert!(exact.find(&"a".repeat(4 << 20)).is_none());
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn an_excerpt_has_what_stands_around_the_first_word() {
        let text = format!("{} the needle stands\nhere {}", "before ".repeat(90), "behind ".repeat(90));
        let exact = Exact::parse("needle here").expect("words");
        let shown = Exact::excerpt(&text, exact.find(&text).expect("found"));
        assert!(shown.starts_with("… before") && shown.ends_with("behind …"), "{shown}");
        assert!(shown.contains("the needle stands here behind") && shown.len() < 500, "{shown}");
        for odd in ["é", "needle", "ééé needle ééé", &"é".repeat(700)] {
            Exact::excerpt(odd, (0, odd.len()));
        }
    }
}
