//! `fan-out`: one publisher, many subscribers of one topic, at full speed and at a fixed rate.

use std::sync::Arc;

use super::measure::Bench;
use super::options::RunError;
use crate::accounting::failure::Failures;
use crate::accounting::fan_out::FanOutCounts;
use crate::accounting::outcome::Opened;
use crate::accounting::recorder::Recorder;
use crate::fleet::stop::StopRule;
use crate::fleet::{Fleet, Part};
use crate::report::model::FAN_OUT;
use crate::report::{FanOut, LatencyOrigin, TestResult};
use crate::verdict::evidence::Aim;
use crate::worker::order::Activity;
use crate::worker::rhythm::Rhythm;
use crate::worker::websocket::fan_out::{FanOut as Plan, Tempo};
use crate::worker::websocket::profile::Profile;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let options = bench.options;
    let speeds = match options.rate_per_s {
        Some(rate) => vec![Some(rate)],
        None => std::iter::once(None)
            .chain(usual_rate(connections).map(Some))
            .collect(),
    };
    let sizes = options.fan_out_sizes.iter();
    let plans: Vec<(usize, Option<f64>)> = sizes
        .flat_map(|bytes| speeds.iter().map(|speed| (*bytes, *speed)))
        .collect();
    let Some(first) = plans.first() else {
        return Ok(Vec::new());
    };
    announce(bench, connections, *first);
    let mut fleet = bench.fleet()?;
    let mut opened = bench.open(&mut fleet, connections)?;
    // The last one, by itself: so its number is known.
    opened.merge(&bench.open(&mut fleet, 1)?);
    let not_subscribed = subscribe(bench, &mut fleet, connections)?;
    let mut results: Vec<TestResult> = Vec::new();
    for plan in plans {
        if !results.is_empty() {
            if bench.is_stopped() {
                break;
            }
            announce(bench, connections, plan);
        }
        let mut result = measure(bench, &mut fleet, &opened, connections, plan)?;
        if let Some(words) = not_subscribed.in_words() {
            let note = format!("Connections that could not subscribe to the topic: {words}.");
            result.notes.push(note);
        }
        results.push(bench.finished(result));
    }
    bench.close(fleet, results.last_mut())?;
    Ok(results)
}

/// Gives every subscriber the topic; those that did not get it. A plain server sends everything to all.
fn subscribe(
    bench: &mut Bench<'_>,
    fleet: &mut Fleet,
    publisher: usize,
) -> Result<Failures, RunError> {
    if bench.options.profile == Profile::Raw {
        return Ok(Failures::default());
    }
    let subscribe = |_: Part<'_>| Activity::Subscribe { publisher };
    Ok(bench.prepare(fleet, subscribe)?.broken)
}

fn announce(bench: &mut Bench<'_>, connections: usize, (bytes, speed): (usize, Option<f64>)) {
    let speed = speed.map_or("full speed".to_owned(), |per_s| format!("{per_s}/s"));
    let detail = format!("{connections} subscribers, {bytes} B, {speed}");
    bench.started(FAN_OUT, &detail, bench.options.duration);
}

fn measure(
    bench: &mut Bench<'_>,
    fleet: &mut Fleet,
    opened: &Opened,
    connections: usize,
    (bytes, speed): (usize, Option<f64>),
) -> Result<TestResult, RunError> {
    let options = bench.options;
    let window = options
        .fan_out_in_flight
        .map_or(usual_window(bytes), u64::from);
    let rhythm = options.rhythm(speed);
    let tempo = match &rhythm {
        Rhythm::Open { pace, per_s } => Tempo::Paced {
            pace: pace.clone(),
            per_s: *per_s,
        },
        _ => Tempo::Window(window),
    };
    let subscribers = fleet.connected().saturating_sub(1);
    let plan = Plan::new(bytes, tempo, connections, subscribers, fleet.workers());
    let message_bytes = plan.template.message_bytes() as u64;
    let plan = Arc::new(plan);
    let activity = |_: Part<'_>| Activity::FanOut(Arc::clone(&plan));
    let mut measured = bench.measure(fleet, activity, StopRule::Duration(options.duration))?;
    let counts = measured.ran.fan_out.clone().unwrap_or_default();
    measured.ran.offered = counts.published * counts.subscribers;

    let mut result = bench.result(FAN_OUT, connections, opened);
    result.pace = Some(rhythm.report(Some(window)));
    let aim = match speed {
        None => Aim::Saturate,
        Some(_) => Aim::Keep,
    };
    bench.judge(&mut result, opened, &measured, aim);
    result.connected = Some(counts.subscribers);
    result.format = Some("json".to_owned());
    result.payload_bytes = Some(message_bytes);
    result.bytes_per_s = result.rate_per_s.map(|rate| rate * message_bytes as f64);
    result.fan_out = Some(FanOut {
        publications_per_s: speed,
        in_flight: speed.is_none().then_some(window),
        publications: counts.published,
        gaps: counts.gaps,
        duplicates: counts.duplicates,
        wrong: counts.wrong,
        skew_us: skew(&counts).summary(LatencyOrigin::FirstReceived),
    });
    if let Some(latency) = result.latency_us.as_mut().filter(|_| speed.is_some()) {
        latency.origin = LatencyOrigin::Intended;
    }
    if let (Some(memory), Some(peak)) = (&mut result.memory, measured.rss_bytes_peak) {
        memory.server_rss_peak_bytes = Some(peak);
    }
    bench.expect(&mut result, opened, Some(&measured.ran));
    Ok(result)
}

/// From the first to the last subscriber, of each milestone.
fn skew(counts: &FanOutCounts) -> Recorder {
    let mut skew = Recorder::new();
    // With one subscriber there is nobody to be late.
    for (first_ns, last_ns) in counts.spans_ns.iter().filter(|_| counts.subscribers > 1) {
        skew.record_ns(last_ns.saturating_sub(*first_ns));
    }
    skew
}

/// Publications per second of a typical server of live data with N subscribers; none where full speed is
/// sufficient.
fn usual_rate(subscribers: usize) -> Option<f64> {
    match subscribers {
        10_000.. => Some(20.0),
        1_000.. => Some(100.0),
        _ => None,
    }
}

/// A socket's buffer always holds this many.
fn usual_window(message_bytes: usize) -> u64 {
    (WINDOW_BYTES / message_bytes.max(1) as u64).max(1)
}

const WINDOW_BYTES: u64 = 64 * 1024;
