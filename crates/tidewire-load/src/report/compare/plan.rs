//! Plans in comparisons: the parts of a plan that distinguish figures, and the parts that are
//! listed beside them.

use super::Difference;
use crate::report::model::{LoopKind, Report, TestResult};
use crate::report::number;
use crate::report::summary;

/// The pace of the messages of a result, in words that are equal for equal paces; `None` for a test
/// that sends no messages. Older reports state it for the whole run, and in a note.
pub(super) fn pace(report: &Report, result: &TestResult) -> Option<String> {
    if let Some(pace) = &result.pace {
        return Some(match (pace.kind, pace.planned_per_s) {
            (LoopKind::Open, Some(rate)) if pace.poisson => format!("{rate}/s, Poisson"),
            (LoopKind::Open, Some(rate)) => format!("{rate}/s"),
            // The limit of a fan-out's publisher does not belong to its speed; another figure shows
            // it.
            _ => closed(pace.in_flight.filter(|_| result.fan_out.is_none())),
        });
    }
    result.format.as_ref()?;
    if let Some(rate) = result
        .fan_out
        .as_ref()
        .and_then(|fan| fan.publications_per_s)
    {
        return Some(format!("{rate}/s"));
    }
    let told = report.plan.as_ref().and_then(|plan| plan.pace.as_deref());
    let is_open = told.is_some_and(|told| told.contains("/s"));
    if let Some(told) = told.filter(|_| is_open) {
        return Some(told.trim_end_matches(", constant").to_owned());
    }
    let in_flight = result.notes.iter().find_map(|note| {
        let number = note.strip_suffix(" messages in flight on each connection.")?;
        number.parse().ok()
    });
    Some(closed(in_flight))
}

fn closed(in_flight: Option<u64>) -> String {
    match in_flight {
        Some(count) => format!("{} in flight", number::grouped(count)),
        None => "closed loop".to_owned(),
    }
}

/// All differences between the reports that are not part of the set-up of a row.
pub(super) fn differences(reports: &[(String, Report)]) -> Vec<Difference> {
    let columns: Vec<Vec<(&'static str, String)>> =
        reports.iter().map(|(_, report)| told(report)).collect();
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in columns.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let values = |name: &str| -> Vec<String> {
        let value = |column: &Vec<(&'static str, String)>| {
            let found = column.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        columns.iter().map(value).collect()
    };
    let all = names.into_iter().map(|name| Difference {
        name,
        values: values(name),
    });
    all.filter(|difference| difference.values.iter().any(|v| *v != difference.values[0]))
        .collect()
}

/// Properties of a report that help to explain an unexpected figure.
fn told(report: &Report) -> Vec<(&'static str, String)> {
    let tool = &report.tool;
    let server = report.target.server.clone().unwrap_or_default();
    let mut told = vec![
        ("Machine", summary::machine(&report.machine)),
        (
            "Generator",
            format!("{} {} ({})", tool.name, tool.version, tool.language),
        ),
        ("Server", server),
    ];
    let of_rows = ["Tests", "Connections", "Profile", "Pace", "Command"];
    let plan = summary::plan(report).into_iter();
    told.extend(plan.filter(|(name, _)| !of_rows.contains(name)));
    told
}
