//! The Agent Skills discovery format: an index of the market, an index of each skill alone, and the files.
//!
//! The public client fetches every file that an index names, whatever one skill was asked for. So the index
//! of the market is capped, the files of an index are not counted one by one (see [`crate::limits::bulk`]),
//! and each skill is a place of its own to install from, `/s/<id>`, whatever the size of the market.
//!
//! **Invariant:** an index is made once per change of what it says, by one request, and shared by all.

use super::reads::{cached, find};
use super::routes::Ask;
use crate::authoring::moves::require_listed;
use crate::catalogue::Catalogue;
use crate::catalogue::entry::Entry;
use crate::catalogue::snapshot::Cached;
use crate::hex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use svc_base::api::{Problem, Reply};

/// Skills of the market's index, the most popular ones.
pub const INDEX_SKILLS: usize = 500;
const MARKDOWN: &str = "text/markdown; charset=utf-8";
/// The version of the discovery format that names a digest for each file.
const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";

/// What an index says of one skill, and the content that it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    id: String,
    description: String,
    content: String,
    file: String,
}

impl Item {
    /// `known`: what was said before; its file's digest is taken where nothing has changed.
    fn of(catalogue: &Catalogue, entry: &Entry, known: Option<&Item>) -> Result<Self, Problem> {
        let skill = &entry.skill;
        let is_known =
            |known: &&Item| known.description == skill.description && known.content == skill.digest;
        if let Some(known) = known.filter(is_known) {
            return Ok(known.clone());
        }
        let file = if skill.has_front_matter {
            skill.digest.clone()
        } else {
            hex::sha256(skill_md(catalogue, entry)?.as_bytes())
        };
        Ok(Self {
            id: skill.id.clone(),
            description: skill.description.clone(),
            content: skill.digest.clone(),
            file,
        })
    }

    fn with_digest(&self) -> Value {
        json!({
            "name": self.id,
            "type": "skill-md",
            "description": self.description,
            // Relative to the index, so that it holds behind any name and path.
            "url": format!("{}/SKILL.md", self.id),
            "digest": format!("sha256:{}", self.file),
        })
    }

    fn with_files(&self) -> Value {
        json!({"name": self.id, "description": self.description, "files": ["SKILL.md"]})
    }
}

fn second(items: &[Item]) -> Value {
    let skills: Vec<Value> = items.iter().map(Item::with_digest).collect();
    json!({"$schema": SCHEMA, "skills": skills})
}

fn first(items: &[Item]) -> Value {
    let skills: Vec<Value> = items.iter().map(Item::with_files).collect();
    json!({"skills": skills})
}

/// Both formats of an index.
struct Index {
    items: Vec<Item>,
    second: Cached,
    first: Cached,
}

impl Index {
    fn of(items: Vec<Item>) -> Self {
        let body = |value: Value| {
            let text = value.to_string();
            let etag = format!("\"{}\"", &hex::sha256(text.as_bytes())[..20]);
            Cached { body: text.into_bytes().into(), etag, links: None }
        };
        Self { second: body(second(&items)), first: body(first(&items)), items }
    }
}

/// The market's index and the generation of the catalogue that it was last compared with.
#[derive(Default)]
pub struct Discovery {
    kept: Mutex<Option<(u64, Arc<Index>)>>,
    looks: AtomicU64,
}

impl Discovery {
    /// How often the catalogue was gone through for the index.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The index as the catalogue is now. Who comes while it is made waits for it.
    fn index(&self, catalogue: &Catalogue) -> Result<Arc<Index>, Problem> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = catalogue.snapshot();
        if let Some((_, index)) = kept.as_ref().filter(|(generation, _)| *generation >= snapshot.generation) {
            return Ok(Arc::clone(index));
        }
        self.looks.fetch_add(1, Ordering::Relaxed);
        let before = kept.as_ref().map(|(_, index)| Arc::clone(index));
        let known: HashMap<&str, &Item> =
            before.iter().flat_map(|index| &index.items).map(|item| (item.id.as_str(), item)).collect();
        let items = snapshot
            .listed()
            .take(INDEX_SKILLS)
            .map(|entry| Item::of(catalogue, entry, known.get(entry.skill.id.as_str()).copied()))
            .collect::<Result<Vec<_>, _>>()?;
        // Most writes are installs, which change nothing here.
        let index = match before {
            Some(before) if before.items == items => before,
            _ => Arc::new(Index::of(items)),
        };
        *kept = Some((snapshot.generation, Arc::clone(&index)));
        Ok(index)
    }
}

/// The market's index; the client may then fetch the files that it names.
fn market_index(ask: &Ask) -> Result<Arc<Index>, Problem> {
    let index = ask.market.discovery.index(&ask.market.catalogue)?;
    grant(ask, index.items.len());
    Ok(index)
}

fn grant(ask: &Ask, files: usize) {
    let files = u32::try_from(files).unwrap_or(u32::MAX);
    ask.market.limiter.grant(ask.client, ask.market.started.elapsed(), files);
}

/// `/.well-known/agent-skills/index.json`: name, description, URL and digest of each file.
pub fn of_market(ask: &Ask) -> Result<Reply, Problem> {
    Ok(cached(&market_index(ask)?.second))
}

/// `/.well-known/skills/index.json`: name, description and files.
pub fn of_market_first(ask: &Ask) -> Result<Reply, Problem> {
    Ok(cached(&market_index(ask)?.first))
}

fn alone(ask: &Ask) -> Result<[Item; 1], Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    let entry = find(&snapshot, ask.params.get("id"))?;
    require_listed(&entry.skill)?;
    let item = Item::of(&ask.market.catalogue, entry, None)?;
    grant(ask, 1);
    Ok([item])
}

/// `/s/<id>/.well-known/agent-skills/index.json`: this skill alone.
pub fn of_skill(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&second(&alone(ask)?)))
}

/// `/s/<id>/.well-known/skills/index.json`: this skill alone.
pub fn of_skill_first(ask: &Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&first(&alone(ask)?)))
}

/// `.../<id>/SKILL.md`: the content, with front matter made for it where it has none.
pub fn file(ask: &Ask) -> Result<Reply, Problem> {
    let (id, place) = (ask.params.get("file"), ask.params.get("id"));
    if !place.is_empty() && place != id {
        return Err(Problem::not_found(format!("the only skill at this address is {place:?}")));
    }
    let snapshot = ask.market.catalogue.snapshot();
    let entry = find(&snapshot, id)?;
    require_listed(&entry.skill)?;
    Ok(Reply::bytes(200, MARKDOWN, skill_md(&ask.market.catalogue, entry)?))
}

/// A listed skill as a `SKILL.md` file.
fn skill_md(catalogue: &Catalogue, entry: &Entry) -> Result<String, Problem> {
    let content = catalogue.content(&entry.skill.digest)?;
    if entry.skill.has_front_matter {
        return Ok(content.to_string());
    }
    // A JSON string is a YAML string, whatever is in it.
    let description = Value::from(entry.skill.description.as_str());
    let body = crate::authoring::content::body(&content);
    Ok(format!("---\nname: {}\ndescription: {description}\n---\n\n{body}", entry.skill.id))
}
