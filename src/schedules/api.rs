//! `/api/schedules`.

use super::{CatchUp, Command, MAX_CONCURRENT, Timing, Wish, shown};
use crate::agents;
use crate::api::{Fields, Method, Problem, Reply, Route, schema_of};
use crate::endpoint::{Access, Ask, Handler};
use serde_json::{Value, json};

/// Bytes of a body: the prompt may be long.
const BODY_BYTES: usize = 2 << 20;

/// The routes of the schedules.
pub fn routes() -> Vec<Route<Handler>> {
    let mut routes = record_routes();
    routes.extend(action_routes());
    routes
}

fn record_routes() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::{Read, Write};
    vec![
        Route::new(Method::Get, "/api/schedules", "All schedules", Read(list)),
        Route::new(Method::Post, "/api/schedules", "Start agents by the clock", Write(Anyone, create))
            .body(|| schema_of(|fields| wish(fields, true)))
            .body_limit(BODY_BYTES)
            .replies(&[(201, "the record"), (400, "for example an invalid cron expression")]),
        Route::new(Method::Get, "/api/schedules/:id", "One schedule", Read(get))
            .replies(&[(200, "the record"), (404, "no such schedule")]),
        Route::new(Method::Patch, "/api/schedules/:id", "Change a schedule", Write(Anyone, change))
            .body(|| schema_of(|fields| wish(fields, false)))
            .body_limit(BODY_BYTES),
        Route::new(
            Method::Delete,
            "/api/schedules/:id",
            "Remove a schedule; its agents go on",
            Write(Anyone, |ask| Ok(Command::Delete(ask.target()).into())),
        )
        .replies(&[(200, "it is gone"), (404, "no such schedule")]),
    ]
}

fn action_routes() -> Vec<Route<Handler>> {
    use Access::Anyone;
    use Handler::Write;
    vec![
        Route::new(
            Method::Post,
            "/api/schedules/:id/run",
            "Start its agent now",
            Write(Anyone, |ask| Ok(Command::Run(ask.target()).into())),
        )
        .replies(&[(200, "scheduleId, agentId, agent"), (409, "maxConcurrent or maxAgents is reached")]),
        Route::new(
            Method::Post,
            "/api/schedules/:id/enable",
            "Enable a schedule",
            Write(Anyone, |ask| Ok(Command::Enable(ask.target(), true).into())),
        ),
        Route::new(
            Method::Post,
            "/api/schedules/:id/disable",
            "Disable a schedule",
            Write(Anyone, |ask| Ok(Command::Enable(ask.target(), false).into())),
        ),
    ]
}

fn list(ask: &Ask) -> Result<Reply, Problem> {
    let all: Vec<Value> = ask.state.schedules.iter().map(|schedule| shown(ask.state, schedule.id)).collect();
    Ok(Reply::ok(&all))
}

fn get(ask: &Ask) -> Result<Reply, Problem> {
    let id = ask.state.schedules.find(&ask.target())?.id;
    Ok(Reply::ok(&shown(ask.state, id)))
}

fn create(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let wish = ask.request.read(|fields| wish(fields, true))?;
    Ok(Command::Create(Box::new(wish)).into())
}

fn change(ask: &Ask) -> Result<crate::core::Command, Problem> {
    let wish = ask.request.read(|fields| wish(fields, false))?;
    Ok(Command::Change(ask.target(), Box::new(wish)).into())
}

/// Reads a schedule; for a new one, `cron` and `agent` have to be there.
fn wish(fields: &mut Fields, is_new: bool) -> Wish {
    fields.tell("name", || json!({"type": "string"}));
    let name = fields.has("name").then(|| fields.title("name"));
    let cron = if is_new { fields.required_string("cron") } else { fields.string("cron") };
    let zone = fields.string("timezone");
    for (field, fault) in faults(cron, zone) {
        fields.validator.fail(field, fault);
    }
    let catch_up = fields.choice("catchUp", &["skip", "once"]).map(|word| match word {
        "once" => CatchUp::Once,
        _ => CatchUp::Skip,
    });
    let concurrent = fields.integer("maxConcurrent", 1, MAX_CONCURRENT);
    let enabled = fields.boolean("enabled");
    fields.tell("agent", || json!({"type": "object"}));
    if is_new {
        fields.tell_required("agent");
    }
    let agent = match fields.value("agent") {
        Some(Value::Object(object)) => match agents::api::spawn_fields(Fields::new(object)) {
            Ok(agent) => Some(agent),
            Err(problem) => {
                for error in problem.placed("agent") {
                    fields.validator.fail(&error.field, error.message);
                }
                None
            }
        },
        Some(_) => {
            fields.validator.fail("agent", "agent must be an object with the fields of POST /api/agents");
            None
        }
        None => {
            fields.validator.check(!is_new, "agent", || {
                "agent is required: an object with the fields of POST /api/agents".to_owned()
            });
            None
        }
    };
    // The branch of one that works elsewhere is here; it is made when it is started.
    let isolated = agent
        .as_ref()
        .is_some_and(|agent| agent.isolation != agents::Isolation::Shared && agent.runner.is_none());
    fields.validator.check(!isolated, "agent.isolation", || SHARED_ONLY.to_owned());
    Wish {
        name,
        cron: cron.map(ToOwned::to_owned),
        timezone: zone.map(ToOwned::to_owned),
        agent,
        enabled,
        max_concurrent: concurrent.and_then(|number| usize::try_from(number).ok()),
        catch_up,
    }
}

const SHARED_ONLY: &str =
    "isolation must be shared for agents that a schedule starts, but for those that name a runner";

fn faults(cron: Option<&str>, zone: Option<&str>) -> Vec<(&'static str, String)> {
    let cron = cron.and_then(|text| Timing::parse(text, "UTC").err());
    let zone = zone.and_then(|name| Timing::parse("* * * * *", name).err());
    let named = |(field, fault): (&'static str, String)| (field, format!("{field} {fault}"));
    cron.into_iter().chain(zone).map(named).collect()
}

/// Reads `schedule` and `timezone` of `POST /api/agents`.
pub fn timing_field(fields: &mut Fields) -> Option<Timing> {
    let cron = fields.string("schedule")?;
    let zone = fields.string("timezone").unwrap_or("UTC");
    let shared = fields.value("isolation").is_none_or(|value| value == "shared");
    let shared = shared || agents::api::names_runner(fields);
    fields.validator.check(shared, "isolation", || SHARED_ONLY.to_owned());
    match Timing::parse(cron, zone) {
        Ok(timing) => Some(timing),
        Err((field, fault)) => {
            let field = if field == "cron" { "schedule" } else { field };
            fields.validator.fail(field, format!("{field} {fault}"));
            None
        }
    }
}

/// 400 for a timing.
pub fn timing_problem(field: &'static str, fault: &str) -> Problem {
    Problem::invalid(field, format!("{field} {fault}"))
}

/// 400 for a name in use.
pub fn name_taken(name: &str) -> Problem {
    Problem::invalid("name", format!("name {name:?} is in use by another schedule, choose another"))
}

/// The faults of an agent as faults of its schedule.
pub fn of_agent(problem: Problem) -> Problem {
    if problem.status != 400 {
        return problem;
    }
    Problem::validation(problem.placed("agent"))
}
