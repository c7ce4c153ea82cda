//! What a rehearsed agent does with signals and sessions, to be as unpleasant as a real one can be.
//!
//! The only calls here are single system calls without pointers into our memory, but for the one that
//! forbids a core file.

/// From now on the process ignores SIGTERM, and so do programs that it starts.
#[allow(unsafe_code)]
pub fn ignore_term() {
    // SAFETY: SIG_IGN installs no handler, so no code of ours ever runs in signal context.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
}

/// Ends the process by this signal, without a core file. Returns only when the signal's default action
/// does not end a process.
#[allow(unsafe_code)]
pub fn die_by(signal: i32) {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `no_core` outlives the call that reads it. SIG_DFL replaces whatever handler Rust's start-up
    // code has installed (for SIGSEGV), and `raise` acts on this thread only.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Puts the process into a session of its own, out of reach of signals to its former group.
#[allow(unsafe_code)]
pub fn own_session() {
    // SAFETY: takes nothing and fails only for a group leader, which then already is out of that reach.
    unsafe {
        libc::setsid();
    }
}

/// Ends every process of the group with SIGKILL. A group that is gone already is no error.
#[allow(unsafe_code)]
pub fn kill_group(group: u32) {
    let Ok(group) = i32::try_from(group) else { return };
    if group <= 1 {
        // `kill(0)` and `kill(-1)` would reach our own group, or everybody.
        return;
    }
    // SAFETY: takes two numbers; the guard above keeps the negated one a real group's.
    unsafe {
        libc::kill(-group, libc::SIGKILL);
    }
}
