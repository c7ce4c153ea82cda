//! What a program prints.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use svc_sys::sockets::set_nonblocking;

/// One of the program's outputs.
pub(crate) struct Output {
    pub pipe: Option<File>,
    pub is_err: bool,
    /// Bytes that may still be read, once every process of the run is gone.
    pub left: Option<usize>,
}

impl Output {
    pub fn new(pipe: Option<File>, is_err: bool) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            set_nonblocking(pipe.as_fd())?;
        }
        Ok(Self { pipe, is_err, left: None })
    }

    /// Reads once. The number of bytes, 0 when there are none now; at its end the pipe is closed.
    pub fn read(&mut self, chunk: &mut [u8]) -> usize {
        let Some(pipe) = &mut self.pipe else { return 0 };
        let most = self.left.map_or(chunk.len(), |left| left.min(chunk.len()));
        match pipe.read(&mut chunk[..most]) {
            Ok(count) if count > 0 => {
                self.left = self.left.map(|left| left - count);
                count
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Ok(_) | Err(_) => {
                self.pipe = None;
                0
            }
        }
    }
}
