//! What of a failure that was mended is worth telling another agent, by rules. A red test on the way to a
//! green one teaches nobody, nor does what a person refused, what was ended, or a link that was down.

use super::ledger::only_looks;

/// In the words of the programs and of our own: a call that was never carried out, or not to its end.
const NO_VERDICT: [&str; 19] = [
    "requested permissions",
    "haven't granted",
    "doesn't want to proceed",
    "tool use was rejected",
    "refused permission",
    "rejected permission",
    "requires approval",
    "no interactive user response",
    "a person rejected this",
    "denied by policy",
    "interrupted by user",
    "timed out after",
    "timeout expired",
    "exit code 130",
    "exit code 137",
    "exit code 143",
    "exit code: 137",
    "exit code: 143",
    "was aborted",
];
/// A link that was down, or a server that was busy: what was done meanwhile has not mended it.
const LINK: [&str; 10] = [
    "eai_again",
    "enotfound",
    "etimedout",
    "econnreset",
    "could not resolve host",
    "network request",
    "network is unreachable",
    "temporary failure",
    "too many requests",
    "service unavailable",
];
/// Programs and their first words that leave the surroundings of a command as they are.
const IDLE: &str = " echo sleep true wait date printf test prettier eslint ruff black mypy rustfmt gofmt tsc jest \
    vitest pytest ctest ";
/// The same where they stand behind a program's name; `npm add` is no `git add`.
const IDLE_SECOND: &str =
    " add commit push stash fmt format lint clippy check test tests build bench vet verify nextest ";

/// Whether the output of a failed call says that it was refused, or ended before it came to anything.
pub fn has_no_verdict(output: &str) -> bool {
    let lower = output.to_lowercase();
    NO_VERDICT.iter().any(|words| lower.contains(words))
}

/// Whether a failure says something of its own, by which another agent may meet it.
pub fn is_telling(why: &str) -> bool {
    let lower = why.trim().to_lowercase();
    let is_bare = ["exit code", "exit status", "exited with"].iter().any(|words| lower.starts_with(words));
    !lower.is_empty() && !is_bare && !LINK.iter().any(|words| lower.contains(words))
}

/// Whether a command may have mended another by what it has done to its surroundings.
pub fn may_mend(command: &str) -> bool {
    let bare = command.trim_matches('`');
    let is_idle = |part: &str| {
        let mut words = part.split_whitespace().filter(|word| !word.contains('=') && *word != "sudo");
        let Some(first) = words.next() else { return true };
        let second = words.find(|word| !word.starts_with('-')).unwrap_or_default();
        let has = |list: &str, word: &str| list.contains(&format!(" {word} "));
        let is_add_of_a_package = second == "add" && first != "git";
        has(IDLE, first) || (has(IDLE_SECOND, second) && !is_add_of_a_package)
    };
    !only_looks(bare) && !bare.split([';', '&', '|']).all(is_idle)
}

/// Whether a command is another way of calling one that failed, and no more than its output piped on.
pub fn is_other_call(failing: &str, passing: &str) -> bool {
    let (failing, passing) = (failing.trim_matches('`'), passing.trim_matches('`'));
    let Some(at) = passing.find(failing) else { return false };
    let (before, behind) = (passing[..at].trim(), passing[at + failing.len()..].trim());
    let is_output = ["|", "2>", ">", ";", "&&"].iter().any(|mark| behind.starts_with(mark));
    let prepares = match before.strip_suffix("&&") {
        Some(first) => first.trim_start().starts_with("cd ") || may_mend(first),
        None => !before.is_empty(),
    };
    prepares || !(behind.is_empty() || is_output)
}
