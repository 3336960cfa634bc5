//! The size matrix as grids: a figure for each number of connections and each size of the payload.

use super::model::TestResult;
use super::number;

/// One figure. Rows are numbers of connections, columns sizes of the payload.
pub(super) struct Grid {
    pub(super) caption: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<String>,
    pub(super) cells: Vec<Vec<Option<f64>>>,
    /// The text of a cell.
    pub(super) text: fn(f64) -> String,
}

/// The figures that at least one result has: confirmed messages and bytes per second.
pub(super) fn grids(results: &[&TestResult]) -> Vec<Grid> {
    let sizes = distinct(results.iter().filter_map(|r| r.payload_bytes));
    let tiers = distinct(results.iter().map(|r| r.connections));
    let grid = |caption, of: fn(&TestResult) -> Option<f64>, text| {
        let cell = |tier, size| {
            let here = |r: &&&TestResult| r.connections == tier && r.payload_bytes == Some(size);
            results.iter().filter(here).find_map(|result| of(result))
        };
        let cells: Vec<Vec<_>> = tiers
            .iter()
            .map(|&tier| sizes.iter().map(|&size| cell(tier, size)).collect())
            .collect();
        let is_known = cells.iter().flatten().any(Option::is_some);
        let columns = sizes.iter().map(|&size| number::bytes(size as f64));
        is_known.then_some(Grid {
            caption,
            columns: columns.collect(),
            rows: tiers.iter().map(|&tier| number::grouped(tier)).collect(),
            cells,
            text,
        })
    };
    let both = [
        grid(
            "Confirmed messages/s by connections (rows) and payload",
            |result| result.rate_per_s,
            number::si as fn(f64) -> String,
        ),
        grid(
            "Confirmed bytes/s by connections (rows) and payload",
            |result| result.bytes_per_s,
            number::decimal_bytes,
        ),
    ];
    both.into_iter().flatten().collect()
}

pub(super) fn distinct(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}
