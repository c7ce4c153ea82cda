//! `docs/guide.md` is true: each `svc` command in its examples is run, in order, in a fresh project.

use crate::support::document::{Stage, pieces};
use std::path::Path;

#[test]
fn issue_7_every_command_of_the_guide_works_as_written() {
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide.md")).unwrap();
    let stage = Stage::new("guide");
    let is_ours = |line: &str| line.starts_with("svc ") || line.contains("$(svc ");
    let tried = stage.play(&pieces(&guide), is_ours);
    assert!(tried > 40, "only {tried} commands were tried");
    assert!(!stage.project().path().join(".svc/daemon.port").exists(), "the guide ends with svc stop");
}
