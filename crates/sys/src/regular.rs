//! Opening files of the state folder. A pipe or a device in the place of one is refused instead of waited
//! for: opening a pipe blocks until somebody writes into it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens `path` with `options`.
///
/// Errors: those of the system; [`ErrorKind::InvalidInput`] for what is no regular file, with a remedy.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = || {
        let text = format!("{} is no regular file; move it away", path.display());
        io::Error::new(ErrorKind::InvalidInput, text)
    };
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path).map_err(|error| {
        // A pipe that nobody reads, and a folder.
        let is_other = matches!(error.raw_os_error(), Some(libc::ENXIO | libc::EISDIR));
        if is_other { refused() } else { error }
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

/// The content of a file.
///
/// Errors: as [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last bytes of a file, so many at most.
///
/// Errors: as [`open`].
pub fn read_end(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = open(path, OpenOptions::new().read(true))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    Ok(end)
}

/// The content of a file of text.
///
/// Errors: as [`open`]; [`ErrorKind::InvalidData`] for what is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
