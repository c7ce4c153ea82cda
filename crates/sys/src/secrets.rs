//! Keeping what this program knows from other programs of the same user: on Linux they may read each other's
//! memory and first environment, unless told not to.
//!
//! Source: prctl(2) `PR_SET_DUMPABLE`, proc(5) `/proc/PID/environ`.
#![allow(unsafe_code, reason = "prctl and the memory of the first environment, which std does not offer")]

use std::ffi::OsStr;
use std::io;

/// The environment variable that names the operator's token.
pub const OPERATOR_TOKEN: &str = "SVC_OPERATOR_TOKEN";

/// Ends of the names of variables that hold secrets.
const SECRET_ENDS: [&str; 9] = [
    "_KEY",
    "_KEY_PREVIOUS",
    "_TOKEN",
    "_SECRET",
    "_PASSWORD",
    "_CREDENTIALS",
    "_PAT",
    "DATABASE_URL",
    "PGPASSWORD",
];

/// The environment variable with an agent's own token.
pub const AGENT_TOKEN: &str = "SVC_AGENT_TOKEN";

/// Moves secrets out of the memory that `/proc/PID/environ` shows, and closes this program's memory. To be
/// called before any thread is started.
pub fn hide() {
    #[cfg(target_os = "linux")]
    environment::clear();
    keep_memory();
}

/// Bytes of randomness in [`random`].
const RANDOM_BYTES: usize = 32;

/// A new secret: 64 hexadecimal digits of the kernel's randomness.
///
/// Errors: the kernel gives none.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("the system gives no randomness: {error}")))?;
    Ok(svc_base::hex::encode(&bytes))
}

/// Lets the daemon see which connections this program holds, and other programs of this user read its memory.
pub fn show_memory() {
    // SAFETY: this prctl takes numbers.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
}

/// Keeps other programs of this user from reading this one's memory, environment and list of open files.
pub fn keep_memory() {
    // SAFETY: this prctl takes numbers. A system that does not know it leaves everything as it is.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

fn is_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(target_os = "linux")]
mod environment {
    use super::is_secret;
    use std::ffi::{CStr, c_char};

    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }

    /// Gives each secret variable a place elsewhere, and overwrites the value where it was.
    pub(super) fn clear() {
        let secrets: Vec<_> = std::env::vars_os().filter(|(name, _)| is_secret(name)).collect();
        let before = entries();
        for (name, value) in secrets {
            // SAFETY: nothing else runs in this process yet that could read or write the environment.
            unsafe { std::env::set_var(&name, &value) };
        }
        let now = entries();
        for old in before.into_iter().filter(|old| !now.contains(old)) {
            // SAFETY: the entry is no longer part of the environment, so that nobody else refers to it; it
            // ends with NUL, and the memory of the first environment is this process's to write.
            unsafe { overwrite(old) };
        }
    }

    /// Where the entries are.
    fn entries() -> Vec<*mut c_char> {
        let mut found = Vec::new();
        // SAFETY: the list is valid as long as nobody changes the environment, and ends with a null pointer.
        unsafe {
            let mut at = environ;
            while !at.is_null() && !(*at).is_null() {
                found.push(*at);
                at = at.add(1);
            }
        }
        found
    }

    /// # Safety
    ///
    /// `entry` is `NAME=value` with a NUL at its end, in memory that may be written and that nobody else
    /// uses.
    // SAFETY: what callers promise stands above.
    unsafe fn overwrite(entry: *mut c_char) {
        // SAFETY: as the caller promises.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        let name = text.iter().position(|byte| *byte == b'=').map_or(text.len(), |at| at + 1);
        for at in name..text.len() {
            // SAFETY: within the entry, before its NUL; volatile, so that the compiler does not leave it out.
            unsafe { entry.add(at).write_volatile(0) };
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::ffi::OsStr;

        #[test]
        fn only_the_value_is_overwritten() {
            let mut entry = b"A_KEY=secret\0".to_vec();
            // SAFETY: the entry is this test's own, with a NUL at its end.
            unsafe { overwrite(entry.as_mut_ptr().cast()) };
            assert_eq!(entry, b"A_KEY=\0\0\0\0\0\0\0");
        }

        #[test]
        fn secrets_are_known_by_their_names() {
            for name in
                ["SVC_OPERATOR_TOKEN", "AWS_SECRET_ACCESS_KEY", "SKILLS_API_KEY_PREVIOUS", "DATABASE_URL"]
            {
                assert!(is_secret(OsStr::new(name)), "{name}");
            }
            for name in ["SVC_AGENT_ID", "SVC_PROJECT_DIR", "PATH", "TOKENS", "KEYBOARD"] {
                assert!(!is_secret(OsStr::new(name)), "{name}");
            }
        }
    }
}
