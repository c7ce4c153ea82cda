//! Our entry in a `.mcp.json`: put in and taken out as text, so that everything else in the file stays byte
//! for byte.
//!
//! The entry starts `svc mcp`, which finds the daemon and its agent in its environment: nothing secret is
//! written.

use serde_json::{Value, json};

/// The name of our entry.
pub const SERVER: &str = "svc";

/// Why a file was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is not a JSON object with an object `mcpServers`.
    NotUnderstood,
    /// The user has an entry of our name.
    NameTaken,
}

/// What is to be done with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Keep,
    /// Give it this content.
    Write(String),
    /// Delete it: nothing but ours is in it.
    Delete,
}

/// Our entry as text; `program` is the path of this binary.
fn member(program: &str) -> String {
    let entry = json!({"type": "stdio", "command": program, "args": ["mcp"]});
    format!("\"{SERVER}\": {entry}")
}

/// A whole file of ours.
fn whole(program: &str) -> String {
    format!("{{\n  \"mcpServers\": {{\n    {}\n  }}\n}}\n", member(program))
}

fn is_ours(entry: &Value) -> bool {
    entry["args"] == json!(["mcp"]) && entry["command"].as_str().is_some_and(|path| path.ends_with("svc"))
}

/// Puts our entry into a file's text; `None` is a file that does not exist.
///
/// Errors: why the file is left as it is.
pub fn add(text: Option<&str>, program: &str) -> Result<Change, Refused> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(Change::Write(whole(program)));
    };
    let value: Value = serde_json::from_slice(text.as_bytes()).map_err(|_| Refused::NotUnderstood)?;
    let root = value.as_object().ok_or(Refused::NotUnderstood)?;
    let member = member(program);
    let Some(servers) = root.get("mcpServers") else {
        let own = format!("\"mcpServers\": {{{member}}}");
        return Ok(Change::Write(insert(text, open_brace(text, 0), &own, root.is_empty())));
    };
    let servers = servers.as_object().ok_or(Refused::NotUnderstood)?;
    match servers.get(SERVER) {
        None => {}
        Some(entry) if !is_ours(entry) => return Err(Refused::NameTaken),
        Some(entry) if entry["command"] == program => return Ok(Change::Keep),
        // Left behind by another installation of this program.
        Some(_) => {
            return match remove(text, program) {
                Change::Write(without) => add(Some(&without), program),
                _ => Ok(Change::Write(whole(program))),
            };
        }
    }
    let at = find_member(text, open_brace(text, 0), "mcpServers").ok_or(Refused::NotUnderstood)?;
    Ok(Change::Write(insert(text, open_brace(text, at.value), &member, servers.is_empty())))
}

/// Takes our entry out of a file's text.
pub fn remove(text: &str, program: &str) -> Change {
    if text == whole(program) {
        return Change::Delete;
    }
    let Ok(value) = serde_json::from_slice::<Value>(text.as_bytes()) else { return Change::Keep };
    if !value["mcpServers"][SERVER].is_object() || !is_ours(&value["mcpServers"][SERVER]) {
        return Change::Keep;
    }
    let member = member(program);
    let root = open_brace(text, 0);
    // Exactly as we put it in.
    let own = format!("\"mcpServers\": {{{member}}}");
    if let Some(before) = undo(text, root, &own) {
        return Change::Write(before);
    }
    let Some(servers) = find_member(text, root, "mcpServers") else { return Change::Keep };
    let inside = open_brace(text, servers.value);
    if let Some(before) = undo(text, inside, &member) {
        return Change::Write(before);
    }
    // Somebody has formatted the file since: our member goes, with one comma.
    let Some(found) = find_member(text, inside, SERVER) else { return Change::Keep };
    let (mut start, mut end) = (found.start, found.end);
    let after = text[end..].trim_start();
    if after.starts_with(',') {
        end = text.len() - after.len() + 1;
    } else if let Some(comma) = text[..start].trim_end().strip_suffix(',') {
        start = comma.len();
    }
    Change::Write(format!("{}{}", &text[..start], &text[end..]))
}

/// Puts a member first into the object whose brace is at `brace`.
fn insert(text: &str, brace: usize, member: &str, is_empty: bool) -> String {
    let (head, tail) = text.split_at(brace + 1);
    if is_empty { format!("{head}{member}{tail}") } else { format!("{head}\n    {member},{tail}") }
}

/// The text without what [`insert`] has put in, if it stands there still.
fn undo(text: &str, brace: usize, member: &str) -> Option<String> {
    let (head, tail) = text.split_at(brace + 1);
    let spaced = format!("\n    {member},");
    let alone = || tail.strip_prefix(member).filter(|rest| rest.trim_start().starts_with('}'));
    let rest = tail.strip_prefix(&spaced).or_else(alone)?;
    Some(format!("{head}{rest}"))
}

/// The first brace at or after `from`, in JSON that is known to have one there.
fn open_brace(text: &str, from: usize) -> usize {
    text[from..].find('{').map_or(from, |at| from + at)
}

/// Where a member of an object stands.
struct Member {
    start: usize,
    value: usize,
    end: usize,
}

/// Finds a member of the object whose brace is at `brace`, in valid JSON.
fn find_member(text: &str, brace: usize, name: &str) -> Option<Member> {
    let bytes = text.as_bytes();
    let mut at = brace + 1;
    loop {
        at = skip_blank(bytes, at, b',');
        if bytes.get(at)? != &b'"' {
            return None;
        }
        let start = at;
        at = skip_value(bytes, at);
        let key: String = serde_json::from_slice(text.get(start..at)?.as_bytes()).ok()?;
        let value = skip_blank(bytes, at, b':');
        at = skip_value(bytes, value);
        if key == name {
            return Some(Member { start, value, end: at });
        }
    }
}

fn skip_blank(bytes: &[u8], mut at: usize, also: u8) -> usize {
    while bytes.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == also) {
        at += 1;
    }
    at
}

/// The end of the JSON value that begins at `at`.
fn skip_value(bytes: &[u8], mut at: usize) -> usize {
    let (mut depth, mut in_text) = (0_usize, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if in_text => at += 1,
            b'"' => {
                in_text = !in_text;
                if !in_text && depth == 0 {
                    return at + 1;
                }
            }
            _ if in_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/usr/bin/svc";

    /// Adds, checks the entry, removes, and gives what is left.
    fn there_and_back(text: &str) -> Change {
        let Ok(Change::Write(with)) = add(Some(text), PROGRAM) else { panic!("not added to {text}") };
        let value: Value = serde_json::from_str(&with).unwrap_or_else(|error| panic!("{error}: {with}"));
        assert_eq!(value["mcpServers"]["svc"]["command"], PROGRAM);
        assert_eq!(add(Some(&with), PROGRAM), Ok(Change::Keep), "adding twice changes nothing");
        remove(&with, PROGRAM)
    }

    #[test]
    fn issue_4_user_entries_are_kept_byte_for_byte() {
        for text in [
            "{}",
            "{ }\n",
            "{\"mcpServers\":{}}",
            "{\"mcpServers\": { } }",
            "{\n\t\"mcpServers\" : {\n\t\t\"mine\": {\"command\": \"x\", \"args\": [\"}\", \"\\\"{\"]}\n\t}\n}",
            "{\"a\":[1,{\"mcpServers\":2}],\"b\":\"mcpServers\",\"mcpServers\":{\"m\":{\"command\":\"x\"}},\"z\":-1.5e3}",
            "{\"other\": true}",
            "\n{\"ü\\\"\": null, \"mcpServers\": {\"svc2\": {}}}\n",
        ] {
            assert_eq!(there_and_back(text), Change::Write(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn issue_4_a_file_of_ours_alone_is_deleted_again() {
        let Ok(Change::Write(text)) = add(None, PROGRAM) else { panic!("not made") };
        assert_eq!(remove(&text, PROGRAM), Change::Delete);
        assert_eq!(there_and_back(" \n"), Change::Delete);
    }

    #[test]
    fn issue_4_only_ours_is_removed_also_after_formatting() {
        let text =
            r#"{"mcpServers":{"a":{"command":"x"},"svc":{"command":"/usr/bin/svc","args":["mcp"]},"b":{}}}"#;
        let left = r#"{"mcpServers":{"a":{"command":"x"},"b":{}}}"#;
        assert_eq!(remove(text, PROGRAM), Change::Write(left.into()));
        let text = r#"{"mcpServers":{"a":{}, "svc":{"command":"/usr/bin/svc","args":["mcp"]} }}"#;
        assert_eq!(remove(text, PROGRAM), Change::Write(r#"{"mcpServers":{"a":{} }}"#.into()));
        for kept in
            [r#"{"mcpServers":{"svc":{"command":"other"}}}"#, r#"{"mcpServers":{}}"#, "[]", "{broken", ""]
        {
            assert_eq!(remove(kept, PROGRAM), Change::Keep, "{kept}");
        }
    }

    #[test]
    fn issue_4_a_users_entry_of_our_name_and_a_broken_file_are_left_alone() {
        let text = r#"{"mcpServers":{"svc":{"command":"other"}}}"#;
        assert_eq!(add(Some(text), PROGRAM), Err(Refused::NameTaken));
        for text in ["[]", "{broken", r#"{"mcpServers":[]}"#, "// comment\n{}"] {
            assert_eq!(add(Some(text), PROGRAM), Err(Refused::NotUnderstood), "{text}");
        }
        let stale = r#"{"mcpServers":{"svc":{"command":"/old/svc","args":["mcp"]},"a":{}}}"#;
        let Ok(Change::Write(text)) = add(Some(stale), PROGRAM) else { panic!("not renewed") };
        assert!(text.contains(PROGRAM) && !text.contains("/old/svc") && text.contains("\"a\":{}"), "{text}");
    }
}
