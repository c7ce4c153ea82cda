//! Open steps: what an agent has put on its own list and not ticked off.

use crate::providers::Activity;
use serde_json::Value;

/// The open steps that this activity tells: a to-do tool's list, or a text's check boxes. `None` when it
/// tells none; a list with everything done is `Some` and empty.
pub fn of(activity: &Activity) -> Option<Vec<String>> {
    match activity {
        Activity::ToolStarted { input, .. } => list(input),
        Activity::Text { text } => boxes(text),
        _ => None,
    }
}

/// Lists as the coding agents' own tools have them: `todos`, `plan`, `items`, `entries` or `steps`.
fn list(input: &Value) -> Option<Vec<String>> {
    let names = ["todos", "plan", "items", "entries", "steps"];
    let items = names.iter().find_map(|name| input.get(name).and_then(Value::as_array))?;
    let is_list = items.iter().any(|item| item.get("status").or(item.get("completed")).is_some());
    if !is_list {
        return None;
    }
    Some(items.iter().filter_map(step).collect())
}

fn step(item: &Value) -> Option<String> {
    let names = ["content", "step", "text", "title", "description", "task"];
    let text = names.iter().find_map(|name| item.get(name).and_then(Value::as_str))?;
    let status = item.get("status").and_then(Value::as_str).unwrap_or("pending");
    let done = matches!(status, "completed" | "done" | "cancelled")
        || item.get("completed").and_then(Value::as_bool).unwrap_or(false);
    (!done).then(|| line(text, status))
}

/// Markdown check boxes.
fn boxes(text: &str) -> Option<Vec<String>> {
    let trimmed = |line: &'static str| move |text: &str| text.trim_start().starts_with(line);
    let any = text.lines().any(|line| {
        trimmed("- [ ]")(line) || trimmed("- [x]")(line) || trimmed("* [ ]")(line) || trimmed("* [x]")(line)
    });
    if !any {
        return None;
    }
    let open = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("- [ ]").or_else(|| line.strip_prefix("* [ ]"))
    });
    Some(open.map(|text| line(text, "pending")).collect())
}

fn line(text: &str, status: &str) -> String {
    let text = super::without_mark(&svc_base::fence::one_line(text));
    if status == "in_progress" { format!("- {text} (begun)") } else { format!("- {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn decisions_8_open_steps_come_from_to_do_lists_and_check_boxes() {
        let todos = json!({"todos": [
            {"content": "write", "status": "completed"},
            {"content": "test", "status": "in_progress"},
            {"content": "ship", "status": "pending"},
        ]});
        assert_eq!(list(&todos).unwrap(), ["- test (begun)", "- ship"]);
        assert_eq!(list(&json!({"plan": [{"step": "a", "status": "completed"}]})).unwrap(), [""; 0]);
        assert_eq!(list(&json!({"items": [1, 2]})), None);
        assert_eq!(boxes("Plan:\n- [x] one\n  - [ ] two").unwrap(), ["- two"]);
        assert_eq!(boxes("no list"), None);
    }
}
