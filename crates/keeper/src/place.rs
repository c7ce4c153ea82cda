//! Where a keeper is found: `keeper.json` and the socket in the folder of its run.

use super::protocol::VERSION;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use svc_base::ids::AgentId;
use svc_sys::process::{Identity, identity_of};

/// Says who the keeper of this run is.
pub(crate) const FILE: &str = "keeper.json";
/// What the file is called until it is whole.
const NEW_FILE: &str = "keeper.json.new";
/// The socket on which it listens.
pub(crate) const SOCKET: &str = "sock";
/// Bytes of the file that are read.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// What the file says.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    pub version: u32,
    pub pid: u32,
    pub start_ticks: u64,
    pub token: String,
    pub agent: AgentId,
}

impl Place {
    /// The process.
    pub fn identity(&self) -> Identity {
        Identity { pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// The folder of a run, held open, so that neither its path's length nor a rename matters.
pub(crate) struct Folder {
    path: PathBuf,
    held: File,
}

impl Folder {
    /// `None` when there is none.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match File::options().read(true).custom_flags(flags).open(path) {
            Ok(held) => Ok(Some(Self { path: path.to_path_buf(), held })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[cfg(target_os = "linux")]
    fn file(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.held.as_raw_fd().to_string()).join(name)
    }

    #[cfg(not(target_os = "linux"))]
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Who the keeper is; `None` when nobody says so.
    ///
    /// Errors: the file cannot be read, or is of another version; a sentence.
    pub fn place(&self) -> Result<Option<Place>, String> {
        let shown = self.path.join(FILE);
        let failed = |why: String| format!("{}: {why}", shown.display());
        let mut text = String::new();
        let options = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).to_owned();
        match options
            .open(self.file(FILE))
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        }
        let value: serde_json::Value = serde_json::from_slice(text.as_bytes())
            .map_err(|error| failed(format!("is no JSON: {error}")))?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(VERSION.into()) {
            let version = version.map_or_else(|| "none".into(), |version| version.to_string());
            return Err(failed(format!(
                "is of version {version}, and this program speaks {VERSION}: let the program of that version end \
                 this run"
            )));
        }
        serde_json::from_value(value).map(Some).map_err(|error| failed(error.to_string()))
    }

    /// Errors: nobody listens, or not for this user.
    pub fn connect(&self) -> io::Result<UnixStream> {
        self.connect_to(SOCKET)
    }

    /// Errors: as [`Folder::connect`].
    pub fn connect_to(&self, socket: &str) -> io::Result<UnixStream> {
        UnixStream::connect(self.file(socket))
    }

    /// Removes what a keeper that is gone has left.
    pub fn clear(&self) {
        for name in [FILE, NEW_FILE, SOCKET] {
            // What is not there need not go; what cannot go is found again.
            let _ = fs::remove_file(self.file(name));
        }
    }
}

/// Makes this process, whose folder is that of the run, one that can be found. The file appears last.
///
/// Errors: the disk refuses, or another keeper lives here; nothing of this one is left then.
pub(crate) fn settle(place: &Place) -> io::Result<UnixListener> {
    let there = Folder::open(Path::new("."))?.and_then(|folder| folder.place().ok().flatten());
    if there.is_some_and(|there| identity_of(there.pid) == Some(there.identity())) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another keeper lives there"));
    }
    move_in(place).inspect_err(|_| leave())
}

fn move_in(place: &Place) -> io::Result<UnixListener> {
    // Of a keeper that was killed.
    let _ = fs::remove_file(SOCKET);
    let listener = UnixListener::bind(SOCKET)?;
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let _ = fs::remove_file(NEW_FILE);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(NEW_FILE)?;
    file.write_all(&serde_json::to_vec(place)?)?;
    fs::rename(NEW_FILE, FILE)?;
    Ok(listener)
}

/// Whether a daemon that looks into this process's folder finds this keeper.
pub(crate) fn is_there(own: Identity) -> bool {
    let there = Folder::open(Path::new(".")).ok().flatten().and_then(|folder| folder.place().ok().flatten());
    there.is_some_and(|there| there.identity() == own)
}

/// Takes back what [`settle`] has made.
pub(crate) fn leave() {
    for name in [FILE, NEW_FILE, SOCKET] {
        // What is not there need not go.
        let _ = fs::remove_file(name);
    }
}
