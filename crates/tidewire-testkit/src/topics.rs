//! A checker of topics: the publications that subscribers may see, whatever the network did to them.
//!
//! One [`Log`] stores the content at each place of a topic, as soon as a participant sees it. Each connection's
//! subscription to a topic with history is a [`Reading`]: it checks the publications that the connection receives,
//! and reports violations.

use std::collections::HashMap;
use std::fmt;

/// A place in a topic's history, as it stands on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// `e`.
    pub epoch: String,
    /// `o`.
    pub offset: u64,
}

/// The content of each publication: the same for everybody.
#[derive(Debug, Default)]
pub struct Log {
    contents: HashMap<(String, Place), String>,
}

/// One subscription to a topic with history, on one connection.
#[derive(Debug, Clone)]
pub struct Reading {
    topic: String,
    /// The newest publication that was received, or reported as missing.
    at: Place,
    /// The topic's offset when the subscription was answered.
    stood_at: u64,
    /// Publications of the answer that have not arrived yet. They precede newer ones.
    missed: u64,
}

/// The part of the answer to a subscription about one topic.
#[derive(Debug, Clone)]
pub struct TopicAnswer {
    /// The current position of the topic.
    pub at: Place,
    /// Whether nothing was missed.
    pub recovered: bool,
    /// Publications that follow the answer.
    pub count: u64,
}

/// A rule of topics that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Log {
    /// Records that a participant learned or saw that this content is at this place.
    ///
    /// # Errors
    /// Another content is recorded for this place.
    pub fn note(&mut self, topic: &str, place: &Place, content: &str) -> Result<(), Violation> {
        let key = (topic.to_owned(), place.clone());
        let known = self
            .contents
            .entry(key)
            .or_insert_with(|| content.to_owned());
        if known == content {
            return Ok(());
        }
        Err(Violation(format!(
            "{topic} {place:?}: one sees {known}, another {content}"
        )))
    }

    /// How many places are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.contents.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }
}

impl Reading {
    /// A subscription was answered that had asked for the publications after `since` or, if they are gone, for the
    /// newest `replay` publications.
    ///
    /// # Errors
    /// The answer contradicts itself or the question.
    pub fn start(
        topic: &str,
        since: Option<&Place>,
        replay: u64,
        answer: &TopicAnswer,
    ) -> Result<Self, Violation> {
        let wrong = |what: &str| Violation(format!("{topic}: {what}: {since:?} {answer:?}"));
        let mut at = answer.at.clone();
        match (since, answer.recovered) {
            (None, true) => return Err(wrong("recovered what nobody asked for")),
            (Some(since), true) => {
                if since.epoch != at.epoch || since.offset + answer.count != at.offset {
                    return Err(wrong(
                        "a complete recovery has another number of publications",
                    ));
                }
                at.offset = since.offset;
            }
            (_, false) if answer.count > replay.max(1) || answer.count > at.offset => {
                return Err(wrong("a part was recovered in silence"));
            }
            // The newest value, or the newest ones.
            (_, false) => at.offset -= answer.count,
        }
        Ok(Self {
            topic: topic.to_owned(),
            stood_at: answer.at.offset,
            missed: answer.count,
            at,
        })
    }

    /// A publication was received.
    ///
    /// # Errors
    /// It arrives twice, out of order or after an unreported gap, or others see another content at its place.
    pub fn receive(
        &mut self,
        log: &mut Log,
        place: &Place,
        content: &str,
    ) -> Result<(), Violation> {
        log.note(&self.topic, place, content)?;
        // A topic whose position was forgotten starts again.
        let restarts = place.epoch != self.at.epoch && place.offset == 1;
        if !restarts && (place.epoch != self.at.epoch || place.offset != self.at.offset + 1) {
            return Err(Violation(format!(
                "{}: {place:?} comes after {:?}",
                self.topic, self.at
            )));
        }
        self.at = place.clone();
        self.missed = self.missed.saturating_sub(1);
        Ok(())
    }

    /// The server reported a gap: publications that the subscriber does not receive.
    ///
    /// # Errors
    /// The gap does not follow what was received.
    pub fn skip(&mut self, epoch: &str, from: u64, to: u64) -> Result<(), Violation> {
        if epoch != self.at.epoch || from != self.at.offset + 1 || to < from {
            return Err(Violation(format!(
                "{}: a gap from {from} to {to} of {epoch} after {:?}",
                self.topic, self.at
            )));
        }
        self.at.offset = to;
        Ok(())
    }

    /// The newest publication that was received, or reported as missing.
    #[must_use]
    pub fn at(&self) -> &Place {
        &self.at
    }

    /// Whether all publications that the answer announced have arrived.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.missed == 0 && self.at.offset >= self.stood_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> Place {
        let epoch = "0000000a".to_owned();
        Place { epoch, offset }
    }

    fn answer(offset: u64, recovered: bool, count: u64) -> TopicAnswer {
        TopicAnswer {
            at: place(offset),
            recovered,
            count,
        }
    }

    #[test]
    fn order_is_kept_and_gaps_are_told() {
        let mut log = Log::default();
        let mut reading = Reading::start("t", Some(&place(2)), 0, &answer(4, true, 2)).unwrap();
        for offset in [3, 4, 5] {
            reading.receive(&mut log, &place(offset), "x").unwrap();
        }
        assert!(reading.has_caught_up());
        assert!(reading.clone().receive(&mut log, &place(5), "x").is_err());
        assert!(reading.clone().receive(&mut log, &place(7), "x").is_err());
        assert!(reading.clone().skip("0000000a", 7, 8).is_err());
        reading.skip("0000000a", 6, 8).unwrap();
        assert!(reading.clone().receive(&mut log, &place(9), "y").is_ok());
        assert!(reading.receive(&mut log, &place(9), "z").is_err());
    }

    #[test]
    fn an_answer_must_be_complete_or_say_that_it_is_not() {
        assert!(Reading::start("t", None, 0, &answer(4, true, 0)).is_err());
        assert!(Reading::start("t", Some(&place(1)), 0, &answer(4, true, 2)).is_err());
        assert!(Reading::start("t", Some(&place(1)), 0, &answer(4, false, 2)).is_err());
        assert!(Reading::start("t", Some(&place(1)), 0, &answer(4, false, 0)).is_ok());
        let newest = Reading::start("t", None, 0, &answer(4, false, 1)).unwrap();
        assert_eq!(newest.at(), &place(3));
        let newest = Reading::start("t", Some(&place(1)), 3, &answer(4, false, 3)).unwrap();
        assert_eq!(newest.at(), &place(1));
        assert!(Reading::start("t", None, 3, &answer(4, false, 4)).is_err());
        assert!(Reading::start("t", None, 9, &answer(4, false, 5)).is_err());
    }
}
