//! `size-matrix`: throughput for each payload size, on the same connections.

use super::measure::Bench;
use super::options::RunError;
use super::throughput::{Sending, send_each};
use crate::report::TestResult;
use crate::report::model::SIZE_MATRIX;
use crate::worker::websocket::payload::Payload;

pub(super) fn run(bench: &mut Bench<'_>, connections: usize) -> Result<Vec<TestResult>, RunError> {
    let sizes = bench.options.sizes.iter();
    let payloads: Vec<Payload> = sizes.map(|&bytes| bench.payload(bytes)).collect();
    send_each(
        bench,
        &Sending::one_way(SIZE_MATRIX),
        connections,
        &payloads,
    )
}
