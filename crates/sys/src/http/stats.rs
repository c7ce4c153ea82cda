//! Counters of the edge.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted since start.
#[derive(Debug, Default)]
pub struct Stats {
    pub open: AtomicU64,
    pub accepted: AtomicU64,
    /// Connections refused or evicted at the cap.
    pub refused: AtomicU64,
    pub requests: AtomicU64,
    /// Requests answered with 4xx.
    pub client_errors: AtomicU64,
    /// Requests answered with 5xx.
    pub server_errors: AtomicU64,
}

impl Stats {
    /// Counts an answer.
    pub fn answered(&self, status: u16) {
        add(&self.requests);
        match status {
            400..500 => add(&self.client_errors),
            500.. => add(&self.server_errors),
            _ => {}
        }
    }

    /// Name, help, kind and value of each.
    pub fn counters(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("http_connections", "Connections open now", "gauge", get(&self.open)),
            ("http_connections_total", "Connections accepted", "counter", get(&self.accepted)),
            (
                "http_connections_refused_total",
                "Connections refused at the cap",
                "counter",
                get(&self.refused),
            ),
            ("http_requests_total", "Requests answered", "counter", get(&self.requests)),
            ("http_client_errors_total", "Requests answered with 4xx", "counter", get(&self.client_errors)),
            ("http_server_errors_total", "Requests answered with 5xx", "counter", get(&self.server_errors)),
        ]
    }
}

/// One more.
pub fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
