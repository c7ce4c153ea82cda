//! The facts of a log, taken from each record as it comes and kept by kind: what the agent said it decided,
//! found and tried, what it still has to do, and what the user said before. Pure; a fact that nearly repeats
//! an older one takes its place.

use super::signs::{self, KINDS, Kind};
use super::{Losses, cut, lessons, without_mark};
use crate::agents::report::LogRecord;
use crate::core::time::Time;
use crate::memory::{self, Learned};
use std::collections::{BTreeMap, VecDeque};
use svc_base::bounded;
use svc_base::fence::one_line;
use svc_base::sorted;

/// Facts of one kind at most, the latest; older ones are losses. Of next steps only the last count.
const MAX_FACTS: usize = 24;
const MAX_NEXT: usize = 6;
/// Words of the user from before the last messages: a longer message is a loss, and so is what is older than
/// so many.
const ASKED_CHARS: usize = 400;
const MAX_ASKED: usize = 120;
/// Characters of a fact.
const FACT_CHARS: usize = 280;
/// A shorter sentence tells nothing, a longer text is a document and no report.
const LEAST_CHARS: usize = 12;
const TEXT_BYTES: usize = 16_384;
/// Red commands remembered.
const MAX_RED: usize = 50;

/// A fact, and the record that it stands in.
struct Fact {
    text: String,
    place: Place,
    gist: Vec<u64>,
}

/// A record's number and time.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    n: u64,
    ts: Time,
}

impl Place {
    /// Where a record stands.
    pub fn of(record: &LogRecord) -> Self {
        Self { n: record.n, ts: record.ts }
    }

    /// `[812]`, with its age where that is an hour or more.
    fn shown(self, now: Time) -> String {
        let hours = now.0.saturating_sub(self.ts.0) / 3_600_000;
        match hours {
            0 => format!("[{}]", self.n),
            1..48 => format!("[{}, {hours} h ago]", self.n),
            _ => format!("[{}, {} days ago]", self.n, hours / 24),
        }
    }
}

/// A command that failed, and what was done since.
struct Red {
    command: String,
    /// What it said.
    why: String,
    place: Place,
    /// Whether it came to an end of its own.
    has_verdict: bool,
    /// The last command that went well since, or the file that was changed last.
    since: Option<String>,
    /// The last command since that may have mended it.
    mender: Option<String>,
    /// The file that was changed last since.
    change: Option<String>,
}

/// What is known so far.
#[derive(Default)]
pub struct Ledger {
    facts: [VecDeque<Fact>; KINDS],
    asked: VecDeque<Fact>,
    red: Vec<Red>,
    mended: VecDeque<(String, Place)>,
    learned: VecDeque<Learned>,
    now: Time,
}

/// The heads under which facts stand in the brief.
pub const TITLES: [&str; KINDS] =
    ["Next steps", "Open questions", "Dead ends", "Causes", "Decisions and reasons", "Found out"];
/// The head above what the user said earlier than the last messages.
pub const ASKED: &str = "What the user said before";
/// The head above commands that made a failing one pass.
pub const MENDED: &str = "What turned red into green";

impl Ledger {
    /// A record has come.
    pub fn at(&mut self, place: Place) {
        self.now = self.now.max(place.ts);
    }

    /// Takes the facts out of what the agent said. Returns whether there was one.
    pub fn said(&mut self, text: &str, place: Place, losses: &mut Losses) -> bool {
        let mut end = text.len().min(TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut any = false;
        for sentence in signs::sentences(&text[..end]) {
            if sentence.len() < LEAST_CHARS {
                continue;
            }
            let Some(kind) = signs::kind(sentence) else { continue };
            any = true;
            let text = cut(&without_mark(&one_line(sentence)), FACT_CHARS);
            let most = if kind == Kind::Next { MAX_NEXT } else { MAX_FACTS };
            let list = &mut self.facts[kind as usize];
            put(list, Fact { gist: signs::gist(&text), text, place }, most, |old| {
                losses.add(TITLES[kind as usize], &old, false);
            });
        }
        any
    }

    /// Keeps what the user said earlier than the last messages.
    pub fn asked(&mut self, text: &str, place: Place, losses: &mut Losses) {
        let line = without_mark(&one_line(text));
        if !signs::is_telling(&line) || line.chars().count() > ASKED_CHARS {
            losses.add(ASKED, text, false);
            return;
        }
        let fact = Fact { gist: signs::gist(&line), text: line, place };
        put(&mut self.asked, fact, MAX_ASKED, |old| losses.add(ASKED, &old, false));
    }

    /// A command failed.
    pub fn failed(&mut self, command: &str, why: &str, has_verdict: bool, place: Place) {
        self.red.retain(|red| red.command != command);
        let (command, why) = (command.to_owned(), without_mark(&one_line(why)));
        let (since, mender, change) = (None, None, None);
        self.red.push(Red { command, why, place, has_verdict, since, mender, change });
        if self.red.len() > MAX_RED {
            self.red.remove(0);
        }
    }

    /// A command that does more than look went well. Returns whether it was red.
    pub fn went_well(&mut self, command: &str, place: Place) -> bool {
        let bare = command.trim_matches('`');
        let (green, red): (Vec<Red>, Vec<Red>) = std::mem::take(&mut self.red)
            .into_iter()
            .partition(|red| bare.contains(red.command.trim_matches('`')));
        self.red = red;
        let was_red = !green.is_empty();
        for red in green.into_iter().filter(|red| red.has_verdict) {
            let failing = &red.command;
            let told = match &red.since {
                _ if failing != command => format!("- {command} passes where {failing} failed"),
                Some(since) => format!("- {since} turned {failing} green"),
                None => continue,
            };
            self.learn(&red, command, place);
            self.mended.retain(|(known, _)| *known != told);
            self.mended.push_back((told, place));
        }
        if !was_red {
            self.since(command);
        }
        was_red
    }

    /// Keeps what another agent may want to know of this: what was done, and what was taken for the cause.
    /// A change of the project's own files is the work itself: it is told only with its cause.
    fn learn(&mut self, red: &Red, passing: &str, place: Place) {
        let cause = self.facts[Kind::Cause as usize].back().filter(|cause| cause.place.n > red.place.n);
        let is_work = red.change.is_some() && cause.is_none();
        if is_work || !lessons::is_telling(&red.why) {
            return;
        }
        let fix = if lessons::is_other_call(&red.command, passing) {
            format!("{passing} passes")
        } else {
            match (&red.change, &red.mender) {
                (Some(change), _) => format!("a change of {change} turned it green"),
                (None, Some(mender)) => format!("{mender} turned it green"),
                (None, None) => return,
            }
        };
        let fix = match cause {
            Some(cause) => format!("{fix}; the agent said: {}", cause.text),
            None => fix,
        };
        let trigger = format!("{} failed: {}", red.command, red.why);
        self.learned.retain(|known| known.trigger != trigger);
        let trigger = cut(&trigger, memory::MAX_TRIGGER_CHARS);
        let fix = cut(&fix, memory::MAX_FIX_CHARS);
        bounded::push(&mut self.learned, Learned { trigger, fix, at: place.ts }, MAX_FACTS);
    }

    /// What failed and went well then, oldest first.
    pub fn learned(self) -> impl DoubleEndedIterator<Item = Learned> {
        self.learned.into_iter()
    }

    /// Commands that failed when they were run last, the last one first.
    pub fn red_commands(&self) -> impl Iterator<Item = &str> {
        self.red.iter().rev().map(|red| red.command.as_str())
    }

    /// A command was run that may turn a red one green.
    fn since(&mut self, command: &str) {
        let mends = lessons::may_mend(command);
        for red in &mut self.red {
            red.since = Some(command.to_owned());
            if mends {
                red.mender = Some(command.to_owned());
            }
        }
    }

    /// A file was changed.
    pub fn changed(&mut self, path: &str) {
        for red in &mut self.red {
            red.since = Some(format!("a change of {path}"));
            red.change = Some(path.to_owned());
        }
    }

    /// The facts of a kind as lines: those that speak of a file that was changed last come last, which is
    /// where they are kept longest; then by age.
    pub fn lines(&self, kind: Kind, open_files: &[&str]) -> Vec<String> {
        self.shown(&self.facts[kind as usize], open_files)
    }

    /// What the user said before the last messages.
    pub fn asked_lines(&self) -> Vec<String> {
        self.shown(&self.asked, &[])
    }

    /// What turned red into green.
    pub fn mended_lines(&mut self, losses: &mut Losses) -> Vec<String> {
        while self.mended.len() > MAX_FACTS {
            let Some((old, _)) = self.mended.pop_front() else { break };
            losses.add(MENDED, &old, false);
        }
        self.mended.iter().map(|(line, place)| format!("{line} {}", place.shown(self.now))).collect()
    }

    fn shown(&self, list: &VecDeque<Fact>, open_files: &[&str]) -> Vec<String> {
        let mut lines: Vec<(bool, String)> = list
            .iter()
            .map(|fact| {
                let is_open = open_files.iter().any(|file| fact.text.contains(file));
                (is_open, format!("- {} {}", fact.text, fact.place.shown(self.now)))
            })
            .collect();
        sorted::by_key(&mut lines, |(is_open, _)| *is_open);
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

/// Puts a fact behind the others, in place of those that it repeats; what falls out is lost.
fn put(list: &mut VecDeque<Fact>, fact: Fact, most: usize, mut lost: impl FnMut(String)) {
    list.retain(|known| known.text != fact.text);
    if let Some(at) = list.iter().position(|known| signs::is_alike(&known.gist, &fact.gist)) {
        lost(list.remove(at).map(|old| old.text).unwrap_or_default());
    }
    list.push_back(fact);
    while list.len() > most {
        lost(list.pop_front().map(|old| old.text).unwrap_or_default());
    }
}

/// The line of an output that tells best what failed: an assertion, an error, wherever it stands; `None` when
/// none does.
pub fn failing_line(output: &str) -> Option<&str> {
    const LINES: usize = 20_000;
    let lines = output.lines().map(str::trim).filter(|line| line.len() > 4);
    let scored = lines.take(LINES).map(|line| (failure_signs(line), line)).filter(|(score, _)| *score > 1);
    // Of equals the first: what comes later often follows from it.
    scored
        .fold(None, |best: Option<(u32, &str)>, found| match best {
            Some(best) if best.0 >= found.0 => Some(best),
            _ => Some(found),
        })
        .map(|(_, line)| line)
}

/// The same of a command that says itself that all went well: only what cannot be anything else.
pub fn failing_line_of_success(output: &str) -> Option<&str> {
    let is_report = |line: &&str| {
        let lower = line.to_lowercase();
        let has = |words: &str| lower.contains(words);
        let counted = || {
            let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            let mut before = "";
            words.any(|word| {
                let many =
                    !before.is_empty() && before != "0" && before.bytes().all(|byte| byte.is_ascii_digit());
                before = word;
                many && matches!(word, "failed" | "failing" | "failures" | "errors")
            })
        };
        let compared = (has("expected") && (has("received") || has("got") || has("actual")))
            || (has("left:") && has("right:"));
        let named = ["FAIL", "--- FAIL", "✕", "✗", "ERROR:", "Error:", "error:", "error[", "error TS"]
            .iter()
            .any(|mark| line.starts_with(mark));
        named
            || compared
            || has("panicked at")
            || has("assertionerror")
            || has("failed asserting")
            || (line.starts_with("E ") && has("error"))
            || (has("assert") && has("failed"))
            || counted()
    };
    failing_line(output).filter(is_report)
}

/// How much a line looks like the report of a failure.
fn failure_signs(line: &str) -> u32 {
    const STRONG: [&str; 10] = [
        "assert",
        "expected",
        "panicked",
        "received",
        "left:",
        "!=",
        "mismatch",
        "want",
        "error",
        "exception",
    ];
    const WEAK: [&str; 8] = ["fail", "✕", "✗", "got", "fatal", "traceback", "denied", "not found"];
    const NOTHING: [&str; 6] =
        [" 0 failed", " 0 errors", "no errors", "errors: 0", "failures: 0", "error handling"];
    let is_comment = ["//", "/*", "#", "* "].iter().any(|mark| line.starts_with(mark));
    if is_comment || line.len() > 2_000 {
        return 0;
    }
    // With a blank before it: `10 failed` is not `0 failed`.
    let lower = format!(" {}", line.to_lowercase());
    if NOTHING.iter().any(|words| lower.contains(words)) {
        return 0;
    }
    let count = |signs: &[&str]| {
        u32::try_from(signs.iter().filter(|sign| lower.contains(**sign)).count()).unwrap_or(0)
    };
    let score = 2 * count(&STRONG) + count(&WEAK);
    // A number makes it a figure that somebody can look for.
    if score > 0 && line.bytes().any(|byte| byte.is_ascii_digit()) { score + 1 } else { score }
}

/// Whether a command only looks: nothing is different afterwards.
pub fn only_looks(command: &str) -> bool {
    const LOOKS: &str = " ls cat head tail rg grep egrep find fd tree wc pwd which echo file stat du df ps env printenv type \
        less bat jq sort uniq cut true cd awk diff cmp curl sed ";
    const GIT: &str = " status log diff show branch ls-files blame remote rev-parse grep ";
    let looks = |part: &str| {
        let mut words = part.split_whitespace();
        let Some(word) = words.next() else { return true };
        match word {
            "git" => words.next().is_some_and(|word| GIT.contains(&format!(" {word} "))),
            "sed" | "find" | "curl" => !["-i", "-delete", "-exec", "-X", "-d", "-o"]
                .iter()
                .any(|changing| part.split_whitespace().any(|word| word.starts_with(changing))),
            word => LOOKS.contains(&format!(" {word} ")),
        }
    };
    let bare = without_quoted(command.trim_matches('`'));
    let bare = ["2>&1", "2>/dev/null", "2> /dev/null", ">/dev/null", "> /dev/null"]
        .iter()
        .fold(bare, |bare, silent| bare.replace(silent, ""));
    !bare.is_empty() && !bare.contains('>') && bare.split(['|', ';', '&']).all(looks)
}

/// A command without what stands in quotation marks: a `|` in a pattern is no pipe.
fn without_quoted(command: &str) -> String {
    let mut open = None;
    let outside = |c: &char| match (open, *c) {
        (None, '\'' | '"') => {
            open = Some(*c);
            true
        }
        (None, _) => true,
        (Some(mark), c) => {
            if mark == c {
                open = None;
            }
            false
        }
    };
    command.chars().filter(outside).collect()
}

/// The files changed, relative to `root`: few of a folder one by one, many as one line. Those written most
/// come last, which is where they are kept longest.
pub fn files_changed(
    files: &BTreeMap<String, crate::agents::FileTouch>,
    root: &str,
    losses: &mut Losses,
) -> Vec<String> {
    const TITLE: &str = "Files changed";
    const ONE_BY_ONE: usize = 4;
    const NAMED: usize = 2;
    let mut folders: BTreeMap<&str, Vec<(&str, u32)>> = BTreeMap::new();
    for (path, touched) in files.iter().filter(|(_, touched)| touched.writes > 0) {
        let path = relative(path, root);
        let (folder, _) = path.rsplit_once('/').unwrap_or(("", path));
        folders.entry(folder).or_default().push((path, touched.writes));
    }
    let mut lines: Vec<(u32, String)> = Vec::new();
    for (folder, mut found) in folders {
        if found.len() <= ONE_BY_ONE {
            lines
                .extend(found.iter().map(|(path, writes)| (*writes, format!("- {path} (writes: {writes})"))));
            continue;
        }
        sorted::by(&mut found, |a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let named: Vec<String> = found.iter().take(NAMED).map(|(path, _)| name(path)).collect();
        for (path, writes) in found.iter().skip(NAMED) {
            losses.add(TITLE, &format!("- {path} (writes: {writes})"), false);
        }
        let writes = found.iter().map(|(_, writes)| writes).sum();
        let more = found.len() - NAMED;
        lines.push((writes, format!("- {folder}/: {} and {more} more", named.join(", "))));
    }
    sorted::by(&mut lines, |a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    lines.into_iter().map(|(_, line)| line).collect()
}

/// A path as seen from `root`.
pub fn relative<'a>(path: &'a str, root: &str) -> &'a str {
    let inside = path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
    inside.filter(|_| !root.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_tells_the_failure_is_found_wherever_it_stands() {
        let output = "collecting\n# it fails on purpose\nE assert 412 == 409\n3 failed, 128 passed";
        assert_eq!(failing_line(output), Some("E assert 412 == 409"));
        assert_eq!(failing_line("3 failed, 128 passed"), Some("3 failed, 128 passed"));
        assert_eq!(failing_line("128 passed, 0 failed\nall is well"), None);
        assert_eq!(failing_line_of_success("10 failed, 3 passed"), Some("10 failed, 3 passed"));
        assert_eq!(failing_line_of_success("[main 1abc] Say which error 12 is expected"), None);
    }

    #[test]
    fn commands_that_look_are_told_from_those_that_act() {
        for command in ["`ls -la`", "rg -n 'x|y' src | head -5", "cd a && git diff", "cat a 2>/dev/null"] {
            assert!(only_looks(command), "{command}");
        }
        for command in
            ["make", "git commit -m x", "echo a > b", "sed -i s/a/b/ c", "ls && make", "", "find . -delete"]
        {
            assert!(!only_looks(command), "{command}");
        }
    }

    #[test]
    fn many_files_of_a_folder_are_one_line_and_all_are_told() {
        let touched = |writes| crate::agents::FileTouch { reads: 9, writes };
        let mut files: BTreeMap<String, _> =
            (0..9).map(|n| (format!("/p/src/a{n}.rs"), touched(1))).collect();
        files.insert("/p/README.md".into(), touched(3));
        files.insert("/p/only-read.md".into(), touched(0));
        files.insert("/elsewhere/x".into(), touched(1));
        let mut losses = Losses::default();
        let lines = files_changed(&files, "/p", &mut losses);
        let expected =
            ["- /elsewhere/x (writes: 1)", "- README.md (writes: 3)", "- src/: a0.rs, a1.rs and 7 more"];
        assert_eq!(lines, expected);
        assert_eq!(losses.list.len(), 7);
    }

    #[test]
    fn a_command_that_turned_red_into_green_is_told_with_its_record() {
        let mut ledger = Ledger::default();
        let place = Place { n: 7, ts: Time(0) };
        let at = |n| Place { n, ts: Time(n) };
        ledger.failed("`npm test`", "Could not load the sharp module", true, at(3));
        assert!(!ledger.went_well("`npm rebuild sharp`", place));
        assert!(ledger.went_well("`npm test`", place));
        ledger.failed("`make check`", "bad collation", true, at(5));
        ledger.said("Root cause: the locale of the machine.", at(6), &mut Losses::default());
        ledger.went_well("`LANG=C make check`", place);
        ledger.failed("`again`", "no", true, place);
        ledger.went_well("`again`", place);
        let lines = ledger.mended_lines(&mut Losses::default());
        let expected = [
            "- `npm rebuild sharp` turned `npm test` green [7]",
            "- `LANG=C make check` passes where `make check` failed [7]",
        ];
        assert_eq!(lines, expected, "what passes without a change tells nothing");
        let learned: Vec<_> = ledger.learned().map(|one| (one.trigger, one.fix)).collect();
        let expected = [
            ("`npm test` failed: Could not load the sharp module", "`npm rebuild sharp` turned it green"),
            (
                "`make check` failed: bad collation",
                "`LANG=C make check` passes; the agent said: Root cause: the locale of the machine.",
            ),
        ];
        assert_eq!(learned, expected.map(|(trigger, fix)| (trigger.to_owned(), fix.to_owned())));
    }

    #[test]
    fn a_fact_takes_the_place_of_the_one_it_repeats_and_tells_its_age() {
        let mut ledger = Ledger::default();
        let mut losses = Losses::default();
        for (n, text) in
            [(1, "It takes 412 ms with the old index."), (2, "It takes 412 ms with the old index!")]
        {
            let place = Place { n, ts: Time(n * 3_600_000) };
            ledger.at(place);
            assert!(ledger.said(text, place, &mut losses));
        }
        ledger.at(Place { n: 9, ts: Time(5 * 3_600_000) });
        assert_eq!(ledger.lines(Kind::Found, &[]), ["- It takes 412 ms with the old index! [2, 3 h ago]"]);
        assert_eq!(losses.list.len(), 1);
    }
}
