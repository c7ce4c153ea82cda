//! `/` and what it loads, and how a browser comes to count as a person.

use super::{assets, page, worker};
use crate::api::{Body, Fields, Method, Problem, Reply, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use sha2::{Digest, Sha256};

/// Characters of a code at most.
const MAX_CODE_CHARS: usize = 100;

/// What the pages may do: load from here, talk to here, and nothing else; markup from text is refused by the
/// browser itself.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// The routes of the pages.
pub fn routes() -> Vec<Route<Handler>> {
    vec![
        Route::new(Method::Get, "/", "The web console", Handler::Read(front)),
        Route::new(
            Method::Get,
            "/console/:file",
            "The web console's styles and scripts",
            Handler::Read(file),
        )
        .replies(&[(200, "the file"), (304, "it is as it was"), (404, "no such file")]),
        Route::new(
            Method::Post,
            "/api/console/codes",
            "A link that lets a browser count as a person, once",
            Handler::Work(Access::OperatorOnly, worker::new_code),
        )
        .body(|| schema_of(only_seen))
        .replies(&[(201, "code, link, expiresInSeconds")]),
        Route::new(
            Method::Post,
            "/api/console/session",
            "Begin a session of the console with the code of a link",
            Handler::Work(Access::NoAgent, worker::begin),
        )
        .body(|| schema_of(given_code))
        .replies(&[(200, "key, and a cookie; both together prove a person"), (403, "the code is not good")]),
        Route::new(
            Method::Delete,
            "/api/console/sessions",
            "End all sessions of the console, and the links for more",
            Handler::Work(Access::OperatorOnly, worker::forget),
        )
        .replies(&[(200, "ended: how many sessions there were")]),
    ]
}

/// Whether a link is only for who is seen to be no agent's.
pub fn only_seen(fields: &mut Fields) -> bool {
    fields.boolean("onlySeen").unwrap_or(false)
}

/// The code of a link.
pub fn given_code(fields: &mut Fields) -> String {
    fields.required_text("code", MAX_CODE_CHARS)
}

fn front(ask: &Ask) -> Result<Reply, Problem> {
    Ok(served(ask, "text/html; charset=utf-8", Body::Owned(page(ask.state).into_bytes()), POLICY))
}

fn file(ask: &Ask) -> Result<Reply, Problem> {
    let name = ask.params.get("file");
    let Some(asset) = assets::find(name) else {
        return Err(Problem::not_found(format!("the console has no file {name:?}")));
    };
    Ok(served(ask, asset.content_type(), Body::Static(asset.text.as_bytes()), POLICY))
}

/// 200, or 304 when the browser has these bytes. It asks every time, so that a new binary is seen at once.
pub fn served(ask: &Ask, content_type: &'static str, body: Body, policy: &'static str) -> Reply {
    let digest = Sha256::digest(body.bytes());
    let etag = format!("\"{:016x}\"", digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first)));
    let known = ask.request.header("if-none-match").is_some_and(|tags| {
        tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag || tag.trim() == "*")
    });
    let reply = if known {
        Reply { status: 304, ..Reply::no_content() }
    } else {
        Reply { status: 200, content_type, headers: Vec::new(), body }
    };
    reply
        .with_header("ETag", etag)
        .with_header("Cache-Control", "no-cache")
        .with_header("Content-Security-Policy", policy)
}
