//! What is real and must be installed first: the scripts `tests/real/setup*` do it.

use std::path::PathBuf;

/// Says that a test is skipped because of this, and which script installs it.
///
/// Panics where `SVC_REAL_CLIS=require`: what nobody has seen run proves nothing.
pub fn absent(what: &str, script: &str) {
    let is_required = std::env::var("SVC_REAL_CLIS").is_ok_and(|word| word == "require");
    assert!(!is_required, "{what} absent although SVC_REAL_CLIS=require: run tests/real/{script}");
    eprintln!("SKIPPED: {what} absent; tests/real/{script} installs it");
}

/// The folder of `tests/real/setup-doors`, for the sake of this; says so when it is not there, as [`absent`].
pub fn doors(what: &str) -> Option<PathBuf> {
    let default = || concat!(env!("CARGO_MANIFEST_DIR"), "/target/real-doors").into();
    let folder = PathBuf::from(std::env::var_os("SVC_REAL_DOORS_DIR").unwrap_or_else(default));
    if folder.join("installed").is_file() {
        return Some(folder);
    }
    absent(what, "setup-doors");
    None
}
