//! File descriptors kept back for what must not fail: with the last one taken by an agent or a client, state
//! could not be written any more, for every write opens a file.
//!
//! **Invariant:** what was lent comes back. Its number passes from the file to the reserve without being
//! free in between, for then whoever waits for one would take it: a client, and the next write would have one
//! less.
#![allow(
    unsafe_code,
    reason = "dup3, which std does not offer, and a file that is taken out of what is dropped"
)]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are kept back. A write needs one at a time, for its file or its folder; the rest is for threads
/// that take one first.
const KEPT: usize = 8;

static RESERVE: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Whether some that were lent are not back yet.
static LACKS: AtomicBool = AtomicBool::new(false);

fn reserve() -> MutexGuard<'static, Vec<File>> {
    RESERVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the descriptors. To be called once at the start; without it, [`with_reserve`] just tries.
pub fn fill() {
    let mut reserve = reserve();
    while reserve.len() < KEPT {
        let Ok(file) = File::open("/dev/null") else { return };
        reserve.push(file);
    }
    LACKS.store(false, Ordering::Relaxed);
}

/// An open file, whose descriptor goes back to the reserve if it came from there.
#[derive(Debug)]
pub struct Lent {
    file: ManuallyDrop<File>,
    is_lent: bool,
}

impl Deref for Lent {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: what is being dropped is not used again.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if !self.is_lent {
            return;
        }
        let mut reserve = reserve();
        if reserve.len() < KEPT && become_null(&file, reserve.first()) {
            reserve.push(file);
        }
    }
}

/// Opens a file; when the process has no descriptor left, with one of those kept back.
pub fn with_reserve(mut open: impl FnMut() -> io::Result<File>) -> io::Result<Lent> {
    let first = open();
    if !first.as_ref().is_err_and(is_short) {
        let file = first?;
        if LACKS.load(Ordering::Relaxed) {
            fill();
        }
        return Ok(Lent { file: ManuallyDrop::new(file), is_lent: false });
    }
    let mut reserve = reserve();
    let mut result = first;
    // The last one stays: what comes back is made to be like it.
    while result.as_ref().is_err_and(is_short) && reserve.len() > 1 && reserve.pop().is_some() {
        LACKS.store(true, Ordering::Relaxed);
        result = open();
    }
    drop(reserve);
    Ok(Lent { file: ManuallyDrop::new(result?), is_lent: true })
}

/// Has the descriptor of a file mean what that of `null` means, in one step; whether it does.
#[cfg(target_os = "linux")]
fn become_null(file: &File, null: Option<&File>) -> bool {
    use std::os::fd::AsRawFd;
    let Some(null) = null else { return false };
    // SAFETY: both descriptors are open and owned by the files, of which neither is used meanwhile.
    unsafe { libc::dup3(null.as_raw_fd(), file.as_raw_fd(), libc::O_CLOEXEC) >= 0 }
}

/// It is closed, and another one opened when there are some again.
#[cfg(not(target_os = "linux"))]
fn become_null(_file: &File, _null: Option<&File>) -> bool {
    false
}

/// Whether an error says that this process, or the system, has no file descriptor left.
pub fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
