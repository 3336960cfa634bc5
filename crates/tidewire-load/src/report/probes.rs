//! The table of a search for the limit of connections.

use super::model::{LimitPhase, LimitProbe, TestResult};
use super::number;
use super::table::{ABSENT, Block};

/// Each number of connections that a search for their limit has tried.
pub(super) fn table(results: &[&TestResult]) -> Block {
    let limits = results.iter().filter_map(|result| result.limit.as_ref());
    Block {
        title: "Probes of the search".to_owned(),
        header: vec![
            "Connections",
            "Phase",
            "Stable",
            "Connected",
            "Handshakes/s",
            "Source addresses",
            "Errors",
        ],
        rows: limits.flat_map(|limit| &limit.probes).map(probe).collect(),
        text_columns: 3,
    }
}

fn probe(probe: &LimitProbe) -> Vec<String> {
    let phase = match probe.phase {
        LimitPhase::Doubling => "doubling",
        LimitPhase::Narrowing => "narrowing",
    };
    let count = |(name, count): (&String, &u64)| format!("{} {name}", number::grouped(*count));
    let errors: Vec<String> = probe.errors.iter().map(count).collect();
    vec![
        number::grouped(probe.connections),
        phase.to_owned(),
        if probe.stable { "yes" } else { "no" }.to_owned(),
        number::grouped(probe.connected),
        probe
            .rate_per_s
            .map_or_else(|| ABSENT.to_owned(), number::si),
        probe.source_addresses.to_string(),
        if errors.is_empty() {
            "0".to_owned()
        } else {
            errors.join(", ")
        },
    ]
}
