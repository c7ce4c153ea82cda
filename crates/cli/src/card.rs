//! What it takes to decide an approval, as lines for a terminal.

use super::approvals::offered;
use super::render::clean;
use super::target::text;
use serde_json::Value;
use svc_base::untrusted::untrusted_line as one_line;

/// Lines of a task that are shown.
const TASK_LINES: usize = 3;

/// The card of an approval, `GET /api/approvals/ID/card`, behind its record.
pub fn lines(record: &Value, card: &Value) -> Vec<String> {
    let mut lines = vec![format!("{}  {}", text(record, "id"), one_line(text(record, "agentName")))];
    let mut say = |label: &str, words: &str| {
        if !words.is_empty() {
            lines.push(format!("{label:<9} {}", one_line(words)));
        }
    };
    say("wants", text(&record["action"], "description"));
    for (at, (label, words)) in offered(record).iter().enumerate() {
        let words = if words.is_empty() { String::new() } else { format!(" ({words})") };
        say("offers", &format!("{}: {label}{words}", at + 1));
    }
    say("that is", text(card, "kind"));
    say("sure", text(card, "certainty"));
    say("runs", text(&card["command"], "text"));
    if card["command"].is_object() {
        let folder = card["command"]["folder"].as_str();
        say(
            "in",
            folder.map_or("a folder that is not known", |folder| {
                if folder.is_empty() { "the project" } else { folder }
            }),
        );
    }
    for row in card["parameters"].as_array().into_iter().flatten() {
        let (name, words) = (row[0].as_str().unwrap_or_default(), row[1].as_str().unwrap_or_default());
        if card["command"].is_object() && name == "command" {
            continue;
        }
        say("with", &format!("{name}: {words}"));
    }
    say("owner", &owner(&card["owner"]));
    say("scope", &globs(&card["scope"]));
    lines.extend(change(&card["change"]));
    for said in card["words"].as_array().into_iter().flatten() {
        lines.extend(labelled("it said", text(said, "text"), usize::MAX));
    }
    lines.extend(labelled("its task", text(card, "task"), TASK_LINES));
    for other in card["before"].as_array().into_iter().flatten() {
        lines.push(format!("{:<9} {}", "before", decided(other)));
    }
    lines.extend(rule(&card["mayRule"]["exactly"]));
    lines
}

fn owner(owner: &Value) -> String {
    if owner.is_null() {
        return String::new();
    }
    format!("{} ({})", text(owner, "name"), globs(&owner["scope"]))
}

fn globs(scope: &Value) -> String {
    let globs: Vec<&str> = scope.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    globs.join(" ")
}

fn change(change: &Value) -> Vec<String> {
    if change.is_null() {
        return Vec::new();
    }
    let mut lines =
        vec![format!("{:<9} {}: {}", "change", one_line(text(change, "path")), text(change, "note"))];
    let patch = change["diff"].as_str().unwrap_or_default();
    let shown = patch.lines().skip_while(|line| !line.starts_with("@@"));
    lines.extend(shown.map(|line| format!("  {}", clean(line))));
    lines
}

fn labelled(label: &str, words: &str, most: usize) -> Vec<String> {
    let words = clean(words);
    let line = |(at, line): (usize, &str)| format!("{:<9} {line}", if at == 0 { label } else { "" });
    words.lines().filter(|line| !line.trim().is_empty()).take(most).enumerate().map(line).collect()
}

fn decided(other: &Value) -> String {
    let what = if other["same"] == true { "exactly this" } else { "one like it" };
    let reason = other["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
    one_line(&format!(
        "{what} of {} was {} by {}{reason}",
        text(other, "agentName"),
        text(other, "status"),
        other["by"].as_str().unwrap_or("nobody")
    ))
}

fn rule(exactly: &Value) -> Option<String> {
    let why = exactly["why"].as_str()?;
    Some(format!("{:<9} no rule can allow this: {why}", "rules"))
}

#[cfg(test)]
mod tests {
    use super::lines;
    use serde_json::json;

    #[test]
    fn a_card_is_told_line_by_line_and_forges_none() {
        let record = json!({"id": "apr-1", "agentName": "a-1", "action": {"description": "use Bash"}});
        let card = json!({
            "kind": "it wants to run a command",
            "command": {"text": "make\nrm x", "folder": "web"},
            "parameters": [["command", "make"], ["timeout", "9"]],
            "scope": ["web/**"],
            "owner": null,
            "change": {"path": "web/a.js", "note": "what it would change", "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\u{1b}[2J\n"},
            "words": [{"text": "I build it.\nThen I test."}],
            "task": "one\ntwo\nthree\nfour",
            "before": [{"agentName": "b-1", "status": "rejected", "by": "operator", "reason": "no", "same": true}],
            "mayRule": {"exactly": {"why": "it may remove files"}},
        });
        let told = lines(&record, &card);
        let has = |line: &str| assert!(told.iter().any(|one| one == line), "{line:?} in {told:#?}");
        has("runs      make\\nrm x");
        has("in        web");
        has("with      timeout: 9");
        has("  -a");
        has("  +b\\u{1b}[2J");
        has("it said   I build it.");
        has("          Then I test.");
        has("          three");
        has("before    exactly this of b-1 was rejected by operator: no");
        has("rules     no rule can allow this: it may remove files");
        assert!(!told.iter().any(|line| line.contains("four") || line.contains('\u{1b}')), "{told:#?}");
    }
}
