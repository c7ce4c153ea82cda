//! The walls of the house, held by reading the source: who may touch the outside world, who may know whom,
//! how long a file may grow, and that the README lists the endpoints there are.
//!
//! `UPDATE_EXPECT=1` rewrites the README's endpoint table and the reference of the configuration.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_FILE_LINES: usize = 600;
const MAX_LINE_CHARS: usize = 110;
const MAX_STRING_LINE_CHARS: usize = 140;

/// Every text file below `folders` with one of these endings: its path from the package's root, and its text.
pub fn files(folders: &[&str], endings: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    assert!(found.len() > 5, "nothing found below {folders:?}");
    found
}

/// Places where a pattern stands, comments apart, in the files that `allowed` does not let have it.
fn trespassers(files: &[(String, String)], patterns: &[&str], allowed: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| !allowed(name)) {
        for (at, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for pattern in patterns.iter().filter(|pattern| code.contains(*pattern)) {
                found.push(format!("{name}:{}: {pattern}", at + 1));
            }
        }
    }
    found
}

/// Whether a file is one of the places with threads: the system's crate, `assembly/`, a feature's `worker*`,
/// or a process side.
fn does_io(name: &str) -> bool {
    let folders =
        ["crates/sys/", "crates/keeper/", "crates/room/", "crates/agents/", "crates/cli/", "src/assembly/"];
    name == "src/main.rs"
        || name.starts_with("crates/") && (name.contains("/tests/") || name.contains("/examples/"))
        || folders.iter().any(|folder| name.starts_with(folder))
        || name.split('/').any(|part| part.starts_with("worker"))
}

fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn design_3_only_workers_and_the_assembly_touch_the_outside_world() {
    let patterns = [
        "std::fs",
        "std::process",
        "std::thread",
        "std::env",
        "TcpStream",
        "TcpListener",
        "UnixStream",
        "Instant::now",
        "SystemTime",
        "crossbeam_channel",
        "jiff::Timestamp::now",
        "ureq::",
        "Mutex<",
    ];
    let is_test = |name: &str| name.ends_with("/tests.rs");
    let found =
        trespassers(&files(&["src", "crates"], &[".rs"]), &patterns, |name| does_io(name) || is_test(name));
    assert_none(&found, "features are pure; I/O, clocks and channels belong in worker*.rs or assembly/");
}

#[test]
fn design_3_features_never_import_the_assembly() {
    let found = trespassers(&files(&["src"], &[".rs"]), &["crate::assembly", "svc_sys"], |name| {
        does_io(name) || name == "src/endpoint.rs" || name.contains("test")
    });
    assert_none(
        &found,
        "only worker*.rs, endpoint.rs and the process sides know the assembly and the system",
    );
}

#[test]
fn the_wall_test_can_fail() {
    let planted =
        [("src/agents/mod.rs".to_owned(), "use std::fs;\n// std::process in a comment\n".to_owned())];
    assert_eq!(
        trespassers(&planted, &["std::fs", "std::process"], does_io),
        ["src/agents/mod.rs:1: std::fs"]
    );
}

#[test]
fn unsafe_code_stands_only_in_the_system_and_the_assembly_and_says_why() {
    let sources = files(&["src", "skills", "crates", "tests", "benches"], &[".rs"]);
    let system = |name: &str| {
        ["src/assembly/", "crates/sys/", "crates/room/"].iter().any(|folder| name.starts_with(folder))
    };
    let marks = ["unsafe {", "unsafe fn", "unsafe impl"];
    let outside = trespassers(&sources, &marks, |name| {
        system(name) || name.starts_with("tests/") || name.starts_with("benches/")
    });
    assert_none(&outside, "unsafe code belongs in crates/sys/, crates/room/ and src/assembly/");
    let mut silent = Vec::new();
    for (name, text) in sources.iter().filter(|(name, _)| system(name)) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let before = &lines[at.saturating_sub(8)..at];
            if marks.iter().any(|mark| code.contains(mark)) && !before.iter().any(|l| l.contains("SAFETY:")) {
                silent.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert_none(&silent, "unsafe code has a SAFETY comment above it");
}

/// `sorted.rs` of `crates/base` says why. Plain numbers are few kinds, and some are sorted often.
#[test]
fn lists_are_sorted_by_places_and_not_by_one_more_copy_of_the_sort() {
    let patterns = [".sort()", ".sort_by(", ".sort_by_key(", ".sort_unstable_by(", ".sort_unstable_by_key("];
    let code = |(name, text): (String, String)| {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (name, code)
    };
    let sources = files(&["src", "crates"], &[".rs"]).into_iter().map(code).collect::<Vec<_>>();
    let found = trespassers(&sources, &patterns, |name| {
        // The map ranks all files of a project, and the built-in agents know none of our crates.
        let own = ["crates/base/src/sorted.rs", "crates/map/src/rank.rs", "crates/map/src/digest.rs"];
        own.contains(&name) || name.starts_with("crates/agents/") || name.contains("test")
    });
    assert_none(&found, "use svc_base::sorted");
}

#[test]
fn files_and_lines_keep_to_their_room() {
    let mut found = Vec::new();
    for (name, text) in files(&["src", "skills", "crates", "tests", "benches"], &[".rs"]) {
        if text.lines().count() > MAX_FILE_LINES {
            found.push(format!("{name} has {} lines, {MAX_FILE_LINES} are allowed", text.lines().count()));
        }
        let mut in_string = false;
        for (at, line) in text.lines().enumerate() {
            // The formatter does not break a string, and a broken one reads worse. One may go on for lines.
            let limit = if in_string || line.contains('"') { MAX_STRING_LINE_CHARS } else { MAX_LINE_CHARS };
            in_string = line.ends_with('\\');
            if line.chars().count() > limit {
                found.push(format!("{name}:{} is longer than {limit} characters", at + 1));
            }
        }
    }
    assert_none(&found, "split along the meaning");
}

/// Public types, constants and functions without a docstring. Constructors called `new`, test helpers and
/// what a macro writes are free, and so are fields and variants: a name that says it needs no second telling.
fn untold(files: &[(String, String)]) -> Vec<String> {
    let kinds = ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "unsafe fn "];
    let mut found = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| !name.contains("test")) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let item = line.trim_start().strip_prefix("pub ").unwrap_or_default();
            let is_free = item.starts_with("fn new(") || item.contains('$');
            // Up to the end of the item before, there may be attributes of several lines.
            let above = lines[..at].iter().rev();
            let mut above =
                above.take_while(|l| !l.trim().is_empty() && !l.trim_end().ends_with([';', '{', '}']));
            if kinds.iter().any(|kind| item.starts_with(kind))
                && !is_free
                && !above.any(|l| l.trim_start().starts_with("///"))
            {
                found.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn public_items_say_what_their_names_do_not() {
    assert_none(&untold(&files(&["src", "skills", "crates"], &[".rs"])), "tell shape, unit, error or source");
    let planted =
        "/// Told.\n#[derive(\n    Clone,\n)]\npub struct A {\n    pub b: u8,\n}\npub const C: u8 = 1;\n";
    let found = untold(&[("src/a.rs".into(), planted.into())]);
    assert_eq!(found, ["src/a.rs:8: pub const C: u8 = 1;"]);
}

#[test]
fn nothing_is_left_undone_or_switched_off() {
    let marks = ["todo!", "unimplemented!", "#[ignore", "dbg!"];
    let sources = files(&["src", "skills", "crates", "tests", "benches"], &[".rs"]);
    assert_none(&trespassers(&sources, &marks, |name| name == "tests/it/tidy.rs"), "finish it or say so");
    let waits = trespassers(&files(&["tests"], &[".rs"]), &["thread::sleep"], |name| {
        // The one place that polls conditions under a deadline.
        name == "tests/support/wait.rs" || name == "tests/it/tidy.rs"
    });
    assert_none(&waits, "tests wait on conditions with deadlines, never for a time");
}

/// Lines that compare or search the words of an agent's reason, tests apart.
fn decides_by_words(files: &[(String, String)]) -> Vec<String> {
    let words = ["status_reason", "statusReason"];
    // A field may be searched for another field's text; only words of the code's own are a decision.
    let marks =
        ["==", "!=", ".test(", "starts_with(", "startsWith(", "ends_with(", "endsWith(", ".contains("];
    let more = [".includes(\"", ".match(", "matches!(", ".search(", ".find(\""];
    let mut found = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| !name.contains("tests")) {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate().filter(|(_, line)| words.iter().any(|w| line.contains(w)))
        {
            let by_code = line.contains(".why()") || line.contains(".code()");
            if !by_code && marks.iter().chain(&more).any(|mark| line.contains(mark)) {
                found.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn nothing_decides_by_the_words_of_a_reason() {
    let found = decides_by_words(&files(&["src"], &[".rs", ".js"]));
    assert_none(&found, "reasons are sentences for people; decide by StatusReason::why() or statusCode");
    let planted = [
        "export const isStalled = (agent) => /^no output for/.test(agent.statusReason ?? \"\");",
        "if word(body, \"statusReason\") == \"replaced by its successor\" {",
        "matches!(&*agent.status_reason.to_string(), \"working\")",
    ];
    for line in planted {
        assert_eq!(decides_by_words(&[("src/a.rs".into(), line.into())]).len(), 1, "{line}");
    }
}

#[test]
fn the_guide_names_every_code_of_a_reason() {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide.md")).unwrap();
    let missing: Vec<&str> = svc::agents::Reason::CODES
        .iter()
        .copied()
        .filter(|code| !guide.contains(&format!("`{code}`")))
        .collect();
    assert!(missing.is_empty(), "docs/guide.md, \"Scripts\", does not name {missing:?}");
}

#[test]
fn nothing_names_a_machine_or_a_registry() {
    let folders = [
        "src",
        "skills",
        "crates",
        "tests",
        "data",
        "docs",
        "benches",
        "clients",
        "README.md",
        "Makefile",
        ".ci",
    ];
    let hosts = ["crates.", "registry.npmjs", "pypi.", "deb.debian"];
    let patterns: Vec<String> = hosts.iter().map(|host| format!("{host}org")).collect();
    let mut patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let homes = ["/home/", "/work/", "/root/"].map(|home| format!("\"{home}"));
    patterns.extend(homes.iter().map(String::as_str));
    let endings = [".rs", ".md", ".json", ".txt", ".sh", ".mjs", ".js", ".py", "run", "setup", "Makefile"];
    let own = |name: &str| name == "tests/it/tidy.rs" || name.starts_with("tests/data/recordings/");
    assert_none(&trespassers(&files(&folders, &endings), &patterns, own), "the project runs anywhere");
}

#[test]
fn the_endpoint_table_of_the_readme_is_the_route_table() {
    let table = svc::assembly::routes::table();
    let rows: BTreeSet<(&str, String, &str)> =
        table.routes().iter().map(|r| (r.path, r.method.to_string(), r.summary)).collect();
    let mut wanted = String::from("| | Path | What it does |\n|---|---|---|\n");
    for (path, method, summary) in rows {
        let _ = writeln!(wanted, "| {method} | `{path}` | {summary} |");
    }
    assert_shown("README.md", "endpoints", &wanted);
}

/// A file that the tests write is `wanted`.
pub fn expect_file(page: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(&path).unwrap_or_default();
    if text != wanted && std::env::var_os("UPDATE_EXPECT").is_some() {
        return fs::write(&path, wanted).unwrap();
    }
    assert!(text == wanted, "{page} is behind the code; UPDATE_EXPECT=1 rewrites it to\n{wanted}");
}

/// The part of a page between the marks of this name is `wanted`.
fn assert_shown(page: &str, mark: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let (before, rest) = text.split_once(&begin).expect("the page has the mark of the table's begin");
    let (shown, after) = rest.split_once(&end).expect("the page has the mark of the table's end");
    if shown != wanted && std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
        return;
    }
    assert!(shown == wanted, "{page} is behind the code; UPDATE_EXPECT=1 rewrites its table to\n{wanted}");
}

#[test]
fn the_configuration_reference_is_the_table_of_settings() {
    let defaults = serde_json::Value::Object(svc::settings::defaults());
    let mut wanted = String::from("| Key | Default | Takes | What it does |\n|---|---|---|---|\n");
    for key in svc::settings::keys::KEYS {
        let default = &defaults[key.key.split('.').next().unwrap()];
        let default = key.key.split('.').skip(1).fold(default, |value, part| &value[part]);
        let _ = writeln!(wanted, "| `{}` | `{default}` | {} | {} |", key.key, key.takes, key.what);
    }
    assert_shown("docs/configuration.md", "settings", &wanted);
}
