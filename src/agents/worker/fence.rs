//! Where a fenced-in agent may write: below its scope, in temporary folders, and where agent programs keep
//! their own state.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Below the home folder: settings, sessions and caches of the agent programs and their tools.
const STATE_PLACES: &[&str] = &[
    ".aider",
    ".cache",
    ".claude",
    ".claude.json",
    ".cline",
    ".codex",
    ".config",
    ".copilot",
    ".gemini",
    ".local",
    ".npm",
    ".qwen",
];
/// Devices and the process's own settings.
const SYSTEM_PLACES: &[&str] = &["/dev", "/proc", "/tmp", "/var/tmp"];

/// The folders of a fence. A glob fences in its folder: the part before its first wildcard. A folder that
/// does not exist yet is made, because nobody could name it to the kernel otherwise.
pub fn places(base: &Path, working_dir: &Path, scope: &[String]) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = if scope.is_empty() {
        vec![working_dir.to_path_buf()]
    } else {
        scope.iter().map(|glob| scope_place(base, glob)).collect()
    };
    // The built-in agents keep their sessions there.
    places.push(base.join(".svc/sessions"));
    for place in &places {
        if !place.exists()
            && let Err(error) = fs::create_dir_all(place)
        {
            log::warn!("{} cannot be made: {error}", place.display());
        }
    }
    places.extend(SYSTEM_PLACES.iter().map(PathBuf::from));
    places.extend(std::env::var_os("TMPDIR").map(PathBuf::from));
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    places.extend(STATE_PLACES.iter().map(|place| home.join(place)));
    places
}

/// The deepest folder (or the file) that a glob names without wildcards.
fn scope_place(base: &Path, glob: &str) -> PathBuf {
    let glob = glob.trim_start_matches("./");
    let wild = glob.find(['*', '?', '[', '{']);
    match wild {
        None if base.join(glob).exists() || glob.ends_with('/') => base.join(glob),
        // A file that is yet to be written: its folder.
        None => base.join(Path::new(glob).parent().unwrap_or(Path::new(""))),
        Some(at) => base.join(glob[..at].rfind('/').map_or("", |slash| &glob[..slash])),
    }
}

/// The command line that starts `program` behind the fence.
pub fn command_line(places: &[PathBuf], program: OsString, args: Vec<OsString>) -> Vec<OsString> {
    let mut line = vec![OsString::from(crate::runtime::confine::SUB_COMMAND)];
    line.extend(places.iter().map(OsString::from));
    line.extend([OsString::from("--"), program]);
    line.extend(args);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_10_a_glob_is_fenced_in_by_its_folder() {
        let base = std::env::temp_dir().join(format!("svc-fence-{}", std::process::id()));
        fs::create_dir_all(base.join("src")).unwrap();
        fs::write(base.join("a.txt"), "").unwrap();
        for (glob, place) in [
            ("src/**", "src"),
            ("./src/api/*.rs", "src/api"),
            ("src", "src"),
            ("a.txt", "a.txt"),
            ("docs/new.md", "docs"),
            ("*.md", ""),
            ("web/{a,b}/x", "web"),
        ] {
            assert_eq!(scope_place(&base, glob), base.join(place), "{glob}");
        }
        fs::remove_dir_all(&base).unwrap();
    }
}
