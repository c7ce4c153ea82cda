//! A static mirror of the legacy layout: written by `export`, read by `import`.
//!
//! ```text
//! DIR/skills/registry.json        all published skills, without content
//! DIR/skills/content/<id>.md      one content each
//! ```
//!
//! **Invariant:** a mirror is text of others. Whatever it says of itself, its skills come in as a
//! community's, without downloads, ratings and marks, and none of them under an id or the name of the vendor.

use crate::authoring::content::{self, Content};
use crate::authoring::{self, slug};
use crate::authors;
use crate::catalogue::Catalogue;
use crate::model::{Source, Status, Verification};
use crate::seed::{self, whole_hundredths};
use crate::store::{Incoming, Store, StoreError};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use svc_base::api::Validator;
use svc_base::time::Time;

/// Largest counter that is taken in; sums of many such stay in range.
const COUNT_MAX: u64 = 1_000_000_000_000;
/// Largest registry that is read.
const REGISTRY_BYTES: u64 = 256 << 20;
/// Skills of one transaction of an import; a service that runs beside it waits for one at most.
const BATCH_SKILLS: usize = 100;
/// Between two transactions. The database asks for its write lock at least each 100 ms, so that whoever waits
/// for it gets it here.
const BREATH: Duration = Duration::from_millis(110);

/// Whose word an import takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nobody's: another market's mirror.
    Text,
    /// Our own: an export of this market, with downloads, ratings and marks.
    Figures,
}

/// What a mirror holds for us.
#[derive(Debug)]
pub struct Mirror {
    /// Skills that can be taken in.
    pub skills: Vec<Incoming>,
    /// Records that claim to be the vendor's, which come with the program alone.
    pub skipped: usize,
}

/// Writes the mirror; how many skills.
///
/// Errors: a sentence that names the file.
pub fn export(catalogue: &Catalogue, folder: &Path) -> Result<usize, String> {
    let contents = folder.join("skills/content");
    fs::create_dir_all(&contents).map_err(|error| format!("cannot make {}: {error}", contents.display()))?;
    let snapshot = catalogue.snapshot();
    for entry in snapshot.listed() {
        let text = catalogue.content(&entry.skill.digest).map_err(|error| error.to_string())?;
        write(&contents.join(format!("{}.md", entry.skill.id)), text.as_bytes())?;
    }
    // Last, so that it never names a content that is not there yet.
    write(&folder.join("skills/registry.json"), &snapshot.registry().body)?;
    Ok(snapshot.listed_count())
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let temporary = file.with_extension("partial");
    fs::write(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, file))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Takes skills in, a batch at a time with a breath between two, so that a service on the same database goes
/// on writing. One that was broken off goes on where it was when it is run again.
/// Gives how many records were made or changed.
pub fn take_in(store: &dyn Store, mut incoming: Vec<Incoming>, now: Time) -> Result<u64, StoreError> {
    let mut changed = 0;
    while !incoming.is_empty() {
        let rest = incoming.split_off(incoming.len().min(BATCH_SKILLS));
        changed += store.take_in(incoming, now)?.value;
        incoming = rest;
        if !incoming.is_empty() {
            thread::sleep(BREATH);
        }
    }
    Ok(changed)
}

/// Reads a mirror. Every record is checked by the rules of a create.
///
/// Errors: a sentence that names file and record.
pub fn read(folder: &Path, trust: Trust, now: Time) -> Result<Mirror, String> {
    let file = folder.join("skills/registry.json");
    let size = fs::metadata(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?.len();
    if size > REGISTRY_BYTES {
        return Err(format!("{} has {size} bytes, at most {REGISTRY_BYTES} are read", file.display()));
    }
    let text = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let list: Vec<Map<String, Value>> =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let vendors: HashSet<String> = seed::all()?.into_iter().map(|seed| seed.skill.id).collect();
    let mut mirror = Mirror { skills: Vec::new(), skipped: 0 };
    for record in &list {
        if is_vendors(record, &vendors) {
            mirror.skipped += 1;
        } else {
            mirror.skills.push(one(record, folder, trust, now)?);
        }
    }
    Ok(mirror)
}

fn word<'a>(record: &'a Map<String, Value>, name: &str) -> &'a str {
    record.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a record takes the vendor's name, source or one of its ids.
fn is_vendors(record: &Map<String, Value>, ids: &HashSet<String>) -> bool {
    word(record, "source") == Source::Vendor.word()
        || authors::is_reserved(word(record, "author"))
        || ids.contains(word(record, "id"))
}

fn one(record: &Map<String, Value>, folder: &Path, trust: Trust, now: Time) -> Result<Incoming, String> {
    let id = word(record, "id");
    // An id is also a file name here, so it must be exactly a slug.
    if id.is_empty() || id.len() > slug::SLUG_CHARS || slug::words(id) != id {
        return Err(format!("{id:?} is not an id: 1 to 64 of a-z, 0-9 and single hyphens"));
    }
    let file = folder.join("skills/content").join(format!("{id}.md"));
    let text =
        fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut v = Validator::default();
    content::check(&mut v, &text);
    v.finish().map_err(|problem| format!("{}: {}", file.display(), problem.error))?;
    let draft = authoring::parse_new(record).map_err(|problem| format!("{id}: {}", problem.error))?;
    let time = |name: &str| Time::parse(word(record, name)).unwrap_or(now).min(now);
    let content = Content::new(text);
    let mut skill = authoring::moves::create(draft, now);
    id.clone_into(&mut skill.id);
    skill.content_bytes = content.text.len() as u64;
    skill.digest.clone_from(&content.digest);
    skill.has_front_matter = content.has_front_matter;
    skill.created_at = time("createdAt");
    skill.updated_at = time("updatedAt");
    // A static registry lists published skills only.
    skill.status = Status::Published;
    skill.first_published_at = Some(skill.created_at);
    if trust == Trust::Figures {
        let count = |name: &str| record.get(name).and_then(Value::as_u64).unwrap_or_default().min(COUNT_MAX);
        let rating = record.get("rating").and_then(Value::as_f64).unwrap_or_default();
        skill.downloads = count("downloads");
        skill.seed_rating = whole_hundredths(rating).min(500);
        skill.seed_rating_count = count("ratingCount");
        skill.featured = record.get("featured").and_then(Value::as_bool).unwrap_or_default();
        let mark = Verification::from_word(word(record, "verification"));
        skill.verification =
            mark.filter(|mark| *mark != Verification::Vendor).unwrap_or(Verification::Nobody);
    }
    Ok(Incoming { skill, content: content.text })
}
