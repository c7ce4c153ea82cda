//! The vendor's 21 skills, embedded: what there is without a marketplace.
//!
//! **Invariant:** facts come from `data/vendor-skills.json`, texts from `data/skills/<id>/SKILL.md`; a test
//! holds that each fact has its text and its description.

use serde_json::{Value, json};
use std::sync::LazyLock;

/// Facts of each skill: a JSON array, without description and text.
pub const FACTS: &str = include_str!("../../../data/vendor-skills.json");
/// The version label of the embedded texts.
const VERSION: &str = "1.0.0";

macro_rules! texts {
    ($($id:literal),+ $(,)?) => {
        /// Id and markdown of each skill.
        pub const TEXTS: &[(&str, &str)] =
            &[$(($id, include_str!(concat!("../../../data/skills/", $id, "/SKILL.md")))),+];
    };
}

texts!(
    "frontend-design",
    "code-review",
    "security-guidance",
    "claude-automation-recommender",
    "claude-md-improver",
    "build-mcp-server",
    "build-mcp-app",
    "feature-dev",
    "skill-creator",
    "plugin-structure",
    "hook-development",
    "agent-development",
    "playground",
    "math-olympiad",
    "hookify",
    "code-simplifier",
    "commit-commands",
    "pr-review-toolkit",
    "new-sdk-app",
    "explanatory-output",
    "learning-output",
);

static REGISTRY: LazyLock<Vec<Value>> = LazyLock::new(|| {
    // The embedded file is an array, which a test holds.
    let mut facts: Vec<Value> = serde_json::from_slice(FACTS.as_bytes()).unwrap_or_default();
    for fact in &mut facts {
        let text = fact["id"].as_str().and_then(content).unwrap_or_default();
        fact["description"] = json!(description(text));
        fact["author"] = json!("SVC");
        fact["source"] = json!("vendor-official");
        fact["status"] = json!("published");
        fact["verified"] = json!(true);
        fact["version"] = json!(VERSION);
    }
    facts
});

/// All embedded skills, as a registry lists them.
pub fn registry() -> &'static [Value] {
    &REGISTRY
}

/// What the registry tells about one.
pub fn listed(id: &str) -> Option<&'static Value> {
    REGISTRY.iter().find(|skill| skill["id"] == id)
}

/// The text of one.
pub fn content(id: &str) -> Option<&'static str> {
    TEXTS.iter().find(|(known, _)| *known == id).map(|(_, text)| *text)
}

/// The description in the front matter.
fn description(text: &str) -> &str {
    let front =
        text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---")).map_or("", |(front, _)| front);
    let line = front.lines().find_map(|line| line.strip_prefix("description:"));
    line.unwrap_or_default().trim().trim_matches('"')
}
