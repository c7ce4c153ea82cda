//! Documents whose examples are run, as they stand there, in the order in which they stand there.
//!
//! - A line of an `sh` block is a command; one that ends with `\` goes on in the next line.
//! - A `text` block right behind an `sh` block is what the last command of that block prints. Numbers, ids in
//!   hexadecimal digits, the project's folder and the width of gaps may be others each time; a line that is
//!   `…` stands for any lines, and `…` within a line for any words or none. An id that was shown in front of
//!   it may be used in later commands: it stands for the one that was seen in its place.
//! - A block behind a line that ends with `` `PATH`: `` is written to that file.

use super::folder::Folder;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Lines with these words need what a test does not have, and say what.
pub const NOT_TRIED: &str = "# not in the test";
/// What a document shows of an example's project.
const SHOWN_FOLDER: &str = "~/shop";
/// Digits of a hexadecimal word, at least, that is taken for an id.
const ID_DIGITS: usize = 7;
const UUID_CHARS: usize = 36;
/// So long an agent may take to come to what a list shows of it.
const COMES_BY_ITSELF: Duration = Duration::from_secs(20);

/// What is done with a document, piece by piece.
#[derive(Debug, PartialEq)]
pub enum Piece {
    /// A command, at this line, and what it is to print.
    Run { line: usize, command: String, prints: Option<Vec<String>> },
    /// A file of the project, and its text.
    Write { path: String, text: String },
}

/// The examples of a document.
pub fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    // The last line with words in it, and whether an `sh` block has just ended.
    let (mut before, mut is_behind_commands) = (String::new(), false);
    while let Some((_, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            if !line.trim().is_empty() {
                (before, is_behind_commands) = (line.to_owned(), false);
            }
            continue;
        };
        let block: Vec<(usize, &str)> =
            lines.by_ref().take_while(|(_, line)| *line != "```").map(|(n, line)| (n + 1, line)).collect();
        match (kind, named_file(&before)) {
            ("sh", None) => commands(&block, &mut pieces),
            ("text", None) if is_behind_commands => {
                let Some(Piece::Run { prints, .. }) = pieces.last_mut() else {
                    panic!("output of no command: {block:?}")
                };
                *prints = Some(block.iter().map(|(_, line)| (*line).to_owned()).collect());
            }
            (_, Some(path)) => {
                let text = block.iter().flat_map(|(_, line)| [*line, "\n"]).collect();
                pieces.push(Piece::Write { path: path.to_owned(), text });
            }
            _ => {}
        }
        is_behind_commands = kind == "sh" && named_file(&before).is_none();
        before.clear();
    }
    pieces
}

/// The file that the block behind this line is.
fn named_file(line: &str) -> Option<&str> {
    let (_, path) = line.strip_suffix("`:")?.rsplit_once('`')?;
    Some(path)
}

fn commands(block: &[(usize, &str)], pieces: &mut Vec<Piece>) {
    let mut begun: Option<(usize, String)> = None;
    for (n, line) in block {
        let (first, mut command) = begun.take().unwrap_or((*n, String::new()));
        if let Some(part) = line.strip_suffix('\\') {
            begun = Some((first, command + part));
            continue;
        }
        command.push_str(line);
        if !command.trim().is_empty() && !command.trim_start().starts_with('#') {
            pieces.push(Piece::Run { line: first, command, prints: None });
        }
    }
    assert!(begun.is_none(), "a command without its end: {begun:?}");
}

/// Where examples are run: a project, a home folder, and what the person's shell has.
pub struct Stage {
    project: Folder,
    home: Folder,
    variables: Vec<(String, String)>,
    /// By the id that a document shows, the one that was seen in its place.
    ids: RefCell<BTreeMap<String, String>>,
}

impl Stage {
    /// An empty project of a person who has nothing.
    pub fn new(name: &str) -> Self {
        let (project, home) = (Folder::new(name), Folder::new(&format!("{name}-home")));
        Self { project, home, variables: Vec::new(), ids: RefCell::default() }
    }

    /// The project.
    pub fn project(&self) -> &Folder {
        &self.project
    }

    /// The home folder.
    pub fn home(&self) -> &Folder {
        &self.home
    }

    /// Gives the person's shell a variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Runs a command line; whether it succeeded, and what it printed.
    pub fn run(&self, line: &str) -> (bool, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
        let given = self.variables.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
        let path = given.unwrap_or_else(|| std::env::var("PATH").unwrap());
        let path = format!("{}:{path}", program.display());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(self.project.path());
        command.env_remove("SVC_AGENT_ID").env_remove("SVC_DAEMON_URL");
        command.env("HOME", self.home.path()).env("XDG_CONFIG_HOME", self.home.path().join(".config"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).env("PATH", path);
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Does what the document says, but for commands that `is_ours` does not want; how many were run.
    ///
    /// Panics at the first that fails, or prints something else than the document shows.
    pub fn play(&self, pieces: &[Piece], is_ours: impl Fn(&str) -> bool) -> usize {
        let mut tried = 0;
        for piece in pieces {
            let (line, command, prints) = match piece {
                Piece::Write { path, text } => {
                    self.project.write(path, text);
                    continue;
                }
                Piece::Run { line, command, prints } => (line, command, prints),
            };
            if !is_ours(command) || command.contains(NOT_TRIED) {
                continue;
            }
            tried += 1;
            // A port of its own, so that tests side by side do not meet.
            let mut own = command.replace("start --background", "start --background --port 0");
            for (shown, seen) in self.ids.borrow().iter() {
                own = own.replace(shown, seen);
            }
            let look = || {
                let (is_good, told) = self.run(&own);
                assert!(is_good, "line {line}: {command}\n{told}");
                let Some(wanted) = prints else { return Ok(Vec::new()) };
                let folder = self.project.path().to_str().unwrap();
                let seen: Vec<String> =
                    told.replace(folder, SHOWN_FOLDER).lines().map(ToOwned::to_owned).collect();
                let told = |parted| format!("line {line}: {command}\n{parted}\n\nbut it printed\n{told}");
                compared(wanted, &seen).map_err(told)
            };
            // A person reads on while an agent starts: what comes by itself is looked at until it has come.
            let deadline = Instant::now() + COMES_BY_ITSELF;
            let mut found = look();
            while found.is_err() && command.starts_with("svc agents") && Instant::now() < deadline {
                found = look();
            }
            self.ids.borrow_mut().extend(found.unwrap_or_else(|parted| panic!("{parted}")));
        }
        tried
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.run("svc stop");
    }
}

/// The ids that are shown, each with the one that was seen in its place.
///
/// Errors: what is shown and was not seen, or was seen and is not shown.
pub fn compared(wanted: &[String], seen: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut left = seen.iter().map(|line| likened(line)).filter(|(line, _)| !line.is_empty());
    let (mut may_skip, mut ids) = (false, Vec::new());
    for line in wanted {
        if line.trim() == "…" {
            may_skip = true;
            continue;
        }
        let (wish, shown_ids) = likened(line);
        if wish.is_empty() {
            continue;
        }
        let fits = |(seen, _): &(String, Vec<String>)| match wish.split_once('…') {
            Some((start, end)) => {
                let rest = seen.strip_prefix(start.trim_end());
                rest.is_some_and(|rest| rest.ends_with(end.trim_start()))
            }
            None => *seen == wish,
        };
        let found = if may_skip { left.find(fits) } else { left.next().filter(fits) };
        let Some((_, seen_ids)) = found else { return Err(format!("it shows\n{line}")) };
        ids.extend(shown_ids.into_iter().zip(seen_ids));
        may_skip = false;
    }
    match left.next().filter(|_| !may_skip) {
        Some((line, _)) => Err(format!("it does not show\n{line}")),
        None => Ok(ids),
    }
}

/// A line without what is another each time, and its ids: a number is 0, an id `id`, a gap one blank.
fn likened(line: &str) -> (String, Vec<String>) {
    let (mut shown, mut ids) = (String::new(), Vec::new());
    let mut rest = line;
    while let Some(at) = rest.find(|sign: char| sign.is_ascii_alphanumeric()) {
        let (gap, word) = rest.split_at(at);
        let end = word.find(|sign: char| !sign.is_ascii_alphanumeric()).unwrap_or(word.len());
        let end = if is_uuid(word) { UUID_CHARS } else { end };
        let (word, behind) = word.split_at(end);
        shown.push_str(gap);
        if is_uuid(word) || is_id(word) {
            ids.push(word.to_owned());
            shown.push_str("id");
        } else {
            shown.push_str(&likened_word(word));
        }
        rest = behind;
    }
    shown.push_str(rest);
    // A number with a point in it is one number.
    while shown.contains("0.0") {
        shown = shown.replace("0.0", "0");
    }
    (shown.split_whitespace().collect::<Vec<_>>().join(" "), ids)
}

/// Whether a UUID begins here: hexadecimal digits with four hyphens at their places.
fn is_uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() >= UUID_CHARS && text.as_bytes()[..UUID_CHARS].iter().enumerate().all(fits)
}

fn is_id(word: &str) -> bool {
    let is_hex = word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    is_hex && word.len() >= ID_DIGITS
}

/// A word without its numbers; a number with its unit is a number.
fn likened_word(word: &str) -> String {
    let unit = word.trim_start_matches(|sign: char| sign.is_ascii_digit());
    if unit.len() < word.len() && ["", "s", "m", "h", "d", "k", "M", "ms"].contains(&unit) {
        return "0".to_owned();
    }
    let mut shown = String::new();
    for sign in word.chars() {
        let sign = if sign.is_ascii_digit() { '0' } else { sign };
        if !(sign == '0' && shown.ends_with('0')) {
            shown.push(sign);
        }
    }
    shown
}
