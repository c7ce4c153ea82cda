//! The threads at the pipes of a server, and its log.

use super::protocol::Step;
use super::worker::{Item, Server};
use crossbeam_channel::Receiver;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use svc_base::bounded;
use svc_base::sorted;
use svc_sys::clock;
use svc_sys::process::{Progress, Sink, Source};
use svc_sys::threads::lock;

/// Bytes of one message of a server; a longer one fails the calls that wait.
pub const LINE_LIMIT_BYTES: usize = 16 << 20;
/// Bytes of one line in the log; the rest is cut.
const LOG_LINE_BYTES: usize = 4 << 10;
/// Bytes of a log, above which it is renamed to `<id>.log.1` and begun anew.
const LOG_BYTES: u64 = 1 << 20;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a server may leave its standard input full before it is looked whether it is to end.
const STUCK: Duration = Duration::from_secs(1);
/// Lines of standard error kept for the message when the server ends.
const LAST_LINES: usize = 3;
/// Shorter values are not masked: they would hide ordinary words.
const MASKED_MIN_CHARS: usize = 6;

/// The log of a server, `.svc/logs/integrations/<id>.log`. Values of its credentials are never in it.
pub struct ServerLog {
    path: PathBuf,
    secrets: Mutex<Vec<String>>,
    inner: Mutex<LogFile>,
}

#[derive(Default)]
struct LogFile {
    file: Option<File>,
    bytes: u64,
    last: VecDeque<String>,
}

impl ServerLog {
    /// A log that hides nothing yet.
    pub fn new(project: &Path, id: &str) -> Self {
        let path = project.join(".svc/logs/integrations").join(format!("{id}.log"));
        Self { path, secrets: Mutex::default(), inner: Mutex::default() }
    }

    /// Has these values hidden from now on.
    pub fn hide(&self, mut secrets: Vec<String>) {
        secrets.retain(|value| value.chars().count() >= MASKED_MIN_CHARS);
        // A value may be a part of another.
        sorted::by_key(&mut secrets, |value| std::cmp::Reverse(value.len()));
        *lock(&self.secrets) = secrets;
    }

    /// `text` without the values of credentials.
    pub fn masked(&self, text: &str) -> String {
        lock(&self.secrets).iter().fold(text.to_owned(), |text, secret| text.replace(secret, "****"))
    }

    /// Writes a line. A log that cannot be written costs its lines, no more.
    pub fn line(&self, stream: &str, text: &str) {
        let end = text.char_indices().take_while(|(at, _)| *at < LOG_LINE_BYTES).last();
        let cut = end.map_or("", |(at, c)| &text[..at + c.len_utf8()]);
        let text = self.masked(cut.trim_end());
        let mut log = lock(&self.inner);
        if stream == "err" && !text.trim().is_empty() {
            bounded::push(&mut log.last, text.clone(), LAST_LINES);
        }
        let line = format!("{} {stream} {text}\n", clock::now());
        if log.file.is_none() || log.bytes + line.len() as u64 > LOG_BYTES {
            log.open(&self.path);
        }
        if let Some(file) = &mut log.file
            && file.write_all(line.as_bytes()).is_ok()
        {
            log.bytes += line.len() as u64;
        }
    }

    /// The last lines of standard error, in one line.
    pub fn last_words(&self) -> Option<String> {
        let log = lock(&self.inner);
        let words = log.last.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
        (!words.is_empty()).then_some(words)
    }
}

impl LogFile {
    fn open(&mut self, path: &Path) {
        let open = || -> std::io::Result<(File, u64)> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let is_long = fs::metadata(path).is_ok_and(|meta| meta.len() + LOG_LINE_BYTES as u64 > LOG_BYTES);
            if is_long {
                fs::rename(path, path.with_extension("log.1"))?;
            }
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        };
        match open() {
            Ok((file, bytes)) => (self.file, self.bytes) = (Some(file), bytes),
            Err(error) => {
                log::warn!("{} cannot be written: {error}", path.display());
                self.file = None;
            }
        }
    }
}

/// Splits bytes into lines, none longer than a limit.
struct Lines {
    line: Vec<u8>,
    is_overlong: bool,
    limit: usize,
}

/// A line, or that one was above the limit.
enum Line<'a> {
    Whole(&'a [u8]),
    Overlong,
}

impl Lines {
    fn new(limit: usize) -> Self {
        Self { line: Vec::new(), is_overlong: false, limit }
    }

    fn feed(&mut self, bytes: &[u8], mut give: impl FnMut(Line)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            let part = text.unwrap_or(piece);
            if self.line.len() + part.len() > self.limit {
                self.is_overlong = true;
                self.line = Vec::new();
            } else if !self.is_overlong {
                self.line.extend_from_slice(part);
            }
            if text.is_some() {
                self.end(&mut give);
            }
        }
    }

    fn end(&mut self, give: &mut impl FnMut(Line)) {
        if std::mem::take(&mut self.is_overlong) {
            give(Line::Overlong);
        } else if self.line.iter().any(|byte| !byte.is_ascii_whitespace()) {
            give(Line::Whole(&self.line));
        }
        self.line.clear();
        self.line.shrink_to(CHUNK_BYTES);
    }
}

/// Standard output: messages, and whatever else a server prints there.
pub(super) fn read_output(server: &Server, source: Source) {
    each_line(source, LINE_LIMIT_BYTES, |line| match line {
        Line::Whole(line) => server.heard(line),
        Line::Overlong => {
            let mut steps = Vec::new();
            let why = format!("its answer is above {} MiB", LINE_LIMIT_BYTES >> 20);
            lock(&server.client).fail_all(&why, &mut steps);
            server.perform(steps, |_| {});
        }
    });
}

/// Standard error: its log.
pub(super) fn read_errors(server: &Server, source: Source) {
    each_line(source, LINE_LIMIT_BYTES, |line| match line {
        Line::Whole(line) => server.log.line("err", &String::from_utf8_lossy(line)),
        Line::Overlong => server.log.line("note", "a line of its standard error was too long"),
    });
}

fn each_line(mut source: Source, limit: usize, mut give: impl FnMut(Line)) {
    let mut lines = Lines::new(limit);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match source.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(count) => lines.feed(&chunk[..count], &mut give),
        }
    }
    lines.end(&mut give);
}

/// Standard input: what the protocol wants written, until the orders end.
pub(super) fn write_input(server: &Server, mut sink: Sink, orders: &Receiver<Item>) {
    while let Ok(item) = orders.recv() {
        let mut steps = Vec::new();
        match item {
            Item::Line(line) => steps.push(Step::Write(line)),
            Item::Ask(call, ask) => lock(&server.client).ask(call, &ask, &mut steps),
            Item::Cancel(call) => {
                lock(&server.client).cancel(call, "no answer within 30 s", &mut steps);
            }
        }
        let mut is_open = true;
        server.perform(steps, |line| is_open = is_open && write(&mut sink, line.as_bytes()));
        if !is_open {
            // It reads no more; its end, if it comes, is told by its exit.
            return;
        }
    }
}

/// `false` when the pipe is closed or the server is being ended.
fn write(sink: &mut Sink, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match sink.write_some(bytes, STUCK) {
            Ok(Progress::Wrote(count)) => bytes = &bytes[count..],
            Ok(Progress::Full) => {}
            Ok(Progress::Ended) | Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_11_lines_come_whole_and_an_overlong_one_is_told_once() {
        let mut lines = Lines::new(4);
        let mut found = Vec::new();
        let mut give = |line: Line| {
            found.push(match line {
                Line::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Line::Overlong => "TOO LONG".into(),
            });
        };
        for piece in [b"ab".as_slice(), b"cd\n\n \nabc", b"de", b"f\nxy\nlast"] {
            lines.feed(piece, &mut give);
        }
        lines.end(&mut give);
        assert_eq!(found, ["abcd", "TOO LONG", "xy", "last"]);
    }

    #[test]
    fn credentials_are_masked_longest_first() {
        let log = ServerLog::new(Path::new("/p"), "x");
        log.hide(vec!["secret".into(), "secret-longer".into(), "a".into()]);
        assert_eq!(log.masked("a secret-longer and secret"), "a **** and ****");
    }
}
