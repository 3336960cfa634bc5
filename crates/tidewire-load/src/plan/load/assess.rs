//! Assessment of a load for the users of a service: memory, a grade, a capacity.

use super::Loading;
use crate::plan::memory::{NOT_KNOWN, after_closing};
use crate::report::{
    Assessment, AssessmentThreshold, AssessmentWord, LoopKind, TestResult, Verdict, number,
};

impl Loading<'_> {
    /// Adds the memory of both sides with all connections open, and of the server after they are closed.
    pub(super) fn weigh(&mut self, result: &mut TestResult) -> Result<(), super::LoadError> {
        let connections = result.connected.unwrap_or(0);
        let samples = &result.load.resources_over_time;
        let workers = self.fleet.processes_live().rss_bytes;
        let open = self
            .empty
            .with_open(&self.server, samples, connections, workers);
        self.fleet.close()?;
        match open {
            Some(open) => {
                let workers = || self.fleet.processes_live().rss_bytes;
                result.memory = Some(after_closing(open, &self.server, workers));
            }
            None => result.notes.push(NOT_KNOWN.to_owned()),
        }
        Ok(())
    }
}

/// Whether a result has something that can be assessed.
pub(super) fn has_outcome(result: &TestResult) -> bool {
    let requests = result.load.requests.unwrap_or_default();
    let connecting = result.load.connecting.as_ref();
    let connected = connecting.is_some_and(|all| all.opened + all.failed > 0);
    connected || requests.succeeded + requests.failed > 0
}

/// The word for a load, and the capacity that a load with a given rate implies.
pub(super) fn assess(result: &TestResult) -> Assessment {
    let requests = result.load.requests.unwrap_or_default();
    let connecting = result.load.connecting.clone().unwrap_or_default();
    let percent = |part: u64, whole: u64| match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64 * 100.0,
    };
    let mut thresholds = vec![
        threshold(
            "failed requests",
            "%",
            FAILED_PERCENT,
            percent(requests.unsuccessful(), requests.due()),
        ),
        threshold(
            "failed connections",
            "%",
            FAILED_PERCENT,
            percent(
                connecting.failed + connecting.ended,
                connecting.failed + connecting.opened,
            ),
        ),
    ];
    if requests.retried > 0 {
        thresholds.push(threshold(
            "requests sent again",
            "%",
            FAILED_PERCENT,
            percent(requests.retried, requests.due()),
        ));
    }
    if let Some(latency) = &result.latency_us {
        thresholds.push(threshold("p99", "ms", LATENCY_MS, latency.p99 / 1e3));
    }
    if let Some(connect) = &connecting.latency_us {
        let seen = connect.p99 / 1e3;
        thresholds.push(threshold("connect p99", "ms", CONNECT_MS, seen));
    }
    let word = thresholds.iter().map(|threshold| threshold.word).max();
    Assessment {
        word: word.unwrap_or_default(),
        capacity: capacity(result),
        thresholds,
    }
}

fn threshold(figure: &str, unit: &str, bounds: [f64; 3], seen: f64) -> AssessmentThreshold {
    let [excellent, good, degraded] = bounds;
    let word = if seen <= excellent {
        AssessmentWord::Excellent
    } else if seen <= good {
        AssessmentWord::Good
    } else if seen <= degraded {
        AssessmentWord::Degraded
    } else {
        AssessmentWord::Poor
    };
    AssessmentThreshold {
        figure: figure.to_owned(),
        unit: unit.to_owned(),
        excellent,
        good,
        degraded,
        seen,
        word,
    }
}

/// The load that the server could carry at [`USABLE_SHARE`] of its processor time, if its work
/// grows with its load.
fn capacity(result: &TestResult) -> Option<String> {
    // A search has measured the capacity, and its text contains it.
    if let Some(found) = &result.load.found_rate {
        return found.held_per_s.map(|_| found.text.clone());
    }
    // The rate of a closed loop is what the server makes of it, and no load that could grow.
    result.pace.filter(|pace| pace.kind == LoopKind::Open)?;
    let share = result.cpu.as_ref()?.server_share?;
    let is_meaningful = (SHARE_MIN..USABLE_SHARE).contains(&share);
    if !is_meaningful || result.verdict == Verdict::GeneratorBound {
        return None;
    }
    let factor = USABLE_SHARE / share;
    let connections = result.connected? as f64 * factor;
    let rate = result.rate_per_s? * factor;
    Some(format!(
        "The server used {:.0} % of its processor time. If its work grows with its load, it reaches {:.0} % at about \
         {} connections and {} requests or messages per second.",
        share * 100.0,
        USABLE_SHARE * 100.0,
        number::si(connections),
        number::si(rate)
    ))
}

/// Thresholds of excellent, good and degraded.
const FAILED_PERCENT: [f64; 3] = [0.1, 1.0, 5.0];
const LATENCY_MS: [f64; 3] = [50.0, 200.0, 1_000.0];
const CONNECT_MS: [f64; 3] = [200.0, 1_000.0, 5_000.0];

/// The share of its processor time that a server can use before it queues.
const USABLE_SHARE: f64 = 0.8;

/// Below this share, most of it is the server's own background work.
const SHARE_MIN: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Cpu, FoundRate, Latency, Pace, Requests};

    fn result(failed: u64, p99_ms: f64, server_share: f64) -> TestResult {
        let mut result = TestResult::new("http", 100);
        result.connected = Some(100);
        result.rate_per_s = Some(1_000.0);
        result.load.requests = Some(Requests {
            sent: 1_000,
            succeeded: 1_000 - failed,
            failed,
            ..Requests::default()
        });
        result.latency_us = Some(Latency {
            p99: p99_ms * 1e3,
            ..Latency::default()
        });
        result.cpu = Some(Cpu {
            server_share: Some(server_share),
            ..Cpu::default()
        });
        result.pace = Some(Pace {
            kind: LoopKind::Open,
            ..Pace::default()
        });
        result
    }

    #[test]
    fn the_worst_figure_decides_the_word() {
        let word = |failed, p99_ms| assess(&result(failed, p99_ms, 0.1)).word;
        assert_eq!(word(0, 10.0), AssessmentWord::Excellent);
        assert_eq!(word(5, 10.0), AssessmentWord::Good);
        assert_eq!(word(0, 500.0), AssessmentWord::Degraded);
        assert_eq!(word(100, 10.0), AssessmentWord::Poor);
    }

    #[test]
    fn a_capacity_needs_work_that_can_be_seen() {
        let capacity = |share| assess(&result(0, 1.0, share)).capacity;
        let text = capacity(0.4).unwrap();
        assert!(text.contains("200 connections"), "{text}");
        assert_eq!(capacity(0.01), None);
        assert_eq!(capacity(0.9), None);
        let mut closed = result(0, 1.0, 0.4);
        closed.pace = Some(Pace::default());
        assert_eq!(assess(&closed).capacity, None);
        assert_eq!(assess(&closed).word, AssessmentWord::Excellent);
    }

    /// After a search the capacity is the measured rate, or absent: no figure is derived from the share of a
    /// step.
    #[test]
    fn the_capacity_after_a_search_is_the_rate_that_held() {
        let mut searched = result(0, 1.0, 0.4);
        let found = |held_per_s| FoundRate {
            held_per_s,
            text: "703/s held, and 720/s did not.".to_owned(),
            ..FoundRate::default()
        };
        searched.load.found_rate = Some(found(Some(703.0)));
        let capacity = assess(&searched).capacity;
        assert_eq!(capacity.as_deref(), Some("703/s held, and 720/s did not."));
        searched.load.found_rate = Some(found(None));
        assert_eq!(assess(&searched).capacity, None);
    }

    #[test]
    fn nothing_is_no_excellent_load() {
        assert!(!has_outcome(&TestResult::new("http", 5)));
        assert!(has_outcome(&result(0, 1.0, 0.1)));
    }
}
