//! Everything that changes something.

use super::reads::author_json;
use super::routes::Ask;
use crate::authoring::content::lint;
use crate::authoring::moves::{self, Move};
use crate::authoring::{ignored_fields, parse_edit, parse_new};
use crate::authors::{self, AuthorPatch};
use crate::catalogue::entry::render;
use crate::hex;
use crate::model::{Skill, hundredths};
use crate::store::{Written, no_such_author};
use crate::{ratings, review};
use serde_json::{Map, Value, json};
use svc_base::api::{Problem, Reply};
use svc_sys::clock::now;

/// The reply of a write that changed a skill; the catalogue shows it afterwards.
fn written(ask: &Ask, status: u16, written: &Written<Skill>) -> Reply {
    follow(ask, written.generation);
    let json = render(&written.value, ask.market.catalogue.base_url());
    let etag = format!("\"{}\"", &hex::sha256(&json)[..20]);
    Reply::bytes(status, "application/json", json).with_header("ETag", etag)
}

/// The write is durable whatever happens here; a catalogue that could not follow does so a moment later.
fn follow(ask: &Ask, generation: u64) {
    if let Err(error) = ask.market.catalogue.reach(generation) {
        log::error!("the catalogue could not follow to generation {generation}: {error}");
    }
}

/// Names what was ignored, and what the content could do better.
fn annotated(mut reply: Reply, body: &Map<String, Value>) -> Reply {
    let ignored = ignored_fields(body);
    if !ignored.is_empty() {
        reply.headers.push(("X-Ignored-Fields", ignored.join(", ")));
    }
    let warnings = body.get("content").and_then(Value::as_str).map(lint).unwrap_or_default();
    if !warnings.is_empty() {
        reply.headers.push(("X-Content-Warnings", warnings.join("; ")));
    }
    reply
}

/// `POST /skills`.
pub fn create(ask: &Ask) -> Result<Reply, Problem> {
    let body = ask.request.object()?;
    let draft = parse_new(&body)?;
    let made = ask.market.catalogue.store().create(draft, now())?;
    let location = format!("/api/v1/skills/{}", made.value.id);
    Ok(annotated(written(ask, 201, &made).with_header("Location", location), &body))
}

/// The skill of the path, as the catalogue knows it; the store looks again.
fn known(ask: &Ask) -> Result<Skill, Problem> {
    let snapshot = ask.market.catalogue.snapshot();
    Ok(super::reads::find(&snapshot, ask.params.get("id"))?.skill.clone())
}

/// `PUT /skills/:id`.
pub fn edit(ask: &Ask) -> Result<Reply, Problem> {
    moves::refuse_vendor(&known(ask)?)?;
    let body = ask.request.object()?;
    let draft = parse_edit(&body)?;
    let done = ask.market.catalogue.store().update(ask.params.get("id"), draft, now())?;
    Ok(annotated(written(ask, 200, &done), &body))
}

fn step(ask: &Ask, step: Move) -> Result<Reply, Problem> {
    let done = ask.market.catalogue.store().transition(ask.params.get("id"), step, now())?;
    Ok(written(ask, 200, &done))
}

/// `DELETE /skills/:id`.
pub fn unlist(ask: &Ask) -> Result<Reply, Problem> {
    step(ask, Move::Unlist)
}

/// `POST /skills/:id/publish`.
pub fn publish(ask: &Ask) -> Result<Reply, Problem> {
    step(ask, Move::Publish)
}

/// `POST /skills/:id/review`.
pub fn review(ask: &Ask) -> Result<Reply, Problem> {
    known(ask)?;
    step(ask, review::parse(&ask.request.object()?)?)
}

/// `POST /skills/:id/rate`.
pub fn rate(ask: &Ask) -> Result<Reply, Problem> {
    let rating = ratings::parse(ask.request)?;
    moves::require_listed(&known(ask)?)?;
    let store = ask.market.catalogue.store();
    let client = ask.client.hash(&store.client_key());
    let done = store.rate(ask.params.get("id"), client, rating, now())?;
    follow(ask, done.generation);
    Ok(Reply::ok(&json!({
        "id": done.value.id,
        "rating": hundredths(ratings::average(&done.value)),
        "rating_count": ratings::raters(&done.value),
    })))
}

/// JSON schema of the rate body.
pub fn rate_schema() -> Value {
    json!({
        "type": "object",
        "required": ["rating"],
        "properties": {"rating": {"type": "integer", "minimum": 1, "maximum": 5}},
    })
}

/// `POST /skills/:id/install`.
pub fn install(ask: &Ask) -> Result<Reply, Problem> {
    moves::require_listed(&known(ask)?)?;
    let store = ask.market.catalogue.store();
    let client = ask.client.hash(&store.client_key());
    let done = store.install(ask.params.get("id"), client, now())?;
    follow(ask, done.generation);
    Ok(Reply::ok(&json!({"downloads": done.value.downloads, "counted": done.value.counted})))
}

/// `PUT /authors/:id`.
pub fn edit_author(ask: &Ask) -> Result<Reply, Problem> {
    let id = ask.params.get("id");
    let snapshot = ask.market.catalogue.snapshot();
    authors::refuse_vendor(snapshot.author(id).ok_or_else(|| no_such_author(id))?)?;
    let patch = AuthorPatch::parse(&ask.request.object()?)?;
    let done = ask.market.catalogue.store().edit_author(id, patch, now())?;
    follow(ask, done.generation);
    let snapshot = ask.market.catalogue.snapshot();
    Ok(Reply::bytes(200, "application/json", author_json(&snapshot, id)?))
}
