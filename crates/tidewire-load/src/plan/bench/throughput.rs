//! `throughput`: messages sent as fast as the server takes them, confirmed by pings between them.

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::outcome::Opened;
use crate::fleet::Fleet;
use crate::report::TestResult;
use crate::report::model::THROUGHPUT;
use crate::verdict::evidence::Aim;
use crate::worker::websocket::payload::Payload;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    send_each(
        bench,
        &Sending::one_way(THROUGHPUT),
        connections,
        &[Payload::TRADE],
    )
}

/// A test whose connections send messages.
pub(super) struct Sending<'a> {
    pub(super) name: &'a str,
    /// Whether the server sends every message back.
    pub(super) expects_replies: bool,
    /// The description of a message when its measurement starts.
    pub(super) detail: &'a dyn Fn(&Payload) -> String,
}

impl<'a> Sending<'a> {
    /// Messages that nobody answers.
    pub(super) fn one_way(name: &'a str) -> Self {
        Self {
            name,
            expects_replies: false,
            detail: &|payload| format!("{} B {}", payload.json_bytes, payload.encoding.as_str()),
        }
    }
}

/// One measurement for each kind of message, all on the same connections.
pub(super) fn send_each(
    bench: &mut Bench<'_>,
    sending: &Sending<'_>,
    connections: usize,
    payloads: &[Payload],
) -> Result<Vec<TestResult>, RunError> {
    let Some(first) = payloads.first() else {
        return Ok(Vec::new());
    };
    // Opening is a part of the first: with many connections it takes its time.
    announce(bench, sending, connections, first);
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let mut results: Vec<TestResult> = Vec::new();
    for payload in payloads {
        if !results.is_empty() {
            if bench.is_stopped() {
                break;
            }
            announce(bench, sending, connections, payload);
        }
        let mut result = bench.result(sending.name, connections, &opened);
        send(bench, sending, &mut fleet, &opened, *payload, &mut result)?;
        results.push(bench.finished(result));
    }
    bench.close(fleet, results.last_mut())?;
    Ok(results)
}

fn announce(bench: &mut Bench<'_>, sending: &Sending<'_>, connections: usize, payload: &Payload) {
    let detail = format!("{connections} connections, {}", (sending.detail)(payload));
    bench.started(sending.name, &detail, bench.options.duration);
}

fn send(
    bench: &mut Bench<'_>,
    sending: &Sending<'_>,
    fleet: &mut Fleet,
    opened: &Opened,
    payload: Payload,
    result: &mut TestResult,
) -> Result<(), RunError> {
    let ring = bench.ring(payload, sending.expects_replies);
    let activity = bench.sending(&ring, sending.expects_replies);
    let measured = bench.measure(fleet, activity, bench.sending_stop())?;

    let options = bench.options;
    let aim = match options.rate_per_s {
        None => Aim::Saturate,
        Some(_) => Aim::Keep,
    };
    let in_flight = sending.expects_replies.then_some(options.in_flight.into());
    result.pace = Some(options.rhythm(options.rate_per_s).report(in_flight));
    if let Some(pace) = &mut result.pace
        && options.rate_per_s.is_none()
        && !sending.expects_replies
    {
        // A message larger than the allowance is sent alone.
        let allowed_bytes = measured.ran.unconfirmed_bytes_max;
        pace.unconfirmed_bytes_max = Some(allowed_bytes.max(ring.frame_bytes()));
    }
    bench.judge(result, opened, &measured, aim);
    bench.describe(result, payload, &ring);
    bench.expect(result, opened, Some(&measured.ran));
    Ok(())
}
