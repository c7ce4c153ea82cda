//! The words that every part of `svc` shares: requests and replies, ids, points in time, who calls, and text
//! that may be shown. Pure: no thread, file, socket or clock.

pub mod actor;
pub mod api;
pub mod base64;
pub mod bundled;
pub mod chunked;
pub mod fence;
pub mod folders;
pub mod hex;
pub mod ids;
pub mod json_text;
pub mod mcp;
pub mod names;
pub mod nearest;
pub mod packed;
pub mod relevance;
pub mod scopes;
pub mod secret;
pub mod settings;
pub mod time;
pub mod toys;
pub mod untrusted;
pub mod words;
