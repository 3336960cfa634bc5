//! One test against a plain WebSocket server: `raw_bench URL TEST CONNECTIONS SECONDS [IN_FLIGHT]`.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidewire_load::plan::bench::TestKind;
use tidewire_load::plan::run::{BenchOptions, run};
use tidewire_load::worker::target::Target;
use tidewire_load::worker::websocket::profile::Profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, test, connections, seconds, rest @ ..] = arguments.as_slice() else {
        return Err("raw_bench URL TEST CONNECTIONS SECONDS [IN_FLIGHT]".into());
    };
    let mut options = BenchOptions::new(Target::parse(url)?);
    options.profile = Profile::Raw;
    options.tests = vec![TestKind::parse(test).ok_or("no such test")?];
    options.tiers = vec![connections.parse()?];
    options.duration = Duration::from_secs_f64(seconds.parse()?);
    options.hold = options.duration;
    options.threads = 1;
    if let Some(in_flight) = rest.first() {
        options.in_flight = in_flight.parse()?;
    }
    let report = run(&options, &mut (), &AtomicBool::new(false))?;
    for mut result in report.results {
        if let Some(latency) = &mut result.latency_us {
            latency.points.clear();
        }
        show(&serde_json::to_string(&result)?);
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn show(line: &str) {
    println!("{line}");
}
