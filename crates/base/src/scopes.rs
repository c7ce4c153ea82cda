//! Which files a scope names.

use glob::{MatchOptions, Pattern};
use std::path::{Component, Path};

/// `*` stays within one folder; `**` does not.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};
/// Alternatives that `{a,b}` may expand to; a glob with more names nothing beyond them.
const MAX_ALTERNATIVES: usize = 64;

/// Whether one of the globs names this file (relative to the project). A glob without wildcards that names a
/// folder names everything below it.
pub fn owns(scope: &[String], file: &str) -> bool {
    scope.iter().any(|glob| alternatives(glob).iter().any(|plain| matches(plain, file)))
}

/// Whether `wide` surely names every file that `narrow` does. It may miss that it does, and says no then.
pub fn covers(wide: &str, narrow: &str) -> bool {
    let wild = |text: &str| text.contains(['*', '?', '[', '{']);
    let narrow = tidied(narrow);
    alternatives(wide).iter().any(|wide| {
        let wide = tidied(wide);
        let folder = wide.strip_suffix("/**").unwrap_or(wide);
        let is_whole = matches!(wide, "." | "**" | "**/*") || wide == narrow;
        // Braces hold slashes of their own: only what stands before them tells where a glob leads.
        let is_below = !wild(folder) && narrow.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        is_whole || is_below || (!wild(narrow) && matches(wide, narrow))
    })
}

fn tidied(glob: &str) -> &str {
    glob.trim_start_matches("./").trim_end_matches('/')
}

fn matches(glob: &str, file: &str) -> bool {
    let glob = tidied(glob);
    if glob == "." || glob == file {
        return true;
    }
    let plain = !glob.contains(['*', '?', '[']);
    if plain {
        return file.strip_prefix(glob).is_some_and(|rest| rest.starts_with('/'));
    }
    Pattern::new(glob).is_ok_and(|pattern| pattern.matches_with(file, OPTIONS))
}

/// `a/{b,c}/d` as `a/b/d` and `a/c/d`: the glob library knows no braces, and people write them.
fn alternatives(glob: &str) -> Vec<String> {
    let mut open = vec![glob.to_owned()];
    let mut done = Vec::new();
    while let Some(next) = open.pop() {
        let braces = next.rfind('{').and_then(|begin| Some((begin, begin + next[begin..].find('}')?)));
        match braces {
            Some((begin, end)) if open.len() + done.len() < MAX_ALTERNATIVES => {
                let words = next[begin + 1..end].split(',');
                open.extend(words.map(|word| format!("{}{word}{}", &next[..begin], &next[end + 1..])));
            }
            _ => done.push(next),
        }
    }
    done
}

/// The folders (or files) in which everything lies that the globs name; the empty one is the project.
pub fn folders(scope: &[String]) -> Vec<String> {
    let head = |glob: String| {
        let glob = glob.trim_start_matches("./").trim_end_matches('/');
        match glob.find(['*', '?', '[', '{']) {
            Some(at) => glob[..at].rsplit_once('/').map_or("", |(folder, _)| folder).to_owned(),
            None if glob == "." => String::new(),
            None => glob.to_owned(),
        }
    };
    scope.iter().flat_map(|glob| alternatives(glob)).map(head).collect()
}

/// Whether `path` is `folder` or lies below it; everything lies below the empty one.
pub fn is_below(path: &str, folder: &str) -> bool {
    let inside = |rest: &str| rest.is_empty() || rest.starts_with('/');
    folder.is_empty() || path.strip_prefix(folder).is_some_and(inside)
}

/// A file as the project knows it: relative, with `/`, without `.` and `..`. `None` when it lies outside.
pub fn within(project: &Path, working_dir: &str, file: &str) -> Option<String> {
    let path = Path::new(file);
    let whole = if path.is_absolute() { path.to_path_buf() } else { project.join(working_dir).join(path) };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.strip_prefix(project).ok()?.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop()?;
            }
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owns_one(glob: &str, file: &str) -> bool {
        owns(&[glob.to_owned()], file)
    }

    #[test]
    fn spec_agent_scope_globs_name_files() {
        for (glob, file) in [
            ("src/**", "src/a.rs"),
            ("src/**", "src/a/b/c.rs"),
            ("src/*.rs", "src/a.rs"),
            ("**/*.md", "docs/deep/x.md"),
            ("**/*.md", "x.md"),
            ("src", "src/a/b.rs"),
            ("src/", "src/a.rs"),
            ("./src/**", "src/a.rs"),
            ("a.txt", "a.txt"),
            (".", "anything/at.all"),
            ("src/{api,web}/*.ts", "src/web/x.ts"),
            ("{a,b{1,2}}/x", "b2/x"),
            ("src/[ab].rs", "src/b.rs"),
            ("**", ".github/x.yml"),
        ] {
            assert!(owns_one(glob, file), "{glob} names {file}");
        }
        for (glob, file) in [
            ("src/*.rs", "src/a/b.rs"),
            ("src", "src2/a.rs"),
            ("src/**", "srcs/a.rs"),
            ("*.md", "docs/x.md"),
            ("src/{api,web}/*.ts", "src/db/x.ts"),
            ("[", "["),
        ] {
            assert!(!owns_one(glob, file) || glob == file, "{glob} does not name {file}");
        }
        assert!(!owns(&[], "x"));
        let scope = ["src/{api,web}/*.ts", "docs/", "./a.txt", "lib/x*/y"].map(str::to_owned);
        let mut found = folders(&scope);
        found.sort();
        assert_eq!(found, ["a.txt", "docs", "lib", "src/api", "src/web"]);
        assert_eq!(folders(&["**".to_owned(), ".".to_owned()]), ["", ""]);
        assert!(is_below("a/b", "a") && is_below("a", "a") && !is_below("ab", "a") && is_below("x", ""));
        let many = "{a,b,c,d}".repeat(10);
        assert!(alternatives(&many).len() <= MAX_ALTERNATIVES + 4, "bounded");
    }

    #[test]
    fn a_wider_glob_covers_a_narrower_one_and_never_the_other_way_round() {
        for (wide, narrow) in [
            ("src/**", "src/**"),
            ("src/**", "src/api/*.rs"),
            ("src", "src/api/**"),
            ("./src/", "src/a.rs"),
            ("**", "anything/**"),
            (".", "a"),
            ("src/*.rs", "src/a.rs"),
            ("{src,docs}/**", "docs/x/**"),
            ("src/**", "src/{a,b}/**"),
        ] {
            assert!(covers(wide, narrow), "{wide} covers {narrow}");
        }
        for (wide, narrow) in [
            ("src/**", "**"),
            ("src/**", "src"),
            ("src/**", "srcs/a"),
            ("src/**", "{src,docs}/**"),
            ("src/*.rs", "src/**"),
            ("src/*.rs", "src/a/b.rs"),
            ("src/a.rs", "src/b.rs"),
            ("*", "**"),
            ("s*/x", "src/**"),
            ("src/**", "."),
        ] {
            assert!(!covers(wide, narrow), "{wide} does not cover {narrow}");
        }
    }

    #[test]
    fn files_are_named_from_the_project() {
        let project = Path::new("/p");
        assert_eq!(within(project, "", "/p/src/a.rs").as_deref(), Some("src/a.rs"));
        assert_eq!(within(project, "web", "a.ts").as_deref(), Some("web/a.ts"));
        assert_eq!(within(project, "web", "../api/./b.ts").as_deref(), Some("api/b.ts"));
        for outside in ["/etc/passwd", "../../x", "/p/../q", "/p"] {
            assert_eq!(within(project, "", outside), None, "{outside}");
        }
    }
}
