//! Named threads that are joined when their handle is dropped.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Stack of a thread that does ordinary work.
const STACK_BYTES: usize = 512 << 10;

/// A running thread. Dropping the handle waits for its end, so whatever makes it end must be dropped or told
/// first: senders stand before handles in every struct.
#[derive(Debug)]
pub struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread with the usual stack.
    pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Self::with_stack(name, STACK_BYTES, body)
    }

    /// Starts a thread with a stack of its own size.
    pub fn with_stack(
        name: &str,
        stack_bytes: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let handle = Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(body)?;
        Ok(Self { handle: Some(handle) })
    }
}

impl Thread {
    /// Whether its body has ended, so that a drop does not wait.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let name = handle.thread().name().unwrap_or("a thread").to_owned();
        if handle.join().is_err() {
            log::error!("thread {name} had panicked");
        }
    }
}
