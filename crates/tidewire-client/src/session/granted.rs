//! Subscriptions that the server has made by itself: the client asks for them again on each new connection.

use super::Session;
use super::pending::Waiting;
use super::subscriptions::is_pattern;
use crate::clock::Moment;
use crate::error::Ending;
use crate::event::{BatchBuilder, Event};
use crate::request::{SubscribeOptions, Subscribed};
use crate::sequencer::Position;
use std::collections::BTreeMap;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::envelope::{epoch_text, parse_epoch};
use tidewire_wire::session::{RecoveryPosition, TOPICS_PER_REQUEST_MAX, TopicRecovery};

/// The topics of these subscriptions (sections 7.5 (8) to (12) of the protocol).
#[derive(Debug, Default)]
pub(crate) struct Granted {
    topics: BTreeMap<String, Grant>,
}

/// How a subscription stands on the current connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grant {
    /// The server has made it.
    Made,
    /// It was made on an earlier connection, and has not been asked for yet. The server may have made it again already.
    Earlier { is_made: bool },
    /// It has been asked for. The server may have made it again meanwhile.
    Asked { is_made: bool },
    /// The server refused it, or cannot be asked for it. It may still make it by itself, until this time.
    Awaited { until_ms: u64 },
}

impl Granted {
    pub(crate) fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    fn set(&mut self, topic: &str, grant: Grant) {
        if let Some(known) = self.topics.get_mut(topic) {
            *known = grant;
        }
    }

    /// The topic is not the server's: the application has subscribed it, or it is gone. True if it was.
    pub(super) fn remove(&mut self, topic: &str) -> bool {
        self.topics.remove(topic).is_some()
    }

    /// The connection is gone, and its subscriptions with it.
    pub(super) fn handle_disconnect(&mut self) {
        for grant in self.topics.values_mut() {
            *grant = Grant::Earlier { is_made: false };
        }
    }

    pub(super) fn poll_deadline_ms(&self) -> u64 {
        let deadlines = self.topics.values().filter_map(|grant| match grant {
            Grant::Awaited { until_ms } => Some(*until_ms),
            _ => None,
        });
        deadlines.min().unwrap_or(u64::MAX)
    }
}

impl Session {
    /// The server has subscribed this client to topics.
    pub(super) fn handle_granted(
        &mut self,
        topics: Vec<String>,
        recovery: &[TopicRecovery],
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let mut missed = Vec::new();
        for topic in topics {
            // The application's own subscription stays as it is.
            if self.subscriptions.options(&topic).is_some() || self.pending.changes(&topic) {
                continue;
            }
            let told = recovery.iter().find(|told| told.topic == topic);
            let told = told.and_then(position_of);
            let known = self.sequencer.position(&topic);
            match self.granted.topics.get(&topic) {
                None => {
                    self.granted.topics.insert(topic.clone(), Grant::Made);
                    if let (Some(position), None) = (told, known) {
                        let mut sequenced = Vec::new();
                        self.sequencer
                            .advance(&topic, position, moment.ms(), &mut sequenced);
                    }
                }
                Some(Grant::Made) => {}
                Some(Grant::Earlier { .. }) => {
                    self.granted.set(&topic, Grant::Earlier { is_made: true });
                }
                Some(Grant::Asked { .. }) => {
                    self.granted.set(&topic, Grant::Asked { is_made: true });
                }
                Some(Grant::Awaited { .. }) if told == known => {
                    self.granted.set(&topic, Grant::Made);
                }
                Some(Grant::Awaited { .. }) => missed.push(topic),
            }
        }
        if self.can_renew() {
            self.renew(missed, moment, out)?;
        } else {
            for topic in missed {
                self.granted.set(&topic, Grant::Made);
            }
        }
        Ok(())
    }

    /// Asks for the subscriptions of earlier connections, on a connection that has just been established.
    pub(super) fn renew_granted(
        &mut self,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        let can_renew = self.can_renew();
        let until_ms = moment.ms().saturating_add(GRANT_WAIT_MS);
        let mut topics = Vec::new();
        for (topic, grant) in &mut self.granted.topics {
            match grant {
                Grant::Earlier { .. } if can_renew => topics.push(topic.clone()),
                Grant::Earlier { is_made: true } => *grant = Grant::Made,
                Grant::Earlier { is_made: false } => *grant = Grant::Awaited { until_ms },
                _ => {}
            }
        }
        self.renew(topics, moment, out)
    }

    /// Requests missing publications of a topic again, if the server has made its subscription.
    pub(super) fn recover_granted(
        &mut self,
        topic: &str,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        if self.granted.topics.get(topic) == Some(&Grant::Made) && self.can_renew() {
            self.renew(vec![topic.to_owned()], moment, out)?;
        }
        Ok(())
    }

    fn renew(
        &mut self,
        topics: Vec<String>,
        moment: Moment,
        out: &mut Vec<u8>,
    ) -> Result<(), Ending> {
        for topics in topics.chunks(TOPICS_PER_REQUEST_MAX) {
            for topic in topics {
                self.granted.set(topic, Grant::Asked { is_made: false });
            }
            let topics = topics.to_vec();
            let number = self.pending.insert(Waiting::Renew { topics });
            self.transmit(number, moment, out)?;
        }
        Ok(())
    }

    /// The positions from which these topics are to go on.
    pub(super) fn granted_positions(&self, topics: &[String]) -> Vec<RecoveryPosition> {
        let names = topics.iter().filter(|topic| !is_pattern(topic));
        let position = |topic: &String| {
            let position = self.sequencer.position(topic)?;
            Some(RecoveryPosition {
                topic: topic.clone(),
                epoch: epoch_text(position.epoch),
                offset: position.offset,
            })
        };
        names.filter_map(position).collect()
    }

    /// Handles the answer to a renewal.
    pub(super) fn handle_renewed(
        &mut self,
        answer: &Subscribed,
        recovery: &[TopicRecovery],
        moment: Moment,
        out: &mut Vec<u8>,
        batch: &mut BatchBuilder,
    ) -> Result<(), Ending> {
        for topic in &answer.topics {
            self.granted.set(topic, Grant::Made);
        }
        let options = SubscribeOptions::default();
        for recovered in recovery {
            self.handle_position(recovered, &options, moment, batch);
        }
        let until_ms = moment.ms().saturating_add(GRANT_WAIT_MS);
        let (mut lost, mut again) = (Vec::new(), Vec::new());
        for topic in &answer.failed {
            let mut failures = answer.failures.iter();
            let is_forbidden = failures.any(|failure| {
                failure.topic == *topic && failure.code == ErrorCode::TopicForbidden.as_str()
            });
            match self.granted.topics.get(topic) {
                Some(Grant::Asked { is_made: true }) if is_forbidden => again.push(topic.clone()),
                Some(_) if is_forbidden => self.granted.set(topic, Grant::Awaited { until_ms }),
                Some(_) => lost.push(topic.clone()),
                None => {}
            }
        }
        self.lose_granted(lost, batch);
        self.renew(again, moment, out)
    }

    /// Reports to the application the subscriptions that the server has not made again in time.
    pub(super) fn end_granted(&mut self, moment: Moment, batch: &mut BatchBuilder) {
        if self.granted.poll_deadline_ms() > moment.ms() {
            return;
        }
        let is_over = |grant: &Grant| matches!(grant, Grant::Awaited { until_ms } if *until_ms <= moment.ms());
        let topics = self.granted.topics.iter();
        let lost = topics.filter(|(_, grant)| is_over(grant));
        let lost = lost.map(|(topic, _)| topic.clone()).collect();
        self.lose_granted(lost, batch);
    }

    /// The server does not make these subscriptions again.
    pub(super) fn lose_granted(&mut self, mut topics: Vec<String>, batch: &mut BatchBuilder) {
        topics.retain(|topic| self.granted.remove(topic));
        for topic in &topics {
            self.forget(topic, batch);
        }
        if !topics.is_empty() {
            batch.push(Event::SubscriptionLost(topics));
        }
    }

    /// Whether the server knows renewals. Before its hello nobody knows.
    fn can_renew(&self) -> bool {
        let link = self.link.as_ref().filter(|link| link.is_greeted);
        link.is_some_and(|link| link.can_renew)
    }
}

fn position_of(told: &TopicRecovery) -> Option<Position> {
    Some(Position {
        epoch: parse_epoch(&told.epoch)?,
        offset: told.offset,
    })
}

/// For how long the server's application may need longer than the client to make a subscription again.
const GRANT_WAIT_MS: u64 = 5_000;
