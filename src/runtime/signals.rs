//! SIGTERM, SIGINT and SIGHUP, by self-pipe: the handler writes a byte, a thread reads it.

use super::threads::Thread;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

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
    /// Calls `on_signal` on a thread of its own at each signal.
    pub fn start(on_signal: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (mut reader, writer) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        let pipe = reader.try_clone()?;
        let thread = Thread::spawn("signals", move || {
            let mut byte = [0_u8; 1];
            while reader.read(&mut byte).is_ok_and(|n| n > 0) {
                on_signal();
            }
        })?;
        Ok(Self { pipe, _thread: thread })
    }
}
