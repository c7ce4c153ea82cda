//! Where spans for OpenTelemetry go.

use serde::Deserialize;
use serde_json::Value;
use svc_base::outgoing;

/// `telemetry`.
#[derive(Debug, Clone, PartialEq, Deserialize, svc_base::recorded::Recorded)]
pub struct Telemetry {
    /// An OTLP endpoint; `None` is off. From the person's own file alone.
    pub endpoint: Option<String>,
    /// Whether what agents and tools say goes along.
    pub content: bool,
}

/// Characters of the endpoint.
const MAX_CHARS: usize = 1_000;

/// What is wrong with an endpoint.
pub(super) fn check(value: &Value) -> Option<String> {
    let fits = |url: &str| url.len() <= MAX_CHARS && outgoing::is_guarded(url) && !url.contains('?');
    let is_good = value.is_null() || value.as_str().is_some_and(fits);
    (!is_good).then(|| format!("must be {}, or null", outgoing::RULE))
}
