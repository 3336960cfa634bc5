//! Conversations: what a session of another protocol sends besides the messages of a load, and what the messages of
//! its server mean.

use std::time::Duration;

use super::framing::Framing;
use super::pointers::Pointers;
use super::rules::{Meaning, Rules};
use crate::worker::template::Template;

/// A conversation. Its captured values are the first variables of the script.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// Sent by each connection after the upgrade.
    pub start: Vec<Template>,
    /// What the server's messages mean: the first rule that matches a message applies. A message that no rule matches
    /// belongs to the load.
    pub rules: Rules,
    /// Sent again and again by each connection that is ready.
    pub heartbeats: Vec<Heartbeat>,
    /// How messages are found in frames.
    pub framing: Framing,
    /// The places that rules look at: in JSON, or in the MessagePack of a binary message.
    pub pointers: Pointers,
}

/// A message that is sent again and again.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The time between two.
    pub every: Every,
    /// The message.
    pub message: Template,
}

/// The time between two messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    /// Always the same.
    Fixed(Duration),
    /// A captured number of this unit.
    Captured(usize, Duration),
}

impl Conversation {
    /// Every text that it sends.
    pub fn texts(&self) -> impl Iterator<Item = &Template> {
        let answers = self.rules.iter().flat_map(|rule| &rule.answers);
        let heartbeats = self.heartbeats.iter().map(|heartbeat| &heartbeat.message);
        self.start.iter().chain(answers).chain(heartbeats)
    }

    /// Whether a session has to wait until its server says that it is ready.
    #[must_use]
    pub fn waits(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| matches!(rule.meaning, Meaning::Ready))
    }
}

impl Every {
    /// The time, with these captured values; `None` for one that is no number above 0.
    pub(super) fn ns(self, captured: &[Vec<u8>]) -> Option<u64> {
        let time = match self {
            Self::Fixed(time) => time,
            Self::Captured(variable, unit) => {
                let text = std::str::from_utf8(captured.get(variable)?).ok()?;
                let number: f64 = text.trim().parse().ok()?;
                Duration::try_from_secs_f64(unit.as_secs_f64() * number).ok()?
            }
        };
        Some(time.max(HEARTBEAT_MIN).as_nanos() as u64).filter(|_| !time.is_zero())
    }
}

/// No server can ask for more.
const HEARTBEAT_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_interval_is_used_if_it_is_one() {
        let ms = Every::Captured(0, Duration::from_millis(1));
        let ns = |text: &str| ms.ns(&[text.as_bytes().to_vec()]);
        assert_eq!(ns("25000"), Some(25_000_000_000));
        assert_eq!(
            ns("0.5"),
            Some(10_000_000),
            "no more than a hundred a second"
        );
        for wrong in ["", "0", "-1", "x", "1e300"] {
            assert_eq!(ns(wrong), None, "{wrong}");
        }
        assert_eq!(
            Every::Fixed(Duration::from_secs(1)).ns(&[]),
            Some(1_000_000_000)
        );
    }
}
