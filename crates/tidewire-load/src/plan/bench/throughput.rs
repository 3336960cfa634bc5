//! `throughput`: messages sent as fast as the server accepts them, confirmed by pings between them.

use std::time::Duration;

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::outcome::Opened;
use crate::fleet::Fleet;
use crate::report::model::{SUSTAINED_THROUGHPUT, THROUGHPUT};
use crate::report::{TestResult, number};
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

/// The same for longer, with the rate of each second.
pub(super) fn sustained(
    bench: &mut Bench<'_>,
    connections: usize,
) -> Result<Vec<TestResult>, RunError> {
    let sending = Sending {
        duration: Some(bench.options.sustained),
        ..Sending::one_way(SUSTAINED_THROUGHPUT)
    };
    let mut results = send_each(bench, &sending, connections, &[Payload::TRADE])?;
    for result in &mut results {
        let words = deviation_in_words(&result.rate_series);
        result.notes.extend(words);
    }
    Ok(results)
}

/// How much the rates of the seconds differ; `None` for fewer than two.
fn deviation_in_words(rates: &[f64]) -> Option<String> {
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    if rates.len() < 2 || mean <= 0.0 {
        return None;
    }
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    let percent = 100.0 * (squares / (count - 1.0)).sqrt() / mean;
    Some(format!(
        "The standard deviation of the rates of the {} whole seconds is {percent:.1} % of their mean.",
        rates.len()
    ))
}

/// A test whose connections send messages.
pub(super) struct Sending<'a> {
    pub(super) name: &'a str,
    /// Whether the server sends every message back.
    pub(super) expects_replies: bool,
    /// The description of a message when its measurement starts.
    pub(super) detail: &'a dyn Fn(&Payload) -> String,
    /// How long it sends; `None` for the duration in the options.
    pub(super) duration: Option<Duration>,
}

impl<'a> Sending<'a> {
    /// Messages that nobody answers.
    pub(super) fn one_way(name: &'a str) -> Self {
        Self {
            name,
            expects_replies: false,
            detail: &|payload| format!("{} B {}", payload.json_bytes, payload.encoding.as_str()),
            duration: None,
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
    // Opening is a part of the first: with many connections it lasts noticeably long.
    announce(bench, sending, connections, first);
    let mut fleet = bench.fleet()?;
    let opened = bench.open_for(&mut fleet, connections, first.encoding)?;
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
    let detail = format!(
        "{}, {}",
        number::connections(connections as u64),
        (sending.detail)(payload)
    );
    // How long a number of messages takes is not known.
    let duration = match bench.options.messages {
        Some(_) => Duration::ZERO,
        None => sending.duration.unwrap_or(bench.options.duration),
    };
    bench.started(sending.name, &detail, duration);
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
    let measured = bench.measure(fleet, activity, bench.sending_stop(sending.duration))?;

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
    let all = |each: u64| each.saturating_mul(measured.ran.members);
    let planned = options.messages.map(all);
    if let Some(planned) = planned.filter(|planned| measured.ran.offered < *planned) {
        let offered = number::grouped(measured.ran.offered);
        let planned = number::grouped(planned);
        result.notes.push(format!(
            "{offered} of {planned} messages were sent before the test ended."
        ));
    }
    bench.judge(result, opened, &measured, aim);
    bench.describe(result, payload, &ring);
    bench.expect(result, opened, Some(&measured.ran));
    Ok(())
}
