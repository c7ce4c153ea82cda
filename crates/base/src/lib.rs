//! The words that every part of `svc` shares: requests and replies, ids, points in time, who calls, and text
//! that may be shown. Pure: no thread, file, socket or clock.

// Derived code says where the trait is by the name that others have for this crate.
extern crate self as svc_base;

pub mod actor;
pub mod api;
pub mod base64;
pub mod bounded;
pub mod bundled;
pub mod choice;
pub mod chunked;
pub mod fence;
pub mod folders;
pub mod hex;
pub mod ids;
pub mod json_text;
pub mod machine;
pub mod matching;
pub mod mcp;
pub mod names;
pub mod nearest;
pub mod outgoing;
pub mod packed;
pub mod percent;
pub mod recorded;
pub mod relevance;
pub mod scopes;
pub mod secret;
pub mod settings;
pub mod sorted;
pub mod terms;
pub mod time;
pub mod toys;
pub mod untrusted;
pub mod words;
