//! How a browser comes to count as a person: a link with a code that is good once, and what it is given for
//! that code.
//!
//! A browser sends a cookie to every port of a machine, so that a page which an agent serves gets it, too.
//! So the cookie is one half of the proof; the other half is kept by the console's own pages alone, and they
//! send it in a header.
//!
//! **Invariant:** neither half proves anything alone, under another name of this machine, or for a page of
//! another origin; nothing of it is on disk, and all of it ends with the daemon.

use crate::api::Request;
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use svc_base::bounded;
use svc_sys::http::{is_own_page, same_bytes};
use svc_sys::secrets;

/// A code is good for so long.
pub const CODE_LIFE: Duration = Duration::from_secs(10 * 60);
/// Codes at once; the oldest goes.
const MAX_CODES: usize = 16;
/// Sessions at once; the oldest goes.
const MAX_SESSIONS: usize = 16;
/// The header with the half of the proof that pages keep.
const HEADER: &str = "svc-console";

/// Codes and sessions.
#[derive(Default)]
pub struct Sessions {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    codes: VecDeque<Code>,
    sessions: VecDeque<Session>,
}

struct Code {
    text: String,
    until: Instant,
    /// Whether it is for a program that is seen to come from no agent: others may have seen this one.
    only_seen: bool,
}

struct Session {
    cookie: String,
    key: String,
    /// The name and port by which the daemon was called.
    host: String,
}

/// Both halves of a new session's proof.
#[derive(Debug)]
pub struct Halves {
    /// The value of `Set-Cookie`.
    pub cookie: String,
    /// For the pages.
    pub key: String,
}

impl Sessions {
    /// A code that opens one session within [`CODE_LIFE`].
    ///
    /// Errors: the system gives no randomness.
    pub fn code(&self, only_seen: bool, now: Instant) -> io::Result<String> {
        let text = secrets::random()?;
        let mut open = self.open();
        open.codes.retain(|code| now < code.until);
        let code = Code { text: text.clone(), until: now + CODE_LIFE, only_seen };
        bounded::push(&mut open.codes, code, MAX_CODES);
        Ok(text)
    }

    /// Opens a session for a code, which is used up whatever comes of it; `None` for one that is not good
    /// here. `is_seen` says whether the caller is seen to come from no agent.
    ///
    /// Errors: the system gives no randomness.
    pub fn redeem(
        &self,
        text: &str,
        request: &Request,
        is_seen: bool,
        now: Instant,
    ) -> io::Result<Option<Halves>> {
        let mut open = self.open();
        let Some(at) = open.codes.iter().position(|code| same_bytes(code.text.as_bytes(), text.as_bytes()))
        else {
            return Ok(None);
        };
        let code = open.codes.remove(at).filter(|code| now < code.until && (is_seen || !code.only_seen));
        let Some(host) = code.and_then(|_| request.header("host")) else { return Ok(None) };
        let (cookie, key) = (secrets::random()?, secrets::random()?);
        let halves = Halves {
            cookie: format!(
                "{}={cookie}; HttpOnly; SameSite=Strict; Path={}/",
                cookie_name(request),
                request.base
            ),
            key: key.clone(),
        };
        let session = Session { cookie, key, host: host.to_ascii_lowercase() };
        bounded::push(&mut open.sessions, session, MAX_SESSIONS);
        Ok(Some(halves))
    }

    /// Whether a request shows both halves of a session's proof, and comes from the console's own pages.
    pub fn knows(&self, request: &Request) -> bool {
        let (Some(key), Some(host)) = (request.header(HEADER), request.header("host")) else { return false };
        let Some(cookie) = cookie_of(request).filter(|_| is_own_page(request)) else { return false };
        self.open().sessions.iter().any(|session| {
            let is_cookie = same_bytes(session.cookie.as_bytes(), cookie.as_bytes());
            let is_key = same_bytes(session.key.as_bytes(), key.as_bytes());
            is_cookie & is_key && session.host.eq_ignore_ascii_case(host)
        })
    }

    /// Ends all sessions, and the codes for more; how many sessions there were.
    pub fn forget(&self) -> usize {
        std::mem::take(&mut *self.open()).sessions.len()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Daemons of several projects share the cookies of one machine, and at the door those of one port.
fn cookie_name(request: &Request) -> String {
    let (port, base) = (request.local.port(), request.base.rsplit('/').next().unwrap_or_default());
    if base.is_empty() { format!("svc-console-{port}") } else { format!("svc-console-{port}-{base}") }
}

/// The console's cookie. Two of that name are none: one of them was planted.
fn cookie_of(request: &Request) -> Option<&str> {
    let name = cookie_name(request);
    let headers = request.headers.iter().filter(|(header, _)| header == "cookie");
    let mut found = headers
        .flat_map(|(_, value)| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Method;
    use std::sync::Arc;

    const HOST: (&str, &str) = ("host", "127.0.0.1:31415");

    fn request(headers: &[(&str, &str)]) -> Request {
        let address = "127.0.0.1:31415".parse().unwrap();
        Request {
            method: Method::Post,
            path: "/".into(),
            base: String::new(),
            segments: Vec::new(),
            query: Vec::new(),
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            body: Vec::new(),
            peer: address,
            local: address,
            caller: Arc::default(),
        }
    }

    fn opened(sessions: &Sessions) -> (String, String) {
        let now = Instant::now();
        let code = sessions.code(false, now).unwrap();
        let halves = sessions.redeem(&code, &request(&[HOST]), false, now).unwrap().unwrap();
        let (cookie, rules) = halves.cookie.split_once("; ").unwrap();
        assert_eq!(rules, "HttpOnly; SameSite=Strict; Path=/");
        (cookie.to_owned(), halves.key)
    }

    #[test]
    fn a_code_is_good_once_and_not_for_long() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let redeem = |code: &str, is_seen, at| {
            sessions.redeem(code, &request(&[HOST]), is_seen, at).unwrap().is_some()
        };
        let code = sessions.code(false, now).unwrap();
        assert!(!redeem("", false, now) && !redeem(&code[1..], false, now), "a guess");
        assert!(redeem(&code, false, now) && !redeem(&code, false, now), "once");
        let old = sessions.code(false, now).unwrap();
        assert!(!redeem(&old, true, now + CODE_LIFE), "too old");
        let watched = sessions.code(true, now).unwrap();
        assert!(!redeem(&watched, false, now), "one that others may have seen is for who is seen");
        assert!(!redeem(&watched, true, now), "and is used up by the try");
        let first = sessions.code(false, now).unwrap();
        for _ in 0..MAX_CODES {
            sessions.code(false, now).unwrap();
        }
        assert!(!redeem(&first, false, now) && sessions.open().codes.len() == MAX_CODES);
        assert!(sessions.redeem(&code, &request(&[]), true, now).unwrap().is_none(), "without a host");
    }

    #[test]
    fn a_session_is_known_by_both_halves_on_its_own_origin_alone() {
        let sessions = Sessions::default();
        let (cookie, key) = opened(&sessions);
        let pair = (("cookie", cookie.as_str()), (HEADER, key.as_str()));
        let knows = |headers: &[(&str, &str)]| sessions.knows(&request(headers));
        let page = [("origin", "http://127.0.0.1:31415"), ("sec-fetch-site", "same-origin")];
        assert!(knows(&[HOST, pair.0, pair.1]) && knows(&[HOST, pair.0, pair.1, page[0], page[1]]));
        let (other_cookie, other_key) = opened(&sessions);
        for (why, headers) in [
            ("no key", vec![HOST, pair.0]),
            ("no cookie", vec![HOST, pair.1]),
            ("another session's key", vec![HOST, pair.0, (HEADER, other_key.as_str())]),
            ("another name", vec![("host", "localhost:31415"), pair.0, pair.1]),
            ("no name", vec![pair.0, pair.1]),
            ("another port's page", vec![HOST, pair.0, pair.1, ("origin", "http://127.0.0.1:3000")]),
            ("another page", vec![HOST, pair.0, pair.1, ("sec-fetch-site", "same-site")]),
            ("two cookies", vec![HOST, pair.0, pair.1, ("cookie", &other_cookie)]),
            ("halves exchanged", vec![HOST, ("cookie", &*format!("svc-console-31415={key}")), pair.1]),
            ("an empty one", vec![HOST, ("cookie", "svc-console-31415="), (HEADER, "")]),
        ] {
            assert!(!knows(&headers), "{why}");
        }
        let value = cookie.split_once('=').unwrap().1;
        let of_other = format!("svc-console-31416={value}");
        assert!(!knows(&[HOST, ("cookie", &of_other), pair.1]), "another daemon's");
        let below = Request { base: "/p/shop".into(), ..request(&[HOST, pair.0, pair.1]) };
        assert!(!sessions.knows(&below), "one of the daemon's own address is none below the door");
        let code = sessions.code(false, Instant::now()).unwrap();
        let halves = sessions.redeem(&code, &below, false, Instant::now()).unwrap().unwrap();
        assert!(
            halves.cookie.starts_with("svc-console-31415-shop=")
                && halves.cookie.ends_with("; Path=/p/shop/")
        );
        assert!(!knows(&[HOST, ("cookie", halves.cookie.split(';').next().unwrap()), (HEADER, &halves.key)]));
        assert_eq!(sessions.forget(), 3);
        assert!(!knows(&[HOST, pair.0, pair.1]));
    }

    #[test]
    fn a_session_that_somebody_else_has_chosen_is_none() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let code = sessions.code(false, now).unwrap();
        let planted = ("cookie", "svc-console-31415=planted");
        let halves = sessions.redeem(&code, &request(&[HOST, planted]), false, now).unwrap().unwrap();
        assert!(!halves.cookie.contains("planted"));
        assert!(!sessions.knows(&request(&[HOST, planted, (HEADER, &halves.key)])));
    }

    #[test]
    fn no_more_sessions_than_there_is_room_for() {
        let sessions = Sessions::default();
        let (cookie, key) = opened(&sessions);
        let mine = request(&[HOST, ("cookie", &cookie), (HEADER, &key)]);
        for _ in 1..MAX_SESSIONS {
            opened(&sessions);
        }
        assert!(sessions.knows(&mine));
        opened(&sessions);
        assert!(!sessions.knows(&mine) && sessions.open().sessions.len() == MAX_SESSIONS);
    }
}
