//! Publications of clients about which the application decides.

use super::name::{InvalidTopic, check_topic_or_pattern, matches};
use crate::model::call_types::Call;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// The topics about whose publications by clients an application decides. It may be changed while the server runs.
#[derive(Debug, Default)]
pub struct DecidedTopics {
    is_any: AtomicBool,
    patterns: RwLock<Vec<String>>,
}

/// A publication that a client asks for, and that the access rules allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicationRequest<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The first pattern of [`DecidedTopics::set`] that fits the topic: its place, from 0.
    pub place: usize,
    /// The type of the message.
    pub t: &'a str,
    /// One JSON value, checked. If it is binary, the base64 of the bytes in quotes.
    pub payload: &'a str,
    /// True if the payload is binary; [`PublicationRequest::bytes`] then gives the bytes.
    pub is_binary: bool,
    /// How long an answer is waited for, in milliseconds: [`call_timeout_ms`](crate::Limits::call_timeout_ms).
    pub timeout_ms: u64,
}

impl DecidedTopics {
    /// Replaces the names and patterns of topics.
    ///
    /// # Errors
    /// One of them is neither a topic nor a pattern; all stay as they were.
    pub fn set(&self, patterns: Vec<String>) -> Result<(), InvalidTopic> {
        for pattern in &patterns {
            check_topic_or_pattern(pattern)?;
        }
        let mut held = self
            .patterns
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(!patterns.is_empty(), Ordering::Release);
        *held = patterns;
        Ok(())
    }

    /// Whether there is at least one pattern.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// The place of the first pattern that fits a topic.
    pub(crate) fn place(&self, topic: &str) -> Option<usize> {
        let held = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        held.iter().position(|pattern| matches(pattern, topic))
    }
}

impl<'a> PublicationRequest<'a> {
    /// The bytes of a payload that is binary; `None` for a JSON value.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.as_call().bytes()
    }

    /// The same as a call, without its topic.
    pub(crate) fn as_call(&self) -> Call<'a> {
        Call {
            t: self.t,
            payload: self.payload,
            is_binary: self.is_binary,
            timeout_ms: self.timeout_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_fits_decides() {
        let topics = DecidedTopics::default();
        assert!(!topics.is_any());
        assert_eq!(topics.place("rooms.tea"), None);
        let patterns = ["rooms.tea", "rooms.*", ">"].map(String::from).to_vec();
        topics.set(patterns).unwrap();
        assert!(topics.is_any());
        let places = ["rooms.tea", "rooms.cake", "rooms.tea.pot"].map(|topic| topics.place(topic));
        assert_eq!(places, [Some(0), Some(1), Some(2)]);
        assert!(
            topics
                .set(vec!["rooms".into(), "rooms..tea".into()])
                .is_err()
        );
        assert_eq!(topics.place("rooms.tea"), Some(0));
        topics.set(Vec::new()).unwrap();
        assert!(!topics.is_any());
    }
}
