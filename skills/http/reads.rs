//! Lists, single skills, contents and authors.

use super::routes::Ask;
use crate::authoring::moves::require_listed;
use crate::catalogue::entry::{Entry, render_author};
use crate::catalogue::query::ListQuery;
use crate::catalogue::snapshot::{Cached, Snapshot};
use crate::keys::Access;
use crate::store::{no_such_author, no_such_skill};
use serde_json::json;
use std::sync::Arc;
use svc_base::api::{Body, Problem, Reply};

/// The list's own path, for links.
const LIST_PATH: &str = "/api/v1/skills";

/// A skill of a snapshot.
///
/// Errors: 404.
pub fn find<'a>(snapshot: &'a Snapshot, id: &str) -> Result<&'a Arc<Entry>, Problem> {
    snapshot.get(id).ok_or_else(|| no_such_skill(id))
}

/// A reply of shared bytes with their tag.
pub fn cached(cached: &Cached) -> Reply {
    let mut reply = shared("application/json", Arc::clone(&cached.body), cached.etag.clone());
    if let Some(links) = &cached.links {
        reply.headers.push(("Link", links.clone()));
    }
    reply
}

/// A reply of shared bytes.
pub fn shared(content_type: &'static str, body: Arc<[u8]>, etag: String) -> Reply {
    Reply { status: 200, content_type, headers: vec![("ETag", etag)], body: Body::Shared(body) }
}

/// `GET /skills`.
pub fn list(ask: &Ask) -> Result<Reply, Problem> {
    let query = ListQuery::parse(ask.request)?;
    if query.wants_all() && !ask.keyed {
        ask.market.keys.check(Access::Writer, ask.request.header("authorization"))?;
    }
    Ok(cached(&ask.market.catalogue.snapshot().list(&query, LIST_PATH)))
}

/// `GET /api/search?q=&limit=&owner=`: the list as the public command-line client asks for it, so that its
/// `find` works here. A skill's name is its id and its source the place to install it from.
pub fn search(ask: &Ask) -> Result<Reply, Problem> {
    let mut request = ask.request.clone();
    let author = request.query.iter().find(|(name, _)| name == "owner").map(|(_, owner)| owner.clone());
    request.query.retain(|(name, _)| matches!(name.as_str(), "q" | "limit"));
    for (name, _) in &mut request.query {
        if name == "q" {
            "search".clone_into(name);
        }
    }
    let mut query = ListQuery::parse(&request)?;
    query.author = author.filter(|owner| !owner.is_empty()).map(|owner| crate::authors::id_of_handle(&owner));
    let snapshot = ask.market.catalogue.snapshot();
    let base = ask.market.base(ask.request);
    let (page, total, _) = snapshot.find(&query);
    let skills: Vec<_> = page
        .iter()
        .map(|entry| {
            let id = &entry.skill.id;
            let source = format!("{base}/s/{id}");
            json!({"id": id, "skillId": id, "name": id, "source": source, "installs": entry.skill.downloads})
        })
        .collect();
    Ok(Reply::ok(&json!({"query": query.search, "count": total, "skills": skills})))
}

/// `GET /skills/:id`.
pub fn one(ask: &Ask) -> Result<Reply, Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    let entry = find(&snapshot, ask.params.get("id"))?;
    Ok(shared("application/json", Arc::clone(&entry.json), entry.etag.clone()))
}

/// `GET /skills/:id/content`.
pub fn content(ask: &Ask) -> Result<Reply, Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    let entry = find(&snapshot, ask.params.get("id"))?;
    if !ask.keyed {
        require_listed(&entry.skill)?;
    }
    let content = ask.market.catalogue.content(&entry.skill.digest)?;
    Ok(Reply::ok(&json!({"id": entry.skill.id, "content": &*content})))
}

/// `GET /authors/:id`.
pub fn author(ask: &Ask) -> Result<Reply, Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    let id = ask.params.get("id");
    Ok(Reply::bytes(200, "application/json", author_json(&snapshot, id)?))
}

/// The public JSON of an author.
///
/// Errors: 404.
pub fn author_json(snapshot: &Snapshot, id: &str) -> Result<Vec<u8>, Problem> {
    let author = snapshot.author(id).ok_or_else(|| no_such_author(id))?;
    let listed: Vec<&Entry> = snapshot.listed().filter(|entry| entry.skill.author_id == id).collect();
    Ok(render_author(author, &listed))
}
