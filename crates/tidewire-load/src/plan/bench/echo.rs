//! `echo`: a closed loop with N messages in flight, or an open loop at a given rate, with a
//! server that sends every message back.

use super::measure::Bench;
use super::options::RunError;
use super::throughput::{Sending, send_each};
use crate::report::{TestResult, model};
use crate::worker::websocket::payload::Payload;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let sizes = bench.options.echo_sizes.iter();
    let payloads: Vec<Payload> = sizes.map(|&bytes| bench.payload(bytes)).collect();
    let in_flight = bench.options.in_flight;
    let detail = match bench.options.rate_per_s {
        Some(rate) => format!("{rate} messages/s"),
        None => format!("{in_flight} in flight"),
    };
    let sending = Sending {
        name: model::ECHO,
        expects_replies: true,
        detail: &|payload| format!("{} B, {detail}", payload.json_bytes),
        duration: None,
    };
    send_each(bench, &sending, connections, &payloads)
}
