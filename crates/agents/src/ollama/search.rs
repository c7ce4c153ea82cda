//! Finding a text in the files below a folder.

use std::fs;
use std::path::{Path, PathBuf};

const MATCHES_LIMIT: usize = 200;
const FILES_LIMIT: usize = 20_000;
const FILE_LIMIT_BYTES: u64 = 1024 * 1024;
const LINE_LIMIT_CHARS: usize = 200;

/// Folders that hold what others have made.
const SKIPPED: &[&str] = &[".git", ".svc", "node_modules", "target", "__pycache__", ".venv"];

/// The lines below `place` that contain `wanted`, as `path:line: text` with paths relative to `root`.
/// Symbolic links are not followed; large and binary files are left out.
pub fn search(root: &Path, place: &Path, wanted: &str) -> Result<String, String> {
    if wanted.is_empty() {
        return Err("`text` is empty".to_owned());
    }
    let mut found = Vec::new();
    let mut files = 0;
    let mut open = vec![place.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            open.extend(children(&path));
        } else if metadata.is_file() && metadata.len() <= FILE_LIMIT_BYTES {
            files += 1;
            let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            matches_in(&path, &shown, wanted, &mut found);
        }
        if found.len() >= MATCHES_LIMIT || files >= FILES_LIMIT {
            found.truncate(MATCHES_LIMIT);
            found.push(format!("[stopped after {} lines in {files} files]", found.len()));
            break;
        }
    }
    if found.is_empty() { Ok(format!("nothing found in {files} files")) } else { Ok(found.join("\n")) }
}

/// In reverse order of their names, since the last one is taken first.
fn children(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| !SKIPPED.iter().any(|name| entry.file_name() == *name))
        .map(|entry| entry.path())
        .collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    paths
}

fn matches_in(path: &Path, shown: &str, wanted: &str, found: &mut Vec<String>) {
    let Ok(bytes) = fs::read(path) else { return };
    if bytes.contains(&0) {
        return;
    }
    for (index, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
        if line.contains(wanted) {
            let text: String = line.trim().chars().take(LINE_LIMIT_CHARS).collect();
            found.push(format!("{shown}:{}: {text}", index + 1));
        }
    }
}
