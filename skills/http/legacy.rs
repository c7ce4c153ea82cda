//! Files that other programs read: the legacy registry and contents, and the Agent Skills discovery format.

use super::reads::{cached, find};
use super::routes::Ask;
use crate::authoring::moves::require_listed;
use crate::catalogue::Catalogue;
use crate::catalogue::entry::Entry;
use crate::hex;
use serde_json::{Value, json};
use svc::api::{Problem, Reply};

const MARKDOWN: &str = "text/markdown; charset=utf-8";
/// The version of the discovery format that names a digest for each file.
const DISCOVERY_SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";

/// `/skills/registry.json`, with and without `/api/v1`.
pub fn registry(ask: &Ask) -> Result<Reply, Problem> {
    Ok(cached(ask.market.catalogue.snapshot().registry()))
}

/// `/skills/content/<id>.md`.
pub fn content_file(ask: &Ask) -> Result<Reply, Problem> {
    let file = ask.params.get("file");
    let no_file = || Problem::not_found("there is no such file; it would be <id>.md");
    let id = file.strip_suffix(".md").ok_or_else(no_file)?;
    let snapshot = ask.market.catalogue.snapshot();
    let entry = find(&snapshot, id)?;
    require_listed(&entry.skill)?;
    let content = ask.market.catalogue.content(&entry.skill.digest)?;
    let etag = format!("\"{}\"", &entry.skill.digest[..20]);
    Ok(Reply::bytes(200, MARKDOWN, content.as_bytes()).with_header("ETag", etag))
}

/// `/.well-known/.../<id>/SKILL.md`: the content, with front matter made for it where it has none.
pub fn skill_file(ask: &Ask) -> Result<Reply, Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    let entry = find(&snapshot, ask.params.get("id"))?;
    require_listed(&entry.skill)?;
    Ok(Reply::bytes(200, MARKDOWN, skill_md(&ask.market.catalogue, entry)?))
}

/// A listed skill as a `SKILL.md` file.
pub fn skill_md(catalogue: &Catalogue, entry: &Entry) -> Result<String, Problem> {
    let content = catalogue.content(&entry.skill.digest)?;
    if entry.skill.has_front_matter {
        return Ok(content.to_string());
    }
    // A JSON string is a YAML string, whatever is in it.
    let description = Value::from(entry.skill.description.as_str());
    let body = crate::authoring::content::body(&content);
    Ok(format!("---\nname: {}\ndescription: {description}\n---\n\n{body}", entry.skill.id))
}

/// `/.well-known/agent-skills/index.json`: name, description, URL and digest of each file.
pub fn discovery(ask: &Ask) -> Result<Reply, Problem> {
    let catalogue = &ask.market.catalogue;
    let snapshot = catalogue.snapshot();
    let mut skills = Vec::with_capacity(snapshot.listed_count());
    for entry in snapshot.listed() {
        let skill = &entry.skill;
        let digest = if skill.has_front_matter {
            skill.digest.clone()
        } else {
            hex::sha256(skill_md(catalogue, entry)?.as_bytes())
        };
        skills.push(json!({
            "name": skill.id,
            "type": "skill-md",
            "description": skill.description,
            // Relative to the index, so that it holds behind any name and path.
            "url": format!("{}/SKILL.md", skill.id),
            "digest": format!("sha256:{digest}"),
        }));
    }
    Ok(Reply::ok(&json!({"$schema": DISCOVERY_SCHEMA, "skills": skills})))
}

/// `/.well-known/skills/index.json`: name, description and files.
pub fn discovery_first(ask: &Ask) -> Result<Reply, Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    let skills: Vec<Value> = snapshot
        .listed()
        .map(|entry| {
            json!({
                "name": entry.skill.id,
                "description": entry.skill.description,
                "files": ["SKILL.md"],
            })
        })
        .collect();
    Ok(Reply::ok(&json!({"skills": skills})))
}
