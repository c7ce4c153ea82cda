//! What a wait looks like: one line on the terminal of standard error, rewritten while it lasts and wiped
//! at its end, so that pipes, logs and scripts never see it.

use super::render::{age, clean, cut};
use super::session::Out;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Waits shorter than this are not worth a line.
const PATIENCE: Duration = Duration::from_millis(700);
/// Between two looks of the line.
const TICK: Duration = Duration::from_millis(120);
/// Columns of a full bar.
const BAR_COLUMNS: usize = 20;
/// Columns where the terminal does not tell.
const USUAL_COLUMNS: usize = 80;
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// The line of one wait. Dropping it wipes it.
pub struct Line {
    doing: String,
    shown: bool,
    columns: usize,
    began: Instant,
    looks: usize,
    is_drawn: bool,
}

impl Line {
    /// A wait that begins now. It shows on a terminal, unless `--quiet` keeps it back.
    pub fn new(out: &Out, doing: &str) -> Self {
        Self::with(doing, is_shown(out), out.width.unwrap_or(USUAL_COLUMNS))
    }

    fn with(doing: &str, shown: bool, columns: usize) -> Self {
        Self { doing: clean(doing), shown, columns, began: Instant::now(), looks: 0, is_drawn: false }
    }

    /// Shows how far it is: words, and per cent of what they tell.
    pub fn draw(&mut self, detail: &str, percent: Option<u8>) {
        if !self.shown || self.began.elapsed() < PATIENCE {
            return;
        }
        self.looks += 1;
        let text = look(&self.doing, detail, percent, self.looks, self.began.elapsed(), self.columns);
        self.is_drawn = true;
        write(&format!("\r\x1b[K{text}"));
    }

    /// Makes room for a line of output.
    pub fn wipe(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            write("\r\x1b[K");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Whether a line shows at all: standard error is a terminal and nobody wants silence.
pub fn is_shown(out: &Out) -> bool {
    !out.quiet && std::io::stderr().is_terminal()
}

/// Does `work`, and tells on the terminal what it is about once that takes longer than a moment.
pub fn during<T>(shown: bool, doing: &str, work: impl FnOnce() -> T) -> T {
    if !shown {
        return work();
    }
    let (done, is_done) = channel();
    std::thread::scope(|scope| {
        // Without a thread the wait is silent, and that is all.
        let _ = std::thread::Builder::new().spawn_scoped(scope, move || tick(doing, &is_done));
        let result = work();
        drop(done);
        result
    })
}

fn tick(doing: &str, is_done: &Receiver<()>) {
    let columns = svc_sys::terminal::stdout_columns().unwrap_or(USUAL_COLUMNS);
    let mut line = Line::with(doing, true, columns);
    let mut pause = PATIENCE;
    while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        line.draw("", None);
        pause = TICK;
    }
}

/// The line's text: `/ importing: Receiving objects [#####...............]  25%  3s`.
fn look(
    doing: &str,
    detail: &str,
    percent: Option<u8>,
    looks: usize,
    length: Duration,
    columns: usize,
) -> String {
    let mut text = doing.to_owned();
    let detail = clean(detail);
    if !detail.is_empty() {
        text = format!("{text}: {detail}");
    }
    let mut end = format!("  {}", age(length));
    if let Some(percent) = percent.map(|percent| usize::from(percent.min(100))) {
        let full = BAR_COLUMNS * percent / 100;
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_COLUMNS - full));
        end = format!(" [{bar}] {percent:3}%{end}");
    }
    // The last column stays free: some terminals wrap there.
    let room = columns.saturating_sub(end.len() + 3);
    cut(&format!("{} {}{end}", SPINNER[looks % SPINNER.len()], cut(&text, room)), columns.saturating_sub(1))
}

/// A closed standard error is nobody's loss.
fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::text_width;

    #[test]
    fn issue_7_progress_tells_what_how_far_and_how_long() {
        let three = Duration::from_secs(3);
        assert_eq!(
            look("importing", "Receiving objects", Some(25), 1, three, 80),
            "/ importing: Receiving objects [#####...............]  25%  3s"
        );
        assert_eq!(look("scanning", "", None, 0, three, 80), "| scanning  3s");
        assert_eq!(
            look("x", "a\x1b[2Jb", Some(200), 0, three, 80),
            "| x: a\\u{1b}[2Jb [####################] 100%  3s"
        );
        for columns in 0..100 {
            let text = look("importing", "Receiving objects", Some(25), 1, three, columns);
            assert!(text_width(&text) <= columns.saturating_sub(1), "{columns}: {text}");
        }
    }

    #[test]
    fn work_is_done_and_answered_whether_it_shows_or_not() {
        assert_eq!(during(false, "x", || 1), 1);
        assert_eq!(during(true, "x", || 2), 2);
    }
}
