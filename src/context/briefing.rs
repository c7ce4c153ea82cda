//! The first message of a process life.

use crate::agents::Agent;
use crate::core::State as All;
use std::fmt::Write as _;

/// The first message of a new agent. The rehearsal agent reads only its scenario, so it gets the bare task.
pub fn first_message(all: &All, agent: &Agent) -> String {
    if agent.provider == "script" {
        return agent.prompt.to_string();
    }
    let mut text = introduction(all, agent);
    let task = if agent.prompt.trim().is_empty() {
        "No task was given yet. Say in one sentence that you are ready, then end your turn."
    } else {
        &agent.prompt
    };
    let _ = write!(text, "\n# Task\n\n{task}\n");
    text
}

/// The first message of an ended agent that continues without a provider session.
pub fn without_session(all: &All, agent: &Agent, words: &[String]) -> String {
    let mut text = first_message(all, agent);
    if let Some(turn) = &agent.last_turn {
        let _ = write!(text, "\nAn earlier run of yours ended with: {}\n", turn.text);
    }
    if !words.is_empty() {
        let _ = write!(text, "\n# The user says now\n\n{}\n", words.join("\n\n"));
    }
    text
}

/// The first message of a successor.
pub fn after_rotation(all: &All, agent: &Agent, brief: &str) -> String {
    let mut text = if agent.provider == "script" { String::new() } else { introduction(all, agent) };
    text.push_str(brief);
    if !agent.queue.is_empty() {
        text.push_str("\n# Instructions that waited for this handoff\n\n");
        for message in &agent.queue {
            let _ = writeln!(text, "- {}", message.text);
        }
    }
    text
}

/// A question to an agent whose session cannot be forked.
pub fn question(all: &All, agent: &Agent, question: &str) -> String {
    if agent.provider == "script" {
        return question.to_owned();
    }
    let mut text = introduction(all, agent);
    let _ = write!(
        text,
        "\nThe agent's task is:\n\n{}\n\nIt is {:?}: {}.\n",
        agent.prompt, agent.status, agent.status_reason
    );
    if !agent.files.is_empty() {
        text.push_str("\nFiles it has touched:\n");
        for (path, touched) in agent.files.iter().take(50) {
            let _ = writeln!(text, "- {path} ({} reads, {} writes)", touched.reads, touched.writes);
        }
    }
    let _ = write!(
        text,
        "\nAnswer this question about its work. Read what you need, change nothing, and answer in a few \
         sentences:\n\n{question}\n"
    );
    text
}

fn introduction(all: &All, agent: &Agent) -> String {
    let mut text = format!(
        "You are {}, the {} of a team of coding agents that work on the same project. ",
        agent.name, agent.role
    );
    text.push_str("Work on your own until the task is done, then end your turn with a short summary.\n");
    if !agent.scope.is_empty() {
        let _ = write!(
            text,
            "\nYou own these files: {}. Change others only if the task needs it.\n",
            agent.scope.join(", ")
        );
    }
    let owners: Vec<_> = all
        .agents
        .live()
        .filter(|other| other.lineage_id != agent.lineage_id && !other.scope.is_empty())
        .take(20)
        .collect();
    if !owners.is_empty() {
        text.push_str("\nOther agents own these files; ask the user before you change them:\n");
        for other in owners {
            let _ = writeln!(text, "- {} ({}): {}", other.name, other.role, other.scope.join(", "));
        }
    }
    text.extend(crate::integrations::instructions::section(all, agent));
    text
}
