//! Words of a text for searching, quick enough for gigabytes: folded in case and accents, stemmed lightly,
//! and cut to a beginning by which kin find each other in several languages (`Sicherung`, `sichern`). Works
//! on plain text and on JSON lines as they are.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Characters of a word by which it is filed.
const KEY_CHARS: usize = 6;
/// A longer run of letters and digits is no word, but a hash or encoded data.
const WORD_BYTES: usize = 48;

/// A word that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Of its beginning: equal for near kin.
    pub key: u32,
    /// Of its whole stem.
    pub stem: u32,
    /// Where it begins.
    pub at: usize,
}

/// Words that tell nothing of a question's subject.
const STOPS: &str = "a about all an and any are as at be because been but by can could did do does doing for \
    from had has have he her how i if in into is it its just may me must my no nor not of off \
    on or our out over she should so some such than that the their them then there these they \
    this those to too up us was we were what when where which while who whom why will with \
    would yes you your der die das den dem des ein eine einen einem einer und oder ist sind \
    war wird nicht mit von für auf im in zu zum zur warum wer wo wann welche welcher welches \
    darf gilt le la les un une des du de et ou est sont pour dans sur avec pourquoi qui que \
    quoi quel quelle où el los las una y o es son por para con qué quién cuál cuándo dónde se";

/// Words that mean nearly the same, in groups.
const NEAR: &str = "database db postgres postgresql mysql sqlite datenbank base datos|backup dump snapshot \
    sicherung sauvegarde copia|error failure fail crash exception fehler erreur fallo defect bug|\
    cause reason why ursache grund motivo root culprit origin|decide decision chose chosen choose \
    choice picked settled entscheidung decidido choix elegir|test tests spec suite check prüfung \
    prueba essai|user customer client account kunde benutzer usuario cliente utilisateur|password \
    secret token credential passwort contraseña|login signin auth authentication anmeldung session \
    sign|delete remove drop löschen supprimer borrar erase|create add new make anlegen créer crear|\
    slow latency slower duration time dauer langsam lent durée lento duración timeout|fast quick \
    speed schnell rapide rápido vitesse|memory ram heap speicher mémoire memoria|disk storage drive \
    platte disque disco|price cost amount preis betrag prix precio importe|order orders auftrag \
    bestellung commande pedido|invoice bill rechnung facture factura|payment pay zahlung paiement \
    pago charge|message mail email courriel correo nachricht|network net connection netz réseau \
    conexión offline|server host machine rechner serveur servidor|deadline due date frist termin \
    délai plazo when|limit maximum max bound grenze limite budget most|owner contact responsible \
    ansprechpartner zuständig responsable ask knows|name called heißt appelle llama named|next \
    remaining todo left nächste prochaine siguiente falta reste rest step schritt|config \
    configuration setting settings option einstellung réglage ajuste|dependency dependencies \
    package library paket|change edit modify touch ändern modifier cambiar|lock mutex locking \
    sperre verrou bloqueo concurrent|queue job jobs warteschlange file cola|cache caching \
    zwischenspeicher|update upgrade aktualisieren mise actualizar|deploy release rollout ship \
    deployment|directory folder dir ordner dossier carpeta|repair fix mend solved turned green";

static STOP_STEMS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut stems = Vec::new();
    each(STOPS.as_bytes(), |term| stems.push(term.stem));
    stems.sort_unstable();
    stems
});

/// For each stem the other keys of its groups.
static NEAR_KEYS: LazyLock<HashMap<u32, Vec<u32>>> = LazyLock::new(|| {
    let mut near: HashMap<u32, Vec<u32>> = HashMap::new();
    for group in NEAR.split('|') {
        let mut terms = Vec::new();
        each(group.as_bytes(), |term| terms.push(term));
        for term in &terms {
            let others = terms.iter().filter(|other| other.stem != term.stem);
            near.entry(term.stem).or_default().extend(others.map(|other| other.stem));
        }
    }
    near
});

/// A word of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub key: u32,
    pub stem: u32,
    /// Stems of words that mean nearly the same.
    pub near: Vec<(u32, u32)>,
}

/// The telling words of a question, each once, at most so many; all of its words when none tells anything.
pub fn wanted(question: &str, most: usize) -> Vec<Wanted> {
    let mut terms: Vec<Term> = Vec::new();
    each(question.as_bytes(), |term| {
        if terms.len() < most * 4 && !terms.iter().any(|known| known.stem == term.stem) {
            terms.push(term);
        }
    });
    let telling: Vec<Term> =
        terms.iter().copied().filter(|term| STOP_STEMS.binary_search(&term.stem).is_err()).collect();
    let terms = if telling.is_empty() { terms } else { telling };
    terms
        .into_iter()
        .take(most)
        .map(|term| Wanted { key: term.key, stem: term.stem, near: near(term.stem) })
        .collect()
}

/// Keys and stems of the near words of a stem.
fn near(stem: u32) -> Vec<(u32, u32)> {
    static KEYS: LazyLock<HashMap<u32, u32>> = LazyLock::new(|| {
        let mut keys = HashMap::new();
        each(NEAR.as_bytes(), |term| {
            keys.insert(term.stem, term.key);
        });
        keys
    });
    let stems = NEAR_KEYS.get(&stem).map(Vec::as_slice).unwrap_or_default();
    stems.iter().filter_map(|stem| KEYS.get(stem).map(|key| (*key, *stem))).collect()
}

/// Gives every word of a text, or of a line of JSON, in order. In JSON, what is escaped ends a word.
pub fn each(bytes: &[u8], mut take: impl FnMut(Term)) {
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte == b'\\' {
            // `\n` is not the letter n; `\u001b` is one character.
            let is_code = bytes.get(at + 1) == Some(&b'u')
                && bytes.get(at + 2..at + 6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
            // Never into the middle of a character.
            at += match bytes.get(at + 1) {
                _ if is_code => 6,
                Some(next) if next.is_ascii() => 2,
                _ => 1,
            };
            continue;
        }
        if !is_word(byte) {
            at += 1;
            continue;
        }
        let begin = at;
        let mut plain = true;
        while at < bytes.len() && is_word(bytes[at]) {
            plain &= bytes[at].is_ascii();
            at += 1;
        }
        let word = &bytes[begin..at];
        if word.len() > WORD_BYTES && plain {
            continue;
        }
        if plain { ascii(word, begin, &mut take) } else { foreign(word, begin, &mut take) }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// A word of ASCII: as a whole, and `parseHttp` by its parts.
fn ascii(word: &[u8], begin: usize, take: &mut impl FnMut(Term)) {
    let mut lower = [0_u8; WORD_BYTES];
    let lower = &mut lower[..word.len()];
    lower.copy_from_slice(word);
    lower.make_ascii_lowercase();
    let border = |at: usize| at > 0 && word[at].is_ascii_uppercase() && word[at - 1].is_ascii_lowercase();
    // Places never go back: the whole first, then its parts.
    take(term(lower, begin));
    let mut from = 0;
    for at in 1..word.len() {
        if border(at) {
            take(term(&lower[from..at], begin + from));
            from = at;
        }
    }
    if from > 0 {
        take(term(&lower[from..], begin + from));
    }
}

/// A word with other letters; without blanks between words, as in Chinese, each two characters are one.
fn foreign(word: &[u8], begin: usize, take: &mut impl FnMut(Term)) {
    let text = String::from_utf8_lossy(word);
    let mut folded = String::with_capacity(WORD_BYTES);
    let mut before: Option<char> = None;
    let mut from = begin;
    let mut at = begin;
    for c in text.chars() {
        let place = at;
        at += c.len_utf8();
        let is_ideograph =
            matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}');
        if (is_ideograph || !c.is_alphanumeric()) && !folded.is_empty() {
            take(term(folded.as_bytes(), from));
            folded.clear();
        }
        if is_ideograph {
            if let Some(other) = before {
                let pair: String = [other, c].iter().collect();
                take(Term { key: hash(pair.as_bytes()), stem: hash(pair.as_bytes()), at: place });
            }
            before = Some(c);
            continue;
        }
        before = None;
        if c.is_alphanumeric() {
            if folded.is_empty() {
                from = place;
            }
            fold(c, &mut folded);
        }
    }
    if !folded.is_empty() && folded.len() <= WORD_BYTES * 2 {
        take(term(folded.as_bytes(), from));
    }
}

/// A letter in lower case without its accent.
fn fold(c: char, folded: &mut String) {
    for c in c.to_lowercase() {
        let plain = match c {
            'à'..='å' => "a",
            'æ' => "ae",
            'ç' => "c",
            'è'..='ë' => "e",
            'ì'..='ï' => "i",
            'ñ' => "n",
            'ò'..='ö' | 'ø' => "o",
            'ù'..='ü' => "u",
            'ý' | 'ÿ' => "y",
            'ß' => "ss",
            'œ' => "oe",
            _ => {
                folded.push(c);
                continue;
            }
        };
        folded.push_str(plain);
    }
}

fn term(word: &[u8], at: usize) -> Term {
    let stem = stem(word);
    // Letters beyond ASCII take more bytes; they are few in a folded word.
    let end = stem.len().min(KEY_CHARS);
    Term { key: hash(&stem[..end]), stem: hash(stem), at }
}

/// Without the commonest endings. Those of other languages fall behind the letters by which words are filed.
fn stem(word: &[u8]) -> &[u8] {
    const ENDINGS: [&[u8]; 5] = [b"ings", b"ing", b"ies", b"ed", b"s"];
    const SHORTEST: usize = 4;
    if word.len() <= SHORTEST || word.ends_with(b"ss") {
        return word;
    }
    let cut = ENDINGS
        .iter()
        .find_map(|ending| word.strip_suffix(*ending).filter(|rest| rest.len() + 1 >= SHORTEST));
    let cut = cut.unwrap_or(word);
    cut.strip_suffix(b"e").filter(|rest| rest.len() + 1 >= SHORTEST).unwrap_or(cut)
}

fn hash(bytes: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    for byte in bytes {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    // The highest bits choose a page of the index: they are to be spread.
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(0x2c1b_3c6d);
    hash ^ (hash >> 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stems(text: &str) -> Vec<u32> {
        let mut found = Vec::new();
        each(text.as_bytes(), |term| found.push(term.stem));
        found
    }

    fn key(word: &str) -> u32 {
        let mut key = 0;
        each(word.as_bytes(), |term| key = term.key);
        key
    }

    #[test]
    fn kin_are_filed_together_in_several_languages() {
        for (a, b) in [
            ("rounding", "rounded"),
            ("Sicherungen", "sicherung"),
            ("überträgt", "UBERTRAGEN"),
            ("décision", "decisiones"),
            ("Vouchers", "voucher"),
            ("invitados", "invitado"),
        ] {
            assert_eq!(key(a), key(b), "{a} {b}");
        }
        assert_ne!(key("order"), key("border"));
    }

    #[test]
    fn what_json_escapes_ends_a_word_and_names_have_parts() {
        assert_eq!(stems(r"one\ntwo\u001bthree"), stems("one two three"));
        assert_eq!(stems("VoucherBadge"), stems("voucherbadge voucher badge"));
        assert_eq!(stems("orders.customer_id"), stems("orders customer id"));
        assert!(stems(&"0123456789abcdef".repeat(8)).is_empty(), "data is no word");
        assert_eq!(stems("数据库").len(), 2);
    }

    #[test]
    fn a_question_is_its_telling_words_and_their_near_ones() {
        let found = wanted("Why is the backup of the database slow?", 9);
        assert_eq!(found.len(), 3, "why, is, the and of tell nothing");
        assert!(found[0].near.iter().any(|(key, _)| *key == self::key("dump")));
        assert_eq!(wanted("who is it", 9).len(), 3, "all there is");
        assert_eq!(wanted("one two three four five six", 2).len(), 2);
        assert!(wanted("", 9).is_empty());
    }
}
