//! Schemathesis, the public property tester from `PyPI`, on the daemon's own `OpenAPI` document: what it
//! answers to whatever comes to a tester's mind is what is described, by a validator that is not ours.

use crate::support::daemon::Daemon;
use crate::support::folder::Folder;
use crate::support::tools::tool;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;

/// Requests per operation in the phase of dice; the phase of edge cases makes its own.
const EXAMPLES: &str = "8";

/// What is looked at: statuses, media types, bodies and headers as told, methods that are not, and no 5xx.
/// Not looked at is what is taken: `null` counts as absent everywhere, which the schemas do not repeat at
/// every field; nor `Allow`, which has DELETE for `/api/skills/installed`, as a skill may have that id.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,unsupported_method";

#[test]
fn must_show_schemathesis_finds_every_answer_as_described() {
    let Some(program) = tool("schemathesis", "bin/schemathesis") else { return };
    let folder = Arc::new(Folder::new("schemas"));
    folder.write("src/main.rs", "fn main() {}\n");
    // No program of a provider but the built-in ones, so that no dice start one.
    let daemon = Daemon::start_in(folder, &[("PATH", "/usr/bin:/bin")]);
    let body =
        json!({"role": "tester", "name": "kept", "provider": "script", "model": "quick", "prompt": "x"});
    let kept = daemon.post("/api/agents", &body);
    daemon.wait_state(kept["id"].as_str().unwrap(), &["completed"]);
    let described = daemon.get("/api/openapi.json");
    let required = described["components"]["schemas"]["Agent"]["required"].as_array().unwrap();
    let fields: Vec<&str> = required.iter().map(|field| field.as_str().unwrap()).collect();
    let settings = include_str!("../data/schemathesis/daemon.toml").replace("EVERY_FIELD", &fields.join(","));
    daemon.folder().write("schemathesis.toml", &settings);
    let output = Command::new(program)
        .current_dir(&daemon.project)
        .args(["--no-color", "--config-file", "schemathesis.toml", "run"])
        .arg(format!("{}/api/openapi.json", daemon.url))
        .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES])
        .args(["--seed", "1", "--request-timeout", "60", "--warnings", "off"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{wrong}\n{}", daemon.log());
    let health = daemon.get("/api/health");
    assert_eq!((&health["panics"], &health["status"]), (&Value::from(0), &Value::from("ok")), "{health}");
}
