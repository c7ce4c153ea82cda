//! Scopes: the globs of files an agent owns. Ownership is advisory.

use super::Agent;
use crate::api::Validator;
use crate::core::State as All;
use crate::core::ids::AgentId;
use serde_json::{Value, json};

/// Globs in a scope at most.
pub const MAX_GLOBS: usize = 20;
/// Characters in a glob at most.
pub const MAX_GLOB_CHARS: usize = 200;

/// Checks the globs of a scope and records every fault.
pub fn check(globs: &[&str], validator: &mut Validator) {
    validator.check(globs.len() <= MAX_GLOBS, "scope", || {
        format!("scope must have at most {MAX_GLOBS} globs, it has {}", globs.len())
    });
    for glob in globs {
        if let Some(fault) = fault(glob) {
            validator.fail("scope", format!("scope glob {glob:?} {fault}"));
        }
    }
}

fn fault(glob: &str) -> Option<String> {
    let chars = glob.chars().count();
    if chars == 0 || chars > MAX_GLOB_CHARS {
        return Some(format!("must have 1 to {MAX_GLOB_CHARS} characters, it has {chars}"));
    }
    if glob.contains('\0') {
        return Some("must not contain NUL".into());
    }
    if glob.starts_with('/') || glob.starts_with('\\') {
        return Some("must be relative to the project".into());
    }
    glob.split(['/', '\\']).any(|part| part == "..").then(|| "must not contain ..".into())
}

/// Pairs of globs that may name the same file, judged by their literal beginnings: it may report an
/// overlap that is none, but misses none.
pub fn overlaps<'a>(one: &'a [String], other: &'a [String]) -> Vec<(&'a str, &'a str)> {
    let mut pairs = Vec::new();
    for a in one {
        for b in other {
            if meet(tidied(a), tidied(b)) {
                pairs.push((a.as_str(), b.as_str()));
            }
        }
    }
    pairs
}

fn meet(a: &str, b: &str) -> bool {
    let (head_a, head_b) = (literal_head(a), literal_head(b));
    let is_literal = head_a.len() == a.len() && head_b.len() == b.len();
    // A glob without wildcards names a file, or all below a folder.
    let names = |wide: &str, narrow: &str| {
        wide.is_empty()
            || narrow.strip_prefix(wide).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if is_literal {
        names(a, b) || names(b, a)
    } else {
        head_a.starts_with(head_b) || head_b.starts_with(head_a)
    }
}

/// A glob as the matching of scopes has it; the whole project is empty.
fn tidied(glob: &str) -> &str {
    let glob = glob.trim_start_matches("./").trim_end_matches('/');
    if glob == "." { "" } else { glob }
}

fn literal_head(glob: &str) -> &str {
    let end = glob.find(['*', '?', '[', '{']).unwrap_or(glob.len());
    &glob[..end]
}

/// Living agents of other lineages whose scope may name files that `agent`'s does.
pub fn overlapping(all: &All, agent: &Agent) -> Vec<AgentId> {
    let others = all.agents.live().filter(|other| other.lineage_id != agent.lineage_id);
    let meeting = others.filter(|other| !overlaps(&agent.scope, &other.scope).is_empty());
    meeting.map(|other| other.id).collect()
}

/// Living agents whose scope may name the same files.
pub fn overlaps_with(all: &All, agent: &Agent) -> Vec<Value> {
    let others = all.agents.live().filter(|other| other.lineage_id != agent.lineage_id);
    let meeting = others.filter_map(|other| {
        let pairs = overlaps(&agent.scope, &other.scope);
        let globs: Vec<_> = pairs.iter().map(|(own, theirs)| json!({"own": own, "theirs": theirs})).collect();
        (!globs.is_empty()).then(|| json!({"agentId": other.id, "agentName": other.name, "globs": globs}))
    });
    meeting.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_2_scope_globs_are_relative_bounded_and_without_dots() {
        for bad in ["", "/etc/*", "a/../b", "..", "a\0b", &"x".repeat(201)] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
        for good in ["src/**", "a..b", "*.rs", "src/[ab].ts"] {
            assert_eq!(fault(good), None, "{good:?}");
        }
    }

    #[test]
    fn decisions_2_overlapping_scopes_are_found() {
        let globs = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            overlaps(&globs(&["src/**"]), &globs(&["src/api/*", "docs/**"])),
            [("src/**", "src/api/*")]
        );
        // A folder's name, and that of the project, stand for all below.
        for wide in ["src", "./src/", ".", "./", "./."] {
            for narrow in ["src/a.rs", "src/[a-z]*"] {
                assert_eq!(overlaps(&globs(&[wide]), &globs(&[narrow])).len(), 1, "{wide} {narrow}");
                assert_eq!(overlaps(&globs(&[narrow]), &globs(&[wide])).len(), 1, "{narrow} {wide}");
            }
        }
        assert!(overlaps(&globs(&["sr", "src/a"]), &globs(&["src/ab/c"])).is_empty());
        assert!(overlaps(&globs(&["src/a.rs"]), &globs(&["src/b.rs", "src/a.rs.bak"])).is_empty());
        assert!(overlaps(&globs(&["web/**"]), &globs(&["server/**"])).is_empty());
        assert_eq!(overlaps(&globs(&["a.rs"]), &globs(&["a.rs"])).len(), 1);
    }
}
