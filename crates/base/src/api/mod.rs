//! The pure side of HTTP: what a request says, what a reply says, which routes exist. Both binaries use
//! it; the socket side is `runtime::http`. Nothing here reads a file, a clock or a socket.
//!
//! **Invariant:** every refusal is a [`Problem`]; it names the field, the rule and the remedy.

pub mod conformance;
mod fields;
pub mod openapi;
mod problem;
mod reply;
mod request;
mod route;
pub mod shapes;

pub use fields::{Fields, MAX_TITLE_CHARS, Validator, schema_of};
pub use problem::{FieldError, Problem};
pub use reply::{Body, Reply};
pub use request::{Request, decode_percent, parse_query};
pub use route::{BODY_LIMIT_BYTES, Found, Params, Route, Table};
pub use tiny_http::Method;
