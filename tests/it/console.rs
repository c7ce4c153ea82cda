//! The web console in a real browser: what a person clicks, every page through axe-core, and what it costs.
//!
//! `tests/real/setup-console` installs the browser and what drives it. Without them these tests say that
//! they were skipped, and fail where `SVC_REAL_CLIS=require`. Each runs one file of `tests/console/` with
//! Node.js, which starts daemon and marketplace by itself and prints one line for each scenario.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest Node.js that can run the scripts.
const NODE_MAJOR: u32 = 20;

/// Why the browser tests cannot run here.
fn absent(tools: &Path) -> Option<String> {
    let node = Command::new("node").arg("--version").stdin(Stdio::null()).output();
    let version = node.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().and_then(|word| word.parse::<u32>().ok());
    if major.is_none_or(|major| major < NODE_MAJOR) {
        return Some(format!("Node.js {NODE_MAJOR} or later"));
    }
    let browser = PathBuf::from(std::env::var_os("SVC_CHROMIUM").unwrap_or("/usr/bin/chromium".into()));
    let packages = ["playwright-core", "axe-core"].map(|name| tools.join("node_modules").join(name));
    packages.into_iter().chain([browser]).find(|path| !path.exists()).map(|path| path.display().to_string())
}

/// Runs one script, of it the scenarios whose names have one of these words (all, when there is none), or
/// says why not.
fn browse(script: &str, scenarios: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = std::env::var_os("SVC_CONSOLE_TOOLS_DIR")
        .map_or_else(|| root.join("target/console-tools"), PathBuf::from);
    if let Some(what) = absent(&tools) {
        return crate::support::real::absent(&what, "setup-console");
    }
    let output = Command::new("node")
        .arg(root.join("tests/console").join(script))
        .args(scenarios)
        .env("SVC_CONSOLE_TOOLS_DIR", tools)
        .env("SVC_BIN", env!("CARGO_BIN_EXE_svc"))
        .env("SVC_SKILLS_BIN", crate::support::market::program())
        .env_remove("SVC_CONSOLE_FROM_DISK")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}:\n{said}\n{trouble}");
    assert!(said.lines().any(|line| line.starts_with("ok")), "{script} checked nothing:\n{said}\n{trouble}");
}

#[test]
fn issue_7_spawn_watch_approve_rotate_kill_install_edit_and_reconnect() {
    browse("clicks.mjs", &[]);
}

#[test]
fn all_projects_stand_at_one_door() {
    browse("door.mjs", &[]);
}

#[test]
fn a_phone_is_paired_decides_keeps_its_page_and_is_revoked() {
    browse("phone.mjs", &[]);
}

#[test]
fn issue_7_axe_finds_nothing_on_any_page() {
    browse("pages.mjs", &[]);
}

/// Alone, for what it measures others would disturb.
#[test]
fn issue_7_weight_paint_and_frames() {
    browse("figures.mjs", &["weight", "scroll"]);
}

/// Live objects are counted after a collection, whatever else runs.
#[test]
fn issue_7_memory_under_a_stream_of_events() {
    browse("figures.mjs", &["memory"]);
}
