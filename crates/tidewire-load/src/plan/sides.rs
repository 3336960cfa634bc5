//! Both sides of a measurement: what generator and server have had of the processor.

use std::time::Duration;

use crate::accounting::generator::{GeneratorCores, Moment, Neighbour};
use crate::accounting::outcome::CpuTime;
use crate::accounting::recorder::Recorder;
use crate::accounting::server::ServerWatch;
use crate::report::model::GeneratorHealth;
use crate::verdict::usage::{Side, Usage};

/// What generator and server have had of the processor in a time, and how the generator fared.
pub(super) fn both_sides(
    cpu: CpuTime,
    duration_s: f64,
    server_s: Option<(f64, f64)>,
    (cores, server): (&GeneratorCores, &ServerWatch),
    (started, ended): (&Moment, &Moment),
    late: &Recorder,
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
    (usage, ended.health_since(started, cpu, neighbour, late))
}
