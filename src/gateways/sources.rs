//! What chat commands read from other features: the one seam to teams, schedules and the ledger.

use super::answers::{MAX_ROWS, NAME_CHARS, rows};
use super::message::{Text, cut};
use crate::agents::Agent;
use crate::core::State as All;
use std::sync::Arc;
use svc_base::sorted;

/// A team, as chat commands see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    pub id: String,
    pub name: String,
}

/// All teams.
pub fn teams(all: &All) -> Vec<Team> {
    all.teams.iter().map(|team| Team { id: team.id.to_string(), name: team.name.clone() }).collect()
}

/// The agents of a team, the living first, then by the time of their start.
pub fn members(all: &All, team: &Team) -> Vec<Arc<Agent>> {
    let mut members: Vec<Arc<Agent>> =
        all.agents.iter().filter(|agent| agent.team_id.as_deref() == Some(&team.id)).cloned().collect();
    sorted::by_key(&mut members, |agent| (!agent.status.is_live(), agent.spawned_at));
    members
}

/// Lines about the schedules.
pub fn schedules(all: &All) -> Text {
    let lines = all.schedules.iter().map(|schedule| {
        let next = match (schedule.enabled, schedule.next_run) {
            (false, _) => "disabled".to_owned(),
            (true, Some(at)) => format!("next {at}"),
            (true, None) => "never again".to_owned(),
        };
        Text::new()
            .bold(cut(&schedule.name, NAME_CHARS))
            .plain(" ")
            .code(schedule.timing.cron.as_str())
            .plain(format!(" {}, {next}", schedule.timing.timezone))
    });
    let text = rows(lines);
    if text.bytes() == 0 { "no schedules".into() } else { text }
}

/// Lines about what was used: the ledger's own summary.
pub fn tokens(all: &All) -> Text {
    let summary = serde_json::json!(crate::usage::report::summary(all));
    let number = |name: &str| summary[name].as_u64().unwrap_or_default();
    let mut text = Text::new().bold("Tokens").plain(format!(
        " {} used, about {} saved · {}",
        number("totalUsed"),
        number("totalSaved"),
        match (summary["totalCostUsd"].as_f64(), number("unpricedTokens")) {
            (Some(usd), 0) => format!("${usd:.2}"),
            (Some(usd), _) => format!("${usd:.2}+"),
            (None, _) => "unpriced".to_owned(),
        }
    ));
    for row in summary["perAgent"].as_array().into_iter().flatten().take(MAX_ROWS) {
        let name = row["name"].as_str().or_else(|| row["id"].as_str()).unwrap_or_default();
        let used = row["used"].as_u64().unwrap_or_default();
        let model = row["model"].as_str().unwrap_or("auto");
        text = text.line(Text::new().code(cut(name, NAME_CHARS)).plain(format!(" {used} ({model})")));
    }
    text
}
