//! The terminal behind the command line: how wide it is, how to leave it, and how to take all of it.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Columns of the terminal that standard output writes to; `None` when it is none, or does not tell.
pub fn stdout_columns() -> Option<usize> {
    stdout_size().map(|(columns, _)| columns)
}

/// Columns and lines of the terminal that standard output writes to; `None` when it is none, or does not
/// tell.
#[allow(unsafe_code)]
pub fn stdout_size() -> Option<(usize, usize)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one `winsize` through the pointer, which lives until the call returns; on
    // any failure it writes nothing and answers -1.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then(|| (usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Makes the child start a session of its own, so that neither ctrl-c nor the end of this terminal reaches
/// it.
#[allow(unsafe_code)]
pub fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure runs between fork and exec; it calls only `setsid`, which is async-signal-safe,
    // and reads errno. It allocates nothing.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Asks a question on standard error and reads one line from the terminal on standard input, without
/// showing it.
///
/// Errors: standard input is no terminal, or cannot be read.
#[allow(unsafe_code)]
pub fn ask_hidden(question: &str) -> std::io::Result<String> {
    // SAFETY: an all-zero `termios` is a valid value of this plain structure.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live structure that the call fills.
    if unsafe { libc::tcgetattr(libc::STDIN_FILENO, &raw mut settings) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let before = settings;
    settings.c_lflag &= !libc::ECHO;
    settings.c_lflag |= libc::ECHONL;
    // SAFETY: the pointers are to live structures that the calls only read.
    let set = |settings: &libc::termios| unsafe {
        libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, std::ptr::from_ref(settings))
    };
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    if set(&settings) != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    set(&before);
    read.map(|_| line)
}

/// The other screen, without a cursor; and the way back, with one.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Bytes of keys that are read at once; more come with the next read.
const KEYS_BYTES: usize = 256;
/// The same for what goes to another program, where a whole text may be pasted.
const THROUGH_BYTES: usize = 16 << 10;

/// Why [`Screen::wait`] returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// These bytes were typed.
    Keys(Vec<u8>),
    /// The [`Waker`] was called, the window has another size, or the time is over.
    Look,
    /// A signal, or the end of the terminal, asks to end.
    End,
}

/// Ends the wait of a [`Screen`] from another thread.
#[derive(Debug)]
pub struct Waker(UnixStream);

impl Waker {
    /// Wakes it. A pipe that is full wakes it already.
    pub fn wake(&self) {
        let _ = (&self.0).write(&[1]);
    }
}

/// The whole terminal: keys come unechoed and one by one, on a screen of its own. Dropping it, a panic and
/// the usual signals give the terminal back as it was.
pub struct Screen {
    before: libc::termios,
    pipe: UnixStream,
    writer: UnixStream,
    ended: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal on standard input and output.
    ///
    /// Errors: one of them is no terminal, or the system refuses.
    #[allow(unsafe_code)]
    pub fn take() -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
        // SAFETY: an all-zero `termios` is a valid value of this plain structure.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live structure that the call fills.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, &raw mut settings) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let before = settings;
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::clone(&ended))?;
        }
        // The flag stands before the byte that tells of it.
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        let screen = Self { before, pipe, writer, ended };
        // A panic prints its message before anything is dropped: it must find the usual screen.
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&before);
            usual(panic);
        }));
        // Without ISIG ctrl-c is a key like others, and ctrl-z cannot leave a screen without echo behind.
        settings.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG | libc::IEXTEN);
        settings.c_iflag &= !(libc::IXON | libc::ICRNL);
        settings.c_cc[libc::VMIN] = 1;
        settings.c_cc[libc::VTIME] = 0;
        set(&settings)?;
        let mut stdout = io::stdout().lock();
        stdout.write_all(ENTER)?;
        stdout.flush()?;
        Ok(screen)
    }

    /// What ends [`Self::wait`].
    pub fn waker(&self) -> io::Result<Waker> {
        Ok(Waker(self.writer.try_clone()?))
    }

    /// Waits for a key, a waker or a signal, at most so long.
    #[allow(unsafe_code)]
    pub fn wait(&self, limit: Duration) -> io::Result<Wake> {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [watch(libc::STDIN_FILENO), watch(self.pipe.as_raw_fd())];
        let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the pointer and the count are of the live array, which the call fills.
        let answer = unsafe { libc::poll(fds.as_mut_ptr(), 2, limit_ms) };
        if answer < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut told = [0_u8; KEYS_BYTES];
        while (&self.pipe).read(&mut told).is_ok_and(|n| n > 0) {}
        if self.ended.load(Ordering::SeqCst) {
            return Ok(Wake::End);
        }
        if answer <= 0 || fds[0].revents == 0 {
            return Ok(Wake::Look);
        }
        let mut keys = [0_u8; KEYS_BYTES];
        // SAFETY: the pointer and the length are of the live array, which the call fills. The bytes are
        // read past Rust's buffer of standard input, which `poll` cannot see.
        let n = unsafe { libc::read(libc::STDIN_FILENO, keys.as_mut_ptr().cast(), KEYS_BYTES) };
        match usize::try_from(n) {
            Ok(0) => Ok(Wake::End),
            Ok(n) => Ok(Wake::Keys(keys[..n].to_vec())),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Ok(Wake::Look),
            Err(_) => Ok(Wake::End),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.before);
    }
}

/// Sets the terminal's modes at once.
#[allow(unsafe_code)]
fn set(settings: &libc::termios) -> io::Result<()> {
    // SAFETY: the pointer is to a live structure that the call only reads.
    match unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, std::ptr::from_ref(settings)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The modes as they were, and the usual screen. A terminal that is gone needs neither.
fn give_back(before: &libc::termios) {
    let _ = set(before);
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(LEAVE).and_then(|()| stdout.flush());
}

/// The terminal on standard input and output for a program elsewhere: every key goes there as it is. Dropping
/// it gives the terminal back as it was.
pub struct Through {
    before: libc::termios,
    keys: File,
    news: UnixStream,
    ended: Arc<AtomicBool>,
}

/// What a program on the other screen may have left switched on: its screen, its cursor, keys and pointer
/// told in other ways, colours.
const SWITCH_OFF: &[u8] =
    b"\x1b[<u\x1b[>4m\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\
    \x1b[?2031l\x1b[?1049l\x1b[?25h\x1b[0m\r\n";

impl Through {
    /// Takes it.
    ///
    /// Errors: standard input or output is no terminal, or the system refuses.
    #[allow(unsafe_code)]
    pub fn take() -> io::Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGTERM, SIGWINCH};
        let keys = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        // SAFETY: an all-zero `termios` is a valid value of this plain structure.
        let mut settings: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live structure that the call fills.
        if !io::stdout().is_terminal() || unsafe { libc::tcgetattr(keys.as_raw_fd(), &raw mut settings) } != 0
        {
            return Err(io::Error::other("standard input and output must be a terminal"));
        }
        let before = settings;
        let (news, writer) = UnixStream::pair()?;
        news.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&ended))?;
        }
        // The flag stands before the byte that tells of it.
        for signal in [SIGHUP, SIGTERM, SIGWINCH] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        // SAFETY: the pointer is to a live structure that the call changes.
        unsafe { libc::cfmakeraw(&raw mut settings) };
        set(&settings)?;
        Ok(Self { before, keys, news, ended })
    }

    /// Readable when something was typed.
    pub fn keys(&self) -> BorrowedFd<'_> {
        self.keys.as_fd()
    }

    /// Readable when the window has another size, or a signal asks to end.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Takes in what was readable there; whether a signal asks to end.
    pub fn is_asked_to_end(&self) -> bool {
        let mut told = [0_u8; KEYS_BYTES];
        while (&self.news).read(&mut told).is_ok_and(|n| n > 0) {}
        self.ended.load(Ordering::SeqCst)
    }

    /// What was typed; nothing where the terminal is gone.
    pub fn typed(&self) -> Vec<u8> {
        let mut keys = vec![0; THROUGH_BYTES];
        let count = (&self.keys).read(&mut keys).unwrap_or(0);
        keys.truncate(count);
        keys
    }
}

impl Drop for Through {
    fn drop(&mut self) {
        let mut stdout = io::stdout().lock();
        // A terminal that is gone needs neither.
        let _ = stdout.write_all(SWITCH_OFF).and_then(|()| stdout.flush());
        let _ = set(&self.before);
    }
}
