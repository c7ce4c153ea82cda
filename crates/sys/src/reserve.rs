//! File descriptors kept back for what must not fail: with the last one taken by an agent or a client, state
//! could not be written any more, for every write opens a file.

use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

/// How many are kept back. A write needs one at a time, for its file or its folder; the rest is for threads
/// that take one first.
const KEPT: usize = 8;

static RESERVE: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Takes the descriptors. To be called once at the start; without it, [`with_reserve`] just tries.
pub fn fill() {
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    while reserve.len() < KEPT {
        let Ok(file) = File::open("/dev/null") else { return };
        reserve.push(file);
    }
}

/// Opens something; when the process has no descriptor left, with one of those kept back.
pub fn with_reserve<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let first = open();
    if !first.as_ref().is_err_and(is_short) {
        return first;
    }
    let mut reserve = RESERVE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut result = first;
    while result.as_ref().is_err_and(is_short) && reserve.pop().is_some() {
        result = open();
    }
    drop(reserve);
    result
}

/// Whether an error says that this process, or the system, has no file descriptor left.
pub fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
