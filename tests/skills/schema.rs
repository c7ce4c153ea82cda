//! Schemathesis, the public property tester from `PyPI`, on the service's own `OpenAPI` document.

use crate::support::market::{KEY, Market};
use crate::support::tools::tool;
use std::process::Command;

/// Requests per operation and phase; in a run by hand ten times as many found nothing more.
const EXAMPLES: &str = "20";

#[test]
fn must_show_schemathesis_finds_nothing_with_all_checks() {
    let Some(program) = tool("schemathesis", "bin/schemathesis") else { return };
    // One key for both kinds, for the tester sends one.
    let market = Market::start(&[("SKILLS_ADMIN_KEY", KEY)]);
    let settings = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/schemathesis/schemathesis.toml");
    let output = Command::new(program)
        .current_dir(market.folder().path())
        .args(["--no-color", "--config-file", settings, "run"])
        .arg(format!("http://{}/api/v1/openapi.json", market.address))
        .args([
            "--header",
            &format!("Authorization: Bearer {KEY}"),
            "--max-examples",
            EXAMPLES,
            "--seed",
            "1",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{wrong}\n{}", market.log());
    let operations = said.lines().find(|line| line.contains("Tested:")).unwrap_or_default();
    assert!(operations.ends_with("29"), "every operation was tested: {operations:?}\n{said}");
    assert!(!market.log().contains("ERROR"), "{}", market.log());
}
