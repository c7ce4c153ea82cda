//! Putting a room together from its plan, in a mount namespace that is new.

use super::kernel::{self, Attributes};
use super::plan::{Plan, Step};
use super::tried::{Cause, Refusal};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The devices of a room: those that hold nothing, and the terminal of whoever has one.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Names that programs expect beside them.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// Room for the folder of the devices itself: names only.
const DEVICES_SIZE: &str = "64k";
/// Where processes share memory by files.
const SHARED_MEMORY: &str = "/dev/shm";
/// What those of a room may share in its own, at most.
const SHARED_MEMORY_SIZE: &str = "1g";

const READ_ONLY: Attributes = Attributes { read_only: true, plain: false };

/// Puts something in a place of the system's own, where nobody moves anything.
fn put_at(mount: &OwnedFd, path: &Path) -> Result<(), String> {
    let place = named("found", path, kernel::find(None, path))?;
    named("put in place", path, kernel::put(mount, &place))
}

/// Says what could not be done with which place.
fn named<T>(what: &str, path: &Path, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{} cannot be {what}: {error}", path.display()))
}

/// Puts the room together. What was taken hold of before the machine is sealed keeps being writable.
///
/// Errors: a sentence that names the place.
pub(crate) fn put_together(plan: &Plan) -> Result<(), String> {
    let held = plan.steps.iter().map(take).collect::<Result<Vec<_>, _>>()?;
    let devices = devices()?;
    named("made read-only", Path::new("/"), kernel::seal_machine())?;
    fill_dev(&devices)?;
    // A project may lie in the memory that is shared by files: it is shown in the room's own.
    let shared =
        Cover { path: Path::new(SHARED_MEMORY), mount: devices.shared_memory, is_own: true, hides: false };
    let mut covers = Covers(vec![shared]);
    for (step, held) in plan.steps.iter().zip(held) {
        match (step, held) {
            (Step::Hide { path }, _) => covers.hide(path)?,
            (_, None) => {}
            (Step::Share { path, .. }, Some(held)) => covers.put(path, held, false)?,
            (Step::Private { path, .. } | Step::Layer { path, .. }, Some(held)) => {
                covers.put(path, held, true)?;
            }
        }
    }
    // Not before: what is shown in them needs a place of its own there.
    for cover in covers.0.iter().filter(|cover| cover.hides) {
        named("made read-only", cover.path, kernel::set_attributes_alone(&cover.mount, READ_ONLY))?;
    }
    Ok(())
}

/// One place of the room, covered.
struct Cover<'a> {
    path: &'a Path,
    mount: OwnedFd,
    /// Whether it shows something else than this place of the machine.
    is_own: bool,
    /// Whether it is there to be empty.
    hides: bool,
}

/// What has been put in place so far. Names below it are looked up in it and nowhere else: others work in the
/// shared folders at the same time, and may move them.
struct Covers<'a>(Vec<Cover<'a>>);

impl<'a> Covers<'a> {
    /// What a place is in now, and its name in there.
    fn around<'p>(&self, path: &'p Path) -> (Option<&Cover<'a>>, &'p Path) {
        let found = self.0.iter().rev().find_map(|cover| Some((cover, path.strip_prefix(cover.path).ok()?)));
        found.map_or((None, path), |(cover, name)| (Some(cover), name))
    }

    fn put(&mut self, path: &'a Path, held: OwnedFd, is_own: bool) -> Result<(), String> {
        let (around, name) = self.around(path);
        let find = || kernel::find(around.map(|cover| &cover.mount), name);
        let place = match (find(), around) {
            // In folders that are new in the room there is nothing yet.
            (Err(error), Some(cover)) if error.kind() == ErrorKind::NotFound && cover.is_own => {
                named("made", path, make_room_for(&cover.mount, name, &held))?;
                find()
            }
            (found, _) => found,
        };
        let place = named("found", path, place)?;
        if !is_own && !around.is_some_and(|cover| cover.is_own) && !is_same_folder(&place, &held) {
            return Err(format!("{} was replaced while the room was being made", path.display()));
        }
        named("put in place", path, kernel::put(&held, &place))?;
        self.0.push(Cover { path, mount: held, is_own, hides: false });
        Ok(())
    }

    /// Covers a place; others may still be put into the folder that covers it.
    fn hide(&mut self, path: &'a Path) -> Result<(), String> {
        let (around, name) = self.around(path);
        let place = match kernel::find(around.map(|cover| &cover.mount), name) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => named("found", path, found)?,
        };
        if named("looked at", path, meta(&place))?.is_dir() {
            let options = [("size", Some(OsStr::new(DEVICES_SIZE))), ("mode", Some(OsStr::new("0755")))];
            let mount = named("hidden", path, kernel::new_mount("tmpfs", &options))?;
            named("hidden", path, kernel::put(&mount, &place))?;
            self.0.push(Cover { path, mount, is_own: true, hides: true });
        } else if let Some(nothing) = hold(Path::new("/dev/null"))? {
            named("hidden", path, kernel::put(&nothing, &place))?;
        }
        Ok(())
    }
}

fn meta(found: &OwnedFd) -> io::Result<fs::Metadata> {
    fs::File::from(found.try_clone()?).metadata()
}

/// Whether these are the same folder. Files are replaced by whoever writes them, which moves nothing else.
fn is_same_folder(place: &OwnedFd, held: &OwnedFd) -> bool {
    match (meta(place), meta(held)) {
        (Ok(place), Ok(held)) if place.is_dir() && held.is_dir() => {
            (place.dev(), place.ino()) == (held.dev(), held.ino())
        }
        (Ok(place), Ok(held)) => place.is_dir() == held.is_dir(),
        _ => false,
    }
}

/// Takes hold of what a step shows; `None` for what is not there, and for what hides.
fn take(step: &Step) -> Result<Option<OwnedFd>, String> {
    match step {
        Step::Share { path, writable } => {
            let held = hold(path)?;
            if !writable {
                // It may be what keeps others from writing there: it is not left out when it is moved away.
                let held = held.as_ref().ok_or_else(|| format!("{} is gone", path.display()))?;
                named("made read-only", path, kernel::set_attributes_of(held, READ_ONLY))?;
            }
            Ok(held)
        }
        Step::Private { content, .. } => {
            hold(content)?.map(Some).ok_or_else(|| format!("{} is not there", content.display()))
        }
        Step::Layer { path, below, upper, work } => match overlay(below, upper, work) {
            Ok(held) => Ok(Some(held)),
            Err(_) if below != path => hold(upper),
            Err(error) => {
                eprintln!("svc: {} can only be read: {error}", path.display());
                Ok(None)
            }
        },
        Step::Hide { .. } => Ok(None),
    }
}

/// Takes hold of a place; `None` when it is not there.
fn hold(path: &Path) -> Result<Option<OwnedFd>, String> {
    match kernel::take_hold(path) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be taken hold of: {error}", path.display())),
    }
}

/// The folder with a layer above it, not in place yet.
fn overlay(below: &Path, upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    // The kernel reads several folders between colons.
    let mut lower = Vec::new();
    for byte in below.as_os_str().as_bytes() {
        if matches!(byte, b':' | b'\\') {
            lower.push(b'\\');
        }
        lower.push(*byte);
    }
    let lower = OsString::from_vec(lower);
    let options = [
        ("userxattr", None),
        ("lowerdir", Some(lower.as_os_str())),
        ("upperdir", Some(upper.as_os_str())),
        ("workdir", Some(work.as_os_str())),
    ];
    kernel::new_mount("overlay", &options)
}

/// Where a share goes there must be something of its kind.
fn make_room_for(folder: &OwnedFd, name: &Path, held: &OwnedFd) -> io::Result<()> {
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    if meta(held)?.is_dir() {
        return fs::create_dir_all(path);
    }
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::File::create_new(path).map(drop)
}

/// What goes into `/dev`, held before the machine is sealed.
struct Devices {
    folder: OwnedFd,
    nodes: Vec<(PathBuf, OwnedFd)>,
    terminals: OwnedFd,
    shared_memory: OwnedFd,
}

fn devices() -> Result<Devices, String> {
    let dev = Path::new("/dev");
    let option = |name, value| (name, Some(OsStr::new(value)));
    let tmpfs = |size, mode| kernel::new_mount("tmpfs", &[option("size", size), option("mode", mode)]);
    let mut nodes = Vec::new();
    for path in DEVICES.map(|name| dev.join(name)) {
        if let Some(held) = hold(&path)? {
            nodes.push((path, held));
        }
    }
    let terminals = [option("ptmxmode", "0666"), option("mode", "0620"), ("newinstance", None)];
    Ok(Devices {
        folder: named("made", dev, tmpfs(DEVICES_SIZE, "0755"))?,
        nodes,
        terminals: named("made", &dev.join("pts"), kernel::new_mount("devpts", &terminals))?,
        shared_memory: named("made", Path::new(SHARED_MEMORY), tmpfs(SHARED_MEMORY_SIZE, "1777"))?,
    })
}

fn fill_dev(devices: &Devices) -> Result<(), String> {
    let dev = Path::new("/dev");
    put_at(&devices.folder, dev)?;
    for (path, held) in &devices.nodes {
        named("made", path, fs::File::create(path).map(drop))?;
        put_at(held, path)?;
    }
    for (name, held) in [("pts", &devices.terminals), ("shm", &devices.shared_memory)] {
        let path = dev.join(name);
        named("made", &path, fs::create_dir(&path))?;
        put_at(held, &path)?;
    }
    for (name, target) in DEVICE_LINKS {
        let path = dev.join(name);
        named("made", &path, symlink(target, &path))?;
    }
    named("closed", dev, fs::set_permissions(dev, fs::Permissions::from_mode(0o555)))
}

/// What of `/proc` the superuser of any room could change of the whole machine.
const OF_THE_MACHINE: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];

/// The processes of the room, and no others. To be called by the room's first process.
pub(crate) fn show_processes(superuser: bool) -> Result<(), Refusal> {
    let path = Path::new("/proc");
    let made = kernel::new_mount("proc", &[]).map_err(|error| match error.raw_os_error() {
        // A container that covers parts of it; the kernel then gives nobody an uncovered one.
        Some(libc::EPERM) => Refusal {
            cause: Cause::Covered,
            reason: "/proc cannot be had: parts of it are covered on this machine, as in containers".into(),
        },
        _ => format!("/proc cannot be had: {error}").into(),
    })?;
    put_at(&made, path)?;
    // An ordinary user can write none of it, and a covered /proc would keep sandboxes inside from one of
    // their own.
    let covered = OF_THE_MACHINE.iter().filter(|_| superuser);
    for place in covered.map(|name| path.join(name)) {
        if let Some(held) = hold(&place)? {
            named("made read-only", &place, kernel::set_attributes_of(&held, READ_ONLY))?;
            put_at(&held, &place)?;
        }
    }
    Ok(())
}
