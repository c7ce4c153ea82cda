//! Signals, by self-pipe: the handler notes which one came and writes a byte, a thread reads it.
//!
//! What ends a program by default either ends the daemon in good order, or does nothing but leave a line in
//! the log: a stray signal must not cost the agents their lives.

use super::threads::Thread;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// These ask for an orderly end. The limit of processor time does so because KILL comes next.
const ENDING: [i32; 5] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU];
/// These mean nothing here. A file above the size limit is told by the write that fails.
const MEANINGLESS: &[(i32, &str)] = &[
    (SIGUSR1, "SIGUSR1"),
    (SIGUSR2, "SIGUSR2"),
    (SIGALRM, "SIGALRM"),
    (SIGVTALRM, "SIGVTALRM"),
    (SIGPROF, "SIGPROF"),
    (SIGIO, "SIGIO"),
    (SIGXFSZ, "SIGXFSZ"),
    #[cfg(target_os = "linux")]
    (libc::SIGPWR, "SIGPWR"),
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    (libc::SIGSTKFLT, "SIGSTKFLT"),
];

/// The thread that hears signals. Dropping it ends the thread; the signals stay caught.
pub struct Signals {
    pipe: UnixStream,
    _thread: Thread,
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The thread's read ends with this; it fails only when the pipe is gone already.
        let _ = self.pipe.shutdown(Shutdown::Both);
    }
}

impl Signals {
    /// Calls `on_end` on a thread of its own at each signal that asks for the end.
    ///
    /// Errors: the system gives no pipe, handler or thread.
    pub fn start(on_end: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let listen = |signal: i32| -> io::Result<Arc<AtomicBool>> {
            let came = Arc::new(AtomicBool::new(false));
            // In the order in which they are done: the note stands when the byte arrives.
            signal_hook::flag::register(signal, Arc::clone(&came))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
            Ok(came)
        };
        let ending = ENDING.into_iter().map(listen).collect::<io::Result<Vec<_>>>()?;
        let meaningless = MEANINGLESS
            .iter()
            .map(|(signal, name)| Ok((listen(*signal)?, *name)))
            .collect::<io::Result<Vec<_>>>()?;
        let pipe = reader.try_clone()?;
        let thread = Thread::spawn("signals", move || {
            while wait(&reader) {
                for (came, name) in &meaningless {
                    if came.swap(false, Ordering::SeqCst) {
                        log::warn!("{name} means nothing here and was ignored; SIGTERM ends this program");
                    }
                }
                if ending.iter().any(|came| came.swap(false, Ordering::SeqCst)) {
                    on_end();
                }
            }
        })?;
        Ok(Self { pipe, _thread: thread })
    }
}

/// Waits for a byte; `false` at the end of the pipe.
fn wait(mut reader: &UnixStream) -> bool {
    loop {
        match reader.read(&mut [0_u8; 1]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result.is_ok_and(|n| n > 0),
        }
    }
}
