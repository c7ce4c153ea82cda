//! The page for phones: what waits, its card, yes or no, an answer. It is small, for it is loaded over
//! whatever network a phone is in, and stays readable without one.

use super::api::no_file;
use crate::api::{Body, Problem, Reply};
use crate::console::api::served;
use crate::endpoint::Ask;

/// Bytes of the page with all that it loads.
#[cfg(test)]
pub(super) const WEIGHT_LIMIT_BYTES: usize = 24 << 10;

/// As strict as the console's; a worker keeps the page for when there is no network, and a manifest names it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types phone";

/// The page itself.
pub(super) const PAGE: &str = include_str!("assets/phone.html");

macro_rules! assets {
    ($($name:literal $kind:literal;)*) => {
        /// What it loads: name, media type, text.
        pub(super) const ASSETS: &[(&str, &str, &str)] =
            &[$(($name, $kind, include_str!(concat!("assets/", $name)))),*];
    };
}
assets! {
    "phone.css" "text/css; charset=utf-8";
    "phone.js" "text/javascript; charset=utf-8";
    "worker.js" "text/javascript; charset=utf-8";
    "manifest.json" "application/manifest+json";
    "icon.svg" "image/svg+xml";
}

/// `GET /phone`.
pub(super) fn front(ask: &Ask) -> Reply {
    served(ask, "text/html; charset=utf-8", Body::Static(PAGE.as_bytes()), POLICY)
}

/// `GET /phone/:file`.
pub(super) fn file(ask: &Ask) -> Result<Reply, Problem> {
    let name = ask.params.get("file");
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    let (_, kind, text) = found.ok_or_else(|| no_file(name))?;
    // The worker stands below the page that it keeps.
    Ok(served(ask, kind, Body::Static(text.as_bytes()), POLICY)
        .with_header("Service-Worker-Allowed", "/phone"))
}
