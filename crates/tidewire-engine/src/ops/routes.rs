//! Routes of the operations listener: which page or task answers a request.

use crate::ops::hosts::OpsHosts;
use crate::ops::request::{Request, Response};
use crate::ops::source::OpsSource;
use crate::ops::task::{Plan, Task, TaskAnswer, TaskContext};
use crate::ops::{api, dashboard, metrics, pages};

/// The plan for a request, by its head.
pub(crate) fn plan(
    request: &Request<'_>,
    source: &dyn OpsSource,
    context: Option<&TaskContext>,
    hosts: &OpsHosts,
) -> Plan {
    if let Err(refusal) = hosts.check(request) {
        return Plan::Answer(refusal);
    }
    if request.path.starts_with(api::PREFIX) {
        return api::plan(request, context).unwrap_or_else(|error| Plan::Answer(error.response()));
    }
    if dashboard::has(request.path) {
        let plan = dashboard::plan(request, context);
        return plan.unwrap_or_else(|error| Plan::Answer(error.response()));
    }
    let page: fn(&dyn OpsSource, &OpsHosts) -> Response = match request.path {
        "/health" => |source, _| pages::health(source),
        "/ready" => |source, _| pages::ready(source),
        "/metrics" => metrics::metrics,
        "/stats" => |source, _| pages::stats(source),
        _ => return Plan::Answer(Response::text(404, UNKNOWN)),
    };
    if !matches!(request.method, "GET" | "HEAD") {
        let refusal = Response::text(405, "only GET and HEAD are answered\n");
        return Plan::Answer(refusal.with("Allow", "GET, HEAD"));
    }
    match (request.path, context) {
        ("/stats", Some(_)) => Plan::Ask(Task {
            answer: TaskAnswer::Now(pages::stats_with_topics),
            who: String::new(),
            peer: request.peer,
            name: String::new(),
            query: request.query.to_owned(),
            body: Vec::new(),
        }),
        _ => Plan::Answer(page(source, hosts)),
    }
}

const UNKNOWN: &str =
    "there are /health, /ready, /metrics, /stats, /dashboard and the API under /api/v1/\n";
