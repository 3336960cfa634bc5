//! Quality of a connection, measured with pings.

use std::collections::VecDeque;

/// The quality of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quality {
    /// The smoothed round-trip time in milliseconds (RFC 6298, with 1/8); 0 before the first answer.
    pub latency_ms: f64,
    /// The smoothed difference between consecutive round-trip times, in milliseconds (RFC 3550, section 6.4.1, with
    /// 1/16).
    pub jitter_ms: f64,
    /// The share of the last [`WINDOW`] pings that were not answered within [`ANSWER_MS_MAX`], from 0 to 1.
    pub loss: f64,
    /// A score from 0 (useless) to 100: 100 minus the penalties for latency, jitter and loss.
    pub score: u8,
    /// The number of answered pings.
    pub answered: u64,
}

/// Measures the pings of one connection. The time on a monotonic clock is an argument.
#[derive(Debug, Clone, Default)]
pub struct QualityMeter {
    latency_ms: f64,
    jitter_ms: f64,
    last_ms: Option<f64>,
    answered: u64,
    /// The times in microseconds at which the open pings were sent. They are answered in order.
    open: VecDeque<u64>,
    /// Whether each of the last pings was answered, the newest last.
    recent: VecDeque<bool>,
}

impl QualityMeter {
    /// Records that a ping was sent.
    pub fn handle_ping(&mut self, now_us: u64) {
        if self.open.len() == OPEN_MAX {
            self.open.pop_front();
            self.remember(false);
        }
        self.open.push_back(now_us);
    }

    /// Records an answer to the oldest open ping. Returns the round-trip time in microseconds; `None` if no ping was
    /// open.
    pub fn handle_pong(&mut self, now_us: u64) -> Option<u64> {
        let sent_us = self.open.pop_front()?;
        let latency_us = now_us.saturating_sub(sent_us);
        let latency_ms = latency_us as f64 / 1_000.0;
        self.remember(latency_us <= ANSWER_MS_MAX * 1_000);
        if self.answered == 0 {
            self.latency_ms = latency_ms;
        } else {
            self.latency_ms += (latency_ms - self.latency_ms) / 8.0;
        }
        if let Some(last_ms) = self.last_ms {
            self.jitter_ms += ((latency_ms - last_ms).abs() - self.jitter_ms) / 16.0;
        }
        self.last_ms = Some(latency_ms);
        self.answered += 1;
        Some(latency_us)
    }

    /// Counts the open pings as lost, because their connection has ended.
    pub fn handle_disconnect(&mut self) {
        for _ in 0..std::mem::take(&mut self.open).len() {
            self.remember(false);
        }
    }

    /// The current quality.
    #[must_use]
    pub fn quality(&self, now_us: u64) -> Quality {
        let late = self
            .open
            .iter()
            .filter(|sent_us| is_late(**sent_us, now_us));
        let lost = self.recent.iter().filter(|answered| !**answered).count() + late.clone().count();
        let all = self.recent.len() + late.count();
        let loss = if all == 0 {
            0.0
        } else {
            lost as f64 / all as f64
        };
        Quality {
            latency_ms: self.latency_ms,
            jitter_ms: self.jitter_ms,
            loss,
            score: score(self.latency_ms, self.jitter_ms, loss),
            answered: self.answered,
        }
    }

    fn remember(&mut self, answered: bool) {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(answered);
    }
}

fn is_late(sent_us: u64, now_us: u64) -> bool {
    now_us.saturating_sub(sent_us) > ANSWER_MS_MAX * 1_000
}

/// 40 points for latency (all of them up to 20 ms, none from 1 s on, by its logarithm), 20 for jitter (none from
/// 200 ms on) and 40 for loss (none from 20 % on).
fn score(latency_ms: f64, jitter_ms: f64, loss: f64) -> u8 {
    let slow = ((latency_ms.max(20.0) / 20.0).ln() / 50f64.ln()).clamp(0.0, 1.0);
    let shaky = (jitter_ms / 200.0).clamp(0.0, 1.0);
    let lossy = (loss / 0.2).clamp(0.0, 1.0);
    (100.0 - 40.0 * slow - 20.0 * shaky - 40.0 * lossy).round() as u8
}

/// The number of pings over which the loss is computed.
pub const WINDOW: usize = 50;

/// Milliseconds after which a ping without an answer counts as lost.
pub const ANSWER_MS_MAX: u64 = 10_000;

/// The maximum number of open pings; with a further one, the oldest counts as lost.
pub const OPEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(latencies_ms: &[u64]) -> Quality {
        let mut meter = QualityMeter::default();
        let mut now_us = 0;
        for latency_ms in latencies_ms {
            meter.handle_ping(now_us);
            now_us += latency_ms * 1_000;
            assert_eq!(meter.handle_pong(now_us), Some(latency_ms * 1_000));
        }
        meter.quality(now_us)
    }

    #[test]
    fn good_and_bad() {
        let good = after(&[10; 30]);
        assert_eq!(
            (good.latency_ms, good.jitter_ms, good.loss, good.score),
            (10.0, 0.0, 0.0, 100)
        );
        let slow = after(&[1_000; 30]);
        assert_eq!(slow.score, 60);
        let shaky = after(&[10, 410].repeat(50));
        assert!(shaky.jitter_ms > 380.0 && shaky.score < 65, "{shaky:?}");
        assert_eq!(QualityMeter::default().quality(0).score, 100);
    }

    #[test]
    fn what_is_not_answered_is_lost() {
        let mut meter = QualityMeter::default();
        for second in 0..10 {
            meter.handle_ping(second * 1_000_000);
            if second < 5 {
                meter.handle_pong(second * 1_000_000 + 5_000);
            }
        }
        assert_eq!(meter.quality(10_000_000).loss, 0.0, "not yet");
        let quality = meter.quality(30_000_000);
        assert_eq!((quality.loss, quality.score), (0.5, 60));
        meter.handle_disconnect();
        assert_eq!(meter.quality(10_000_000).loss, 0.5);
        assert_eq!(meter.handle_pong(30_000_000), None);
    }

    #[test]
    fn a_silent_server_costs_no_memory() {
        let mut meter = QualityMeter::default();
        for second in 0..10_000 {
            meter.handle_ping(second * 1_000_000);
        }
        assert!(meter.open.len() <= OPEN_MAX && meter.recent.len() <= WINDOW);
        assert_eq!(meter.quality(10_000_000_000).loss, 1.0);
    }
}
