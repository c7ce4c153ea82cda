//! What is real and must be installed first: the scripts `tests/real/setup*` do it.

/// Says that a test is skipped because of this, and which script installs it.
///
/// Panics where `SVC_REAL_CLIS=require`: what nobody has seen run proves nothing.
pub fn absent(what: &str, script: &str) {
    let is_required = std::env::var("SVC_REAL_CLIS").is_ok_and(|word| word == "require");
    assert!(!is_required, "{what} absent although SVC_REAL_CLIS=require: run tests/real/{script}");
    eprintln!("SKIPPED: {what} absent; tests/real/{script} installs it");
}
