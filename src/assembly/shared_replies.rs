//! Replies that are the same for everybody until the state changes: their bytes are made once for each
//! snapshot, however many ask.

use crate::api::{Body, Method, Reply, Request};
use crate::core::State;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// One reply for each route that shares its own; there are as many as such routes.
#[derive(Default)]
pub struct SharedReplies {
    made: Mutex<HashMap<&'static str, Made>>,
}

/// The snapshot is not kept alive by it.
struct Made {
    of: Weak<State>,
    reply: Reply,
    tag: String,
}

impl SharedReplies {
    /// What `make` answers for this snapshot, from an earlier request where one has asked the same. 304 for
    /// who has it already (`If-None-Match`). What is asked with a query is made for it alone.
    pub fn get<E>(
        &self,
        route: &'static str,
        state: &Arc<State>,
        request: &Request,
        make: impl FnOnce() -> Result<Reply, E>,
    ) -> Result<Reply, E> {
        if !request.query.is_empty() || !matches!(request.method, Method::Get | Method::Head) {
            return make();
        }
        if let Some((reply, tag)) = self.find(route, state) {
            return Ok(answer(request, reply, &tag));
        }
        // Made outside of the lock: two that come at once both make it, and nobody waits for the other.
        let mut reply = make()?;
        if reply.status != 200 {
            return Ok(reply);
        }
        let bytes: Arc<[u8]> = reply.body.bytes().into();
        let tag = tag(&bytes);
        reply.body = Body::Shared(bytes);
        let made = Made { of: Arc::downgrade(state), reply: reply.clone(), tag: tag.clone() };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(route, made);
        Ok(answer(request, reply, &tag))
    }

    fn find(&self, route: &str, state: &Arc<State>) -> Option<(Reply, String)> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let known = made.get(route).filter(|known| std::ptr::eq(known.of.as_ptr(), Arc::as_ptr(state)))?;
        Some((known.reply.clone(), known.tag.clone()))
    }
}

/// Tells one content from another within one life of the daemon.
fn tag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("\"{:016x}\"", hasher.finish())
}

fn answer(request: &Request, reply: Reply, tag: &str) -> Reply {
    let known = request.header("if-none-match").unwrap_or_default();
    let is_known = known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag);
    if is_known {
        return Reply { status: 304, content_type: "", headers: Vec::new(), body: Body::Static(b"") }
            .with_header("ETag", tag);
    }
    reply.with_header("ETag", tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn ask(query: &[(&str, &str)], known: Option<&str>) -> Request {
        let address = "127.0.0.1:1".parse().unwrap();
        Request {
            method: Method::Get,
            path: "/api/agents".into(),
            segments: vec!["api".into(), "agents".into()],
            query: query.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            headers: known.map(|tag| ("if-none-match".to_owned(), tag.to_owned())).into_iter().collect(),
            body: Vec::new(),
            peer: address,
            local: address,
            base: String::new(),
            caller: Arc::default(),
        }
    }

    #[test]
    fn bytes_are_made_once_for_a_snapshot_and_anew_for_the_next() {
        let shared = SharedReplies::default();
        let first = Arc::new(State::default());
        let made = std::cell::Cell::new(0);
        let get = |state: &Arc<State>, request: &Request| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<_, Infallible>(Reply::ok(&state.agents.iter().count()))
            };
            shared.get("/api/agents", state, request, make).unwrap()
        };
        let one = get(&first, &ask(&[], None));
        let again = get(&first, &ask(&[], None));
        assert_eq!((made.get(), &one), (1, &again));
        let (Body::Shared(a), Body::Shared(b)) = (&one.body, &again.body) else { panic!("not shared") };
        assert!(Arc::ptr_eq(a, b));
        get(&first, &ask(&[("fields", "id")], None));
        assert_eq!(made.get(), 2, "a query is answered for itself");
        let second = Arc::new(State::default());
        let tag = &one.headers[0].1;
        assert_eq!(get(&second, &ask(&[], Some(&format!("\"x\", W/{tag}")))).status, 304, "same content");
        assert_eq!(made.get(), 3);
        assert_eq!(get(&second, &ask(&[], Some("\"x\""))).status, 200);
        assert_eq!(made.get(), 3);
        drop(first);
    }
}
