//! Refusals, in one shape everywhere: RFC 9457 plus `error`.

use super::Reply;
use serde::Serialize;
use serde_json::json;
use std::fmt;

/// One violated rule of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The field's path in the body or query, for example `safety.dailyBudgetUsd`.
    pub field: String,
    /// The rule and how the value breaks it, as a sentence without a period.
    pub message: String,
}

/// Why a request was refused, in words a person can act on.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// A stable `snake_case` word for programs.
    pub code: &'static str,
    /// A sentence for people: field, rule, the value's fault.
    pub error: String,
    /// All violations at once, for validation failures.
    pub errors: Vec<FieldError>,
    /// Further members of the body, for example `owner` of a 423.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Headers of the reply, for example `Allow` or `Retry-After`.
    pub headers: Vec<(&'static str, String)>,
}

impl Problem {
    /// The faults of a part, as faults of the whole that has it at `place`.
    pub fn placed(self, place: &str) -> Vec<FieldError> {
        let fault = |error: FieldError| {
            let field =
                if error.field.is_empty() { place.to_owned() } else { format!("{place}.{}", error.field) };
            FieldError { message: format!("{place}: {}", error.message), field }
        };
        if self.errors.is_empty() {
            return vec![FieldError { field: place.to_owned(), message: format!("{place}: {}", self.error) }];
        }
        self.errors.into_iter().map(fault).collect()
    }

    /// A problem with no field errors.
    pub fn new(status: u16, code: &'static str, error: impl Into<String>) -> Self {
        Self {
            status,
            code,
            error: error.into(),
            errors: Vec::new(),
            extra: serde_json::Map::new(),
            headers: Vec::new(),
        }
    }

    /// Whether the same may be done later as it is: the fault is not the caller's.
    pub fn may_pass(&self) -> bool {
        self.status >= 500
    }

    /// 400 with a code of its own.
    pub fn bad_request(code: &'static str, error: impl Into<String>) -> Self {
        Self::new(400, code, error)
    }

    /// 404: `what` names the thing and how to list what exists.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(404, "not_found", what)
    }

    /// 400 `validation_failed` with every violation.
    pub fn validation(errors: Vec<FieldError>) -> Self {
        let error = errors.iter().map(|e| e.message.as_str()).collect::<Vec<_>>().join("; ");
        Self { errors, ..Self::new(400, "validation_failed", error) }
    }

    /// 400 `validation_failed` with one violation.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::validation(vec![FieldError { field: field.to_owned(), message: message.into() }])
    }

    /// Adds a header to the reply.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds a member to the body.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.error, self.status, self.code)
    }
}

impl std::error::Error for Problem {}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        let mut body = json!({
            "error": problem.error,
            "code": problem.code,
            "status": problem.status,
            "title": title(problem.status),
            "detail": problem.error,
        });
        if !problem.errors.is_empty() {
            body["errors"] = json!(problem.errors);
        }
        for (name, value) in problem.extra {
            body[name] = value;
        }
        let mut reply = Reply::json(problem.status, &body);
        reply.content_type = "application/problem+json";
        reply.headers = problem.headers;
        reply
    }
}

/// The reason phrase of a status this product sends.
pub fn title(status: u16) -> &'static str {
    tiny_http::StatusCode(status).default_reason_phrase()
}
