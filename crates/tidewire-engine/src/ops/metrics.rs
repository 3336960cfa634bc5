//! The page `/metrics`: every counter and histogram in the text format of Prometheus 0.0.4.
//!
//! Names follow <https://prometheus.io/docs/practices/naming/>: base units, and `_total` for what
//! only grows.

use crate::counters::{BOUNDS_NS, HistogramSnapshot, METRICS, MetricKind, Snapshot, TIMINGS};
use crate::log::dropped_log_lines;
use crate::model::ShardHealth;
use crate::ops::hosts::OpsHosts;
use crate::ops::pages::VERSION;
use crate::ops::process;
use crate::ops::request::Response;
use crate::ops::source::{OpsSource, TopicsUsage};
use crate::topics::broker::{BrokerHealth, PARTITION_AWAY};
use crate::trace::TraceCounts;
use std::fmt::{Display, Write as _};

pub(crate) fn metrics(source: &dyn OpsSource, hosts: &OpsHosts) -> Response {
    let mut body = String::new();
    let process_id = std::process::id();
    let labels = format!("{{version=\"{VERSION}\",process_id=\"{process_id}\"}}");
    let ready = u8::from(source.is_ready() && source.has_keys());
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
    body.push_str(&source.backend_metrics());
    body.push_str(&source.key_metrics());
    if let Some(counts) = source.traces() {
        write_traces(&mut body, counts);
    }
    let name = "tidewire_ops_host_rejections_total";
    let help = "Requests to the operations listener refused because of the host that they name";
    write_head(&mut body, name, help, "counter");
    let _ = writeln!(body, "{name} {}", hosts.refused());
    write_log(&mut body, source);
    write_unfinished(&mut body, source);
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
    write_process(&mut body);
    write_counters(&mut body, source);
    write_timings(&mut body, source);
    Response::new(200, "text/plain; version=0.0.4; charset=utf-8", body)
}

/// The memory of messages that peers have begun and not ended.
fn write_unfinished(body: &mut String, source: &dyn OpsSource) {
    let help = "Memory of messages that have begun and not ended";
    let bytes = source.unfinished_message_bytes() as f64;
    write_gauge(body, "unfinished_message_bytes", help, "", bytes);
}

/// The log lines that nobody will read.
fn write_log(body: &mut String, source: &dyn OpsSource) {
    let left_out = "Log lines left out because there were too many of their kind within a minute";
    let dropped = "Log lines of the process dropped because the log was not read";
    for (name, help, count) in [
        ("left_out", left_out, source.log_lines_left_out()),
        ("dropped", dropped, dropped_log_lines()),
    ] {
        let name = format!("tidewire_log_lines_{name}_total");
        write_head(body, &name, help, "counter");
        let _ = writeln!(body, "{name} {count}");
    }
}

fn write_counters(body: &mut String, source: &dyn OpsSource) {
    let shards: Vec<_> = source.shards().iter().map(Snapshot::values).collect();
    for (index, metric) in METRICS.iter().enumerate() {
        let (suffix, kind) = match metric.kind {
            MetricKind::Counter => ("_total", "counter"),
            MetricKind::Gauge => ("", "gauge"),
        };
        // Prometheus has seconds, and a value for each shard.
        let micros = metric.name.strip_suffix("_us");
        let (name, unit) = micros.map_or((metric.name, ""), |name| (name, "_seconds"));
        let name = format!("tidewire_{name}{unit}{suffix}");
        let help = metric.help.split(", in microseconds").next();
        write_head(body, &name, help.unwrap_or_default(), kind);
        for (shard, values) in shards.iter().enumerate() {
            let value = values[index];
            let _ = match micros {
                Some(_) => writeln!(body, "{name}{{shard=\"{shard}\"}} {}", value as f64 / 1e6),
                None => writeln!(body, "{name}{{shard=\"{shard}\"}} {value}"),
            };
        }
    }
}

fn write_timings(body: &mut String, source: &dyn OpsSource) {
    let shards = source.timings();
    if shards.is_empty() {
        return;
    }
    for (index, timing) in TIMINGS.iter().enumerate() {
        let name = format!("tidewire_{}_seconds", timing.name);
        write_head(body, &name, timing.help, "histogram");
        for (shard, timings) in shards.iter().enumerate() {
            write_histogram(body, &name, &format!("shard=\"{shard}\""), &timings[index]);
        }
    }
}

/// The samples of a histogram with some labels. Buckets are cumulative, as the format wants it.
pub(crate) fn write_histogram(
    body: &mut String,
    name: &str,
    labels: &str,
    histogram: &HistogramSnapshot,
) {
    let mut count = 0;
    for (bound_ns, more) in BOUNDS_NS.iter().zip(histogram.counts) {
        count += more;
        let bound_s = *bound_ns as f64 / 1e9;
        let _ = writeln!(body, "{name}_bucket{{{labels},le=\"{bound_s}\"}} {count}");
    }
    let (all, sum_s) = (histogram.count(), histogram.sum_ns as f64 / 1e9);
    let _ = writeln!(body, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}");
    let _ = writeln!(body, "{name}_sum{{{labels}}} {sum_s}");
    let _ = writeln!(body, "{name}_count{{{labels}}} {all}");
}

/// Memory and processor time by the names that Prometheus's own libraries use.
fn write_process(body: &mut String) {
    if let Some(bytes) = process::resident_bytes() {
        let name = "process_resident_memory_bytes";
        write_head(body, name, "Resident memory size in bytes", "gauge");
        let _ = writeln!(body, "{name} {bytes}");
    }
    if let Some(seconds) = process::cpu_seconds() {
        let name = "process_cpu_seconds_total";
        let help = "Total user and system CPU time spent in seconds";
        write_head(body, name, help, "counter");
        let _ = writeln!(body, "{name} {seconds}");
    }
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
    let away_s = broker.away_ms as f64 / 1_000.0;
    let help = "How long the broker that servers share has not answered";
    write_gauge(body, "broker_away_seconds", help, "", away_s);
    if !broker.partitions.is_empty() {
        let name = "tidewire_broker_partition_connected";
        let help = "Whether a partition of the broker answers";
        write_head(body, name, help, "gauge");
        for it in &broker.partitions {
            let connected = u8::from(it.is_connected);
            let _ = writeln!(body, "{name}{{partition=\"{}\"}} {connected}", it.partition);
        }
    }
    let name = "tidewire_broker_problem";
    let help = "Problems of a broker that answers: 1 while the problem lasts";
    write_head(body, name, help, "gauge");
    let kinds = tidewire_redis::Problem::ALL.map(tidewire_redis::Problem::name);
    for problem in kinds.into_iter().chain([PARTITION_AWAY]) {
        let lasts = broker.problems.iter().any(|it| it.kind == problem);
        let _ = writeln!(body, "{name}{{kind=\"{problem}\"}} {}", u8::from(lasts));
    }
    for (name, count) in &broker.counts {
        let help = format!("Over the broker: {}", name.replace('_', " "));
        let name = format!("tidewire_broker_{name}_total");
        write_head(body, &name, &help, "counter");
        let _ = writeln!(body, "{name} {count}");
    }
}

fn write_traces(body: &mut String, counts: TraceCounts) {
    let counters = [
        (
            "exported",
            "Spans that the receiver has accepted",
            counts.exported,
        ),
        (
            "dropped",
            "Spans dropped because too many waited",
            counts.dropped,
        ),
        (
            "failed",
            "Spans that the receiver has not accepted",
            counts.failed,
        ),
    ];
    for (name, help, count) in counters {
        let name = format!("tidewire_trace_spans_{name}_total");
        write_head(body, &name, help, "counter");
        let _ = writeln!(body, "{name} {count}");
    }
}

fn write_gauge(body: &mut String, name: &str, help: &str, labels: &str, value: f64) {
    let name = format!("tidewire_{name}");
    write_head(body, &name, help, "gauge");
    let _ = writeln!(body, "{name}{labels} {value}");
}

/// The lines before the samples of a metric. Writing to a string cannot fail.
pub(super) fn write_head(body: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(body, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

/// Metrics of one sample without labels: name, kind and description of each, and its value.
pub(super) fn write_plain<V: Display, const N: usize>(
    body: &mut String,
    metrics: &[(&str, &str, &str); N],
    values: [V; N],
) {
    for ((name, kind, help), value) in metrics.iter().zip(values) {
        write_head(body, name, help, kind);
        let _ = writeln!(body, "{name} {value}");
    }
}
