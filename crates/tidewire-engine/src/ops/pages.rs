//! What each path says.

use super::OpsSource;
use super::request::{Request, Response};
use crate::counters::{METRICS, MetricKind, Snapshot};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The answer to a request.
pub(crate) fn respond(request: &Request<'_>, source: &dyn OpsSource) -> Response {
    let page: fn(&dyn OpsSource) -> Response = match request.path {
        "/health" => health,
        "/ready" => ready,
        "/metrics" => metrics,
        "/stats" => stats,
        _ => return Response::text(404, "there are /health, /ready, /metrics and /stats\n"),
    };
    if !matches!(request.method, "GET" | "HEAD") {
        return Response::text(405, "only GET and HEAD are answered\n");
    }
    page(source)
}

fn health(source: &dyn OpsSource) -> Response {
    let uptime_s = source.uptime_s();
    json_response(
        200,
        &json!({ "status": "ok", "version": VERSION, "uptime_s": uptime_s }),
    )
}

fn ready(source: &dyn OpsSource) -> Response {
    if source.is_ready() {
        json_response(200, &json!({ "status": "ready" }))
    } else {
        json_response(503, &json!({ "status": "draining" }))
    }
}

fn stats(source: &dyn OpsSource) -> Response {
    let shards = source.shards();
    let total = shards.iter().fold(Snapshot::default(), Snapshot::sum);
    let body = json!({
        "server": "tidewire",
        "version": VERSION,
        "process_id": std::process::id(),
        "started_unix_ms": source.started_unix_ms(),
        "uptime_s": source.uptime_s(),
        "ready": source.is_ready(),
        "total": total,
        "shards": shards,
    });
    json_response(200, &body)
}

fn metrics(source: &dyn OpsSource) -> Response {
    let mut body = String::new();
    let process_id = std::process::id();
    let labels = format!("{{version=\"{VERSION}\",process_id=\"{process_id}\"}}");
    let ready = u8::from(source.is_ready());
    let started_s = source.started_unix_ms() as f64 / 1000.0;
    write_gauge(
        &mut body,
        "info",
        "The server; its value is always 1",
        &labels,
        1.0,
    );
    write_gauge(
        &mut body,
        "ready",
        "Whether newcomers are welcome",
        "",
        f64::from(ready),
    );
    write_gauge(
        &mut body,
        "start_time_seconds",
        "When the server was started",
        "",
        started_s,
    );
    write_gauge(
        &mut body,
        "uptime_seconds",
        "How long it has run",
        "",
        source.uptime_s(),
    );
    let shards: Vec<_> = source.shards().iter().map(Snapshot::values).collect();
    for (index, metric) in METRICS.iter().enumerate() {
        let (suffix, kind) = match metric.kind {
            MetricKind::Counter => ("_total", "counter"),
            MetricKind::Gauge => ("", "gauge"),
        };
        let name = format!("tidewire_{}{suffix}", metric.name);
        write_head(&mut body, &name, metric.help, kind);
        for (shard, values) in shards.iter().enumerate() {
            let _ = writeln!(body, "{name}{{shard=\"{shard}\"}} {}", values[index]);
        }
    }
    Response {
        status: 200,
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        body,
    }
}

fn write_gauge(body: &mut String, name: &str, help: &str, labels: &str, value: f64) {
    let name = format!("tidewire_{name}");
    write_head(body, &name, help, "gauge");
    let _ = writeln!(body, "{name}{labels} {value}");
}

/// The lines before the samples of a metric. Writing to a string cannot fail.
fn write_head(body: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(body, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn json_response(status: u16, value: &Value) -> Response {
    Response {
        status,
        content_type: "application/json",
        body: format!("{value}\n"),
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
