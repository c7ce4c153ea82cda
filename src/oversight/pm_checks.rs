//! The fixed checks of a review: scope, protected paths, constraints, size. Pure, and the same for the same
//! facts.

use super::pm::Subject;
use crate::agents::Agent;
use crate::core::State as All;
use glob::{MatchOptions, Pattern};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use svc_base::relevance;
use svc_base::sorted::Gather;

/// Files one review covers; more are to be split.
pub const MAX_FILES: usize = 40;
/// Writes of one file from which on it is told.
pub const MANY_WRITES: u32 = 10;
/// Findings of one check; more are counted.
const MAX_FINDINGS: usize = 20;
/// Telling words that a forbidding rule and a wish share when the rule is taken to be about it.
const SHARED_WORDS: usize = 2;

/// Files no agent should change: secrets, version control, the daemon's own state, what runs with other
/// rights.
const PROTECTED: [&str; 14] = [
    ".git/**",
    "**/.git/**",
    ".svc/**",
    ".env",
    ".env.*",
    "**/.env",
    "**/.env.*",
    "**/*.pem",
    "**/*.key",
    "**/id_rsa*",
    "**/id_ed25519*",
    "**/credentials*.json",
    ".github/workflows/**",
    ".gitlab-ci.yml",
];
/// Words that make a rule a prohibition.
const FORBIDDING: [&str; 8] = ["never", "do not", "don't", "must not", "may not", "no ", "avoid", "without"];

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, svc_base::recorded::Recorded)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// `scope`, `protected`, `constraints`, `size` or `model`.
    pub check: String,
    pub blocks: bool,
    /// For people.
    pub message: String,
}

impl Finding {
    /// One that refuses.
    pub fn block(check: &str, message: &str) -> Self {
        Self { check: check.to_owned(), blocks: true, message: message.to_owned() }
    }

    /// One that only tells.
    pub fn note(check: &str, message: &str) -> Self {
        Self { check: check.to_owned(), blocks: false, message: message.to_owned() }
    }
}

/// Whether nothing refuses.
pub fn pass(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| !finding.blocks)
}

/// The verdict in one sentence.
pub fn reason(findings: &[Finding]) -> String {
    let blocking: Vec<&str> =
        findings.iter().filter(|finding| finding.blocks).map(|finding| finding.message.as_str()).collect();
    match blocking.as_slice() {
        [] => "all checks pass".to_owned(),
        [one] => (*one).to_owned(),
        [first, rest @ ..] => format!("{first}; and {} more findings", rest.len()),
    }
}

/// Runs all checks.
pub fn run(all: &All, agent: &Agent, subject: &Subject) -> Vec<Finding> {
    let project = &all.project.dir;
    let files: Vec<String> = if let Some(file) = &subject.file {
        vec![agent.project_path(project, file)]
    } else {
        let written = agent.files.iter().filter(|(_, touched)| touched.writes > 0);
        let paths: BTreeSet<String> = written.map(|(path, _)| agent.project_path(project, path)).gather();
        paths.into_iter().collect()
    };
    let mut findings = Vec::new();
    for check in [scope, protected, constraints, size] {
        let mut found = check(all, agent, subject, &files);
        let more = found.len().saturating_sub(MAX_FINDINGS);
        found.truncate(MAX_FINDINGS);
        if more > 0
            && let Some(last) = found.last_mut()
        {
            let _ = write!(last.message, " (and {more} more)");
        }
        findings.extend(found);
    }
    findings
}

fn matches(glob: &str, path: &str) -> bool {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
    Pattern::new(glob).is_ok_and(|pattern| pattern.matches_with(path, options))
}

/// Files outside of the agent's own scope, and files in another's.
fn scope(all: &All, agent: &Agent, _: &Subject, files: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        let own = agent.scope.iter().any(|glob| matches(glob, file));
        if !agent.scope.is_empty() && !own {
            let scope = agent.scope.join(", ");
            found.push(Finding::block("scope", &format!("{file} is outside of the agent's scope ({scope})")));
        }
        let owner = all.agents.live().find(|other| {
            other.lineage_id != agent.lineage_id && other.scope.iter().any(|glob| matches(glob, file))
        });
        if let Some(owner) = owner.filter(|_| !own) {
            found.push(Finding::block(
                "scope",
                &format!("{file} is owned by {} ({})", owner.name, owner.role),
            ));
        }
    }
    found
}

fn protected(_: &All, _: &Agent, _: &Subject, files: &[String]) -> Vec<Finding> {
    let fault = |file: &String| {
        if file.starts_with('/') || file.split('/').any(|part| part == "..") {
            return Some(format!("{file} is outside of the project"));
        }
        let glob = PROTECTED.iter().find(|glob| matches(glob, file))?;
        Some(format!("{file} is protected ({glob})"))
    };
    files.iter().filter_map(fault).map(|text| Finding::block("protected", &text)).collect()
}

/// Rules that forbid something and name a file of the review, or share telling words with what is wished.
fn constraints(all: &All, _: &Agent, subject: &Subject, files: &[String]) -> Vec<Finding> {
    let wish: Vec<&str> =
        [&subject.action, &subject.description].into_iter().flatten().map(String::as_str).collect();
    let wished: BTreeSet<String> = relevance::words(&wish.join(" ")).into_iter().gather();
    let mut found = Vec::new();
    for rule in all.memory.constraints() {
        let lower = rule.text.to_lowercase();
        if !FORBIDDING.iter().any(|word| lower.contains(word)) {
            continue;
        }
        let named = rule.text.split(|c: char| c.is_whitespace() || "`'\",;()".contains(c));
        let paths: Vec<&str> = named
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.contains(['/', '.', '*']))
            .collect();
        let file = files.iter().find(|file| paths.iter().any(|path| names(path, file)));
        let words: BTreeSet<String> = relevance::words(&rule.text).into_iter().gather();
        if let Some(file) = file {
            let text = format!("{file} is named by the rule [{}]: {}", rule.hash, rule.text);
            found.push(Finding::block("constraints", &text));
        } else if words.intersection(&wished).count() >= SHARED_WORDS {
            let text = format!("the request seems to break the rule [{}]: {}", rule.hash, rule.text);
            found.push(Finding::block("constraints", &text));
        }
    }
    found
}

/// Whether a path of a rule means this file: itself, a folder above it, or a glob.
fn names(path: &str, file: &str) -> bool {
    let path = path.trim_start_matches("./");
    let folder = path.trim_end_matches('/');
    file == path || matches(path, file) || (path.contains('/') && file.starts_with(&format!("{folder}/")))
}

fn size(_: &All, agent: &Agent, subject: &Subject, files: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    if files.len() > MAX_FILES {
        let text = format!(
            "{} files were changed, {MAX_FILES} is the limit of one review: split the work",
            files.len()
        );
        found.push(Finding::block("size", &text));
    }
    if subject.file.is_none() {
        let often = agent.files.iter().filter(|(_, touched)| touched.writes >= MANY_WRITES);
        found.extend(often.map(|(path, touched)| {
            Finding::note("size", &format!("{path} was written {} times: is it settled?", touched.writes))
        }));
    }
    found
}
