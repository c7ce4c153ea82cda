//! How far a process stands back behind others that want the processor.
//!
//! Agents compile and test; whoever asks the daemon, or sits before the machine, waits for an answer
//! meanwhile.
#![allow(unsafe_code, reason = "system calls that std does not offer")]

use super::os;

/// How far threads of the daemon that take in agents' output stand back behind those that answer people.
const THREAD_NICE: u32 = 5;

/// Lets this thread, and what it starts from now on, stand back this far (0 to 19, as for `nice`). What
/// cannot be had is done without: it is a courtesy.
pub fn stand_back(nice: u32) {
    let nice = i32::try_from(nice).unwrap_or_default();
    // SAFETY: a system call on numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// Lets this thread of the daemon stand back behind those that answer people.
pub fn let_answers_go_first() {
    // Elsewhere the whole process would stand back.
    if cfg!(target_os = "linux") {
        stand_back(THREAD_NICE);
    }
}

/// Where the kernel shares processor time out by sessions first, a process that stands back in a session of
/// its own would not be behind any other: its session stands back as far. Called between fork and exec.
///
/// An ordinary user may say this of one session in 100 ms; of more that begin at once the others stay as they
/// are.
pub(super) fn let_session_stand_back() {
    // SAFETY: a system call on numbers.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if nice > 0 {
        os::set_session_nice(nice.unsigned_abs());
    }
}
