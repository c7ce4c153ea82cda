//! The terminal behind the command line: how wide it is, and how to leave it.

use std::process::Command;

/// Columns of the terminal that standard output writes to; `None` when it is none, or does not tell.
#[allow(unsafe_code)]
pub fn stdout_columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one `winsize` through the pointer, which lives until the call returns; on
    // any failure it writes nothing and answers -1.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
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
    use std::io::Write;
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
