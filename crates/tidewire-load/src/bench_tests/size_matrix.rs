//! `size-matrix`: throughput for each payload size, on the same connections.

use super::measure::Bench;
use super::throughput::send;
use crate::payload::Payload;
use crate::report::TestResult;
use crate::report::model::SIZE_MATRIX;
use crate::run::RunError;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let mut fleet = bench.fleet()?;
    let opened = bench.open(&mut fleet, connections)?;
    let mut results = Vec::new();
    for &bytes in &bench.options.sizes {
        if bench.is_stopped() {
            break;
        }
        let payload = Payload::json(bytes);
        results.push(send(
            bench,
            &mut fleet,
            &opened,
            SIZE_MATRIX,
            connections,
            payload,
        )?);
    }
    fleet.close()?;
    Ok(results)
}
