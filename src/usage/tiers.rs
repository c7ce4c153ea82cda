//! Which tier a task needs, by its words and the folders it is about: rules, no model. Where nothing says
//! that it is small or ordinary, the stronger one.

use super::classifier::word;
use crate::providers::Tier;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use svc_base::sorted::Gather;
use svc_base::terms;

/// Work whose mistakes are not seen at once, or that reaches through everything.
const HEAVY: &str = "architecture architect redesign design refactor restructure rewrite monolith split decouple \
    migrate migration backfill downtime concurrency concurrent race races deadlock flaky intermittent sporadic \
    sometimes leak memory latency slow slower performance throughput optimize optimise p95 p99 security secure \
    vulnerability vulnerabilities exploit injection audit encrypt encryption cryptography idempotent atomic \
    consistency distributed consensus replication shard sharding partition corrupt corruption lose lost loss \
    prove proof invariant algorithm compiler scheduler sync synchronize synchronise offline debug reproduce \
    cause million billion random randomly never guarantee revoke \
    architektur umbau migrieren sicherheit sicherheitslücke ursache langsam absturz \
    verlieren verliert verklemmung nebenläufig speicherleck sécurité migrer lenteur fuite arquitectura \
    seguridad migrar rediseñar lento particionar partición";
/// The same as it stands in a sentence, in lower case.
const HEAVY_PHRASES: [&str; 8] = [
    "find out why",
    "at the same time",
    "now and then",
    "once in",
    "under load",
    "in parallel",
    "several nodes",
    "unter last",
];
/// Heavy where a task begins with it.
const HEAVY_FIRST: [&str; 2] = ["port ", "harden "];
/// Work that is small whatever it is about.
const SMALL: &str = "typo spelling misspelled misspelling grammar wording whitespace indentation copyright license \
    changelog gitignore bump pin unused rename caption comment docstring lint format formatting formatter \
    spelling readme docs tippfehler rechtschreibung faute orthographe errata ortografía";
/// What changes something in one place.
const CHANGES: &str = "change raise increase lower decrease reduce set update sort remove delete add correct log drop \
    ändern erhöhen ergänzen entfernen changer modifier ajouter corriger cambiar añadir corregir";
/// Things that are changed in one place.
const PLACES: &str = "text label title message timeout limit default size year version key keys import imports \
    constant name translation doc level tooltip placeholder color colour icon link";
/// What is never small, whatever words stand beside it.
const WIDE: &str = "across monorepo workspace workspaces endpoint endpoints api table page feature tests test \
    integration schema all every why locale filter export upload service migration hang deadlock validation \
    flag command build builds state each seite tabelle alle page tableau página";
/// Ordinary work: something that is seen is added or mended.
const ORDINARY: &str = "add let show display return write support send store remember build include fix export upload \
    list page form button table endpoint screen field column validate validation flag option test tests component \
    render print read create attach allow enable configure upgrade save rank boost handle accept hide highlight \
    translate delete make anlegen hinzufügen zeigen anzeigen bauen anhängen senden ausgeben ajouter afficher \
    envoyer añadir mostrar enviar";
/// Telling words of a task from which on it says enough for want of a sign to be one.
const ENOUGH_WORDS: usize = 4;
/// Characters from which on a task asks for more than a small change.
const LONG_CHARS: usize = 300;
/// Folders from which on it does.
const MANY_PLACES: usize = 3;

struct Words(BTreeSet<u32>);

impl Words {
    fn of(list: &str) -> Self {
        let mut stems = BTreeSet::new();
        terms::each(list.as_bytes(), |term| {
            stems.insert(term.stem);
        });
        Self(stems)
    }
}

static LISTS: LazyLock<[Words; 6]> =
    LazyLock::new(|| [HEAVY, SMALL, CHANGES, PLACES, WIDE, ORDINARY].map(Words::of));

/// What the words of a task say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub tier: Tier,
    /// The words of the task that said so; none where it follows from the want of any.
    pub signs: Vec<String>,
}

impl Said {
    /// Why, for people.
    pub fn reason(&self) -> String {
        let quoted = |signs: &[String]| {
            let signs = signs.iter().take(3).map(|sign| format!("\"{sign}\""));
            signs.collect::<Vec<_>>().join(", ")
        };
        match (self.tier, self.signs.is_empty()) {
            (Tier::Heavy, true) => "no word of the task says that less than heavy will do".to_owned(),
            (_, true) => "the task says too little: medium".to_owned(),
            (tier, false) => format!("the task says {}: {}", quoted(&self.signs), word(tier)),
        }
    }
}

/// The tier by the words of a task and by how many folders it is about.
pub fn said(task: &str, places: usize) -> Said {
    let lower = task.to_lowercase();
    let mut found: [Vec<String>; 6] = Default::default();
    terms::each(task.as_bytes(), |term| {
        for (list, found) in LISTS.iter().zip(&mut found) {
            let shown = written(task, term.at);
            if list.0.contains(&term.stem) && !found.contains(&shown) {
                found.push(shown);
            }
        }
    });
    let [mut heavy, small, changes, things, wide, ordinary] = found;
    let first = HEAVY_FIRST.iter().filter(|first| lower.trim_start().starts_with(**first));
    let phrases = HEAVY_PHRASES.iter().filter(|phrase| lower.contains(**phrase));
    heavy.extend(first.chain(phrases).map(|phrase| phrase.trim().to_owned()));
    let edits: Vec<String> = if changes.is_empty() || things.is_empty() {
        small.clone()
    } else {
        small.iter().chain(&changes[..1]).chain(&things[..1]).cloned().gather()
    };
    let is_wide = !wide.is_empty() || places >= MANY_PLACES || task.chars().count() > LONG_CHARS;
    match (heavy.is_empty(), edits.is_empty()) {
        // A slip in a text about something heavy is in the middle: neither sign is sure.
        (false, _) if !small.is_empty() && !is_wide && heavy.len() == 1 => {
            Said { tier: Tier::Medium, signs: small.into_iter().chain(heavy).gather() }
        }
        (false, _) => Said { tier: Tier::Heavy, signs: heavy },
        (true, false) if !is_wide => Said { tier: Tier::Light, signs: edits },
        _ if !ordinary.is_empty() || !edits.is_empty() => {
            Said { tier: Tier::Medium, signs: if ordinary.is_empty() { edits } else { ordinary } }
        }
        // What is neither small nor ordinary by its words may be anything: rather the stronger.
        _ if terms::wanted(task, ENOUGH_WORDS).len() >= ENOUGH_WORDS => {
            Said { tier: Tier::Heavy, signs: Vec::new() }
        }
        _ => Said { tier: Tier::Medium, signs: Vec::new() },
    }
}

/// The word that begins there, in lower case.
fn written(task: &str, at: usize) -> String {
    let rest = task.get(at..).unwrap_or_default();
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    rest[..end].to_lowercase()
}
