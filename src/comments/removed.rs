//! The lines that a patch removes.

use std::collections::BTreeMap;

/// By path of the old file: the text of each removed line, by its number there.
#[derive(Debug, Default)]
pub(super) struct Removed<'a>(BTreeMap<&'a str, BTreeMap<u64, &'a str>>);

impl<'a> Removed<'a> {
    /// Of a patch as git writes it, whatever its context.
    pub fn of(patch: &'a str) -> Self {
        let mut found = Self::default();
        let mut path = "";
        let (mut number, mut old, mut new) = (0_u64, 0_u64, 0_u64);
        for line in patch.split('\n') {
            // Inside of a hunk whatever looks like a heading is a line.
            if old > 0 || new > 0 {
                let (is_old, is_new) = match line.as_bytes().first() {
                    Some(b'-') => (1, 0),
                    Some(b'+') => (0, 1),
                    Some(b'\\') => (0, 0),
                    _ => (1, 1),
                };
                if is_old > is_new {
                    found.0.entry(path).or_default().insert(number, &line[1..]);
                }
                (number, old, new) =
                    (number + is_old, old.saturating_sub(is_old), new.saturating_sub(is_new));
            } else if let Some(name) = line.strip_prefix("--- a/") {
                // Git puts a tab behind names with blanks.
                path = name.strip_suffix('\t').unwrap_or(name);
            } else if let Some(counts) = hunk(line) {
                ((number, old), new) = counts;
            }
        }
        found
    }

    /// The removed lines of a range, of which the first and the last must be removed.
    pub fn between(&self, path: &str, first: u64, last: u64) -> Option<String> {
        let lines = self.0.get(path)?;
        let ends = lines.contains_key(&first) && lines.contains_key(&last);
        let texts = lines.range(first..=last).map(|(_, text)| *text);
        ends.then(|| texts.collect::<Vec<_>>().join("\n"))
    }
}

/// Of `@@ -3,2 +3 @@`: the first old line with the count of old ones, and the count of new ones.
fn hunk(line: &str) -> Option<((u64, u64), u64)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let range = |text: &str| {
        let (from, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((from.parse::<u64>().ok()?, count.parse::<u64>().ok()?))
    };
    Some((range(old)?, range(rest.split(' ').next()?)?.1))
}

#[cfg(test)]
mod tests {
    use super::Removed;

    const PATCH: &str = "diff --git a/a b.rs b/a b.rs\n--- a/a b.rs\t\n+++ b/a b.rs\t\n@@ -2,3 +2 @@ fn a()\n\
        ---- a/other\n-two\n+three\n-four\n\\ No newline at end of file\n@@ -9 +7,0 @@\n-nine\n\
        diff --git a/new b/new\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,2 @@\n+--- a/no\n+x\n\
        diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -1,3 +1,2 @@\n one\n-two\n three\n";

    #[test]
    fn removed_lines_have_the_numbers_of_the_old_text() {
        let found = Removed::of(PATCH);
        assert_eq!(found.between("a b.rs", 2, 4).as_deref(), Some("--- a/other\ntwo\nfour"));
        assert_eq!(found.between("a b.rs", 9, 9).as_deref(), Some("nine"));
        assert_eq!(found.between("b", 2, 2).as_deref(), Some("two"));
    }

    #[test]
    fn a_range_begins_and_ends_with_removed_lines() {
        let found = Removed::of(PATCH);
        assert_eq!(found.between("a b.rs", 4, 9).as_deref(), Some("four\nnine"));
        for (path, first, last) in
            [("a b.rs", 1, 2), ("a b.rs", 4, 5), ("b", 1, 2), ("b", 2, 3), ("new", 1, 1), ("no", 1, 1)]
        {
            assert_eq!(found.between(path, first, last), None, "{path}:{first}-{last}");
        }
    }

    #[test]
    fn a_patch_that_is_cut_or_is_none_has_what_it_shows() {
        assert_eq!(Removed::of("").between("a", 1, 1), None);
        assert_eq!(Removed::of("--- a/a\n@@ -1,9 +0,0 @@\n-on").between("a", 1, 1).as_deref(), Some("on"));
        assert_eq!(Removed::of("--- a/a\n@@ -x +y @@\n-on\n").between("a", 1, 1), None);
    }
}
