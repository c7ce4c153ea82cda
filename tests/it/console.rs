//! The web console in a real browser: what a person clicks, every page through axe-core, and what it costs.
//!
//! `tests/real/setup-console` and `setup-firefox` install the browsers and what drives them. Without them
//! these tests say that they were skipped, and fail where `SVC_REAL_CLIS=require`. Each runs one file of
//! `tests/console/` with Node.js, which starts daemon and marketplace by itself and prints one line for each
//! scenario.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The oldest Node.js that can run the scripts.
const NODE_MAJOR: u32 = 20;

/// What drives a browser: a folder of packages, the browser, and the script that installs both.
struct Tools {
    folder: (&'static str, &'static str),
    packages: [&'static str; 2],
    browser: (&'static str, &'static str),
    setup: &'static str,
}

const CHROMIUM: Tools = Tools {
    folder: ("SVC_CONSOLE_TOOLS_DIR", "target/console-tools"),
    packages: ["playwright-core", "axe-core"],
    browser: ("SVC_CHROMIUM", "/usr/bin/chromium"),
    setup: "setup-console",
};
const FIREFOX: Tools = Tools {
    folder: ("SVC_FIREFOX_TOOLS_DIR", "target/firefox-tools"),
    packages: ["puppeteer-core", "ws"],
    browser: ("SVC_FIREFOX", "/usr/bin/firefox-esr"),
    setup: "setup-firefox",
};

impl Tools {
    fn folder(&self) -> PathBuf {
        let (variable, usual) = self.folder;
        let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join(usual);
        std::env::var_os(variable).map_or_else(usual, PathBuf::from)
    }

    /// Why the tests with this browser cannot run here.
    fn absent(&self) -> Option<String> {
        let node = Command::new("node").arg("--version").stdin(Stdio::null()).output();
        let version =
            node.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let major =
            version.trim_start_matches('v').split('.').next().and_then(|word| word.parse::<u32>().ok());
        if major.is_none_or(|major| major < NODE_MAJOR) {
            return Some(format!("Node.js {NODE_MAJOR} or later"));
        }
        let (variable, usual) = self.browser;
        let browser = PathBuf::from(std::env::var_os(variable).unwrap_or(usual.into()));
        let packages = self.packages.map(|name| self.folder().join("node_modules").join(name));
        packages
            .into_iter()
            .chain([browser])
            .find(|path| !path.exists())
            .map(|path| path.display().to_string())
    }
}

/// Runs one script, of it the scenarios whose names have one of these words (all, when there is none), or
/// says why not.
fn browse(script: &str, scenarios: &[&str]) {
    browse_with(&CHROMIUM, script, scenarios);
}

fn browse_with(tools: &Tools, script: &str, scenarios: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if let Some(what) = tools.absent() {
        return crate::support::real::absent(&what, tools.setup);
    }
    let output = Command::new("node")
        .arg(root.join("tests/console").join(script))
        .args(scenarios)
        .env("SVC_CONSOLE_TOOLS_DIR", tools.folder())
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
fn a_phone_is_told_while_its_page_is_closed_and_a_notice_opens_the_card() {
    browse("push.mjs", &[]);
}

/// Firefox subscribes itself, and decrypts by itself.
#[test]
fn firefox_is_pushed_what_waits_from_end_to_end() {
    browse_with(&FIREFOX, "firefox.mjs", &[]);
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
