//! `svc acp` behind the Agent Client Protocol's own public library, every message held against its schema.
//!
//! `tests/real/setup-acp` installs the library, pinned; without it this test says that it was skipped, and
//! fails where `SVC_REAL_CLIS=require`.

use crate::acp_door::project;
use crate::support::daemon::Daemon;
use crate::support::mcp::add;
use crate::support::real::absent;
use crate::support::wait::wait_for;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

#[test]
fn the_protocols_own_library_takes_svc_for_an_agent() {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real-acp");
    let libraries = std::env::var_os("SVC_REAL_ACP_DIR").map_or_else(default, PathBuf::from);
    if !libraries.join("installed").is_file() {
        return absent("the library of the protocol", "setup-acp");
    }
    let folder = project("acp-library");
    let daemon = Daemon::start_in(Arc::clone(&folder), &[]);
    add(&daemon, "hub", &[]);
    let mut editor = Command::new("node")
        .arg("tests/oracles/acp_client.mjs")
        .arg(&libraries)
        .arg(folder.path())
        .arg(env!("CARGO_BIN_EXE_svc"))
        .args(["acp", "--provider", "script", "--model", "waits"])
        .env_remove("SVC_AGENT_ID")
        .env_remove("SVC_DAEMON_URL")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(editor.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut says = || said.next().unwrap_or_else(|| panic!("the library ended early"));
    assert_eq!(says(), "hello svc 1");
    let session = says().strip_prefix("session ").unwrap().to_owned();
    wait_for("the agent", || {
        (daemon.send("GET", &format!("/api/agents/{session}"), &json!({})).0 == 200).then_some(())
    });
    let body = json!({"tool": "send", "params": {"file": "x"}, "agent": session});
    let (code, gated) = daemon.send("POST", "/api/integrations/hub/exec", &body);
    assert_eq!(code, 202, "{gated}");
    assert_eq!(says(), "asked allow_once reject_once");
    let first = says();
    assert!(
        first.starts_with("first end_turn [agent_message_chunk tool_call tool_call_update] waiting"),
        "{first}"
    );
    assert_eq!(says(), "second cancelled");
    let loaded = says();
    assert!(loaded.starts_with("loaded [agent_message_chunk user_message_chunk] waiting"), "{loaded}");
    assert!(says().starts_with("refused -32602 cwd: must be the project"));
    let checked: u64 = says().strip_prefix("over ").unwrap().parse().unwrap();
    assert!(checked >= 12, "{checked} messages were held against the schema");
    assert!(editor.wait().unwrap().success());
    drop(daemon);
}
