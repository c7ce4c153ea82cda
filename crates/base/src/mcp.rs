//! Versions of the Model Context Protocol: of the daemon, a client of tool servers, and of `svc mcp`, a
//! server for agents.

/// The version asked for, and answered to who asks for one that is not known.
pub const PROTOCOL: &str = "2025-06-18";
/// The versions that are accepted; they differ in nothing that is used here.
pub const ACCEPTED: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
