//! Which coding-agent programs are installed, and what is told of them. What they are, their command lines
//! and their streams stand in the crate below, a file each.

pub mod api;
pub mod registry;
pub mod worker;
