//! Opening files below a folder so that no link, however it is swapped while we look, leads out of it.
//!
//! On Linux the kernel resolves a path in one call (`openat2` with `RESOLVE_BENEATH`). Where that call is
//! missing, paths are opened component by component and every link is refused.
//!
//! **Invariant:** a [`Dir`] is the folder it was opened as: names are looked up in it by descriptor, never
//! by path.
#![allow(unsafe_code, reason = "system calls that std does not offer")]

use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A rename elsewhere makes the kernel ask to try again; it is tried this often.
#[cfg(target_os = "linux")]
const TRIES: usize = 16;

/// Opens a place without reading it; elsewhere than on Linux it is opened without waiting.
#[cfg(target_os = "linux")]
const LOOK: i32 = libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const LOOK: i32 = libc::O_RDONLY | libc::O_NONBLOCK;

/// Where descriptors can be opened by name.
#[cfg(target_os = "linux")]
const DESCRIPTORS: &str = "/proc/self/fd";
#[cfg(not(target_os = "linux"))]
const DESCRIPTORS: &str = "/dev/fd";

/// Whether links inside the root are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    /// Those that stay below the root.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "openat2 only"))]
    Inside,
    /// None.
    Refused,
}

/// When a file's content, or the names in a folder, changed last: nanoseconds since 1970.
pub fn changed_ns(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Link,
    /// A socket, a pipe, a device.
    Other,
}

/// What the system tells of a place, in nanoseconds since 1970 where it is a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// Its permissions, 12 bits.
    pub mode: u32,
    pub bytes: u64,
    /// When its content changed last, which programs may set.
    pub changed_ns: i64,
    /// When anything of it changed last, which they may not.
    pub touched_ns: i64,
    pub inode: u64,
}

/// The folder that nothing leaves.
#[derive(Debug)]
pub struct Root(Dir);

/// A folder, held open.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Root {
    /// Opens the root itself.
    ///
    /// Errors: it is not there, or no folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Dir(File::open(path)?.into())))
    }

    /// Where `relative` really is, below the root: links that stay inside are followed. The empty text is the
    /// root.
    ///
    /// Errors: `CrossesDevices` (`EXDEV`) when a link leads out, `FilesystemLoop` (`ELOOP`) for a link where
    /// links cannot be followed safely, and what opening says.
    pub fn locate(&self, relative: &str) -> io::Result<String> {
        let found = resolve(&self.0, relative, LOOK, Links::Inside)?;
        real_path(&found, &self.0).unwrap_or_else(|| Ok(relative.to_owned()))
    }

    /// Opens a folder; no part of the path may be a link.
    pub fn dir(&self, relative: &str) -> io::Result<Dir> {
        resolve(&self.0, relative, libc::O_RDONLY | libc::O_DIRECTORY, Links::Refused).map(Dir)
    }

    /// Opens a file for reading, without waiting for the other end of a pipe; no part may be a link.
    pub fn file(&self, relative: &str) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        resolve(&self.0, relative, flags, Links::Refused).map(File::from)
    }

    /// What is there, without opening it for reading; no part may be a link but the last, which is not
    /// followed.
    pub fn look(&self, relative: &str) -> io::Result<Metadata> {
        let flags = LOOK | libc::O_NOFOLLOW;
        // With `O_PATH` and `O_NOFOLLOW` the last part may be a link, so only the ones before it are refused.
        let (folder, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        if name.is_empty() {
            return File::from(resolve(&self.0, "", flags, Links::Refused)?).metadata();
        }
        self.dir(folder)?.look(name)
    }
}

impl Dir {
    /// What is in it.
    pub fn entries(&self) -> io::Result<fs::ReadDir> {
        fs::read_dir(format!("{DESCRIPTORS}/{}", self.0.as_raw_fd()))
    }

    /// What a name stands for; a link is not followed.
    pub fn look(&self, name: &str) -> io::Result<Metadata> {
        File::from(open_at(self.0.as_fd(), name, LOOK | libc::O_NOFOLLOW, 0)?).metadata()
    }

    /// When a folder's names last changed, in nanoseconds since the epoch; `None` for anything but a folder,
    /// a link to one included. `path` is relative to this folder; the empty text is the folder itself.
    ///
    /// One call, which opens nothing. Links before the last part are followed, so that this is for asking
    /// and not for reading.
    pub fn folder_changed_ns(&self, path: &str) -> io::Result<Option<i64>> {
        let path = c_name(if path.is_empty() { "." } else { path })?;
        // SAFETY: all bits zero are a valid `stat`.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        let (at, found_at) = (self.0.as_raw_fd(), &raw mut found);
        // SAFETY: the descriptor is open, the path ends with NUL, and the kernel fills a `stat` of ours.
        check(unsafe { libc::fstatat(at, path.as_ptr(), found_at, libc::AT_SYMLINK_NOFOLLOW) })?;
        let is_folder = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(is_folder
            .then(|| found.st_mtime.saturating_mul(1_000_000_000).saturating_add(found.st_mtime_nsec)))
    }

    /// What a name stands for, a link not followed; the empty text is the folder itself. One call, which
    /// opens nothing, for who asks of very many.
    pub fn stat(&self, name: &str) -> io::Result<Stat> {
        let name = c_name(if name.is_empty() { "." } else { name })?;
        // SAFETY: all bits zero are a valid `stat`.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        let (at, found_at) = (self.0.as_raw_fd(), &raw mut found);
        // SAFETY: the descriptor is open, the name ends with NUL, and the kernel fills a `stat` of ours.
        check(unsafe { libc::fstatat(at, name.as_ptr(), found_at, libc::AT_SYMLINK_NOFOLLOW) })?;
        let ns = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Ok(Stat {
            kind: match found.st_mode & libc::S_IFMT {
                libc::S_IFREG => Kind::File,
                libc::S_IFDIR => Kind::Folder,
                libc::S_IFLNK => Kind::Link,
                _ => Kind::Other,
            },
            mode: found.st_mode & 0o7777,
            bytes: u64::try_from(found.st_size).unwrap_or_default(),
            changed_ns: ns(found.st_mtime, found.st_mtime_nsec),
            touched_ns: ns(found.st_ctime, found.st_ctime_nsec),
            inode: found.st_ino,
        })
    }

    /// Where a link leads, as it stands in it.
    pub fn link_target(&self, name: &str) -> io::Result<PathBuf> {
        fs::read_link(self.place(name))
    }

    /// A new link to `target`, which is not looked at.
    ///
    /// Errors: `AlreadyExists` for anything of this name.
    pub fn make_link(&self, target: &Path, name: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(target, self.place(name))
    }

    /// A file for reading, without waiting for the other end of a pipe; not through a link.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
        open_at(self.0.as_fd(), name, flags, 0).map(File::from)
    }

    fn place(&self, name: &str) -> PathBuf {
        Path::new(&format!("{DESCRIPTORS}/{}", self.0.as_raw_fd())).join(name)
    }

    /// A folder in it; not through a link.
    pub fn dir(&self, name: &str) -> io::Result<Self> {
        open_at(self.0.as_fd(), name, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0).map(Self)
    }

    /// A new file, for writing. `mode` are its permissions.
    ///
    /// Errors: `AlreadyExists` for anything of this name, a dangling link included.
    pub fn create(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        open_at(self.0.as_fd(), name, flags, mode).map(File::from)
    }

    /// A new folder.
    pub fn make_dir(&self, name: &str) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the descriptor is open and the name ends with NUL; the call keeps neither.
        check(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o777) })
    }

    /// Removes a file or a link.
    pub fn remove_file(&self, name: &str) -> io::Result<()> {
        self.unlink(name, 0)
    }

    /// Removes an empty folder.
    pub fn remove_dir(&self, name: &str) -> io::Result<()> {
        self.unlink(name, libc::AT_REMOVEDIR)
    }

    fn unlink(&self, name: &str, flags: i32) -> io::Result<()> {
        let name = c_name(name)?;
        // SAFETY: the descriptor is open and the name ends with NUL; the call keeps neither.
        check(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), flags) })
    }

    /// Renames over whatever file has the new name.
    pub fn rename(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        let (name, new) = (c_name(name)?, c_name(new)?);
        // SAFETY: both descriptors are open and both names end with NUL; the call keeps none of them.
        check(unsafe { libc::renameat(self.0.as_raw_fd(), name.as_ptr(), to.0.as_raw_fd(), new.as_ptr()) })
    }

    /// Renames to a name that must be free.
    ///
    /// Errors: `AlreadyExists`.
    pub fn rename_new(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        match self.rename_exclusive(name, to, new) {
            // A file system that cannot do both at once: look first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                if to.look(new).is_ok() {
                    return Err(io::Error::from_raw_os_error(libc::EEXIST));
                }
                self.rename(name, to, new)
            }
            outcome => outcome,
        }
    }

    #[cfg(target_os = "linux")]
    fn rename_exclusive(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        let (name, new) = (c_name(name)?, c_name(new)?);
        // SAFETY: both descriptors are open and both names end with NUL; the call keeps none of them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                self.0.as_raw_fd(),
                name.as_ptr(),
                to.0.as_raw_fd(),
                new.as_ptr(),
                libc::RENAME_NOREPLACE,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[cfg(not(target_os = "linux"))]
    fn rename_exclusive(&self, _name: &str, _to: &Self, _new: &str) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    /// Puts its names on disk.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.0.try_clone()?).sync_all()
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// One `openat`, tried again when a signal came in between.
fn open_at(at: BorrowedFd, name: &str, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let name = c_name(name)?;
    loop {
        // SAFETY: the descriptor is open and the name ends with NUL; the call keeps neither.
        let fd = unsafe { libc::openat(at.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
        if fd >= 0 {
            // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn resolve(root: &Dir, relative: &str, flags: i32, links: Links) -> io::Result<OwnedFd> {
    let relative = if relative.is_empty() { "." } else { relative };
    #[cfg(target_os = "linux")]
    {
        let found = open_beneath(root, relative, flags, links);
        // The call is missing, or a sandbox does not let it through.
        let missing = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
        if !found.as_ref().is_err_and(missing) {
            return found;
        }
    }
    let _ = links;
    step_by_step(root, relative, flags)
}

/// One component at a time, refusing every link.
fn step_by_step(root: &Dir, relative: &str, flags: i32) -> io::Result<OwnedFd> {
    let (folders, last) = relative.rsplit_once('/').map_or(("", relative), |(folders, last)| (folders, last));
    let mut at = root.0.try_clone()?;
    for folder in folders.split('/').filter(|part| !part.is_empty()) {
        refuse_parent(folder)?;
        at = open_at(at.as_fd(), folder, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)?;
    }
    refuse_parent(last)?;
    let found = open_at(at.as_fd(), last, flags | libc::O_NOFOLLOW, 0)?;
    // `O_PATH` opens the link itself instead of refusing it.
    if flags & LOOK == LOOK && File::from(found.try_clone()?).metadata()?.is_symlink() {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    Ok(found)
}

fn refuse_parent(part: &str) -> io::Result<()> {
    if part == ".." { Err(io::Error::from_raw_os_error(libc::EXDEV)) } else { Ok(()) }
}

#[cfg(target_os = "linux")]
fn open_beneath(root: &Dir, relative: &str, flags: i32, links: Links) -> io::Result<OwnedFd> {
    let path = c_name(relative)?;
    // SAFETY: all bits zero are a valid `open_how`: no flags, no mode, no restriction.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
    if links == Links::Refused {
        how.resolve |= libc::RESOLVE_NO_SYMLINKS;
    }
    for _ in 0..TRIES {
        // SAFETY: the descriptor is open, the path ends with NUL, and `how` is as long as told.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                root.0.as_raw_fd(),
                path.as_ptr(),
                &raw const how,
                size_of::<libc::open_how>(),
            )
        };
        if let Ok(fd) = i32::try_from(fd)
            && fd >= 0
        {
            // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
            return Err(error);
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}

/// The path of an open place below the root, as the kernel tells it. `None` where it tells none: then no link
/// was followed.
#[cfg(target_os = "linux")]
fn real_path(found: &OwnedFd, root: &Dir) -> Option<io::Result<String>> {
    let name_of = |fd: &OwnedFd| fs::read_link(format!("{DESCRIPTORS}/{}", fd.as_raw_fd()));
    let (root, found): (PathBuf, PathBuf) = match (name_of(&root.0), name_of(found)) {
        (Ok(root), Ok(found)) => (root, found),
        (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
    };
    let outside = || io::Error::from_raw_os_error(libc::EXDEV);
    let relative = found.strip_prefix(&root).map_err(|_| outside());
    Some(relative.and_then(|path| {
        path.to_str().map(ToOwned::to_owned).ok_or_else(|| io::Error::from_raw_os_error(libc::EILSEQ))
    }))
}

#[cfg(not(target_os = "linux"))]
fn real_path(_found: &OwnedFd, _root: &Dir) -> Option<io::Result<String>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn place(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("svc-beneath-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("root/inner")).unwrap();
        fs::write(path.join("secret"), "outside").unwrap();
        fs::write(path.join("root/inner/file"), "inside").unwrap();
        symlink("../secret", path.join("root/out")).unwrap();
        symlink("/etc/passwd", path.join("root/absolute")).unwrap();
        symlink("..", path.join("root/inner/up")).unwrap();
        symlink("../..", path.join("root/inner/far")).unwrap();
        symlink("inner/file", path.join("root/link")).unwrap();
        symlink("inner", path.join("root/folder")).unwrap();
        Place(path)
    }

    #[test]
    fn a_link_that_stays_inside_is_followed_and_one_that_leads_out_is_not() {
        let place = place("links");
        let root = Root::open(&place.0.join("root")).unwrap();
        for (path, real) in [
            ("", ""),
            ("inner/file", "inner/file"),
            ("link", "inner/file"),
            ("folder/file", "inner/file"),
            ("inner/up/link", "inner/file"),
        ] {
            assert_eq!(root.locate(path).unwrap(), real, "{path}");
        }
        for path in ["out", "absolute", "inner/far/secret", "..", "../secret", "inner/../../secret", "/etc"] {
            let error = root.locate(path).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EXDEV), "{path}: {error}");
        }
        for path in ["link", "folder/file", "out"] {
            assert!(root.file(path).is_err(), "{path} is a link");
        }
    }

    #[test]
    fn without_openat2_every_link_and_every_parent_is_refused() {
        let place = place("steps");
        let root = Root::open(&place.0.join("root")).unwrap();
        assert!(step_by_step(&root.0, "inner/file", libc::O_RDONLY).is_ok());
        assert!(step_by_step(&root.0, ".", LOOK).is_ok());
        for path in ["link", "folder/file", "out", "absolute", "..", "inner/../../secret", "inner/far/secret"]
        {
            assert!(step_by_step(&root.0, path, libc::O_RDONLY).is_err(), "{path}");
            assert!(step_by_step(&root.0, path, LOOK).is_err(), "{path}");
        }
    }

    #[test]
    fn a_folder_s_time_is_told_and_nothing_else_s() {
        use std::os::unix::fs::MetadataExt;
        let place = place("times");
        let root = Root::open(&place.0.join("root")).unwrap();
        let top = root.dir("").unwrap();
        for (path, at) in [("", "root"), ("inner", "root/inner")] {
            let meta = fs::symlink_metadata(place.0.join(at)).unwrap();
            let ns = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
            assert_eq!(top.folder_changed_ns(path).unwrap(), Some(ns), "{path}");
        }
        for path in ["inner/file", "folder", "out"] {
            assert_eq!(top.folder_changed_ns(path).unwrap(), None, "{path}");
        }
        assert_eq!(top.folder_changed_ns("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_new_name_never_replaces_anything() {
        let place = place("new");
        let root = Root::open(&place.0.join("root")).unwrap();
        let top = root.dir("").unwrap();
        let inner = root.dir("inner").unwrap();
        assert_eq!(top.create("out", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let refused = inner.rename_new("file", &top, "link").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        inner.rename_new("file", &top, "moved").unwrap();
        assert_eq!(fs::read(place.0.join("root/moved")).unwrap(), b"inside");
    }
}
