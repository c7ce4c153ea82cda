//! The files of `.svc` as somebody else has left them, or half of them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use svc::assembly::documents::encode;
use svc::assembly::folder::load_with;
use svc::core::time::Time;
use svc::core::{Document, State};

const NOW: Time = Time(1_790_000_000_000);
const LOG: &str = "state/ahead.jsonl";
/// What lasts, but for prompts, whose names are chosen by the agents' file. Which file a seed is, its first
/// byte says.
const DOCUMENTS: [Document; 20] = [
    Document::Usage,
    Document::Adaptive,
    Document::Agents,
    Document::Credentials,
    Document::Locks,
    Document::Approvals,
    Document::Gateways,
    Document::Cleanup,
    Document::Teams,
    Document::Schedules,
    Document::Integrations,
    Document::Federation,
    Document::Journalist,
    Document::PmReviews,
    Document::Constraints,
    Document::Discoveries,
    Document::HandoffChains,
    Document::Specializations,
    Document::Skills,
    Document::Timeline,
];

/// A folder of this process, in memory where the machine has such a place.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        place.join(format!("svc-fuzz-{}", std::process::id()))
    })
}

/// Removes what a target has written; called when a program that runs targets ends.
pub fn clean() {
    let _ = fs::remove_dir_all(folder());
}

fn fresh() -> &'static Path {
    clean();
    for name in ["state/prompts", "memory"] {
        fs::create_dir_all(folder().join(name)).expect("a folder");
    }
    folder()
}

fn load(folder: &Path) -> Result<State, String> {
    load_with(folder, serde_json::Map::new(), |_| HashSet::new(), NOW)
}

/// One file with any content: the daemon starts or says why not, and what it writes then it can read.
pub fn files(data: &[u8]) {
    let Some((which, content)) = data.split_first() else { return };
    let document = DOCUMENTS[usize::from(*which) % DOCUMENTS.len()];
    let folder = fresh();
    fs::write(folder.join(document.path()), content).expect("a file");
    let Ok(state) = load(folder) else { return };
    let encoded = |state: &State| {
        DOCUMENTS
            .map(|document| encode(document, state).map(|text| text.expect("what is there can be written")))
    };
    let written = encoded(&state);
    let folder = fresh();
    for (document, text) in DOCUMENTS.iter().zip(&written) {
        if let Some(text) = text {
            fs::write(folder.join(document.path()), text).expect("a file");
        }
    }
    let again = load(folder).unwrap_or_else(|error| panic!("what was written is refused: {error}"));
    assert!(again.health.set_aside.is_empty(), "set aside: {:?}", again.health.set_aside);
    // An agent whose prompt is in a file of its own reads otherwise without that file.
    for ((document, one), other) in DOCUMENTS.iter().zip(&written).zip(&encoded(&again)) {
        let text = |bytes: &Option<Vec<u8>>| {
            bytes.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        assert_eq!(text(one), text(other), "{} is not the same when it is read again", document.path());
    }
}

/// What was written ahead of the locks, cut anywhere, and the file itself behind a zero byte.
pub fn ahead(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let folder = fresh();
    fs::write(folder.join(LOG), parts.next().unwrap_or_default()).expect("a file");
    if let Some(locks) = parts.next() {
        fs::write(folder.join(Document::Locks.path()), locks).expect("a file");
    }
    if load(folder).is_ok() {
        assert_eq!(fs::read(folder.join(LOG)).unwrap_or_default().len(), left(data), "lines are left");
    }
}

/// A log without one whole line is left as it is: nothing in it was promised.
fn left(data: &[u8]) -> usize {
    let log = data.split(|byte| *byte == 0).next().unwrap_or_default();
    let first = log.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_whole = first.ends_with(b"\n")
        && serde_json::from_slice::<serde_json::Value>(first).is_ok_and(|entry| {
            let is_text = |value: &serde_json::Value| value.is_string();
            is_text(&entry["base"])
                && entry.get("content").is_some()
                && entry["audit"].as_array().is_some_and(|lines| lines.iter().all(is_text))
        });
    if is_whole { 0 } else { log.len() }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let kept: serde_json::Value = serde_json::from_str(include_str!("seeds/state.json")).expect("JSON");
    let empty = State::default();
    let mut seeds = Vec::new();
    for (number, document) in (0..).zip(DOCUMENTS) {
        if let Some(content) = kept.get(document.path()) {
            seeds.push([vec![number], content.to_string().into_bytes()].concat());
        }
        if let Some(Ok(content)) = encode(document, &empty) {
            seeds.push([vec![number], content].concat());
        }
    }
    seeds
}

pub fn ahead_seeds() -> Vec<Vec<u8>> {
    let none = "e3b0c44298fc1c149afbf4c8996fb924";
    let line =
        |content: &str| format!("{{\"base\":\"{none}\",\"content\":{content},\"audit\":[\"{{}}\"]}}\n");
    let locks = "{\"version\":1,\"locks\":[]}";
    vec![
        line(locks).into_bytes(),
        [line(locks), line(locks)].concat().as_bytes()[..150].to_vec(),
        [line(locks).as_bytes(), &[0], locks.as_bytes()].concat(),
    ]
}
