//! Both sides of a measurement: the processor time of generator and server.

use std::time::Duration;

use crate::accounting::generator::{GeneratorCores, Moment, Neighbour};
use crate::accounting::outcome::CpuTime;
use crate::accounting::recorder::Recorder;
use crate::accounting::server::ServerWatch;
use crate::accounting::waits::Waits;
use crate::report::model::{ErrorBounds, GeneratorHealth};
use crate::report::{Cpu, TestResult};
use crate::verdict::evidence::{Evidence, PaceKept};
use crate::verdict::judge;
use crate::verdict::usage::{Side, Usage};

/// The processor time of generator and server during a measurement, and the disturbances of the
/// generator.
pub(super) fn both_sides(
    cpu: CpuTime,
    duration_s: f64,
    server_s: Option<(f64, f64)>,
    (cores, server): (&GeneratorCores, &ServerWatch),
    (started, ended): (&Moment, &Moment),
    (waits, late): (&Waits, &Recorder),
) -> (Usage, GeneratorHealth) {
    let (server_cores, server_count) = match server_s {
        Some(_) => server.cores(),
        None => Default::default(),
    };
    let shared = cores.allowed.intersection(&server_cores).count() as f64;
    let usage = Usage {
        duration_s,
        client: Side {
            busiest_s: cpu.busiest.as_secs_f64(),
            total_s: cpu.total.saturating_sub(cpu.spun).as_secs_f64(),
            cores: cores.count,
        },
        server: server_s.map(|(total_s, busiest_s)| Side {
            busiest_s,
            total_s,
            cores: server_count,
        }),
        shared_cores: shared,
    };
    let on_shared_s = match server_s {
        Some((total_s, _)) if !server_cores.is_empty() => {
            total_s * shared / server_cores.len() as f64
        }
        _ => 0.0,
    };
    let neighbour = Neighbour {
        cpu: Duration::from_secs_f64(on_shared_s),
    };
    let mut health = ended.health_since(started, cpu, neighbour, late);
    health.error_us = error_of(&health, waits, late);
    (usage, health)
}

/// The generator's part of each percentile: waits for cores that other programs used, and lateness.
fn error_of(health: &GeneratorHealth, waits: &Waits, late: &Recorder) -> Option<ErrorBounds> {
    let (waited_s, others_s) = (health.waited_s?, health.waited_for_others_s?);
    let part = if waited_s > 0.0 {
        (others_s / waited_s).min(1.0)
    } else {
        0.0
    };
    Some(Waits::with_lateness(waits.bounds(part), late))
}

/// Adds the verdict over the evidence, and the evidence itself. `remarks` state to whom these figures belong.
pub(super) fn add_verdict(
    result: &mut TestResult,
    evidence: &Evidence,
    cpu: CpuTime,
    remarks: &[String],
) {
    let usage = &evidence.usage;
    let known = |value: f64| (value > 0.0).then_some(value);
    result.cpu = Some(Cpu {
        client_s: cpu.total.as_secs_f64(),
        client_spin_s: known(cpu.spun.as_secs_f64()),
        client_share: known(usage.client_share()),
        client_cores: known(usage.client.cores),
        server_s: usage.server.map(|server| server.total_s),
        server_share: usage.server_share(),
        server_cores: usage.server.and_then(|server| known(server.cores)),
        shared_cores: known(usage.shared_cores).filter(|_| usage.server.is_some()),
    });
    if let Some(pace) = &mut result.pace {
        pace.offered_per_s = evidence.pace.as_ref().map(PaceKept::offered_per_s);
    }
    result.generator = Some(evidence.generator);
    result.bottleneck = usage.bottleneck();
    let judgement = judge(evidence);
    result.verdict = judgement.verdict;
    result.doubts = judgement
        .doubts
        .iter()
        .map(|doubt| doubt.name().to_owned())
        .collect();
    result.notes.extend(judgement.notes);
    result.notes.extend(remarks.iter().cloned());
}
