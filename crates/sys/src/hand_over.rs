//! Giving an open socket to another process of this user, with the bytes that were read of it.
//!
//! **Invariant:** what is given is served by one side alone. The receiver says that it is ready, and serves
//! when the giver has said that it is so; a giver that has waited for too long says nothing any more.
//!
//! Source: unix(7): `SCM_RIGHTS`.
#![allow(unsafe_code, reason = "sendmsg, recvmsg, and a connect that never waits")]

use crate::sockets::{own_uid, peer};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that come with a connection.
pub const AHEAD_BYTES_MAX: usize = 128 << 10;
/// All of an exchange must be over by then.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Room for one descriptor; another one that comes with it is closed by the kernel, and all is refused.
const CONTROL_WORDS: usize = 4;
/// The receiver is ready.
const READY: u8 = b'k';
/// The giver has let go.
const YOURS: u8 = b'g';

/// Gives a socket: first this byte with it, then what was read.
///
/// Errors: the other side did not take it in time, and will not.
pub fn give(over: &UnixStream, kind: u8, socket: BorrowedFd<'_>, ahead: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let length = u32::try_from(ahead.len()).ok().filter(|_| ahead.len() <= AHEAD_BYTES_MAX);
    let length = length.ok_or_else(|| bad("more was read than can be given"))?;
    over.set_write_timeout(Some(PATIENCE))?;
    send(over, kind, socket)?;
    let mut writer = over;
    writer.write_all(&length.to_be_bytes())?;
    writer.write_all(ahead)?;
    if read_byte(over, until)? != READY {
        return Err(bad("it was not taken"));
    }
    writer.write_all(&[YOURS])
}

/// Takes what came with a first byte of [`receive`]: the bytes that were read of the socket.
///
/// Errors: too many bytes, or the giver has let it be.
pub fn take(over: &UnixStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    over.set_write_timeout(Some(PATIENCE))?;
    let mut length = [0; 4];
    read_exact(over, &mut length, until)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > AHEAD_BYTES_MAX {
        return Err(bad("more came than can be taken"));
    }
    let mut ahead = vec![0; length];
    read_exact(over, &mut ahead, until)?;
    let mut writer = over;
    writer.write_all(&[READY])?;
    if read_byte(over, until)? == YOURS { Ok(ahead) } else { Err(bad("it was not given")) }
}

/// The first byte of an exchange, and the socket that came with it.
///
/// Errors: nothing came in time, the other end is gone, more than one socket.
pub fn receive(over: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    over.set_read_timeout(Some(PATIENCE))?;
    let mut byte = [0_u8];
    let mut control = [0_usize; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: all zeroes are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: it only computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
    #[cfg(target_os = "linux")]
    let flags = libc::MSG_CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = 0;
    // SAFETY: all that the message names outlives the call, and is as long as it says.
    let got = unsafe { libc::recvmsg(over.as_raw_fd(), &raw mut message, flags) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the buffer, and said how far; a header has the length that it tells.
    let socket = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_socket = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len >= libc::CMSG_LEN(4).try_into().unwrap_or(0);
        is_socket
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned()))
    };
    if got == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(bad("more than one socket came"));
    }
    Ok((byte[0], socket))
}

/// Sends one byte and a socket with it.
///
/// Errors: the other end is gone, or takes nothing.
pub fn send(over: &UnixStream, byte: u8, socket: BorrowedFd<'_>) -> io::Result<()> {
    let byte = [byte];
    let mut control = [0_usize; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: byte.as_ptr().cast_mut().cast(), iov_len: 1 };
    // SAFETY: all zeroes are a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the buffer is aligned for a header and has room for it and one descriptor; what the message
    // names outlives the call.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(socket.as_raw_fd());
        libc::sendmsg(over.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The process at the other end, 0 where the system does not tell.
///
/// Errors: it is another user's.
pub fn own_peer(over: &UnixStream) -> io::Result<u32> {
    let peer = peer(over)?;
    if peer.uid == own_uid() { Ok(peer.pid) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// A path to `name` in an open folder that is short, however long the folder's is.
fn short(folder: &std::fs::File, path: &Path, name: &str) -> PathBuf {
    if cfg!(target_os = "linux") {
        return Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    }
    path.join(name)
}

/// Listens at `name` in a folder, in the place of whoever did before.
pub fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let open = std::fs::File::open(folder)?;
    std::fs::remove_file(folder.join(name)).or_else(crate::files::missing_is_fine)?;
    let listener = UnixListener::bind(short(&open, folder, name))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(folder.join(name), mode)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to `name` in a folder. Waits for nobody: who has too many before us counts as silent.
///
/// Errors: nobody listens, or it is busy.
pub fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let open = std::fs::File::open(folder)?;
    let path = short(&open, folder, name);
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeroes are an address without a path.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).unwrap_or_default();
    if bytes.len() >= address.sun_path.len() {
        return Err(bad("the path of the socket is too long"));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(bytes) {
        *slot = libc::c_char::from_ne_bytes([*byte]);
    }
    // SAFETY: a new descriptor, which nobody else has.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        UnixStream::from_raw_fd(fd)
    };
    // SAFETY: fcntl on an open descriptor with number arguments.
    unsafe { libc::fcntl(stream.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    stream.set_nonblocking(true)?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_un>()).unwrap_or(0);
    // SAFETY: the address outlives the call, and is as long as it says.
    if unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn read_byte(over: &UnixStream, until: Instant) -> io::Result<u8> {
    let mut byte = [0];
    read_exact(over, &mut byte, until).map(|()| byte[0])
}

fn read_exact(mut over: &UnixStream, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        over.set_read_timeout(Some(left))?;
        match over.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = &mut into[n..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn bad(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::thread;

    #[test]
    fn a_socket_travels_with_what_was_read_of_it() {
        let (giver, taker) = UnixStream::pair().unwrap();
        let (mut client, served) = UnixStream::pair().unwrap();
        let taken = thread::spawn(move || {
            let (kind, socket) = receive(&taker).unwrap();
            let ahead = take(&taker).unwrap();
            (kind, UnixStream::from(socket.unwrap()), ahead)
        });
        give(&giver, b'c', served.as_fd(), b"GET /").unwrap();
        drop(served);
        let (kind, mut socket, ahead) = taken.join().unwrap();
        assert_eq!((kind, ahead.as_slice()), (b'c', &b"GET /"[..]));
        socket.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }

    #[test]
    fn what_the_giver_has_given_up_is_not_taken() {
        let (giver, taker) = UnixStream::pair().unwrap();
        let (_client, served) = UnixStream::pair().unwrap();
        // It does not look for as long as the giver has patience.
        let error = give(&giver, b'c', served.as_fd(), b"POST /").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
        drop(giver);
        assert!(receive(&taker).unwrap().1.is_some());
        assert!(take(&taker).is_err(), "the request was answered by somebody else");
    }

    #[test]
    fn sizes_are_held() {
        let (giver, taker) = UnixStream::pair().unwrap();
        let long = vec![0; AHEAD_BYTES_MAX + 1];
        assert!(give(&giver, b'c', giver.as_fd(), &long).is_err());
        (&giver).write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(take(&taker).is_err());
    }

    #[test]
    fn a_socket_is_found_however_long_its_folder_is() {
        let base = std::env::temp_dir().join(format!("svc-hand-over-{}", std::process::id()));
        let folder = base.join("a".repeat(120));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(connect(&folder, "x.sock").is_err());
        let listener = listen(&folder, "x.sock").unwrap();
        let near = connect(&folder, "x.sock").unwrap();
        assert!(!cfg!(target_os = "linux") || own_peer(&near).unwrap() == std::process::id());
        drop(listener);
        assert!(connect(&folder, "x.sock").is_err(), "nobody listens any more");
        listen(&folder, "x.sock").unwrap();
        std::fs::remove_dir_all(&base).unwrap();
    }
}
