//! Where a fenced-in agent may write: below its scope, in a temporary folder of its own, and where its
//! program keeps its own state. Reading stays free.

use crate::providers::{self, Info, LaunchRequest};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use svc_sys::beneath::Root;
use svc_sys::{clock, confine};

/// Below the home folder: what tools of every language fetch and make again.
const CACHES: &[&str] = &[".cache", ".npm"];
/// What programs expect of a system: devices without content, terminals, memory that is shared.
const SYSTEM_PLACES: &[&str] = &[
    "/dev/full",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/random",
    "/dev/shm",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];
/// A variable that says where one of the places of a program is instead, the place, and its name there.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("CLAUDE_CONFIG_DIR", ".claude/", ""),
    ("CLAUDE_CONFIG_DIR", ".claude.json", ".claude.json"),
    ("CODEX_HOME", ".codex/", ""),
    ("COPILOT_HOME", ".copilot/", ""),
    ("GEMINI_CLI_HOME", ".gemini/", ".gemini/"),
    ("XDG_CACHE_HOME", ".cache", ""),
    ("XDG_CONFIG_HOME", ".config/", ""),
    ("XDG_DATA_HOME", ".local/share/", ""),
    ("XDG_STATE_HOME", ".local/state/", ""),
];

/// How the names of temporary folders begin.
const NAME: &str = "svc-agent-";

/// A folder for temporary files of one process and what it starts; it is removed on drop, with its content.
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes it, for its owner alone.
    ///
    /// Errors: a sentence.
    pub fn make() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("{NAME}{:016x}", clock::random()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("no temporary folder {} can be made: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// One that an earlier daemon has made; `None` where none would have been.
    pub fn at(path: PathBuf) -> Option<Self> {
        let is_named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(NAME));
        (is_named && path.parent() == Some(&std::env::temp_dir())).then_some(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            log::warn!("{} cannot be removed: {error}", self.0.display());
        }
    }
}

/// The folders of a fence, without links. A glob fences in its folder: the part before its first wildcard. A
/// folder that does not exist yet is made, because nobody could name it to the kernel otherwise.
pub fn places(request: &LaunchRequest, scope: &[String], provider: &str) -> Vec<PathBuf> {
    let base = request.base_dir();
    let mut places = scope_places(request, scope);
    // The built-in agents keep their sessions there.
    places.extend(made_within(&base, &base.join(".svc/sessions")));
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let of_home = home.map(|home| state_places(&home, provider, |name| variable(request, name)));
    let (folders, files): (Vec<_>, Vec<_>) = of_home.into_iter().flatten().partition(|(_, made)| *made);
    for (folder, _) in &folders {
        if !folder.exists()
            && let Err(error) = fs::create_dir_all(folder)
        {
            log::warn!("{} cannot be made: {error}", folder.display());
        }
    }
    let usual = folders.into_iter().chain(files).map(|(place, _)| place);
    let usual = usual.chain(SYSTEM_PLACES.iter().map(PathBuf::from));
    places.extend(usual.filter_map(|place| place.canonicalize().ok()));
    // Sandboxes of the programs' own set up what they start there; for root it holds the system's settings.
    let is_root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    places.push(if is_root { confine::OWN_PROCESS } else { "/proc" }.into());
    places
}

/// A variable of the daemon's that says where something is, or what was set for this process in its place.
pub fn variable(request: &LaunchRequest, name: &str) -> Option<OsString> {
    match request.extra_env.set.get(name) {
        Some(set) => set.as_ref().map(OsString::from),
        None => std::env::var_os(name),
    }
}

/// The folders and files that a scope names; the working directory where there is none. Folders that do not
/// exist yet are made. What leads out is left out.
pub fn scope_places(request: &LaunchRequest, scope: &[String]) -> Vec<PathBuf> {
    let base = request.base_dir();
    if scope.is_empty() {
        return made_within(&base, &request.working_dir).into_iter().collect();
    }
    let place = |glob: &String| {
        // Only the daemon names an absolute one: where the commits of a worktree are kept.
        let root = if glob.starts_with('/') { &request.project_dir } else { &base };
        made_within(root, &scope_place(&base, glob))
    };
    scope.iter().filter_map(place).collect()
}

/// Where a place really is; `None` when it is not there or a link leads out of `root`: agents write there,
/// and could have put one in its place.
pub fn within(root: &Path, place: &Path) -> Option<PathBuf> {
    let (root, place) = (root.canonicalize().ok()?, place.canonicalize().ok()?);
    place.starts_with(root).then_some(place)
}

/// The same; a folder that is not there is made.
fn made_within(root: &Path, place: &Path) -> Option<PathBuf> {
    if !place.exists()
        && let Err(error) = make_within(root, place)
    {
        log::warn!("{} cannot be made: {error}", place.display());
    }
    within(root, place)
}

/// Makes the folders that are missing below `root`, and none behind a link that leads out.
fn make_within(root: &Path, place: &Path) -> io::Result<()> {
    let relative = place.strip_prefix(root).ok().and_then(Path::to_str).ok_or(ErrorKind::InvalidInput)?;
    let root = Root::open(root)?;
    let mut real = String::new();
    for name in relative.split('/').filter(|name| !name.is_empty()) {
        let next = if real.is_empty() { name.to_owned() } else { format!("{real}/{name}") };
        real = match root.locate(&next) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                root.dir(&real)?.make_dir(name)?;
                next
            }
            found => found?,
        };
    }
    Ok(())
}

/// Places of programs, and whether each is a folder.
type Places = Vec<(PathBuf, bool)>;

/// Where a program keeps its state, and whether it is a folder to be made.
pub fn program_places(home: &Path, provider: &str, variable: impl Fn(&str) -> Option<OsString>) -> Places {
    named_places(home, provider, variable, |info| info.state_places, &[])
}

/// What of a program's state makes it run programs, and whether it is a folder.
pub fn obeyed_places(home: &Path, provider: &str, variable: impl Fn(&str) -> Option<OsString>) -> Places {
    named_places(home, provider, variable, |info| info.obeyed_places, &[])
}

/// Makes a file or folder below `root` that says nothing to the program that reads it, where there is none:
/// what is not there could be made by an agent. None is made behind a link that leads out.
///
/// Errors: what the system says.
pub fn make_empty(root: &Path, place: &Path, is_folder: bool) -> io::Result<()> {
    if fs::symlink_metadata(place).is_ok() {
        return Ok(());
    }
    if is_folder {
        return make_within(root, place);
    }
    let (Some(folder), Some(name)) = (place.parent(), place.file_name().and_then(OsStr::to_str)) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    make_within(root, folder)?;
    let folder = folder.strip_prefix(root).ok().and_then(Path::to_str).ok_or(ErrorKind::InvalidInput)?;
    let root = Root::open(root)?;
    let mut file = root.dir(&root.locate(folder)?)?.create(name, 0o600)?;
    let is_json = [".json", ".jsonc"].iter().any(|ending| name.ends_with(ending));
    file.write_all(if is_json { b"{}\n" } else { b"" })
}

/// Where a program keeps its state and the caches of tools are, and whether it is a folder to be made.
pub fn state_places(home: &Path, provider: &str, variable: impl Fn(&str) -> Option<OsString>) -> Places {
    named_places(home, provider, variable, |info| info.state_places, CACHES)
}

fn named_places(
    home: &Path,
    provider: &str,
    variable: impl Fn(&str) -> Option<OsString>,
    of: impl Fn(&Info) -> &'static [&'static str],
    more: &'static [&'static str],
) -> Places {
    // Behind the protocol may stand the program of any of them.
    let is_any = providers::info_of(provider).takes_command;
    let infos = providers::all().iter().map(|provider| provider.info());
    let own = infos.filter(|info| is_any || provider == info.id).flat_map(of);
    let place = |name: &&str| Some((place_below(home, name, &variable)?, name.ends_with('/')));
    own.chain(more).filter_map(place).collect()
}

/// Where something that programs keep below the home folder is, by the variables that move it. `None` where
/// one names no place of its own: the home folder itself, what it is in, or a path that is not absolute.
pub fn place_below(home: &Path, name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let moved = ELSEWHERE.iter().find_map(|(word, usual, there)| {
        let rest = name.strip_prefix(usual)?;
        Some((
            PathBuf::from(variable(word).filter(|path| !path.is_empty())?),
            format!("{there}{}", rest.trim_start_matches('/')),
        ))
    });
    let Some((folder, rest)) = moved else { return Some(home.join(name)) };
    let place = folder.join(rest);
    let is_own = folder.is_absolute() && !home.starts_with(&place);
    is_own.then_some(place)
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
    let mut line = vec![OsString::from(confine::SUB_COMMAND)];
    line.extend(places.iter().map(OsString::from));
    line.extend([OsString::from("--"), program]);
    line.extend(args);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_its_own_state_and_nothing_else_of_the_home_folder() {
        let home = Path::new("/h/u");
        let names = |provider: &str, moved: &'static str| {
            let variable = move |name: &str| (name == moved).then(|| OsString::from("/elsewhere"));
            let places = state_places(home, provider, variable);
            places.into_iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("codex", ""), ["/h/u/.codex/", "/h/u/.cache", "/h/u/.npm"]);
        assert_eq!(names("codex", "CODEX_HOME")[0], "/elsewhere/");
        assert_eq!(names("opencode", "XDG_DATA_HOME")[1], "/elsewhere/opencode/");
        assert_eq!(names("copilot", "XDG_CACHE_HOME")[1..3], ["/elsewhere/copilot/", "/elsewhere/"]);
        assert_eq!(names("gemini", "GEMINI_CLI_HOME")[0], "/elsewhere/.gemini/");
        assert_eq!(
            names("claude-code", "CLAUDE_CONFIG_DIR")[..2],
            ["/elsewhere/", "/elsewhere/.claude.json"]
        );
        // A variable that names no place of its own opens nothing.
        for (value, is_shown) in
            [("/h/u", false), ("/h", false), ("/", false), ("u/x", false), ("/h/u/x", true)]
        {
            let variable = |name: &str| (name == "CODEX_HOME").then(|| OsString::from(value));
            assert_eq!(!program_places(home, "codex", variable).is_empty(), is_shown, "{value}");
        }
        assert_eq!(names("script", ""), ["/h/u/.cache", "/h/u/.npm"]);
        for provider in crate::providers::all().iter().map(|provider| provider.info().id) {
            for place in names(provider, "") {
                let place = place.trim_end_matches('/');
                assert!(!["/h/u", "/h/u/.config", "/h/u/.local", "/h/u/.local/share"].contains(&place));
            }
        }
    }

    #[test]
    fn a_link_that_leads_out_is_neither_followed_nor_made_behind() {
        let top = std::env::temp_dir().join(format!("svc-fence-links-{}", std::process::id()));
        let (project, outside) = (top.join("project"), top.join("outside"));
        for folder in [project.join("src"), outside.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        for (target, name) in
            [(&outside, "out"), (&PathBuf::from("src"), "in"), (&outside.join("no"), "gone")]
        {
            std::os::unix::fs::symlink(target, project.join(name)).unwrap();
        }
        let real = project.canonicalize().unwrap();
        for (name, place) in [
            ("src", Some("src")),
            ("in", Some("src")),
            ("in/deep/er", Some("src/deep/er")),
            ("new/deep", Some("new/deep")),
            ("", Some("")),
            ("out", None),
            ("out/deep", None),
            ("gone", None),
            ("gone/deep", None),
            ("../outside", None),
        ] {
            let expected = place.map(|place| if place.is_empty() { real.clone() } else { real.join(place) });
            assert_eq!(made_within(&project, &project.join(name)), expected, "{name}");
        }
        for (name, is_folder, content) in
            [("s/a.json", false, "{}\n"), ("s/a.toml", false, ""), ("s/hooks/", true, "")]
        {
            let place = project.join(name);
            make_empty(&project, &place, is_folder).unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap_or_default(), content, "{name}");
            assert_eq!(place.is_dir(), is_folder);
            make_empty(&project, &place, is_folder).unwrap();
        }
        fs::write(project.join("s/own.json"), "its own").unwrap();
        make_empty(&project, &project.join("s/own.json"), false).unwrap();
        assert_eq!(fs::read_to_string(project.join("s/own.json")).unwrap(), "its own");
        make_empty(&project, &project.join("out/settings.json"), false).unwrap_err();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        fs::remove_dir_all(&top).unwrap();
    }

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
