//! Which tools need a person's approval.
//!
//! The specification names them by the kind of the integration. A catalogue entry or a custom integration
//! may name more; nothing can name fewer. A tool is meant by its exact name.

use super::catalogue::{Definition, Kind};

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

/// Whether a call of `tool` needs an approval.
pub fn is_gated(definition: &Definition, tool: &str) -> bool {
    of_kind(definition.kind).contains(&tool) || definition.gated_tools.iter().any(|gated| gated == tool)
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
        for (id, tool) in [
            ("github", "search_repositories"),
            ("github", "Create_Issue"),
            ("brave-search", "brave_web_search"),
            ("google-maps", "create_issue"),
            ("postgres", "query"),
        ] {
            assert!(!gated(id, tool), "{tool} of {id} is gated");
        }
    }
}
