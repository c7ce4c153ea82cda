//! The contract on `SQLite`.
