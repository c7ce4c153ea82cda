//! Spans, and how they read on the wire: OTLP over HTTP in JSON. Pure.
//!
//! Sources: the OpenTelemetry protocol's JSON encoding (ids as hexadecimal text, 64-bit numbers as text,
//! enums as numbers), and the semantic conventions for `GenAI` agent and client spans.

use crate::core::time::Time;
use serde_json::{Value, json};
use std::sync::Arc;
use svc_base::hex;

/// Whom a span is about, in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, svc_base::recorded::Recorded)]
pub struct Place {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// Absent for the root of a trace.
    pub parent: Option<[u8; 8]>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    Text(Arc<str>),
    Whole(u64),
    Number(f64),
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Word {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

/// What took its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub place: Place,
    pub name: String,
    /// Whether it was done by another program, as model calls are: CLIENT; else INTERNAL.
    pub is_client: bool,
    pub start: Time,
    pub end: Time,
    pub attributes: Vec<(&'static str, Word)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
const STATUS_ERROR: u8 = 2;

impl Span {
    fn shown(&self) -> Value {
        let nanos = |at: Time| (u128::from(at.0) * 1_000_000).to_string();
        let mut span = json!({
            "traceId": hex::encode(&self.place.trace), "spanId": hex::encode(&self.place.span),
            "name": self.name, "kind": if self.is_client { CLIENT } else { INTERNAL },
            "startTimeUnixNano": nanos(self.start), "endTimeUnixNano": nanos(self.end.max(self.start)),
            "attributes": attributes(&self.attributes),
        });
        if let Some(parent) = &self.place.parent {
            span["parentSpanId"] = hex::encode(parent).into();
        }
        if let Some(error) = &self.error {
            span["status"] = json!({"code": STATUS_ERROR, "message": error});
        }
        span
    }
}

fn attributes(all: &[(&'static str, Word)]) -> Vec<Value> {
    let value = |word: &Word| match word {
        Word::Text(text) => json!({"stringValue": text}),
        // 64-bit numbers are text in this encoding.
        Word::Whole(number) => json!({"intValue": number.to_string()}),
        Word::Number(number) => json!({"doubleValue": number}),
    };
    all.iter().map(|(key, word)| json!({"key": key, "value": value(word)})).collect()
}

/// The body of a request: an `ExportTraceServiceRequest`.
pub fn request(project: &str, version: &str, spans: &[Span]) -> Value {
    let resource = [
        ("service.name", "svc".into()),
        ("service.version", version.into()),
        ("svc.project", project.into()),
    ];
    let spans: Vec<Value> = spans.iter().map(Span::shown).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&resource)},
        "scopeSpans": [{"scope": {"name": "svc", "version": version}, "spans": spans}],
    }]})
}
