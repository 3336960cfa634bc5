//! The metrics of the backend.

use crate::backend::Backend;
use crate::backend::failure::KINDS;
use crate::backend::kind::RequestKind;
use crate::config::backend::BackendEvent;
use crate::ops::metrics::{write_head, write_histogram, write_plain};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// The metrics of a backend as text. Writing to a string cannot fail.
pub(crate) fn metrics(backend: &Backend) -> String {
    let mut body = String::new();
    write_events(&mut body, backend);
    let counts = &backend.counts;
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
    let [answered, others] = backend.in_flight();
    let values = [
        load(&counts.retries),
        load(&counts.batches),
        load(&counts.latency_us) / 1e6,
        load(&counts.connections_failed),
        load(&counts.connections),
        answered as f64,
        others as f64,
    ];
    write_plain(&mut body, &PLAIN, values);
    write_kinds(&mut body, backend);
    write_durations(&mut body, backend);
    body
}

/// The counters of each event.
fn write_events(body: &mut String, backend: &Backend) {
    let name = "tidewire_backend_events_total";
    let help = "Events with a usable answer of the backend";
    write_head(body, name, help, "counter");
    for event in BackendEvent::ALL {
        let (label, count) = (event.name(), backend.counts.answered(event));
        let _ = writeln!(body, "{name}{{event=\"{label}\"}} {count}");
    }
    let name = "tidewire_backend_failures_total";
    write_head(body, name, "Events without a usable answer", "counter");
    for event in BackendEvent::ALL {
        let label = event.name();
        for (kind, count) in KINDS.iter().zip(backend.counts.failed(event)) {
            let _ = writeln!(body, "{name}{{event=\"{label}\",kind=\"{kind}\"}} {count}");
        }
    }
}

/// Writes the metrics that each kind of requests has.
fn write_kinds(body: &mut String, backend: &Backend) {
    let counts = &backend.counts;
    for (name, kind, help, values) in [
        (
            "tidewire_backend_breaker_openings_total",
            "counter",
            "Times that the circuit breaker of a kind of requests opened",
            &counts.breaker_openings,
        ),
        (
            "tidewire_backend_breaker_open",
            "gauge",
            "Whether the circuit breaker of a kind of requests is open now",
            &counts.is_breaker_open,
        ),
        (
            "tidewire_backend_requests",
            "gauge",
            "Requests to the backend that are under way now",
            &counts.under_way,
        ),
    ] {
        write_head(body, name, help, kind);
        for (request, value) in RequestKind::ALL.into_iter().zip(values) {
            let (label, value) = (request.name(), value.load(Ordering::Relaxed));
            let _ = writeln!(body, "{name}{{event=\"{label}\"}} {value}");
        }
    }
}

/// Writes how long requests lasted, by the event that they carry.
fn write_durations(body: &mut String, backend: &Backend) {
    let name = "tidewire_backend_request_duration_seconds";
    let help = "Time from the sending of a request to its answer or to its timeout";
    write_head(body, name, help, "histogram");
    for (label, durations) in backend.counts.request_durations() {
        write_histogram(body, name, &format!("event=\"{label}\""), &durations);
    }
}

/// Name, kind and description of what has no labels.
const PLAIN: [(&str, &str, &str); 7] = [
    (
        "tidewire_backend_retries_total",
        "counter",
        "Requests to the backend sent again",
    ),
    (
        "tidewire_backend_batches_total",
        "counter",
        "Batches that the backend has accepted",
    ),
    (
        "tidewire_backend_answer_seconds_total",
        "counter",
        "Time until the answer, of all answered events together",
    ),
    (
        "tidewire_backend_connection_failures_total",
        "counter",
        "Connections to the backend that could not be opened",
    ),
    (
        "tidewire_backend_connections",
        "gauge",
        "Connections to the backend now",
    ),
    (
        "tidewire_backend_in_flight",
        "gauge",
        "Events that wait for an answer now",
    ),
    (
        "tidewire_backend_waiting",
        "gauge",
        "Messages and ends of sessions that wait to be accepted now",
    ),
];
