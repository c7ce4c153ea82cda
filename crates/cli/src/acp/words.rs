//! What an editor says in a prompt, as one text for an agent.

use super::super::target::text;
use super::wire::Fault;
use serde_json::Value;

/// Characters of a prompt; the daemon takes as many.
pub const MAX_PROMPT_CHARS: usize = 200_000;
/// Parts of a prompt.
pub const MAX_PARTS: usize = 500;

/// The text of a prompt: what was typed, names of files, and text that the editor has put in.
///
/// Errors: names the part that cannot be taken, or the limit.
pub fn of_prompt(prompt: &Value) -> Result<String, Fault> {
    let Some(parts) = prompt.as_array() else {
        return Err(Fault::parameter("prompt: must be a list of content blocks"));
    };
    if parts.len() > MAX_PARTS {
        return Err(Fault::parameter(format!("prompt: has more than {MAX_PARTS} parts; send fewer")));
    }
    let mut said = String::new();
    for (at, part) in parts.iter().enumerate() {
        match text(part, "type") {
            "text" => said.push_str(text(part, "text")),
            "resource_link" => said.push_str(&link(part)),
            "resource" if part["resource"]["text"].is_string() => said.push_str(&resource(&part["resource"])),
            other => {
                let kind = super::super::render::one_line(other);
                return Err(Fault::parameter(format!(
                    "prompt[{at}].type: {kind:?} is not taken; send text, resource_link, or resource with text"
                )));
            }
        }
    }
    if said.trim().is_empty() {
        return Err(Fault::parameter("prompt: says nothing; send at least one word"));
    }
    if said.chars().count() > MAX_PROMPT_CHARS {
        return Err(Fault::parameter(format!(
            "prompt: has more than {MAX_PROMPT_CHARS} characters; name files instead of sending them"
        )));
    }
    Ok(said)
}

/// A path where it is a file of this machine: agents read files by their paths.
fn place(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

fn link(part: &Value) -> String {
    format!("[{}]({})", text(part, "name"), place(text(part, "uri")))
}

fn resource(resource: &Value) -> String {
    let words = text(resource, "text");
    // Longer than any fence inside, so that the text cannot end it.
    let longest = words.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n{}:\n{fence}\n{}\n{fence}\n", place(text(resource, "uri")), words.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_prompt_is_one_text_with_its_files() {
        let prompt = json!([
            {"type": "text", "text": "look at "},
            {"type": "resource_link", "name": "a.rs", "uri": "file:///p/a.rs"},
            {"type": "resource", "resource": {"uri": "file:///p/b.md", "text": "```\nx\n```\n"}},
        ]);
        let expected = "look at [a.rs](/p/a.rs)\n/p/b.md:\n````\n```\nx\n```\n````\n";
        assert_eq!(of_prompt(&prompt).as_deref(), Ok(expected));
    }

    #[test]
    fn what_cannot_be_taken_is_named_with_its_place() {
        for (prompt, words) in [
            (json!("x"), "prompt: must be a list"),
            (json!([{"type": "text", "text": " "}]), "prompt: says nothing"),
            (json!([{"type": "text", "text": "x"}, {"type": "image"}]), "prompt[1].type: \"image\" is not"),
            (json!([{"type": "resource", "resource": {"blob": "eA=="}}]), "prompt[0].type: \"resource\""),
            (json!([{"type": "text", "text": "x".repeat(MAX_PROMPT_CHARS + 1)}]), "prompt: has more than"),
            (json!(vec![json!({}); MAX_PARTS + 1]), "prompt: has more than 500 parts"),
        ] {
            let fault = of_prompt(&prompt).unwrap_err();
            assert!(fault.code == -32_602 && fault.message.starts_with(words), "{fault:?}");
        }
    }
}
