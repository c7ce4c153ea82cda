//! `/api/skills`.

use super::worker;
use crate::api::{Method, Route, schema_of};
use crate::endpoint::{Access, Handler};

/// The routes of the skills. What every agent may come to read is the operator's to choose.
pub fn routes() -> Vec<Route<Handler>> {
    use Access::{Anyone, OperatorOnly};
    use Handler::Work;
    const BAD_ID: (u16, &str) = (400, "the id is no slug");
    const AGENT: (u16, &str) = (403, "the caller is an agent");
    const UNREACHABLE: (u16, &str) = (502, "the marketplace does not answer");
    const BUSY: (u16, &str) = (409, "another change of this skill is under way");
    vec![
        Route::new(Method::Get, "/api/skills", "Skills to install", Work(Anyone, worker::registry))
            .query(&[
                ("search", "words that must all be in name, description or tags"),
                ("category", "design, quality, devtools, workflow, security or specialized"),
                ("refresh", "1 to ask the marketplace again"),
            ])
            .replies(&[(200, "skills, total, categories, source live or bundled; why, when bundled")]),
        Route::new(Method::Get, "/api/skills/installed", "Installed skills", Work(Anyone, worker::installed))
            .replies(&[(200, "skills, each with digest, intact, path and usedBy")]),
        Route::new(Method::Get, "/api/skills/:id/content", "A skill's text", Work(Anyone, worker::content))
            .replies(&[
                (200, "id, content, and source: installed, live or bundled"),
                BAD_ID,
                (404, "no such skill"),
                UNREACHABLE,
            ]),
        Route::new(
            Method::Post,
            "/api/skills/:id/install",
            "Install a skill",
            Work(OperatorOnly, worker::install),
        )
        .replies(&[
            (201, "the record"),
            (200, "it was installed before"),
            BAD_ID,
            AGENT,
            (404, "no such skill"),
            BUSY,
            UNREACHABLE,
        ]),
        Route::new(Method::Delete, "/api/skills/:id", "Remove a skill", Work(OperatorOnly, worker::remove))
            .replies(&[
                (200, "it is gone"),
                BAD_ID,
                AGENT,
                (404, "not installed"),
                (409, "a live agent has it attached"),
            ]),
        Route::new(Method::Post, "/api/skills/:id/rate", "Rate a skill", Work(OperatorOnly, worker::rate))
            .body(|| schema_of(worker::rating))
            .replies(&[
                (200, "id, rating and rating_count"),
                (400, "rating is no whole number from 1 to 5"),
                AGENT,
                (404, "no such skill"),
                UNREACHABLE,
            ]),
        Route::new(
            Method::Post,
            "/api/skills/:id/update",
            "Fetch a skill's text again",
            Work(OperatorOnly, worker::update),
        )
        .replies(&[
            (200, "the record, and whether its text is new"),
            BAD_ID,
            AGENT,
            (404, "not installed, or not offered any more"),
            BUSY,
            UNREACHABLE,
        ]),
    ]
}
