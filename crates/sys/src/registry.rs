//! Which projects of this user have daemons: one small file a project below `~/.config/svc/daemons`, which no
//! room shows.
//!
//! A file proves itself: its daemon holds a lock on it, which the kernel frees whatever becomes of the
//! process, so that none is listed as running that is gone. A file that is not ours alone is not read.
//!
//! **Invariant:** a name leads to one project for good, until it is forgotten: daemons come and go, in
//! whatever order, and the addresses that hold the name stay.

use crate::regular;
use crate::sockets::own_uid;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use svc_base::sorted;

/// Projects that are remembered. Of more, the one that was stopped longest ago is forgotten.
pub const PROJECTS_MAX: usize = 200;
/// Characters of a name, the number behind it apart.
const NAME_CHARS: usize = 40;
/// Bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 8 << 10;
/// Somebody who looks holds a file for less than this.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// Between two tries to have a lock, or to read a file that is being written.
const AGAIN: Duration = Duration::from_millis(5);
/// Looks at a file that is being written.
const READS: usize = 3;
/// Taken while names are given.
const LOCK: &str = ".lock";
/// Taken by whoever does what one daemon does at a time.
const ALONE: &str = ".alone";
/// Bytes of what a project tells the others.
pub const TOLD_BYTES_MAX: u64 = 64 << 10;

/// The folder of this user's registry.
#[derive(Debug, Clone)]
pub struct Registry {
    folder: PathBuf,
}

/// What a daemon tells of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The project's root, absolute.
    pub project: PathBuf,
    /// Where it listens, without a slash at the end; empty until it does.
    pub url: String,
    pub pid: u32,
    /// When it started, in milliseconds since 1970.
    pub since: u64,
}

/// A project that has, or had, a daemon.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub facts: Facts,
    /// Whether its daemon holds the lock now.
    pub is_running: bool,
    /// When the file was written last, in seconds since 1970.
    written: i64,
}

/// The place of a running daemon. Dropping it leaves the file, as that of a stopped one.
#[derive(Debug)]
pub struct Seat {
    name: String,
    file: File,
    facts: Facts,
}

/// The folder of this program's own settings: `~/.config/svc`, or below `XDG_CONFIG_HOME`.
pub fn user_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("svc"))
}

impl Registry {
    /// That of this user; `None` for one without a home folder.
    pub fn of_user() -> Option<Self> {
        Some(Self::at(user_folder()?.join("daemons")))
    }

    /// The one in this folder.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes the place of a project, under the name that it has had before, or a new one.
    ///
    /// Errors: the folder is open to others, a path that is not UTF-8, another daemon has the place, all
    /// [`PROJECTS_MAX`] projects have running daemons, the system's.
    pub fn join(&self, facts: Facts) -> io::Result<Seat> {
        if facts.project.to_str().is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the project's path is not UTF-8"));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        self.check()?;
        let lock = self.open(LOCK, true)?;
        wait_for(|| lock.try_lock())?;
        let known = self.list()?;
        let before = known.iter().find(|entry| entry.facts.project == facts.project);
        let file = match before {
            Some(entry) => (entry.name.clone(), self.open(&file_name(&entry.name), false)?),
            None => self.new_file(&known, &facts.project)?,
        };
        let (name, file) = file;
        wait_for(|| file.try_lock())?;
        let mut seat = Seat { name, file, facts };
        seat.write()?;
        Ok(seat)
    }

    /// All projects, in the order of their names. What is damaged, or not ours alone, is left out.
    ///
    /// Errors: the folder is open to others, or cannot be read.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        match self.check() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            checked => checked?,
        }
        let files = fs::read_dir(&self.folder)?.flatten().map(|entry| entry.file_name());
        let names = files.filter_map(|file| file.to_str()?.strip_suffix(".json").map(ToOwned::to_owned));
        let entries = names.take(2 * PROJECTS_MAX).filter_map(|name| self.find(&name));
        let mut entries: Vec<Entry> = entries.collect();
        sorted::by_key(&mut entries, |entry| entry.name.clone());
        Ok(entries)
    }

    /// The project of this name. A text that no name can be finds nothing.
    pub fn find(&self, name: &str) -> Option<Entry> {
        if !is_name(name) {
            return None;
        }
        let file = self.open(&file_name(name), false).ok()?;
        let about = file.metadata().ok()?;
        // Shared, so that those who look do not meet.
        let is_running = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let facts = read(&file)?;
        Some(Entry { name: name.to_owned(), facts, is_running, written: about.mtime() })
    }

    /// Forgets a project whose daemon is stopped; whether there was one.
    ///
    /// Errors: it runs, or the system's.
    pub fn forget(&self, name: &str) -> io::Result<bool> {
        let Some(entry) = self.find(name) else { return Ok(false) };
        if entry.is_running {
            return Err(io::Error::new(ErrorKind::ResourceBusy, format!("the daemon of {name} runs")));
        }
        self.remove(name)?;
        Ok(true)
    }

    /// Writes what a project has to tell the others, in the place of what it told before; what `lasts` is on
    /// the disk then.
    pub fn tell(&self, name: &str, bytes: &[u8], lasts: bool) -> io::Result<()> {
        self.check()?;
        let path = self.folder.join(told_name(name));
        if !lasts {
            return crate::files::replace_soon(&path, bytes);
        }
        crate::files::replace(&path, bytes)?;
        crate::files::sync_folder(&self.folder)
    }

    /// What a project has told the others; `None` where it has told nothing.
    ///
    /// Errors: the file is not ours alone, has more than [`TOLD_BYTES_MAX`], cannot be read.
    pub fn told(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match self.open(&told_name(name), false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(TOLD_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > TOLD_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("more than {TOLD_BYTES_MAX} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Waits until no other daemon of this user does what one does alone at a time; the file is to be dropped
    /// behind it, and a process that ends drops it.
    ///
    /// Errors: another one is at it for longer than `patience`, the system's.
    pub fn alone(&self, patience: Duration) -> io::Result<File> {
        self.check()?;
        let file = self.open(ALONE, true)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if began.elapsed() >= patience => {
                    return Err(ErrorKind::ResourceBusy.into());
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(AGAIN),
            }
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        for file in [file_name(name), format!("{name}.sock"), told_name(name)] {
            fs::remove_file(self.folder.join(file)).or_else(crate::files::missing_is_fine)?;
        }
        Ok(())
    }

    fn new_file(&self, known: &[Entry], project: &Path) -> io::Result<(String, File)> {
        if known.len() >= PROJECTS_MAX {
            let stopped = known.iter().filter(|entry| !entry.is_running);
            let Some(oldest) = stopped.min_by_key(|entry| entry.written) else {
                let text = format!("{PROJECTS_MAX} projects have running daemons; stop one");
                return Err(io::Error::new(ErrorKind::QuotaExceeded, text));
            };
            self.remove(&oldest.name)?;
        }
        let base = name_of(project);
        for n in 1..=2 * PROJECTS_MAX {
            let name = if n == 1 { base.clone() } else { format!("{base}-{n}") };
            let path = self.folder.join(file_name(&name));
            let options = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
            match options {
                Ok(file) => return Ok((name, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, format!("all names like {base} are taken")))
    }

    /// Opens a file of the registry that is ours alone.
    fn open(&self, file: &str, create: bool) -> io::Result<File> {
        let path = self.folder.join(file);
        if path.is_symlink() {
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is a link", path.display())));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false).mode(0o600);
        let file = regular::open(&path, &mut options)?;
        only_ours(&path, &file.metadata()?).map(|()| file)
    }

    fn check(&self) -> io::Result<()> {
        let about = fs::symlink_metadata(&self.folder)?;
        if !about.is_dir() {
            let text = format!("{} is no folder", self.folder.display());
            return Err(io::Error::new(ErrorKind::NotADirectory, text));
        }
        only_ours(&self.folder, &about)
    }
}

impl Seat {
    /// The project's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells where the daemon listens.
    pub fn tell_url(&mut self, url: &str) -> io::Result<()> {
        url.clone_into(&mut self.facts.url);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.facts)?;
        // In place: another file in its place would be without the lock.
        self.file.write_all_at(&bytes, 0)?;
        self.file.set_len(bytes.len() as u64)
    }
}

/// Whether a text can be the name of a project: nothing in it means anything in a path, a cookie or an
/// address.
pub fn is_name(text: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let first = text.bytes().next().is_some_and(is_usual);
    first && text.len() <= NAME_CHARS + 8 && text.bytes().all(|byte| is_usual(byte) || b"-_.".contains(&byte))
}

/// The name that a project gets if nobody has it.
fn name_of(project: &Path) -> String {
    let folder = project.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain = folder.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' });
    let name: String = plain.skip_while(|c| !c.is_ascii_alphanumeric()).take(NAME_CHARS).collect();
    if name.is_empty() { "project".to_owned() } else { name }
}

fn file_name(name: &str) -> String {
    format!("{name}.json")
}

fn told_name(name: &str) -> String {
    format!("{name}.told")
}

/// Refuses what another user may have written, or could.
fn only_ours(path: &Path, about: &Metadata) -> io::Result<()> {
    if about.uid() == own_uid() && about.mode().trailing_zeros() >= 6 {
        return Ok(());
    }
    let text = format!("{} is not yours alone: look what is in there, and remove it", path.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, text))
}

fn wait_for(try_lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if began.elapsed() >= LOOKED_AT => {
                return Err(io::Error::new(ErrorKind::ResourceBusy, "another daemon has this place"));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(AGAIN),
        }
    }
}

fn read(file: &File) -> Option<Facts> {
    for _ in 0..READS {
        let mut text = Vec::new();
        let mut file = file;
        file.rewind().and_then(|()| file.take(FILE_BYTES_MAX).read_to_end(&mut text)).ok()?;
        if let Ok(facts) = serde_json::from_slice(&text) {
            return Some(facts);
        }
        std::thread::sleep(AGAIN);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn registry(name: &str) -> Registry {
        let folder = std::env::temp_dir().join(format!("svc-registry-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Registry::at(folder)
    }

    fn facts(project: &str) -> Facts {
        Facts { project: project.into(), url: String::new(), pid: 1, since: 0 }
    }

    fn names(registry: &Registry) -> Vec<(String, bool)> {
        registry.list().unwrap().into_iter().map(|entry| (entry.name, entry.is_running)).collect()
    }

    #[test]
    fn a_project_keeps_its_name_and_two_of_one_name_get_two() {
        let registry = registry("names");
        assert_eq!(registry.list().unwrap().len(), 0, "without a folder there is nobody");
        let mut shop = registry.join(facts("/users/ann/Shop")).unwrap();
        let other = registry.join(facts("/srv/shop")).unwrap();
        assert_eq!((shop.name(), other.name()), ("shop", "shop-2"));
        shop.tell_url("http://127.0.0.1:1").unwrap();
        assert_eq!(registry.find("shop").unwrap().facts.url, "http://127.0.0.1:1");
        assert!(registry.join(facts("/srv/shop")).is_err(), "its daemon runs");
        drop(shop);
        assert_eq!(names(&registry), [("shop".into(), false), ("shop-2".into(), true)]);
        drop(other);
        // In the other order.
        let other = registry.join(facts("/srv/shop")).unwrap();
        let shop = registry.join(facts("/users/ann/Shop")).unwrap();
        assert_eq!((shop.name(), other.name()), ("shop", "shop-2"));
        assert!(registry.forget("shop").is_err() && registry.find("shop").is_some());
        drop(shop);
        assert!(registry.forget("shop").unwrap() && !registry.forget("shop").unwrap());
        assert_eq!(names(&registry), [("shop-2".into(), true)]);
        fs::remove_dir_all(registry.folder()).unwrap();
    }

    #[test]
    fn what_others_may_have_written_is_not_read() {
        let registry = registry("others");
        let _seat = registry.join(facts("/srv/shop")).unwrap();
        let put = |name: &str, mode: u32| {
            let path = registry.folder().join(name);
            fs::write(&path, serde_json::to_vec(&facts("/srv/evil")).unwrap()).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        put("open.json", 0o666);
        put("Upper.json", 0o600);
        put(".hidden.json", 0o600);
        fs::write(registry.folder().join("broken.json"), "{").unwrap();
        std::os::unix::fs::symlink(registry.folder().join("shop.json"), registry.folder().join("link.json"))
            .unwrap();
        fs::create_dir(registry.folder().join("folder.json")).unwrap();
        assert_eq!(names(&registry), [("shop".into(), true)]);
        for bad in
            ["", ".", "..", "../shop", "a/b", "%2e", "shop.json/..", "Shop", "a b", "-x", &"a".repeat(60)]
        {
            assert!(!is_name(bad) && registry.find(bad).is_none(), "{bad}");
        }
        fs::set_permissions(registry.folder(), PermissionsExt::from_mode(0o755)).unwrap();
        let refused = registry.list().unwrap_err().to_string();
        assert!(refused.contains("not yours alone"), "{refused}");
        assert!(registry.join(facts("/srv/new")).is_err());
        fs::remove_dir_all(registry.folder()).unwrap();
    }

    #[test]
    fn no_more_projects_are_remembered_than_there_is_room_for() {
        let registry = registry("bound");
        let kept = registry.join(facts("/srv/kept")).unwrap();
        for n in 0..PROJECTS_MAX + 5 {
            drop(registry.join(facts(&format!("/srv/{n}"))).unwrap());
        }
        let names = names(&registry);
        assert_eq!(names.len(), PROJECTS_MAX);
        assert!(names.contains(&("kept".into(), true)), "one that runs is not forgotten");
        drop(kept);
        fs::remove_dir_all(registry.folder()).unwrap();
    }

    #[test]
    fn what_a_project_tells_is_read_by_others_and_no_file_that_others_may_write() {
        let registry = registry("told");
        let shop = registry.join(facts("/srv/shop")).unwrap();
        assert_eq!(registry.told("shop").unwrap(), None);
        registry.tell("shop", b"one", true).unwrap();
        registry.tell("shop", b"two", false).unwrap();
        assert_eq!(registry.told("shop").unwrap().unwrap(), b"two");
        assert_eq!(names(&registry), [("shop".into(), true)], "it is no project");
        let path = registry.folder().join("shop.told");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(registry.told("shop").is_err());
        registry.tell("shop", &vec![b'a'; usize::try_from(TOLD_BYTES_MAX).unwrap() + 1], false).unwrap();
        assert!(registry.told("shop").is_err(), "it is too long");
        drop(shop);
        assert!(registry.forget("shop").unwrap() && !path.exists());
        fs::remove_dir_all(registry.folder()).unwrap();
    }

    #[test]
    fn one_at_a_time_is_alone() {
        let registry = registry("alone");
        let _seat = registry.join(facts("/srv/shop")).unwrap();
        let first = registry.alone(Duration::ZERO).unwrap();
        assert_eq!(registry.alone(AGAIN).unwrap_err().kind(), ErrorKind::ResourceBusy);
        drop(first);
        registry.alone(Duration::ZERO).unwrap();
        fs::remove_dir_all(registry.folder()).unwrap();
    }

    #[test]
    fn any_folder_has_a_name() {
        for (folder, name) in [
            ("/srv/Shop", "shop"),
            ("/srv/my shop!", "my-shop-"),
            ("/srv/...", "project"),
            ("/srv/日本", "project"),
            ("/", "project"),
            ("/srv/.dot", "dot"),
        ] {
            assert_eq!(name_of(Path::new(folder)), name, "{folder}");
            assert!(is_name(name));
        }
    }
}
