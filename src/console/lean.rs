//! Scripts and styles as they are served: without indentation, empty lines and lines that are only comments.
//!
//! The build script (`build.rs`) does this, so it knows nothing of the crate; here it is for its tests. Lines
//! stay lines, so that nothing changes where a statement ends. What a line's beginning or a comment's look
//! could belong to is refused: texts that span lines.

/// `text` of a file of this name as it is served; files that are neither scripts nor styles stay as they are.
///
/// Errors: a sentence with the line that cannot be told from a text over several lines, and the remedy.
pub fn lean(name: &str, text: &str) -> Result<String, String> {
    let is_script = match name.rsplit_once('.') {
        Some((_, "js")) => true,
        Some((_, "css")) => false,
        _ => return Ok(text.to_owned()),
    };
    let mut out = String::with_capacity(text.len());
    let mut in_comment = false;
    for (index, whole) in text.lines().enumerate() {
        let line = whole.trim();
        let refused = |what: &str| Err(format!("{name}:{}: {what}: {line}", index + 1));
        if in_comment || line.starts_with("/*") {
            in_comment = match line.split_once("*/") {
                None => true,
                Some((_, "")) => false,
                Some(_) => return refused("code stands behind a comment's end; put it on a line of its own"),
            };
            continue;
        }
        if line.is_empty() || (is_script && line.starts_with("//")) {
            continue;
        }
        if line.ends_with('\\') {
            return refused("a text goes on in the next line; join texts with +");
        }
        if is_script && unescaped(line, '`') % 2 == 1 {
            return refused(
                "a template may go on in the next line; end it here, and write \\x60 where no template begins",
            );
        }
        if !is_script && unescaped(line, '"') % 2 == 1 {
            return refused("a text goes on in the next line; end it here");
        }
        out.push_str(line);
        out.push('\n');
    }
    if in_comment {
        return Err(format!("{name}: a comment has no end"));
    }
    Ok(out)
}

/// How often `mark` stands in a line without a backslash before it.
fn unescaped(line: &str, mark: char) -> usize {
    let mut is_escaped = false;
    let mut count = 0;
    for c in line.chars() {
        count += usize::from(c == mark && !is_escaped);
        is_escaped = c == '\\' && !is_escaped;
    }
    count
}
