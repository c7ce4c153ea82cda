//! A static mirror of the legacy layout: written by `export`, read by `import`.
//!
//! ```text
//! DIR/skills/registry.json        all published skills, without content
//! DIR/skills/content/<id>.md      one content each
//! ```

use crate::authoring::content::{self, Content};
use crate::authoring::{self, slug};
use crate::catalogue::Catalogue;
use crate::model::{Profile, Source, Status, VENDOR_AUTHOR_ID, VENDOR_NAME, Verification};
use crate::seed::whole_hundredths;
use crate::store::Incoming;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;
use svc::api::Validator;
use svc::core::time::Time;

/// Largest counter that is taken in; sums of many such stay in range.
const COUNT_MAX: u64 = 1_000_000_000_000;
/// Largest registry that is read.
const REGISTRY_BYTES: u64 = 256 << 20;

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

/// Reads a mirror. Every record is checked by the rules of a create.
///
/// Errors: a sentence that names file and record.
pub fn read(folder: &Path, now: Time) -> Result<Vec<Incoming>, String> {
    let file = folder.join("skills/registry.json");
    let size = fs::metadata(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?.len();
    if size > REGISTRY_BYTES {
        return Err(format!("{} has {size} bytes, at most {REGISTRY_BYTES} are read", file.display()));
    }
    let text = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let list: Vec<Map<String, Value>> =
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    list.iter().map(|record| one(record, folder, now)).collect()
}

fn one(record: &Map<String, Value>, folder: &Path, now: Time) -> Result<Incoming, String> {
    let id = record.get("id").and_then(Value::as_str).unwrap_or_default();
    // An id is also a file name here, so it must be exactly a slug.
    if id.is_empty() || id.len() > slug::SLUG_CHARS || slug::words(id) != id {
        return Err(format!("{id:?} is no id: 1 to 64 of a-z, 0-9 and single hyphens"));
    }
    let file = folder.join("skills/content").join(format!("{id}.md"));
    let text =
        fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut v = Validator::default();
    content::check(&mut v, &text);
    v.finish().map_err(|problem| format!("{}: {}", file.display(), problem.error))?;
    let vendor = record.get("source").and_then(Value::as_str) == Some(Source::Vendor.word());
    let mut body = record.clone();
    if vendor {
        // The reserved name is the vendor's here.
        body.remove("author");
    }
    let draft = authoring::parse_new(&body).map_err(|problem| format!("{id}: {}", problem.error))?;
    let number = |name: &str| record.get(name).and_then(Value::as_f64).unwrap_or_default();
    let time = |name: &str| record.get(name).and_then(Value::as_str).and_then(Time::parse).unwrap_or(now);
    let content = Content::new(text);
    let mut skill = authoring::moves::create(draft, now);
    id.clone_into(&mut skill.id);
    skill.content_bytes = content.text.len() as u64;
    skill.digest.clone_from(&content.digest);
    skill.has_front_matter = content.has_front_matter;
    let count = |name: &str| record.get(name).and_then(Value::as_u64).unwrap_or_default().min(COUNT_MAX);
    skill.downloads = count("downloads");
    skill.seed_rating = whole_hundredths(number("rating")).min(500);
    skill.seed_rating_count = count("ratingCount");
    skill.featured = record.get("featured").and_then(Value::as_bool).unwrap_or_default();
    skill.verification = record
        .get("verification")
        .and_then(Value::as_str)
        .and_then(Verification::from_word)
        .unwrap_or(Verification::Nobody);
    skill.created_at = time("createdAt");
    skill.updated_at = time("updatedAt");
    // A static registry lists published skills only.
    skill.status = Status::Published;
    skill.first_published_at = Some(skill.created_at);
    if vendor {
        skill.source = Source::Vendor;
        skill.verification = Verification::Vendor;
        VENDOR_NAME.clone_into(&mut skill.author);
        VENDOR_AUTHOR_ID.clone_into(&mut skill.author_id);
        skill.profile = Profile::default();
    }
    Ok(Incoming { skill, content: content.text })
}
