//! `sustained-hold`: connections held for a while, with a slow ping on each.

use super::measure::Bench;
use super::options::RunError;
use crate::fleet::Part;
use crate::fleet::stop::StopRule;
use crate::report::model::SUSTAINED_HOLD;
use crate::report::{Memory, Survival, TestResult, number};
use crate::verdict::evidence::Aim;
use crate::worker::order::Activity;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let (hold, ping_every_ms) = (bench.options.hold, bench.options.hold_ping_every_ms);
    bench.started(
        SUSTAINED_HOLD,
        &number::connections(connections as u64),
        hold,
    );
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let activity = |_: Part<'_>| Activity::Hold { ping_every_ms };
    let measured = bench.measure(&mut fleet, activity, StopRule::Duration(hold))?;

    let mut result = bench.result(SUSTAINED_HOLD, connections, &opened);
    bench.judge(&mut result, &opened, &measured, Aim::Keep);
    measured.show_round_trips(&mut result);
    let survived = measured.living();
    let percent = 100.0 * survived as f64 / opened.connected.max(1) as f64;
    result.survival = Some(Survival { survived, percent });
    result.memory = measured.rss_bytes.map(|(before, after)| Memory {
        drift_bytes: Some(after.cast_signed() - before.cast_signed()),
        ..bench.idle_memory(after, survived, &measured.resources)
    });
    bench.close(fleet, Some(&mut result))?;
    bench.expect(&mut result, &opened, Some(&measured.ran));
    Ok(vec![bench.finished(result)])
}
