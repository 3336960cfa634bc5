//! Pages of the operations listener: health, readiness and statistics.

use crate::counters::{BOUNDS_NS, Snapshot, TIMINGS, TimingsSnapshot};
use crate::handle::Handle;
use crate::model::{SendError, ShardHealth};
use crate::ops::error::{ApiError, ApiResult};
use crate::ops::process;
use crate::ops::request::Response;
use crate::ops::source::OpsSource;
use crate::ops::sums::sum_of_servers;
use crate::ops::task::{Parameters, Task, TaskContext, node_of};
use crate::topics::broker::BrokerPartition;
use serde_json::{Map, Value, json};

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

/// The partitions of the broker whose topics wait.
fn failing_partitions(source: &dyn OpsSource) -> Vec<Value> {
    let partitions = source.broker().map(|broker| broker.partitions);
    let failing = partitions.into_iter().flatten();
    let failing = failing.filter(BrokerPartition::is_failing);
    failing.map(|partition| json!(partition)).collect()
}

pub(crate) fn ready(source: &dyn OpsSource) -> Response {
    if !source.is_ready() {
        return json_response(503, &json!({ "status": "draining" })).with("Retry-After", "5");
    }
    if !source.has_keys() {
        return json_response(503, &json!({ "status": "no_keys" })).with("Retry-After", "5");
    }
    let shards = failing_shards(source);
    if let Some(broker) = source.broker() {
        let fatal = broker.problems.iter().find(|problem| problem.is_fatal);
        let body = match fatal {
            _ if !broker.is_connected => {
                json!({ "status": "broker_unavailable", "reason": broker.reason })
            }
            Some(problem) => json!({
                "status": "broker_refuses", "problem": problem.kind, "reason": problem.text,
            }),
            None => Value::Null,
        };
        if !body.is_null() {
            return json_response(503, &body).with("Retry-After", "5");
        }
    }
    if shards.is_empty() {
        let mut body = json!({ "status": "ready" });
        // Clients stay: all other topics go on, and other servers may have lost the partition as well.
        let failing = failing_partitions(source);
        if !failing.is_empty() {
            body["partitions_failing"] = failing.into();
        }
        return json_response(200, &body);
    }
    let body = json!({ "status": "failing", "shards": shards });
    json_response(503, &body).with("Retry-After", "5")
}

pub(crate) fn stats(source: &dyn OpsSource) -> Response {
    json_response(200, &stats_of(source))
}

/// The same with what has to be asked of the shards, or of the servers that share the broker.
pub(crate) fn stats_with_topics(context: &TaskContext, task: &Task) -> ApiResult {
    let parameters = Parameters::parse(&task.query, &["slow", "node"])?;
    let slow = parameters.number("slow", 0, SLOW_MAX)?;
    if let Some(node) = parameters.text("node") {
        if slow > 0 {
            return Err(ApiError::bad(
                "slow is of the server that is asked: leave out node",
            ));
        }
        return stats_elsewhere(context, node, &parameters);
    }
    let mut body = stats_and_topics(&context.handle);
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

/// The same as one message of the feed.
pub(crate) fn snapshot(context: &TaskContext) -> String {
    stats_and_topics(&context.handle).to_string()
}

/// The statistics of a server by its name, or of all of them together.
fn stats_elsewhere(context: &TaskContext, node: &str, parameters: &Parameters) -> ApiResult {
    let own = || stats_and_topics(&context.handle);
    if node == ALL_SERVERS {
        let answers = context.handle.stats_of_servers(None, own)?;
        return Ok(json_response(200, &sum_of_servers(answers)));
    }
    let node = node_of(context, parameters)?;
    let mut answers = context.handle.stats_of_servers(node, own)?;
    let stats = answers.pop().and_then(|(_, stats)| stats);
    let stats = stats.ok_or(ApiError::from(SendError::Busy))?;
    Ok(json_response(200, &stats))
}

pub(crate) fn stats_and_topics(handle: &Handle) -> Value {
    let mut body = stats_of(&*handle.shared);
    body["topics"] = json!(&*handle.busiest_of_late());
    body
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
        "ready": source.is_ready() && source.has_keys(),
        "total": total,
        "shards": shards,
        "usage": source.topics_usage(),
        "timings": timings_of(source),
        "resident_bytes": process::resident_bytes(),
        "cpu_seconds": process::cpu_seconds(),
        "broker": source.broker(),
    })
}

/// The histograms of all shards added up. `counts` has one number for each of `bounds_s`, and a last
/// one for durations above all of them.
fn timings_of(source: &dyn OpsSource) -> Value {
    let mut totals = TimingsSnapshot::default();
    for timings in source.timings() {
        for (total, timing) in totals.iter_mut().zip(&timings) {
            total.add(timing);
        }
    }
    let bounds_s = BOUNDS_NS.map(|bound_ns| bound_ns as f64 / 1e9);
    let named = TIMINGS.iter().zip(&totals).map(|(timing, total)| {
        let sum_s = total.sum_ns as f64 / 1e9;
        let value = json!({ "counts": total.counts, "sum_s": sum_s });
        (timing.name.to_owned(), value)
    });
    let mut body: Map<String, Value> = named.collect();
    body.insert("bounds_s".to_owned(), json!(bounds_s));
    Value::Object(body)
}

fn json_response(status: u16, value: &Value) -> Response {
    Response::json(status, format!("{value}\n"))
}

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Names all servers where one is asked for.
const ALL_SERVERS: &str = "all";

/// The most slow connections that `/stats` names.
const SLOW_MAX: usize = 100;
