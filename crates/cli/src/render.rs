//! How values look to people: tables, ages, token counts. Pure.

use std::time::Duration;
use svc_base::time::Time;
use svc_base::untrusted::{untrusted_prose, untrusted_text};

/// Columns between two cells of a table.
const GAP: usize = 2;
/// A column is not cut below this many columns of the terminal, unless its content is narrower.
const MIN_CELL: usize = 6;
/// The last column, which is prose, gives way first, but keeps this much while others are wider.
const MIN_PROSE: usize = 24;

/// Colours and weights; the numbers are SGR parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Headings and names.
    Bold,
    /// What matters less.
    Dim,
    /// What went wrong.
    Red,
    /// What went well.
    Green,
    /// What needs attention.
    Yellow,
    /// Links and tools.
    Cyan,
    /// Names.
    Magenta,
    /// Names.
    Blue,
}

impl Style {
    /// `text` in this style.
    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Bold => 1,
            Self::Dim => 2,
            Self::Red => 31,
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Blue => 34,
            Self::Magenta => 35,
            Self::Cyan => 36,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// The style of an agent's status or of a check's outcome.
    pub fn of_status(status: &str) -> Option<Self> {
        match status {
            "completed" | "ok" | "yes" => Some(Self::Green),
            "crashed" | "fail" => Some(Self::Red),
            "running" | "starting" => Some(Self::Cyan),
            "waiting" | "rotating" | "limited" | "queued" | "interrupted" | "warn" => Some(Self::Yellow),
            "killed" => Some(Self::Dim),
            _ => None,
        }
    }
}

/// A table that is aligned and cut to the terminal.
#[derive(Debug, Default)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    numeric: Vec<usize>,
    status_column: Option<usize>,
    optional: Vec<usize>,
}

impl Table {
    /// A table with these headings.
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), ..Self::default() }
    }

    /// Columns (from 0) that are aligned to the right.
    #[must_use]
    pub fn numeric(mut self, columns: &[usize]) -> Self {
        self.numeric = columns.to_vec();
        self
    }

    /// The column (from 0) that is coloured by its word.
    #[must_use]
    pub fn status_column(mut self, column: usize) -> Self {
        self.status_column = Some(column);
        self
    }

    /// Columns (from 0) that are left out of a terminal too narrow for all, in this order.
    #[must_use]
    pub fn optional(mut self, columns: &[usize]) -> Self {
        self.optional = columns.to_vec();
        self
    }

    /// This table without a column.
    fn without(&self, column: usize) -> Self {
        let moved = |other: usize| other - usize::from(other > column);
        let kept =
            |columns: &[usize]| columns.iter().copied().filter(|at| *at != column).map(moved).collect();
        let mut narrow = Self {
            header: self.header.clone(),
            rows: self.rows.clone(),
            numeric: kept(&self.numeric),
            status_column: self.status_column.filter(|at| *at != column).map(moved),
            optional: kept(&self.optional),
        };
        narrow.header.remove(column);
        for row in &mut narrow.rows {
            row.remove(column);
        }
        narrow
    }

    /// Adds a row; missing cells are empty, each cell is one line of harmless characters.
    pub fn row(&mut self, cells: &[String]) {
        let mut cells: Vec<String> = cells.iter().map(|cell| one_line(cell)).collect();
        cells.resize(self.header.len(), String::new());
        self.rows.push(cells);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The columns that its cells take.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.header.iter().map(|title| text_width(title)).collect();
        for row in &self.rows {
            for (slot, cell) in widths.iter_mut().zip(row) {
                *slot = (*slot).max(text_width(cell));
            }
        }
        widths
    }

    /// The lines, heading first. With a width, no line is wider: optional columns are left out, then the
    /// widest are cut, the last one (which is prose) first.
    pub fn lines(&self, width: Option<usize>, colour: bool) -> Vec<String> {
        let mut widths = self.widths();
        if let Some(width) = width {
            let (last, others) = widths.split_last().map_or((0, &[][..]), |(last, rest)| (*last, rest));
            let least = others.iter().sum::<usize>() + GAP * others.len() + last.min(MIN_PROSE);
            if let Some(column) = self.optional.first().filter(|_| least > width) {
                return self.without(*column).lines(Some(width), colour);
            }
            shrink(&mut widths, width);
        }
        let header: Vec<String> = self.header.iter().map(|title| (*title).to_owned()).collect();
        let mut lines = vec![self.line(&header, &widths, colour.then_some(Style::Dim), false)];
        lines.extend(self.rows.iter().map(|row| self.line(row, &widths, None, colour)));
        lines
    }

    fn line(&self, cells: &[String], widths: &[usize], whole: Option<Style>, colour: bool) -> String {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let text = cut(cell, *width);
            let pad = " ".repeat(width.saturating_sub(text_width(&text)));
            let style = Style::of_status(cell).filter(|_| colour && self.status_column == Some(column));
            let text = style.map_or_else(|| text.clone(), |style| style.paint(&text));
            if column > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            if self.numeric.contains(&column) {
                line.push_str(&pad);
                line.push_str(&text);
            } else {
                line.push_str(&text);
                line.push_str(&pad);
            }
        }
        let line = line.trim_end();
        whole.map_or_else(|| line.to_owned(), |style| style.paint(line))
    }
}

/// Takes columns away until the sum fits: first from the last column, then from the widest.
fn shrink(widths: &mut [usize], width: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    if let Some(last) = widths.last_mut() {
        let take = excess.min(last.saturating_sub(MIN_PROSE));
        *last -= take;
        excess -= take;
    }
    while excess > 0 {
        let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > MIN_CELL) else { break };
        *widest -= 1;
        excess -= 1;
    }
    // What still does not fit goes from the right, down to nothing: a line never wraps.
    for slot in widths.iter_mut().rev() {
        let take = excess.min(*slot);
        *slot -= take;
        excess -= take;
    }
}

/// Columns a character takes on a terminal: 0 for combining marks and joiners, 2 for East Asian wide
/// characters and emoji, else 1. A simple table, not all of Unicode.
pub fn char_width(c: char) -> usize {
    match u32::from(c) {
        0x00..=0x1f | 0x7f..=0x9f | 0x300..=0x36f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Columns a text takes.
pub fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// The text cut to so many columns, with `…` where something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + char_width(c) + 1 > width {
            break;
        }
        used += char_width(c);
        kept.push(c);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// Text with its lines; what could steer the terminal or mislead the eye is shown as an escape, a tab as a
/// space.
pub fn clean(text: &str) -> String {
    untrusted_text(text).replace('\t', " ")
}

/// [`clean`], on one line: runs of white space become one space.
pub fn one_line(text: &str) -> String {
    untrusted_prose(text)
}

/// A length of time in its largest unit: `8s`, `3m`, `2h`, `5d`.
pub fn age(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The age at `now` of an RFC 3339 time; `-` when it is none.
pub fn age_of(stamp: &str, now: Time) -> String {
    Time::parse(stamp).map_or_else(|| "-".into(), |time| age(now.since(time)))
}

/// A count with three digits at most: `950`, `12.4k`, `1.2M`.
pub fn count(n: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = n / (unit / 10);
        if tenths >= 1000 { format!("{}", tenths / 10) } else { format!("{}.{}", tenths / 10, tenths % 10) }
    };
    match n {
        0..1000 => n.to_string(),
        1000..1_000_000 => format!("{}k", tenths(1000)),
        1_000_000..1_000_000_000 => format!("{}M", tenths(1_000_000)),
        _ => format!("{}G", tenths(1_000_000_000)),
    }
}

/// A fraction as whole per cent: `0.42` is `42%`; `-` when it is no number.
pub fn percent(fraction: f64) -> String {
    if fraction.is_finite() { format!("{:.0}%", fraction * 100.0) } else { "-".into() }
}

/// Dollars: `$0.02`, and `<$0.01` for less.
pub fn dollars(amount: f64) -> String {
    if amount > 0.0 && amount < 0.005 { "<$0.01".into() } else { format!("${amount:.2}") }
}

/// Reads a length of time: `30s`, `10m`, `2h`, `1d`, `500ms`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let n: u64 = digits.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    n.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_counts_and_fractions_are_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (90_000, "1d")] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.0k"),
            (12_449, "12.4k"),
            (123_456, "123k"),
            (999_999, "999k"),
            (1_250_000, "1.2M"),
            (3_000_000_000, "3.0G"),
        ] {
            assert_eq!(count(n), text);
        }
        assert_eq!(
            (percent(0.4249), percent(1.0), percent(f64::NAN)),
            ("42%".into(), "100%".into(), "-".into())
        );
        assert_eq!(
            (dollars(0.0), dollars(0.001), dollars(1.239)),
            ("$0.00".into(), "<$0.01".into(), "$1.24".into())
        );
        assert_eq!(age_of("1970-01-01T00:00:00Z", Time(180_000)), "3m");
        assert_eq!(age_of("yesterday", Time(0)), "-");
    }

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, millis) in [("30s", 30_000), ("5", 5000), ("2m", 120_000), ("1h", 3_600_000), ("7ms", 7)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "s", "1w", "-1s", "1.5h", "99999999999999999999d", "18446744073709551615d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_is_measured_in_columns_and_cut_at_its_end() {
        assert_eq!(text_width("a日e\u{301}"), 4);
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("abcd", 0), "");
    }

    #[test]
    fn nothing_that_steers_or_hides_reaches_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\r\n\tc\u{9b}d\u{202e}"), "a\\u{1b}[31mb\n c\\u{9b}d\\u{202e}");
        assert_eq!(one_line("a \n\n b\x07\u{200b}"), "a b\\u{7}\\u{200b}");
    }

    fn sample() -> Table {
        let mut table = Table::new(&["NAME", "N", "DOING"]).numeric(&[1]).status_column(0);
        table.row(&["completed".into(), "5".into(), "writing the whole of a long file".into()]);
        table.row(&["b".into(), "12.4k".into()]);
        table
    }

    #[test]
    fn tables_align_and_end_without_blanks() {
        assert_eq!(
            sample().lines(None, false),
            [
                "NAME           N  DOING",
                "completed      5  writing the whole of a long file",
                "b          12.4k"
            ]
        );
        assert!(sample().lines(None, true)[1].starts_with("\x1b[32mcompleted\x1b[0m "));
    }

    #[test]
    fn optional_columns_go_before_others_are_cut() {
        let mut table = Table::new(&["NAME", "ID", "N", "DOING"]).numeric(&[2]).optional(&[1, 0]);
        table.row(&["tester".into(), "12345678".into(), "12".into(), "writing the whole of a file".into()]);
        let row = |width| table.lines(Some(width), false)[1].clone();
        assert_eq!(row(60), "tester  12345678  12  writing the whole of a file");
        assert_eq!(row(40), "tester  12  writing the whole of a file");
        assert_eq!(row(30), "12  writing the whole of a fi…");
    }

    #[test]
    fn tables_fit_the_terminal_however_narrow_it_is() {
        for width in 0..60 {
            for line in sample().lines(Some(width), false) {
                assert!(text_width(&line) <= width.max(2 * GAP), "{width}: {line:?}");
            }
        }
        assert_eq!(sample().lines(Some(30), false)[1], "completed      5  writing the…");
    }
}
