//! Pages of the operations listener: health, readiness, metrics and statistics.

use crate::counters::{METRICS, MetricKind, Snapshot};
use crate::model::ShardHealth;
use crate::ops::error::ApiResult;
use crate::ops::hosts::OpsHosts;
use crate::ops::request::Response;
use crate::ops::source::{OpsSource, TopicsUsage};
use crate::ops::task::{Parameters, Task, TaskContext};
use crate::topics::broker::BrokerHealth;
use serde_json::{Value, json};
use std::fmt::Write as _;

pub(crate) fn health(source: &dyn OpsSource) -> Response {
    let shards = failing_shards(source);
    let is_failing = !shards.is_empty();
    let (status, word) = if is_failing {
        (503, "failing")
    } else {
        (200, "ok")
    };
    let uptime_s = source.uptime_s();
    let mut body = json!({ "status": word, "version": VERSION, "uptime_s": uptime_s });
    if is_failing {
        body["shards"] = shards.into();
    }
    json_response(status, &body)
}

/// The shards that do not work, each with its number, its state and, if it is stuck, for how long.
fn failing_shards(source: &dyn OpsSource) -> Vec<Value> {
    let health = source.shard_health();
    let shards = health.iter().enumerate();
    let failing = shards.filter(|(_, health)| **health != ShardHealth::Healthy);
    let described = failing.map(|(shard, health)| {
        let mut described = json!(health);
        described["shard"] = shard.into();
        described
    });
    described.collect()
}

pub(crate) fn ready(source: &dyn OpsSource) -> Response {
    if !source.is_ready() {
        return json_response(503, &json!({ "status": "draining" })).with("Retry-After", "5");
    }
    let shards = failing_shards(source);
    let broker = source.broker();
    if let Some(broker) = broker.filter(|broker| !broker.is_connected) {
        let body = json!({ "status": "broker_unavailable", "reason": broker.reason });
        return json_response(503, &body).with("Retry-After", "5");
    }
    if shards.is_empty() {
        return json_response(200, &json!({ "status": "ready" }));
    }
    let body = json!({ "status": "failing", "shards": shards });
    json_response(503, &body).with("Retry-After", "5")
}

pub(crate) fn stats(source: &dyn OpsSource) -> Response {
    json_response(200, &stats_of(source))
}

/// The same with what has to be asked of the shards.
pub(crate) fn stats_with_topics(context: &TaskContext, task: &Task) -> ApiResult {
    let parameters = Parameters::parse(&task.query, &["slow"])?;
    let slow = parameters.number("slow", 0, SLOW_MAX)?;
    let mut body = stats_of(&*context.source);
    body["topics"] = json!(&*context.busiest_topics());
    if slow > 0 {
        let slowest = context.slowest_connections(slow);
        let slowest = slowest.iter().map(|info| {
            json!({
                "connection": info.connection,
                "queued_bytes": info.queued_bytes,
                "topics": info.topics,
            })
        });
        body["slow_connections"] = slowest.collect();
    }
    Ok(json_response(200, &body))
}

fn stats_of(source: &dyn OpsSource) -> Value {
    let shards = source.shards();
    let total = shards.iter().fold(Snapshot::default(), Snapshot::sum);
    json!({
        "server": "tidewire",
        "version": VERSION,
        "process_id": std::process::id(),
        "started_unix_ms": source.started_unix_ms(),
        "uptime_s": source.uptime_s(),
        "ready": source.is_ready(),
        "total": total,
        "shards": shards,
        "usage": source.topics_usage(),
        "broker": source.broker(),
    })
}

pub(crate) fn metrics(source: &dyn OpsSource, hosts: &OpsHosts) -> Response {
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
    write_usage(&mut body, &source.topics_usage());
    if let Some(broker) = source.broker() {
        write_broker(&mut body, &broker);
    }
    let name = "tidewire_ops_host_rejections_total";
    let help = "Requests to the operations listener refused because of the host that they name";
    write_head(&mut body, name, help, "counter");
    let _ = writeln!(body, "{name} {}", hosts.refused());
    let health = source.shard_health();
    if !health.is_empty() {
        let name = "tidewire_shard_healthy";
        write_head(
            &mut body,
            name,
            "Whether the shard is neither stuck nor ended",
            "gauge",
        );
        for (shard, health) in health.iter().enumerate() {
            let is_healthy = u8::from(*health == ShardHealth::Healthy);
            let _ = writeln!(body, "{name}{{shard=\"{shard}\"}} {is_healthy}");
        }
    }
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
    Response::new(200, "text/plain; version=0.0.4; charset=utf-8", body)
}

fn write_usage(body: &mut String, usage: &TopicsUsage) {
    let gauges = [
        (
            "history_bytes",
            "Bytes of all histories now",
            usage.history_bytes,
        ),
        (
            "history_topics",
            "Topics now whose position is known",
            usage.history_topics,
        ),
        (
            "presence_topics",
            "Topics now with somebody present",
            usage.presence_topics,
        ),
        (
            "publication_backlog_bytes",
            "Bytes of publications now that shards have yet to deliver",
            usage.publication_backlog_bytes,
        ),
        (
            "subscription_bytes",
            "Bytes that subscriptions take now, as estimated",
            usage.subscription_bytes,
        ),
    ];
    for (name, help, value) in gauges {
        write_gauge(body, name, help, "", value as f64);
    }
    let name = "tidewire_histories_evicted_total";
    let help = "Histories dropped because all together were too large";
    write_head(body, name, help, "counter");
    let _ = writeln!(body, "{name} {}", usage.histories_evicted);
}

fn write_broker(body: &mut String, broker: &BrokerHealth) {
    let connected = f64::from(u8::from(broker.is_connected));
    let help = "Whether the broker that servers share answers";
    write_gauge(body, "broker_connected", help, "", connected);
    for (name, count) in &broker.counts {
        let help = format!("Over the broker: {}", name.replace('_', " "));
        let name = format!("tidewire_broker_{name}_total");
        write_head(body, &name, &help, "counter");
        let _ = writeln!(body, "{name} {count}");
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
    Response::json(status, format!("{value}\n"))
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The most slow connections that `/stats` names.
const SLOW_MAX: usize = 100;
