//! Which tools need a person's approval.
//!
//! The specification names them by the kind of the integration. A catalogue entry or a custom integration
//! may name more, and so does a tool that its own server calls destructive (`destructiveHint`); nothing can
//! name fewer. Names are compared as a server might take them: without case, blanks and the signs between
//! words.

use super::catalogue::{Definition, Kind};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

/// The gated tools of a kind, as the specification lists them.
pub fn of_kind(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::SourceHosting => {
            &["create_issue", "create_pull_request", "create_or_update_file", "delete_file", "push_files"]
        }
        Kind::Payments => &[
            "create_charge",
            "create_payment_link",
            "create_invoice",
            "create_subscription",
            "create_refund",
        ],
        Kind::Email => &["send_email"],
        Kind::Calendar => &["create_event", "delete_event"],
        Kind::IssueTracker => &["create_issue", "update_issue", "delete_issue"],
        Kind::Notes => &["create_page", "update_page", "delete_page"],
        Kind::HomeAutomation => &["call_service"],
        Kind::Other => &[],
    }
}

/// Whether a call of `tool` needs an approval, by its name.
pub fn is_gated(definition: &Definition, tool: &str) -> bool {
    let tool = folded(tool);
    let named = definition.gated_tools.iter().map(String::as_str);
    of_kind(definition.kind).iter().copied().chain(named).any(|gated| folded(gated) == tool)
}

/// A tool's name as far as it tells tools apart: its letters and digits.
pub fn folded(tool: &str) -> String {
    tool.nfkc().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Words with which the names of tools begin that cannot be taken back.
const DESTROYING: [&str; 16] = [
    "delete", "remove", "destroy", "drop", "purge", "erase", "wipe", "clear", "cancel", "revoke", "discard",
    "merge", "force", "archive", "disable", "truncate",
];

/// Whether the name of a tool says that what it does cannot be taken back.
pub fn says_that_it_destroys(tool: &str) -> bool {
    let tool = folded(tool);
    DESTROYING.iter().any(|word| tool.starts_with(word))
}

/// Whether tools of this kind of integration move money.
pub fn pays(kind: Kind) -> bool {
    matches!(kind, Kind::Payments)
}

/// Whether a tool's server itself says that a call may destroy something. One that says nothing of a tool
/// leaves it to the names.
pub fn is_destructive(tool: &Value) -> bool {
    let hints = &tool["annotations"];
    hints["destructiveHint"] == true && hints["readOnlyHint"] != true
}

/// All gated tools of an integration, those of its kind first.
pub fn gated_tools(definition: &Definition) -> Vec<&str> {
    let mut tools = of_kind(definition.kind).to_vec();
    for tool in &definition.gated_tools {
        if !tools.contains(&tool.as_str()) {
            tools.push(tool);
        }
    }
    tools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::integrations::catalogue;

    #[test]
    fn gated_tools_by_kind_are_the_table_of_the_specification() {
        let gated = |id: &str, tool: &str| is_gated(catalogue::find(id).unwrap(), tool);
        for (id, tools) in [
            ("github", "create_issue create_pull_request create_or_update_file delete_file push_files"),
            ("stripe", "create_charge create_payment_link create_invoice create_subscription create_refund"),
            ("gmail", "send_email"),
            ("sendgrid", "send_email"),
            ("google-calendar", "create_event delete_event"),
            ("linear", "create_issue update_issue delete_issue"),
            ("jira", "create_issue update_issue delete_issue"),
            ("notion", "create_page update_page delete_page"),
            ("home-assistant", "call_service"),
        ] {
            for tool in tools.split(' ') {
                assert!(gated(id, tool), "{tool} of {id} runs ungated");
            }
        }
        for tool in [
            "Create_Issue",
            "create_issue ",
            " create-issue",
            "createIssue",
            "create\u{a0}issue",
            "ｃreate_issue",
        ] {
            assert!(gated("github", tool), "{tool:?} of github runs ungated");
        }
        for (id, tool) in [
            ("github", "search_repositories"),
            ("brave-search", "brave_web_search"),
            ("google-maps", "create_issue"),
            ("postgres", "query"),
            ("google-drive", "upload"),
            ("sendgrid", "send_campaign"),
            ("hubspot", "create_contact"),
        ] {
            assert!(!gated(id, tool), "{tool} of {id} is gated");
        }
        for definition in catalogue::all() {
            let beyond: Vec<_> = gated_tools(definition)
                .into_iter()
                .filter(|tool| !of_kind(definition.kind).contains(tool))
                .collect();
            assert!(beyond.is_empty(), "{} gates more than the table: {beyond:?}", definition.id);
        }
    }
}
