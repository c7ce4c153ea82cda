//! `GET /api/dashboard`: the whole daemon in a few figures.

use crate::api::{Method, Problem, Reply, Route};
use crate::endpoint::{Ask, Handler};
use crate::prices;
use crate::usage::{self, report};
use serde_json::{Value, json};

/// The routes of the dashboard.
pub fn routes() -> Vec<Route<Handler>> {
    vec![Route::new(
        Method::Get,
        "/api/dashboard",
        "Agents, tokens, savings and the budget at a glance",
        Handler::Read(dashboard),
    )]
}

fn dashboard(ask: &Ask) -> Result<Reply, Problem> {
    let state = ask.state;
    let total = state.usage.total();
    let budget = state.settings.config().safety.daily_budget_usd;
    let refused = usage::check_budget(state, ask.now).err();
    let unseen = (budget.is_some() && total.unpriced > 0).then(|| {
        format!(
            "{} tokens have no price: the budget counts those of today as the dearest known ones; say what they cost \
             (svc prices update FILE)",
            total.unpriced
        )
    });
    Ok(Reply::ok(&json!({
        "agents": {
            "active": state.agents.live().count(),
            "total": state.agents.iter().count(),
            "rotations": state.agents.rotations().total,
        },
        "tokens": {
            "used": total.tokens.total(),
            "saved": state.usage.saved().total(),
            // In tokens, as its neighbours: there is no such setting. The day's budget is in dollars.
            "budget": null,
            "budgetUsd": budget,
        },
        "savings": report::savings(state),
        "cost": {
            "totalUsd": prices::known(total.cost_usd, total.unpriced),
            "todayUsd": prices::rounded(state.usage.today_usd(ask.now)),
            "todayEstimatedUsd": prices::rounded(state.usage.today_estimated_usd(ask.now)),
            "todayUnpricedAtMostUsd": prices::rounded(state.usage.today_unpriced_usd(ask.now)),
            "dailyBudgetUsd": budget,
            "allProjects": over_all(ask),
            "budgetReached": refused.is_some(),
            "message": refused.map(|problem| problem.error).or(unseen),
            "unpricedTokens": total.unpriced,
        },
        "uptime": super::api::uptime_seconds(ask),
    })))
}

/// What all projects of this user have spent today, as a budget counts it, and what they may.
fn over_all(ask: &Ask) -> Value {
    let others = ask.state.fleet.spent_on(ask.now.0 / 86_400_000);
    json!({
        "todayUsd": prices::rounded(usage::budget::spent(ask.state, ask.now) + others),
        "dailyBudgetUsd": ask.state.fleet.budget().ok().flatten(),
    })
}
