//! Conversations: what a session of another protocol sends besides the messages of a load, and what the messages of
//! its server mean.

use std::time::Duration;

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
    /// Bytes that end a message: a frame may contain several.
    pub separator: Option<Vec<u8>>,
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
    /// Whether a session has to wait until its server says that it is ready.
    #[must_use]
    pub fn waits(&self) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| matches!(rule.meaning, Meaning::Ready))
    }

    /// The messages of a frame.
    pub(super) fn messages<'m>(&self, frame: &'m [u8]) -> impl Iterator<Item = &'m [u8]> {
        let separator = self.separator.as_deref();
        // Without a separator even an empty frame is a message.
        let mut rest = Some(frame).filter(|frame| separator.is_none() || !frame.is_empty());
        std::iter::from_fn(move || {
            let whole = rest.take()?;
            let end = separator.and_then(|separator| {
                let at = memchr::memmem::find(whole, separator)?;
                Some((at, at + separator.len()))
            });
            let (end, next) = end.unwrap_or((whole.len(), whole.len()));
            rest = Some(&whole[next..]).filter(|rest| !rest.is_empty());
            Some(&whole[..end])
        })
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
    fn a_frame_may_contain_several_messages() {
        let mut conversation = Conversation::default();
        let messages = |conversation: &Conversation, frame: &'static str| -> Vec<&[u8]> {
            conversation.messages(frame.as_bytes()).collect()
        };
        assert_eq!(messages(&conversation, "a\x1eb"), [&b"a\x1eb"[..]]);
        assert_eq!(messages(&conversation, ""), [b""]);
        conversation.separator = Some(b"\x1e".to_vec());
        assert_eq!(messages(&conversation, "a\x1eb\x1e"), [b"a", b"b"]);
        assert_eq!(
            messages(&conversation, "a\x1e\x1eb"),
            [&b"a"[..], b"", b"b"]
        );
        assert!(messages(&conversation, "").is_empty());
    }

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
