//! The pure heart of the daemon. No I/O, no clock, no randomness, no channels.

pub mod ids;
pub mod time;
