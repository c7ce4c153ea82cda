//! Keepers with real programs: what they keep, whom they talk to, and what they end.

#![cfg(target_os = "linux")]

mod ends;
mod keeps;
mod still;
mod strangers;
mod support;
mod terminal;
