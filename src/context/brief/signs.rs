//! What kind of fact a sentence of an agent is, by its words: rules for English, German, French and Spanish,
//! no model. A sentence that only tells what the agent looks at next is no fact.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds of facts. Where a sentence shows the signs of several, the first of them counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What is to be done.
    Next,
    /// What nobody has answered.
    Question,
    /// What was tried in vain.
    DeadEnd,
    /// Why something was as it was.
    Cause,
    /// What was decided, or done for a reason.
    Decision,
    /// What holds: a rule that was met, a name, a number.
    Found,
}

/// How many kinds there are.
pub const KINDS: usize = 6;

/// Signs by kind, each in lower case with single blanks for all that is no letter or digit. `_` is the end of
/// a word, `^` the beginning of the sentence.
const SIGNS: [(Kind, &str); 6] = [
    (
        Kind::Next,
        "next step|still need|^next_|^todo|_todo_|still to do|to do_|still ha|now have to|\
         remaining work|^remaining|remains to|is left_|left to do|^after this|^after that|^afterwards|\
         ^then_|following step|next on_|will follow|nächster schritt|nächste schritt|als nächstes|\
         ^danach|^dann_|noch zu_|steht noch aus|fehlt noch|bleibt noch|prochaine|il reste|reste à_|\
         ensuite|à faire|falta_|faltan_|próximo|siguiente paso|queda_|quedan_|por hacer",
    ),
    (
        Kind::Question,
        "open question|blocked_|blocker|no access|open point|unclear|undecided|not decided|not sure|\
         unsure|tbd_|to be decided|needs to decide|has to decide|must decide|waiting for an answer|\
         waiting for a decision|could not find out|couldn t find out|somebody has to|someone has to|\
         someone needs to|nobody knows|not known whether|unknown whether|depends on whether|\
         to be clarified|needs clarification|offen ist|offene frage|noch offen|unklar|ungeklärt|\
         zu klären|faut il|reste à savoir|on ne sait pas|pas clair|question ouverte|pendiente de|\
         no está claro|por decidir|no se sabe",
    ),
    (
        Kind::DeadEnd,
        "not help|can t use|cannot use|can t be_|cannot be_|not supported|unsupported|t help_|not work|\
         t work_|no use_|no effect|no difference|makes it worse|made it worse|got worse|slower_|\
         reverted|rolled back|gave up|give up|nowhere_|took it back|taken back|undid|abandon|discarded|\
         dead end|in vain|no way_|changes nothing|changed nothing|tried|attempted|fails on_|\
         fails because|not an option|not possible|impossible|runs out of|ran out of|ruled out|\
         hat nicht|hat nichts|half nicht|hilft nicht|bringt nichts|funktioniert nicht|geht nicht|\
         vergeblich|verworfen|versucht|servi à rien|ne marche pas|ne fonctionne pas|sans effet|essayé|\
         abandonné|impossible|no funciona|no mejora|no ayuda|no sirve|sin efecto|empeora|intenté|probé|\
         descartado",
    ),
    (
        Kind::Cause,
        "root cause|cause_|caused|causes_|the bug is|the bug was|the problem is|the problem was|\
         the issue is|the issue was|turns out|turned out|because of|due to|the reason|reason for|\
         explains|comes from|came from|stems from|results from|really happens|actually happens|\
         happens when|happens if|on account of|culprit|to blame|fault|found it|leak|flaky because|\
         ursache|liegt an|lag an|schuld|grund war|grund ist|kommt von|kommt daher|à cause|provient|\
         venait_|vient de_|vient du_|le problème|en raison|se debe|causa_|el problema|el error_|motivo|\
         viene de|culpa",
    ),
    (
        Kind::Decision,
        "decid|on purpose|deliberately|intentionally|left in place|compromise|trade off|decision|\
         going with|went with|we ll use|we will use|i ll use|i chose|i choose|we chose|chosen|settle|\
         picked|opted|agreed|my choice|instead of|rather than|in favour of|in favor of|prefer|\
         will be a_|stays_|stay with|stick with|kept_|because|since_|so that|otherwise|therefore|\
         in order|entscheid|entschied|wir bleiben|wir nehmen|gewählt|statt_|anstatt|weil_|denn_|damit_|\
         sonst_|deshalb|decidé|décidé|choisi|on garde|plutôt que|au lieu|parce que|car_|afin|sinon_|\
         decidido|elegí|elegimos|usaremos|en lugar de|en vez de|porque|ya que|para que|para no_",
    ),
    (
        Kind::Found,
        "never_|workaround|beware|careful|caution|watch out|note that|heads up|important|reserved|\
         achtung|vorsicht|wichtig|attention|important|cuidado|always_|must not|must be|mustn t|may not|\
         only works|requires_|forbid|not allowed|is called|are called|named_|^ask_|contact|owner|owns_|\
         owned by|belongs to|done by_|responsible|runs on_|lives in_|go to_|goes to_|ticket|branch|\
         measured|benchmark|darf nicht|niemals|muss_|heißt|ansprechpartner|zuständig|beantwortet|\
         gehört|gemessen|jamais|doit_|s appelle|responsable|mesuré|nunca|siempre|debe_|se llama|\
         contacto|medido",
    ),
];

/// Where a sentence begins that tells what the agent does at the moment.
const OPENINGS: &str = "let me|let us|let s_|now_|next i_|i will_|i ll_|i am going|i m going|i need to|i want to|\
    first_|reading|checking|looking|running|searching|moving on|on to_|okay|ok_|all right|\
    alright|good_|great_|perfect|i see|here is|here are|that works|that compiles|this file|\
    the file|the function|the loop|the class|the next|done_|ich schaue|ich lese|jetzt_|schauen|\
    maintenant|je regarde|je lis|voyons|ahora_|veamos|voy a_|leo_";

/// What it does then, when it only looks.
const LOOKS: &str = "see_|look|read_|reading|check|view|open_|opened|search|inspect|examine|understand|explore|\
    go through|going through|scan|list_|run_|running|start_|starting|get_|find_|verify|same in|\
    next part|next file|following one|schau|lese|prüfe|regarde|lis_|voir_|vérifie|leo_|ver_|\
    reviso";

/// Words at the beginning of a sentence among which it says that it looks.
const FIRST_WORDS: usize = 6;

/// Words of people that ask for nothing and tell nothing.
const SMALL_TALK: &str = " ok okay yes yeah yep no nope thanks thank you thx please go on ahead continue proceed \
    carry keep going fine good great nice cool perfect excellent super well done work so far \
    sounds looks that s is it how are any news status update still there hi hello hey now \
    further more again weiter weitermachen mach ja nein danke bitte gut schön prima wie sieht \
    es aus läuft oui non merci continue continuez vas y bien parfait d accord ça va sí si \
    gracias sigue adelante vale bueno claro perfecto the what about ";

type Table = HashMap<[u8; 3], Vec<(String, bool, Kind)>>;

/// Signs by their first three bytes, so that a word costs one look.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::new();
    for (kind, signs) in SIGNS {
        for (sign, at_start) in list(signs) {
            if let Some(key) = sign.as_bytes().first_chunk::<3>() {
                table.entry(*key).or_default().push((sign, at_start, kind));
            }
        }
    }
    table
});
static OPENING: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| list(OPENINGS).collect());
static LOOK: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| list(LOOKS).collect());

/// The signs of a list, and whether each stands only at the beginning.
fn list(signs: &str) -> impl Iterator<Item = (String, bool)> + '_ {
    let sign = |sign: &str| {
        let at_start = sign.starts_with('^');
        (sign.trim_start_matches(['^', '_']).replace('_', " "), at_start)
    };
    signs.split('|').map(str::trim).filter(|text| !text.is_empty()).map(sign)
}

/// Lower case, single blanks for all that is no letter or digit, one at the end.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if c.is_alphanumeric() {
            plain.extend(c.to_lowercase());
        } else if !plain.is_empty() && !plain.ends_with(' ') {
            plain.push(' ');
        }
    }
    if !plain.ends_with(' ') {
        plain.push(' ');
    }
    plain
}

/// The kind of fact that a sentence is; `None`: it is none.
pub fn kind(sentence: &str) -> Option<Kind> {
    let plain = plain(sentence);
    let is_opening = OPENING.iter().any(|(opening, _)| plain.starts_with(opening.as_str()));
    let looks = |word: &str| LOOK.iter().any(|(look, _)| word.starts_with(look.as_str()));
    if is_opening && words_of(&plain).take(FIRST_WORDS).any(looks) {
        return None;
    }
    let mut found = sentence.ends_with('?').then_some(Kind::Question);
    for (at, word) in words_of(&plain).enumerate() {
        let Some(signs) = word.as_bytes().first_chunk::<3>().and_then(|key| TABLE.get(key)) else { continue };
        let fits = |(sign, at_start, _): &&(String, bool, Kind)| {
            word.starts_with(sign.as_str()) && (at == 0 || !*at_start)
        };
        for (_, _, kind) in signs.iter().filter(fits) {
            found = Some(found.map_or(*kind, |known| known.min(*kind)));
        }
    }
    found.or_else(|| (!is_opening && is_specific(sentence)).then_some(Kind::Found))
}

/// The rest of a plain text from each of its words on.
fn words_of(plain: &str) -> impl Iterator<Item = &str> {
    let starts = plain.match_indices(' ').map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).map(|at| &plain[at..]).filter(|rest| !rest.is_empty())
}

/// Whether it has a number that stands for itself, a name of two words, or a name like `otter-7`.
fn is_specific(sentence: &str) -> bool {
    const UNITS: &str =
        " ms s min h kb mb gb kib mib gib px rows lines times days hours minutes seconds percent ";
    let mut before_is_name = false;
    let mut before_is_number = false;
    for (at, word) in sentence.split_whitespace().enumerate() {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%');
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_number = word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || ".,%x".contains(c) || c.is_alphabetic());
        let is_label = digits > 0 && word.contains('-') && word.starts_with(char::is_alphabetic);
        let is_name = word.chars().next().is_some_and(char::is_uppercase)
            && word.chars().skip(1).all(char::is_lowercase)
            && word.chars().count() > 2;
        if before_is_number && UNITS.contains(&format!(" {} ", word.to_lowercase())) {
            return true;
        }
        before_is_number = is_number && digits > 0;
        if (is_number && (digits > 1 || word.ends_with('%'))) || is_label || (is_name && before_is_name) {
            return true;
        }
        before_is_name = is_name && at > 0;
    }
    false
}

/// Whether a message of a person is worth a line for ever: it says more than that the agent shall go on.
pub fn is_telling(message: &str) -> bool {
    let plain = plain(message);
    plain.split_whitespace().any(|word| !SMALL_TALK.contains(&format!(" {word} ")))
}

/// The sentences of a text, without list marks and emphasis; code blocks are left out.
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    let lines = text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.flat_map(|line| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "-*#>•".contains(c));
        let mut rest = line.trim();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = end_of_sentence(rest);
            let (sentence, after) = rest.split_at(end);
            rest = after.trim_start();
            Some(sentence.trim().trim_matches('*'))
        })
    })
}

/// Where the first sentence ends: behind a mark that blank space and a new beginning follow.
fn end_of_sentence(text: &str) -> usize {
    let bytes = text.as_bytes();
    for (at, mark) in text.match_indices(['.', '!', '?']) {
        let end = at + mark.len();
        let begins = text[end..].trim_start().chars().next();
        let is_gap = bytes.get(end).is_some_and(u8::is_ascii_whitespace);
        if is_gap && begins.is_some_and(|c| !c.is_lowercase()) {
            return end;
        }
    }
    text.len()
}

/// The words that carry a text, as numbers in order: texts that share most of them tell the same.
pub fn gist(text: &str) -> Vec<u64> {
    let hash = |word: &str| {
        word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    let plain = plain(text);
    let telling = |word: &&str| word.chars().count() > 3 || word.starts_with(|c: char| c.is_ascii_digit());
    let mut gist: Vec<u64> = plain.split_whitespace().filter(telling).map(hash).collect();
    gist.sort_unstable();
    gist.dedup();
    gist
}

/// Whether two gists share three of four words.
pub fn is_alike(a: &[u64], b: &[u64]) -> bool {
    let shared = a.iter().filter(|word| b.binary_search(word).is_ok()).count();
    shared > 0 && shared * 4 >= (a.len() + b.len() - shared) * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_told_apart_by_what_they_say() {
        for (text, expected) in [
            ("I decided to keep SQLite because the installer is offline.", Some(Kind::Decision)),
            ("Root cause: the cookie has the wrong domain.", Some(Kind::Cause)),
            ("A larger pool did not help.", Some(Kind::DeadEnd)),
            ("Should guests see it?", Some(Kind::Question)),
            ("Next step: run the backfill.", Some(Kind::Next)),
            ("It takes 412 ms.", Some(Kind::Found)),
            ("We talked to Marta Lindqvist about it.", Some(Kind::Found)),
            ("Der Puffer hat nichts gebracht.", Some(Kind::DeadEnd)),
            ("On garde le fichier parce que le disque est plein.", Some(Kind::Decision)),
            ("El error se debe a la cookie.", Some(Kind::Cause)),
            ("Let me check because I am not sure.", None),
            ("Now I will read lines 40 to 80.", None),
            ("The handler is here.", None),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn small_talk_of_people_is_not_kept() {
        for text in ["ok, thanks", "go on", "How is it going?", "weiter bitte", "très"] {
            assert_eq!(is_telling(text), text == "très", "{text}");
        }
        assert!(is_telling("ok, but not in src/gen") && !is_telling("...") && !is_telling(""));
    }

    #[test]
    fn texts_are_cut_into_sentences() {
        let text = "- One. Two v3.0 is out! *Three?*\n```\ncode. Here.\n```\nFour e.g. this";
        let found: Vec<&str> = sentences(text).collect();
        assert_eq!(found, ["One.", "Two v3.0 is out!", "Three?", "Four e.g. this"]);
    }

    #[test]
    fn alike_is_what_shares_most_words() {
        let alike = |a: &str, b: &str| is_alike(&gist(a), &gist(b));
        assert!(alike("The import runs at 950 rows per second", "the import runs at 950 rows each second"));
        assert!(!alike("The import runs at 950 rows", "The import runs at 200 rows"));
        assert!(!alike("", ""));
    }
}
