//! What every store must do, as tests that take any store.

use crate::authoring::{moves, parse_new};
use crate::model::Skill;
use serde_json::json;
use svc::core::time::Time;

/// A skill for tests.
pub fn skill(name: &str) -> Skill {
    let body =
        json!({"name": format!("Skill {name}"), "description": "Made for a test.", "category": "quality"});
    moves::create(parse_new(body.as_object().unwrap()).unwrap(), Time(1))
}
