//! Files that older programs read: the legacy registry and contents.

use super::reads::{cached, find};
use super::routes::Ask;
use crate::authoring::moves::require_listed;
use svc_base::api::{Problem, Reply};

const MARKDOWN: &str = "text/markdown; charset=utf-8";

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
