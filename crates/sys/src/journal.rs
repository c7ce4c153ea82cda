//! Files that lines are appended to, such as the audit log.
//!
//! **Invariant:** a line is whole or not there. A write that fails is taken back; what a crash has torn off
//! is closed with a line end before the next line, and passed over by readers.

use super::files::{if_there, missing_is_fine, replace, sync_folder};
use super::regular;
use super::reserve::{Lent, with_reserve};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Appends whole lines to a file; above `max_bytes` it is first renamed to `<path>.1`. Gives the file back,
/// yet to be synced.
///
/// Errors: it is no file, or the disk refuses; then the file is as it was.
pub fn append_rotating(path: &Path, lines: &[u8], max_bytes: u64) -> io::Result<Lent> {
    let mut file = open(path)?;
    let mut length = file.metadata()?.len();
    if length + lines.len() as u64 > max_bytes {
        // Its last lines may have been waited for by nobody yet.
        file.sync_data()?;
        fs::rename(path, older_of(path))?;
        file = open(path)?;
        length = file.metadata()?.len();
        path.parent().map_or(Ok(()), sync_folder)?;
    }
    let written = close_torn_line(&mut file, length).and_then(|()| file.write_all(lines));
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            // Part of it may stand there. Nobody was told that it does.
            file.set_len(length)?;
            Err(error)
        }
    }
}

fn open(path: &Path) -> io::Result<Lent> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    with_reserve(|| regular::open(path, &mut options))
}

/// Ends a line that was cut off, so that the next one does not become a part of it.
fn close_torn_line(file: &mut File, length: u64) -> io::Result<()> {
    let Some(last) = length.checked_sub(1) else { return Ok(()) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    if byte == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

/// The file that a journal had before the last rotation.
pub fn older_of(path: &Path) -> PathBuf {
    let mut older = path.as_os_str().to_owned();
    older.push(".1");
    older.into()
}

/// Keeps the last `entries` whole lines of a journal and of its rotated part.
pub fn trim_lines(path: &Path, entries: usize) -> io::Result<()> {
    let read = |path: &Path| if_there(regular::read(path)).map(Option::unwrap_or_default);
    let bytes = [read(&older_of(path))?, read(path)?].concat();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.len() > entries {
        replace(path, &lines[lines.len() - entries..].concat())?;
        fs::remove_file(older_of(path)).or_else(missing_is_fine)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("svc-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn limits_a_journal_rotates_at_its_size_and_is_trimmed_to_its_last_entries() {
        let folder = folder("journal");
        let path = folder.join("audit.jsonl");
        for n in 0..100 {
            append_rotating(&path, format!("{{\"n\":{n}}}\n").as_bytes(), 600).unwrap();
        }
        let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
        assert!(fs::metadata(&path).unwrap().len() <= 600 && lines(&older_of(&path)) > 0);
        trim_lines(&path, 60).unwrap();
        let kept = fs::read_to_string(&path).unwrap();
        assert_eq!((kept.lines().next(), kept.lines().last()), (Some("{\"n\":40}"), Some("{\"n\":99}")));
        assert!(!older_of(&path).exists());
        trim_lines(&path, 60).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), kept, "nothing to do");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(folder).unwrap();
        trim_lines(&path, 1).unwrap();
    }

    #[test]
    fn a_line_that_was_cut_off_is_closed_before_the_next() {
        let folder = folder("torn");
        let path = folder.join("audit.jsonl");
        fs::write(&path, "{\"n\":1}\n{\"actor\":\"oper").unwrap();
        append_rotating(&path, b"{\"n\":2}\n", 600).unwrap();
        append_rotating(&path, b"{\"n\":3}\n", 600).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"n\":1}\n{\"actor\":\"oper\n{\"n\":2}\n{\"n\":3}\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_journal_that_is_no_file_is_refused_at_once() {
        let folder = folder("pipe");
        let path = folder.join("audit.jsonl");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let error = append_rotating(&path, b"{}\n", 600).unwrap_err();
        assert!(error.to_string().contains("is no regular file"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
